//! Checks a plan against the recorded pods and types, without any code of the solver.
//!
//! Rules: every pod is on one node at most; the cheapest type named has capacity for all pods and an offering that may be
//! launched; node selectors hold; pods that must not share a host do not; no host has more of a kind than spread
//! constraints of its pods allow; and there is an order in which the scheduler can bind all pods where the plan has them,
//! zone affinity and spread by zone counted as it counts them.

use std::collections::{BTreeMap, BTreeSet};

use mortise_planning::scheduling::{LaunchPlan, PlannedClaim};
use serde_json::Value;

use crate::inputs::{RawPod, RawType};

const ZONE: &str = "topology.kubernetes.io/zone";
const HOST: &str = "kubernetes.io/hostname";

/// A constraint of a pod on where pods that a selector matches are.
struct Term<'a> {
    key: &'a str,
    selector: &'a Value,
    max_skew: i64,
}

/// Whether a selector, of which only `matchLabels` is known here, matches; `None` for any other kind.
fn matches(selector: &Value, pod: &RawPod) -> Option<bool> {
    let object = selector.as_object()?;
    if object.keys().any(|key| key != "matchLabels") {
        return None;
    }
    let labels = object.get("matchLabels")?.as_object()?;
    Some(
        labels
            .iter()
            .all(|(key, value)| pod.labels.get(key).map(String::as_str) == value.as_str()),
    )
}

fn required<'a>(pod: &'a RawPod, kind: &str) -> Vec<Term<'a>> {
    let terms = &pod.affinity[kind]["requiredDuringSchedulingIgnoredDuringExecution"];
    let all = terms.as_array().into_iter().flatten();
    all.map(|term| Term {
        key: term["topologyKey"].as_str().unwrap_or_default(),
        selector: &term["labelSelector"],
        max_skew: 0,
    })
    .collect()
}

fn spreads(pod: &RawPod) -> Vec<Term<'_>> {
    let hard = pod
        .topology_spread_constraints
        .iter()
        .filter(|each| each["whenUnsatisfiable"] == "DoNotSchedule");
    hard.map(|each| Term {
        key: each["topologyKey"].as_str().unwrap_or_default(),
        selector: &each["labelSelector"],
        max_skew: each["maxSkew"].as_i64().unwrap_or(1),
    })
    .collect()
}

/// Everything that is wrong with a plan, in words.
pub(crate) fn violations(pods: &[RawPod], types: &[RawType], plan: &LaunchPlan) -> Vec<String> {
    let mut found = Vec::new();
    let mut claim_of: BTreeMap<&str, usize> = BTreeMap::new();
    for (at, claim) in plan.claims.iter().enumerate() {
        for pod in &claim.pods {
            if claim_of.insert(pod.uid.as_str(), at).is_some() {
                found.push(format!("pod {} is on two NodeClaims", pod.key));
            }
        }
    }
    let mut on_claim: BTreeMap<usize, Vec<&RawPod>> = BTreeMap::new();
    for pod in pods {
        if let Some(claim) = claim_of.get(pod.uid.as_str()) {
            on_claim.entry(*claim).or_default().push(pod);
        }
    }
    let types: BTreeMap<&str, &RawType> = types
        .iter()
        .map(|each| (each.name.as_str(), each))
        .collect();
    for (at, pods) in &on_claim {
        capacity(*at, &plan.claims[*at], pods, &types, &mut found);
        hosts(*at, pods, &mut found);
    }
    zones(pods, &claim_of, plan, &mut found);
    found
}

fn capacity(
    at: usize,
    claim: &PlannedClaim,
    pods: &[&RawPod],
    types: &BTreeMap<&str, &RawType>,
    found: &mut Vec<String>,
) {
    let cpu: i64 = pods.iter().map(|pod| pod.requests.cpu_m).sum();
    let memory: i64 = pods.iter().map(|pod| pod.requests.memory_bytes).sum();
    let count = i64::try_from(pods.len()).unwrap_or(i64::MAX);
    let zones = zones_of(claim);
    if claim.instance_types.is_empty() {
        found.push(format!("NodeClaim {at} names no type"));
    }
    for name in &claim.instance_types {
        let Some(of) = types.get(&**name) else {
            found.push(format!("NodeClaim {at} names {name}, which does not exist"));
            continue;
        };
        let room = of.allocatable;
        if cpu > room.cpu_m || memory > room.memory_bytes || count > room.pods {
            found.push(format!(
                "NodeClaim {at}: {cpu}m, {memory} bytes, {count} pods do not fit on {name}"
            ));
        }
        let may = |zone: &str| zones.is_empty() || zones.contains(zone);
        if !of
            .offerings
            .iter()
            .any(|offering| offering.available && may(&offering.zone))
        {
            found.push(format!(
                "NodeClaim {at}: {name} has no offering in {zones:?}"
            ));
        }
    }
    for pod in pods {
        for (key, value) in &pod.node_selector {
            let own = claim.requirements.get(key);
            if own.is_none_or(|own| own.values().len() != 1 || !own.has(value)) {
                found.push(format!(
                    "NodeClaim {at}: {} selects {key}={value}",
                    pod.name
                ));
            }
        }
    }
}

