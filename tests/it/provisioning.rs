//! Nodes are launched for pending pods: as many as planned, of the planned types, with events for all objects.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{Event, Pod};
use mortise_apis::values::Quantity;
use mortise_tests::harness::wait_until;
use serde_json::json;

use crate::objects::{AMD64, LINUX, ON_DEMAND, daemon_set, deployment, kwok_class, pool, types};
use crate::scene::{LaunchedNode, SOON, Scene, on_node};

/// 8 CPUs, of which 100m are the system's and 100m the DaemonSet's: room for 15 pods of half a CPU.
const EIGHT_CPUS: &str = "c-8x-amd64-linux";

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "one story, told in order")]
async fn fifty_pending_pods_get_the_planned_nodes() -> Result<()> {
    let scene = Scene::kwok().await?;
    let template = json!({
        "metadata": { "labels": { "team": "web" } },
        "spec": { "taints": [{ "key": "team", "value": "web", "effect": "NoSchedule" }] },
    });
    scene
        .apply(&[
            kwok_class(),
            daemon_set("agent", "100m"),
            pool(
                "web",
                &[types(&[EIGHT_CPUS]), ON_DEMAND],
                json!({ "template": template, "weight": 10 }),
            ),
            pool("any", &[LINUX], json!({})),
        ])
        .await?;
    let tolerating = json!({
        "nodeSelector": { "team": "web" },
        "tolerations": [{ "key": "team", "value": "web" }],
    });
    let choosy = json!({
        "nodeSelector": {
            "kubernetes.io/arch": "arm64",
            "topology.kubernetes.io/zone": "test-zone-b",
            "karpenter.sh/capacity-type": "spot",
        },
    });
    scene
        .apply(&[
            deployment("web", 50, ("500m", "512Mi"), tolerating),
            deployment("choosy", 1, ("3", "20Gi"), choosy),
        ])
        .await?;
    let web = scene.running("web", 50).await?;
    let choosy = scene.running("choosy", 1).await?;
    // 15 + 15 + 15 + 5, and one for the pod that asks for a zone, an architecture and spot capacity.
    let launched_nodes = scene.settled(5).await?;

    let of_pool = |pool: &str| -> Vec<&LaunchedNode> {
        launched_nodes
            .iter()
            .filter(|launched_node| launched_node.label("karpenter.sh/nodepool") == pool)
            .collect()
    };
    let of_web = of_pool("web");
    ensure!(of_web.len() == 4, "{} nodes of pool web", of_web.len());
    for launched_node in &of_web {
        ensure!(
            launched_node.instance_type() == EIGHT_CPUS,
            "{}",
            launched_node.instance_type()
        );
        ensure!(
            launched_node.label("team") == "web",
            "the template's label is on {}",
            launched_node.node_name()
        );
        let count = launched_node.pods(&web).len();
        ensure!(
            (1..=15).contains(&count),
            "{count} pods on {}",
            launched_node.node_name()
        );
        is_registered(launched_node)?;
    }
    // 20 GiB and 3.1 CPUs: the cheapest type is the one with 4 CPUs and 8 GiB for each.
    let of_any = of_pool("any");
    let [other] = of_any.as_slice() else {
        anyhow::bail!("{} nodes of pool any", of_any.len())
    };
    let seen = (
        other.instance_type(),
        other.label("topology.kubernetes.io/zone"),
        other.label("karpenter.sh/capacity-type"),
    );
    ensure!(
        seen == ("m-4x-arm64-linux", "test-zone-b", "spot"),
        "{seen:?}"
    );
    ensure!(
        choosy
            .iter()
            .all(|pod| on_node(pod) == Some(other.node_name()))
    );
    is_registered(other)?;
    check_nominations(&launched_nodes, &web)?;

    let told = wait_until("events about nominations", SOON, || async {
        let events = scene.events("Nominated").await?;
        // Ten may go at once, the others at five a second.
        ensure!(events.len() >= 10, "{} so far", events.len());
        Ok(events)
    })
    .await?;
    let names: BTreeSet<String> = web
        .iter()
        .chain(&choosy)
        .filter_map(|pod| pod.metadata.name.clone())
        .collect();
    for event in &told {
        is_nomination(event, &names, &launched_nodes)?;
    }
    counted(&scene, "web", &of_web).await?;
    scene.end().await;
    Ok(())
}

