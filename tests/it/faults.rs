//! What a user or another program does to a cluster so that drains do not end: finalizers, volumes that stay attached,
//! pods that become unhealthy, policies, missing permissions, a webhook that does not respond.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};
use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::api::{Api, DeleteParams, EvictParams, Patch, PatchParams, PostParams};
use mortise_apis::NodeClaim;
use mortise_apis::labels::TERMINATION_FINALIZER;
use mortise_tests::harness::wait_until;
use serde_json::{Value, json};

use crate::scene::{LaunchedNode, SOON, Scene, USER};

/// What policies say to whom they refuse something.
const DENIED: &str = "not this week";
/// Who counts the pods of budgets.
const COUNTS: &str = "system:serviceaccount:kube-system:disruption-controller";

/// Applies all of them, each to the node of the app that it is named after.
pub(crate) async fn befall(
    scene: &Scene,
    launched_nodes: &BTreeMap<String, LaunchedNode>,
) -> Result<()> {
    let of = |app: &str| {
        launched_nodes
            .get(app)
            .with_context(|| format!("no node of {app}"))
    };
    let merge = PatchParams::default();
    let held =
        json!({ "metadata": { "finalizers": [TERMINATION_FINALIZER, "example.com/inventory"] } });
    let nodes: Api<Node> = Api::all(scene.plane.client());
    let claims: Api<NodeClaim> = Api::all(scene.plane.client());
    let (node, claim) = (of("node")?.node_name(), of("claim")?.claim.name());
    nodes.patch(node, &merge, &Patch::Merge(&held)).await?;
    claims.patch(&claim, &merge, &Patch::Merge(&held)).await?;
    for name in ["attached", "detaching", "torn"] {
        attach(scene, name, of(name)?.node_name()).await?;
    }
    make_unready(scene, "unready", 2).await?;
    budgets(scene, |statuses| {
        ensure!(statuses["unready"].current_healthy == Some(1), "unready");
        ensure!(
            statuses["uncounted"].disruptions_allowed == Some(1),
            "uncounted"
        );
        ensure!(
            statuses["used-up"].disruptions_allowed == Some(1),
            "used-up"
        );
        let conditions = statuses["uncountable"].conditions.as_deref();
        let failed = conditions.unwrap_or_default();
        ensure!(
            failed.iter().any(|each| each.reason == "SyncFailed"),
            "uncountable"
        );
        Ok(())
    })
    .await?;
    refuse(scene, of("refused")?.node_name()).await?;
    // Counted for what it said before, and not for what it says.
    let other = json!({ "spec": { "minAvailable": null, "maxUnavailable": 1 } });
    let all: Api<PodDisruptionBudget> = Api::default_namespaced(scene.plane.client());
    all.patch("uncounted", &merge, &Patch::Merge(&other))
        .await?;
    Ok(())
}

/// A volume on a node: attached, being detached, or (`torn`) being detached without success.
async fn attach(scene: &Scene, name: &str, node: &str) -> Result<()> {
    let finalizers = if name == "attached" {
        vec![]
    } else {
        vec!["external-attacher/ebs-csi-test"]
    };
    let made = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": { "name": name, "finalizers": finalizers },
        "spec": { "attacher": "ebs.csi.test", "nodeName": node, "source": { "persistentVolumeName": format!("pv-{name}") } },
    });
    scene.apply(&[made]).await?;
    let all: Api<VolumeAttachment> = Api::all(scene.plane.client());
    if name == "torn" {
        let status = json!({ "status": { "attached": true, "detachError": { "message": "the device is busy" } } });
        all.patch_status(name, &PatchParams::default(), &Patch::Merge(&status))
            .await?;
    }
    if name != "attached" {
        all.delete(name, &DeleteParams::default()).await?;
    }
    Ok(())
}

/// Makes this number of pods of an app unready.
async fn make_unready(scene: &Scene, app: &str, count: usize) -> Result<()> {
    let pods: Api<Pod> = Api::default_namespaced(scene.plane.client());
    let unready = json!({ "status": { "conditions": [{ "type": "Ready", "status": "False" }] } });
    for pod in scene.pods(app).await?.into_iter().take(count) {
        let name = pod.metadata.name.context("a name")?;
        pods.patch_status(&name, &PatchParams::default(), &Patch::Strategic(&unready))
            .await?;
    }
    Ok(())
}

/// Waits until budgets are as wanted; they are given by name.
async fn budgets(
    scene: &Scene,
    wanted: impl Fn(&BTreeMap<String, PodDisruptionBudgetStatus>) -> Result<()>,
) -> Result<()> {
    wait_until("budgets to be counted", SOON, || async {
        let all = scene.list::<PodDisruptionBudget>().await?;
        let named = all.into_iter().map(|each| {
            (
                each.metadata.name.unwrap_or_default(),
                each.status.unwrap_or_default(),
            )
        });
        wanted(&named.collect())
    })
    .await
}

