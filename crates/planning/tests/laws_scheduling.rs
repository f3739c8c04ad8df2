//! Laws of the solver, on clusters drawn at random.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::random_world::{World, raw_pods};
use jiff::Timestamp;
use mortise_apis::labels::{self, WellKnown};
use mortise_apis::node_pool_policy::NodePoolPolicy;
use mortise_apis::resources::Resources;
use mortise_apis::taints;
use mortise_planning::reason::Reason;
use mortise_planning::scheduling::{
    DaemonSetPods, FreeCapacity, LaunchPlan, PlannedClaim, REPACK, SolveOptions, SolveReport, fits,
    solve,
};
use mortise_state::pods::HostPort;
use mortise_state::snapshot::{Pod, PoolUsage, Snapshot};
use proptest::prelude::*;

fn answer(snapshot: &Snapshot) -> (LaunchPlan, SolveReport) {
    answer_repacked(snapshot, 0)
}

fn answer_repacked(snapshot: &Snapshot, repack: u32) -> (LaunchPlan, SolveReport) {
    let options = SolveOptions {
        pending: true,
        repack,
        ..SolveOptions::default()
    };
    solve(Timestamp::UNIX_EPOCH, snapshot, &options, &|| false)
}

/// A plan and report as text, for comparison.
fn told((plan, report): &(LaunchPlan, SolveReport)) -> String {
    let claim = |claim: &mortise_planning::scheduling::PlannedClaim| {
        let pods: Vec<_> = claim.pods.iter().map(|pod| pod.key.to_string()).collect();
        let offer = claim
            .cheapest
            .as_ref()
            .map(|offer| (&offer.instance_type, &offer.zone, offer.price));
        format!(
            "{} {:?} [{}] {} {:?} {offer:?}",
            claim.pool, pods, claim.requirements, claim.requests, claim.instance_types
        )
    };
    let claims: Vec<String> = plan.claims.iter().map(claim).collect();
    let placed: Vec<String> = plan
        .placements
        .iter()
        .map(|each| format!("{} -> {}", each.pod.key, each.node))
        .collect();
    format!(
        "{claims:#?}\n{placed:#?}\n{:#?}\n{:?} {}",
        report.unplaced, report.ignored, report.considered
    )
}

/// Every pod is somewhere, and only once.
fn accounts_for_all(plan: &LaunchPlan, report: &SolveReport) -> Result<(), TestCaseError> {
    let mut seen = BTreeSet::new();
    let on_claims = plan.claims.iter().flat_map(|claim| &claim.pods);
    let placed = on_claims
        .chain(plan.placements.iter().map(|each| &each.pod))
        .map(|pod| pod.key.clone());
    let unplaced = report
        .unplaced
        .iter()
        .flat_map(|each| &each.pods)
        .map(|(key, _)| key.clone());
    for key in placed
        .chain(unplaced)
        .chain(report.entrusted.iter().cloned())
        .chain(report.ignored.iter().map(|(key, _)| key.clone()))
    {
        prop_assert!(seen.insert(key.clone()), "{key} twice");
    }
    prop_assert_eq!(seen.len(), report.considered);
    prop_assert!(
        report
            .unplaced
            .iter()
            .all(|each| !each.message.is_empty() && !each.reasons.is_empty())
    );
    Ok(())
}

/// Nodes that are there or coming take what they have room for and nothing else.
fn keeps_within_nodes(snapshot: &Snapshot, plan: &LaunchPlan) -> Result<(), TestCaseError> {
    let daemons = DaemonSetPods::from_snapshot(snapshot);
    let mut by_node: BTreeMap<&str, Vec<&Pod>> = BTreeMap::new();
    for each in &plan.placements {
        by_node.entry(&each.node).or_default().push(&each.pod);
    }
    let considered: BTreeSet<_> = plan
        .placements
        .iter()
        .map(|each| each.pod.uid.clone())
        .collect();
    for (key, pods) in by_node {
        let node = snapshot.nodes.get(key).unwrap();
        prop_assert!(!node.deleting, "{key} is going");
        if node.node.is_none() && node.provider_id().is_none() {
            // Not launched: its types were chosen for its own pods, further ones are checked against the smallest.
            continue;
        }
        let mut room = FreeCapacity::new(snapshot, &daemons, node, i32::MIN, &|uid| {
            considered.contains(uid)
        });
        for pod in pods {
            prop_assert!(
                fits(pod, node, &room).is_ok(),
                "{} on {key}: {:?}",
                pod.key,
                fits(pod, node, &room)
            );
            room.free.sub_assign(&pod.class.requests);
            room.ports.extend(pod.class.host_ports.iter().cloned());
        }
    }
    Ok(())
}

