//! What is paid for in advance, and which nodes use it.
//!
//! # Problem
//! A Savings Plan or Reserved Instances cost the same whether they are used or not. So what a node costs depends on the others: one
//! more node costs nothing while a commitment has room for it, and removing a node saves nothing while no other node takes its place
//! in the commitment.
//!
//! # Rule
//! Commitments are used in order: policies by name, and those of a policy as they are written. The most expensive on-demand nodes come
//! first. Dollars pay for parts of nodes as well, instances for whole ones. What commitments do not pay for is the bill; what a node
//! costs is the difference that it makes to the bill.
//!
//! A node counts from the creation of its NodeClaim until it is being deleted: what leaves is replaced already. Where it can wait, as
//! consolidation can, it counts until it is gone: a drain may take long, and both would use the same commitment. A NodeClaim that is not
//! launched yet counts as the cheapest instance type that it allows, if it allows on-demand alone.
//!
//! # Cost
//! A pass over the NodeClaims, once per snapshot, and one over the on-demand nodes for each question about the bill; nothing without
//! commitments.

use std::cmp::Reverse;
use std::sync::{Arc, OnceLock};

use super::policy_use::catalog_of;
use super::{NodeKey, PaidCapacity, Snapshot, StateNode};
use crate::catalog::Catalog;
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::labels::{self, WellKnown};
use mortise_apis::node_pool_policy::CommitmentAmount;
use mortise_apis::requirements::Requirements;
use mortise_apis::values::money::MicroUsd;
use mortise_cloudprovider::CapacityType;

/// An on-demand node that some commitment may pay for.
#[derive(Clone, Debug)]
struct PayableNode {
    /// `None` for one that is only planned.
    key: Option<NodeKey>,
    price: MicroUsd,
    /// Positions of those commitments.
    by: Arc<[usize]>,
}

/// All commitments of a snapshot, and the nodes that they may pay for.
#[derive(Clone, Debug)]
pub struct Commitments {
    all: Arc<[PaidCapacity]>,
    /// The most expensive first.
    nodes: Vec<PayableNode>,
    /// Those that are being deleted, in any order.
    leaving: Vec<PayableNode>,
    /// What they cost that none of the commitments pays for, once that is asked.
    bill: OnceLock<MicroUsd>,
}

/// How much of each commitment is left, in its own unit.
#[derive(Clone, Debug)]
pub struct CommitmentsLeft {
    all: Arc<[PaidCapacity]>,
    left: Vec<i64>,
    /// What nodes cost that none of them pays for.
    bill: MicroUsd,
    /// By commitment, the price of nodes that it would pay for if it were larger.
    beyond: Vec<MicroUsd>,
    /// By commitment, the nodes that it pays for, in part or whole.
    nodes: Vec<usize>,
}

/// One commitment, and how much of it is used.
#[derive(Clone, Debug)]
pub struct CommitmentUse<'a> {
    /// The commitment.
    pub of: &'a PaidCapacity,
    /// Its amount: dollars per hour in millionths, or instances.
    pub amount: i64,
    /// What is used of it, in the same unit.
    pub used: i64,
    /// Nodes that it pays for, in part or whole.
    pub nodes: usize,
    /// What other nodes cost on-demand that it would pay for if it were larger.
    pub beyond: MicroUsd,
}

/// The commitments of a snapshot. A copy of a snapshot computes its own.
#[derive(Debug, Default)]
pub struct CommitmentsCell(OnceLock<Option<Arc<Commitments>>>);

