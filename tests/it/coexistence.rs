//! Next to another autoscaler: its pools, claims and nodes are not touched, and no node is launched for its pools.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::Resource;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use mortise_apis::{NodeClaim, NodePool};
use mortise_tests::harness::wait_until;
use serde_json::{Value, json};

use crate::objects::{ON_DEMAND, deployment, kwok_class, merged, pool, types};
use crate::scene::{SOON, Scene, label, on_node};

const FINALIZER: &str = "karpenter.sh/termination";

fn their_class() -> Value {
    json!({ "group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "theirs" })
}

/// A claim as the other autoscaler's would be, except that it expires within seconds.
fn their_claim(name: &str, finalizers: &[&str]) -> Value {
    json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": { "name": name, "finalizers": finalizers, "labels": { "karpenter.sh/nodepool": "theirs" } },
        "spec": {
            "nodeClassRef": their_class(),
            "requirements": [{ "key": "kubernetes.io/os", "operator": "In", "values": ["linux"] }],
            "expireAfter": "1s",
        },
    })
}

async fn version<K>(api: &Api<K>, name: &str) -> Result<String>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let object = api.get(name).await?;
    object.meta().resource_version.clone().context("a version")
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "one story, told in order")]
async fn another_autoscalers_objects_are_left_alone() -> Result<()> {
    let scene = Scene::kwok().await?;
    let template = json!({ "metadata": { "labels": { "team": "theirs" } }, "spec": { "nodeClassRef": their_class() } });
    scene
        .apply(&[
            their_claim("new", &[]),
            their_claim("going", &[FINALIZER]),
            pool("theirs", &[ON_DEMAND], json!({ "template": template })),
            json!({
                "apiVersion": "v1", "kind": "Node",
                "metadata": {
                    "name": "their-node", "finalizers": [FINALIZER],
                    "labels": { "karpenter.k8s.aws/ec2nodeclass": "theirs", "karpenter.sh/nodepool": "theirs" },
                },
                "spec": { "providerID": "aws:///us-west-2a/i-0123456789abcdef0" },
            }),
        ])
        .await?;
    let claims: Api<NodeClaim> = Api::all(scene.plane.client());
    let pools: Api<NodePool> = Api::all(scene.plane.client());
    let nodes: Api<Node> = Api::all(scene.plane.client());
    let launched = json!({ "status": { "providerID": "aws:///us-west-2a/i-0123456789abcdef0" } });
    claims
        .patch_status("going", &PatchParams::default(), &Patch::Merge(launched))
        .await?;
    claims.delete("going", &DeleteParams::default()).await?;
    nodes.delete("their-node", &DeleteParams::default()).await?;
    let before = [
        version(&claims, "new").await?,
        version(&claims, "going").await?,
        version(&pools, "theirs").await?,
    ];

    // Work of our own: a deployment of our pool is served, and goes again.
    let selector = json!({ "nodeSelector": { "team": "theirs" } });
    let requirements = [types(&["c-4x-amd64-linux"]), ON_DEMAND];
    scene
        .apply(&[
            kwok_class(),
            pool("ours", &requirements, json!({})),
            deployment("theirs", 1, ("1", "1Gi"), selector),
            deployment("ours", 3, ("1", "1Gi"), json!({})),
        ])
        .await?;
    scene.running("ours", 3).await?;
    wait_until("a claim of our own", SOON, || async {
        let claims = scene.claims().await?;
        let ours: Vec<_> = claims
            .values()
            .filter(|claim| claim.pool().as_deref() == Some("ours"))
            .collect();
        ensure!(
            ours.len() == 1 && ours[0].is_true("Initialized"),
            "{ours:?}"
        );
        ensure!(claims.len() == 3, "{:?}", claims.keys());
        Ok(())
    })
    .await?;
    // The pod that only their pool could take was planned, and is told why it waits.
    let waiting = scene.pods("theirs").await?;
    let name = waiting[0].metadata.name.as_deref().context("a name")?;
    wait_until("the pod to be decided on", SOON, || async {
        let view = scene
            .mortise
            .debug(&format!("explain?pod=default/{name}"))
            .await?;
        ensure!(
            view.to_string().contains("no NodePool can run it"),
            "{view}"
        );
        Ok(())
    })
    .await?;
    scene.scale("ours", 0).await?;
    wait_until("our node to be gone", SOON, || async {
        let claims = scene.claims().await?;
        ensure!(claims.len() == 2, "{:?}", claims.keys());
        Ok(())
    })
    .await?;

    let after = [
        version(&claims, "new").await?,
        version(&claims, "going").await?,
        version(&pools, "theirs").await?,
    ];
    ensure!(
        before == after,
        "claims or the pool were written: {before:?} {after:?}"
    );
    let new = claims.get("new").await?;
    ensure!(
        new.metadata.finalizers.is_none() && new.status.conditions.is_empty(),
        "{new:?}"
    );
    // Kubernetes itself writes to a silent node, so its version says nothing.
    let node = nodes.get("their-node").await?;
    ensure!(
        node.metadata.finalizers.as_deref() == Some(&[FINALIZER.to_owned()]),
        "{:?}",
        node.metadata.finalizers
    );
    let spec = node.spec.context("a spec")?;
    ensure!(
        !spec
            .taints
            .unwrap_or_default()
            .iter()
            .any(|taint| taint.key.starts_with("karpenter.sh/")),
        "it was tainted"
    );
    let view = scene.mortise.debug("snapshot").await?;
    ensure!(view.to_string().contains("\"foreign_objects\":3"), "{view}");
    scene.end().await;
    Ok(())
}

