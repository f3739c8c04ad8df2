//! Provisioning: pods without a place get one, on a node that is there or coming, or on a new one.
//!
//! # Problem
//! Pods that wait (and pods on nodes that are being deleted) are to be placed as soon as it is certain that they need
//! us, together with the pods that come with them, and nothing may be launched twice.
//!
//! # When
//! - A burst is solved when it is over ([`batch_window`]).
//! - Pods are planned ahead of kube-scheduler's `Unschedulable`. What then fits on a node that is there is left to the
//!   scheduler. A claim is made ahead only if it is certain that its pods fit nowhere; otherwise after 300 ms, or as
//!   soon as the scheduler confirms one of its pods.
//! - Nothing is launched for a pod while kube-scheduler has a node for it, as its calls tell
//!   ([`mortise_state::feasible_pods`]): a plan for it is dropped and made again without it.
//! - Pods whose claim came to nothing are planned again at once.
//! - While pods wait, everything is checked again every 10 s, and 1 s after a change that may help an unplaced pod.
//! - Virtual pods of capacity buffers are part of every pass. Without pods that wait, a pass is due at once when what buffers
//!   ask for changed, and at most once a second when something changed that may take or give room ([`buffers`]).
//!
//! # Invariants
//! - A claim is asked for only together with the nomination of its pods, in the ledger and on the claim.
//! - A nominated pod is never a reason to launch another node, as long as it could be placed there again.
//! - Whoever waits has a wake time.
//! - Each pod without a place has a record with reasons, and an event once the scheduler has confirmed it.
//!
//! # Never
//! It never binds pods, never touches nodes, and never goes around limits: the engine admits each claim again.
//!
//! # Source
//! karpenter-core 2.1 to 2.3 and 2.14; extender 2.2 (watching all pending pods, confirmed by the scheduler).

mod batch_window;
mod buffers;
mod commit;
mod launch_backoff;
mod pending_pods;
mod stalled;

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;

use crate::launch_shape::batch_new_claims;
use crate::tracking::event_throttle::EventThrottle;
use crate::tracking::request_tracker::RequestTracker;
use batch_window::BatchWindow;
use buffers::BufferPasses;
use mortise_apis::names::{ObjectRef, PoolName, Uid};
use mortise_apis::values::{after, since};
use mortise_engine::decider::{Decider, InboxMessage, Step, StepInput};
use mortise_engine::decider_id::DeciderId;
use mortise_engine::effect::Effect;
use mortise_engine::record::Verdict;
use mortise_planning::reason::Reason;
use mortise_planning::scheduling::{
    LaunchPlan, REPACK, SolveOptions, SolveReport, request_rooms, solve,
};
use mortise_state::index::Changes;
use mortise_state::ledger::LedgerOp;
use mortise_state::snapshot::{NodeKey, Pod, Snapshot};
use pending_pods::{PendingPods, PodChange};

/// While pods wait, they are checked again after this long whatever happens. Karpenter triggers each pod as often.
const RELOOK_MS: i64 = 10_000;

/// Unplaced pods are checked again this long after the last time, when something changed that may help them. A solve of
/// 20,000 pods is not free.
const RETRY_MS: i64 = 1_000;

/// At start, pools wait for each other's catalogues this long, so that a pool of low weight is not selected only
/// because its catalogue came first.
const CATALOG_WAIT_MS: i64 = 5_000;

/// A nomination to a ready node lasts this long: kube-scheduler comes back to every pod within it
/// (`podMaxInUnschedulablePodsDuration`).
const NODE_NOMINATION_MS: i64 = 5 * 60_000;

/// A pod that the scheduler has not confirmed is spoken of as unplaced after this long.
const SPEAK_UNCONFIRMED_MS: i64 = 5_000;

/// The provisioning decider with its memory.
#[derive(Debug)]
pub struct ProvisioningDecider {
    waiting: PendingPods,
    going: BTreeSet<NodeKey>,
    batch: BatchWindow,
    urgent: bool,
    look_at: Option<Timestamp>,
    unplaced: bool,
    solved_at: Option<Timestamp>,
    uncatalogued: Option<Timestamp>,
    pools: RequestTracker<PoolName>,
    told: EventThrottle,
    /// Something was heard of since the last solve that may have broken a nomination.
    stirred: bool,
    /// Room of capacity buffers.
    buffers: BufferPasses,
}

impl Default for ProvisioningDecider {
    fn default() -> Self {
        Self::new()
    }
}

