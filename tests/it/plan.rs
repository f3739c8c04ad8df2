//! `mortise snapshot` and `mortise plan` on a cluster: a user who may only read sees what the service then does.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use kube::api::{Api, ListParams};
use mortise_apis::NodeClaim;
use mortise_tests::harness::{
    Component, ControlPlane, Mortise, MortiseOptions, Moto, SchedulerOptions, wait_until,
};
use serde_json::{Value, json};

use crate::aws_account::Account;
use crate::command::{self, Said};
use crate::objects::{LINUX, ON_DEMAND, daemon_set, deployment, kwok_class, pool, types};
use crate::scene::{SOON, turn};

const READER: &str = "plan-reader";

/// Rights to read, and nothing else.
fn reader() -> String {
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": { "name": READER },
        "rules": [{ "apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list"] }],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": READER },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": READER },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": READER }],
    });
    format!("{role}\n---\n{binding}")
}

/// Instance types by how many nodes have them.
fn counted(names: impl Iterator<Item = String>) -> BTreeMap<String, usize> {
    let mut all = BTreeMap::new();
    for name in names {
        *all.entry(name).or_default() += 1;
    }
    all
}

async fn planned(args: &[&str]) -> Result<Value> {
    let said = command::run("plan", &[args, &["-o", "json"]].concat(), None).await?;
    ensure!(said.code == 0, "{said:?}");
    Ok(serde_json::from_str(&said.stdout)?)
}

fn listed<'a>(report: &'a Value, field: &str) -> Result<&'a Vec<Value>> {
    report[field].as_array().context("a list")
}

/// What the reader asked of the API server, by verb.
fn asked(audit: &Path) -> Result<BTreeMap<String, usize>> {
    let log = std::fs::read_to_string(audit)?;
    let verbs = log.lines().map(|line| {
        let event: Value = serde_json::from_str(line)?;
        Ok(event["verb"].as_str().unwrap_or_default().to_owned())
    });
    let verbs: Vec<String> = verbs.collect::<Result<_>>()?;
    Ok(counted(verbs.into_iter()))
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "one story, told in order")]
async fn a_reader_sees_what_the_service_then_does() -> Result<()> {
    let _turn = turn().await?;
    let dir = std::env::temp_dir().join(format!("mortise-plan-{}", std::process::id()));
    std::fs::create_dir_all(&dir)?;
    let (policy, audit) = (dir.join("policy.json"), dir.join("audit.log"));
    let rules = json!({ "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [
        { "level": "Metadata", "users": [READER], "omitStages": ["RequestReceived"] }, { "level": "None" },
    ] });
    std::fs::write(&policy, rules.to_string())?;
    let crds = Mortise::output(&["manifests", "crds", "--provider", "kwok"]).await?;
    let builder = ControlPlane::builder()
        .full()
        .without(Component::Scheduler)
        .manifests(&crds)
        .manifests(&reader())
        .flag(
            Component::ApiServer,
            &format!("--audit-policy-file={}", policy.display()),
        )
        .flag(
            Component::ApiServer,
            &format!("--audit-log-path={}", audit.display()),
        )
        .flag(Component::ApiServer, "--audit-log-mode=blocking-strict");
    let mut plane = Box::pin(builder.start()).await?;
    plane.start_scheduler(&SchedulerOptions::default()).await?;
    let objects = [
        kwok_class(),
        daemon_set("agent", "100m"),
        pool(
            "web",
            &[types(&["c-8x-amd64-linux"]), ON_DEMAND],
            json!({ "template": { "metadata": { "labels": { "team": "web" } } }, "weight": 10 }),
        ),
        pool("any", &[LINUX], json!({})),
        deployment(
            "web",
            40,
            ("500m", "512Mi"),
            json!({ "nodeSelector": { "team": "web" } }),
        ),
        deployment("other", 7, ("1", "1Gi"), json!({})),
    ];
    let documents: Vec<String> = objects.iter().map(Value::to_string).collect();
    plane.apply_yaml(&documents.join("\n---\n")).await?;
    let kubeconfig = plane.kubeconfig_for(READER, &[])?;
    let kubeconfig = kubeconfig.display().to_string();
    let live = ["--kubeconfig", &kubeconfig];
    let report = wait_until("all pods in the plan", SOON, || async {
        let report = planned(&live).await?;
        ensure!(report["pending"] == 47, "{}", report["pending"]);
        Ok(report)
    })
    .await?;
    let launches = listed(&report, "launches")?;
    let names = launches
        .iter()
        .filter_map(|each| each["instanceType"].as_str());
    let said = counted(names.map(str::to_owned));
    ensure!(launches.len() >= 4, "{launches:?}");

    // The file gives the same, also with hashed names.
    let file = dir.join("cluster.snapshot").display().to_string();
    let of_file = |hashed: bool| {
        let (live, file) = (live, file.clone());
        async move {
            let mut args = vec!["-o", &file];
            args.extend(live);
            args.extend(hashed.then_some("--hash-names"));
            let wrote = command::run("snapshot", &args, None).await?;
            ensure!(
                wrote.code == 0 && wrote.stdout.contains("47 Pod"),
                "{wrote:?}"
            );
            planned(&[&file]).await
        }
    };
    for hashed in [false, true] {
        let again = of_file(hashed).await?;
        ensure!(again["totals"] == report["totals"], "{again}\n{report}");
    }

    // Nothing was written: there are no claims, and the audit log shows reads alone.
    let claims: Api<NodeClaim> = Api::all(plane.client());
    ensure!(claims.list(&ListParams::default()).await?.items.is_empty());
    let verbs = asked(&audit)?;
    ensure!(
        verbs
            .keys()
            .all(|verb| ["get", "list"].contains(&verb.as_str()))
            && verbs["list"] > 30,
        "{verbs:?}"
    );

    // The service does what the plan says.
    let mut mortise = Mortise::start(&plane, MortiseOptions::default()).await?;
    mortise.wait_ready().await?;
    let did = wait_until("the planned nodes", SOON, || async {
        let claims = claims.list(&ListParams::default()).await?.items;
        let names = claims.iter().filter_map(|claim| {
            claim.is_true("Initialized").then_some(())?;
            claim
                .label("node.kubernetes.io/instance-type")
                .map(str::to_owned)
        });
        let did = counted(names);
        ensure!(did.values().sum::<usize>() >= launches.len(), "{did:?}");
        Ok(did)
    })
    .await?;
    ensure!(did == said, "said {said:?}, did {did:?}");
    mortise.kill9().await;

    // What if: a node less, and one that is not there.
    let node = claims.list(&ListParams::default()).await?.items;
    let node = node.iter().find_map(|claim| claim.status.node_name.clone());
    let node = node.context("a node")?;
    let without = planned(&[&live[..], &["--remove-node", &node]].concat()).await?;
    ensure!(
        without["totals"]["removedMicroUsd"].as_i64() > Some(0),
        "{without}"
    );
    let wrong = format!("{node}x");
    let Said { code, stderr, .. } = command::run(
        "plan",
        &[&live[..], &["--remove-node", &wrong]].concat(),
        None,
    )
    .await?;
    ensure!(
        code == 8 && stderr.contains(&format!("did you mean {node:?}?")),
        "{code}: {stderr}"
    );
    // The error of a user without rights names the one that is missing.
    let stranger = plane.kubeconfig_for("stranger", &[])?.display().to_string();
    let Said { code, stderr, .. } =
        command::run("plan", &["--kubeconfig", &stranger], None).await?;
    ensure!(code == 5 && stderr.contains("list "), "{code}: {stderr}");
    plane.stop().await;
    std::fs::remove_dir_all(&dir)?;
    Ok(())
}

