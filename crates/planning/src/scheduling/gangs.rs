//! Gangs in a solve: the pods of a group that run together get a place each, or none does.
//!
//! # Algorithm
//! The pass itself knows nothing of gangs. Groups that lack pods are left out before it. After it, the first group that has some of its
//! places and lacks others is left out, and the pass is made again without it: pods of later groups did not take its places, as
//! groups follow each other in the queue, and the room that it holds may be enough for one of those. Groups that are surely not
//! among them are left out at the same time: their pods are no smaller, and they lack more places than become free. A group
//! that has no place holds nothing and is left out when no other is.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use foldhash::fast::FixedState;

use super::plan::{LaunchPlan, SolveOptions, SolveReport, Unplaced};
use super::pod_queue::PodQueue;
use crate::reason::{
    GangBlocker, GangDomain, GangShortage, NominationFailure, Reason, UnschedulableCause,
    UnschedulablePod,
};
use mortise_apis::names::Uid;
use mortise_state::snapshot::{Gang, GangKey, GangKind, Pod, Snapshot};

/// After this number of passes, all gangs that lack places are left out at once but the smallest.
const MOST_PASSES: usize = 16;

/// The gangs of a solve.
#[derive(Debug, Default)]
pub(super) struct GangDemands {
    /// Places that each needs in the pass, and in all.
    needed: BTreeMap<Arc<GangKey>, PlacesNeeded>,
    /// The domains of gangs that run in one.
    pub(super) domains: BTreeMap<Arc<GangKey>, Arc<GangDomain>>,
    /// Pods of gangs that are left out, and why.
    left_out: Vec<Unplaced>,
    /// Those of them whose gangs got some places, and not all.
    without_places: Vec<Uid>,
    passes: usize,
}

#[derive(Clone, Copy, Debug)]
struct PlacesNeeded {
    in_pass: usize,
    in_all: usize,
    /// The smallest and the largest CPU request of its pods.
    cpu: (i64, i64),
}

impl PlacesNeeded {
    /// Of a gang with these pods in the pass, of which `needed` run, and some do elsewhere.
    fn new(pods: &[Arc<Pod>], needed: usize, elsewhere: usize) -> Self {
        let cpu = pods.iter().map(|pod| pod.class.requests.cpu);
        Self {
            in_pass: needed.saturating_sub(elsewhere),
            in_all: needed,
            cpu: (cpu.clone().min().unwrap_or(0), cpu.max().unwrap_or(0)),
        }
    }
}

/// A gang that lacks places, and how many it has in the pass.
#[derive(Debug)]
struct LackingGang {
    gang: Arc<GangKey>,
    found: usize,
    needed: PlacesNeeded,
}

/// The gang of a pod, where its kind holds.
pub(super) fn gang_of<'p>(pod: &'p Pod, options: &SolveOptions) -> Option<&'p Arc<GangKey>> {
    let gang = pod.gang.as_ref();
    gang.filter(|gang| options.gangs.contains(&gang.kind) && is_of_whole(pod, gang))
}

/// Pods that use a request are placed one by one: it is the room for them that is asked for as a whole.
fn is_of_whole(pod: &Pod, gang: &GangKey) -> bool {
    gang.kind != GangKind::Request || pod.requested.is_some()
}

/// Pods that are to be placed with these because they are of the same gangs: schedulers mark only some pods of a gang as
/// unschedulable. Nothing where no kind of gangs holds.
///
/// # Cost
/// One pass over the pods of these gangs.
pub(super) fn siblings(
    pods: &[Arc<Pod>],
    snapshot: &Snapshot,
    options: &SolveOptions,
) -> Vec<Arc<Pod>> {
    if options.gangs.is_empty() {
        return Vec::new();
    }
    let waiting = pods.iter().filter(|pod| pod.node.is_none());
    let gangs: BTreeSet<_> = waiting.filter_map(|pod| gang_of(pod, options)).collect();
    let members = gangs
        .into_iter()
        .flat_map(|gang| snapshot.gangs.members(gang));
    let members = members.filter_map(|key| snapshot.pods.get(key));
    // What waits and is not asked for is left out by whoever asks.
    let is_meant = |pod: &&Arc<Pod>| !(options.pending && pod.unschedulable);
    let waits = |pod: &&Arc<Pod>| pod.is_provisionable(true);
    members.filter(waits).filter(is_meant).cloned().collect()
}

