//! Gangs whose pods run in one domain of a topology, such as one zone or one rack.
//!
//! # Algorithm
//! The pass knows nothing of it: the pods of such a gang require the domain, as if their authors had written it. Where pods of the gang
//! run already, that is their domain. Else the pass is made for each, and the plan decides that leaves the fewest pods of the gang, then
//! the fewest other pods without a place, then costs least. A domain that its pods are nominated to stays as long as it is enough: a price
//! that changes must not move a gang whose nodes are coming.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::gangs::{GangDemands, existing, gang_of};
use super::plan::{LaunchPlan, SolveOptions, SolveReport};
use super::pod_queue::PodQueue;
use super::topology_counts::place_of;
use crate::reason::{GangDomain, GangShortage};
use mortise_apis::names::Uid;
use mortise_apis::requirements::Operator;
use mortise_state::ledger::NominationTarget;
use mortise_state::snapshot::{GangKey, Pod, Snapshot};

/// Most domains of a gang that are tried, those of its nominations first, then by name.
const MOST_DOMAINS: usize = 16;
/// Most passes of a solve that only try domains. Beyond it each gang gets its first domain.
const MOST_TRIALS: usize = 48;

/// The domains that a gang may run in.
struct Domains {
    /// In the order in which they are tried.
    values: Vec<Arc<str>>,
    /// How many of them, from the first, are those of its nominations.
    nominated: usize,
}

impl GangDemands {
    /// Chooses a domain for each gang that demands one, and has its pods require it. Gangs without any are left out. `solve`: makes the
    /// pass for a queue.
    ///
    /// # Cost
    /// One pass for each domain of a gang of which no pod runs; nothing without such gangs.
    pub(super) fn choose_domains(
        &mut self,
        queue: &mut PodQueue,
        (snapshot, options): (&Snapshot, &SolveOptions),
        solve: impl Fn(&PodQueue) -> (LaunchPlan, SolveReport),
    ) {
        let mut trials = 0;
        for (gang, key) in constrained(queue, snapshot, options) {
            let found = Domains::of(&gang, &key, queue, snapshot);
            let value = match &*found.values {
                [] => {
                    if queue.pods.iter().any(|(pod, _)| waits_in(pod, &gang)) {
                        self.leave_out(queue, gang, GangShortage::Domain { key });
                    }
                    continue;
                }
                [only] => only,
                _ => self.best(&gang, &key, &found, queue, &mut |queue| {
                    trials += 1;
                    (trials <= MOST_TRIALS).then(|| solve(queue))
                }),
            };
            let domain = GangDomain {
                value: Arc::clone(value),
                key,
            };
            *queue = queue.pinned(|pod| is_of(pod, &gang), &domain);
            self.domains.insert(gang, Arc::new(domain));
        }
    }

    fn best<'d>(
        &self,
        gang: &Arc<GangKey>,
        key: &Arc<str>,
        Domains { values, nominated }: &'d Domains,
        queue: &PodQueue,
        solve: &mut dyn FnMut(&PodQueue) -> Option<(LaunchPlan, SolveReport)>,
    ) -> &'d Arc<str> {
        let mut best: Option<(_, &Arc<str>)> = None;
        for (at, value) in values.iter().enumerate() {
            let domain = GangDomain {
                key: Arc::clone(key),
                value: Arc::clone(value),
            };
            let pinned = queue.pinned(|pod| is_of(pod, gang), &domain);
            let Some((plan, report)) = solve(&pinned).filter(|(_, report)| !report.stopped) else {
                break;
            };
            let lacks = self.missing_places(gang, &pinned, &plan, &report);
            if lacks == 0 && at < *nominated {
                return value;
            }
            let unplaced = report.unplaced.iter().map(|each| each.pods.len());
            let price = plan.price().map_or(i64::MAX, |price| price.0);
            let cost = (lacks, unplaced.sum::<usize>(), price);
            if best.as_ref().is_none_or(|(least, _)| cost < *least) {
                best = Some((cost, value));
            }
        }
        best.map_or(&values[0], |(_, value)| value)
    }
}

fn is_of(pod: &Pod, gang: &Arc<GangKey>) -> bool {
    pod.gang.as_ref() == Some(gang)
}

fn waits_in(pod: &Pod, gang: &Arc<GangKey>) -> bool {
    is_of(pod, gang) && pod.node.is_none()
}

