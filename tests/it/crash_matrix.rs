//! mortise is killed before and after every lifecycle step of nodes, one kill after the other, and each time another process
//! continues: no instance is leaked or launched twice, no finalizer stays, and the pods run.
//!
//! Some are missing: `write-drained` and `write-terminating`, since kwok's instances terminate at once and nothing is written
//! (the simulator covers the latter, `crates/sim/tests/simulations/crash_matrix.rs`); `fence-claim`, which interruptions write; and
//! `add-claim-finalizer`, which only a claim that a user created needs.

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use mortise_apis::NodeClaim;
use mortise_tests::harness::wait_until;
use serde_json::json;

use crate::census::Census;
use crate::objects::{ON_DEMAND, budget, deployment, kwok_class, pool, types};
use crate::scene::{SOON, Scene, Setting};

/// The variable that arms a failpoint.
pub(crate) const FAILPOINT: &str = "MORTISE_FAILPOINT";
/// 128 + SIGABRT: the process ends at the point without any clean-up.
pub(crate) const ABORTED: i32 = 134;

const REGISTERS: [&str; 6] = [
    "create-claim",
    "launch",
    "label-claim",
    "write-launched",
    "register-node",
    "write-registered",
];
const INITIALIZES: [&str; 2] = ["initialize-node", "write-initialized"];
const BEGINS_TO_GO: [&str; 4] = [
    "set-deadline",
    "taint-node",
    "delete-node",
    "write-draining",
];
const EVICTS: [&str; 1] = ["evict"];
const GOES: [&str; 4] = [
    "delete-pod",
    "terminate",
    "remove-node-finalizer",
    "remove-claim-finalizer",
];
/// A tainted node with pods waits for its replacement; it leaves load balancers when it is deleted.
const REPLACES: [&str; 1] = ["mark-node"];
const DISRUPTS: [&str; 3] = [
    "write-disruption",
    // Nothing replaces an empty node: it leaves load balancers with the taint.
    "taint-node",
    "delete-claim",
];