impl GangDemands {
    /// What the gangs of these pods need. Takes the pods of those out that lack pods.
    ///
    /// # Cost
    /// One pass over the pods of the queue; nothing where no kind of gangs holds.
    pub(super) fn take(queue: &mut PodQueue, snapshot: &Snapshot, options: &SolveOptions) -> Self {
        let mut this = Self::default();
        if options.gangs.is_empty() {
            return this;
        }
        let mut queued: BTreeMap<Arc<GangKey>, Vec<Arc<Pod>>> = BTreeMap::new();
        for (pod, _) in &queue.pods {
            if let Some(gang) = gang_of(pod, options) {
                let pods = queued.entry(Arc::clone(gang)).or_default();
                pods.push(Arc::clone(pod));
            }
        }
        for (gang, pods) in queued {
            // Those that run are moved one by one: their gang has come together.
            if pods.iter().all(|pod| pod.node.is_some()) {
                continue;
            }
            let lacks = match snapshot.gangs.get(&gang) {
                Gang::Single => continue,
                Gang::Unknown => GangShortage::Group,
                Gang::NotAdmitted => GangShortage::Admission,
                Gang::Whole => {
                    let places = PlacesNeeded::new(&pods, pods.len(), 0);
                    this.needed.insert(gang, places);
                    continue;
                }
                Gang::Together(needed) => {
                    let existing = existing(&gang, snapshot).count();
                    if existing >= needed {
                        let elsewhere = running_elsewhere(&gang, &pods, snapshot);
                        let places = PlacesNeeded::new(&pods, needed, elsewhere);
                        this.needed.insert(gang, places);
                        continue;
                    }
                    GangShortage::Pods { existing, needed }
                }
            };
            this.leave_out(queue, gang, lacks);
        }
        this
    }

    /// Takes a gang out of the queue that did not get the places that it needs. `false` if there is none: the plan is complete.
    ///
    /// # Cost
    /// One pass over the placed pods and those of the queue; nothing without gangs.
    pub(super) fn retry_without(
        &mut self,
        queue: &mut PodQueue,
        plan: &LaunchPlan,
        report: &SolveReport,
    ) -> bool {
        let lacking = self.lacking(queue, plan, report);
        if lacking.is_empty() {
            return false;
        }
        self.passes += 1;
        let smallest = lacking.iter().map(|each| each.needed.in_pass).min();
        let first = lacking.iter().position(|each| each.found > 0);
        let is_left_out = |at: usize, each: &LackingGang| match first {
            None => true,
            Some(_) if self.passes > MOST_PASSES => {
                Some(each.needed.in_pass) != smallest || self.passes > MOST_PASSES + 1
            }
            Some(first) => at == first || each.cannot_use(&lacking[first]),
        };
        let left_out: Vec<(Arc<GangKey>, GangShortage)> = lacking
            .iter()
            .enumerate()
            .filter(|(at, each)| is_left_out(*at, each))
            .map(|(_, each)| {
                let domain = self.domains.get(&each.gang).cloned();
                let shortage = each.shortage(queue, report, domain);
                (Arc::clone(&each.gang), shortage)
            })
            .collect();
        for (gang, lacks) in left_out {
            self.leave_out(queue, gang, lacks);
        }
        true
    }

    /// Takes the pods of gangs out of a plan that did not get the places that they need: time ran out before.
    pub(super) fn strip(&self, queue: &PodQueue, plan: &mut LaunchPlan, report: &SolveReport) {
        for LackingGang { gang, .. } in self.lacking(queue, plan, report) {
            let is_other = |pod: &Arc<Pod>| pod.gang.as_ref() != Some(&gang) || pod.node.is_some();
            plan.placements.retain(|placement| is_other(&placement.pod));
            plan.claims
                .iter_mut()
                .for_each(|claim| claim.pods.retain(is_other));
        }
        plan.claims.retain(|claim| !claim.pods.is_empty());
    }