/// Every type that a new node may become suits all its pods.
fn suits_its_pods(snapshot: &Snapshot, plan: &LaunchPlan) -> Result<(), TestCaseError> {
    for claim in &plan.claims {
        prop_assert!(!claim.pods.is_empty() && !claim.instance_types.is_empty());
        let pool = &snapshot.pools[&claim.pool];
        let catalog = snapshot.catalog_of(pool).unwrap();
        let mut total = Resources::zero();
        let mut ports: Vec<HostPort> = Vec::new();
        for pod in &claim.pods {
            total.add_assign(&pod.class.requests);
            prop_assert!(
                HostPort::conflict(&pod.class.host_ports, &ports).is_none(),
                "{} shares a port",
                pod.key
            );
            ports.extend(pod.class.host_ports.iter().cloned());
            let hard = pool
                .spec
                .template
                .spec
                .taints()
                .iter()
                .filter(|taint| taint.effect != taints::PREFER_NO_SCHEDULE);
            prop_assert!(
                taints::untolerated(hard, &pod.class.tolerations)
                    .next()
                    .is_none(),
                "{} on tainted {}",
                pod.key,
                claim.pool
            );
            // Whatever label the node gets, one alternative of the pod must hold: the claim asks for no less.
            let asked = pod.class.strict.iter().any(|asked| {
                asked
                    .iter()
                    .all(|asked| match claim.requirements.get(asked.key()) {
                        Some(own) if own.is_complement() => own.intersection(asked) == *own,
                        Some(own) => own.values().iter().all(|value| asked.has(value)),
                        None => asked.allows_absence(),
                    })
            });
            prop_assert!(
                asked,
                "{} is not asked for by {}",
                pod.key,
                claim.requirements
            );
        }
        prop_assert!(total.fits_in(&claim.requests));
        for name in &claim.instance_types {
            let of = catalog.get(name).unwrap();
            prop_assert!(
                claim.requests.fits_in(&of.allocatable()),
                "{name} is too small for {}",
                claim.requests
            );
            prop_assert!(of.capacity.fits_in(&claim.most));
            let known = WellKnown::core();
            prop_assert!(
                catalog
                    .offers(&claim.requirements, &known)
                    .iter()
                    .any(|offer| offer.instance_type.name == *name),
                "{name} has no offering"
            );
        }
        let cheapest = claim.cheapest.as_ref().unwrap();
        prop_assert_eq!(&cheapest.instance_type, &claim.instance_types[0]);
    }
    Ok(())
}

/// No limit is exceeded, whatever type the new nodes turn out to be.
fn keeps_limits(snapshot: &Snapshot, plan: &LaunchPlan) -> Result<(), TestCaseError> {
    let mut usage = PoolUsage::all(snapshot);
    for claim in &plan.claims {
        let limits = snapshot.pools[&claim.pool].limits();
        let usage = usage.entry(claim.pool.clone()).or_default();
        let admitted = usage.admits(&limits, &claim.most);
        prop_assert!(admitted.is_ok(), "{}: {admitted:?}", claim.pool);
        usage.count(&claim.most);
    }
    Ok(())
}

