//! What the index updates incrementally equals what counting from scratch gives.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use mortise_apis::labels::{self, WellKnown};
use mortise_apis::names::NodeClassKey;
use mortise_apis::requirements::Requirements;
use mortise_apis::resources::Resources;
use mortise_apis::values::money::MicroUsd;
use mortise_apis::values::since;
use mortise_cloudprovider::{CapacityType, InstanceType, Offering};
use mortise_state::catalog::Catalog;
use mortise_state::index::Index;
use mortise_state::ledger::NominationTarget;
use mortise_state::resource_kinds::{EventSource, Object, ObjectEvent, ObjectKey};
use mortise_state::snapshot::{LaunchedByPool, PoolUsage, Snapshot};
use proptest::prelude::*;
use serde_json::json;

/// One event; numbers are taken modulo the number of objects.
#[derive(Clone, Debug)]
struct ClusterEvent {
    what: u8,
    which: u8,
    node: u8,
    like: u8,
}

fn any_event() -> impl Strategy<Value = ClusterEvent> {
    (0_u8..8, 0_u8..12, 0_u8..6, 0_u8..5).prop_map(|(what, which, node, like)| ClusterEvent {
        what,
        which,
        node,
        like,
    })
}

fn pod(of: &ClusterEvent) -> Object {
    let name = format!("pod-{}", of.which);
    let set = of.like == 4;
    let mut pod = json!({
        "metadata": {"name": name, "namespace": if of.like == 3 { "other" } else { "default" }, "uid": format!("{name}-{}", of.like), "labels": {"app": format!("app-{}", of.like % 3)},
            "creationTimestamp": format!("2026-01-01T00:00:{:02}Z", of.which)},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "100m"}}}]},
        "status": {"phase": if of.what == 3 { "Succeeded" } else { "Running" }},
    });
    if of.node > 0 {
        pod["spec"]["nodeName"] = json!(format!("node-{}", of.node));
    }
    if of.what == 2 {
        pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T01:00:00Z");
    }
    if set {
        pod["metadata"]["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "set", "uid": "set", "controller": true}]);
    }
    if of.like == 1 {
        pod["spec"]["affinity"]["podAntiAffinity"] = json!({"requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchLabels": {"app": "app-1"}}, "topologyKey": labels::HOSTNAME}]});
    }
    Object::Pod(Box::new(serde_json::from_value(pod).unwrap()))
}

fn apply_node(of: &ClusterEvent, index: &mut Index) {
    let name = format!("node-{}", of.node);
    let id = format!("cloud:///{name}");
    let amounts = json!({"cpu": (of.like + 1).to_string(), "memory": "8Gi", "pods": "110"});
    let mut all_labels = json!({labels::NODEPOOL: format!("pool-{}", of.like % 2), labels::REGISTERED: "true", labels::INITIALIZED: (!of.like.is_multiple_of(3)).to_string(),
        labels::TOPOLOGY_ZONE: format!("zone-{}", of.which % 2), labels::CAPACITY_TYPE: if of.like < 3 { "spot" } else { "on-demand" }});
    // Some are not launched yet.
    if of.which < 9 {
        all_labels[labels::INSTANCE_TYPE] = json!("small");
    }
    let requirements = [labels::TOPOLOGY_ZONE, labels::CAPACITY_TYPE]
        .map(|key| json!({"key": key, "operator": "In", "values": [all_labels[key]]}));
    let mut claim = json!({
        "metadata": {"name": format!("claim-{}", of.node), "uid": format!("claim-{}", of.node), "labels": all_labels, "creationTimestamp": format!("1969-12-31T23:{:02}:00Z", 50 + of.which % 10)},
        "spec": {"nodeClassRef": {"group": "g", "kind": "Class", "name": "default"}, "requirements": requirements},
        "status": {"providerID": id, "capacity": amounts, "allocatable": amounts},
    });
    if of.which == 0 {
        claim["metadata"]["deletionTimestamp"] = json!("2026-01-01T01:00:00Z");
    }
    let node = json!({"metadata": {"name": name, "uid": name, "labels": all_labels}, "spec": {"providerID": id}, "status": {"capacity": amounts, "allocatable": amounts}});
    let claim = Object::Claim(Box::new(serde_json::from_value(claim).unwrap()));
    index.apply(ObjectEvent::Applied(claim, EventSource::Watch));
    if !of.which.is_multiple_of(3) {
        let node = Object::Node(Box::new(serde_json::from_value(node).unwrap()));
        index.apply(ObjectEvent::Applied(node, EventSource::Watch));
    }
}

