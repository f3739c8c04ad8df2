//! The Helm charts on a real API server, by the real Helm: what they install is enough for the service to work.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Api, ListParams};
use mortise_apis::NodeClaim;
use mortise_tests::harness::{ControlPlane, Helm, Mortise, MortiseOptions, StateDir, wait_until};
use serde_json::{Value, json};

use crate::objects::{LINUX, deployment, kwok_class, pool};
use crate::scene::{SOON, turn};

const NAMESPACE: &str = "autoscaling";

/// Values as people have them for Karpenter's chart, with what must not get lost: `false` and 0.
fn karpenter_values() -> Value {
    json!({
        "replicas": 2,
        "logLevel": "debug",
        "serviceAccount": { "annotations": { "eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/nodes" } },
        "podLabels": { "team": "core" },
        "serviceMonitor": { "enabled": false, "additionalLabels": { "release": "prometheus" } },
        "controller": {
            "image": { "digest": format!("sha256:{}", "a".repeat(64)) },
            "resources": { "requests": { "cpu": "1", "memory": "1Gi" }, "limits": { "memory": "1Gi" } },
            "env": [{ "name": "MORTISE_SEED", "value": "7" }],
        },
        "settings": {
            "clusterName": "blue",
            "interruptionQueue": "blue",
            "batchIdleDuration": "500ms",
            "vmMemoryOverheadPercent": 0,
            "ignoreDRARequests": false,
            "telemetryDetail": "full",
            "featureGates": { "nodeRepair": true, "staticCapacity": true },
        },
    })
}

fn documents(yaml: &str) -> Result<Vec<Value>> {
    let all: Vec<Value> = serde_saphyr::from_multiple(yaml)?;
    let mut all: Vec<Value> = all.into_iter().filter(|each| !each.is_null()).collect();
    all.sort_by_key(|each| each["metadata"]["name"].to_string());
    Ok(all)
}

/// The documents of a kind.
fn of(documents: &[Value], kind: &str) -> Vec<Value> {
    let all = documents.iter().filter(|each| each["kind"] == kind);
    all.cloned().collect()
}