impl Clone for CommitmentsCell {
    /// Empty: a snapshot is copied to be changed.
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl CommitmentsCell {
    /// Those of this snapshot, which the cell is part of.
    pub(super) fn get(&self, snapshot: &Snapshot) -> Option<&Arc<Commitments>> {
        let all = self
            .0
            .get_or_init(|| Commitments::of(snapshot).map(Arc::new));
        all.as_ref()
    }
}

impl Commitments {
    /// Those of the policies, whichever of them is in force; `None` without any.
    fn of(snapshot: &Snapshot) -> Option<Self> {
        let all = snapshot.paid.all();
        if all.is_empty() {
            return None;
        }
        let unseen = snapshot.unseen_claims();
        let unseen = unseen.filter_map(|(_, claim)| PayableNode::of_claim(claim, snapshot));
        let known = |is_leaving: bool| {
            let nodes = snapshot.nodes.values();
            let nodes = nodes.filter(move |node| node.deleting == is_leaving);
            nodes.filter_map(|node| PayableNode::of_node(node, snapshot))
        };
        let nodes = known(false).chain(unseen).collect();
        Some(Self::new(Arc::clone(all), nodes, known(true).collect()))
    }

    fn new(
        all: Arc<[PaidCapacity]>,
        mut nodes: Vec<PayableNode>,
        leaving: Vec<PayableNode>,
    ) -> Self {
        nodes.sort_by(|a, b| (b.price, &a.key).cmp(&(a.price, &b.key)));
        Self {
            all,
            nodes,
            leaving,
            bill: OnceLock::new(),
        }
    }

    /// What nodes cost that none of them pays for.
    fn bill(&self) -> MicroUsd {
        *self.bill.get_or_init(|| self.left_without(|_| false).bill)
    }

    /// What is left of them when these nodes are gone, and those that are being deleted too.
    #[must_use]
    pub fn left_without(&self, is_gone: impl Fn(&NodeKey) -> bool) -> CommitmentsLeft {
        self.left_by(self.nodes.iter(), is_gone)
    }

    /// What is left of them when these nodes are gone, while those that are being deleted still use them.
    #[must_use]
    pub fn left_meanwhile(&self, is_gone: impl Fn(&NodeKey) -> bool) -> CommitmentsLeft {
        let mut nodes: Vec<&PayableNode> = self.nodes.iter().chain(&self.leaving).collect();
        nodes.sort_by_key(|node| Reverse(node.price));
        self.left_by(nodes.into_iter(), is_gone)
    }

    /// What these nodes leave, the most expensive first.
    fn left_by<'n>(
        &self,
        nodes: impl Iterator<Item = &'n PayableNode>,
        is_gone: impl Fn(&NodeKey) -> bool,
    ) -> CommitmentsLeft {
        let nothing = || vec![MicroUsd(0); self.all.len()];
        let mut found = CommitmentsLeft {
            all: Arc::clone(&self.all),
            left: self.all.iter().map(PaidCapacity::amount).collect(),
            bill: MicroUsd(0),
            beyond: nothing(),
            nodes: vec![0; self.all.len()],
        };
        for node in nodes.filter(|node| !node.is_one(&is_gone)) {
            found.count(node);
        }
        found
    }

    /// Some nodes leave, and nodes of these prices are there that the commitments at these positions pay for.
    #[must_use]
    pub fn with_planned(
        &self,
        leaves: impl Fn(&NodeKey) -> bool,
        planned: impl Iterator<Item = (MicroUsd, usize)>,
    ) -> Self {
        let nodes = self.nodes.iter().cloned();
        let (leave, stay): (Vec<_>, Vec<_>) = nodes.partition(|node| node.is_one(&leaves));
        let new = planned.map(|(price, at)| PayableNode {
            key: None,
            price,
            by: Arc::new([at]),
        });
        let stay = stay.into_iter().chain(new).collect();
        let leaving = self.leaving.iter().cloned().chain(leave).collect();
        Self::new(Arc::clone(&self.all), stay, leaving)
    }

    /// What new nodes raise the bill by, each with its price and the positions of the commitments that may pay for it, when these nodes
    /// are gone, and while those that are being deleted still use the commitments. More than nothing also where a commitment has room for
    /// each: a new node may take the place of a cheaper one in the first, and what is left of the next is less than that needs.
    #[must_use]
    pub fn raised_by(
        &self,
        new: impl Iterator<Item = (MicroUsd, Arc<[usize]>)>,
        is_gone: impl Fn(&NodeKey) -> bool,
    ) -> MicroUsd {
        let new = new.map(|(price, by)| PayableNode {
            key: None,
            price,
            by,
        });
        let new: Vec<PayableNode> = new.collect();
        let stays = |node: &&PayableNode| !node.is_one(&is_gone);
        let mut nodes: Vec<&PayableNode> = self.nodes.iter().chain(&self.leaving).collect();
        nodes.retain(stays);
        let bill = |nodes: &mut Vec<&PayableNode>| {
            nodes.sort_by_key(|node| Reverse(node.price));
            self.left_by(nodes.iter().copied(), |_| false).bill
        };
        let before = bill(&mut nodes);
        nodes.extend(&new);
        bill(&mut nodes) - before
    }

