//! Checks a plan against the recorded pods and types, without any code of the solver.
//!
//! Rules: every pod is at most on one machine; the cheapest type named has room for all pods and an offering that may be
//! bought; node selectors hold; pods that must not share a host do not; pods with zone affinity share one zone; and, with
//! pods taken in the documented order (CPU, memory, UID), no spread pod goes where its constraint forbids it. A machine is
//! in a zone once a pod that needs to know the zone is on it; pods that came before count from then on.

use std::collections::{BTreeMap, BTreeSet};

use mortise_core::scheduling::{LaunchPlan, PlannedClaim};
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
                found.push(format!("pod {} is on two machines", pod.key));
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
        found.push(format!("machine {at} names no type"));
    }
    for name in &claim.instance_types {
        let Some(of) = types.get(&**name) else {
            found.push(format!("machine {at} names {name}, which does not exist"));
            continue;
        };
        let room = of.allocatable;
        if cpu > room.cpu_m || memory > room.memory_bytes || count > room.pods {
            found.push(format!(
                "machine {at}: {cpu}m, {memory} bytes, {count} pods do not fit on {name}"
            ));
        }
        let may = |zone: &str| zones.is_empty() || zones.contains(zone);
        if !of
            .offerings
            .iter()
            .any(|offering| offering.available && may(&offering.zone))
        {
            found.push(format!(
                "machine {at}: {name} cannot be bought in {zones:?}"
            ));
        }
    }
    for pod in pods {
        for (key, value) in &pod.node_selector {
            let own = claim.requirements.get(key);
            if own.is_none_or(|own| own.values().len() != 1 || !own.has(value)) {
                found.push(format!("machine {at}: {} selects {key}={value}", pod.name));
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

/// Anti-affinity and spread by host name, which only concern one machine.
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
                        "machine {at}: {} must not be with {}",
                        pod.name, other.name
                    )),
                    None => found.push(format!(
                        "machine {at}: selector of {} cannot be checked",
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
                    "machine {at}: {} is the {before}th of its kind",
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

/// Whether a pod needs to know the zone of its machine.
fn needs_zone(pod: &RawPod) -> bool {
    let zone = |terms: Vec<Term<'_>>| terms.iter().any(|term| term.key == ZONE);
    zone(spreads(pod))
        || zone(required(pod, "podAffinity"))
        || zone(required(pod, "podAntiAffinity"))
}

fn zones(
    pods: &[RawPod],
    claim_of: &BTreeMap<&str, usize>,
    plan: &LaunchPlan,
    found: &mut Vec<String>,
) {
    let universe: BTreeSet<&str> = plan.claims.iter().flat_map(zones_of).collect();
    let mut ordered: Vec<&RawPod> = pods
        .iter()
        .filter(|pod| claim_of.contains_key(pod.uid.as_str()))
        .collect();
    ordered.sort_by(|a, b| order(a).cmp(&order(b)));
    let mut settled: BTreeSet<usize> = BTreeSet::new();
    let mut waiting: BTreeMap<usize, Vec<&RawPod>> = BTreeMap::new();
    // By selector and zone: matching pods whose zone is known.
    let mut counts: BTreeMap<(String, &str), i64> = BTreeMap::new();
    let selectors: BTreeMap<String, &Value> = pods
        .iter()
        .flat_map(|pod| spreads(pod).into_iter().chain(required(pod, "podAffinity")))
        .filter(|term| term.key == ZONE)
        .map(|term| (term.selector.to_string(), term.selector))
        .collect();
    for pod in ordered {
        let at = claim_of[pod.uid.as_str()];
        let zones = zones_of(&plan.claims[at]);
        let zone = zones.iter().next().copied().filter(|_| zones.len() == 1);
        if needs_zone(pod) {
            let Some(zone) = zone else {
                found.push(format!(
                    "{} needs a zone, machine {at} has {zones:?}",
                    pod.name
                ));
                continue;
            };
            check_pod(pod, zone, &universe, &counts, found);
            if settled.insert(at) {
                for earlier in waiting.remove(&at).unwrap_or_default() {
                    count(earlier, zone, &selectors, &mut counts);
                }
            }
        }
        match zone.filter(|_| settled.contains(&at)) {
            Some(zone) => count(pod, zone, &selectors, &mut counts),
            None => waiting.entry(at).or_default().push(pod),
        }
    }
}

fn count<'z>(
    pod: &RawPod,
    zone: &'z str,
    selectors: &BTreeMap<String, &Value>,
    counts: &mut BTreeMap<(String, &'z str), i64>,
) {
    for (text, selector) in selectors {
        if matches(selector, pod) == Some(true) {
            *counts.entry((text.clone(), zone)).or_default() += 1;
        }
    }
}

fn check_pod(
    pod: &RawPod,
    zone: &str,
    universe: &BTreeSet<&str>,
    counts: &BTreeMap<(String, &str), i64>,
    found: &mut Vec<String>,
) {
    let of = |text: &str, zone: &str| {
        counts
            .iter()
            .find(|((own, at), _)| own == text && *at == zone)
            .map_or(0, |(_, count)| *count)
    };
    for term in spreads(pod).iter().filter(|term| term.key == ZONE) {
        let text = term.selector.to_string();
        let own = i64::from(matches(term.selector, pod) == Some(true));
        let least = universe
            .iter()
            .map(|zone| of(&text, zone))
            .min()
            .unwrap_or(0);
        let here = of(&text, zone) + own;
        if here - least > term.max_skew {
            found.push(format!(
                "{} goes to {zone} with {here}, the least is {least}",
                pod.name
            ));
        }
    }
    for term in required(pod, "podAffinity")
        .iter()
        .filter(|term| term.key == ZONE)
    {
        let text = term.selector.to_string();
        let anywhere: i64 = universe.iter().map(|zone| of(&text, zone)).sum();
        if of(&text, zone) == 0 && (anywhere > 0 || matches(term.selector, pod) != Some(true)) {
            found.push(format!(
                "{} goes to {zone}, where none of its kind is",
                pod.name
            ));
        }
    }
}
