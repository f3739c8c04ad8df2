//! Gangs that run in one domain of a topology: all pods in one zone, or on one rack, whichever it is.

use std::collections::BTreeSet;

use mortise_apis::labels::TOPOLOGY_ZONE;
use mortise_apis::values::SplitMix64;
use mortise_apis::values::money::MicroUsd;
use mortise_planning::reason::GangShortage;
use mortise_planning::scheduling::{LaunchPlan, PlannedClaim};
use mortise_state::resource_kinds::ObjectKind;
use mortise_state::snapshot::{GangKind, Snapshot};
use serde_json::{Value, json};

use crate::gangs::{member_of, placed, shortages, solved};
use crate::one_pool::{World, ZONES, instance_type, node, pod, pool};

/// A gang whose nodes have one value of this label.
fn gang(world: World, name: &str, key: &str, (min, pods): (i64, usize), cpu: &str) -> World {
    let group = json!({
        "metadata": { "name": name, "namespace": "default", "uid": name },
        "spec": {
            "schedulingPolicy": { "gang": { "minCount": min } },
            "schedulingConstraints": { "topology": [{ "key": key }] },
        },
    });
    let group = ObjectKind::PodGroup.parse(&group.to_string()).unwrap();
    (0..pods).fold(world.with(group), |world, at| {
        world.pending(member(name, &format!("{name}-{at}"), cpu))
    })
}

fn member(group: &str, name: &str, cpu: &str) -> Value {
    member_of(
        GangKind::Kubernetes,
        group,
        pod(name, group, cpu, json!({})),
    )
}

/// The values of a label that the nodes of a gang have.
fn domains(plan: &LaunchPlan, snapshot: &Snapshot, name: &str, key: &str) -> BTreeSet<String> {
    let is_own = |pod: &str| pod.starts_with(name);
    let launched = plan.claims.iter();
    let launched = launched.filter(|claim| claim.pods.iter().any(|pod| is_own(&pod.key.name)));
    let value = |claim: &PlannedClaim| {
        let found = claim.requirements.get(key).unwrap();
        assert_eq!(found.values().len(), 1, "{found:?}");
        found.values()[0].to_string()
    };
    let placements = plan.placements.iter();
    let placements = placements.filter(|placement| is_own(&placement.pod.key.name));
    let existing = placements
        .map(|placement| snapshot.nodes.get(&placement.node).unwrap().labels[key].clone());
    launched.map(value).chain(existing).collect()
}

/// 15 CPUs are the most of one node, and these pods need three nodes.
const PODS: usize = 12;

fn train(world: World) -> World {
    gang(world, "train", TOPOLOGY_ZONE, (12, PODS), "3500m")
}

/// Makes all offerings of a zone available or not, at this price for a CPU.
fn offer(world: &mut World, zone: &str, available: bool, price: i64) {
    for each in &mut world.types {
        let cpus = each.capacity.cpu / 1_000;
        let offerings = each.offerings.iter_mut();
        for offering in offerings.filter(|offering| &*offering.zone == zone) {
            offering.available = available;
            offering.price = Some(MicroUsd(price * cpus));
        }
    }
}

#[test]
fn all_pods_of_a_gang_get_nodes_of_one_zone() {
    let snapshot = train(World::new()).snapshot();
    let (plan, report) = solved(&snapshot);
    assert_eq!(placed(&plan)["train"], PODS, "{report:?}");
    assert!(plan.claims.len() > 1);
    let zones = domains(&plan, &snapshot, "train", TOPOLOGY_ZONE);
    assert_eq!(
        zones,
        [ZONES[0].to_owned()].into(),
        "the first of equal ones"
    );
}

#[test]
fn the_cheapest_zone_that_has_room_for_all_is_chosen() {
    let chosen = |change: &dyn Fn(&mut World)| {
        let mut world = train(World::new());
        change(&mut world);
        let snapshot = world.snapshot();
        let (plan, report) = solved(&snapshot);
        assert_eq!(placed(&plan)["train"], PODS, "{report:?}");
        domains(&plan, &snapshot, "train", TOPOLOGY_ZONE)
    };
    let cheap = chosen(&|world| offer(world, "z3", true, 100));
    assert_eq!(cheap, ["z3".to_owned()].into());
    let left = chosen(&|world| {
        offer(world, "z1", false, 100);
        offer(world, "z3", true, 2_000);
    });
    assert_eq!(left, ["z2".to_owned()].into());
}

#[test]
fn a_gang_that_fits_in_no_zone_alone_gets_no_node() {
    let mut world = train(World::new());
    world.pools = vec![pool(
        "general",
        json!([]),
        json!({ "spec": { "limits": { "cpu": "32" } } }),
    )];
    let (plan, report) = solved(&world.snapshot());
    assert_eq!(plan.claims.len(), 0);
    let [
        GangShortage::Places {
            needed: 12,
            domain: Some(domain),
            ..
        },
    ] = shortages(&report)[..]
    else {
        panic!("{report:?}");
    };
    assert_eq!((&*domain.key, &*domain.value), (TOPOLOGY_ZONE, "z1"));
    let text = &report.unplaced[0].message;
    let begin = "PodGroup default/train runs 12 pods together or none in one topology.kubernetes.io/zone, and only 8 have a place where it is z1; pod ";
    assert!(text.starts_with(begin), "{text}");
}