    /// What of the price of these nodes is paid whether they are there or not: removing them does not save it.
    #[must_use]
    pub fn sunk(&self, is_gone: impl Fn(&NodeKey) -> bool) -> MicroUsd {
        let gone = self.nodes.iter().filter(|node| node.is_one(&is_gone));
        let price = gone.fold(MicroUsd(0), |sum, node| sum + node.price);
        if price.0 == 0 {
            return price;
        }
        let saved = self.bill() - self.left_without(is_gone).bill;
        // Of commitments that overlap, others may be used for what is left.
        MicroUsd((price - saved).0.clamp(0, price.0))
    }
}

impl CommitmentUse<'_> {
    /// What it is counted in: `instances`, or `dollars_per_hour` at on-demand prices.
    #[must_use]
    pub const fn unit(&self) -> &'static str {
        match self.of.commitment.amount {
            CommitmentAmount::OnDemandPrice(_) => "dollars_per_hour",
            CommitmentAmount::Instances(_) => "instances",
        }
    }

    /// A number of this unit, from one in the unit of the amount.
    #[must_use]
    pub fn in_unit(&self, amount: i64) -> f64 {
        match self.of.commitment.amount {
            CommitmentAmount::OnDemandPrice(_) => MicroUsd(amount).dollars(),
            CommitmentAmount::Instances(_) => i32::try_from(amount).map_or(f64::MAX, f64::from),
        }
    }
}

impl CommitmentsLeft {
    fn count(&mut self, node: &PayableNode) {
        let mut rest = node.price;
        for at in &*node.by {
            let (Some(of), Some(left)) = (self.all.get(*at), self.left.get_mut(*at)) else {
                continue;
            };
            let paid = of.take(left, rest, node.price);
            rest = rest - paid;
            if paid.0 > 0 {
                self.nodes
                    .get_mut(*at)
                    .into_iter()
                    .for_each(|nodes| *nodes += 1);
            }
            if rest.0 == 0 {
                return;
            }
        }
        for at in &*node.by {
            self.beyond
                .get_mut(*at)
                .into_iter()
                .for_each(|beyond| *beyond += rest);
        }
        self.bill += rest;
    }

    /// All of them with their positions, in the order in which they are used.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &PaidCapacity)> {
        self.all.iter().enumerate()
    }

    /// Whether a whole node of this price is paid for by what is left of one.
    #[must_use]
    pub fn has_room(&self, at: usize, price: MicroUsd) -> bool {
        let (Some(of), Some(left)) = (self.all.get(at), self.left.get(at)) else {
            return false;
        };
        match of.commitment.amount {
            CommitmentAmount::OnDemandPrice(_) => price.0 <= *left,
            CommitmentAmount::Instances(_) => *left > 0,
        }
    }

    /// Whether anything is left of any.
    #[must_use]
    pub fn is_anything(&self) -> bool {
        self.left.iter().any(|left| *left > 0)
    }

    /// Uses what a node of this price takes of one.
    pub fn take(&mut self, at: usize, price: MicroUsd) {
        if let (Some(of), Some(left)) = (self.all.get(at), self.left.get_mut(at)) {
            of.take(left, price, price);
        }
    }

    /// Each with what is used of it.
    pub fn uses(&self) -> impl Iterator<Item = CommitmentUse<'_>> {
        let both = self.all.iter().zip(&self.left);
        let more = self.beyond.iter().zip(&self.nodes);
        both.zip(more)
            .map(|((of, left), (beyond, nodes))| CommitmentUse {
                of,
                amount: of.amount(),
                used: of.amount() - left,
                nodes: *nodes,
                beyond: *beyond,
            })
    }
}

