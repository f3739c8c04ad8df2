//! Laws about the price of plans, on clusters so small that every possible plan can be tried.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use mortise_apis::NodePool;
use mortise_apis::labels::{self, WellKnown};
use mortise_apis::requirements::{Operator, Requirement};
use mortise_apis::resources::Resources;
use mortise_apis::values::money::MicroUsd;
use mortise_cloudprovider::{CapacityType, InstanceType, Offering};
use mortise_planning::scheduling::{LaunchPlan, REPACK, SolveOptions, solve};
use mortise_state::catalog::Catalog;
use mortise_state::index::Index;
use mortise_state::resource_kinds::{EventSource, Object, ObjectEvent};
use mortise_state::snapshot::Snapshot;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

const ZONES: [&str; 3] = ["z1", "z2", "z3"];
const MIB: i64 = 1 << 20;

/// CPU in milli, memory in MiB, price in micro-dollars.
type Type = (i64, i64, i64);

/// Pods of a deployment.
#[derive(Clone, Copy, Debug)]
enum Rule {
    /// No constraint.
    None,
    /// One to a host.
    Apart,
    /// This number to a host.
    Host(i32),
    /// Spread over zones.
    Zone(i32),
}

#[derive(Clone, Debug)]
struct Deployment {
    cpu: i64,
    memory: i64,
    replicas: usize,
    rule: Rule,
}

#[derive(Clone, Debug)]
struct Tiny {
    types: Vec<Type>,
    deployments: Vec<Deployment>,
}

