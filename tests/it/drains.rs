//! Drains that do not finish say what is in the way, whose it is and what would clear it.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DeleteParams, EvictParams, Patch, PatchParams, PostParams};
use mortise_core::apis::NodeClaim;
use mortise_core::labels;
use mortise_tests::harness::wait_until;
use serde_json::{Value, json};

use crate::objects::{ON_DEMAND, budget, deployment, kwok_class, pod, pool, types};
use crate::scene::{Machine, SOON, Scene, label, runs};

/// A budget that wants all its pods, and a pod that must not be disrupted; then both are mended.
#[tokio::test]
async fn what_is_in_the_way_is_told_and_a_metric_grows() -> Result<()> {
    let scene = Scene::kwok().await?;
    let requirements = [types(&["c-2x-amd64-linux"]), ON_DEMAND];
    let mut guarded = deployment("guarded", 1, ("1500m", "64Mi"), json!({}));
    guarded["spec"]["template"]["metadata"]["annotations"] =
        json!({ "karpenter.sh/do-not-disrupt": "true" });
    let never = json!({ "disruption": { "consolidateAfter": "Never" } });
    scene
        .apply(&[
            kwok_class(),
            pool("default", &requirements, never),
            budget("web", 1),
            deployment("web", 1, ("1500m", "64Mi"), json!({})),
            guarded,
        ])
        .await?;
    scene.running("web", 1).await?;
    scene.running("guarded", 1).await?;
    let machines = scene.settled(2).await?;
    let claims: Api<NodeClaim> = Api::all(scene.plane.client());
    for machine in &machines {
        claims
            .delete(&machine.claim.name(), &DeleteParams::default())
            .await?;
    }
    let name = |app: &str| {
        let app = app.to_owned();
        let scene = &scene;
        let machines = &machines;
        async move {
            let pods = scene.pods(&app).await?;
            let found = machines
                .iter()
                .find(|machine| !machine.pods(&pods).is_empty());
            anyhow::Ok(
                found
                    .map(|machine| machine.node_name().to_owned())
                    .unwrap_or_default(),
            )
        }
    };
    let (web, protected) = (name("web").await?, name("guarded").await?);
    let event = scene
        .event("FailedDraining", &web, "never allows an eviction")
        .await?;
    let text = event.message.unwrap_or_default();
    ensure!(
        text.contains("of ReplicaSet web-")
            && text.contains("minAvailable 1")
            && text.contains("let the budget allow one to be missing"),
        "{text}"
    );
    scene
        .event(
            "FailedDraining",
            &protected,
            "remove the annotation karpenter.sh/do-not-disrupt",
        )
        .await?;
    let oldest = scene
        .mortise
        .metric("mortise_drain_oldest_seconds", &[])
        .await?;
    ensure!(oldest >= 30.0, "{oldest}");
    wait_until("both in the metric", SOON, || async {
        for shape in ["pdb_never_allows", "do_not_disrupt"] {
            let label = format!("shape=\"{shape}\"");
            let count = scene
                .mortise
                .metric("mortise_drains_blocked", &[&label])
                .await?;
            ensure!((0.5..1.5).contains(&count), "{shape}: {count}");
        }
        Ok(())
    })
    .await?;
    let explained = scene.mortise.debug(&format!("explain?node={web}")).await?;
    ensure!(
        explained["in_the_way"][0]["shape"] == "pdb_never_allows",
        "{explained:#}"
    );

    let budgets: Api<k8s_openapi::api::policy::v1::PodDisruptionBudget> =
        Api::default_namespaced(scene.plane.client());
    let less = json!({ "spec": { "minAvailable": 0 } });
    budgets
        .patch("web", &PatchParams::default(), &Patch::Merge(&less))
        .await?;
    let pods: Api<k8s_openapi::api::core::v1::Pod> = Api::default_namespaced(scene.plane.client());
    for pod in scene.pods("guarded").await? {
        let name = pod.metadata.name.unwrap_or_default();
        let free =
            json!({ "metadata": { "annotations": { "karpenter.sh/do-not-disrupt": null } } });
        pods.patch(&name, &PatchParams::default(), &Patch::Merge(&free))
            .await?;
    }
    wait_until("both machines to be gone", SOON, || async {
        let claims = scene.claims().await?;
        ensure!(
            machines
                .iter()
                .all(|machine| !claims.contains_key(&*machine.claim.name())),
            "{:?}",
            claims.keys()
        );
        Ok(())
    })
    .await?;
    scene.running("web", 1).await?;
    scene.end().await;
    Ok(())
}