impl PayableNode {
    fn is_one(&self, of: impl Fn(&NodeKey) -> bool) -> bool {
        self.key.as_ref().is_some_and(of)
    }

    /// `None` if no commitment may pay for it.
    fn of_node(node: &StateNode, snapshot: &Snapshot) -> Option<Self> {
        // A NodeClaim that allows one instance type alone has its label before it is launched.
        match node.price {
            Some(price) => Self::new(&node.key, price, &node.paid_by),
            None if node.deleting => None,
            None => Self::of_claim(node.claim.as_ref()?, snapshot),
        }
    }

    /// The same of a NodeClaim that is not launched yet.
    fn of_claim(claim: &NodeClaim, snapshot: &Snapshot) -> Option<Self> {
        let (price, by) = planned(claim, snapshot)?;
        Self::new(&NodeKey::from_claim(claim), price, &by)
    }

    fn new(key: &NodeKey, price: MicroUsd, by: &Arc<[usize]>) -> Option<Self> {
        (!by.is_empty() && price.0 > 0).then(|| Self {
            key: Some(key.clone()),
            price,
            by: Arc::clone(by),
        })
    }
}

/// The price of a NodeClaim that is not launched yet, and who may pay for it; `None` if it may be anything but on-demand.
fn planned(claim: &NodeClaim, snapshot: &Snapshot) -> Option<(MicroUsd, Arc<[usize]>)> {
    if claim.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let allowed = claim.requirements();
    let asked = allowed.get(labels::CAPACITY_TYPE)?;
    let others = [CapacityType::Spot, CapacityType::Reserved];
    if others.iter().any(|other| asked.has(other.as_str())) {
        return None;
    }
    let (pool, catalog) = (claim.pool()?, catalog_of(claim, snapshot)?);
    let table = catalog.table();
    let kinds = table.kinds_meeting(&allowed, &snapshot.well_known);
    let mut types = table.offered(&kinds);
    types.and(&table.meeting(&allowed));
    let (cheapest, offer) = *table.by_price(&types, &kinds).first()?;
    let labels = claim.metadata.labels.iter().flatten();
    let labels = labels.map(|(key, value)| (key.as_str(), value.as_str()));
    let labels = Requirements::from_labels(labels);
    let paying = snapshot.paid.of_pool(&pool).filter(|(_, of)| {
        let asked = &of.commitment.requirements;
        of.is_met_by(&labels, table)
            && is_about((cheapest, offer.kind), asked, catalog, &snapshot.well_known)
    });
    Some((offer.price?, paying.map(|(at, _)| at).collect()))
}

