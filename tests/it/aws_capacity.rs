//! EC2 capacity: reservations that are used, run out and end, and shortages that a launch gets around.

use std::io::Write as _;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::api::Api;
use mortise_aws_class::spec::Ec2NodeClass;
use mortise_tests::harness::{Pool, Reservation, wait_until};
use serde_json::{Value, json};

use crate::aws_account::{Account, class, ec2_pool};
use crate::objects::{ON_DEMAND, deployment, merged, types};
use crate::scene::{SOON, Scene};

const ZONE: &str = "us-east-1a";
const OTHER_ZONES: [&str; 2] = ["us-east-1b", "us-east-1c"];
/// Nodes that are launched at once.
const MANY: usize = 22;
/// Requirement: both ways to pay.
const ANY_CAPACITY: (&str, &str, &[&str]) = (
    "karpenter.sh/capacity-type",
    "In",
    &["reserved", "spot", "on-demand"],
);

/// One pod that fills a node of the smallest type.
fn web(replicas: usize) -> Value {
    deployment("web", replicas, ("1500m", "1Gi"), json!({}))
}

async fn reserved_nodes(scene: &Scene) -> Result<Vec<String>> {
    let nodes = scene.nodes().await?;
    let label = |node: &Node, key: &str| {
        let labels = node.metadata.labels.as_ref();
        labels
            .and_then(|all| all.get(key))
            .cloned()
            .unwrap_or_default()
    };
    Ok(nodes
        .values()
        .filter(|node| label(node, "karpenter.sh/capacity-type") == "reserved")
        .map(|node| label(node, "karpenter.k8s.aws/capacity-reservation-id"))
        .collect())
}

/// Waits until the class, which was there without terms, has found what its terms select: until then, launches know no reservation.
async fn reservation_known(scene: &Scene, id: &str) -> Result<()> {
    wait_until("the reservation in the status", SOON, || async {
        let classes: Api<Ec2NodeClass> = Api::all(scene.plane.client());
        let found = classes.get("default").await?.status.capacity_reservations;
        ensure!(found.len() == 1 && found[0].id == id, "{found:?}");
        Ok(())
    })
    .await
}

/// Reserved capacity is used first, on-demand capacity when it is used up; a reservation that no class selected stays full, open or not.
#[tokio::test]
async fn a_reservation_is_used_until_it_is_empty() -> Result<()> {
    let account = Account::open().await?;
    let open = Reservation {
        criteria: "open",
        ..Reservation::targeted("cr-0open", "m5.large", ZONE, 5)
    };
    account
        .moto
        .set_reservations(&[Reservation::targeted("cr-0mine", "m5.large", ZONE, 1), open])
        .await?;
    // Every list shows what left its reservation.
    let flags = ["--garbage-collection-interval=3s"];
    let (scene, factory) = account.scene_with(&[], &flags).await?;
    let mut selecting = class(&account.fixtures);
    selecting["spec"]["capacityReservationSelectorTerms"] = json!([{ "id": "cr-0mine" }]);
    let requirements = [types(&["m5.large"]), ANY_CAPACITY];
    scene
        .apply(&[selecting, ec2_pool("default", "default", &requirements)])
        .await?;
    reservation_known(&scene, "cr-0mine").await?;
    scene.apply(&[web(1)]).await?;
    scene.running("web", 1).await?;
    ensure!(reserved_nodes(&scene).await? == ["cr-0mine"]);
    ensure!(account.moto.free_in_reservation("cr-0mine").await? == 0);

    scene.scale("web", 2).await?;
    scene.running("web", 2).await?;
    scene.settled(2).await?;
    ensure!(
        reserved_nodes(&scene).await?.len() == 1,
        "one instance was reserved"
    );
    ensure!(
        account.moto.free_in_reservation("cr-0open").await? == 5,
        "an open reservation that the class does not select is left alone"
    );

    // It ends: its instance runs on, on demand, and neither claim nor node say anything else.
    let nodes = scene.nodes().await?;
    account.moto.set_reservations(&[]).await?;
    wait_until("nothing to be reserved", SOON, || async {
        for node in scene.settled(2).await? {
            let claim = &node.claim;
            for labels in [&claim.metadata.labels, &node.node.metadata.labels] {
                let labels = labels.as_ref().context("labels")?;
                let capacity_type = labels.get("karpenter.sh/capacity-type");
                let reservation = labels.get("karpenter.k8s.aws/capacity-reservation-id");
                ensure!(
                    capacity_type.is_some_and(|each| each != "reserved") && reservation.is_none(),
                    "{}: {capacity_type:?} {reservation:?}",
                    claim.name()
                );
            }
        }
        Ok(())
    })
    .await?;
    scene.running("web", 2).await?;
    ensure!(
        scene.nodes().await?.keys().eq(nodes.keys()),
        "no node is replaced"
    );
    drop(factory);
    scene.end().await;
    account.end().await
}

