//! Everything that EC2 announces about instances, over EventBridge and the queue: what is told about the node, and what becomes of it.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use jiff::{SignedDuration, Timestamp};
use mortise_tests::harness::{Instance, Moto, Reservation, wait_until};
use serde_json::{Value, json};

use crate::aws_account::{Account, class, ec2_pool};
use crate::objects::{deployment, merged, types};
use crate::scene::{LaunchedNode, SOON, Scene};

const ZONE: &str = "us-east-1a";
const RESERVATION: &str = "cr-0mine";

/// What is announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Announced {
    Spot,
    Rebalance,
    /// A change in an hour, which leaves time for a replacement.
    ScheduledChange,
    Stopping,
    ShuttingDown,
    ReservationReclaimed,
}

/// An announcement and its effect on the node of one application.
struct Case {
    announced: Announced,
    /// Of the application, its pool and its capacity type.
    app: &'static str,
    capacity_type: &'static str,
    event: &'static str,
    /// Another node takes the place of this one.
    is_replaced: bool,
}

const CASES: [Case; 6] = [
    Case {
        announced: Announced::Spot,
        app: "spot",
        capacity_type: "spot",
        event: "SpotInterrupted",
        is_replaced: true,
    },
    Case {
        announced: Announced::Rebalance,
        app: "rebalance",
        capacity_type: "spot",
        event: "SpotRebalanceRecommendation",
        is_replaced: false,
    },
    Case {
        announced: Announced::ScheduledChange,
        app: "scheduled",
        capacity_type: "on-demand",
        event: "InstanceUnhealthy",
        is_replaced: true,
    },
    Case {
        announced: Announced::Stopping,
        app: "stopping",
        capacity_type: "on-demand",
        event: "InstanceStopping",
        is_replaced: true,
    },
    Case {
        announced: Announced::ShuttingDown,
        app: "shutting-down",
        capacity_type: "on-demand",
        event: "InstanceTerminating",
        is_replaced: true,
    },
    Case {
        announced: Announced::ReservationReclaimed,
        app: "reclaimed",
        capacity_type: "reserved",
        event: "CapacityReservationInstanceInterrupted",
        is_replaced: true,
    },
];

impl Case {
    /// A pool of its own, and an application whose pod fills a node.
    fn objects(&self) -> [Value; 2] {
        let capacity: &[&str] = match self.capacity_type {
            "reserved" => &["reserved", "on-demand"],
            "spot" => &["spot"],
            _ => &["on-demand"],
        };
        let requirements = [
            types(&["m5.large"]),
            ("karpenter.sh/capacity-type", "In", capacity),
        ];
        let selector = json!({ "nodeSelector": { "karpenter.sh/nodepool": self.app } });
        [
            ec2_pool(self.app, "default", &requirements),
            deployment(self.app, 1, ("1500m", "1Gi"), selector),
        ]
    }

    async fn announce(&self, moto: &Moto, instance: &Instance) -> Result<()> {
        let id = instance.id.as_str();
        match self.announced {
            Announced::Spot => moto.put_spot_interruption(id).await,
            Announced::Rebalance => moto.put_rebalance_recommendation(id).await,
            Announced::Stopping => moto.put_state_change(id, "stopping").await,
            Announced::ShuttingDown => moto.put_state_change(id, "shutting-down").await,
            Announced::ScheduledChange => {
                let starts = Timestamp::now() + SignedDuration::from_hours(1);
                let detail = json!({
                    "service": "EC2", "eventTypeCategory": "scheduledChange", "statusCode": "upcoming",
                    "startTime": starts.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string(),
                    "affectedEntities": [{ "entityValue": id }],
                });
                moto.put_event("aws.health", "AWS Health Event", &detail, &[])
                    .await
            }
            Announced::ReservationReclaimed => {
                // Its capacity is gone for good: the end of the instance gives nothing back.
                let empty = Reservation::targeted(RESERVATION, "m5.large", ZONE, 0);
                moto.set_reservations(&[empty]).await?;
                let detail = json!({ "instance-id": id, "instance-action": "terminate" });
                let kind = "EC2 Capacity Reservation Instance Interruption Warning";
                moto.put_event("aws.ec2", kind, &detail, &[]).await
            }
        }
    }
}

/// Nodes by their pool.
async fn by_app(scene: &Scene) -> Result<BTreeMap<String, LaunchedNode>> {
    let nodes = scene.settled(CASES.len()).await?;
    let named = nodes
        .into_iter()
        .map(|node| (node.label("karpenter.sh/nodepool").to_owned(), node));
    Ok(named.collect())
}

fn of<'a>(nodes: &'a BTreeMap<String, LaunchedNode>, case: &Case) -> Result<&'a LaunchedNode> {
    nodes.get(case.app).context(case.app)
}

#[tokio::test]
async fn every_announcement_has_its_effect() -> Result<()> {
    let account = Account::open().await?;
    let moto = &account.moto;
    moto.set_reservations(&[Reservation::targeted(RESERVATION, "m5.large", ZONE, 1)])
        .await?;
    let (scene, factory) = account.bare_scene(&[], &[]).await?;
    let terms = json!({ "spec": { "capacityReservationSelectorTerms": [{ "id": RESERVATION }] } });
    scene
        .apply(&[merged(class(&account.fixtures), terms)])
        .await?;
    for case in &CASES {
        scene.apply(&case.objects()).await?;
    }
    for case in &CASES {
        scene.running(case.app, 1).await?;
    }
    let before = by_app(&scene).await?;
    for case in &CASES {
        let node = of(&before, case)?;
        let capacity_type = node.label("karpenter.sh/capacity-type");
        ensure!(
            capacity_type == case.capacity_type,
            "{}: {capacity_type}",
            case.app
        );
        case.announce(moto, &account.instance_of(node).await?)
            .await?;
    }
    for case in &CASES {
        let claim = of(&before, case)?.claim.name();
        scene.event(case.event, &claim, "").await?;
        if case.is_replaced {
            scene.event("TerminatingOnInterruption", &claim, "").await?;
        }
    }
    wait_until("the interrupted nodes to be gone", SOON, || async {
        let claims = scene.claims().await?;
        for case in CASES.iter().filter(|case| case.is_replaced) {
            let name = of(&before, case)?.claim.name();
            ensure!(!claims.contains_key(&*name), "{}: {name}", case.app);
        }
        Ok(())
    })
    .await?;
    for case in &CASES {
        scene.running(case.app, 1).await?;
    }

    let after = by_app(&scene).await?;
    for case in &CASES {
        let (old, new) = (of(&before, case)?, of(&after, case)?);
        let is_other = old.claim.name() != new.claim.name();
        ensure!(is_other == case.is_replaced, "{}", case.app);
        account.instance_of(new).await?;
    }
    let reclaimed = after.get("reclaimed").context("reclaimed")?;
    ensure!(
        reclaimed.label("karpenter.sh/capacity-type") == "on-demand",
        "a reservation that is reclaimed is not launched into"
    );
    let running = moto.instances().await?;
    ensure!(running.len() == CASES.len(), "{running:?}");
    wait_until("all messages to be deleted", SOON, || async {
        let left = moto.queued_messages(&account.fixtures.queue_name).await?;
        ensure!(left.is_empty(), "{left:?}");
        Ok(())
    })
    .await?;
    drop(factory);
    scene.end().await;
    account.end().await
}