/// Gangs of the queue that run in one domain, with the label of their topology, in the order of the queue.
fn constrained(
    queue: &PodQueue,
    snapshot: &Snapshot,
    options: &SolveOptions,
) -> Vec<(Arc<GangKey>, Arc<str>)> {
    if options.gangs.is_empty() {
        return Vec::new();
    }
    let mut seen: BTreeSet<&Arc<GangKey>> = BTreeSet::new();
    let gangs = queue
        .pods
        .iter()
        .filter_map(|(pod, _)| gang_of(pod, options));
    let gangs = gangs.filter(|gang| seen.insert(gang));
    let with_key = gangs.filter_map(|gang| {
        let key = snapshot.gangs.topology_key(gang)?;
        Some((Arc::clone(gang), key.into()))
    });
    with_key.collect()
}

impl Domains {
    fn of(gang: &Arc<GangKey>, key: &str, queue: &PodQueue, snapshot: &Snapshot) -> Self {
        let value_at = |place: &NominationTarget| {
            let node = snapshot.node_at(place)?;
            node.labels.get(key).map(|value| Arc::from(&**value))
        };
        let queued = queue.pods.iter().map(|(pod, _)| pod);
        let queued: BTreeSet<&Uid> = queued
            .filter(|pod| is_of(pod, gang))
            .map(|pod| &pod.uid)
            .collect();
        let elsewhere = existing(gang, snapshot).filter(|pod| !queued.contains(&pod.uid));
        let places = elsewhere.filter_map(|pod| value_at(&place_of(snapshot, pod)?));
        let values = most_frequent(places);
        if !values.is_empty() {
            let nominated = values.len();
            return Self { values, nominated };
        }
        let nominations = queued
            .iter()
            .filter_map(|uid| snapshot.ledger.nomination(uid));
        let mut values = most_frequent(nominations.filter_map(|own| value_at(&own.place)));
        let nominated = values.len();
        let others = known_values(key, snapshot);
        values.extend(
            others
                .into_iter()
                .filter(|value| !values.contains(value))
                .collect::<Vec<_>>(),
        );
        values.truncate(MOST_DOMAINS);
        Self { values, nominated }
    }
}

/// Different values, the most frequent first.
fn most_frequent(values: impl Iterator<Item = Arc<str>>) -> Vec<Arc<str>> {
    let mut counts: BTreeMap<Arc<str>, usize> = BTreeMap::new();
    for value in values {
        *counts.entry(value).or_default() += 1;
    }
    let mut all: Vec<(Arc<str>, usize)> = counts.into_iter().collect();
    all.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    all.into_iter().map(|(value, _)| value).collect()
}

/// Values of a label that nodes have, or that those of NodePools may get: by their templates, their requirements, or the offerings of
/// instance types.
fn known_values(key: &str, snapshot: &Snapshot) -> BTreeSet<Arc<str>> {
    let nodes = snapshot.nodes.iter().map(|(_, node)| node);
    let nodes = nodes.filter(|node| !node.deleting);
    let mut all: BTreeSet<Arc<str>> = nodes
        .filter_map(|node| node.labels.get(key))
        .map(|value| Arc::from(&**value))
        .collect();
    for pool in snapshot.pools.values() {
        let template = &pool.spec.template;
        let metadata = template.metadata.iter();
        let labels = metadata
            .filter_map(|metadata| metadata.labels.as_ref())
            .flatten();
        let labels = labels
            .filter(|(own, _)| *own == key)
            .map(|(_, value)| value);
        let specs = template.spec.requirements.iter();
        let specs = specs.filter(|spec| spec.key == key && spec.operator == Operator::In.as_str());
        let values = specs.flat_map(|spec| spec.values());
        all.extend(labels.chain(values).map(|value| Arc::from(&**value)));
    }
    for catalog in snapshot.catalogs.values() {
        for each in catalog.types() {
            let own = each.requirements.get(key);
            let own = own.filter(|own| !own.is_complement());
            all.extend(own.into_iter().flat_map(|own| own.values()).cloned());
            let offerings = each.offerings.iter().flat_map(|offering| &offering.labels);
            let labels = offerings.filter(|(own, _)| **own == *key);
            all.extend(labels.map(|(_, value)| Arc::clone(value)));
        }
    }
    all
}