    /// Adds what gangs that are left out lack to what the pass says of other pods. Places that they have from earlier passes are free: a
    /// gang that waits for room holds none.
    pub(super) fn report(self, snapshot: &Snapshot, report: &mut SolveReport) {
        if self.left_out.is_empty() {
            return;
        }
        let nominated = self.without_places.into_iter();
        let nominated = nominated.filter(|pod| snapshot.ledger.nomination(pod).is_some());
        let why = NominationFailure::GangIncomplete;
        report
            .broken
            .extend(nominated.map(|pod| (pod, why.clone())));
        report.unplaced.extend(self.left_out);
        report.unplaced.sort_by(|a, b| a.pods.cmp(&b.pods));
    }

    /// Gangs that lack places, in the order of the queue.
    fn lacking(
        &self,
        queue: &PodQueue,
        plan: &LaunchPlan,
        report: &SolveReport,
    ) -> Vec<LackingGang> {
        if self.needed.is_empty() {
            return Vec::new();
        }
        let launched = plan.claims.iter().flat_map(|claim| &claim.pods);
        let placed = plan.placements.iter().map(|placement| &placement.pod);
        let placed: HashSet<&Uid, FixedState> =
            launched.chain(placed).map(|pod| &pod.uid).collect();
        let entrusted: BTreeSet<_> = report.entrusted.iter().collect();
        let mut order: Vec<&Arc<GangKey>> = Vec::new();
        let mut found: BTreeMap<&Arc<GangKey>, usize> = BTreeMap::new();
        for (pod, _) in &queue.pods {
            let Some((gang, _)) = pod
                .gang
                .as_ref()
                .filter(|gang| is_of_whole(pod, gang))
                .and_then(|gang| self.needed.get_key_value(gang))
            else {
                continue;
            };
            let count = found.entry(gang).or_insert_with(|| {
                order.push(gang);
                0
            });
            *count += usize::from(placed.contains(&pod.uid) || entrusted.contains(&pod.key));
        }
        let all = order.into_iter().map(|gang| LackingGang {
            gang: Arc::clone(gang),
            found: found[gang],
            needed: self.needed[gang],
        });
        all.filter(|each| each.found < each.needed.in_pass)
            .collect()
    }

    /// How many places a gang lacks in a plan.
    pub(super) fn missing_places(
        &self,
        gang: &Arc<GangKey>,
        queue: &PodQueue,
        plan: &LaunchPlan,
        report: &SolveReport,
    ) -> usize {
        if self.needed.contains_key(gang) {
            let lacking = self.lacking(queue, plan, report);
            let own = lacking.iter().find(|each| each.gang == *gang);
            return own.map_or(0, |own| own.needed.in_pass - own.found);
        }
        let own = queue.pods.iter().map(|(pod, _)| pod);
        let own = own.filter(|pod| pod.gang.as_ref() == Some(gang));
        let own: BTreeSet<&Uid> = own.map(|pod| &pod.uid).collect();
        let unplaced = report.unplaced.iter().flat_map(|each| &each.pods);
        unplaced.filter(|(_, uid)| own.contains(uid)).count()
    }

    /// Takes the waiting pods of a gang out of the queue.
    pub(super) fn leave_out(
        &mut self,
        queue: &mut PodQueue,
        gang: Arc<GangKey>,
        lacks: GangShortage,
    ) {
        self.needed.remove(&gang);
        let (own, others) = std::mem::take(&mut queue.pods)
            .into_iter()
            .partition(|(pod, _)| pod.node.is_none() && pod.gang.as_ref() == Some(&gang));
        queue.pods = others;
        let own: Vec<(Arc<Pod>, _)> = own;
        if matches!(lacks, GangShortage::Places { .. }) {
            let pods = own.iter().map(|(pod, _)| pod.uid.clone());
            self.without_places.extend(pods);
        }
        let reason = Reason::GangWaits(Box::new(GangBlocker {
            gang: GangKey::clone(&gang),
            lacks,
        }));
        let pods = own.iter();
        self.left_out.push(Unplaced {
            pods: pods
                .map(|(pod, _)| (pod.key.clone(), pod.uid.clone()))
                .collect(),
            message: reason.to_string(),
            reasons: vec![reason],
            deferred: false,
        });
    }
}

