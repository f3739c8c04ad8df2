//! Why a node that is being deleted still exists: each drain blocker, its owner, its start, and what would clear it.
//!
//! A pure function of the snapshot, so that every replica, the metrics and `explain` report the same; what only the
//! draining process knows (responses to evictions, writes and cloud calls) is given as [`DrainErrors`].
//!
//! Only current blockers are named: pods of the group that is being drained, then volumes, then the instance, then
//! finalizers of other controllers.

use jiff::Timestamp;
use serde::Serialize;

use super::budgets::{self, PodBlocker};
use super::volumes::{self, Attached};
use super::{DrainErrors, EvictionError, EvictionFailure, HandOverStep, hand_over_step};
use crate::drain::groups::Drain;
use crate::drain::pdb::Pdbs;
use crate::drain_blocker::{DrainBlocker, DrainBlockerKind};
use crate::pause::{self, Pause, PauseScope};
use mortise_apis::k8s::VolumeAttachment;
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::labels;
use mortise_apis::names::{ClaimName, NodeName, ObjectRef, PoolName};
use mortise_apis::schema::finalizers::has_finalizer;
use mortise_apis::values::{after, since};
use mortise_state::snapshot::{Pod, Snapshot, StateNode};

/// A drain is reported after this time. A pod's default grace period is 30 s.
pub const REPORT_AFTER_MS: i64 = 45_000;
/// Most blockers of one node that are named.
pub(super) const MOST: usize = 10;
/// Most nodes that are evaluated for one report: with more, no single node matters.
const MOST_NODES: usize = 200;

/// A node that takes longer to delete than it should.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StuckDrain {
    /// Its Node.
    pub node: Option<NodeName>,
    /// Its claim.
    pub claim: Option<ClaimName>,
    /// Its pool.
    pub pool: Option<PoolName>,
    /// When its deletion was requested.
    pub since: Timestamp,
    /// The known blockers; may be empty.
    pub obstacles: Vec<DrainBlocker>,
}

/// Nodes that have been in deletion for more than 45 s. Sorted by time, the oldest first; at most 200.
///
/// # Cost
/// One pass over the nodes; for each that is being deleted, its pods, their PodDisruptionBudgets and its volumes.
#[must_use]
pub fn stuck_drains(snapshot: &Snapshot, now: Timestamp) -> Vec<StuckDrain> {
    let mut going: Vec<(Timestamp, &StateNode)> = snapshot
        .nodes
        .values()
        .filter_map(|node| Some((going_since(snapshot, node)?, &**node)))
        .filter(|(at, _)| since(now, *at) >= REPORT_AFTER_MS)
        .collect();
    going.sort_by(|a, b| (a.0, &a.1.key).cmp(&(b.0, &b.1.key)));
    if going.is_empty() {
        return Vec::new();
    }
    let (pdbs, mut attached) = (Pdbs::new(snapshot), None);
    going
        .into_iter()
        .take(MOST_NODES)
        .map(|(since, node)| StuckDrain {
            node: node.node_name(),
            claim: node.claim_name(),
            pool: node.pool(),
            since,
            obstacles: obstacles(
                (snapshot, &pdbs),
                now,
                node,
                &DrainErrors::default(),
                &mut attached,
            ),
        })
        .collect()
}

/// The blockers of a node that the objects show; none unless it is being deleted. Sorted by time, at most ten.
#[must_use]
pub fn drain_blockers(snapshot: &Snapshot, now: Timestamp, node: &StateNode) -> Vec<DrainBlocker> {
    let pdbs = Pdbs::new(snapshot);
    obstacles(
        (snapshot, &pdbs),
        now,
        node,
        &DrainErrors::default(),
        &mut None,
    )
}

/// When the deletion of a managed node was requested; `None` unless it is being deleted.
#[must_use]
pub fn going_since(snapshot: &Snapshot, node: &StateNode) -> Option<Timestamp> {
    let of_claim = node
        .claim
        .as_ref()
        .and_then(|claim| claim.metadata.deletion_timestamp.as_ref());
    let of_node = node
        .node
        .as_ref()
        .filter(|own| node.claim.is_some() || snapshot.has_served_class(own));
    let of_node = of_node.and_then(|own| own.metadata.deletion_timestamp.as_ref());
    [of_claim, of_node]
        .into_iter()
        .flatten()
        .map(|time| time.0)
        .min()
}

