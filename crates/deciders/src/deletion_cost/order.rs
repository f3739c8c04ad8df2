//! The order in which pods of a workload that shrinks should leave their nodes, as numbers.

use std::collections::BTreeMap;

use jiff::Timestamp;
use mortise_apis::names::Uid;
use mortise_apis::resources::Resources;
use mortise_apis::taints::has_disrupted;
use mortise_apis::values::fnv1a;
use mortise_apis::values::money::MicroUsd;
use mortise_state::snapshot::{DeletionCost, Pod, StateNode};

/// Rank of pods on nodes that go anyway; other ranks are 1 to [`PARTS`].
const GOES: i32 = 9;
/// Parts of a node that pods of other workloads may use.
const PARTS: i32 = 8;
/// Bits of a cost that hold price, age and name of the node, those that hold age and name, and those that hold its name.
const NODE_BITS: u32 = 27;
const AGE_BITS: u32 = 23;
const NAME_BITS: u32 = 6;
/// Ages are counted from here, 2020-01-01, and in this unit: they fit for 30 years.
const EPOCH_S: i64 = 1_577_836_800;
const AGE_UNIT_S: i64 = 7_200;
/// Prices differ in steps of the square root of two, between about $0.02 and $3 an hour: these are the ends, in steps from a
/// micro-dollar.
const PRICE_STEPS: (u32, u32) = (28, 43);

/// Ranks the pods of one node.
pub(super) struct NodeRank<'a> {
    node: &'a StateNode,
    /// Price, age and name of the node; `None`: its pods should stay longer than those of other nodes.
    of_node: Option<i32>,
    goes: bool,
    all: Resources,
    by_owner: BTreeMap<&'a Uid, Resources>,
}

impl<'a> NodeRank<'a> {
    /// Cost: the number of pods on the node.
    pub(super) fn new(node: &'a StateNode, now: Timestamp) -> Self {
        let goes =
            node.deleting || node.disruption_state.drifted.is_some() || has_disrupted(&node.taints);
        let is_kept = node.disruption_state.do_not_disrupt
            || node.pods.iter().any(|pod| !pod.is_disruptable(now));
        let created = node.created().filter(|_| node.is_managed());
        let (mut all, mut by_owner) = (Resources::zero(), BTreeMap::new());
        for pod in node.reschedulable() {
            all.add_assign(&pod.class.requests);
            if let Some(owner) = &pod.owner {
                let own = by_owner.entry(&owner.uid).or_insert_with(Resources::zero);
                own.add_assign(&pod.class.requests);
            }
        }
        Self {
            node,
            of_node: created.filter(|_| goes || !is_kept).map(|created| {
                (price_step(node.price) << AGE_BITS) + (age(created) << NAME_BITS) + name(node)
            }),
            goes,
            all,
            by_owner,
        }
    }

    /// The deletion cost that a pod should have: what goes first has the least. `None`: none.
    ///
    /// First come pods on nodes that are drifted, disrupted or deleted; then those on nodes of which pods of other workloads use
    /// little, in eighths of a node, because these would have to move; then those on expensive nodes, and on young ones. Nodes that
    /// are alike in all of this differ by their names. It rarely changes, so a cost is rarely written again.
    pub(super) fn cost_of(&self, pod: &Pod) -> Option<i32> {
        let of_node = self.of_node?;
        let rank = if self.goes {
            GOES
        } else {
            PARTS - self.part_of_others(pod)
        };
        Some(-(rank << NODE_BITS) - of_node)
    }

    /// How many eighths of the node pods of other workloads use, of CPU or memory, whichever is more. What the pod's cost already
    /// says holds until the use is half an eighth beyond it.
    fn part_of_others(&self, pod: &Pod) -> i32 {
        let own = pod
            .owner
            .as_ref()
            .and_then(|owner| self.by_owner.get(&owner.uid));
        let others = own.map_or_else(|| self.all.clone(), |own| self.all.sub(own));
        let allocatable = &self.node.allocatable;
        // In halves of a part.
        let cpu = halves(others.cpu, allocatable.cpu);
        let used = cpu.max(halves(others.memory, allocatable.memory));
        let known = known_part(pod.deletion_cost);
        let is_near = |known: &i32| (2 * known - 1..=2 * known + 2).contains(&used);
        known
            .filter(is_near)
            .unwrap_or_else(|| (used / 2).min(PARTS - 1))
    }
}

fn age(created: Timestamp) -> i32 {
    let units = (created.as_second() - EPOCH_S) / AGE_UNIT_S;
    i32::try_from(units.clamp(0, (1 << (AGE_BITS - NAME_BITS)) - 1)).unwrap_or(0)
}

/// A number for the name: nodes that are launched together differ, so that pods leave one of them after the other.
fn name(node: &StateNode) -> i32 {
    let hash = fnv1a(node.name().bytes()) % (1 << NAME_BITS);
    i32::try_from(hash).unwrap_or(0)
}

/// 0 to 15; an unknown price is a low one.
fn price_step(price: Option<MicroUsd>) -> i32 {
    let price = price.map_or(1, |price| price.0.max(1)).unsigned_abs();
    let (least, most) = PRICE_STEPS;
    let step = u128::from(price).pow(2).ilog2().clamp(least, most) - least;
    i32::try_from(step).unwrap_or(0)
}

fn halves(used: i64, of: i64) -> i32 {
    let most = 2 * PARTS;
    let part = i128::from(used) * i128::from(most) / i128::from(of.max(1));
    i32::try_from(part.clamp(0, i128::from(most))).unwrap_or(most)
}

/// The part that a cost of ours stands for.
fn known_part(cost: DeletionCost) -> Option<i32> {
    let part = PARTS - (cost.own()?.checked_neg()? >> NODE_BITS);
    (0..PARTS).contains(&part).then_some(part)
}