fn zones_of(claim: &PlannedClaim) -> BTreeSet<&str> {
    let own = claim
        .requirements
        .get(ZONE)
        .filter(|own| !own.is_complement());
    own.into_iter()
        .flat_map(|own| own.values())
        .map(|value| &**value)
        .collect()
}

/// Anti-affinity and spread by host name, which concern one node only.
fn hosts(at: usize, pods: &[&RawPod], found: &mut Vec<String>) {
    for (number, pod) in pods.iter().enumerate() {
        for term in required(pod, "podAntiAffinity")
            .iter()
            .filter(|term| term.key == HOST)
        {
            let others = pods
                .iter()
                .enumerate()
                .filter(|(other, _)| *other != number);
            for (_, other) in others {
                match matches(term.selector, other) {
                    Some(false) => {}
                    Some(true) => found.push(format!(
                        "NodeClaim {at}: {} must not be with {}",
                        pod.name, other.name
                    )),
                    None => found.push(format!(
                        "NodeClaim {at}: selector of {} cannot be checked",
                        pod.name
                    )),
                }
            }
        }
    }
    // In the order of placement a host never has more than `max_skew` matching pods when the constraint's owner comes.
    let mut ordered = pods.to_vec();
    ordered.sort_by(|a, b| order(a).cmp(&order(b)));
    for (number, pod) in ordered.iter().enumerate() {
        for term in spreads(pod).iter().filter(|term| term.key == HOST) {
            let before = ordered
                .iter()
                .take(number + 1)
                .filter(|other| matches(term.selector, other) == Some(true))
                .count();
            if i64::try_from(before).unwrap_or(i64::MAX) > term.max_skew {
                found.push(format!(
                    "NodeClaim {at}: {} is the {before}th of its kind",
                    pod.name
                ));
            }
        }
    }
}

/// CPU, memory, both descending; then UID.
fn order(pod: &RawPod) -> (i64, i64, &str) {
    (-pod.requests.cpu_m, -pod.requests.memory_bytes, &pod.uid)
}

/// Whether a pod needs to know the zone of its node.
fn needs_zone(pod: &RawPod) -> bool {
    let zone = |terms: Vec<Term<'_>>| terms.iter().any(|term| term.key == ZONE);
    zone(spreads(pod))
        || zone(required(pod, "podAffinity"))
        || zone(required(pod, "podAntiAffinity"))
}

/// Pods that are the same to the constraints by zone: where they are, what they own and what counts them.
#[derive(Debug, Default)]
struct Alike<'a> {
    zone: &'a str,
    /// Selector, skew, and whether it counts the pods themselves.
    spreads: Vec<(usize, i64, bool)>,
    /// Selector, and whether it counts the pods themselves.
    near: Vec<(usize, bool)>,
    counted_in: Vec<usize>,
    pods: Vec<&'a RawPod>,
}

impl Alike<'_> {
    const fn is_free(&self) -> bool {
        self.spreads.is_empty() && self.near.is_empty()
    }
}

/// Matching pods that are bound, by selector and zone.
struct Bound<'a> {
    counts: Vec<BTreeMap<&'a str, i64>>,
}

impl<'a> Bound<'a> {
    fn of(&self, selector: usize, zone: &str) -> i64 {
        self.counts[selector].get(zone).copied().unwrap_or(0)
    }

    fn least(&self, selector: usize) -> i64 {
        self.counts[selector].values().copied().min().unwrap_or(0)
    }

    /// What kube-scheduler would ask before it binds one more of these.
    fn admits(&self, of: &Alike<'_>) -> bool {
        let spread = |(selector, skew, own): &(usize, i64, bool)| {
            self.of(*selector, of.zone) + i64::from(*own) - self.least(*selector) <= *skew
        };
        let near = |(selector, own): &(usize, bool)| {
            let anywhere: i64 = self.counts[*selector].values().sum();
            self.of(*selector, of.zone) > 0 || (anywhere == 0 && *own)
        };
        of.spreads.iter().all(spread) && of.near.iter().all(near)
    }

    fn bind(&mut self, of: &mut Alike<'a>) {
        if of.pods.pop().is_some() {
            for selector in &of.counted_in {
                *self.counts[*selector].entry(of.zone).or_default() += 1;
            }
        }
    }

