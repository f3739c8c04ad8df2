//! The deletion cost of a pod: whose number it is decides what it means.

use mortise_apis::labels;

/// What the annotation `controller.kubernetes.io/pod-deletion-cost` of a pod says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeletionCost {
    /// The pod has none.
    #[default]
    None,
    /// Its user, or another controller, wrote it: the pod is worth more or less than others. A number that cannot be read is 0.
    User(i32),
    /// This service wrote it: the node should go earlier or later than others, which says nothing of the pod.
    Own(i32),
}

impl DeletionCost {
    /// Reads the annotations of a pod. It is our own as long as both annotations say the same.
    pub(super) fn of<'a>(annotation: impl Fn(&str) -> Option<&'a str>) -> Self {
        let Some(text) = annotation(labels::POD_DELETION_COST) else {
            return Self::None;
        };
        let own = annotation(labels::OWN_DELETION_COST).filter(|own| *own == text);
        match own.and_then(|own| own.parse().ok()) {
            Some(own) => Self::Own(own),
            None => Self::User(number(text)),
        }
    }

    /// The number that this service wrote.
    #[must_use]
    pub const fn own(self) -> Option<i32> {
        match self {
            Self::Own(cost) => Some(cost),
            Self::None | Self::User(_) => None,
        }
    }

    /// The number by which the ReplicaSet controller compares pods.
    #[must_use]
    pub const fn value(self) -> i32 {
        match self {
            Self::None => 0,
            Self::User(cost) | Self::Own(cost) => cost,
        }
    }

    /// What it adds to the cost of evicting the pod.
    #[must_use]
    pub const fn of_eviction(self) -> i32 {
        match self {
            Self::None | Self::Own(_) => 0,
            Self::User(cost) => cost,
        }
    }
}

/// The number, rounded to the nearest integer and clamped to 32 bits; 0 if it is not a number.
#[expect(
    clippy::cast_possible_truncation,
    reason = "a cast from float saturates"
)]
fn number(text: &str) -> i32 {
    text.parse()
        .unwrap_or_else(|_| text.parse::<f64>().map_or(0, |cost| cost.round() as i32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_is_our_own_while_both_annotations_agree() {
        let of = |cost: Option<&'static str>, own: Option<&'static str>| {
            DeletionCost::of(|key| match key {
                labels::POD_DELETION_COST => cost,
                labels::OWN_DELETION_COST => own,
                _ => None,
            })
        };
        assert_eq!(of(None, None), DeletionCost::None);
        assert_eq!(of(None, Some("-3")), DeletionCost::None);
        assert_eq!(of(Some("-3"), Some("-3")), DeletionCost::Own(-3));
        assert_eq!(of(Some("100"), Some("-3")), DeletionCost::User(100));
        assert_eq!(of(Some("7.6"), None), DeletionCost::User(8));
        assert_eq!(of(Some("many"), Some("many")), DeletionCost::User(0));
        assert_eq!(DeletionCost::Own(-3).value(), -3);
        assert_eq!(DeletionCost::Own(-3).of_eviction(), 0);
        assert_eq!(DeletionCost::User(5).of_eviction(), 5);
    }
}