/// Calls to EC2 and IAM that create something.
const CREATING: [&str; 4] = [
    "CreateFleet",
    "CreateLaunchTemplate",
    "CreateInstanceProfile",
    "RunInstances",
];

async fn created(account: &Account) -> Result<Vec<u64>> {
    let mut counts = Vec::new();
    for action in CREATING {
        counts.push(account.moto.calls(action).await?);
    }
    Ok(counts)
}

/// How often a process, and those that ran before it, have read spot prices.
fn reads_of_spot_prices(mortise: &Mortise) -> Result<usize> {
    let log = mortise.log()?;
    Ok(log.matches(r#""updated prices","kind":"spot""#).count())
}

/// With the credentials of the controller, prices and instance types are EC2's, and nothing is created there.
#[tokio::test]
async fn what_would_be_launched_on_ec2_is_planned_without_creating_anything() -> Result<()> {
    let account = Account::open().await?;
    let (mut scene, factory) = account.scene(&[]).await?;
    wait_until("the NodePool to be ready", SOON, || async {
        ensure!(scene.pool("default").await?.is_ready());
        Ok(())
    })
    .await?;
    scene.mortise.kill9().await;
    scene
        .apply(&[deployment("web", 3, ("1500m", "1Gi"), json!({}))])
        .await?;
    wait_until("the pods", SOON, || async {
        ensure!(scene.pods("web").await?.len() == 3);
        Ok(())
    })
    .await?;
    let before = created(&account).await?;
    let flags = [
        format!(
            "--kubeconfig={}",
            scene
                .plane
                .kubeconfig_for(READER, &["system:masters"])?
                .display()
        ),
        "--provider=aws".to_owned(),
        format!("--cluster-name={}", account.fixtures.cluster),
        format!("--aws-region={}", Moto::REGION),
        format!("--aws-endpoint-url={}", account.moto.endpoint()),
        "-o=json".to_owned(),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let said = command::run_with("plan", &flags, None, &account.moto.env()).await?;
    ensure!(said.code == 0, "{said:?}");
    let report: Value = serde_json::from_str(&said.stdout)?;
    ensure!(created(&account).await? == before, "something was created");
    let launches = listed(&report, "launches")?;
    let priced =
        |each: &Value| each["priceMicroUsd"].as_i64() > Some(0) && each["capacityType"] == "spot";
    ensure!(
        !launches.is_empty() && launches.iter().all(priced),
        "{report}"
    );
    let names = launches
        .iter()
        .filter_map(|each| each["instanceType"].as_str());
    let planned = counted(names.map(str::to_owned));

    // The plan knows the spot prices. A service that starts launches by what it has until it has read them.
    scene.scale("web", 0).await?;
    let before = reads_of_spot_prices(&scene.mortise)?;
    scene.mortise.start_again(&[]).await?;
    wait_until("the spot prices", SOON, || async {
        ensure!(reads_of_spot_prices(&scene.mortise)? > before);
        Ok(())
    })
    .await?;
    scene.scale("web", 3).await?;
    let nodes = scene.settled(launches.len()).await?;
    let did = counted(nodes.iter().map(|node| node.instance_type().to_owned()));
    ensure!(did == planned, "planned {planned:?}, did {did:?}");
    drop(factory);
    scene.end().await;
    account.end().await
}
