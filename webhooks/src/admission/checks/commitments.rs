//! Commitments that pay for nothing.

use jiff::Timestamp;
use mortise_apis::labels;
use mortise_apis::node_pool_policy::{Commitment, NodePoolPolicy};
use mortise_apis::requirements::Requirement;
use mortise_state::snapshot::Snapshot;

use super::{AdmissionContext, AdmissionResult, Check};

/// Those of a policy that have ended, and those whose instance types none of its NodePools may launch.
pub(super) fn run(
    context: &AdmissionContext<'_>,
    policy: &NodePoolPolicy,
    answer: &mut AdmissionResult,
) {
    let snapshot = context.snapshot;
    for (at, commitment) in policy.commitments(Timestamp::MIN).enumerate() {
        if answer.is_full() {
            return;
        }
        let ended = commitment.until.filter(|until| *until <= snapshot.taken_at);
        if let Some(until) = ended {
            answer.warn(
                Check::Policy,
                format!("spec.commitments[{at}].until"),
                format!("{until} has passed, so it pays for nothing"),
                "write a later time, or take the commitment out",
            );
        } else if !may_be_used(&commitment, policy, snapshot) {
            answer.warn(
                Check::Policy,
                format!("spec.commitments[{at}].requirements"),
                "no NodePool of the policy may launch on-demand nodes that meet them".to_owned(),
                "correct them, or allow such nodes in a NodePool",
            );
        }
    }
}

/// Whether a NodePool may launch what a commitment pays for, or it is not known what it may launch.
fn may_be_used(commitment: &Commitment, policy: &NodePoolPolicy, snapshot: &Snapshot) -> bool {
    let known = &snapshot.well_known;
    let mut pools = policy.spec.node_pools.iter();
    pools.any(|name| {
        let Some(pool) = snapshot.pools.get(name.as_str()) else {
            return true;
        };
        let Some(catalog) = snapshot.catalog_of(pool) else {
            return true;
        };
        let table = catalog.table();
        let mut allowed = pool.requirements();
        let on_demand = labels::CAPACITY_TYPE_ON_DEMAND;
        allowed.add(Requirement::is(labels::CAPACITY_TYPE, on_demand));
        let asked = &commitment.requirements;
        let mut kinds = table.kinds_meeting(&allowed, known);
        kinds.and(&table.kinds_meeting(asked, known));
        let mut types = table.meeting(&allowed);
        types.and(&table.having(asked));
        types.meets(&table.offered(&kinds))
    })
}
