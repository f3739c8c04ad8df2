//! The harness itself: what it starts is real, several live side by side, and nothing survives.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use mortise_tests::harness::{
    Component, ControlPlane, ExtenderConfig, Mortise, MortiseOptions, SchedulerOptions, Stages,
    processes_mentioning, wait_until,
};
use serde_json::{Value, json};

pub(crate) const SOON: Duration = Duration::from_mins(1);

fn node_yaml(name: &str) -> String {
    format!(
        r#"
apiVersion: v1
kind: Node
metadata:
  name: {name}
  labels: {{kwok-partition: a, kubernetes.io/hostname: {name}}}
  annotations: {{kwok.x-k8s.io/node: fake}}
status:
  capacity: {{cpu: "4", memory: 8Gi, pods: "20"}}
  allocatable: {{cpu: "4", memory: 8Gi, pods: "20"}}
"#
    )
}

fn deployment_yaml(name: &str, replicas: u32) -> String {
    format!(
        r#"
apiVersion: apps/v1
kind: Deployment
metadata: {{name: {name}}}
spec:
  replicas: {replicas}
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}}}}}
    spec:
      containers: [{{name: main, image: registry.test/main, resources: {{requests: {{cpu: 100m}}}}}}]
"#
    )
}

fn ready(node: &Node) -> Option<String> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    Some(
        conditions
            .iter()
            .find(|condition| condition.type_ == "Ready")?
            .status
            .clone(),
    )
}

pub(crate) async fn wait_for_node(client: &Client, name: &str, status: &str) -> Result<Node> {
    let nodes: Api<Node> = Api::all(client.clone());
    wait_until(
        &format!("node {name} with Ready={status}"),
        SOON,
        || async {
            let node = nodes.get(name).await?;
            ensure!(
                ready(&node).as_deref() == Some(status),
                "Ready is {:?}",
                ready(&node)
            );
            Ok(node)
        },
    )
    .await
}