/// The blockers of a node that is being deleted, in a cluster with these PodDisruptionBudgets. Sorted by time, at most ten.
pub fn obstacles(
    (snapshot, pdbs): (&Snapshot, &Pdbs<'_>),
    now: Timestamp,
    node: &StateNode,
    hints: &DrainErrors,
    attached: &mut Attached,
) -> Vec<DrainBlocker> {
    let Some(start) = going_since(snapshot, node) else {
        return Vec::new();
    };
    let view = DrainView {
        snapshot,
        pdbs,
        now,
        node,
        hints,
        start,
    };
    let mut found = view.refused_writes();
    let is_lost = node.node.is_none();
    if !is_lost {
        found.extend(view.pods());
    }
    if found.is_empty() && !is_lost {
        found.extend(view.volumes(attached));
    }
    if found.is_empty() {
        found.extend(view.end());
    }
    found.sort_by(|a, b| (a.since, &a.what).cmp(&(b.since, &b.what)));
    found.truncate(MOST);
    found
}

/// The owner of a pod, for people.
pub(super) fn owner_of(pod: &Pod) -> Option<String> {
    let owner = pod.owner.as_ref();
    owner.map(|owner| format!("{} {}", owner.kind, owner.name))
}

/// How the annotation of a protected pod blocks a drain.
pub(super) fn protection(pod: &Pod) -> PodBlocker {
    let key = pod.protecting_annotation().key();
    match pod.protected_until() {
        Some(until) => (
            DrainBlockerKind::DoNotDisruptUntil,
            format!("annotation {key} protects it until {until}"),
            "it expires automatically, or remove the annotation".to_owned(),
        ),
        None => (
            DrainBlockerKind::DoNotDisrupt,
            format!("annotation {key} protects it"),
            format!("remove the annotation {key}, or delete the pod"),
        ),
    }
}

/// One node, and what is known about it.
struct DrainView<'a> {
    snapshot: &'a Snapshot,
    pdbs: &'a Pdbs<'a>,
    now: Timestamp,
    node: &'a StateNode,
    hints: &'a DrainErrors,
    start: Timestamp,
}

