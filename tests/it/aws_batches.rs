//! NodeClaims that EC2 launches by one request: how many calls that takes, and what a killed process leaves behind.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, Patch, PatchParams, PostParams};
use mortise_apis::karpenter::nodeclaim::NodeClaimStatus;
use mortise_apis::{NodeClaim, NodePool, labels};
use mortise_tests::harness::{Fault, wait_until};
use serde_json::json;

use crate::aws_account::{Account, ec2_pool};
use crate::crash_matrix::forget_lease;
use crate::objects::types;
use crate::scene::{SOON, Scene};

/// Nodes that are launched at once if `MORTISE_EC2_NODES` does not say: what continuous integration has time for.
const NODES: usize = 40;
/// Further nodes around each crash.
const MORE: usize = 5;
/// NodeClaims of the first crash that the request was sent without.
const LATE: usize = 2;

async fn replicas(scene: &Scene, count: usize) -> Result<()> {
    let pools: Api<NodePool> = Api::all(scene.plane.client());
    let edit = Patch::Merge(json!({ "spec": { "replicas": count } }));
    pools.patch("fixed", &PatchParams::default(), &edit).await?;
    Ok(())
}

/// How many of each kind of call the account has answered.
async fn calls(account: &Account) -> Result<[u64; 4]> {
    let moto = &account.moto;
    Ok([
        moto.calls("ec2:CreateFleet").await?,
        moto.calls("ec2:DescribeInstances").await?,
        moto.calls("ec2:CreateTags").await?,
        moto.calls("ec2:TerminateInstances").await?,
    ])
}

/// What the account is asked in an hour while nothing happens, and the memory that takes, as lines.
async fn costs_at_rest(account: &Account, scene: &Scene, seconds: u64) -> Result<Vec<String>> {
    let rest = Duration::from_secs(seconds);
    let [_, most] = scene.mortise.resident_mib()?;
    let before = account.moto.all_calls().await?;
    tokio::time::sleep(rest).await;
    let after = account.moto.all_calls().await?;
    let an_hour = |count: u64| count * 3600 / rest.as_secs().max(1);
    let mut sum = 0;
    let mut lines = Vec::new();
    for (action, count) in after {
        let count = count - before.get(&action).copied().unwrap_or(0);
        sum += count;
        if count > 0 {
            lines.push(format!("at rest, {action}: {} an hour", an_hour(count)));
        }
    }
    lines.push(format!("at rest, all: {} an hour", an_hour(sum)));
    let [now, _] = scene.mortise.resident_mib()?;
    lines.push(format!(
        "resident memory: {now:.1} MiB at rest, {most:.1} at most while the nodes came"
    ));
    Ok(lines)
}

/// One more NodeClaim of a batch that was launched without it: created with the others, but its watch was late, and the process ended
/// before it wrote another token.
async fn come_late(scene: &Scene, index: usize) -> Result<()> {
    let claims = scene.claims().await?;
    let mut launching = claims.into_values().filter(|claim| {
        claim.provider_id().is_none() && claim.annotation(labels::LAUNCH_BATCH).is_some()
    });
    let like = launching.next().context("no NodeClaim is being launched")?;
    let late = NodeClaim {
        metadata: ObjectMeta {
            name: Some(format!("fixed-late-{index}")),
            labels: like.metadata.labels.clone(),
            annotations: like.metadata.annotations.clone(),
            finalizers: like.metadata.finalizers.clone(),
            owner_references: like.metadata.owner_references.clone(),
            ..ObjectMeta::default()
        },
        status: NodeClaimStatus::default(),
        ..like
    };
    let claims: Api<NodeClaim> = Api::all(scene.plane.client());
    claims.create(&PostParams::default(), &late).await?;
    Ok(())
}