/// One policy for all NodePools of a snapshot.
fn with_policy(snapshot: &mut Snapshot, millis: u32, nodes: u32) {
    // Few nodes where many new ones are allowed, so that either limit is the lower one of some plan.
    let most = snapshot.claims.len() + 8_usize.saturating_sub(nodes as usize);
    let pools: Vec<&str> = snapshot.pools.keys().map(|pool| pool.as_str()).collect();
    let policy: NodePoolPolicy = serde_json::from_value(serde_json::json!({
        "metadata": { "name": "all" },
        "spec": {
            "nodePools": pools,
            "limits": { "hourlyPrice": format!("{}.{:03}", millis / 1000, millis % 1000), "nodes": most },
            "scaling": { "maxNewNodesPerWindow": { "nodes": nodes, "window": "10m" } },
        },
    }))
    .unwrap();
    let policies = [(policy.name(), Arc::new(policy))].into_iter().collect();
    snapshot.policies = Arc::new(policies);
}

/// The most that the node of a plan can cost: of any of its types, in any zone and capacity type that it allows.
fn highest_prices(snapshot: &Snapshot, claim: &PlannedClaim) -> i64 {
    let catalog = snapshot.catalog_of(&snapshot.pools[&claim.pool]).unwrap();
    let allows = |key: &str, value: &str| {
        let own = claim.requirements.get(key);
        own.is_none_or(|own| own.has(value))
    };
    let types = claim.instance_types.iter();
    let offerings = types.flat_map(|name| &catalog.get(name).unwrap().offerings);
    let allowed = offerings.filter(|offering| {
        allows(labels::TOPOLOGY_ZONE, &offering.zone)
            && allows(labels::CAPACITY_TYPE, offering.capacity_type.as_str())
    });
    let prices = allowed.map(|offering| offering.price.map_or(i64::MAX, |price| price.0));
    prices.max().unwrap()
}

/// Whatever the new nodes turn out to be, the limits of the policy hold. Returns whether it kept pods from a node.
fn keeps_policy(
    snapshot: &Snapshot,
    plan: &LaunchPlan,
    report: &SolveReport,
) -> Result<bool, TestCaseError> {
    let Some(policy) = snapshot
        .pools
        .keys()
        .find_map(|pool| snapshot.policy_of(pool))
    else {
        return Ok(false);
    };
    let (price, rate, nodes) = (
        policy.price.as_ref().unwrap(),
        policy.rate.as_ref().unwrap(),
        policy.nodes.as_ref().unwrap(),
    );
    let mut used = price.used.0;
    let new = plan.claims.len() as i64;
    for claim in &plan.claims {
        used = used.saturating_add(highest_prices(snapshot, claim));
    }
    prop_assert!(
        new == 0 || used <= price.limit().most().0,
        "{used} of {price:?}"
    );
    prop_assert!(
        new == 0 || rate.recent + new <= rate.limit.nodes,
        "{new}: {rate:?}"
    );
    prop_assert!(
        new == 0 || nodes.used + new <= nodes.limit,
        "{new}: {nodes:?}"
    );
    let mut reasons = report.unplaced.iter().flat_map(|each| &each.reasons);
    Ok(reasons.any(|reason| {
        let Reason::PoolRefused { detail, .. } = reason else {
            return false;
        };
        detail.contains("NodePoolPolicy all")
    }))
}

