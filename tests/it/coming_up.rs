//! What keeps a node from counting: hooks that are pending, start-up taints that no controller removes, and a label that an older
//! version did not write.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{Event, Node};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use mortise_apis::NodeClaim;
use mortise_apis::labels::DO_NOT_SYNC_TAINTS;
use mortise_tests::harness::wait_until;
use serde_json::{Value, json};

use crate::objects::{deployment, kwok_class, small_pool};
use crate::scene::{SOON, Scene, label, provider_id};

/// A taint of a pool.
const DEDICATED: &str = "dedicated";
/// The label with the node class of a node.
const CLASS: &str = "karpenter.kwok.sh/kwoknodeclass";

async fn patch_node(scene: &Scene, name: &str, merge: Value) -> Result<()> {
    let nodes: Api<Node> = Api::all(scene.plane.client());
    nodes
        .patch(name, &PatchParams::default(), &Patch::Merge(&merge))
        .await?;
    Ok(())
}

/// Status and message of a condition; empty when it is not there.
fn condition<'a>(claim: &'a NodeClaim, type_: &str) -> (String, &'a str, &'a str) {
    let all = &claim.status.conditions;
    all.iter().find(|each| each.type_ == type_).map_or_else(
        || (String::new(), "", ""),
        |each| {
            (
                format!("{:?}", each.status),
                each.reason.as_str(),
                each.message.as_str(),
            )
        },
    )
}

/// Waits until the only claim of a pool has this condition for this reason, and returns its name.
async fn waits_for(scene: &Scene, of: &str, type_: &str, reason: &str) -> Result<(String, String)> {
    wait_until(&format!("{type_} to be {reason}"), SOON, || async move {
        let claims = scene.claims().await?;
        let claim = claims
            .values()
            .find(|claim| claim.pool().is_some_and(|pool| &*pool == of))
            .context("no claim")?;
        let (status, why, message) = condition(claim, type_);
        // Two Nodes of one instance are an error; all other states are transient.
        let wanted = match reason {
            "MultipleNodesFound" => "False",
            _ => "Unknown",
        };
        ensure!(status == wanted && why == reason, "{status} {why}");
        Ok((claim.name().to_string(), message.to_owned()))
    })
    .await
}

/// A second Node with the same provider id: neither counts until one of them has gone.
async fn has_a_twin(scene: &Scene, name: &str, node: &Node) -> Result<()> {
    let twin = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "twin" },
        "spec": { "providerID": provider_id(node) } });
    scene.apply(&[twin]).await?;
    let (_, message) = waits_for(scene, "hooked", "Registered", "MultipleNodesFound").await?;
    ensure!(
        message.contains(name) && message.contains("twin"),
        "{message}"
    );
    let nodes: Api<Node> = Api::all(scene.plane.client());
    nodes.delete("twin", &DeleteParams::default()).await?;
    waits_for(scene, "hooked", "Registered", "RegistrationHookPending").await?;
    Ok(())
}

