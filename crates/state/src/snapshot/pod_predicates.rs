//! Properties of a pod that draining and disruption depend on.

use jiff::{SignedDuration, Timestamp};

use crate::snapshot::{LaunchHold, Pod, PodClass, ProtectingAnnotation};
use mortise_apis::taints;
use mortise_apis::values::GoDuration;

/// Cost of evicting a pod.
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

/// A pod whose deletion timestamp is older than this no longer blocks a drain.
///
/// # Source
/// As in Karpenter. The kubelet that would remove the pod is probably not running.
const STUCK_AFTER: SignedDuration = SignedDuration::from_mins(1);

impl Pod {
    /// 1 + deletion cost of its user / 2^27 + priority / 2^25, within -10 and 10.
    #[must_use]
    pub fn eviction_cost(&self) -> EvictionCost {
        let EvictionCost(one) = EvictionCost::ONE;
        let cost =
            one + i64::from(self.deletion_cost.of_eviction()) + 4 * i64::from(self.class.priority);
        EvictionCost(cost.clamp(-10 * one, 10 * one))
    }

    /// Whether the annotation protects the pod at this time: `true` indefinitely, or a positive duration since the pod was
    /// started (until it is started, it counts as protected).
    #[must_use]
    pub fn is_protected(&self, now: Timestamp) -> bool {
        if self.is_protected_for_good() {
            return true;
        }
        let Some(text) = self.do_not_disrupt.as_deref() else {
            return false;
        };
        let Some(protection) = Self::protection(text) else {
            return false;
        };
        self.started
            .is_none_or(|started| now.duration_since(started) < protection)
    }

    /// What keeps nodes from being launched for it now, by its own annotations ([`Gangs::held`](super::Gangs::held) knows of requests as
    /// well). A pod on a node that goes has had one, and gets another.
    #[must_use]
    pub fn held(&self, now: Timestamp) -> Option<&LaunchHold> {
        let hold = self.launch_hold.as_ref();
        hold.filter(|hold| self.node.is_none() && hold.holds(now))
    }

    /// Whether an annotation protects it indefinitely.
    #[must_use]
    pub fn is_protected_for_good(&self) -> bool {
        self.is_unsafe_to_evict || self.do_not_disrupt.as_deref() == Some("true")
    }

    /// The annotation that protects it, if one does.
    #[must_use]
    pub fn protecting_annotation(&self) -> ProtectingAnnotation {
        let is_other = self.do_not_disrupt.as_deref() != Some("true");
        if self.is_unsafe_to_evict && is_other {
            ProtectingAnnotation::SafeToEvict
        } else {
            ProtectingAnnotation::DoNotDisrupt
        }
    }

    /// When the protection of the pod ends; `None` if it is not protected, indefinitely protected, or not started.
    #[must_use]
    pub fn protected_until(&self) -> Option<Timestamp> {
        if self.is_unsafe_to_evict {
            return None;
        }
        let protection = Self::protection(self.do_not_disrupt.as_deref()?)?;
        self.started?.checked_add(protection).ok()
    }

    fn protection(text: &str) -> Option<SignedDuration> {
        let nanos = text.parse::<GoDuration>().ok()?.as_nanos();
        (nanos > 0).then(|| SignedDuration::from_nanos(nanos))
    }

    /// Whether the annotation has an invalid value.
    #[must_use]
    pub fn has_invalid_protection(&self) -> bool {
        let text = self.do_not_disrupt.as_deref();
        text.is_some_and(|text| {
            text != "true" && text != "false" && Self::protection(text).is_none()
        })
    }

    /// Whether it should have been removed more than a minute ago.
    #[must_use]
    pub fn is_stuck_terminating(&self, now: Timestamp) -> bool {
        self.deleted
            .is_some_and(|at| now.duration_since(at) > STUCK_AFTER)
    }

    /// Whether a drain handles it: it does not tolerate the taint of the drain, is no static pod, and is not stuck.
    #[must_use]
    pub fn is_drainable(&self, now: Timestamp) -> bool {
        !self.class.tolerates_disruption()
            && !self.is_node_owned()
            && !self.is_stuck_terminating(now)
    }

    /// Whether a drain waits for it: drainable and not terminal.
    #[must_use]
    pub fn is_waiting_eviction(&self, now: Timestamp) -> bool {
        !self.is_terminal() && self.is_drainable(now)
    }

    /// Whether it can be evicted now: active, does not tolerate the taint of the drain, no static pod, not protected.
    #[must_use]
    pub fn is_evictable(&self, now: Timestamp) -> bool {
        self.is_active()
            && !self.class.tolerates_disruption()
            && !self.is_node_owned()
            && !self.is_protected(now)
    }

    /// Whether its annotation allows a disruption: not active, or not protected.
    #[must_use]
    pub fn is_disruptable(&self, now: Timestamp) -> bool {
        !(self.is_active() && self.is_protected(now))
    }

    /// Whether it is being deleted and will run beyond `deadline`.
    #[must_use]
    pub fn outlives(&self, deadline: Timestamp) -> bool {
        self.deleted.is_some_and(|at| at > deadline)
    }
}

impl PodClass {
    /// Whether it tolerates the taint of nodes that are being deleted, so that a drain ignores it.
    #[must_use]
    pub fn tolerates_disruption(&self) -> bool {
        let taint = taints::disrupted();
        self.tolerations
            .iter()
            .any(|toleration| taints::tolerates(toleration, &taint))
    }
}