/// A Capacity Block is left half an hour and ten minutes before its end, when EC2 does not take its instances back yet: the pod moves to
/// other capacity, and nothing is launched into the block any more.
#[tokio::test]
async fn a_capacity_block_is_left_before_it_ends() -> Result<()> {
    let account = Account::open().await?;
    let left_ahead = 40 * 60;
    let block = |used_for: i64| Reservation {
        kind: "capacity-block",
        ends_in_seconds: Some(used_for + left_ahead),
        ..Reservation::targeted("cr-0block", "m5.large", ZONE, 2)
    };
    account.moto.set_reservations(&[block(3600)]).await?;
    let (scene, factory) = account.scene_with(&[], &[]).await?;
    let mut selecting = class(&account.fixtures);
    selecting["spec"]["capacityReservationSelectorTerms"] = json!([{ "id": "cr-0block" }]);
    let requirements = [types(&["m5.large"]), ANY_CAPACITY];
    scene
        .apply(&[selecting, ec2_pool("default", "default", &requirements)])
        .await?;
    reservation_known(&scene, "cr-0block").await?;
    scene.apply(&[web(1)]).await?;
    scene.running("web", 1).await?;
    ensure!(reserved_nodes(&scene).await? == ["cr-0block"]);
    let blocked = scene.settled(1).await?;
    let blocked = blocked.first().context("one")?;
    let kind = blocked.label("karpenter.k8s.aws/capacity-reservation-type");
    ensure!(kind == "capacity-block", "{kind}");

    // Its end is set so near that a poll sees it once before the block is to be left. Room remains in it, which nothing may go to.
    let name = blocked.claim.name();
    account.moto.set_reservations(&[block(75)]).await?;
    wait_until("the announcement", SOON * 2, || {
        scene.event("CapacityBlockExpiring", &name, "")
    })
    .await?;
    wait_until("the node outside of the block", SOON * 2, || async {
        let claims = scene.claims().await?;
        ensure!(!claims.contains_key(&*name), "{name} is there");
        Ok(())
    })
    .await?;
    scene.running("web", 1).await?;
    scene.settled(1).await?;
    ensure!(reserved_nodes(&scene).await?.is_empty());
    ensure!(account.moto.free_in_reservation("cr-0block").await? == 2);
    wait_until("the state in the status", SOON, || async {
        let classes: Api<Ec2NodeClass> = Api::all(scene.plane.client());
        let found = classes.get("default").await?.status.capacity_reservations;
        let state = found.first().and_then(|each| each.state.as_deref());
        ensure!(state == Some("expiring"), "{found:?}");
        Ok(())
    })
    .await?;
    drop(factory);
    scene.end().await;
    account.end().await
}

/// No role for spot instances, no capacity in one zone, none of the cheapest type: the pod runs without a person, what was refused is
/// shown, and what the account lacks is in an event.
#[tokio::test]
async fn a_launch_gets_around_what_is_short() -> Result<()> {
    let account = Account::open().await?;
    account
        .moto
        .set_pools(&[
            Pool {
                code: Some("AuthFailure.ServiceLinkedRoleCreationNotPermitted".to_owned()),
                ..Pool::empty("*", "*", "spot")
            },
            Pool::empty("m5.large", "*", "on-demand"),
            Pool::empty("*", ZONE, "on-demand"),
        ])
        .await?;
    let (scene, factory) = account.scene(&[]).await?;
    let requirements = [types(&["m5.large", "m5.xlarge"]), ANY_CAPACITY];
    scene
        .apply(&[ec2_pool("default", "default", &requirements)])
        .await?;
    let begun = Instant::now();
    scene.apply(&[web(1)]).await?;
    scene.running("web", 1).await?;
    let launched = scene.settled(1).await?;
    let node = launched.first().context("one")?;
    ensure!(
        node.instance_type() == "m5.xlarge",
        "{}",
        node.instance_type()
    );
    ensure!(node.label("karpenter.sh/capacity-type") == "on-demand");
    ensure!(node.label("topology.kubernetes.io/zone") != ZONE);
    println!(
        "no role for spot, one type and one zone are short: running after {:.1} s and {} CreateFleet calls",
        begun.elapsed().as_secs_f64(),
        account.moto.calls("ec2:CreateFleet").await?
    );
    let advice = "aws iam create-service-linked-role";
    scene
        .event("PrerequisiteMissing", "default", advice)
        .await?;
    launches_in_another_subnet(&account, &scene).await?;
    launches_as_fast_as_it_may(&account, &scene).await?;
    // Last: it leaves the first pool no subnet.
    launches_in_another_subnet_of_the_zone(&account, &scene).await?;
    drop(factory);
    scene.end().await;
    account.end().await
}

