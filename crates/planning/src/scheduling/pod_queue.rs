//! Which pods a pass places, and in which order.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use foldhash::fast::FixedState;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::default_spread::DefaultSpread;
use super::gangs::{GangOrder, siblings};
use super::plan::SolveOptions;
use super::volumes::{VolumeNeeds, needs};
use crate::reason::{GangDomain, Reason};
use mortise_apis::k8s::PodDisruptionBudget;
use mortise_apis::labels::{self, WellKnown};
use mortise_apis::names::{PodKey, Uid};
use mortise_apis::requirements::Requirement;
use mortise_cloudprovider::CapacityType;
use mortise_state::pods::Selector;
use mortise_state::snapshot::{Pod, PodClass, Snapshot};

/// The pods of a pass.
#[derive(Debug, Default)]
pub(super) struct PodQueue {
    /// Pods to place, in order, with the requirements of their volumes.
    pub(super) pods: Vec<(Arc<Pod>, VolumeNeeds)>,
    /// Pods that mortise does not place, with the reason.
    pub(super) ignored: Vec<(PodKey, Reason)>,
    /// Number of pods considered.
    pub(super) considered: usize,
}

impl PodQueue {
    /// Collects pending pods, pods of nodes that are being deleted, pods of removed nodes, extra pods, and virtual pods.
    ///
    /// Order: room that ProvisioningRequests have booked, and pods that use it; then pods that exist before virtual ones; priority, then CPU, then memory, all descending; then age, of a gang that of its
    /// first pod, so that its pods follow each other; then UID. The order is total, so the order of the input does not matter.
    pub(super) fn new(now: Timestamp, snapshot: &Snapshot, options: &SolveOptions) -> Self {
        let mut seen: HashSet<Uid, FixedState> = HashSet::default();
        let mut all: Vec<Arc<Pod>> = Vec::new();
        let mut add = |pod: &Arc<Pod>| {
            if seen.insert(pod.uid.clone()) {
                all.push(Arc::clone(pod));
            }
        };
        options.extra.iter().for_each(&mut add);
        for node in options
            .without
            .iter()
            .filter_map(|key| snapshot.nodes.get(&**key))
        {
            node.reschedulable().for_each(&mut add);
        }
        if options.pending {
            snapshot.pending.values().for_each(&mut add);
            let deleting = snapshot
                .deleting
                .iter()
                .filter(|key| !options.without.contains(*key))
                .filter_map(|key| snapshot.nodes.get(&**key));
            for pod in deleting.flat_map(|node| node.reschedulable()) {
                if is_evicted_soon(now, snapshot, pod) {
                    add(pod);
                }
            }
        }
        for pod in siblings(&all, snapshot, options) {
            if seen.insert(pod.uid.clone()) {
                all.push(pod);
            }
        }
        let mut queue = Self {
            considered: all.len(),
            ..Self::default()
        };
        if options.pending && options.buffers {
            let placed = snapshot.virtual_pods();
            let placed = placed.filter(|pod| !options.staying.contains(&pod.uid));
            all.extend(placed.cloned());
        }
        let mut defaults = DefaultSpread::new(&options.spread_defaults, &snapshot.workloads);
        for pod in all {
            match check_pod(now, snapshot, &pod) {
                Ok(volumes) => queue.pods.push((defaults.apply(pod), volumes)),
                // A pod that does not exist gets no record. It counts as one without room.
                Err(_) if pod.is_virtual() => {}
                Err(why) => {
                    let why = Reason::PodIgnored { why };
                    queue.ignored.push((pod.key.clone(), why));
                }
            }
        }
        let gangs = GangOrder::new(queue.pods.iter().map(|(pod, _)| pod), options);
        queue.pods.sort_by(|(a, _), (b, _)| {
            let (x, y) = (&a.class, &b.class);
            let larger = (y.priority, y.requests.cpu, y.requests.memory).cmp(&(
                x.priority,
                x.requests.cpu,
                x.requests.memory,
            ));
            // A new leader knows of no places on ready nodes. What is booked is not asked for by others first.
            let is_booked = |pod: &Pod| snapshot.gangs.has_booked(pod);
            let booked_first = is_booked(b).cmp(&is_booked(a));
            let real_first = a.is_virtual().cmp(&b.is_virtual());
            booked_first
                .then(real_first)
                .then(larger)
                .then_with(|| gangs.key(a).cmp(&gangs.key(b)))
        });
        queue.ignored.sort_by(|(a, _), (b, _)| a.cmp(b));
        queue
    }