impl DrainView<'_> {
    fn blocker(
        &self,
        kind: DrainBlockerKind,
        what: String,
        detail: String,
        unblocks: String,
    ) -> DrainBlocker {
        DrainBlocker {
            kind,
            what,
            owner: None,
            since: self.start,
            detail,
            unblocks,
        }
    }

    fn claim(&self) -> Option<&NodeClaim> {
        self.node.claim.as_deref()
    }

    /// Pods of the group that is being drained.
    fn pods(&self) -> Vec<DrainBlocker> {
        let deadline = self.claim().and_then(NodeClaim::termination_deadline);
        let drain = Drain::new(&self.node.pods, self.now, deadline);
        if !(drain.evict.is_empty() && drain.force.is_empty())
            && let Some(pause) = pause::of_drain(self.snapshot, self.node, self.now)
        {
            return vec![self.paused(&pause)];
        }
        let mut found: Vec<DrainBlocker> = Vec::new();
        for pod in drain.first_group() {
            if found.len() == MOST {
                break;
            }
            let Some(mut blocker) = self.pod(pod) else {
                continue;
            };
            blocker.owner = owner_of(pod);
            if let Some(deadline) = deadline.filter(|deadline| *deadline > self.now) {
                let at = deadline.strftime("%Y-%m-%dT%H:%M:%SZ");
                blocker.unblocks = format!("{}; else it is deleted by {at}", blocker.unblocks);
            }
            found.push(blocker);
        }
        found
    }

    fn paused(&self, pause: &Pause) -> DrainBlocker {
        let annotated = |on: &dyn std::fmt::Display| {
            format!("remove the annotation {} from {on}", labels::PAUSE)
        };
        let by_hand = match &pause.scope {
            PauseScope::Policy(_) => pause.remedy(),
            PauseScope::Cluster => annotated(&format!("namespace {}", self.snapshot.own_namespace)),
            scope => annotated(scope),
        };
        let what = match self.node.node_name() {
            Some(name) => format!("node {name}"),
            None => "the node".to_owned(),
        };
        let unblocks = match pause.until {
            Some(_) => format!("it ends automatically, or {by_hand}"),
            None => by_hand,
        };
        let kind = DrainBlockerKind::DisruptionPaused;
        self.blocker(kind, what, pause.to_string(), unblocks)
    }

    fn pod(&self, pod: &Pod) -> Option<DrainBlocker> {
        let what = format!("pod {}", pod.key);
        if let Some(ends) = pod.deleted {
            return Some(self.leaving(pod, what, ends));
        }
        if pod.is_protected(self.now) {
            let (shape, detail, unblocks) = protection(pod);
            return Some(self.blocker(shape, what, detail, unblocks));
        }
        if let Some(step) = hand_over_step((self.snapshot, self.pdbs), self.node, pod, self.now) {
            return Some(self.handed_over(step, what));
        }
        let refusal = self
            .hints
            .evictions
            .get(&pod.key)
            .filter(|(uid, _)| *uid == pod.uid);
        let refused = |shape: DrainBlockerKind, error: &EvictionError, unblocks: &str| {
            self.blocker(
                shape,
                what.clone(),
                format!("its eviction is refused: {}", error.message),
                unblocks.to_owned(),
            )
        };
        match refusal.map(|(_, error)| error) {
            Some(error) if error.failure == EvictionFailure::Forbidden => Some(refused(
                DrainBlockerKind::EvictionForbidden,
                error,
                "let the service account create pods/eviction (mortise manifests rbac)",
            )),
            Some(error) if error.failure == EvictionFailure::Denied => Some(refused(
                DrainBlockerKind::EvictionDenied,
                error,
                "an admission webhook or policy denies it: change that, or delete the pod",
            )),
            Some(error) if error.failure == EvictionFailure::Unavailable => Some(refused(
                DrainBlockerKind::EvictionUnavailable,
                error,
                "the API server or one of its webhooks must respond again",
            )),
            other => {
                let by_budget = budgets::drain_blocker(self.snapshot, self.pdbs, pod);
                let (shape, detail, unblocks) = match (by_budget, other) {
                    (Some(found), _) => found,
                    (None, Some(error)) => (
                        DrainBlockerKind::PdbExhausted,
                        format!("its eviction is refused: {}", error.message),
                        "the eviction is retried until its budget allows it".to_owned(),
                    ),
                    (None, None) => return None,
                };
                Some(self.blocker(shape, what, detail, unblocks))
            }
        }
    }

    /// A pod that waits for its Deployment to replace it.
    fn handed_over(&self, step: HandOverStep<'_>, what: String) -> DrainBlocker {
        let deployment = step.hand_over.deployment;
        let until = step.until.strftime("%Y-%m-%dT%H:%M:%SZ");
        let target = ObjectRef::Deployment(deployment.clone());
        let detail = match self.hints.writes.get(&target) {
            Some(error) => format!("deployment {deployment} cannot be restarted: {error}"),
            None => format!("deployment {deployment} is starting another pod for it"),
        };
        let unblocks = format!("it ends when the other pod is available; at {until} it is evicted");
        self.blocker(DrainBlockerKind::HandingOver, what, detail, unblocks)
    }

    /// A pod that is being evicted.
    fn leaving(&self, pod: &Pod, what: String, ends: Timestamp) -> DrainBlocker {
        let asked = after(ends, pod.grace_seconds.saturating_mul(-1_000));
        let (shape, detail, unblocks) = if ends <= self.now
            && let Some(finalizers) = &pod.finalizers
        {
            (
                DrainBlockerKind::PodFinalizer,
                format!("it has ended, and finalizer {finalizers} keeps it"),
                "the controller of the finalizer must remove it".to_owned(),
            )
        } else if !self.node.is_ready() {
            (
                DrainBlockerKind::KubeletNotResponding,
                "it was requested to terminate, and its node is not Ready".to_owned(),
                "the kubelet must respond again, or the pod must be force-deleted; the drain continues one minute after its grace period".to_owned(),
            )
        } else if ends > self.now {
            (
                DrainBlockerKind::InGracePeriod,
                format!("it has {} s to end, until {ends}", pod.grace_seconds),
                "it terminates within its grace period; a shorter terminationGracePeriodSeconds is faster".to_owned(),
            )
        } else {
            (
                DrainBlockerKind::PodStuck,
                format!("it should have terminated by {ends}, and its kubelet has not confirmed it"),
                "check the container runtime and volumes that do not unmount; the drain continues one minute after its grace period".to_owned(),
            )
        };
        DrainBlocker {
            since: asked.max(self.start),
            ..self.blocker(shape, what, detail, unblocks)
        }
    }

    fn volumes(&self, attached: &mut Attached) -> Vec<DrainBlocker> {
        let Some(node) = self.node.node_name() else {
            return Vec::new();
        };
        let attached = attached.get_or_insert_with(|| volumes::by_node(self.snapshot));
        let Some(own) = attached.get(node.as_str()) else {
            return Vec::new();
        };
        let pending = volumes::pending(self.snapshot, own, &self.node.pods);
        let named = pending.into_iter().filter_map(|name| {
            let attachment = self.snapshot.attachments.get(&name)?;
            let volume = own
                .iter()
                .find(|(each, _)| *each == name)
                .map(|(_, volume)| volume.as_str());
            Some(self.volume(attachment, volume.unwrap_or_default()))
        });
        named.take(MOST).collect()
    }

    fn volume(&self, attachment: &VolumeAttachment, volume: &str) -> DrainBlocker {
        let driver = &attachment.spec.attacher;
        let what = format!("volume {volume}");
        let asked = attachment
            .metadata
            .deletion_timestamp
            .as_ref()
            .map(|time| time.0);
        let error = attachment
            .status
            .detach_error
            .as_ref()
            .map(|error| error.message.as_str());
        let (shape, detail, unblocks) = match (asked, error) {
            (Some(_), Some(error)) => (
                DrainBlockerKind::VolumeDetachFailed,
                format!("it cannot be detached: {error}"),
                format!("driver {driver} must be able to detach it"),
            ),
            (Some(_), None) => (
                DrainBlockerKind::VolumeDetaching,
                "it is being detached".to_owned(),
                format!("driver {driver} must say that it is detached; look at its controller"),
            ),
            (None, _) => (
                DrainBlockerKind::VolumeAttached,
                "it is attached, and its detachment was not requested".to_owned(),
                "kube-controller-manager detaches it once no pod on the node uses it; look at pods of the node and at its log".to_owned(),
            ),
        };
        DrainBlocker {
            owner: Some(format!("driver {driver}")).filter(|_| !driver.is_empty()),
            since: asked.unwrap_or(self.start).max(self.start),
            ..self.blocker(shape, what, detail, unblocks)
        }
    }

    /// The node is empty: its instance, and other controllers' finalizers.
    fn end(&self) -> Option<DrainBlocker> {
        let node = self.node;
        let id = node.provider_id();
        let foreign = |meta: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta| {
            let deleted = meta.deletion_timestamp.is_some();
            let ours = has_finalizer(meta, labels::TERMINATION_FINALIZER);
            let all = meta.finalizers.as_deref().unwrap_or_default();
            (deleted && !ours && !all.is_empty()).then(|| all.join(", "))
        };
        if let Some((id, error)) = id
            .as_ref()
            .and_then(|id| Some((id, self.hints.instances.get(id)?)))
        {
            let detail = format!("the cloud does not end it: {error}");
            let unblocks = "the cloud must accept the call: look at permissions, at protection against termination, at its limits";
            return Some(self.blocker(
                DrainBlockerKind::InstanceTerminationFailed,
                format!("instance {id}"),
                detail,
                unblocks.to_owned(),
            ));
        }
        if let Some(own) = &node.node
            && let Some(finalizers) = foreign(&own.metadata)
        {
            let what = node
                .node_name()
                .map(|name| format!("node {name}"))
                .unwrap_or_default();
            let detail = format!("it has finalizer {finalizers} of another controller");
            let unblocks = "the controller of the finalizer must remove it".to_owned();
            return Some(self.blocker(DrainBlockerKind::NodeFinalizer, what, detail, unblocks));
        }
        let claim = node.claim.as_deref()?;
        if let Some(finalizers) = foreign(&claim.metadata) {
            let detail = format!("it has finalizer {finalizers} of another controller");
            let unblocks = "the controller of the finalizer must remove it".to_owned();
            return Some(self.blocker(
                DrainBlockerKind::ClaimFinalizer,
                format!("nodeclaim {}", claim.name()),
                detail,
                unblocks,
            ));
        }
        let id = id.filter(|_| claim.is_instance_terminating())?;
        let detail = "the cloud is ending it".to_owned();
        let unblocks = "the cloud provider confirms the termination".to_owned();
        Some(self.blocker(
            DrainBlockerKind::InstanceTerminating,
            format!("instance {id}"),
            detail,
            unblocks,
        ))
    }

    /// Mortise's own writes that the API server rejects.
    fn refused_writes(&self) -> Vec<DrainBlocker> {
        let node = self.node.node_name().map(ObjectRef::Node);
        let claim = self.node.claim_name().map(ObjectRef::Claim);
        let refused = |target: ObjectRef| {
            let error = self.hints.writes.get(&target)?;
            let detail = format!("the API server refuses to change it: {error}");
            let unblocks =
                "change the admission webhook, policy or permission that rejects it".to_owned();
            Some(self.blocker(
                DrainBlockerKind::ApiWriteRejected,
                target.to_string(),
                detail,
                unblocks,
            ))
        };
        [node, claim]
            .into_iter()
            .flatten()
            .filter_map(refused)
            .collect()
    }
}
