//! When a pod goes if its workload shrinks, as its deletion cost says.

use mortise_state::snapshot::{DeletionCost, Pod, Snapshot};
use serde_json::{Value, json};

/// The deletion cost of a pod among those of its workload.
pub(super) struct DeletionOrder {
    cost: i32,
    is_own: bool,
    /// Pods of the workload with lower costs.
    earlier: usize,
    /// Pods of the workload.
    pods: usize,
}

impl DeletionOrder {
    /// `None` for a pod without a cost. Cost: one pass over all pods.
    pub(super) fn of(snapshot: &Snapshot, pod: &Pod) -> Option<Self> {
        let (cost, is_own) = match pod.deletion_cost {
            DeletionCost::None => return None,
            DeletionCost::User(cost) => (cost, false),
            DeletionCost::Own(cost) => (cost, true),
        };
        let of = &pod.owner.as_ref()?.uid;
        let is_of = |each: &Pod| each.owner.as_ref().is_some_and(|owner| owner.uid == *of);
        let all = snapshot.pods.values();
        let all = all.filter(|each| each.is_active() && is_of(each));
        let (mut earlier, mut pods) = (0, 0);
        for each in all {
            pods += 1;
            earlier += usize::from(each.deletion_cost.value() < cost);
        }
        Some(Self {
            cost,
            is_own,
            earlier,
            pods,
        })
    }

    pub(super) fn text(&self) -> String {
        let Self {
            cost,
            is_own,
            earlier,
            pods,
        } = self;
        let whose = if *is_own { "mortise" } else { "its user" };
        format!("{cost} of {whose}: {earlier} of {pods} pods of its owner go first")
    }

    pub(super) fn json(&self) -> Value {
        json!({ "cost": self.cost, "own": self.is_own, "earlier_pods": self.earlier, "pods": self.pods })
    }
}