fn is_about(
    (instance_type, kind): (usize, usize),
    asked: &Requirements,
    catalog: &Catalog,
    known: &WellKnown,
) -> bool {
    let table = catalog.table();
    table.having(asked).has(instance_type) && table.kinds_meeting(asked, known).has(kind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mortise_apis::node_pool_policy::Commitment;

    use CommitmentAmount::{Instances, OnDemandPrice};

    fn key(n: usize) -> NodeKey {
        let mut claim = NodeClaim::default();
        claim.metadata.name = Some(n.to_string());
        NodeKey::from_claim(&claim)
    }

    fn commitments(amounts: &[CommitmentAmount], nodes: &[(i64, &[usize])]) -> Commitments {
        let all = amounts.iter().map(|amount| PaidCapacity {
            policy: "team".into(),
            commitment: Commitment {
                name: "paid".into(),
                requirements: Requirements::new(),
                amount: *amount,
                until: None,
            },
            pools: Arc::default(),
        });
        let nodes = nodes
            .iter()
            .enumerate()
            .map(|(n, (price, by))| PayableNode {
                key: Some(key(n)),
                price: MicroUsd(*price),
                by: (*by).into(),
            });
        Commitments::new(all.collect(), nodes.collect(), Vec::new())
    }

    /// What removing each of the nodes does not save.
    fn sunk(of: &Commitments) -> Vec<i64> {
        let keys = of.nodes.iter().filter_map(|node| node.key.clone());
        keys.map(|key| of.sunk(|each| *each == key).0).collect()
    }

    fn used(of: &Commitments) -> Vec<(i64, usize, i64)> {
        let left = of.left_without(|_| false);
        let uses = left.uses();
        uses.map(|each| (each.used, each.nodes, each.beyond.0))
            .collect()
    }

    #[test]
    fn removing_a_node_saves_what_no_other_node_uses() {
        let first: &[usize] = &[0];
        // As long as something is left, nothing is saved.
        let of = commitments(&[OnDemandPrice(MicroUsd(100))], &[(60, first), (30, first)]);
        assert_eq!((used(&of), sunk(&of)), (vec![(90, 2, 0)], vec![60, 30]));
        // More nodes than are paid for: another one takes the place, as far as it has not been paid for.
        let of = commitments(&[OnDemandPrice(MicroUsd(100))], &[(60, first), (50, first)]);
        assert_eq!((used(&of), sunk(&of)), (vec![(100, 2, 10)], vec![50, 40]));
        let of = commitments(&[Instances(1)], &[(60, first), (50, first)]);
        assert_eq!((used(&of), sunk(&of)), (vec![(1, 1, 50)], vec![10, 0]));
        // Nothing pays.
        let of = commitments(&[Instances(0)], &[(60, first)]);
        assert_eq!((used(&of), sunk(&of)), (vec![(0, 0, 60)], vec![0]));
    }

    #[test]
    fn what_leaves_uses_its_commitment_until_it_is_gone() {
        let first: &[usize] = &[0];
        let of = commitments(&[Instances(1)], &[(60, first)]);
        let planned = [(MicroUsd(70), 0)].into_iter();
        let then = of.with_planned(|each| *each == key(0), planned);
        let uses = |left: &CommitmentsLeft| left.uses().map(|each| each.nodes).sum::<usize>();
        let (later, now) = (then.left_without(|_| false), then.left_meanwhile(|_| false));
        assert_eq!((uses(&later), later.bill), (1, MicroUsd(0)));
        assert_eq!((uses(&now), now.bill), (1, MicroUsd(60)));
    }

    #[test]
    fn a_new_node_may_take_the_place_of_a_cheaper_one() {
        let both: &[usize] = &[0, 1];
        let amounts = [OnDemandPrice(MicroUsd(80)), Instances(1)];
        let of = commitments(&amounts, &[(50, both)]);
        let raised = |price: i64, gone: Option<usize>| {
            let new = std::iter::once((MicroUsd(price), both.into()));
            of.raised_by(new, |each| gone.is_some_and(|gone| *each == key(gone)))
                .0
        };
        // The dollars have room; they pay for a part of the new one; they pay for all of it and for a part of the other.
        assert_eq!([30, 40, 60].map(|price| raised(price, None)), [0, 10, 30]);
        assert_eq!([80, 90].map(|price| raised(price, Some(0))), [0, 10]);
    }

    #[test]
    fn instances_pay_for_no_part_of_a_node() {
        let both: &[usize] = &[0, 1];
        let amounts = [OnDemandPrice(MicroUsd(80)), Instances(1)];
        let of = commitments(&amounts, &[(60, both), (40, both), (30, both)]);
        // The rest of the second node is 20, and the third one is paid for.
        assert_eq!(used(&of), [(80, 2, 20), (1, 1, 20)]);
        assert_eq!(of.bill(), MicroUsd(20));
    }

    #[test]
    fn a_node_that_another_commitment_paid_for_takes_the_place_in_the_first_one() {
        let (both, second): (&[usize], &[usize]) = (&[0, 1], &[1]);
        let amounts = [Instances(1), OnDemandPrice(MicroUsd(50))];
        let of = commitments(&amounts, &[(60, both), (50, both), (40, second)]);
        assert_eq!(used(&of), [(1, 1, 0), (50, 1, 40)]);
        // The second node is paid for by the first commitment then, and the third one by the second.
        assert_eq!(sunk(&of), [20, 10, 0]);
    }
}