/// Refuses evictions in three ways, changes of a node, and the counting of two budgets; waits until all of that holds.
async fn refuse(scene: &Scene, node: &str) -> Result<()> {
    let deny = |name: &str, group: &str, operation: &str, resource: &str, unless: String| {
        let rule = json!({ "apiGroups": [group], "apiVersions": ["v1"], "operations": [operation], "resources": [resource] });
        [
            json!({ "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": { "name": name },
                "spec": { "failurePolicy": "Fail", "matchConstraints": { "resourceRules": [rule] },
                    "validations": [{ "expression": unless, "message": DENIED }] } }),
            json!({ "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": { "name": name },
                "spec": { "policyName": name, "validationActions": ["Deny"] } }),
        ]
    };
    let evictions = "!object.metadata.name.startsWith('denied-')".to_owned();
    let nodes = format!("object.metadata.name != '{node}'");
    // The API server itself writes down what an eviction takes from a budget.
    let counts = format!(
        "request.userInfo.username != '{COUNTS}' || !(object.metadata.name in ['uncounted', 'used-up'])"
    );
    let status = "poddisruptionbudgets/status";
    scene
        .apply(&deny("evictions", "", "CREATE", "pods/eviction", evictions))
        .await?;
    scene
        .apply(&deny("nodes", "", "UPDATE", "nodes", nodes))
        .await?;
    scene
        .apply(&deny("budgets", "policy", "UPDATE", status, counts))
        .await?;
    // Nothing listens there.
    scene
        .apply(&[json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration", "metadata": { "name": "unanswered" },
            "webhooks": [{
                "name": "evictions.example.com", "clientConfig": { "url": "https://127.0.0.1:1/" }, "failurePolicy": "Fail",
                "sideEffects": "None", "admissionReviewVersions": ["v1"],
                "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": "unanswered" } },
                "rules": [{ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/eviction"] }],
            }],
        })])
        .await?;
    only_in(scene, &["default", "unanswered"]).await?;
    wait_until("all of it to be refused", SOON, || async {
        for (app, namespace, part) in [
            ("denied", "default", DENIED),
            ("unanswered", "unanswered", "failed calling webhook"),
        ] {
            let said = eviction(scene, app, namespace).await?;
            ensure!(said.contains(part), "an eviction of {app}: {said:?}");
        }
        let all: Api<Node> = Api::all(scene.plane.client());
        let dry = PatchParams {
            dry_run: true,
            ..PatchParams::default()
        };
        let label = Patch::Merge(json!({ "metadata": { "labels": { "probe": "true" } } }));
        ensure!(
            all.patch(node, &dry, &label).await.is_err(),
            "not yet for the node"
        );
        let said = counting(scene).await?;
        ensure!(said.contains(DENIED), "a count: {said:?}");
        Ok(())
    })
    .await
}

/// mortise may evict in these namespaces, and nowhere else. Waits until that holds.
async fn only_in(scene: &Scene, namespaces: &[&str]) -> Result<()> {
    let group = "rbac.authorization.k8s.io";
    let role = json!({
        "apiVersion": format!("{group}/v1"), "kind": "ClusterRole", "metadata": { "name": "evicts" },
        "rules": [{ "apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"] }],
    });
    let binding = |namespace: &&str| {
        json!({
            "apiVersion": format!("{group}/v1"), "kind": "RoleBinding", "metadata": { "name": "evicts", "namespace": namespace },
            "roleRef": { "apiGroup": group, "kind": "ClusterRole", "name": "evicts" },
            "subjects": [{ "kind": "ServiceAccount", "name": "mortise", "namespace": "kube-system" }],
        })
    };
    scene.apply(&[role]).await?;
    scene
        .apply(&namespaces.iter().map(binding).collect::<Vec<Value>>())
        .await?;
    let roles: Api<ClusterRole> = Api::all(scene.plane.client());
    let mut rules = roles.get("mortise").await?.rules.unwrap_or_default();
    rules.retain(|rule| {
        !rule
            .resources
            .iter()
            .flatten()
            .any(|each| each == "pods/eviction")
    });
    let without = Patch::Merge(json!({ "rules": rules }));
    roles
        .patch("mortise", &PatchParams::default(), &without)
        .await?;
    let may = |namespace: &'static str| async move {
        let user = format!("--as={USER}");
        let asked = [
            "auth",
            "can-i",
            "create",
            "pods",
            "--subresource=eviction",
            &user,
            "-n",
            namespace,
        ];
        anyhow::Ok(scene.plane.kubectl(&asked).await?.stdout.trim() == "yes")
    };
    wait_until("the rights to be others", SOON, || async {
        ensure!(
            may("default").await? && may("unanswered").await?,
            "not granted"
        );
        ensure!(!may("forbidden").await?, "not taken");
        Ok(())
    })
    .await
}

/// What the API server says to an eviction of an app's pod that is only tried; empty when it would be done.
async fn eviction(scene: &Scene, app: &str, namespace: &str) -> Result<String> {
    let pod = scene.pods(app).await?.into_iter().next().context("a pod")?;
    let name = pod.metadata.name.context("a name")?;
    let pods: Api<Pod> = Api::namespaced(scene.plane.client(), namespace);
    let tried = EvictParams {
        post_options: PostParams {
            dry_run: true,
            ..PostParams::default()
        },
        ..EvictParams::default()
    };
    let answer = pods.evict(&name, &tried).await;
    Ok(answer
        .err()
        .map_or_else(String::new, |error| error.to_string()))
}

/// What the API server says to whoever counts a budget's pods, and only tries to write it down.
async fn counting(scene: &Scene) -> Result<String> {
    let client = scene
        .plane
        .client_for(COUNTS, &["system:serviceaccounts"])
        .await?;
    let budgets: Api<PodDisruptionBudget> = Api::default_namespaced(client);
    let there = budgets.get("uncounted").await?;
    let tried = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let answer = budgets.replace_status("uncounted", &tried, &there).await;
    Ok(answer
        .err()
        .map_or_else(String::new, |error| error.to_string()))
}
