//! Whether a drain would hand a pod over, and if not, why.

use mortise_planning::drain::pdb::Pdbs;
use mortise_planning::drain::{HandOver, NoHandOver, hand_over};
use mortise_state::snapshot::{Pod, Snapshot};
use serde_json::{Value, json};

/// The answer for a pod that asks to be handed over; `None` for any other.
///
/// # Cost
/// A pass over the PodDisruptionBudgets.
pub(super) fn of<'a>(
    snapshot: &'a Snapshot,
    pod: &Pod,
) -> Option<Result<HandOver<'a>, NoHandOver>> {
    pod.hand_over.as_ref()?;
    hand_over(snapshot, &Pdbs::new(snapshot), pod)
}

pub(super) fn text(found: &Result<HandOver<'_>, NoHandOver>) -> String {
    match found {
        Ok(found) => format!(
            "a drain restarts deployment {} and waits {} s",
            found.deployment,
            found.wait_ms / 1_000
        ),
        Err(why) => format!("not possible: {why}"),
    }
}

pub(super) fn json(found: &Result<HandOver<'_>, NoHandOver>) -> Value {
    match found {
        Ok(found) => {
            json!({ "deployment": found.deployment.to_string(), "wait_seconds": found.wait_ms / 1_000 })
        }
        Err(why) => json!({ "not_possible": why.to_string() }),
    }
}