#[test]
fn who_runs_decides_where_the_others_go() {
    // It runs in z2, where nodes are expensive; with room on a node of z1.
    let mut world = gang(World::new(), "train", TOPOLOGY_ZONE, (3, 2), "3500m")
        .node(node("old", "z2", json!({})))
        .node(node("free", "z1", json!({})))
        .running("old", member("train", "train-9", "6"));
    offer(&mut world, "z2", true, 5_000);
    let snapshot = world.snapshot();
    let (plan, report) = solved(&snapshot);
    assert_eq!(placed(&plan)["train"], 2, "{report:?}");
    let zones = domains(&plan, &snapshot, "train", TOPOLOGY_ZONE);
    assert_eq!(zones, ["z2".to_owned()].into());
    // Where no pod runs yet, the room that is there decides.
    let world = gang(World::new(), "train", TOPOLOGY_ZONE, (2, 2), "3500m");
    let snapshot = world.node(node("free", "z3", json!({}))).snapshot();
    let (plan, _) = solved(&snapshot);
    assert_eq!((plan.placements.len(), plan.claims.len()), (2, 0));
}

#[test]
fn a_label_of_ones_own_is_a_topology_as_well() {
    let racks = ["r1", "r2"].map(|rack| {
        let label = json!({ "spec": {
            "template": { "metadata": { "labels": { "example.com/rack": rack } } },
            "limits": { "cpu": if rack == "r1" { "32" } else { "100" } },
        } });
        pool(rack, json!([]), label)
    });
    let world = |racks: &[Value]| {
        let world = gang(
            World::new(),
            "train",
            "example.com/rack",
            (12, PODS),
            "3500m",
        );
        World {
            pools: racks.to_vec(),
            ..world
        }
    };
    let snapshot = world(&racks).snapshot();
    let (plan, report) = solved(&snapshot);
    assert_eq!(placed(&plan)["train"], PODS, "{report:?}");
    assert!(
        plan.claims.iter().all(|claim| &*claim.pool == "r2"),
        "{plan:?}"
    );
    // A label that no node has.
    let without = pool("general", json!([]), json!({}));
    let (plan, report) = solved(&world(&[without]).snapshot());
    assert_eq!(plan.claims.len(), 0);
    assert_eq!(
        shortages(&report),
        [&GangShortage::Domain {
            key: "example.com/rack".into()
        }]
    );
    assert_eq!(
        report.unplaced[0].message,
        "PodGroup default/train runs in one example.com/rack, and no value of that label is known that new nodes may have"
    );
}

/// Random gangs, zones without capacity, nodes and limits: each gang is in one zone with all its pods, or nowhere.
#[test]
fn no_gang_is_in_two_zones() {
    let mut random = SplitMix64::new(11);
    let mut of = |most: i64| random.between(1, most);
    let (mut whole, mut none) = (0, 0);
    for seed in 0..150 {
        let mut world = World::new();
        world.types = vec![instance_type(4, "amd64"), instance_type(16, "amd64")];
        let limit = json!({ "spec": { "limits": { "cpu": (8 * of(6)).to_string() } } });
        world.pools = vec![pool("general", json!([]), limit)];
        for zone in ZONES {
            let (available, price) = (of(4) > 1, 100 * of(9));
            offer(&mut world, zone, available, price);
        }
        let gangs = of(3);
        for number in 0..gangs {
            let size = of(6);
            let name = format!("g{number}");
            let pods = usize::try_from(size).unwrap();
            let cpu = format!("{}", of(3));
            world = gang(world, &name, TOPOLOGY_ZONE, (size, pods), &cpu);
        }
        if of(2) == 1 {
            world = world.node(node(
                "n",
                ZONES[usize::try_from(of(3) - 1).unwrap()],
                json!({}),
            ));
        }
        let snapshot = world.snapshot();
        let (plan, report) = solved(&snapshot);
        for number in 0..gangs {
            let name = format!("g{number}");
            let pods = snapshot
                .pending
                .values()
                .filter(|pod| pod.key.name.starts_with(&name));
            let got = placed(&plan).get(&name).copied().unwrap_or_default();
            assert!(got == 0 || got == pods.count(), "{seed}: {name} {report:?}");
            let zones = domains(&plan, &snapshot, &name, TOPOLOGY_ZONE);
            assert!(zones.len() <= 1, "{seed}: {name} in {zones:?}");
            if got > 0 { whole += 1 } else { none += 1 }
        }
    }
    assert!(whole > 100 && none > 20, "{whole} and {none}");
}