/// The webhooks' CA bundles and failure policies.
async fn webhooks(plane: &ControlPlane) -> Result<Vec<(bool, String)>> {
    let all: Api<ValidatingWebhookConfiguration> = Api::all(plane.client());
    let webhooks = all.get("validation.mortise.sh").await?.webhooks;
    webhooks
        .context("webhooks")?
        .into_iter()
        .map(|webhook| {
            Ok((
                webhook.client_config.ca_bundle.is_some(),
                webhook.failure_policy.context("a policy")?,
            ))
        })
        .collect()
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "one story, told in order")]
async fn what_the_charts_install_is_enough_to_work() -> Result<()> {
    let _turn = turn().await?;
    let plane = Box::pin(ControlPlane::builder().full().start()).await?;
    let helm = Helm::ready(&plane.dir().join("helm"), &plane.kubeconfig_path()).await?;
    let path = |name: &str| Helm::chart(name).display().to_string();
    let (chart, definitions) = (path("mortise"), path("mortise-crd"));
    let run = async |args: &[&str]| helm.run(args).await;

    // Definitions: the same as by the command, for each provider.
    for provider in ["aws", "kwok"] {
        let set = format!("provider={provider}");
        let rendered = run(&["template", "definitions", &definitions, "--set", &set]).await?;
        let printed = Mortise::output(&["manifests", "crds", "--provider", provider]).await?;
        ensure!(documents(&rendered)? == documents(&printed)?, "{provider}");
    }
    let annotated = ["--set", "provider=kwok,additionalAnnotations.team=core"];
    run(&[&["install", "definitions", &definitions], &annotated[..]].concat()).await?;

    let values = plane.dir().join("values.json");
    std::fs::write(&values, karpenter_values().to_string())?;
    let values = values.display().to_string();
    let common = ["mortise", &chart, "-n", NAMESPACE, "-f", &values, "--set"];
    let first = "provider=kwok";
    let installing = ["install", "--create-namespace"];
    run(&[&installing, &common[..], &[first]].concat()).await?;

    // The service starts with the variables of the Deployment and the rights of its account, and nothing else.
    let deployments: Api<Deployment> = Api::namespaced(plane.client(), NAMESPACE);
    let stored = deployments.get("mortise").await?;
    let pod = stored
        .spec
        .context("a spec")?
        .template
        .spec
        .context("a pod")?;
    let container = pod.containers.first().context("a container")?;
    let env: Vec<(String, String)> = container
        .env
        .iter()
        .flatten()
        .filter_map(|variable| Some((variable.name.clone(), variable.value.clone()?)))
        .collect();
    for (name, value) in [
        ("VM_MEMORY_OVERHEAD_PERCENT", "0"),
        ("IGNORE_DRA_REQUESTS", "false"),
        ("CLUSTER_NAME", "blue"),
        ("BATCH_IDLE_DURATION", "500ms"),
        ("MORTISE_TELEMETRY_DETAIL", "full"),
        ("KARPENTER_SERVICE", "mortise"),
        ("MORTISE_SEED", "7"),
    ] {
        let variable = (name.to_owned(), value.to_owned());
        ensure!(env.contains(&variable), "{name}={value} in {env:?}");
    }
    let gates = env.iter().find(|(name, _)| name == "FEATURE_GATES");
    let gates = &gates.context("FEATURE_GATES")?.1;
    ensure!(
        gates.contains("NodeRepair=true") && gates.contains("NodeOverlay=false"),
        "{gates}"
    );
    let account = pod.service_account_name.context("an account")?;
    let user = format!("system:serviceaccount:{NAMESPACE}:{account}");
    let kubeconfig = plane.kubeconfig_for(&user, &["system:serviceaccounts"])?;
    let mut options = MortiseOptions::with_flags(&[
        &format!("--kubeconfig={}", kubeconfig.display()),
        &format!("--leader-election-namespace={NAMESPACE}"),
    ])
    .env(env);
    options.cert_secret = true;
    let mut mortise = Mortise::start(&plane, options).await?;
    mortise.wait_ready().await?;
    wait_until("the bundle in every webhook", SOON, || async {
        let webhooks = webhooks(&plane).await?;
        ensure!(webhooks.iter().all(|(bundle, _)| *bundle), "{webhooks:?}");
        Ok(())
    })
    .await?;

    // An upgrade keeps the bundles; it changes the policy of what may be refused, and of nothing else.
    let second = "provider=kwok,webhooks.failurePolicy=Fail";
    run(&[&["upgrade"], &common[..], &[second]].concat()).await?;
    let after = webhooks(&plane).await?;
    ensure!(after.iter().all(|(bundle, _)| *bundle), "{after:?}");
    let fail = after.iter().filter(|(_, policy)| policy == "Fail").count();
    ensure!(fail == 1 && after.len() == 4, "{after:?}");

    // Without webhooks again, since nothing routes to a Service here; then a pod gets a node.
    let third = "provider=kwok,webhooks.enabled=false";
    run(&[&["upgrade"], &common[..], &[third]].concat()).await?;
    let web = deployment("web", 1, ("1", "1Gi"), json!({}));
    let objects = [kwok_class(), pool("default", &[LINUX], json!({})), web];
    let objects: Vec<String> = objects.iter().map(Value::to_string).collect();
    plane.apply_yaml(&objects.join("\n---\n")).await?;
    let claims: Api<NodeClaim> = Api::all(plane.client());
    wait_until("a node that registered", SOON, || async {
        let claims = claims.list(&ListParams::default()).await?;
        ensure!(
            claims
                .items
                .iter()
                .any(|claim| claim.status.node_name.is_some()),
            "{} claims",
            claims.items.len()
        );
        Ok(())
    })
    .await?;

    run(&["uninstall", "mortise", "-n", NAMESPACE, "--wait"]).await?;
    let roles = plane
        .kubectl(&["get", "clusterroles", "-o", "name"])
        .await?;
    let roles = roles.ok()?;
    ensure!(!roles.contains("mortise"), "{roles}");
    mortise.kill9().await;
    plane.stop().await;
    Ok(())
}

/// With a network policy only the named peers connect; permissions are only those of the provider and of its own certificates.
#[tokio::test]
async fn values_close_ports_and_take_rights_away() -> Result<()> {
    let mut state = StateDir::create("helm")?;
    let helm = Helm::ready(state.path(), &state.join("no-cluster")).await?;
    let chart = Helm::chart("mortise").display().to_string();
    let render = async |set: &str| -> Result<Vec<Value>> {
        let text = helm.run(&["template", "x", &chart, "--set", set]).await?;
        let documents: Vec<Value> = serde_saphyr::from_multiple(&text)?;
        Ok(documents)
    };
    let open = render("provider=aws").await?;
    ensure!(of(&open, "NetworkPolicy").is_empty());
    let closed = render("provider=aws,certificates.secretName=given,networkPolicy.enabled=true,networkPolicy.https[0].ipBlock.cidr=10.0.0.0/24").await?;
    let policies = of(&closed, "NetworkPolicy");
    let ingress = &policies.first().context("a policy")?["spec"]["ingress"];
    let ports = json!([{ "port": "https", "protocol": "TCP" }]);
    let deployments = of(&closed, "Deployment");
    let replicas = &deployments.first().context("a Deployment")?["spec"]["selector"];
    ensure!(
        *ingress
            == json!([
                { "ports": ports, "from": [{ "ipBlock": { "cidr": "10.0.0.0/24" } }] },
                { "ports": ports, "from": [{ "podSelector": replicas }] },
            ]),
        "{ingress}"
    );
    let can = |documents: &[Value], kind: &str, resource: &str, verb: &str| {
        let roles = of(documents, kind);
        // What people may do is another matter.
        let is_ours = |role: &&Value| {
            let labels = role["metadata"]["labels"].as_object();
            labels.is_none_or(|all| !all.keys().any(|key| key.contains("/aggregate-to-")))
        };
        let mut rules = roles
            .iter()
            .filter(is_ours)
            .flat_map(|role| role["rules"].as_array().cloned().unwrap_or_default());
        let has = |list: &Value, what: &str| {
            list.as_array()
                .is_some_and(|list| list.contains(&json!(what)))
        };
        rules.any(|rule| has(&rule["resources"], resource) && has(&rule["verbs"], verb))
    };
    ensure!(can(&open, "Role", "secrets", "create") && !can(&closed, "Role", "secrets", "get"));
    ensure!(!can(&open, "ClusterRole", "nodes", "create"));
    ensure!(!can(&open, "ClusterRole", "kwoknodeclasses", "get"));
    let costs = render("provider=aws,podDeletionCosts.enabled=true").await?;
    let patches_pods = |documents: &[Value]| {
        let is_set = of(documents, "Deployment").iter().any(|deployment| {
            let variables = &deployment["spec"]["template"]["spec"]["containers"][0]["env"];
            let variable = json!({ "name": "MORTISE_POD_DELETION_COSTS", "value": "true" });
            variables
                .as_array()
                .is_some_and(|all| all.contains(&variable))
        });
        (can(documents, "ClusterRole", "pods", "patch"), is_set)
    };
    ensure!(patches_pods(&open) == (false, false));
    ensure!(patches_pods(&costs) == (true, true));
    let restarts = render("provider=aws,handOver.enabled=true").await?;
    ensure!(can(&restarts, "ClusterRole", "deployments", "patch"));
    ensure!(!can(&costs, "ClusterRole", "deployments", "patch"));
    let both = render("provider={aws,kwok}").await?;
    ensure!(
        can(&both, "ClusterRole", "nodes", "create")
            && can(&both, "ClusterRole", "ec2nodeclasses", "get")
    );
    state.discard();
    Ok(())
}

