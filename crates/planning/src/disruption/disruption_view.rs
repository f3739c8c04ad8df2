//! Input of disruption in one step: the cluster, the effects of commands in progress, and a bound on the work.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use super::budgets::PoolBudgets;
use super::buffer_room::HeldRoom;
use super::candidate::Candidate;
use super::command::{DisruptionCommand, RelocationPlan};
use super::consolidate_after::{UpcomingNodes, closed_until};
use super::drift_waves::{self, DriftWave};
use super::feasibility_bound::FeasibilityBound;
use super::move_budget::RecentMoves;
use super::node_blockers::BlockerFacts;
use super::on_demand_balance::{OnDemandBalance, counts};
use super::payback::ChurningWorkloads;
use super::static_drift::not_asked_for;
use super::totals::Totals;
use super::upgrade_drift::{self, UpgradeDrift};
use crate::brake::Brake;
use crate::context::PlanningContext;
use crate::drain::pdb::Pdbs;
use crate::replica_counts::ReplicaCounts;
use crate::scheduling::{PlannedClaim, TemplateCache, payable};
use mortise_apis::names::{PoolName, Uid};
use mortise_apis::values::money::MicroUsd;
use mortise_state::ledger::{LedgerOp, Nomination, NominationTarget};
use mortise_state::snapshot::{Commitments, CommitmentsLeft, NodeKey, Snapshot, StateNode};

/// The cluster with the other commands applied.
pub struct DisruptionView<'a> {
    /// Now.
    pub now: Timestamp,
    /// Input of the planner.
    pub context: PlanningContext<'a>,
    /// PodDisruptionBudgets.
    pub pdbs: Pdbs<'a>,
    /// Budgets of NodePools; nodes of other commands count as being deleted.
    pub budgets: PoolBudgets,
    brake: Option<Brake>,
    on_demand: OnDemandBalance,
    /// What is paid for in advance, after the other commands.
    commitments: Option<Arc<Commitments>>,
    view: Arc<Snapshot>,
    /// Templates of the NodePools of `view`.
    templates: Arc<TemplateCache>,
    taken: BTreeSet<NodeKey>,
    destinations: BTreeSet<NodeKey>,
    closed: BTreeSet<NodeKey>,
    closed_to_consolidation: OnceCell<BTreeSet<NodeKey>>,
    /// Replacements wait for nodes that become consolidatable soon.
    waits: bool,
    upcoming: OnceCell<UpcomingNodes>,
    totals: RefCell<BTreeMap<PoolName, Totals>>,
    churning: OnceCell<ChurningWorkloads>,
    recent_moves: OnceCell<RecentMoves>,
    bound: OnceCell<FeasibilityBound>,
    room: OnceCell<HeldRoom>,
    /// Simulations that the step, and the current method, may still run.
    left: Cell<usize>,
    turn: Cell<usize>,
    most: usize,
    planned: BTreeMap<PoolName, i64>,
    static_pools: OnceCell<BTreeMap<PoolName, ReplicaCounts>>,
    /// Replacements that other drift commands are about to launch.
    drifting: BTreeMap<PoolName, i64>,
    drift_waves: OnceCell<BTreeMap<PoolName, DriftWave>>,
    upgrade_drift: OnceCell<BTreeMap<PoolName, UpgradeDrift>>,
}

/// Most simulations of one step.
const MOST_SIMULATIONS: usize = 300;

/// A step has at least this many: it reads all nodes before it simulates, and reading 5,000 takes longer than twenty simulations.
const LEAST_SIMULATIONS: usize = 50;

/// A simulation for the pods of one node visits every pod and node of the cluster once, at some 0.01 us each: this many of
/// them take 20 ms of a step.
const PODS_PER_STEP: usize = 2_000_000;

/// A simulation that relocates this many pods more counts as two, and so on: placing a pod takes some 20 us among 2,000 nodes.
const RELOCATED_PODS: usize = 32;

fn simulations(snapshot: &Snapshot) -> usize {
    let pods = snapshot
        .pods
        .len()
        .saturating_add(snapshot.nodes.len())
        .max(1);
    (PODS_PER_STEP / pods).clamp(LEAST_SIMULATIONS, MOST_SIMULATIONS)
}

