//! What the objects of a node that is being deleted say: whose it is, until when, why, and what they still lack.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::labels;
use mortise_apis::names::ObjectRef;
use mortise_apis::schema::conditions::{self, ConditionStatus};
use mortise_apis::schema::finalizers::has_finalizer;
use mortise_apis::values::GoDuration;
use mortise_cloudprovider::{InterruptionKind, PlannedInterruption};
use mortise_planning::reason::Reason;
use mortise_state::ledger::FenceReason;
use mortise_state::snapshot::{NodeKey, Snapshot};

/// It is being deleted, and our finalizer keeps it.
pub(super) fn is_going(meta: &ObjectMeta) -> bool {
    meta.deletion_timestamp.is_some() && has_finalizer(meta, labels::TERMINATION_FINALIZER)
}

/// The node that an object belongs to.
pub(super) fn key_of(snapshot: &Snapshot, target: &ObjectRef) -> Option<NodeKey> {
    match target {
        ObjectRef::Node(name) => snapshot.node(name).map(|node| node.key.clone()),
        ObjectRef::Claim(name) => snapshot
            .claims
            .get(name)
            .map(|claim| NodeKey::from_claim(claim)),
        _ => None,
    }
}

/// The time to write on a claim whose grace period began and that has none yet.
pub(super) fn new_deadline(claim: &NodeClaim) -> Option<Timestamp> {
    if claim.annotation(labels::TERMINATION_TIMESTAMP).is_some() {
        return None;
    }
    let period = GoDuration::parse(claim.spec.termination_grace_period.as_ref()?.as_str()).ok()?;
    let deleted = claim.metadata.deletion_timestamp.as_ref()?.0;
    Some(
        deleted
            .checked_add(jiff::SignedDuration::from(period))
            .unwrap_or(Timestamp::MAX),
    )
}

/// Why the claim goes, as the decider that deleted it wrote down.
pub(super) fn why(claim: &NodeClaim) -> Reason {
    let condition = conditions::find(&claim.status.conditions, "DisruptionReason")
        .filter(|each| each.status == ConditionStatus::True);
    match condition.map(|each| each.reason.as_str()) {
        Some("Empty") => Reason::Empty,
        Some("Underutilized") => Reason::Underutilized,
        Some("Drifted") => {
            let drifted = conditions::find(&claim.status.conditions, "Drifted")
                .map(|each| each.reason.clone());
            Reason::Drifted {
                why: drifted.unwrap_or_default(),
            }
        }
        _ if claim.annotation(labels::FENCE) == Some(FenceReason::Interruption.label()) => {
            let plan = claim.annotation(labels::INTERRUPTION);
            let plan = plan.and_then(PlannedInterruption::parse);
            let kind = plan.map_or(InterruptionKind::SpotInterruption, |plan| plan.kind);
            Reason::Interrupted { kind }
        }
        _ => match claim.annotation(labels::DELETION_REASON) {
            Some(by) => Reason::ClaimDeleted { by: by.to_owned() },
            None => Reason::Deleted,
        },
    }
}