/// A pool whose machines stay, and an app on a machine of its own for each way in which a drain can be kept from ending.
async fn one_machine_each(scene: &Scene) -> Result<BTreeMap<&'static str, Machine>> {
    let requirements = [types(&["c-2x-amd64-linux"]), ON_DEMAND];
    let never = json!({ "disruption": { "consolidateAfter": "Never" } });
    scene
        .apply(&[kwok_class(), pool("default", &requirements, never)])
        .await?;
    let large = ("1500m", "64Mi");
    let plain = |app: &str| deployment(app, 1, large, json!({}));
    let with = |app: &str, metadata: Value| {
        let mut made = plain(app);
        for (key, value) in metadata.as_object().into_iter().flatten() {
            made["spec"]["template"]["metadata"][key] = value.clone();
        }
        made
    };
    let second = json!({ "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": { "name": "second" },
        "spec": { "maxUnavailable": 1, "selector": { "matchLabels": { "app": "several" } } } });
    let nowhere = json!({ "nodeSelector": { "nowhere": "true" } });
    scene
        .apply(&[
            budget("several", 0),
            second,
            plain("several"),
            with(
                "until",
                json!({ "annotations": { labels::DO_NOT_DISRUPT: "3h" } }),
            ),
            budget("waits", 1),
            pod("waits", "waits", large, json!({})),
            pod("waits-too", "waits", large, nowhere),
            plain("denied"),
            plain("volume"),
            plain("node"),
            plain("claim"),
            plain("refused"),
        ])
        .await?;
    let machines = scene.settled(8).await?;
    let mut by_app = BTreeMap::new();
    for app in [
        "several", "until", "waits", "denied", "volume", "node", "claim", "refused",
    ] {
        let there = wait_until(&format!("{app} to run"), SOON, || async move {
            let pods = scene.pods(app).await?;
            ensure!(pods.iter().any(runs), "not yet");
            Ok(pods)
        })
        .await?;
        let own = machines
            .iter()
            .find(|machine| !machine.pods(&there).is_empty());
        by_app.insert(
            app,
            own.with_context(|| format!("no machine of {app}"))?.clone(),
        );
    }
    Ok(by_app)
}

/// Denies evictions of pods of the app `denied` and changes of the Node; waits until both hold.
async fn deny(scene: &Scene, node: &str) -> Result<()> {
    let policy = |name: &str, resource: &str, operation: &str, expression: String| {
        let rule = json!({ "apiGroups": [""], "apiVersions": ["v1"], "operations": [operation], "resources": [resource] });
        [
            json!({ "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": { "name": name },
                "spec": { "failurePolicy": "Fail", "matchConstraints": { "resourceRules": [rule] },
                    "validations": [{ "expression": expression, "message": "not this week" }] } }),
            json!({ "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": { "name": name },
                "spec": { "policyName": name, "validationActions": ["Deny"] } }),
        ]
    };
    let evictions = "!object.metadata.name.startsWith('denied-')".to_owned();
    let nodes = format!("object.metadata.name != '{node}'");
    scene
        .apply(&policy("evictions", "pods/eviction", "CREATE", evictions))
        .await?;
    scene
        .apply(&policy("nodes", "nodes", "UPDATE", nodes))
        .await?;
    let pods: Api<Pod> = Api::default_namespaced(scene.plane.client());
    let denied = scene.pods("denied").await?;
    let name = denied.first().and_then(|pod| pod.metadata.name.clone());
    let name = name.context("a pod")?;
    let try_it = EvictParams {
        post_options: PostParams {
            dry_run: true,
            ..PostParams::default()
        },
        ..EvictParams::default()
    };
    let all: Api<Node> = Api::all(scene.plane.client());
    let label = Patch::Merge(json!({ "metadata": { "labels": { "probe": "true" } } }));
    let dry = PatchParams {
        dry_run: true,
        ..PatchParams::default()
    };
    wait_until("the policies to hold", SOON, || async {
        ensure!(
            pods.evict(&name, &try_it).await.is_err(),
            "not yet for pods"
        );
        ensure!(
            all.patch(node, &dry, &label).await.is_err(),
            "not yet for the node"
        );
        Ok(())
    })
    .await
}