/// The cluster with the pods of commands at their destinations.
#[derive(Debug)]
pub struct AssumedCluster {
    /// The snapshot that it was made from.
    generation: u64,
    /// What the commands move that the ledger does not know of yet.
    moving: Vec<Arc<RelocationPlan>>,
    view: Arc<Snapshot>,
    /// Templates of its NodePools.
    templates: Arc<TemplateCache>,
}

impl AssumedCluster {
    /// Cost: a copy of each node that pods leave or come to.
    fn new(
        context: PlanningContext<'_>,
        commands: &BTreeMap<u64, DisruptionCommand>,
        me: Option<u64>,
    ) -> Self {
        let own_pods: BTreeSet<&Uid> = me
            .and_then(|id| commands.get(&id))
            .into_iter()
            .flat_map(|own| &own.moves.placements)
            .map(|placement| &placement.pod.uid)
            .collect();
        let plans: Vec<Arc<RelocationPlan>> =
            moving(others(commands, me)).map(Arc::clone).collect();
        let placements = plans.iter().flat_map(|plan| &plan.placements);
        let of_commands: Vec<Arc<Nomination>> = placements
            .map(|placement| {
                let place = placement.place.clone();
                Arc::new(placement.pod.nomination(place, context.now, Timestamp::MAX))
            })
            .collect();
        let nominations = context.snapshot.ledger.nominations().chain(&of_commands);
        // Its own nominations are evaluated again.
        let of_others = nominations.filter(|nomination| !own_pods.contains(&nomination.uid));
        let mut view = context.snapshot.with_expected_claims().assume(of_others);
        let ledger = Arc::make_mut(&mut view.ledger);
        for uid in own_pods {
            ledger.apply(LedgerOp::Withdraw(uid.clone()));
        }
        Self {
            generation: context.snapshot.generation,
            moving: plans,
            view: Arc::new(view),
            templates: Arc::default(),
        }
    }

    /// Whether it would be the same if it were made now, without a command of one's own.
    fn is_of(
        &self,
        context: PlanningContext<'_>,
        commands: &BTreeMap<u64, DisruptionCommand>,
    ) -> bool {
        let known = self.moving.iter().map(Arc::as_ptr);
        self.generation == context.snapshot.generation
            && known.eq(moving(others(commands, None)).map(Arc::as_ptr))
    }
}

/// What is paid for in advance when the nodes of commands are gone and those are there that replace them.
fn commitments_after<'c>(
    snapshot: &Snapshot,
    commands: impl Iterator<Item = &'c DisruptionCommand>,
    taken: &BTreeSet<NodeKey>,
) -> Option<Arc<Commitments>> {
    let all = snapshot.commitments()?;
    if taken.is_empty() {
        return Some(Arc::clone(all));
    }
    let planned = commands.flat_map(|command| {
        let claims = command.moves.claims.iter().enumerate();
        claims.filter_map(|(at, claim)| {
            let asked_for = command.replacements.get(at);
            let paid_by = claim.paid_by.as_ref()?;
            let price = claim.cheapest.as_ref()?.price?;
            let is_counted = asked_for.is_some_and(|each| counts(&each.claim, snapshot));
            (!is_counted).then_some((price, paid_by.at))
        })
    });
    let is_gone = |key: &NodeKey| taken.contains(key);
    Some(Arc::new(all.with_planned(is_gone, planned)))
}

/// The commands but one.
fn others(
    commands: &BTreeMap<u64, DisruptionCommand>,
    me: Option<u64>,
) -> impl Iterator<Item = &DisruptionCommand> {
    let all = commands.values();
    all.filter(move |command| Some(command.id) != me)
}

/// What commands move that the ledger does not know of yet.
fn moving<'c>(
    commands: impl Iterator<Item = &'c DisruptionCommand>,
) -> impl Iterator<Item = &'c Arc<RelocationPlan>> {
    commands
        .filter(|command| !command.phase.is_nominated())
        .map(|command| &command.moves)
}