fn apply(of: &ClusterEvent, index: &mut Index) {
    match of.what {
        0..=3 => drop(index.apply(ObjectEvent::Applied(pod(of), EventSource::Watch))),
        4 => {
            let key = pod(of).key();
            index.apply(ObjectEvent::Deleted(key, None));
        }
        5 => {
            index.apply(ObjectEvent::Deleted(
                ObjectKey::Node(format!("node-{}", of.node).into()),
                None,
            ));
        }
        6 => {
            index.apply(ObjectEvent::Deleted(
                ObjectKey::Claim(format!("claim-{}", of.node).into()),
                None,
            ));
        }
        _ => apply_node(of, index),
    }
}

/// Number of pods by namespace, labels and Node.
type LabelCounts = BTreeMap<(String, String, String), u32>;
/// Every node once, in the order in which it is tried.
fn check_order(snapshot: &Snapshot) {
    let mut order: Vec<_> = snapshot.nodes.values().collect();
    order.sort_by_key(|node| {
        let last = node.allocatable.has_accelerators();
        (
            last,
            !node.initialized,
            node.name().to_owned(),
            node.key.clone(),
        )
    });
    let keys = |node: &Arc<mortise_state::snapshot::StateNode>| node.key.clone();
    let order: Vec<_> = order.into_iter().map(keys).collect();
    assert_eq!(
        snapshot.ordered_nodes.iter().map(keys).collect::<Vec<_>>(),
        order
    );
}

fn check(snapshot: &Snapshot) {
    let pods: Vec<_> = snapshot.pods.values().collect();
    let bound = pods
        .iter()
        .filter_map(|pod| Some((pod, pod.node.as_ref()?)));
    let (mut by_labels, mut anti_affinity): (LabelCounts, BTreeMap<(u32, String), u32>) =
        Default::default();
    for (pod, node) in bound {
        if pod.is_active() {
            let key = (
                pod.key.namespace.to_string(),
                format!("{:?}", pod.labels),
                node.to_string(),
            );
            *by_labels.entry(key).or_default() += 1;
        }
        if !pod.class.anti_affinity.required.is_empty() {
            *anti_affinity
                .entry((pod.class.id, node.to_string()))
                .or_default() += 1;
        }
    }
    let mut known = LabelCounts::new();
    for (key, nodes) in snapshot.pod_labels.by_labels() {
        for (place, count) in nodes.iter() {
            let key = (
                key.namespace.to_string(),
                format!("{:?}", key.labels),
                node_of(place),
            );
            *known.entry(key).or_default() += count;
        }
    }
    assert_eq!(known, by_labels);
    let known: BTreeMap<(u32, String), u32> = snapshot
        .pod_labels
        .anti_affinity_pods()
        .flat_map(|anti_affinity| {
            let id = anti_affinity.class().unwrap().id;
            let places = anti_affinity.places.iter();
            places.map(move |(place, count)| ((id, node_of(place)), count))
        })
        .collect();
    assert_eq!(known, anti_affinity);

    let daemons = pods.iter().filter(|pod| pod.is_daemon() && pod.is_active());
    let newest: BTreeSet<String> = daemons
        .fold(BTreeMap::new(), |mut all: BTreeMap<_, _>, pod| {
            let known = all.entry(&pod.key.namespace).or_insert(pod);
            if (known.created, &known.key) < (pod.created, &pod.key) {
                *known = pod;
            }
            all
        })
        .into_values()
        .map(|pod| pod.key.to_string())
        .collect();
    let known = snapshot.daemon_pods.values();
    assert_eq!(
        known
            .map(|pod| pod.key.to_string())
            .collect::<BTreeSet<_>>(),
        newest
    );

    check_order(snapshot);

    let mut values: BTreeMap<(String, String), u32> = BTreeMap::new();
    for node in snapshot.nodes.values().filter(|node| node.node.is_some()) {
        for (key, value) in node.labels.iter() {
            *values.entry((key.clone(), value.clone())).or_default() += 1;
        }
    }
    let mut known = BTreeMap::new();
    for (key, all) in snapshot.label_values.iter() {
        let counts = all.iter();
        known.extend(counts.map(|(value, count)| ((key.to_string(), value.to_string()), *count)));
    }
    assert_eq!(known, values);

    let mut usage: BTreeMap<String, PoolUsage> = BTreeMap::new();
    let mut deleting = BTreeSet::new();
    for node in snapshot.nodes.values() {
        if node.deleting {
            deleting.insert(node.key.clone());
        } else if let Some(pool) = node.pool() {
            usage
                .entry(pool.to_string())
                .or_default()
                .count(&node.capacity);
        }
    }
    assert_eq!(*snapshot.deleting, deleting);
    let known = snapshot.pool_usage.iter();
    let known: BTreeMap<_, _> = known
        .map(|(pool, usage)| (pool.to_string(), usage.clone()))
        .collect();
    assert_eq!(known, usage);
    assert_eq!(
        snapshot.launched,
        LaunchedByPool::of(snapshot.nodes.values())
    );
    check_policy(snapshot);
}