/// Alerts and dashboards of the chart are those that the program writes.
#[tokio::test]
async fn alerts_and_dashboards_are_installed_on_request() -> Result<()> {
    let mut state = StateDir::create("helm")?;
    let helm = Helm::ready(state.path(), &state.join("no-cluster")).await?;
    let chart = Helm::chart("mortise").display().to_string();
    let render = async |set: &str| -> Result<Vec<Value>> {
        let args = ["template", "x", &chart, "-n", NAMESPACE, "--set", set];
        documents(&helm.run(&args).await?)
    };
    let off = render("provider=aws").await?;
    ensure!(of(&off, "PrometheusRule").is_empty() && of(&off, "ConfigMap").is_empty());
    let on = render("provider=aws,prometheusRule.enabled=true,prometheusRule.additionalLabels.release=prometheus,dashboards.enabled=true,dashboards.labels.folder=nodes").await?;
    let written = documents(&Mortise::output(&["manifests", "alerts"]).await?)?;
    let rule = &of(&on, "PrometheusRule")[0];
    ensure!(rule["spec"] == written[0]["spec"] && rule["spec"]["groups"].is_array());
    ensure!(rule["metadata"]["labels"]["release"] == "prometheus");
    let maps = of(&on, "ConfigMap");
    let written = documents(&Mortise::output(&["manifests", "dashboards"]).await?)?;
    ensure!(maps.len() == written.len() && !maps.is_empty(), "{maps:?}");
    for (map, written) in maps.iter().zip(&written) {
        let file = |object: &Value| -> Result<Value> {
            let data = object["data"].as_object().context("data")?;
            let (_, text) = data.iter().next().context("a file")?;
            Ok(serde_json::from_str(text.as_str().context("a text")?)?)
        };
        ensure!(map["metadata"]["name"] == written["metadata"]["name"]);
        ensure!(file(map)? == file(written)?);
        let labels = &map["metadata"]["labels"];
        ensure!(labels["folder"] == "nodes" && labels["grafana_dashboard"] == "1");
    }
    state.discard();
    Ok(())
}

/// A value that is not there, or not allowed, is named.
#[tokio::test]
async fn bad_values_are_refused_by_name() -> Result<()> {
    let mut state = StateDir::create("helm")?;
    let helm = Helm::ready(state.path(), &state.join("no-cluster")).await?;
    let chart = Helm::chart("mortise").display().to_string();
    for (set, parts) in [
        ("settings.batchMaxDuratoin=1s", &["batchMaxDuratoin"][..]),
        ("settings.batchMaxDuration=5", &["batchMaxDuration"]),
        ("logLevel=loud", &["logLevel", "debug"]),
        ("webhooks.failurePolicy=fail", &["failurePolicy", "Ignore"]),
        ("provider=gcp", &["provider", "aws"]),
        (
            "settings.telemetryDetail=all",
            &["telemetryDetail", "bounded"],
        ),
        ("settings.featureGates.nodeRepiar=true", &["nodeRepiar"]),
    ] {
        let refused = helm.run(&["template", "x", &chart, "--set", set]).await;
        let message = refused
            .err()
            .with_context(|| format!("{set} is accepted"))?;
        let message = format!("{message:#}");
        for part in parts {
            ensure!(message.contains(part), "{set}: {message}");
        }
    }
    state.discard();
    Ok(())
}
