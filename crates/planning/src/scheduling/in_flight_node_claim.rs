//! In-flight NodeClaims: new NodeClaims while a pass fills them.

use super::narrowed_template::NarrowedTemplateId;
use super::resource_vector::ResourceVector;
use mortise_apis::resources::Resources;
use mortise_apis::values::money::MicroUsd;
use mortise_state::pods::HostPort;

/// A NodeClaim under construction.
#[derive(Debug)]
pub(super) struct InFlightNodeClaim {
    /// Its narrowed template.
    pub(super) shape: NarrowedTemplateId,
    /// Sum of its pods' requests.
    pub(super) taken: ResourceVector,
    /// Host ports of its pods.
    pub(super) ports: Vec<HostPort>,
    /// Its pods, by index, in the order in which they were placed.
    pub(super) pods: Vec<usize>,
    /// minValues were lowered.
    pub(super) relaxed: bool,
    /// Reservations of which it holds one instance each, by index. Sorted.
    pub(super) reservations: Vec<usize>,
    /// The capacity that was counted against the limits of its NodePool when it was opened.
    pub(super) counted_capacity: Resources,
    /// Price that is charged to the policy of its NodePool.
    pub(super) counted_price: MicroUsd,
}

/// In-flight NodeClaims in the order in which they are tried: fewest pods first. A NodeClaim that gets a pod goes before
/// those that have as many already; a new one goes after those that have one pod.
///
/// # Source
/// The order that Karpenter's sort by number of pods gives.
#[derive(Debug, Default)]
pub(super) struct FillOrder {
    claims: Vec<u32>,
    /// For each number of pods from 0: where the NodeClaims with more pods begin.
    ends: Vec<usize>,
}

impl FillOrder {
    /// The NodeClaims in order.
    pub(super) fn claims(&self) -> &[u32] {
        &self.claims
    }

    /// Adds a NodeClaim with its first pod.
    pub(super) fn open(&mut self, claim: u32) {
        self.grow(1);
        let at = self.ends[1];
        self.claims.insert(at, claim);
        self.ends[1..].iter_mut().for_each(|end| *end += 1);
    }

    /// Moves the NodeClaim at a position, which had `pods` pods and got one more.
    pub(super) fn bump(&mut self, position: usize, pods: usize) {
        self.grow(pods + 1);
        let end = self.ends[pods];
        self.claims[position..end].rotate_left(1);
        self.ends[pods] -= 1;
    }

    fn grow(&mut self, pods: usize) {
        while self.ends.len() <= pods {
            self.ends.push(self.claims.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewest_pods_first_and_stable() {
        let mut order = FillOrder::default();
        for claim in 0..4 {
            order.open(claim);
        }
        assert_eq!(order.claims(), [0, 1, 2, 3]);
        order.bump(1, 1);
        assert_eq!(order.claims(), [0, 2, 3, 1]);
        order.bump(0, 1);
        assert_eq!(
            order.claims(),
            [2, 3, 0, 1],
            "before those that had two already"
        );
        order.open(4);
        assert_eq!(order.claims(), [2, 3, 4, 0, 1], "after those that have one");
        order.bump(3, 2);
        assert_eq!(order.claims(), [2, 3, 4, 1, 0]);
        order.bump(4, 3);
        order.bump(0, 1);
        assert_eq!(order.claims(), [3, 4, 2, 1, 0]);
    }
}