/// What a real control plane can be brought to, each on a machine of its own, all at once: told on the node or its claim
/// with what would clear it. All shapes are played in `deciders/termination/obstacles/tests.rs`.
#[tokio::test]
async fn many_shapes_at_once_are_each_told() -> Result<()> {
    let scene = Scene::kwok().await?;
    let by_app = one_machine_each(&scene).await?;
    let of = |app: &str| {
        by_app
            .get(app)
            .with_context(|| format!("no machine of {app}"))
    };
    let nodes: Api<Node> = Api::all(scene.plane.client());
    let claims: Api<NodeClaim> = Api::all(scene.plane.client());
    let ours = "karpenter.sh/termination";
    let held =
        Patch::Merge(json!({ "metadata": { "finalizers": [ours, "example.com/inventory"] } }));
    nodes
        .patch(of("node")?.node_name(), &PatchParams::default(), &held)
        .await?;
    claims
        .patch(&of("claim")?.claim.name(), &PatchParams::default(), &held)
        .await?;
    let attachment = json!({ "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": { "name": "attached" },
        "spec": { "attacher": "ebs.csi.test", "nodeName": of("volume")?.node_name(), "source": { "persistentVolumeName": "pv-1" } } });
    scene.apply(&[attachment]).await?;
    deny(&scene, of("refused")?.node_name()).await?;

    for machine in by_app.values() {
        claims
            .delete(&machine.claim.name(), &DeleteParams::default())
            .await?;
    }
    for (app, reason, part) in [
        ("several", "FailedDraining", "leave only one of"),
        ("until", "FailedDraining", "it lapses by itself"),
        (
            "waits",
            "FailedDraining",
            "pod default/waits-too must find a node",
        ),
        (
            "denied",
            "FailedDraining",
            "an admission webhook or policy denies it",
        ),
        (
            "volume",
            "AwaitingVolumeDetachment",
            "volume pv-1 of driver ebs.csi.test",
        ),
        (
            "node",
            "FailedTermination",
            "finalizer example.com/inventory of somebody else keeps it",
        ),
        (
            "refused",
            "FailedTermination",
            "the API server refuses to change it",
        ),
    ] {
        let told = scene.event(reason, of(app)?.node_name(), part).await;
        let told = told.map_err(|error| error.context(app))?;
        ensure!(told.type_.as_deref() == Some("Warning"), "{app}: {told:?}");
    }
    let claim = of("claim")?.claim.name();
    let part = "finalizer example.com/inventory of somebody else keeps it";
    scene.event("FailedTermination", &claim, part).await?;
    // A node that goes takes no traffic, whatever keeps it.
    let going = scene.nodes().await?;
    for app in ["several", "until", "waits", "denied", "volume", "node"] {
        let node = going
            .get(of(app)?.node_name())
            .with_context(|| format!("{app} has gone"))?;
        let excluded = label(
            node,
            "node.kubernetes.io/exclude-from-external-load-balancers",
        );
        ensure!(excluded == "karpenter", "{app}: {excluded:?}");
    }
    let oldest = scene
        .mortise
        .metric("mortise_drain_oldest_seconds", &[])
        .await?;
    ensure!(oldest >= 45.0, "{oldest}");
    scene.end().await;
    Ok(())
}