impl ProvisioningDecider {
    /// A decider that has seen nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            waiting: PendingPods::default(),
            going: BTreeSet::new(),
            batch: BatchWindow::default(),
            urgent: false,
            look_at: None,
            unplaced: false,
            solved_at: None,
            uncatalogued: None,
            // Creating a claim fails for a reason of its pool (a denied template, a limit): 1 s, doubling to 1 min.
            pools: RequestTracker::new(1_000, 60_000),
            told: EventThrottle::default(),
            stirred: true,
            buffers: BufferPasses::default(),
        }
    }

    fn read_outcomes(&mut self, input: &StepInput<'_>, step: &mut Step) {
        for delivery in input.inbox {
            let InboxMessage::Outcome(outcome) = delivery else {
                continue;
            };
            let Effect::CreateClaim(claim) = &*outcome.effect else {
                continue;
            };
            let Some(pool) = claim.pool() else { continue };
            match &outcome.result {
                Ok(_) => self.pools.succeeded(&pool),
                Err(error) => {
                    self.waiting.forget_claim(&claim.name());
                    let at = self.pools.failed(&pool, input.now);
                    self.look_no_later_than(at);
                    let reasons = vec![
                        Reason::FromPool { pool },
                        Reason::Failed {
                            error: error.to_string(),
                        },
                    ];
                    step.record(
                        input,
                        DeciderId::Provisioning,
                        ObjectRef::Claim(claim.name()),
                        Verdict::LaunchFailed,
                        reasons,
                    );
                }
            }
        }
    }

    fn read_changes(&mut self, input: &StepInput<'_>) {
        let StepInput {
            now,
            snapshot,
            changes,
            ..
        } = *input;
        if changes.everything {
            self.waiting.retain_pending(snapshot);
            self.going.clear();
            for (_, pod) in snapshot.pending.sorted() {
                self.see(pod, snapshot, now);
            }
            for (key, _) in snapshot.nodes.sorted() {
                self.see_node(key, snapshot, now);
            }
        }
        for key in &changes.pods {
            match snapshot.pending.get(key) {
                Some(pod) => self.see(pod, snapshot, now),
                None => self.waiting.remove(key),
            }
        }
        for key in &changes.nodes {
            self.see_node(key, snapshot, now);
        }
        self.see_lost_claims(changes, snapshot);
        self.buffers.see(changes, snapshot, (now, self.solved_at));
        self.stirred |= changes.everything
            || changes.cluster_objects
            || changes.ledger
            || !(changes.pods.is_empty() && changes.nodes.is_empty() && changes.claims.is_empty());
        // Room that becomes free on a node is kube-scheduler's to find. What we could not launch, we may be able to
        // launch once pools, catalogues, volumes or the usage of limits change.
        let may_help = changes.everything
            || changes.cluster_objects
            || !(changes.claims.is_empty()
                && changes.pools.is_empty()
                && changes.node_classes.is_empty());
        // A request that has its room lets the pods go that wait for it.
        if changes.requests && !self.waiting.is_empty() {
            self.look_no_later_than(now);
        }
        if self.unplaced && may_help {
            let earliest = self.solved_at.map_or(now, |at| after(at, RETRY_MS));
            self.look_no_later_than(earliest);
        }
    }

    fn see(&mut self, pod: &Pod, snapshot: &Snapshot, now: Timestamp) {
        // In a batch that is open it is already: the scheduler's word makes no pod wait longer.
        match self.waiting.see(pod, snapshot, now) {
            PodChange::IsNew => self.batch.add(now),
            PodChange::AsksAgain if !self.batch.is_open() => self.batch.add(now),
            PodChange::AsksAgain | PodChange::None => {}
        }
    }

    fn see_node(&mut self, key: &NodeKey, snapshot: &Snapshot, now: Timestamp) {
        let going = snapshot
            .nodes
            .get(&**key)
            .is_some_and(|node| node.deleting && node.reschedulable().next().is_some());
        if !going {
            self.going.remove(key);
        } else if self.going.insert(key.clone()) {
            self.batch.add(now);
        }
    }

    /// Pods whose claim is gone do not wait for a batch: they have waited once already.
    fn see_lost_claims(&mut self, changes: &Changes, snapshot: &Snapshot) {
        let lost = |claim: &str| {
            snapshot
                .claims
                .get(claim)
                .is_none_or(|claim| claim.metadata.deletion_timestamp.is_some())
        };
        let gone: BTreeSet<&str> = changes
            .claims
            .iter()
            .map(|claim| claim.as_str())
            .filter(|claim| lost(claim))
            .collect();
        if gone.is_empty() {
            return;
        }
        self.urgent |= self.waiting.forget_claims(&gone);
    }

    fn look_no_later_than(&mut self, at: Timestamp) {
        self.look_at = Some(self.look_at.map_or(at, |known| known.min(at)));
    }

    fn due_at(&self, input: &StepInput<'_>) -> Option<Timestamp> {
        let idle = self.waiting.is_empty() && self.going.is_empty();
        if idle && self.buffers.is_idle() {
            return None;
        }
        if self.urgent {
            return Some(input.now);
        }
        let burst = self.batch.ends(input.settings);
        // A burst that is still coming uses room up: one pass after it is enough.
        let room = self.buffers.due_at().filter(|_| burst.is_none());
        [burst, self.look_at, room].into_iter().flatten().min()
    }

    /// Nothing new waits, every pod has a nomination, and nothing has happened that could have broken one.
    fn is_settled(&self, input: &StepInput<'_>) -> bool {
        let new = self.urgent || self.batch.ends(input.settings).is_some();
        let due = self.buffers.due_at().is_some();
        !new && !due && !self.unplaced && !self.stirred && self.going.is_empty() && {
            self.waiting.by_key.values().all(|waiting| {
                let nomination = input.snapshot.ledger.nomination(&waiting.uid);
                nomination.is_some()
            })
        }
    }

    /// Some pool that could be used has no catalogue yet, and it is worth waiting for it.
    fn waits_for_catalogs(&mut self, input: &StepInput<'_>) -> bool {
        let missing = input.snapshot.pools.values().any(|pool| {
            pool.is_ready()
                && !pool.is_static()
                && input.snapshot.catalog_of(pool).is_none()
                && input
                    .snapshot
                    .node_classes
                    .contains_key(&pool.node_class_key())
        });
        if !missing {
            self.uncatalogued = None;
            return false;
        }
        let first = *self.uncatalogued.get_or_insert(input.now);
        let waits = since(input.now, first) < CATALOG_WAIT_MS;
        if waits {
            // A catalogue that comes is a change, so this is only the end of the patience.
            self.look_at = Some(after(first, CATALOG_WAIT_MS));
        }
        waits
    }

    fn solve(&mut self, input: &StepInput<'_>, step: &mut Step, stop: &dyn Fn() -> bool) {
        let options = SolveOptions {
            refused: self.waiting.rejected_nodes(input.now),
            staying: self.buffers.staying(input.snapshot),
            ..options(input)
        };
        let mut view = input.snapshot.with_expected_claims();
        for key in self.waiting.abandoned(input) {
            view.pending.remove(key);
        }
        let (mut plan, mut report) = solve(input.now, &view, &options, stop);
        self.waiting.note_unused_nodes(&plan, &report, input);
        let placeable = placeable(&plan, &report, &view, input);
        let paused = self.waiting.paused(&plan, input.now);
        if !(placeable.is_empty() && paused.is_empty()) {
            for key in placeable.iter().map(|(pod, _)| &pod.key).chain(&paused) {
                view.pending.remove(key);
            }
            let mut broken = std::mem::take(&mut report.broken);
            (plan, report) = solve(input.now, &view, &options, stop);
            // What broke the first time stays broken, unless it holds without the pods that are left out now.
            let kept = plan.placements.iter().filter(|placement| placement.kept);
            let again = report.broken.iter().map(|(uid, _)| uid);
            let known: BTreeSet<&Uid> = kept.map(|own| &own.pod.uid).chain(again).collect();
            broken.retain(|(uid, _)| !known.contains(uid));
            report.broken.extend(broken);
        }
        self.batch.close();
        self.urgent = false;
        self.stirred = false;
        self.waiting.forget_hold_ups();
        self.solved_at = Some(input.now);
        self.look_at = Some(after(input.now, RELOOK_MS));
        let pending = input.snapshot.pending.values();
        if let Some(hold_ends) = pending.filter_map(|pod| pod.held(input.now)?.until()).min() {
            self.look_no_later_than(hold_ends);
        }
        let mut unplaced = report.unplaced.iter().flat_map(|unplaced| &unplaced.pods);
        self.unplaced = unplaced.any(|(key, uid)| {
            let pod = input.snapshot.pods.get(key);
            pod.is_some_and(|pod| pod.uid == *uid)
        });
        if report.stopped {
            // Go on where time ran out: what is nominated by now does not delay the rest.
            self.look_at = Some(after(input.now, 10));
        }
        self.leave_to_scheduler(&placeable, input, step);
        self.withdraw_broken(&report, input, step);
        self.commit_placements(&plan, &view, input, step);
        self.commit_claims(&plan, &view, input, step, stop);
        self.tell_pools(&report, input, step);
        self.tell(&report, input, step);
        self.buffers
            .note(&plan, &report, options.staying, input, step);
        if !report.stopped {
            let rooms = request_rooms(input.snapshot, &report);
            if **input.snapshot.ledger.request_rooms() != rooms {
                step.ledger.push(LedgerOp::SetRequestRooms(Arc::new(rooms)));
            }
        }
    }
}