/// A subnet has filled up since EC2 described it: another one is taken, and the full one is shown.
async fn launches_in_another_subnet(account: &Account, scene: &Scene) -> Result<()> {
    let fixtures = &account.fixtures;
    let [full, free] = OTHER_ZONES.map(|zone| fixtures.subnets.get(zone));
    let (full, free) = (full.context("a subnet")?, free.context("a subnet")?);
    let over = json!({
        "metadata": { "name": "narrow" },
        "spec": { "subnetSelectorTerms": [{ "id": full }, { "id": free }] },
    });
    account.moto.set_full_subnets(&[full]).await?;
    let requirements = [types(&["m5.xlarge"]), ON_DEMAND];
    let selector = json!({ "nodeSelector": { "karpenter.sh/nodepool": "narrow" } });
    scene
        .apply(&[
            merged(class(fixtures), over),
            ec2_pool("narrow", "narrow", &requirements),
            deployment("narrow", 1, ("1", "1Gi"), selector),
        ])
        .await?;
    scene.running("narrow", 1).await?;
    let subnets: Vec<String> = of_pool(account, "narrow").await?;
    ensure!(subnets == [free.clone()], "{subnets:?}");
    let shown = scene.mortise.debug("capacity").await?.to_string();
    ensure!(
        shown.contains(&format!("subnet/{full}"))
            && shown.contains("InsufficientFreeAddressesInSubnet"),
        "{shown}"
    );
    account.moto.set_full_subnets(&[]).await
}

/// The larger of two subnets in a zone is full, and is tried first: the zone stays open, and the smaller one is taken.
async fn launches_in_another_subnet_of_the_zone(account: &Account, scene: &Scene) -> Result<()> {
    let fixtures = &account.fixtures;
    let [_, zone] = OTHER_ZONES;
    let large = fixtures.subnets.get(zone).context("a subnet")?;
    let small = &fixtures.spare_subnet;
    let over = json!({
        "metadata": { "name": "one-zone" },
        "spec": { "subnetSelectorTerms": [{ "id": large }, { "id": small }] },
    });
    account.moto.set_full_subnets(&[large]).await?;
    let selector = json!({ "nodeSelector": { "karpenter.sh/nodepool": "one-zone" } });
    scene
        .apply(&[
            merged(class(fixtures), over),
            ec2_pool("one-zone", "one-zone", &[types(&["m5.xlarge"]), ON_DEMAND]),
            deployment("one-zone", 1, ("1", "1Gi"), selector),
        ])
        .await?;
    scene.running("one-zone", 1).await?;
    let subnets = of_pool(account, "one-zone").await?;
    ensure!(subnets == [small.clone()], "{subnets:?}");
    account.moto.set_full_subnets(&[]).await
}

/// Subnets of the instances of a pool.
async fn of_pool(account: &Account, pool: &str) -> Result<Vec<String>> {
    let mut instances = account.moto.instances().await?;
    instances.retain(|each| {
        each.tags
            .get("karpenter.sh/nodepool")
            .is_some_and(|tag| tag == pool)
    });
    Ok(instances.into_iter().map(|each| each.subnet).collect())
}

/// The account's calls are used up by others, and EC2 refuses what comes too early: all nodes come all the same.
async fn launches_as_fast_as_it_may(account: &Account, scene: &Scene) -> Result<()> {
    let before = account.moto.launched_instances().await?.len();
    let calls = account.moto.calls("ec2:CreateFleet").await?;
    account.moto.set_rate_limits(Some(1.0)).await?;
    let begun = Instant::now();
    scene
        .apply(&[deployment(
            "many",
            MANY,
            ("3", "1Gi"),
            json!({ "nodeSelector": { "karpenter.sh/nodepool": "default" } }),
        )])
        .await?;
    scene.running("many", MANY).await?;
    let took = begun.elapsed().as_secs_f64();
    let throttled = account.moto.denials().await?.throttled;
    account.moto.set_rate_limits(None).await?;
    let launched = account.moto.launched_instances().await?.len() - before;
    ensure!(launched == MANY, "{launched} instances");
    ensure!(throttled.contains_key("CreateFleet"), "{throttled:?}");
    let calls = account.moto.calls("ec2:CreateFleet").await? - calls;
    writeln!(
        std::io::stderr(),
        "{MANY} nodes after {took:.1} s and {calls} CreateFleet calls; refused: {throttled:?}"
    )?;
    Ok(())
}