/// Nothing that was started with this directory lives any more.
async fn wait_for_nothing(dir: &Path) -> Result<()> {
    let dir = dir.display().to_string();
    wait_until("all processes to be gone", SOON, || async {
        let left = processes_mentioning(&dir);
        ensure!(left.is_empty(), "still there: {left:?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_deployment_runs_on_kwok_nodes() -> Result<()> {
    let plane = ControlPlane::builder()
        .full()
        .manifests(&node_yaml("n1"))
        .start()
        .await?;
    let client = plane.client();
    let node = wait_for_node(&client, "n1", "True").await?;
    let capacity = node
        .status
        .and_then(|status| status.capacity)
        .context("capacity")?;
    assert_eq!(
        capacity["cpu"].0, "4",
        "kwok keeps the capacity that the node was made with"
    );

    plane.apply_yaml(&deployment_yaml("web", 5)).await?;
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    wait_until("5 running pods on n1", SOON, || async {
        let pods = pods.list(&ListParams::default().labels("app=web")).await?;
        let running = pods.iter().filter(|pod| {
            pod.status
                .as_ref()
                .is_some_and(|status| status.phase.as_deref() == Some("Running"))
                && pod
                    .spec
                    .as_ref()
                    .is_some_and(|spec| spec.node_name.as_deref() == Some("n1"))
        });
        let count = running.count();
        ensure!(count == 5, "{count} of {}", pods.items.len());
        Ok(())
    })
    .await?;
    let said = plane
        .kubectl(&[
            "get",
            "deployment",
            "web",
            "-o",
            "jsonpath={.status.readyReplicas}",
        ])
        .await?
        .ok()?;
    assert_eq!(said, "5");

    // A deleted pod goes although it has a finalizer: kwok's stage empties it.
    let one = pods
        .list(&ListParams::default().limit(1))
        .await?
        .items
        .swap_remove(0);
    let name = one.metadata.name.context("name")?;
    pods.patch(
        &name,
        &PatchParams::default(),
        &Patch::Merge(json!({ "metadata": { "finalizers": ["mortise.test/hold"] } })),
    )
    .await?;
    pods.delete(&name, &DeleteParams::default()).await?;
    wait_until("the pod to be gone", SOON, || async {
        ensure!(pods.get_opt(&name).await?.is_none(), "still there");
        Ok(())
    })
    .await?;

    let dir = plane.dir().to_owned();
    assert!(
        processes_mentioning(&dir.display().to_string()).len() >= 5,
        "five programs run"
    );
    plane.stop().await;
    wait_for_nothing(&dir).await?;
    assert!(
        !dir.exists(),
        "the state of a test that ended well is removed"
    );
    Ok(())
}

#[tokio::test]
async fn a_label_makes_nodes_and_pods_unhealthy() -> Result<()> {
    let plane = ControlPlane::builder()
        .full()
        .manifests(&node_yaml("n1"))
        .start()
        .await?;
    let client = plane.client();
    wait_for_node(&client, "n1", "True").await?;
    let nodes: Api<Node> = Api::all(client.clone());
    let label = |value: Value| {
        Patch::Merge(json!({ "metadata": { "labels": { "kwok.x-k8s.io/stage": value } } }))
    };
    nodes
        .patch("n1", &PatchParams::default(), &label(json!("unhealthy")))
        .await?;
    wait_for_node(&client, "n1", "False").await?;
    nodes
        .patch("n1", &PatchParams::default(), &label(Value::Null))
        .await?;
    wait_for_node(&client, "n1", "True").await?;

    plane.apply_yaml(&deployment_yaml("web", 1)).await?;
    let pods: Api<Pod> = Api::default_namespaced(client);
    let phase = |phase: &'static str| {
        let pods = pods.clone();
        wait_until("a pod in that phase", SOON, move || {
            let pods = pods.clone();
            async move {
                let pod = pods
                    .list(&ListParams::default())
                    .await?
                    .items
                    .pop()
                    .context("no pod")?;
                let now = pod.status.as_ref().and_then(|status| status.phase.clone());
                ensure!(now.as_deref() == Some(phase), "it is {now:?}");
                pod.metadata.name.context("name")
            }
        })
    };
    let name = phase("Running").await?;
    pods.patch(&name, &PatchParams::default(), &label(json!("unhealthy")))
        .await?;
    phase("Unknown").await?;
    plane.stop().await;
    Ok(())
}

#[tokio::test]
async fn two_planes_live_side_by_side() -> Result<()> {
    let (one, two) = tokio::join!(
        ControlPlane::builder().start(),
        ControlPlane::builder().start()
    );
    let (one, two) = (one?, two?);
    assert_ne!(one.url(), two.url());
    one.apply_yaml("{apiVersion: v1, kind: ConfigMap, metadata: {name: mine}}")
        .await?;
    let has = |plane: &ControlPlane| {
        let maps: Api<ConfigMap> = Api::default_namespaced(plane.client());
        async move { maps.get_opt("mine").await }
    };
    assert!(has(&one).await?.is_some());
    assert!(has(&two).await?.is_none());
    one.stop().await;
    assert!(has(&two).await?.is_none(), "the other one lives on");
    two.stop().await;
    Ok(())
}

#[tokio::test]
async fn the_store_outlives_a_killed_api_server() -> Result<()> {
    let mut plane = ControlPlane::builder().start().await?;
    plane
        .apply_yaml("{apiVersion: v1, kind: ConfigMap, metadata: {name: mine}}")
        .await?;
    let before = plane.pid(Component::ApiServer);
    plane.kill_component(Component::ApiServer).await?;
    assert!(
        plane
            .http()
            .get(&format!("{}/readyz", plane.url()))
            .await
            .is_err(),
        "nothing listens"
    );
    plane.start_component(Component::ApiServer).await?;
    assert_ne!(plane.pid(Component::ApiServer), before);
    let maps: Api<ConfigMap> = Api::default_namespaced(plane.client());
    assert!(maps.get_opt("mine").await?.is_some());
    plane.stop().await;
    Ok(())
}

#[tokio::test]
async fn another_user_has_the_rights_that_rbac_gives() -> Result<()> {
    let plane = ControlPlane::builder().start().await?;
    let user = "system:serviceaccount:default:reader";
    let client = plane.client_for(user, &["system:serviceaccounts"]).await?;
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let refused = maps.list(&ListParams::default()).await;
    assert!(
        matches!(&refused, Err(kube::Error::Api(status)) if status.code == 403),
        "{refused:?}"
    );
    plane
        .apply_yaml(
            r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: reader}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reader}
subjects: [{kind: ServiceAccount, name: reader, namespace: default}]
"#,
        )
        .await?;
    wait_until("the right to list", SOON, || async {
        Ok(maps.list(&ListParams::default()).await?)
    })
    .await?;
    plane.stop().await;
    Ok(())
}

/// The scheduler is restarted with an extender that is not there: ignorable, it changes nothing; else nothing is bound.
#[tokio::test]
async fn the_scheduler_takes_an_extender_later() -> Result<()> {
    let mut plane = ControlPlane::builder()
        .full()
        .manifests(&node_yaml("n1"))
        .start()
        .await?;
    let client = plane.client();
    wait_for_node(&client, "n1", "True").await?;
    let ca = plane.dir().join("pki/ca.crt");
    let mut extender = ExtenderConfig::new("https://127.0.0.1:1/extender/v1", &ca, None);
    extender.ignorable = false;
    plane
        .start_scheduler(&SchedulerOptions::with_extender(extender.clone()))
        .await?;
    plane.apply_yaml(&deployment_yaml("web", 1)).await?;
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    wait_until("the scheduler to report the extender", SOON, || async {
        let pods = pods.list(&ListParams::default()).await?;
        let reasons: Vec<String> = pods
            .iter()
            .filter_map(|pod| {
                pod.status
                    .as_ref()?
                    .conditions
                    .as_ref()?
                    .iter()
                    .find(|condition| condition.type_ == "PodScheduled")?
                    .reason
                    .clone()
            })
            .collect();
        ensure!(reasons == ["SchedulerError"], "reasons: {reasons:?}");
        Ok(())
    })
    .await?;

    extender.ignorable = true;
    plane
        .start_scheduler(&SchedulerOptions::with_extender(extender))
        .await?;
    let deployments: Api<Deployment> = Api::default_namespaced(client);
    wait_until("the pod to run without the extender", SOON, || async {
        let status = deployments.get("web").await?.status.unwrap_or_default();
        ensure!(
            status.ready_replicas == Some(1),
            "ready: {:?}",
            status.ready_replicas
        );
        Ok(())
    })
    .await?;
    plane.stop().await;
    Ok(())
}