/// Many nodes of one shape at EC2's published rates of calls; then the process is killed while EC2 launches, once after it has launched and
/// once before: no instance is launched twice, none is lost.
#[tokio::test]
async fn nodes_of_one_shape_are_one_request_also_over_a_death() -> Result<()> {
    let account = Account::open().await?;
    let many = std::env::var("MORTISE_EC2_NODES");
    let nodes: usize = many.map_or(Ok(NODES), |text| text.parse())?;
    let gates = ["--feature-gates=StaticCapacity=true"];
    let (mut scene, factory) = account.scene_with(&[], &gates).await?;
    let mut fixed = ec2_pool("fixed", "default", &[types(&["m5.large"])]);
    fixed["spec"]["replicas"] = json!(0);
    scene.apply(&[fixed]).await?;
    wait_until("the pool is ready", SOON, || async {
        let pool = scene.pool("fixed").await?;
        let ready = pool
            .status
            .conditions
            .iter()
            .find(|each| each.type_ == "Ready");
        ensure!(
            ready.is_some_and(|ready| ready.status.as_str() == "True"),
            "{ready:?}"
        );
        Ok(())
    })
    .await?;

    account.moto.set_rate_limits(Some(1.0)).await?;
    let before = calls(&account).await?;
    let begun = Instant::now();
    replicas(&scene, nodes).await?;
    let patience = SOON + Duration::from_secs(nodes as u64);
    wait_until("all instances run", patience, || async {
        let running = account.moto.instances().await?.len();
        ensure!(running == nodes, "{running}");
        Ok(())
    })
    .await?;
    let launched = begun.elapsed();
    wait_until("all nodes are initialized", patience, || async {
        scene.settled(nodes).await.map(drop)
    })
    .await?;
    let [fleets, describes, tags, _] = calls(&account).await?;
    let fleets = fleets - before[0];
    println!(
        "{nodes} nodes: instances after {:.1} s, initialized after {:.1} s; {fleets} CreateFleet, {} DescribeInstances, {} CreateTags",
        launched.as_secs_f64(),
        begun.elapsed().as_secs_f64(),
        describes - before[1],
        tags - before[2],
    );
    // Those that are created within a second are one request; up to eight are launched before the first node has registered. How many windows that
    // is depends on how fast they are created: the exact counts are those of the tests of windows, in virtual time.
    let most = 4 + launched.as_secs() + nodes as u64 / 20;
    ensure!(
        fleets <= most,
        "{fleets} requests for one shape, not {most}"
    );
    let looked = describes - before[1];
    ensure!(
        looked <= 4 + nodes as u64 / 20,
        "{looked} looks at {nodes} instances"
    );
    account.moto.set_rate_limits(None).await?;
    if let Ok(seconds) = std::env::var("MORTISE_EC2_REST_SECONDS") {
        for line in costs_at_rest(&account, &scene, seconds.parse()?).await? {
            println!("{line}");
        }
    }

    let mut count = nodes;
    for (fault, late) in [
        (Fault::hold_after("CreateFleet"), LATE),
        (Fault::hold_before("CreateFleet"), 0),
    ] {
        count += MORE;
        account.moto.set_faults(&[fault]).await?;
        replicas(&scene, count).await?;
        wait_until("EC2 has the request", SOON, || async {
            // One for all of them, or more where they were created further apart than a window.
            ensure!(account.moto.held_calls().await? >= 1);
            Ok(())
        })
        .await?;
        scene.mortise.kill9().await;
        account.moto.set_faults(&[]).await?;
        count += late;
        for index in 0..late {
            come_late(&scene, index).await?;
        }
        replicas(&scene, count).await?;
        forget_lease(&scene).await?;
        scene.mortise.start_again(&[]).await?;
        wait_until("all nodes are initialized", SOON, || async {
            scene.settled(count).await.map(drop)
        })
        .await?;
        let running = account.moto.instances().await?.len();
        ensure!(
            running == count,
            "{running} instances for {count} NodeClaims"
        );
    }
    drop(factory);
    scene.end().await;
    account.moto.stop().await;
    Ok(())
}
