//! Resources as flat arrays, so that a capacity check is a few integer comparisons.

use std::collections::BTreeSet;
use std::sync::Arc;

use smallvec::SmallVec;

use mortise_apis::resources::Resources;

/// One amount per dimension, in the order of [`ResourceDimensions`].
pub(super) type ResourceVector = SmallVec<[i64; 6]>;

/// CPU, memory, pods and local disk; extended resources follow.
const STANDARD: usize = 4;

/// The resources of one pass: the standard four, and those that some pod or DaemonSet requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ResourceDimensions {
    extended: Vec<Arc<str>>,
}

impl ResourceDimensions {
    /// The dimensions of all these requests.
    pub(super) fn new<'a>(requests: impl IntoIterator<Item = &'a Resources>) -> Self {
        let mut names: BTreeSet<&Arc<str>> = BTreeSet::new();
        for each in requests {
            names.extend(each.extended.iter().map(|(name, _)| name));
        }
        Self {
            extended: names.into_iter().cloned().collect(),
        }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        STANDARD + self.extended.len()
    }

    /// The amounts of these resources; resources without a dimension are dropped.
    pub(super) fn flat(&self, of: &Resources) -> ResourceVector {
        let standard = [of.cpu, of.memory, of.pods, of.ephemeral_storage];
        standard
            .into_iter()
            .chain(self.extended.iter().map(|name| of.extended(name)))
            .collect()
    }

    /// Whether some resource without a dimension is overcommitted: Karpenter places nothing on such a node.
    pub(super) fn is_overcommitted_elsewhere(&self, free: &Resources) -> bool {
        free.extended
            .iter()
            .any(|(name, amount)| *amount < 0 && !self.extended.contains(name))
    }

    /// The name of a dimension.
    pub(super) fn name(&self, at: usize) -> &str {
        match at {
            0 => mortise_apis::resources::CPU,
            1 => mortise_apis::resources::MEMORY,
            2 => mortise_apis::resources::PODS,
            3 => mortise_apis::resources::EPHEMERAL_STORAGE,
            _ => self.extended.get(at - STANDARD).map_or("", |name| name),
        }
    }
}

/// Whether the amounts fit.
#[inline]
pub(super) fn fit(asked: &[i64], free: &[i64]) -> bool {
    asked.iter().zip(free).all(|(asked, free)| asked <= free)
}

/// Whether the sum of two amounts fits.
#[inline]
pub(super) fn sum_fits(taken: &[i64], more: &[i64], free: &[i64]) -> bool {
    taken
        .iter()
        .zip(more)
        .zip(free)
        .all(|((taken, more), free)| taken.saturating_add(*more) <= *free)
}

/// Adds in place.
pub(super) fn add(to: &mut [i64], more: &[i64]) {
    for (to, more) in to.iter_mut().zip(more) {
        *to = to.saturating_add(*more);
    }
}

/// Subtracts in place.
pub(super) fn subtract(from: &mut [i64], less: &[i64]) {
    for (from, less) in from.iter_mut().zip(less) {
        *from = from.saturating_sub(*less);
    }
}

/// The vectors that no other one equals or exceeds everywhere: an amount that fits any of the given fits one of these.
pub(super) fn maximal(mut all: Vec<ResourceVector>) -> Vec<ResourceVector> {
    all.sort_unstable_by(|a, b| b.cmp(a));
    let mut kept: Vec<ResourceVector> = Vec::new();
    for each in all {
        if !kept.iter().any(|larger| fit(&each, larger)) {
            kept.push(each);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maximal_vectors_answer_for_all() {
        let all: Vec<ResourceVector> = [[4, 8], [2, 4], [1, 16], [4, 8], [8, 1]]
            .map(|v| v.into_iter().collect())
            .to_vec();
        let kept = maximal(all.clone());
        assert_eq!(kept.len(), 3);
        for cpu in 0..10 {
            for memory in 0..20 {
                let asked = [cpu, memory];
                assert_eq!(
                    all.iter().any(|v| fit(&asked, v)),
                    kept.iter().any(|v| fit(&asked, v))
                );
            }
        }
    }
}