/// Checks a registered and initialized node.
fn is_registered(launched_node: &LaunchedNode) -> Result<()> {
    let LaunchedNode { claim, node } = launched_node;
    let name = launched_node.node_name();
    for label in ["karpenter.sh/registered", "karpenter.sh/initialized"] {
        ensure!(launched_node.label(label) == "true", "{name}: {label}");
    }
    let spec = node.spec.as_ref().context("spec")?;
    let taints = spec.taints.as_deref().unwrap_or_default();
    ensure!(
        taints
            .iter()
            .all(|taint| taint.key != "karpenter.sh/unregistered"),
        "{name}: {taints:?}"
    );
    let finalizers = node.metadata.finalizers.as_deref().unwrap_or_default();
    ensure!(
        finalizers
            .iter()
            .any(|each| each == "karpenter.sh/termination"),
        "{name}: {finalizers:?}"
    );
    let owners = node
        .metadata
        .owner_references
        .as_deref()
        .unwrap_or_default();
    let owned = owners.iter().any(|owner| {
        owner.kind == "NodeClaim"
            && Some(&owner.uid) == claim.metadata.uid.as_ref()
            && owner.block_owner_deletion == Some(true)
    });
    ensure!(owned, "{name}: {owners:?}");
    ensure!(
        claim.status.provider_id == spec.provider_id,
        "{name}: {:?}",
        claim.status.provider_id
    );
    let wanted = claim.requirements();
    let allowed = wanted
        .get("node.kubernetes.io/instance-type")
        .context("types of the claim")?;
    ensure!(
        allowed.has(launched_node.instance_type()),
        "{name}: {} is not in {allowed}",
        launched_node.instance_type()
    );
    ensure!(
        claim.annotation("karpenter.sh/nodepool-hash").is_some(),
        "{name}: no hash"
    );
    Ok(())
}

/// Every nomination on a claim is of one of these pods, and no pod is nominated twice.
fn check_nominations(launched_nodes: &[LaunchedNode], web: &[Pod]) -> Result<()> {
    let known: BTreeSet<&str> = web
        .iter()
        .filter_map(|pod| pod.metadata.uid.as_deref())
        .collect();
    let mut seen = BTreeSet::new();
    for launched_node in launched_nodes
        .iter()
        .filter(|launched_node| launched_node.label("team") == "web")
    {
        let text = launched_node
            .claim
            .annotation("mortise.sh/nominated-pods")
            .context("nominated pods")?;
        for uid in text.split(',') {
            ensure!(known.contains(uid), "{uid} is no pod of the deployment");
            ensure!(seen.insert(uid.to_owned()), "{uid} is nominated twice");
        }
    }
    Ok(())
}

fn is_nomination(
    event: &Event,
    pods: &BTreeSet<String>,
    launched_nodes: &[LaunchedNode],
) -> Result<()> {
    let component = event
        .source
        .as_ref()
        .and_then(|source| source.component.as_deref());
    ensure!(component == Some("karpenter"), "source {component:?}");
    let about = &event.involved_object;
    ensure!(about.kind.as_deref() == Some("Pod"), "{about:?}");
    let name = about.name.as_deref().unwrap_or_default();
    ensure!(pods.contains(name), "{name} is no pod of the story");
    let text = event.message.as_deref().unwrap_or_default();
    let places = text
        .strip_prefix("Pod should schedule on: ")
        .with_context(|| text.to_owned())?;
    let known = launched_nodes.iter().any(|launched_node| {
        places.contains(&format!("nodeclaim/{}", launched_node.claim.name()))
            || places.contains(&format!("node/{}", launched_node.node_name()))
    });
    ensure!(known, "{text:?} names no node");
    Ok(())
}