/// Pods for which a node would be launched, or which would be called unplaceable, although kube-scheduler has a node
/// for them; and until when they are left to it.
fn placeable(
    plan: &LaunchPlan,
    report: &SolveReport,
    view: &Snapshot,
    input: &StepInput<'_>,
) -> Vec<(Arc<Pod>, Timestamp)> {
    if input.feasible.is_empty() {
        return Vec::new();
    }
    let to_launch = plan.claims.iter().flat_map(|claim| &claim.pods);
    let unplaced = report.unplaced.iter().flat_map(|unplaced| &unplaced.pods);
    let unplaced = unplaced.filter_map(|(key, _)| view.pending.get(key));
    // That there is a node for one pod of a gang says nothing: it is bound with the others or not at all.
    let is_single = |pod: &&Arc<Pod>| {
        let gang = pod.gang.as_ref();
        gang.is_none_or(|gang| !input.settings.gangs.contains(&gang.kind))
    };
    let known = to_launch
        .chain(unplaced)
        .filter(is_single)
        .filter_map(|pod| {
            let until = input.feasible.until(pod, input.now)?;
            Some((Arc::clone(pod), until))
        });
    known.collect()
}

/// What is asked of a solve: everything that waits, without room on nodes that are about to be deleted.
fn options(input: &StepInput<'_>) -> SolveOptions {
    SolveOptions {
        closed: input.snapshot.fenced_nodes(),
        pending: true,
        repack: REPACK,
        seed: input.seed,
        ..input.settings.solve_options()
    }
}