/// Pods that must not share a host do not, wherever they are.
fn keeps_apart(world: &World, plan: &LaunchPlan) -> Result<(), TestCaseError> {
    let raw: BTreeMap<String, _> = raw_pods(world)
        .into_iter()
        .map(|pod| (pod.metadata.name.clone().unwrap_or_default(), pod))
        .collect();
    let mut hosts: Vec<Vec<String>> = plan
        .claims
        .iter()
        .map(|claim| {
            claim
                .pods
                .iter()
                .map(|pod| pod.key.name.to_string())
                .collect()
        })
        .collect();
    let mut by_node: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for each in &plan.placements {
        by_node
            .entry(each.node.to_string())
            .or_default()
            .push(each.pod.key.name.to_string());
    }
    let placed: BTreeSet<&str> = plan
        .placements
        .iter()
        .map(|each| &*each.pod.key.name)
        .chain(
            plan.claims
                .iter()
                .flat_map(|c| c.pods.iter().map(|p| &*p.key.name)),
        )
        .collect();
    for pod in raw.values() {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        // A pod of a node that goes is where the plan puts it.
        if let Some(node) = pod
            .spec
            .node_name
            .as_ref()
            .filter(|_| !placed.contains(name))
        {
            by_node
                .entry(format!("cloud:///{node}"))
                .or_default()
                .push(pod.metadata.name.clone().unwrap_or_default());
        }
    }
    hosts.extend(by_node.into_values());
    for pods in hosts {
        for own in &pods {
            let terms = raw[own]
                .spec
                .affinity
                .as_ref()
                .and_then(|a| a.pod_anti_affinity.as_ref());
            let terms = terms
                .and_then(|t| {
                    t.required_during_scheduling_ignored_during_execution
                        .as_deref()
                })
                .unwrap_or_default();
            for term in terms
                .iter()
                .filter(|term| term.topology_key == labels::HOSTNAME)
            {
                let app = &term
                    .label_selector
                    .as_ref()
                    .unwrap()
                    .match_labels
                    .as_ref()
                    .unwrap()["app"];
                let met = pods.iter().find(|other| {
                    *other != own && raw[*other].metadata.labels.as_ref().unwrap()["app"] == *app
                });
                // Two pods that were bound before may be as they are. Nominated ones are placed as any other.
                let fresh = |name: &str| placed.contains(name);
                prop_assert!(
                    met.is_none_or(|other| !fresh(own) && !fresh(other)),
                    "{own} with {met:?}"
                );
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn plans_keep_the_rules(seed in any::<u64>()) {
        let world = World::draw(seed);
        let snapshot = world.snapshot();
        for repack in [0, REPACK] {
            let (plan, report) = answer_repacked(&snapshot, repack);
            accounts_for_all(&plan, &report)?;
            keeps_within_nodes(&snapshot, &plan)?;
            suits_its_pods(&snapshot, &plan)?;
            keeps_limits(&snapshot, &plan)?;
            keeps_apart(&world, &plan)?;
        }
    }

    #[test]
    fn plans_keep_policies(seed in any::<u64>(), millis in 0..4_000_u32, nodes in 1..8_u32) {
        let mut snapshot = World::draw(seed).snapshot();
        with_policy(&mut snapshot, millis, nodes);
        for repack in [0, REPACK] {
            let (plan, report) = answer_repacked(&snapshot, repack);
            accounts_for_all(&plan, &report)?;
            suits_its_pods(&snapshot, &plan)?;
            keeps_limits(&snapshot, &plan)?;
            keeps_policy(&snapshot, &plan, &report)?;
        }
    }

    #[test]
    fn order_of_news_changes_nothing(seed in any::<u64>(), shuffle in any::<u64>()) {
        let mut world = World::draw(seed);
        let all = |world: &World| {
            let snapshot = world.snapshot();
            [0, REPACK].map(|repack| told(&answer_repacked(&snapshot, repack)))
        };
        let first = all(&world);
        prop_assert_eq!(&first, &all(&world), "the same twice");
        world.shuffle(shuffle);
        prop_assert_eq!(first, all(&world), "in another order");
    }
}

/// The law of policies is about something: some plans are cut by the price, some by the number, and some are not.
#[test]
fn policies_refuse_some_pods_and_not_all() {
    let (mut refused, mut launched) = (0, 0);
    for seed in 0..200 {
        let mut snapshot = World::draw(seed).snapshot();
        with_policy(&mut snapshot, 900, 3);
        let (plan, report) = answer(&snapshot);
        launched += plan.claims.len();
        refused += usize::from(keeps_policy(&snapshot, &plan, &report).unwrap());
    }
    assert!(
        refused > 20 && launched > 20,
        "{refused} refused, {launched} launched"
    );
}

/// A pod with nominated capacity keeps it, and others do not get it.
#[test]
fn nominations_are_kept() {
    let mut kept = 0;
    for seed in 0..300 {
        let world = World::draw(seed);
        let snapshot = world.snapshot();
        let (plan, _) = answer(&snapshot);
        for nomination in snapshot.ledger.nominations() {
            let placed = plan
                .placements
                .iter()
                .find(|each| each.pod.uid == nomination.uid);
            kept += usize::from(placed.is_some_and(|each| each.place == nomination.place));
        }
    }
    assert!(kept > 50, "{kept}");
}
