//! Questions about one pod that draining and disruption ask.

use jiff::{SignedDuration, Timestamp};

use crate::snapshot::{Pod, PodClass};
use mortise_apis::taints;
use mortise_apis::values::GoDuration;

/// How bad it is to evict a pod.
///
/// # Units
/// 2^-27 of the cost of an ordinary pod, so that deletion costs and priorities count without rounding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(transparent)]
pub struct EvictionCost(pub i64);

impl EvictionCost {
    /// The cost of an ordinary pod.
    pub const ONE: Self = Self(1 << 27);
}

/// A pod that was to be gone this long ago is not waited for any more.
///
/// # Source
/// Upstream's rule. The kubelet that would remove it is probably gone itself.
const STUCK_AFTER: SignedDuration = SignedDuration::from_mins(1);

impl Pod {
    /// 1 + deletion cost / 2^27 + priority / 2^25, within -10 and 10.
    #[must_use]
    pub fn eviction_cost(&self) -> EvictionCost {
        let EvictionCost(one) = EvictionCost::ONE;
        let cost = one + i64::from(self.deletion_cost) + 4 * i64::from(self.class.priority);
        EvictionCost(cost.clamp(-10 * one, 10 * one))
    }

    /// The pod's annotation protects it at this time: `true` for ever, or a positive duration since it was started (as long
    /// as it is not started, it counts as protected).
    #[must_use]
    pub fn is_protected(&self, now: Timestamp) -> bool {
        let Some(text) = self.do_not_disrupt.as_deref() else {
            return false;
        };
        if text == "true" {
            return true;
        }
        let Some(protection) = Self::protection(text) else {
            return false;
        };
        self.started
            .is_none_or(|started| now.duration_since(started) < protection)
    }

    /// When the pod's protection ends by itself; `None` when it is not protected, for ever, or not started.
    #[must_use]
    pub fn protected_until(&self) -> Option<Timestamp> {
        let protection = Self::protection(self.do_not_disrupt.as_deref()?)?;
        self.started?.checked_add(protection).ok()
    }

    fn protection(text: &str) -> Option<SignedDuration> {
        let nanos = text.parse::<GoDuration>().ok()?.as_nanos();
        (nanos > 0).then(|| SignedDuration::from_nanos(nanos))
    }

    /// The annotation is there but says nothing that is understood.
    #[must_use]
    pub fn has_invalid_protection(&self) -> bool {
        let text = self.do_not_disrupt.as_deref();
        text.is_some_and(|text| {
            text != "true" && text != "false" && Self::protection(text).is_none()
        })
    }

    /// It was to be gone more than a minute ago.
    #[must_use]
    pub fn is_stuck_terminating(&self, now: Timestamp) -> bool {
        self.deleted
            .is_some_and(|at| now.duration_since(at) > STUCK_AFTER)
    }

    /// A drain deals with it: it does not tolerate the drain's taint, is no node's own pod, and is not stuck.
    #[must_use]
    pub fn is_drainable(&self, now: Timestamp) -> bool {
        !self.class.tolerates_disruption()
            && !self.is_node_owned()
            && !self.is_stuck_terminating(now)
    }

    /// A drain waits for it: drainable and not over.
    #[must_use]
    pub fn is_waiting_eviction(&self, now: Timestamp) -> bool {
        !self.is_terminal() && self.is_drainable(now)
    }

    /// It can be asked to leave now: active, does not tolerate the drain's taint, no node's own pod, not protected.
    #[must_use]
    pub fn is_evictable(&self, now: Timestamp) -> bool {
        self.is_active()
            && !self.class.tolerates_disruption()
            && !self.is_node_owned()
            && !self.is_protected(now)
    }

    /// It does not stand in the way of a disruption by annotation: not active, or not protected.
    #[must_use]
    pub fn is_disruptable(&self, now: Timestamp) -> bool {
        !(self.is_active() && self.is_protected(now))
    }

    /// It is being deleted and would be gone later than `deadline`.
    #[must_use]
    pub fn outlives(&self, deadline: Timestamp) -> bool {
        self.deleted.is_some_and(|at| at > deadline)
    }
}

impl PodClass {
    /// It tolerates the taint of nodes that are going, so a drain does not touch it.
    #[must_use]
    pub fn tolerates_disruption(&self) -> bool {
        let taint = taints::disrupted();
        self.tolerations
            .iter()
            .any(|toleration| taints::tolerates(toleration, &taint))
    }
}