/// Who switches from Cluster Autoscaler keeps what protects its pods.
#[tokio::test]
async fn annotations_of_cluster_autoscaler_protect_if_they_are_respected() -> Result<()> {
    let scene = Scene::with(&["--respect-cluster-autoscaler-annotations"]).await?;
    let apart = json!({ "affinity": { "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [
        { "topologyKey": "kubernetes.io/hostname", "labelSelector": {} },
    ] } } });
    let of = |name: &str| deployment(name, 1, ("900m", "256Mi"), apart.clone());
    let annotated = json!({ "spec": { "template": { "metadata": { "annotations": {
        "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
    } } } } });
    let general = |names: &[&str]| pool("general", &[types(names), ON_DEMAND], json!({}));
    scene
        .apply(&[
            kwok_class(),
            general(&["c-4x-amd64-linux"]),
            of("free"),
            merged(of("kept"), annotated),
        ])
        .await?;
    scene.running("free", 1).await?;
    let kept = scene.running("kept", 1).await?;
    let kept = on_node(&kept[0]).context("a node")?.to_owned();
    scene.settled(2).await?;

    // Smaller nodes would do now.
    let smaller = general(&["c-2x-amd64-linux", "c-4x-amd64-linux"]);
    scene.apply(&[smaller]).await?;
    scene
        .event(
            "DisruptionBlocked",
            &kept,
            "cluster-autoscaler.kubernetes.io/safe-to-evict",
        )
        .await?;
    let type_of = |app: &'static str| {
        let scene = &scene;
        async move {
            let pods = scene.running(app, 1).await?;
            let node = on_node(&pods[0]).context("a node")?.to_owned();
            let nodes = scene.nodes().await?;
            let node = nodes.get(&node).context("its node")?;
            anyhow::Ok(label(node, "node.kubernetes.io/instance-type").to_owned())
        }
    };
    wait_until("the free pod on a smaller node", SOON, || async {
        let found = type_of("free").await?;
        ensure!(found == "c-2x-amd64-linux", "{found}");
        Ok(())
    })
    .await?;
    ensure!(type_of("kept").await? == "c-4x-amd64-linux", "moved");
    scene.end().await;
    Ok(())
}

/// Pods that give Cluster Autoscaler a head start, and pods of a ProvisioningRequest, wait, and say for what.
#[tokio::test]
async fn pods_wait_as_long_as_they_ask_for() -> Result<()> {
    let scene = Scene::with(&["--respect-cluster-autoscaler-annotations"]).await?;
    let annotated = |key: &str, value: &str| json!({ "spec": { "template": { "metadata": { "annotations": { key: value } } } } });
    let delay = annotated("cluster-autoscaler.kubernetes.io/pod-scale-up-delay", "15s");
    let request = annotated("autoscaling.x-k8s.io/consume-provisioning-request", "night");
    // The one that waits for good does not fit on the node of the other.
    let late = deployment("late", 1, ("900m", "256Mi"), json!({}));
    let part = deployment("part", 1, ("1900m", "256Mi"), json!({}));
    scene
        .apply(&[
            kwok_class(),
            pool("general", &[ON_DEMAND], json!({})),
            merged(late, delay),
            merged(part, request),
        ])
        .await?;
    for (app, words) in [
        (
            "late",
            "pod-scale-up-delay: no node is launched for it before",
        ),
        ("part", "ProvisioningRequest night asks for all of its pods"),
    ] {
        wait_until(&format!("the word on {app}"), SOON, || async {
            let pods = scene.pods(app).await?;
            let name = pods.first().and_then(|pod| pod.metadata.name.clone());
            let name = name.context("a pod")?;
            let view = scene
                .mortise
                .debug(&format!("explain?pod=default/{name}"))
                .await?;
            ensure!(view["verdict"].to_string().contains(words), "{view}");
            Ok(())
        })
        .await?;
    }
    let late = scene.running("late", 1).await?;
    let created = late[0].metadata.creation_timestamp.as_ref();
    let created = created.context("its creation")?.0;
    let claims = scene.claims().await?;
    let launched = claims
        .values()
        .filter_map(|claim| claim.metadata.creation_timestamp.as_ref());
    let launched: Vec<i64> = launched
        .map(|at| at.0.duration_since(created).as_secs())
        .collect();
    ensure!(
        launched.len() == 1 && (15..20).contains(&launched[0]),
        "{launched:?}"
    );
    scene.end().await;
    Ok(())
}

/// Other programs are seen by the labels of their pods.
#[tokio::test]
async fn another_autoscaler_is_seen() -> Result<()> {
    let scene = Scene::kwok().await?;
    let small = ("100m", "64Mi");
    scene
        .apply(&[
            kwok_class(),
            pool("general", &[ON_DEMAND], json!({})),
            deployment("aws-cluster-autoscaler", 1, small, json!({})),
            deployment("web", 1, small, json!({})),
        ])
        .await?;
    scene.running("aws-cluster-autoscaler", 1).await?;
    wait_until("the pod to be counted", SOON, || async {
        let labels = [r#"name="cluster-autoscaler""#];
        let pods = scene
            .mortise
            .metric("mortise_other_controllers", &labels)
            .await?;
        let view = scene.mortise.debug("snapshot").await?;
        let all = &view["other_controllers"];
        ensure!(
            pods > 0.0 && *all == json!({ "cluster-autoscaler": 1 }),
            "{pods} {all}"
        );
        Ok(())
    })
    .await?;
    scene.end().await;
    Ok(())
}