impl<'a> DisruptionView<'a> {
    /// What blockers of nodes are read from.
    pub(super) fn blocker_facts(&self) -> BlockerFacts<'_> {
        BlockerFacts {
            snapshot: self.snapshot(),
            pdbs: &self.pdbs,
            brake: self.brake,
            now: self.now,
        }
    }

    /// The view of the command `me` (or of a command that is still to be found): the nodes of all other commands are
    /// removed, and the capacity for their pods is used.
    pub fn new(
        context: PlanningContext<'a>,
        commands: &BTreeMap<u64, DisruptionCommand>,
        me: Option<u64>,
    ) -> Self {
        let assumed = AssumedCluster::new(context, commands, me);
        Self::with(context, commands, me, &assumed)
    }

    /// The view of a command that is still to be found, as [`Self::new`]. What was assumed last time is used again while the
    /// cluster and the commands are the same; next to the view: whether they are.
    pub fn resumed(
        context: PlanningContext<'a>,
        commands: &BTreeMap<u64, DisruptionCommand>,
        last: &mut Option<AssumedCluster>,
    ) -> (Self, bool) {
        let known = last.take().filter(|known| known.is_of(context, commands));
        let is_same = known.is_some();
        let known = known.unwrap_or_else(|| AssumedCluster::new(context, commands, None));
        let view = Self::with(context, commands, None, last.insert(known));
        (view, is_same)
    }

    fn with(
        context: PlanningContext<'a>,
        commands: &BTreeMap<u64, DisruptionCommand>,
        me: Option<u64>,
        assumed: &AssumedCluster,
    ) -> Self {
        let others = || others(commands, me);
        let mut taken = BTreeSet::new();
        let mut destinations = BTreeSet::new();
        let mut planned: BTreeMap<PoolName, i64> = BTreeMap::new();
        let mut drifting: BTreeMap<PoolName, i64> = BTreeMap::new();
        for command in others() {
            if let Some((pool, count)) = drift_waves::starting(command, context.snapshot) {
                *drifting.entry(pool).or_insert(0) += count;
            }
            for pool in not_asked_for(command) {
                *planned.entry(pool.clone()).or_insert(0) += 1;
            }
            taken.extend(command.targets.iter().map(|target| target.key.clone()));
            let places = command.moves.placements.iter();
            destinations.extend(places.map(|placement| placement.node.clone()));
        }
        let own =
            |key: &NodeKey| me.is_some_and(|id| commands.get(&id).is_some_and(|own| own.has(key)));
        let mut closed: BTreeSet<NodeKey> = context.snapshot.fenced_nodes();
        closed.extend(taken.iter().cloned());
        closed.retain(|key| !own(key));
        let most = simulations(context.snapshot);
        Self {
            now: context.now,
            context,
            pdbs: Pdbs::new(context.snapshot),
            budgets: PoolBudgets::new(context.snapshot, |key| taken.contains(key), context.now),
            brake: Brake::of(context.snapshot),
            on_demand: OnDemandBalance::new(context.snapshot, others()),
            commitments: commitments_after(context.snapshot, others(), &taken),
            totals: RefCell::default(),
            churning: OnceCell::new(),
            recent_moves: OnceCell::new(),
            view: Arc::clone(&assumed.view),
            templates: Arc::clone(&assumed.templates),
            taken,
            destinations,
            closed,
            closed_to_consolidation: OnceCell::new(),
            waits: false,
            upcoming: OnceCell::new(),
            bound: OnceCell::new(),
            room: OnceCell::new(),
            left: Cell::new(most),
            turn: Cell::new(most),
            most,
            planned,
            static_pools: OnceCell::new(),
            drifting,
            drift_waves: OnceCell::new(),
            upgrade_drift: OnceCell::new(),
        }
    }

    /// The same; nodes are not replaced by new ones while others become consolidatable soon.
    #[must_use]
    pub fn waiting_for_others(mut self) -> Self {
        self.waits = true;
        self
    }

    /// The same without a bound on the work.
    #[must_use]
    pub fn without_bound(self) -> Self {
        self.left.set(usize::MAX);
        self.turn.set(usize::MAX);
        self
    }

    /// The cluster as it is.
    pub const fn snapshot(&self) -> &'a Snapshot {
        self.context.snapshot
    }

    /// The cluster with the capacity for other commands' pods marked as used.
    pub fn view(&self) -> &Snapshot {
        &self.view
    }

    /// Templates of the NodePools of [`Self::view`], for all simulations.
    pub(super) const fn templates(&self) -> &Arc<TemplateCache> {
        &self.templates
    }

    /// Whether another command removes the node.
    pub fn is_taken(&self, key: &NodeKey) -> bool {
        self.taken.contains(key)
    }

    /// Whether pods of another command are relocated to the node.
    pub fn is_destination(&self, key: &NodeKey) -> bool {
        self.destinations.contains(key)
    }

    /// Nodes that accept no further pods.
    pub const fn closed(&self) -> &BTreeSet<NodeKey> {
        &self.closed
    }

    /// The same, nodes whose `consolidateAfter` has not elapsed since pods were bound or removed, and nodes that Cluster Autoscaler
    /// is about to remove.
    pub fn closed_to_consolidation(&self) -> &BTreeSet<NodeKey> {
        self.closed_to_consolidation.get_or_init(|| {
            let nodes = self.snapshot().nodes.values();
            let closed = nodes.filter(|node| {
                closed_until(node, self.snapshot()).is_some_and(|at| at > self.now)
                    || node.is_removed_by_cluster_autoscaler()
            });
            let closed = closed.map(|node| node.key.clone());
            self.closed.iter().cloned().chain(closed).collect()
        })
    }

    /// Whether pods may get other nodes than planned, because kube-scheduler asks no extender.
    pub(super) fn may_scatter(&self) -> bool {
        self.waits && !self.context.feasible.is_asked()
    }

    /// Until when these nodes are not replaced, because others become consolidatable soon.
    pub(super) fn wait_for_others(&self, candidates: &[&Candidate]) -> Option<Timestamp> {
        if !self.waits {
            return None;
        }
        let upcoming = self
            .upcoming
            .get_or_init(|| UpcomingNodes::new(self.snapshot(), self.now));
        let all = candidates.iter();
        all.filter_map(|each| upcoming.waits_until(&each.claim, &each.pool))
            .max()
    }

    /// Whether consolidation may relocate pods to the node: it is initialized, stays, and its pods have not changed just now.
    pub fn accepts_relocated(&self, node: &StateNode) -> bool {
        node.initialized && !node.deleting && !self.closed_to_consolidation().contains(&node.key)
    }

    /// Replica counts of static NodePools.
    pub fn static_pools(&self) -> &BTreeMap<PoolName, ReplicaCounts> {
        self.static_pools
            .get_or_init(|| ReplicaCounts::all(self.snapshot(), &BTreeSet::new()))
    }

    /// How many nodes of the NodePool other commands will launch.
    pub fn planned(&self, pool: &PoolName) -> i64 {
        self.planned.get(pool).copied().unwrap_or(0)
    }

    /// The wave in which drifted nodes of the NodePool are replaced; `None` without a limit.
    pub fn drift_wave(&self, pool: &PoolName) -> Option<&DriftWave> {
        let all = self
            .drift_waves
            .get_or_init(|| drift_waves::all(self.snapshot(), &self.drifting, self.now));
        all.get(pool)
    }

    /// What drifted in the NodePool with an upgrade and waits; `None` if nothing does.
    pub fn upgrade_drift(&self, pool: &PoolName) -> Option<&UpgradeDrift> {
        let settings = self.context.settings;
        let all = self
            .upgrade_drift
            .get_or_init(|| upgrade_drift::all(self.snapshot(), settings, self.now));
        all.get(pool)
    }

    /// The on-demand capacity of policies after the other commands.
    pub(super) const fn on_demand(&self) -> &OnDemandBalance {
        &self.on_demand
    }

    /// What these nodes cost, without what is paid for in advance whether they are there or not; `None` if a price is unknown.
    pub fn cost_of(&self, candidates: &[&Candidate]) -> Option<MicroUsd> {
        let prices: Option<MicroUsd> = candidates.iter().map(|each| each.price()).sum();
        let Some(commitments) = &self.commitments else {
            return prices;
        };
        let gone: BTreeSet<&NodeKey> = candidates.iter().map(|each| each.key()).collect();
        Some(prices? - commitments.sunk(|key| gone.contains(key)))
    }

    /// What is left of commitments without these nodes; `None` without commitments. `waits`: while nodes that are being deleted still use
    /// them.
    pub(super) fn commitments_without(
        &self,
        candidates: &[&Candidate],
        waits: bool,
    ) -> Option<CommitmentsLeft> {
        let all = self.commitments.as_ref()?;
        let gone: BTreeSet<&NodeKey> = candidates.iter().map(|each| each.key()).collect();
        let is_gone = |key: &NodeKey| gone.contains(key);
        Some(if waits {
            all.left_meanwhile(is_gone)
        } else {
            all.left_without(is_gone)
        })
    }

    /// What these NodeClaims cost in place of the candidates; `None` if a price is unknown. Those that a commitment pays for cost what they
    /// raise the bill by.
    pub(super) fn cost_of_new(
        &self,
        claims: &[PlannedClaim],
        candidates: &[&Candidate],
    ) -> Option<MicroUsd> {
        let cost: Option<MicroUsd> = claims.iter().map(PlannedClaim::cost).sum();
        let all = self.commitments.as_ref();
        let is_paid = claims.iter().any(|claim| claim.paid_by.is_some());
        let Some(all) = all.filter(|_| is_paid) else {
            return cost;
        };
        let Some(left) = self.commitments_without(candidates, true) else {
            return cost;
        };
        let paid = claims
            .iter()
            .filter_map(|claim| payable(claim, &left, self.snapshot()));
        let gone: BTreeSet<&NodeKey> = candidates.iter().map(|each| each.key()).collect();
        Some(cost? + all.raised_by(paid, |key| gone.contains(key)))
    }

    /// Whether anything is paid for in advance: then what a node costs depends on the others.
    pub(super) const fn has_commitments(&self) -> bool {
        self.commitments.is_some()
    }

    /// Sums over a NodePool.
    pub fn totals(&self, pool: &PoolName) -> Totals {
        let known = self.totals.borrow().get(pool).copied();
        known.unwrap_or_else(|| {
            let totals = Totals::of_pool(self.snapshot(), pool);
            self.totals.borrow_mut().insert(pool.clone(), totals);
            totals
        })
    }

    /// Sums over these NodePools, each counted once.
    pub(super) fn totals_of<'p>(&self, pools: impl Iterator<Item = &'p PoolName>) -> Totals {
        let pools: BTreeSet<&PoolName> = pools.collect();
        pools.into_iter().map(|pool| self.totals(pool)).sum()
    }

    /// Workloads whose pods come and go.
    pub(super) fn churning(&self) -> &ChurningWorkloads {
        self.churning
            .get_or_init(|| ChurningWorkloads::of(self.snapshot(), self.now))
    }

    /// Young pods of workloads with a move budget.
    pub(super) fn recent_moves(&self) -> &RecentMoves {
        self.recent_moves.get_or_init(|| RecentMoves::of(self))
    }

    /// The bound on what simulations can find.
    pub fn bound(&self) -> &FeasibilityBound {
        self.bound
            .get_or_init(|| FeasibilityBound::new(self.snapshot(), |key| self.closed.contains(key)))
    }

    /// Where capacity buffers have room.
    pub fn room(&self) -> &HeldRoom {
        self.room.get_or_init(|| HeldRoom::new(self))
    }

    /// Gives a method its share of the step's simulations: a third, so that each method proceeds regardless of the others.
    pub fn give_share(&self) {
        self.turn.set(self.left.get().min(self.most / 3).max(1));
    }

    /// Gives the last method the remaining simulations.
    pub fn give_rest(&self) {
        self.turn.set(self.left.get().max(1));
    }

    /// Grants one more simulation, so that a command that was found can be improved.
    pub fn grant(&self) {
        self.turn.set(self.turn.get().max(1));
    }

    /// Uses one simulation of the method, or more for one that relocates many pods; `false` when none is left.
    pub fn may_simulate(&self, relocated_pods: usize) -> bool {
        let turn = self.turn.get();
        let used = 1 + relocated_pods / RELOCATED_PODS;
        self.turn.set(turn.saturating_sub(used));
        self.left.set(self.left.get().saturating_sub(used));
        turn > 0
    }

    /// Nodes that no other command removes, in a fixed order.
    pub fn nodes(&self) -> Vec<&'a Arc<StateNode>> {
        let snapshot: &'a Snapshot = self.context.snapshot;
        let mut all: Vec<_> = snapshot
            .nodes
            .iter()
            .filter(|(key, _)| !self.is_taken(key))
            .collect();
        all.sort_unstable_by(|a, b| a.0.cmp(b.0));
        all.into_iter().map(|(_, node)| node).collect()
    }

    /// The name of a placement's target in the ledger and in texts.
    pub fn target_name(place: &NominationTarget) -> String {
        match place {
            NominationTarget::Node(node) => format!("node/{node}"),
            NominationTarget::Claim(claim) => format!("nodeclaim/{claim}"),
        }
    }
}