    /// The same queue, in which the nodes of these pods have this value of a label. Equal classes stay one class.
    pub(super) fn pinned(&self, is_meant: impl Fn(&Pod) -> bool, domain: &GangDomain) -> Self {
        let mut classes: HashMap<usize, Arc<PodClass>, FixedState> = HashMap::default();
        let pods = self.pods.iter().map(|(pod, volumes)| {
            if !is_meant(pod) {
                return (Arc::clone(pod), volumes.clone());
            }
            let address = Arc::as_ptr(&pod.class).cast::<()>() as usize;
            let class = classes.entry(address).or_insert_with(|| {
                let mut class = PodClass::clone(&pod.class);
                let own = Requirement::is(&*domain.key, &*domain.value);
                class
                    .strict
                    .iter_mut()
                    .for_each(|each| each.add(own.clone()));
                Arc::new(class)
            });
            let pinned = Pod {
                class: Arc::clone(class),
                ..Pod::clone(pod)
            };
            (Arc::new(pinned), volumes.clone())
        });
        Self {
            pods: pods.collect(),
            ignored: self.ignored.clone(),
            considered: self.considered,
        }
    }
}

/// Whether the pod will be evicted soon: nothing protects it, and its PodDisruptionBudget can be satisfied.
fn is_evicted_soon(now: Timestamp, snapshot: &Snapshot, pod: &Pod) -> bool {
    if pod.is_protected(now) && pod.is_active() {
        return false;
    }
    let guards = snapshot.pdbs.iter().filter(|(key, pdb)| {
        key.namespace == pod.key.namespace
            && pdb
                .spec
                .selector
                .as_ref()
                .is_some_and(|selector| Selector::new(selector).matches_labels(&pod.labels))
    });
    let (mut count, mut blocked) = (0, false);
    for (_, pdb) in guards {
        count += 1;
        blocked |= blocks_indefinitely(pdb);
    }
    count <= 1 && !blocked
}

fn blocks_indefinitely(pdb: &PodDisruptionBudget) -> bool {
    let is = |amount: Option<&IntOrString>, number: Option<i32>, text: &str| match amount {
        Some(IntOrString::Int(amount)) => number == Some(*amount),
        Some(IntOrString::String(amount)) => {
            amount == text || number.is_some_and(|number| *amount == number.to_string())
        }
        None => false,
    };
    is(pdb.spec.max_unavailable.as_ref(), Some(0), "0%")
        || is(pdb.spec.min_available.as_ref(), None, "100%")
}

/// Text of a pod that failed for a reason that no new node resolves.
const SCHEDULER_FAILED: &str = "kube-scheduler failed with SchedulerError, which no new node resolves; \
     see the pod's condition PodScheduled";

/// The requirements of the pod's volumes, or why mortise does not place it.
fn check_pod(now: Timestamp, snapshot: &Snapshot, pod: &Pod) -> Result<VolumeNeeds, String> {
    let class = &pod.class;
    if let Some(malformed) = &class.malformed {
        return Err(malformed.to_string());
    }
    if class.opts_out() {
        return Err(format!("requires {} DoesNotExist", labels::NODEPOOL));
    }
    if let Some(hold) = snapshot.gangs.held(pod, now) {
        return Err(hold.to_string());
    }
    if pod.has_scheduler_error {
        return Err(SCHEDULER_FAILED.to_owned());
    }
    check_values(class, &snapshot.well_known)?;
    if class.volumes.is_empty() {
        Ok(VolumeNeeds::default())
    } else {
        needs(snapshot, pod)
    }
}

/// Checks labels with a closed list of values, and restricted labels.
fn check_values(class: &PodClass, known: &WellKnown) -> Result<(), String> {
    for asked in class.strict.iter().flatten() {
        let key = asked.key();
        if key != labels::HOSTNAME && known.is_restricted(key) {
            return Err(format!(
                "label {key} is restricted; specify a well known label, or a custom label that does not use a restricted domain"
            ));
        }
        if key == labels::CAPACITY_TYPE && !asked.is_complement() && !asked.is_empty() {
            let valid = |value: &Arc<str>| CapacityType::parse(value).is_some();
            if !asked.values().iter().any(valid) {
                let given = asked.values().join(" ");
                return Err(format!(
                    "no valid values found in [{given}] for {key}, expected one of: [on-demand reserved spot]"
                ));
            }
        }
    }
    Ok(())
}