fn pod(app: usize, at: usize, of: &Deployment) -> Value {
    let selector = json!({"matchLabels": {"app": format!("a{app}")}});
    let spread = |key: &str, skew: i32| json!([{"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}]);
    let mut spec = json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": format!("{}m", of.cpu), "memory": format!("{}Mi", of.memory)}}}]});
    match of.rule {
        Rule::None => {}
        Rule::Apart => {
            spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
                json!([{"labelSelector": selector, "topologyKey": labels::HOSTNAME}]);
        }
        Rule::Host(skew) => spec["topologySpreadConstraints"] = spread(labels::HOSTNAME, skew),
        Rule::Zone(skew) => spec["topologySpreadConstraints"] = spread(labels::TOPOLOGY_ZONE, skew),
    }
    json!({
        "metadata": {"name": format!("p{app}-{at}"), "namespace": "default", "uid": format!("uid-{app}-{at}"), "labels": {"app": format!("a{app}")}},
        "spec": spec,
        "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]},
    })
}

impl Tiny {
    fn snapshot(&self) -> Snapshot {
        let mut index = Index::new(WellKnown::core(), false, Timestamp::UNIX_EPOCH);
        let list = |key: &str, values: &[&str]| {
            Requirement::new(key, Operator::In, values.iter().copied())
        };
        let instance_type = |(at, (cpu, memory, price)): (usize, &Type)| {
            let name = format!("t{at}");
            InstanceType {
                name: name.as_str().into(),
                requirements: [
                    list(labels::INSTANCE_TYPE, &[&name]),
                    list(labels::TOPOLOGY_ZONE, &ZONES),
                    list(labels::CAPACITY_TYPE, &["on-demand"]),
                ]
                .into_iter()
                .collect(),
                capacity: Resources::new(*cpu, *memory * MIB).with("pods", 100),
                overhead: Resources::zero(),
                offerings: ZONES
                    .map(|zone| Offering {
                        zone: zone.into(),
                        capacity_type: CapacityType::OnDemand,
                        price: Some(MicroUsd(*price)),
                        available: true,
                        reservation: None,
                        labels: Vec::new(),
                    })
                    .to_vec(),
                devices: std::sync::Arc::default(),
            }
        };
        let pool: NodePool = serde_json::from_value(json!({
            "metadata": {"name": "pool", "uid": "pool"},
            "spec": {"template": {"spec": {"nodeClassRef": {"group": "g", "kind": "Class", "name": "default"}, "requirements": []}}},
            "status": {"conditions": [{"type": "Ready", "status": "True", "reason": "Ready", "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
        }))
        .unwrap();
        let types = self.types.iter().enumerate().map(instance_type).collect();
        index.set_catalog(&pool.node_class_key(), Arc::new(Catalog::build(types)));
        index.apply(ObjectEvent::Applied(
            Object::Pool(Box::new(pool)),
            EventSource::Watch,
        ));
        for (app, of) in self.deployments.iter().enumerate() {
            for at in 0..of.replicas {
                let pod = serde_json::from_value(pod(app, at, of)).unwrap();
                index.apply(ObjectEvent::Applied(
                    Object::Pod(Box::new(pod)),
                    EventSource::Watch,
                ));
            }
        }
        index.set_synced();
        index.freeze(Timestamp::UNIX_EPOCH)
    }

    fn plan(&self, repack: u32) -> LaunchPlan {
        let options = SolveOptions {
            pending: true,
            repack,
            ..SolveOptions::default()
        };
        let (plan, report) = solve(Timestamp::UNIX_EPOCH, &self.snapshot(), &options, &|| false);
        assert!(report.unplaced.is_empty(), "{:?}", report.unplaced);
        plan
    }

    /// Deployments of all pods, one entry per pod.
    fn pods(&self) -> Vec<usize> {
        let all = self.deployments.iter().enumerate();
        all.flat_map(|(at, of)| std::iter::repeat_n(at, of.replicas))
            .collect()
    }

    /// The least that nodes for these groups of pods cost; `None` when a group fits no type or breaks a rule.
    fn cost(&self, groups: &[Vec<usize>]) -> Option<i64> {
        let mut sum = 0;
        for group in groups {
            let total = |amount: fn(&Deployment) -> i64| -> i64 {
                group.iter().map(|at| amount(&self.deployments[*at])).sum()
            };
            let (cpu, memory) = (total(|of| of.cpu), total(|of| of.memory));
            for at in group {
                let same = group.iter().filter(|other| *other == at).count();
                let most = match self.deployments[*at].rule {
                    Rule::Apart => 1,
                    Rule::Host(skew) => usize::try_from(skew).unwrap(),
                    Rule::None | Rule::Zone(_) => usize::MAX,
                };
                if same > most {
                    return None;
                }
            }
            let fits = self
                .types
                .iter()
                .filter(|(c, m, _)| cpu <= *c && memory <= *m);
            sum += fits.map(|(.., price)| *price).min()?;
        }
        Some(sum)
    }

    /// The cheapest of all divisions of the pods among at most this number of nodes.
    fn cheapest(&self, nodes: usize) -> i64 {
        fn go(
            tiny: &Tiny,
            nodes: usize,
            pods: &[usize],
            groups: &mut Vec<Vec<usize>>,
            best: &mut i64,
        ) {
            let Some((first, rest)) = pods.split_first() else {
                *best = tiny.cost(groups).map_or(*best, |cost| cost.min(*best));
                return;
            };
            for at in 0..groups.len() {
                groups[at].push(*first);
                go(tiny, nodes, rest, groups, best);
                groups[at].pop();
            }
            if groups.len() < nodes {
                groups.push(vec![*first]);
                go(tiny, nodes, rest, groups, best);
                groups.pop();
            }
        }
        let mut best = i64::MAX;
        go(self, nodes, &self.pods(), &mut Vec::new(), &mut best);
        best
    }
}

fn groups(plan: &LaunchPlan) -> Vec<Vec<usize>> {
    let app = |name: &str| -> usize {
        let number = name.trim_start_matches('p').split('-').next().unwrap();
        number.parse().unwrap()
    };
    let pods = |claim: &mortise_planning::scheduling::PlannedClaim| {
        claim.pods.iter().map(|pod| app(&pod.key.name)).collect()
    };
    plan.claims.iter().map(pods).collect()
}

fn types() -> impl Strategy<Value = Vec<Type>> {
    // The largest type holds the largest pod, so that every pod has a place.
    let ordinary = (1_i64..9, 1_i64..5, 80_i64..130).prop_map(|(cpu, ratio, price)| {
        (
            cpu * 1000,
            cpu * ratio * 1024,
            cpu * (60 + 20 * ratio) * price,
        )
    });
    (prop::collection::vec(ordinary, 1..5), 100_i64..140).prop_map(|(mut types, price)| {
        types.push((16_000, 64 << 10, 16 * 140 * price));
        types
    })
}

fn deployments(
    most: usize,
    replicas: usize,
    zones: bool,
) -> impl Strategy<Value = Vec<Deployment>> {
    let rule = (0..if zones { 6 } else { 4 }).prop_map(|rule| match rule {
        0 | 1 => Rule::None,
        2 => Rule::Apart,
        3 => Rule::Host(2),
        skew => Rule::Zone(skew - 3),
    });
    let one =
        (1_i64..14, 1_i64..14, 1..=replicas, rule).prop_map(|(cpu, memory, replicas, rule)| {
            Deployment {
                cpu: cpu * 250,
                memory: memory * 512,
                replicas,
                rule,
            }
        });
    prop::collection::vec(one, 1..=most)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// Repacking places the same pods at no higher price, on more nodes only at a lower one; zones stay evenly used, hosts too.
    #[test]
    fn repacking_is_never_worse(types in types(), deployments in deployments(6, 40, true)) {
        let tiny = Tiny { types, deployments };
        let (filled, packed) = (tiny.plan(0), tiny.plan(REPACK));
        let (before, after) = (filled.price().unwrap(), packed.price().unwrap());
        prop_assert!(after < before || (after == before && packed.claims.len() <= filled.claims.len()));
        prop_assert_eq!(
            filled.claims.iter().map(|claim| claim.pods.len()).sum::<usize>(),
            packed.claims.iter().map(|claim| claim.pods.len()).sum::<usize>()
        );
        prop_assert!(tiny.cost(&groups(&packed)).is_some(), "a host has too many, or too much");
        for (app, of) in tiny.deployments.iter().enumerate() {
            let Rule::Zone(skew) = of.rule else { continue };
            let mut counts: BTreeMap<&str, i32> = ZONES.iter().map(|zone| (*zone, 0)).collect();
            for claim in &packed.claims {
                let zone = claim.requirements.get(labels::TOPOLOGY_ZONE).filter(|own| own.values().len() == 1);
                let here = claim.pods.iter().filter(|pod| pod.key.name.starts_with(&format!("p{app}-"))).count();
                if here > 0 {
                    let zone = zone.and_then(|own| ZONES.iter().find(|zone| own.has(zone)));
                    *counts.get_mut(*zone.unwrap()).unwrap() += i32::try_from(here).unwrap();
                }
            }
            let (least, most) = (counts.values().min().unwrap(), counts.values().max().unwrap());
            prop_assert!(most - least <= skew, "{:?}", counts);
        }
    }

    /// A type that no node could be, once its pods are on it, is as if it were not there.
    #[test]
    fn a_type_that_is_not_used_changes_nothing(types in types(), deployments in deployments(5, 12, true)) {
        let tiny = Tiny { types, deployments };
        let plan = tiny.plan(0);
        let unused = (0..tiny.types.len()).find(|at| {
            let name = format!("t{at}");
            plan.claims.iter().all(|claim| claim.instance_types.iter().all(|own| **own != *name))
        });
        if let Some(at) = unused {
            // Out of reach instead of gone: names of types are their places in the list.
            let mut without = tiny.clone();
            without.types[at] = (1, 1, i64::from(i32::MAX));
            let other = without.plan(0);
            prop_assert_eq!(groups(&plan), groups(&other));
            prop_assert_eq!(plan.price(), other.price());
        }
    }
}

/// On 300 clusters, always the same ones: filling as Karpenter does costs at most so much more than the best division into as
/// many nodes, repacked less; and no plan is cheaper than the cheapest of as many nodes, which would mean that it breaks a
/// rule.
#[test]
fn price_is_within_a_bound_of_the_best() {
    let mut runner = TestRunner::deterministic();
    let (mut sums, mut worst) = ([0_i64; 3], [0_i64; 2]);
    let mut cases = 0;
    while cases < 300 {
        let drawn = (types(), deployments(3, 3, false)).new_tree(&mut runner);
        let (types, deployments) = drawn.unwrap().current();
        let tiny = Tiny { types, deployments };
        if tiny.pods().len() > 7 {
            continue;
        }
        cases += 1;
        let filled = tiny.plan(0);
        let nodes = filled.claims.len();
        let best = tiny.cheapest(nodes);
        sums[2] += best;
        for (at, plan) in [filled, tiny.plan(REPACK)].iter().enumerate() {
            let price = plan.price().unwrap().0;
            assert_eq!(
                tiny.cost(&groups(plan)),
                Some(price),
                "the price is that of its nodes"
            );
            let least = if plan.claims.len() > nodes {
                tiny.cheapest(plan.claims.len())
            } else {
                best
            };
            assert!(price >= least, "{price} is less than possible: {least}");
            sums[at] += price;
            worst[at] = worst[at].max(price * 100 / best);
        }
    }
    let percent = |sum: i64| sum * 100 / sums[2];
    println!(
        "of the best, in percent: filled {} (worst {}), repacked {} (worst {})",
        percent(sums[0]),
        worst[0],
        percent(sums[1]),
        worst[1]
    );
    assert!(percent(sums[0]) <= 115 && worst[0] <= 400, "filled");
    assert!(percent(sums[1]) <= 105 && worst[1] <= 400, "repacked");
}