/// What is used of a policy is the sum over all NodeClaims of its NodePools.
fn check_policy(snapshot: &Snapshot) {
    let used = snapshot.policy_of("pool-0").unwrap();
    let (mut count, mut recent, mut cpus, mut on_demand) = (0, 0, 0, 0);
    let (mut price, mut zones) = (MicroUsd(0), BTreeMap::new());
    for (name, claim) in snapshot.claims.iter() {
        let node = snapshot.node_of_claim(name).unwrap();
        count += 1;
        let created = claim.metadata.creation_timestamp.as_ref().unwrap().0;
        recent += i64::from(since(snapshot.taken_at, created) < 5 * 60_000);
        // Not launched yet: the only price that the NodeClaim allows. A Node may have other labels than its NodeClaim.
        let is_spot = node.label(labels::CAPACITY_TYPE) == Some("spot");
        let of_claim = claim.metadata.labels.as_ref().unwrap();
        let may_be_spot = match node.price {
            Some(_) => is_spot,
            None => of_claim[labels::CAPACITY_TYPE] == "spot",
        };
        price += MicroUsd(if may_be_spot { 40_000 } else { 100_000 });
        if !node.deleting {
            let cpu = node.capacity.cpu;
            cpus += cpu;
            on_demand += if is_spot { 0 } else { cpu };
            *zones.entry(node.zone().unwrap().to_owned()).or_insert(0) += cpu;
        }
    }
    assert_eq!(used.nodes.as_ref().unwrap().used, count);
    assert_eq!(used.rate.as_ref().unwrap().recent, recent);
    assert_eq!(used.price.as_ref().unwrap().used, price);
    let share = used.on_demand.unwrap();
    assert_eq!((share.all, share.on_demand), (cpus, on_demand));
    let in_zones = used.zones.as_ref().unwrap().iter();
    let in_zones: BTreeMap<_, _> = in_zones
        .map(|(zone, cpus)| (zone.to_owned(), cpus))
        .collect();
    assert_eq!(in_zones, zones);
}

fn policy() -> Object {
    let policy = json!({
        "metadata": {"name": "policy", "uid": "policy", "creationTimestamp": "1969-01-01T00:00:00Z"},
        "spec": {
            "nodePools": ["pool-0", "pool-1"],
            "limits": {"nodes": 100, "hourlyPrice": "100"},
            "scaling": {
                "maxNewNodesPerWindow": {"nodes": 100, "window": "5m"},
                "onDemand": {"percentageAboveBase": 20},
                "zoneBalance": {"maxPriceIncrease": "5%"},
            },
        },
    });
    Object::Policy(Box::new(serde_json::from_value(policy).unwrap()))
}

/// One type that costs the same in both zones.
fn catalog() -> Catalog {
    let kinds = [
        (CapacityType::Spot, 40_000),
        (CapacityType::OnDemand, 100_000),
    ];
    let offerings = kinds.iter().flat_map(|(capacity_type, price)| {
        ["zone-0", "zone-1"].map(|zone| Offering {
            zone: zone.into(),
            capacity_type: *capacity_type,
            price: Some(MicroUsd(*price)),
            available: true,
            reservation: None,
            labels: Vec::new(),
        })
    });
    Catalog::build(vec![InstanceType {
        name: "small".into(),
        requirements: Requirements::new(),
        capacity: Resources::zero().with("cpu", 2_000),
        overhead: Resources::zero(),
        offerings: offerings.collect(),
        devices: Arc::default(),
    }])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn sums_are_those_of_all_objects(events in proptest::collection::vec(any_event(), 1..120)) {
        let mut index = Index::new(WellKnown::core(), true, Timestamp::UNIX_EPOCH);
        index.set_synced();
        index.apply(ObjectEvent::Applied(policy(), EventSource::Watch));
        let class = NodeClassKey { group: "g".into(), kind: "Class".into(), name: "default".into() };
        index.set_catalog(&class, Arc::new(catalog()));
        let mut earlier = Vec::new();
        for (at, each) in events.iter().enumerate() {
            apply(each, &mut index);
            if at % 7 == 0 {
                let snapshot = index.freeze(Timestamp::UNIX_EPOCH);
                check(&snapshot);
                earlier.push(snapshot);
            }
        }
        check(&index.freeze(Timestamp::UNIX_EPOCH));
        // An earlier snapshot has not changed.
        earlier.iter().for_each(check);
    }
}

/// Bound pods are counted on Nodes only.
fn node_of(place: &NominationTarget) -> String {
    match place {
        NominationTarget::Node(node) => node.to_string(),
        NominationTarget::Claim(claim) => panic!("a bound pod counts on claim {claim}"),
    }
}
