//! Nodes join with a taint that no NodePool declares: an admission policy of the API server adds it, and this test removes it after a
//! while, as the component would whose taint it is.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ListParams, PostParams};
use mortise_tests::harness::wait_until;
use serde_json::{Value, json};

use crate::objects::{deployment, kwok_class, never, small_pool};
use crate::scene::{SOON, Scene};

const AGENT: &str = "example.com/agent-not-ready";
/// So long after its first look at a node the component removes its taint.
const STAYS: Duration = Duration::from_secs(4);

/// Every Node that is created gets the taint.
fn tainting() -> [Value; 2] {
    let (api_version, name) = (
        "admissionregistration.k8s.io/v1",
        json!({ "name": "agent" }),
    );
    let add = format!(
        r#"[JSONPatch{{op: "add", path: "/spec/taints/-", value: Object.spec.taints{{key: "{AGENT}", effect: "NoSchedule"}}}}]"#
    );
    let nodes = json!({ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["nodes"] });
    [
        json!({ "apiVersion": api_version, "kind": "MutatingAdmissionPolicy", "metadata": name, "spec": {
            "matchConstraints": { "resourceRules": [nodes] }, "failurePolicy": "Fail", "reinvocationPolicy": "Never",
            "mutations": [{ "patchType": "JSONPatch", "jsonPatch": { "expression": add } }],
        } }),
        json!({ "apiVersion": api_version, "kind": "MutatingAdmissionPolicyBinding", "metadata": name, "spec": { "policyName": "agent" } }),
    ]
}

fn has_taint(node: &Node) -> bool {
    let taints = node
        .spec
        .iter()
        .flat_map(|spec| spec.taints.iter().flatten());
    taints.into_iter().any(|taint| taint.key == AGENT)
}

/// The component of all nodes.
async fn removes_its_taint(nodes: Api<Node>) -> Result<()> {
    let mut seen: BTreeMap<String, Instant> = BTreeMap::new();
    loop {
        for node in nodes.list(&ListParams::default()).await? {
            let name = node.metadata.name.clone().unwrap_or_default();
            let first = *seen.entry(name.clone()).or_insert_with(Instant::now);
            if has_taint(&node) && first.elapsed() >= STAYS {
                let mut without = node;
                if let Some(spec) = &mut without.spec {
                    let taints = spec.taints.get_or_insert_default();
                    taints.retain(|taint| taint.key != AGENT);
                }
                // It may have changed meanwhile, or be gone: the next look does it.
                drop(nodes.replace(&name, &PostParams::default(), &without).await);
            }
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

#[tokio::test]
async fn a_boot_taint_is_learned_and_costs_no_further_node() -> Result<()> {
    let scene = Scene::with(&["--batch-idle-duration=200ms"]).await?;
    let nodes: Api<Node> = Api::all(scene.plane.client());
    scene.apply(&tainting()).await?;
    let probe: Node = serde_json::from_value(json!({
        "metadata": { "name": "probe" }, "spec": { "taints": [{ "key": "other", "effect": "NoSchedule" }] },
    }))?;
    wait_until("nodes to get the taint", SOON, || async {
        let dry = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        let created = nodes.create(&dry, &probe).await?;
        ensure!(has_taint(&created), "{:?}", created.spec);
        Ok(())
    })
    .await?;
    let component = tokio::spawn(removes_its_taint(nodes.clone()));

    // The first node: nothing is known of the taint.
    scene
        .apply(&[
            kwok_class(),
            small_pool("any", never()),
            deployment("web", 1, ("1500m", "512Mi"), json!({})),
        ])
        .await?;
    scene.running("web", 1).await?;
    let event = scene.event("UndeclaredStartupTaint", "any", AGENT).await?;
    let message = event.message.unwrap_or_default();
    ensure!(
        message.contains("spec.template.spec.startupTaints"),
        "{message}"
    );
    ensure!(
        event.type_.as_deref() == Some("Warning"),
        "{:?}",
        event.type_
    );

    // Each further pod needs a node of its own, and each gets one, not two.
    let first = scene.claims().await?.len();
    for replicas in [4, 7] {
        scene.scale("web", replicas).await?;
        scene.running("web", replicas).await?;
        let claims = scene.claims().await?.len();
        ensure!(
            claims <= first.max(replicas),
            "{claims} NodeClaims for {replicas} pods, {first} for the first one"
        );
    }
    component.abort();
    scene.end().await;
    Ok(())
}