#[tokio::test]
async fn hooks_labels_and_an_initialization_that_never_ends() -> Result<()> {
    let flags = ["--batch-idle-duration=100ms", "--initialization-timeout=8s"];
    let scene = Scene::with(&flags).await?;
    let hooked = json!({ "template": {
        "metadata": {
            "annotations": { "mortise.sh/registration-hooks": "network, scanner" }, "labels": { "of": "hooked" },
        },
        "spec": { "taints": [{ "key": DEDICATED, "effect": "NoSchedule" }] },
    } });
    let tolerant = json!({ "nodeSelector": { "of": "hooked" }, "tolerations": [{ "key": DEDICATED, "operator": "Exists" }] });
    let stuck = json!({ "template": {
        "metadata": { "labels": { "of": "stuck" } },
        "spec": { "startupTaints": [{ "key": "starting", "effect": "NoSchedule" }] },
    } });
    let on = |of: &str| json!({ "nodeSelector": { "of": of } });
    scene
        .apply(&[
            kwok_class(),
            small_pool("hooked", hooked),
            small_pool("stuck", stuck),
            deployment("hooked", 1, ("1", "1Gi"), tolerant),
            deployment("stuck", 1, ("1", "1Gi"), on("stuck")),
        ])
        .await?;

    // Hooks: the node stays closed until the last of them is done.
    let (_, message) = waits_for(&scene, "hooked", "Registered", "RegistrationHookPending").await?;
    ensure!(message == "network, scanner", "{message}");
    let nodes = scene.nodes().await?;
    let (name, node) = nodes
        .iter()
        .find(|(_, node)| label(node, "of") == "hooked")
        .context("no node of the pool with hooks")?;
    let taints = node
        .spec
        .clone()
        .and_then(|spec| spec.taints)
        .unwrap_or_default();
    ensure!(
        taints
            .iter()
            .any(|taint| taint.key == "karpenter.sh/unregistered"),
        "{taints:?}"
    );
    let done = |hook: &str| {
        let key = format!("registration.mortise.sh/{hook}");
        json!({ "metadata": { "annotations": { key: "true" } } })
    };
    patch_node(&scene, name, done("network")).await?;
    wait_until("the other hook alone to be waited for", SOON, || async {
        let (_, message) =
            waits_for(&scene, "hooked", "Registered", "RegistrationHookPending").await?;
        ensure!(message == "scanner", "{message}");
        Ok(())
    })
    .await?;
    has_a_twin(&scene, name, node).await?;
    // Whoever manages the node's taints says so before it registers, and those of the pool are left to them.
    let by_others = json!({ "metadata": { "labels": { DO_NOT_SYNC_TAINTS: "true" } } });
    patch_node(&scene, name, by_others).await?;
    patch_node(&scene, name, done("scanner")).await?;
    scene.running("hooked", 1).await?;
    let registered = scene.nodes().await?.remove(name).context("the node")?;
    let taints = registered.spec.and_then(|spec| spec.taints);
    ensure!(taints.unwrap_or_default().is_empty(), "taints of the pool");

    // A start-up taint that stays: the claim is deleted after its timeout, and another one is launched.
    let (first, message) = waits_for(&scene, "stuck", "Initialized", "StartupTaintsExist").await?;
    ensure!(message.contains("starting"), "{message}");
    wait_until("the next node to be tried", SOON, || async {
        let claims = scene.claims().await?;
        ensure!(!claims.contains_key(&first), "{first} is still there");
        let of_pool = claims
            .values()
            .filter(|claim| claim.pool().is_some_and(|pool| &*pool == "stuck"));
        ensure!(of_pool.count() == 1, "none has come in its place");
        Ok(())
    })
    .await?;
    scene.scale("stuck", 0).await?;

    // A node of an older version: missing labels are written.
    let (claim, _) = scene
        .claims()
        .await?
        .into_iter()
        .find(|(_, claim)| claim.pool().is_some_and(|pool| &*pool == "hooked"))
        .context("no claim of the pool with hooks")?;
    let none = json!({ "metadata": { "labels": { CLASS: null } } });
    let claims: Api<NodeClaim> = Api::all(scene.plane.client());
    claims
        .patch(&claim, &PatchParams::default(), &Patch::Merge(&none))
        .await?;
    patch_node(&scene, name, none).await?;
    wait_until("the labels of the node class to be back", SOON, || async {
        let (nodes, claims) = (scene.nodes().await?, scene.claims().await?);
        let on_node = nodes.get(name).map_or("", |node| label(node, CLASS));
        let on_claim = claims.get(&claim).and_then(|claim| claim.label(CLASS));
        ensure!(
            on_node == "default" && on_claim == Some("default"),
            "{on_node:?} and {on_claim:?}"
        );
        Ok(())
    })
    .await?;
    scene.end().await;
    Ok(())
}

/// A node with markedly less capacity than expected for its claim is reported, and becomes ready nevertheless.
#[tokio::test]
async fn a_node_with_less_capacity_than_expected_is_reported() -> Result<()> {
    let scene = Scene::with(&["--batch-idle-duration=100ms"]).await?;
    let waits = json!({ "template": { "spec": {
        "startupTaints": [{ "key": "starting", "effect": "NoSchedule" }],
    } } });
    scene
        .apply(&[
            kwok_class(),
            small_pool("default", waits),
            deployment("web", 1, ("1", "1Gi"), json!({})),
        ])
        .await?;
    let (claim, _) = waits_for(&scene, "default", "Initialized", "StartupTaintsExist").await?;
    let nodes: Api<Node> = Api::all(scene.plane.client());
    let (name, node) = scene.nodes().await?.pop_first().context("no node")?;
    let less = json!({ "status": { "capacity": { "cpu": "500m" } } });
    nodes
        .patch_status(&name, &PatchParams::default(), &Patch::Merge(&less))
        .await?;
    let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
    let left: Vec<_> = taints
        .iter()
        .filter(|taint| taint.key != "starting")
        .collect();
    patch_node(&scene, &name, json!({ "spec": { "taints": left } })).await?;

    wait_until("the claim to say so", SOON, || async {
        let claims = scene.claims().await?;
        let claim = claims.get(&claim).context("the claim is gone")?;
        let (status, why, message) = condition(claim, "ConsistentStateFound");
        ensure!(
            status == "False" && why == "ConsistencyCheckFailed",
            "{status} {why}"
        );
        ensure!(
            message.contains("of resource cpu, but found 500m"),
            "{message}"
        );
        Ok(())
    })
    .await?;
    let events: Api<Event> = Api::default_namespaced(scene.plane.client());
    let about = ListParams::default().fields(&format!(
        "involvedObject.kind=NodeClaim,involvedObject.name={claim},reason=FailedConsistencyCheck"
    ));
    wait_until("an event to say so", SOON, || async {
        let told = events.list(&about).await?.items;
        let event = told.first().context("no event")?;
        ensure!(event.type_.as_deref() == Some("Warning"), "{event:?}");
        Ok(())
    })
    .await?;
    scene.running("web", 1).await?;
    scene.end().await;
    Ok(())
}