impl Decider for ProvisioningDecider {
    fn id(&self) -> DeciderId {
        DeciderId::Provisioning
    }

    fn fresh(&self) -> Box<dyn Decider> {
        Box::new(Self::default())
    }

    fn is_interested(&self, changes: &Changes) -> bool {
        let Changes {
            everything,
            pods,
            nodes,
            claims,
            pools,
            node_classes,
            cluster_objects: surroundings,
            demand,
            requests,
            ledger: _,
            pod_events: _,
        } = changes;
        let world = *surroundings || !(pools.is_empty() && node_classes.is_empty());
        *everything
            || *demand
            || *requests
            || !(pods.is_empty() && nodes.is_empty() && claims.is_empty())
            || (world && !(self.waiting.is_empty() && self.buffers.is_idle()))
    }

    fn step(&mut self, input: &StepInput<'_>, stop: &dyn Fn() -> bool) -> Step {
        let mut step = Step::default();
        self.told.sweep(input.now);
        self.waiting.sweep(input.now);
        self.read_outcomes(input, &mut step);
        self.read_changes(input);
        if self.look_at.is_none() {
            // Whoever waits is checked again, whatever happens or does not happen.
            self.look_no_later_than(after(input.now, RELOOK_MS));
        }
        if self.due_at(input).is_some_and(|due| due <= input.now) {
            if self.is_settled(input) {
                self.look_at = Some(after(input.now, RELOOK_MS));
            } else if !self.waits_for_catalogs(input) {
                self.solve(input, &mut step, stop);
            }
        }
        match self.due_at(input) {
            Some(due) if due > input.now => step.wake_at(due),
            // Only the wait for catalogues leaves something due behind.
            Some(_) => step.wake_in(input.now, 200),
            None => {
                self.batch.close();
                self.urgent = false;
                self.look_at = None;
                self.unplaced = false;
            }
        }
        self.waiting.review(input, &mut step);
        batch_new_claims(input, &mut step);
        step
    }
}