impl LackingGang {
    /// It lacks more places than another one would leave behind. (Where one pod was, at most one fits that is no smaller: what is
    /// free next to it is less than that.)
    fn cannot_use(&self, other: &Self) -> bool {
        self.needed.cpu.0 >= other.needed.cpu.1 && self.needed.in_pass > self.found + other.found
    }

    fn shortage(
        &self,
        queue: &PodQueue,
        report: &SolveReport,
        domain: Option<Arc<GangDomain>>,
    ) -> GangShortage {
        let PlacesNeeded {
            in_pass, in_all, ..
        } = self.needed;
        GangShortage::Places {
            found: in_all - in_pass + self.found,
            needed: in_all,
            domain,
            first: first_unplaced(&self.gang, queue, report),
        }
    }
}

/// The gang of a pod with the creation of its first pod, by which gangs follow each other in the queue.
#[derive(Debug, Default)]
pub(super) struct GangOrder(BTreeMap<Arc<GangKey>, i64>);

impl GangOrder {
    /// Of these pods. Empty where no kind of gangs holds.
    pub(super) fn new<'p>(
        pods: impl Iterator<Item = &'p Arc<Pod>>,
        options: &SolveOptions,
    ) -> Self {
        let mut first: BTreeMap<Arc<GangKey>, i64> = BTreeMap::new();
        if options.gangs.is_empty() {
            return Self(first);
        }
        for pod in pods {
            if let Some(gang) = gang_of(pod, options) {
                let created = pod.created.as_second();
                let known = first.entry(Arc::clone(gang)).or_insert(created);
                *known = created.min(*known);
            }
        }
        Self(first)
    }

    /// The key of a pod among others of its priority and size.
    pub(super) fn key<'p>(&self, pod: &'p Pod) -> (i64, Option<&'p GangKey>, i64, &'p Uid) {
        let created = pod.created.as_second();
        let gang = pod
            .gang
            .as_ref()
            .and_then(|gang| Some((gang, *self.0.get(gang)?)));
        let (first, gang) = gang.map_or((created, None), |(gang, first)| (first, Some(&**gang)));
        (first, gang, created, &pod.uid)
    }
}

/// Pods of the gang that run, or that kube-scheduler makes room for, and that the pass does not place.
fn running_elsewhere(gang: &GangKey, queued: &[Arc<Pod>], snapshot: &Snapshot) -> usize {
    let queued: BTreeSet<&Uid> = queued.iter().map(|pod| &pod.uid).collect();
    let has_place = |pod: &&Arc<Pod>| {
        (pod.node.is_some() || pod.nominated.is_some()) && !queued.contains(&pod.uid)
    };
    existing(gang, snapshot).filter(has_place).count()
}

/// Pods of the gang that are not being deleted.
pub(super) fn existing<'s>(
    gang: &GangKey,
    snapshot: &'s Snapshot,
) -> impl Iterator<Item = &'s Arc<Pod>> {
    let members = snapshot.gangs.members(gang);
    let members = members.filter_map(|key| snapshot.pods.get(key));
    members.filter(|pod| pod.deleted.is_none())
}

/// The first pod of the gang that the pass could not place, with its reason.
fn first_unplaced(
    gang: &GangKey,
    queue: &PodQueue,
    report: &SolveReport,
) -> Option<UnschedulablePod> {
    let own = queue.pods.iter().map(|(pod, _)| pod);
    let own = own.filter(|pod| pod.gang.as_deref() == Some(gang));
    let own: BTreeSet<&Uid> = own.map(|pod| &pod.uid).collect();
    report.unplaced.iter().find_map(|unplaced| {
        let (key, _) = unplaced.pods.iter().find(|(_, uid)| own.contains(uid))?;
        Some(UnschedulablePod {
            pod: key.clone(),
            why: UnschedulableCause::from(unplaced.reasons.as_slice()),
        })
    })
}