#[tokio::test]
async fn a_panicking_owner_leaves_nothing() -> Result<()> {
    let plane = ControlPlane::builder().start().await?;
    let dir = plane.dir().to_owned();
    let owner = tokio::spawn(async move {
        assert!(
            plane.url().is_empty(),
            "panics on purpose, with the control plane in its hands"
        );
    });
    assert!(owner.await.is_err_and(|error| error.is_panic()));
    wait_for_nothing(&dir).await?;
    assert!(
        dir.join("log/kube-apiserver.log").exists(),
        "logs of a failure are kept"
    );
    assert!(!dir.join("etcd").exists(), "bulky state is not");
    std::fs::remove_dir_all(&dir)?;
    Ok(())
}

/// The `cluster` command is killed with SIGKILL while five programs run under it.
#[tokio::test]
async fn a_killed_owner_leaves_nothing() -> Result<()> {
    let dir = std::env::temp_dir().join(format!("killed-owner-{}", std::process::id()));
    let mut owner = Command::new(env!("CARGO_BIN_EXE_cluster"))
        .arg("--dir")
        .arg(&dir)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let printed = owner.stdout.take().context("pipe")?;
    // The last line before it settles down to wait.
    let up = tokio::task::spawn_blocking(move || {
        std::io::BufRead::lines(std::io::BufReader::new(printed))
            .map_while(Result::ok)
            .any(|line| line.contains("Ctrl-C"))
    })
    .await?;
    assert!(up, "the cluster did not start");
    let text = dir.display().to_string();
    // Five programs, each below a shell.
    assert!(
        processes_mentioning(&text).len() >= 10,
        "{:?}",
        processes_mentioning(&text)
    );
    owner.kill()?;
    owner.wait()?;
    wait_for_nothing(&dir).await?;
    std::fs::remove_dir_all(&dir)?;
    Ok(())
}

#[tokio::test]
async fn mortise_starts_dies_and_starts_again() -> Result<()> {
    let crds = Mortise::output(&["manifests", "crds"]).await?;
    let plane = ControlPlane::builder().manifests(&crds).start().await?;
    let options = MortiseOptions::with_flags(&["--log-level=debug"])
        .env([("MORTISE_SEED".to_owned(), "7".to_owned())]);
    let mut mortise = Mortise::start(&plane, options).await?;
    mortise.wait_ready().await?;
    assert!(mortise.metrics().await?.contains("# TYPE"));
    assert!(mortise.debug("config").await?.is_object());
    let extender = mortise.url("extender/v1/filter");
    let body = json!({ "Pod": { "metadata": { "name": "p", "namespace": "default", "uid": "u" }, "spec": { "containers": [] } }, "NodeNames": ["n1"] });
    let reply = mortise
        .scheduler_http()?
        .post(&extender, &body)
        .await?
        .json()?;
    assert_eq!(reply["NodeNames"], json!(["n1"]), "an unknown node passes");

    let first = mortise.pid();
    mortise.kill9().await;
    assert!(
        mortise.http()?.get(&extender).await.is_err(),
        "nothing listens"
    );
    mortise.start_again(&["MORTISE_SEED"]).await?;
    mortise.wait_ready().await?;
    assert_ne!(mortise.pid(), first);
    assert_eq!(mortise.terminate().await, 0);
    plane.stop().await;
    Ok(())
}

#[test]
fn a_stage_of_the_same_name_is_replaced() -> Result<()> {
    let stages = Stages::built_in()?;
    let names: Vec<String> = stages
        .names()
        .iter()
        .map(|name| (*name).to_owned())
        .collect();
    let more = "{kind: Stage, metadata: {name: pod-delete}, spec: {}}\n---\n{kind: Stage, metadata: {name: extra}, spec: {}}";
    let stages = stages.replace(more)?;
    let mut expected = names;
    expected.push("extra".to_owned());
    assert_eq!(stages.names(), expected);
    let refused = Stages::parse("{kind: Pod, metadata: {name: x}}");
    assert!(refused.is_err_and(|error| error.to_string().contains("kind: Stage")));
    Ok(())
}
