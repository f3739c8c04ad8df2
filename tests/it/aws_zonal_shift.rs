//! A zone that ARC has shifted away: no node starts there until the shift ends, and NodePools say so.

use anyhow::{Context as _, Result, ensure};
use jiff::{Timestamp, ToSpan as _};
use kube::api::Api;
use mortise_aws_class::spec::Ec2NodeClass;
use mortise_tests::harness::wait_until;
use serde_json::{Value, json};

use crate::aws_account::{Account, CLUSTER, class, ec2_pool};
use crate::objects::{ON_DEMAND, deployment, types};
use crate::scene::{SOON, Scene};

const ZONE: &str = "us-east-1a";

fn in_zone(name: &str, zone: &str) -> Value {
    let selector = json!({ "nodeSelector": { "topology.kubernetes.io/zone": zone } });
    deployment(name, 1, ("1", "1Gi"), selector)
}

/// The id of a zone in this account, from the status of the class.
async fn zone_id(scene: &Scene, zone: &str) -> Result<String> {
    wait_until("the subnets of the class", SOON, || async {
        let classes: Api<Ec2NodeClass> = Api::all(scene.plane.client());
        let subnets = classes.get("default").await?.status.subnets;
        let found = subnets.iter().find(|subnet| subnet.zone == zone);
        let id = found.and_then(|subnet| subnet.zone_id.clone());
        id.with_context(|| format!("{subnets:?}"))
    })
    .await
}

/// The shift of a zone for an hour, as ARC describes it.
fn shift(zone_id: &str) -> Value {
    let now = Timestamp::now();
    json!([{
        "appliedStatus": "APPLIED", "zonalShiftId": "shift-1", "resourceIdentifier": "cluster", "awayFrom": zone_id,
        "startTime": now.as_second(), "expiryTime": (now + 1.hour()).as_second(), "comment": "a test",
    }])
}

#[tokio::test]
async fn a_zone_that_is_shifted_away_gets_no_node_until_it_is_back() -> Result<()> {
    let account = Account::of_cluster(CLUSTER, &["--enable-zonal-shift"]).await?;
    let flags = [
        "--enable-zonal-shift=true",
        "--nodeclass-resync-interval=3s",
    ];
    let (scene, factory) = account.bare_scene(&[], &flags).await?;
    let requirements = [types(&["m5.large"]), ON_DEMAND];
    scene
        .apply(&[
            class(&account.fixtures),
            ec2_pool("default", "default", &requirements),
        ])
        .await?;
    let id = zone_id(&scene, ZONE).await?;
    account.moto.set_zonal_shifts(&shift(&id)).await?;
    scene.event("ZonalShiftActive", "default", ZONE).await?;
    let shown = scene.mortise.debug("capacity").await?.to_string();
    ensure!(shown.contains(&format!("zone-id/{id}")), "{shown}");

    scene
        .apply(&[in_zone("here", ZONE), in_zone("there", "us-east-1b")])
        .await?;
    scene.running("there", 1).await?;
    let instances = account.moto.launched_instances().await?;
    ensure!(
        instances.iter().all(|instance| instance.zone != ZONE),
        "{instances:?}"
    );

    account.moto.set_zonal_shifts(&json!([])).await?;
    scene.event("ZonalShiftCleared", "default", ZONE).await?;
    scene.running("here", 1).await?;
    drop(factory);
    scene.end().await;
    account.end().await
}