    /// Binds every pod that an order lets in: pods with constraints in turns, a `free` one when it is needed to even out.
    fn bind_in_turns(&mut self, bound_by: &mut [Alike<'a>], free: &mut [Alike<'a>]) {
        loop {
            let mut progress = false;
            for group in bound_by.iter_mut().filter(|group| !group.pods.is_empty()) {
                if self.admits(group) {
                    self.bind(group);
                    progress = true;
                }
            }
            if progress {
                continue;
            }
            let waiting: BTreeSet<usize> = bound_by
                .iter()
                .filter(|group| !group.pods.is_empty())
                .flat_map(|group| group.spreads.iter().map(|(selector, ..)| *selector))
                .collect();
            let evens_out = |group: &&mut Alike<'_>| {
                let least =
                    |selector: &&usize| self.of(**selector, group.zone) == self.least(**selector);
                let mut wanted = group.counted_in.iter().filter(|at| waiting.contains(at));
                !group.pods.is_empty() && wanted.any(|selector| least(&selector))
            };
            let Some(group) = free.iter_mut().find(evens_out) else {
                break;
            };
            self.bind(group);
        }
    }
}

/// Whether there is an order in which the scheduler can bind every pod in the zone that the plan gives it. Pods with
/// constraints go first, in turns; others when they are needed to even out, and at the end.
fn zones<'a>(
    pods: &'a [RawPod],
    claim_of: &BTreeMap<&str, usize>,
    plan: &'a LaunchPlan,
    found: &mut Vec<String>,
) {
    let cheapest = plan
        .claims
        .iter()
        .filter_map(|claim| claim.cheapest.as_ref());
    let universe: BTreeSet<&str> = plan
        .claims
        .iter()
        .flat_map(zones_of)
        .chain(cheapest.map(|offer| &*offer.zone))
        .collect();
    let selectors: BTreeMap<String, &Value> = pods
        .iter()
        .flat_map(|pod| spreads(pod).into_iter().chain(required(pod, "podAffinity")))
        .filter(|term| term.key == ZONE)
        .map(|term| (term.selector.to_string(), term.selector))
        .collect();
    let alike = group_by_zone(pods, claim_of, plan, &selectors, found);
    let (mut free, mut bound_by): (Vec<Alike<'_>>, Vec<Alike<'_>>) =
        alike.into_iter().partition(Alike::is_free);
    let zones = || universe.iter().map(|zone| (*zone, 0)).collect();
    let mut bound = Bound {
        counts: selectors.iter().map(|_| zones()).collect(),
    };
    bound.bind_in_turns(&mut bound_by, &mut free);
    for group in bound_by.iter().filter(|group| !group.pods.is_empty()) {
        for pod in &group.pods {
            found.push(format!(
                "{} cannot be bound in {}: {:?} of {:?}",
                pod.name, group.zone, group.spreads, bound.counts
            ));
        }
    }
}

/// Pods with a node, grouped by zone and by what the selectors say of them. A pod that needs a zone and has none is noted.
fn group_by_zone<'a>(
    pods: &'a [RawPod],
    claim_of: &BTreeMap<&str, usize>,
    plan: &'a LaunchPlan,
    selectors: &BTreeMap<String, &Value>,
    found: &mut Vec<String>,
) -> Vec<Alike<'a>> {
    let selector_ids: BTreeMap<&String, usize> = selectors.keys().zip(0..).collect();
    let mut alike: BTreeMap<String, Alike<'_>> = BTreeMap::new();
    for pod in pods {
        let Some(at) = claim_of.get(pod.uid.as_str()) else {
            continue;
        };
        let claim = &plan.claims[*at];
        let zones = zones_of(claim);
        if needs_zone(pod) && zones.len() != 1 {
            found.push(format!(
                "{} needs a zone, NodeClaim {at} has {zones:?}",
                pod.name
            ));
        }
        // A node that may be in several zones is launched in the cheapest one.
        let zone = match (zones.first(), &claim.cheapest) {
            (Some(only), _) if zones.len() == 1 => *only,
            (_, Some(cheapest)) => &*cheapest.zone,
            (_, None) => continue,
        };
        let id = |term: &Term<'_>| selector_ids[&term.selector.to_string()];
        let own = |term: &Term<'_>| matches(term.selector, pod) == Some(true);
        let in_zone = |term: &Term<'_>| term.key == ZONE;
        let spreads: Vec<_> = spreads(pod)
            .iter()
            .filter(|term| in_zone(term))
            .map(|term| (id(term), term.max_skew, own(term)))
            .collect();
        let near: Vec<_> = required(pod, "podAffinity")
            .iter()
            .filter(|term| in_zone(term))
            .map(|term| (id(term), own(term)))
            .collect();
        let counted_in: Vec<usize> = selectors
            .values()
            .enumerate()
            .filter(|(_, selector)| matches(selector, pod) == Some(true))
            .map(|(at, _)| at)
            .collect();
        let key = format!("{zone} {spreads:?} {near:?} {counted_in:?}");
        let group = alike.entry(key).or_insert_with(|| Alike {
            zone,
            spreads,
            near,
            counted_in,
            pods: Vec::new(),
        });
        group.pods.push(pod);
    }
    alike.into_values().collect()
}