/// Gives the Lease of a process that is known to be dead to whoever comes next, which else would wait for its end.
pub(crate) async fn forget_lease(scene: &Scene) -> Result<()> {
    let leases: Api<Lease> = Api::namespaced(scene.plane.client(), "kube-system");
    match leases
        .delete("karpenter-leader-election", &DeleteParams::default())
        .await
    {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// mortise ran before, is dead, and runs again until it reaches this point.
async fn dies_at(scene: &mut Scene, point: &str) -> Result<()> {
    forget_lease(scene).await?;
    scene.mortise.set_env(FAILPOINT, Some(point));
    scene.mortise.start_again(&[]).await?;
    let code = scene.mortise.wait_end(SOON).await;
    let code = code.with_context(|| format!("it does not come to {point}"))?;
    ensure!(code == ABORTED, "ended with {code} at {point}");
    Ok(())
}

async fn dies_around(scene: &mut Scene, steps: &[&str]) -> Result<()> {
    for step in steps {
        for moment in ["before", "after"] {
            dies_at(scene, &format!("{moment}-{step}")).await?;
        }
    }
    Ok(())
}

async fn lives(scene: &mut Scene) -> Result<()> {
    forget_lease(scene).await?;
    scene.mortise.set_env(FAILPOINT, None);
    scene.mortise.start_again(&[]).await?;
    scene.mortise.wait_ready().await
}

/// Takes the start-up taint off, as the agent does that it waits for.
async fn open_nodes(scene: &Scene) -> Result<()> {
    let nodes: Api<Node> = Api::all(scene.plane.client());
    for (name, node) in scene.nodes().await? {
        let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
        let left: Vec<_> = taints
            .iter()
            .filter(|taint| taint.key != "starting")
            .collect();
        if left.len() < taints.len() {
            let patch = json!({ "metadata": { "resourceVersion": node.metadata.resource_version }, "spec": { "taints": left } });
            nodes
                .patch(&name, &PatchParams::default(), &Patch::Merge(&patch))
                .await?;
        }
    }
    Ok(())
}

/// The deadline of all claims that go has come.
async fn end_grace(scene: &Scene) -> Result<()> {
    let claims: Api<NodeClaim> = Api::all(scene.plane.client());
    for (name, claim) in scene.claims().await? {
        if claim.metadata.deletion_timestamp.is_some() {
            let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
            let patch = json!({ "metadata": { "annotations": { "karpenter.sh/nodeclaim-termination-timestamp": now } } });
            claims
                .patch(&name, &PatchParams::default(), &Patch::Merge(&patch))
                .await?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn killed_around_every_step_it_loses_and_doubles_nothing() -> Result<()> {
    let mut scene = Scene::start(Setting {
        env: vec![(FAILPOINT.to_owned(), "before-create-claim".to_owned())],
        flags: vec![
            "--batch-idle-duration=100ms".to_owned(),
            "--disruption-validation-delay=200ms".to_owned(),
        ],
        ..Setting::default()
    })
    .await?;
    let census = Census::begin(&scene.plane.client());
    let requirements = [types(&["c-4x-amd64-linux"]), ON_DEMAND];
    let template = json!({ "template": { "spec": {
        "terminationGracePeriod": "1h",
        "startupTaints": [{ "key": "starting", "effect": "NoSchedule" }],
    } } });
    let mut pinned = deployment("pinned", 1, ("1", "1Gi"), json!({}));
    pinned["spec"]["template"]["metadata"]["annotations"] =
        json!({ "karpenter.sh/do-not-disrupt": "true" });
    // A Node that exists when its instance is launched is registered before the outcome of the launch: not here.
    let mut class = kwok_class();
    class["spec"] = json!({ "nodeRegistrationDelay": "2s" });
    scene
        .apply(&[
            class,
            pool("default", &requirements, template.clone()),
            // Nothing is evicted before the story wants it.
            budget("web", 2),
            deployment("web", 2, ("1", "1Gi"), json!({})),
            pinned,
        ])
        .await?;
    let code = scene.mortise.wait_end(SOON).await?;
    ensure!(code == ABORTED, "ended with {code}");

    dies_around(&mut scene, &REGISTERS).await?;
    open_nodes(&scene).await?;
    dies_around(&mut scene, &INITIALIZES).await?;
    lives(&mut scene).await?;
    scene.running("web", 2).await?;
    scene.running("pinned", 1).await?;
    scene.settled(1).await?;
    ensure!(census.claims()? == 1, "{} claims", census.claims()?);

    scene.mortise.kill9().await;
    let claims: Api<NodeClaim> = Api::all(scene.plane.client());
    for name in scene.claims().await?.keys() {
        claims.delete(name, &DeleteParams::default()).await?;
    }
    dies_around(&mut scene, &BEGINS_TO_GO).await?;
    scene.plane.kubectl(&["delete", "pdb", "web"]).await?.ok()?;
    dies_around(&mut scene, &EVICTS).await?;
    end_grace(&scene).await?;
    dies_around(&mut scene, &GOES).await?;
    lives(&mut scene).await?;
    let replaced = || async {
        open_nodes(&scene).await?;
        let pods = [scene.pods("web").await?, scene.pods("pinned").await?].concat();
        let run = pods.iter().filter(|pod| crate::scene::runs(pod)).count();
        ensure!(run == 3 && pods.len() == 3, "{run} of {} run", pods.len());
        Ok(())
    };
    wait_until("all pods to run on the next node", SOON, replaced).await?;
    scene.settled(1).await?;
    ensure!(census.claims()? == 2, "{} claims", census.claims()?);

    scene.mortise.kill9().await;
    scene.scale("pinned", 0).await?;
    scene.running("pinned", 0).await?;
    let before = scene.settled(1).await?;
    let edited = json!({ "template": { "metadata": { "labels": { "edited": "true" } }, "spec": template["template"]["spec"] } });
    scene
        .apply(&[pool("default", &requirements, edited)])
        .await?;
    dies_around(&mut scene, &REPLACES).await?;
    lives(&mut scene).await?;
    let replaced = || async {
        open_nodes(&scene).await?;
        let names: Vec<String> = scene.nodes().await?.into_keys().collect();
        ensure!(
            names.len() == 1 && names[0] != before[0].node_name(),
            "{names:?}"
        );
        Ok(())
    };
    wait_until("another node in place of the drifted one", SOON, replaced).await?;
    scene.running("web", 2).await?;
    scene.settled(1).await?;
    ensure!(census.claims()? == 3, "{} claims", census.claims()?);

    scene.mortise.kill9().await;
    scene.scale("web", 0).await?;
    scene.running("web", 0).await?;
    dies_around(&mut scene, &DISRUPTS).await?;
    lives(&mut scene).await?;
    scene.empty().await?;
    ensure!(census.claims()? == 3, "{} claims", census.claims()?);
    scene.end().await;
    Ok(())
}