/// The pool's counters are the sums of its nodes.
async fn counted(scene: &Scene, pool: &str, launched_nodes: &[&LaunchedNode]) -> Result<()> {
    let capacities = launched_nodes.iter().map(|launched_node| {
        let status = launched_node.node.status.as_ref().context("status")?;
        let cpu = status
            .capacity
            .as_ref()
            .and_then(|all| all.get("cpu"))
            .context("cpu")?;
        Ok(Quantity::try_from(cpu)?.milli())
    });
    let cpu: i64 = capacities.collect::<Result<Vec<_>>>()?.iter().sum();
    let wanted = i64::try_from(launched_nodes.len())?;
    wait_until("the pool's counters", SOON, || async {
        let status = scene.pool(pool).await?.status;
        ensure!(status.nodes == Some(wanted), "nodes: {:?}", status.nodes);
        let resources = status.resources.unwrap_or_default();
        let of = |name: &str| resources.get(name).map(Quantity::try_from).transpose();
        let (nodes, milli) = (
            of("nodes")?.map(|each| each.value()),
            of("cpu")?.map(|each| each.milli()),
        );
        ensure!(
            nodes == Some(wanted) && milli == Some(cpu),
            "nodes {nodes:?}, cpu {milli:?}m of {cpu}m"
        );
        Ok(())
    })
    .await
}

/// A limit is never exceeded, and what has no room says so.
#[tokio::test]
async fn a_pool_at_its_limit_launches_nothing_more() -> Result<()> {
    let scene = Scene::kwok().await?;
    let limited = pool(
        "small",
        &[types(&["c-2x-amd64-linux"]), ON_DEMAND],
        json!({ "limits": { "nodes": "2" } }),
    );
    scene.apply(&[kwok_class(), limited]).await?;
    scene
        .apply(&[deployment("web", 3, ("1500m", "1Gi"), json!({}))])
        .await?;
    let told = scene.event("FailedScheduling", "web-", "limit").await?;
    let component = told
        .source
        .as_ref()
        .and_then(|source| source.component.as_deref());
    ensure!(component == Some("karpenter"), "{told:?}");
    wait_until("two of three pods to have a place", SOON, || async {
        let pods = scene.pods("web").await?;
        let placed = pods.iter().filter(|pod| on_node(pod).is_some()).count();
        ensure!(placed == 2, "{placed} have one");
        Ok(())
    })
    .await?;
    let launched_nodes = scene.settled(2).await?;
    ensure!(
        launched_nodes
            .iter()
            .all(|launched_node| launched_node.instance_type() == "c-2x-amd64-linux")
    );

    // Room under the limit is used as soon as there is some.
    scene
        .apply(&[pool(
            "small",
            &[types(&["c-2x-amd64-linux"]), ON_DEMAND],
            json!({ "limits": { "nodes": "3" } }),
        )])
        .await?;
    scene.running("web", 3).await?;
    scene.settled(3).await?;
    scene.end().await;
    Ok(())
}

/// The pool with the higher weight is used as long as it can be.
#[tokio::test]
async fn the_heavier_pool_comes_first() -> Result<()> {
    let scene = Scene::kwok().await?;
    let two = types(&["c-2x-amd64-linux"]);
    scene
        .apply(&[
            kwok_class(),
            pool("light", &[AMD64, LINUX, ON_DEMAND], json!({ "weight": 1 })),
            pool(
                "heavy",
                &[two, ON_DEMAND],
                json!({ "weight": 50, "limits": { "cpu": "3" } }),
            ),
        ])
        .await?;
    scene
        .apply(&[deployment("web", 2, ("1500m", "1Gi"), json!({}))])
        .await?;
    scene.running("web", 2).await?;
    let launched_nodes = scene.settled(2).await?;
    let mut pools: Vec<&str> = launched_nodes
        .iter()
        .map(|launched_node| launched_node.label("karpenter.sh/nodepool"))
        .collect();
    pools.sort_unstable();
    ensure!(pools == ["heavy", "light"], "{pools:?}");
    scene.end().await;
    Ok(())
}
