//! Executing what a solve has found: nominations, claims, and words for pods without a place.

use std::cell::OnceCell;
use std::sync::Arc;

use super::pending_pods::PendingPod;
use super::{NODE_NOMINATION_MS, ProvisioningDecider, SPEAK_UNCONFIRMED_MS, options, since};
use crate::node_claim_request::{NameGenerator, NodeClaimRequest};
use mortise_apis::names::ObjectRef;
use mortise_apis::values::after;
use mortise_engine::decider::{Step, StepInput};
use mortise_engine::decider_id::DeciderId;
use mortise_engine::record::Verdict;
use mortise_planning::reason::{Reason, SchedulingFailure};
use mortise_planning::scheduling::{
    LaunchPlan, Placement, PlannedClaim, SolveOptions, SolveReport, solve,
};
use mortise_state::ledger::{LedgerOp, NominationTarget};
use mortise_state::snapshot::{Pod, PodClass, Snapshot, StateNode};

/// A pod that is not confirmed and that might fit somewhere, were it not for other pending pods, waits this long before
/// a node is launched for it. The scheduler answers within 10 to 200 ms when it is idle.
const DEBOUNCE_MS: i64 = 300;

/// Most classes whose certainty is looked into at one step; further ones count as uncertain. Each costs a small solve.
const MAX_CERTAINTIES: usize = 16;

/// Most `Nominated` events of one step. They are limited to 5 a second with a burst of 10 on their way out.
const MAX_NOMINATED_EVENTS: usize = 50;

/// Most pods without a place that one step speaks of; the others are spoken of at the next.
const MAX_FAILED_EVENTS: usize = 1_000;

impl ProvisioningDecider {
    /// Nominates pods that fit on what is there or coming.
    pub(super) fn commit_placements(
        &mut self,
        plan: &LaunchPlan,
        view: &Snapshot,
        input: &StepInput<'_>,
        step: &mut Step,
    ) {
        let mut events = MAX_NOMINATED_EVENTS;
        let real = plan.placements.iter();
        for placement in real.filter(|placement| !placement.pod.is_virtual()) {
            let Some(state_node) = view.nodes.get(&*placement.node) else {
                continue;
            };
            let pod = &placement.pod;
            let waits = pod.node.is_none();
            let on_node =
                matches!(placement.place, NominationTarget::Node(_)) && state_node.initialized;
            if waits && on_node && !pod.unschedulable && !placement.kept {
                continue; // the scheduler will see the same room
            }
            if !placement.kept {
                nominate(placement, state_node, input, step);
            }
            if !waits {
                continue;
            }
            let name = state_node
                .claim_name()
                .map_or_else(|| state_node.name().to_owned(), |claim| claim.to_string());
            let Some(waiting) = self.waiting.get_mut(&pod.key) else {
                continue;
            };
            if waiting.nominated_to.as_ref() == Some(&name) {
                continue;
            }
            waiting.nominated_to = Some(name);
            let reason = destination(&placement.place, state_node);
            nominated(pod, reason, &mut events, input, step);
        }
    }

    /// Asks for the claims of which it is certain that they are needed.
    pub(super) fn commit_claims(
        &mut self,
        plan: &LaunchPlan,
        view: &Snapshot,
        input: &StepInput<'_>,
        step: &mut Step,
        stop: &dyn Fn() -> bool,
    ) {
        let mut namer = NameGenerator::new(input.seed);
        let mut certain = UnschedulableProof::new(view);
        let mut events = MAX_NOMINATED_EVENTS;
        for planned in &plan.claims {
            let Some(pool) = input.snapshot.pools.get(&planned.pool) else {
                continue;
            };
            if let Some(at) = self.pools.waits_until(&planned.pool)
                && at > input.now
            {
                self.look_no_later_than(at);
                let pool = planned.pool.clone();
                self.waiting
                    .hold_up(&planned.pods, &Reason::PoolCannotLaunch { pool });
                continue;
            }
            if let Err(ready) = self.is_ready(planned, input, &mut certain, stop) {
                self.look_no_later_than(ready);
                continue;
            }
            let claim = NodeClaimRequest {
                planned,
                pool,
                name: namer.claim(&planned.pool, input.snapshot),
                replaces: &[],
            };
            claim.order(input, step);
            let subject = ObjectRef::Claim(claim.name.clone());
            step.record(
                input,
                DeciderId::Provisioning,
                subject,
                Verdict::NodePlanned,
                claim.reasons(),
            );
            for pod in planned.real_pods() {
                let Some(waiting) = self.waiting.get_mut(&pod.key) else {
                    continue;
                };
                waiting.nominated_to = Some(claim.name.to_string());
                let reason = Reason::OnClaim {
                    claim: claim.name.clone(),
                    node: None,
                };
                nominated(pod, reason, &mut events, input, step);
            }
        }
    }

    /// Whether the claim is certainly needed; if not, when it will have waited long enough.
    fn is_ready(
        &self,
        planned: &PlannedClaim,
        input: &StepInput<'_>,
        certain: &mut UnschedulableProof<'_>,
        stop: &dyn Fn() -> bool,
    ) -> Result<(), jiff::Timestamp> {
        let mut ready = None;
        // Room for virtual pods is needed at once: what the scheduler does with other pods only uses it up.
        for pod in planned.real_pods() {
            let waiting = self.waiting.get(&pod.key);
            let Some(PendingPod { since: first, .. }) =
                waiting.filter(|_| pod.node.is_none() && !pod.unschedulable)
            else {
                return Ok(()); // confirmed, or on a node that is being deleted
            };
            let at = after(*first, DEBOUNCE_MS);
            if at <= input.now || certain.is(pod, input, stop) {
                return Ok(());
            }
            ready = Some(ready.map_or(at, |known: jiff::Timestamp| known.min(at)));
        }
        ready.map_or(Ok(()), Err)
    }

    /// Withdraws nominations that do not hold any more. Pods that found another place are nominated again after this.
    pub(super) fn withdraw_broken(
        &mut self,
        report: &SolveReport,
        input: &StepInput<'_>,
        step: &mut Step,
    ) {
        for (uid, why) in &report.broken {
            let Some(nomination) = input.snapshot.ledger.nomination(uid) else {
                continue;
            };
            step.ledger.push(LedgerOp::Withdraw(uid.clone()));
            if let Some(waiting) = self.waiting.get_mut(&nomination.pod) {
                waiting.nominated_to = None;
            }
            let state_node = input.snapshot.node_at(&nomination.place);
            let node =
                state_node.map_or_else(String::new, |state_node| state_node.name().to_owned());
            let subject = ObjectRef::Pod(nomination.pod.clone());
            let why = why.clone();
            let reasons = vec![Reason::NominationInvalid { node, why }];
            step.record(
                input,
                DeciderId::Provisioning,
                subject,
                Verdict::Withdrawn,
                reasons,
            );
        }
    }

    /// Says of pods that kube-scheduler has a node for them, and looks again should it come to nothing.
    pub(super) fn leave_to_scheduler(
        &mut self,
        placeable: &[(Arc<Pod>, jiff::Timestamp)],
        input: &StepInput<'_>,
        step: &mut Step,
    ) {
        let why = Reason::SchedulerHasNode;
        for (pod, until) in placeable {
            self.look_no_later_than(*until);
            let subject = ObjectRef::Pod(pod.key.clone());
            self.waiting.hold_up(std::slice::from_ref(pod), &why);
            if self.waiting.is_news(&subject, &why, input) {
                let why = why.clone();
                let verdict = Verdict::LeftToScheduler;
                step.record(input, DeciderId::Provisioning, subject, verdict, vec![why]);
            }
        }
    }

    /// Says which pools can launch no node at all.
    pub(super) fn tell_pools(
        &mut self,
        report: &SolveReport,
        input: &StepInput<'_>,
        step: &mut Step,
    ) {
        for (pool, why) in &report.typeless {
            let subject = ObjectRef::Pool(pool.clone());
            let now = input.now;
            if self
                .told
                .is_news(&subject, "types", why, now, TYPELESS_EVERY_MS)
            {
                let (by, verdict) = (DeciderId::Provisioning, Verdict::Blocked);
                step.announce(input, by, [subject], verdict, vec![why.clone()]);
            }
        }
    }

    /// Says which pods have no place, and why.
    pub(super) fn tell(&mut self, report: &SolveReport, input: &StepInput<'_>, step: &mut Step) {
        let mut left = MAX_FAILED_EVENTS;
        for unplaced in &report.unplaced {
            let failure = SchedulingFailure::new(&unplaced.reasons);
            for (key, uid) in &unplaced.pods {
                let waiting = self.waiting.get(key).filter(|waiting| waiting.uid == *uid);
                let Some(waiting) = waiting else {
                    continue;
                };
                let silent =
                    !waiting.confirmed && since(input.now, waiting.since) < SPEAK_UNCONFIRMED_MS;
                let subject = ObjectRef::Pod(key.clone());
                if silent || left == 0 || !self.waiting.is_news(&subject, &failure, input) {
                    continue;
                }
                left -= 1;
                let (by, verdict) = (DeciderId::Provisioning, Verdict::Unschedulable);
                let reasons = unplaced.reasons.clone();
                // Those that wait for reserved capacity are checked again: Karpenter does not report them either.
                if !unplaced.deferred {
                    step.announce(input, by, [subject], verdict, reasons);
                } else {
                    step.record(input, by, subject, verdict, reasons);
                }
            }
        }
        for (key, why) in &report.ignored {
            let subject = ObjectRef::Pod(key.clone());
            if left == 0 || !self.waiting.is_news(&subject, why, input) {
                continue;
            }
            left -= 1;
            let (by, verdict) = (DeciderId::Provisioning, Verdict::Ignored);
            let reasons = vec![why.clone()];
            // A pod that asks not to be ours is told nothing.
            let pod = input.snapshot.pods.get(key);
            if pod.is_some_and(|pod| !pod.class.opts_out()) {
                step.announce(input, by, [subject], verdict, reasons);
            } else {
                step.record(input, by, subject, verdict, reasons);
            }
        }
    }
}

/// `NoCompatibleInstanceTypes` is repeated after a minute, as in Karpenter.
const TYPELESS_EVERY_MS: i64 = 60_000;

/// Records where a pod is expected, and announces it as long as `events` are left.
fn nominated(pod: &Pod, place: Reason, events: &mut usize, input: &StepInput<'_>, step: &mut Step) {
    let subject = ObjectRef::Pod(pod.key.clone());
    let (by, verdict, reasons) = (DeciderId::Provisioning, Verdict::Nominated, vec![place]);
    if *events > 0 {
        *events -= 1;
        step.announce(input, by, [subject], verdict, reasons);
    } else {
        step.record(input, by, subject, verdict, reasons);
    }
}

/// Nominates a pod. While the node starts, as long as its claim may take to register; on a node that is ready, until
/// kube-scheduler has surely tried the pod. It ends earlier once it is refused, and every pass looks at it again.
fn nominate(placement: &Placement, state_node: &StateNode, input: &StepInput<'_>, step: &mut Step) {
    let now = input.now;
    let short = after(now, NODE_NOMINATION_MS);
    let until = match state_node.created().filter(|_| !state_node.initialized) {
        Some(created) => short.max(after(created, input.settings.registration_timeout_ms)),
        None => short,
    };
    let place = placement.place.clone();
    let nomination = placement.pod.nomination(place, now, until);
    step.ledger.push(LedgerOp::Nominate(nomination));
}

/// Where a pod is expected, with the claim and the Node as far as there are any.
fn destination(place: &NominationTarget, state_node: &StateNode) -> Reason {
    match place {
        NominationTarget::Node(node) => Reason::OnNode {
            node: node.clone(),
            claim: state_node.claim_name(),
        },
        NominationTarget::Claim(claim) => Reason::OnClaim {
            claim: claim.clone(),
            node: state_node.node_name(),
        },
    }
}

/// Whether a pod fits on nothing that is there or coming, even if no other pending pod were before it. Then nothing
/// that the scheduler may yet do with the others can help, and there is no reason to wait.
struct UnschedulableProof<'a> {
    view: &'a Snapshot,
    /// The same with every nomination kept, once it is needed.
    assumed: OnceCell<Snapshot>,
    alone: bool,
    known: Vec<(Arc<PodClass>, bool)>,
}

impl<'a> UnschedulableProof<'a> {
    fn new(view: &'a Snapshot) -> Self {
        let going = !view.deleting.is_empty();
        Self {
            view,
            assumed: OnceCell::new(),
            // The solve itself has answered for a pod with no other before it.
            alone: view.pending.len() < 2 && !going,
            known: Vec::new(),
        }
    }

    fn is(&mut self, pod: &Arc<Pod>, input: &StepInput<'_>, stop: &dyn Fn() -> bool) -> bool {
        if self.alone {
            return true;
        }
        let known = self
            .known
            .iter()
            .find(|(class, _)| Arc::ptr_eq(class, &pod.class));
        if let Some((_, certain)) = known {
            return *certain;
        }
        if self.known.len() >= MAX_CERTAINTIES || stop() {
            return false;
        }
        let options = SolveOptions {
            pending: false,
            extra: vec![Arc::clone(pod)],
            existing_only: true,
            ..options(input)
        };
        let view = self.view;
        let assumed = self
            .assumed
            .get_or_init(|| view.assume(view.ledger.nominations()));
        let (_, report) = solve(input.now, assumed, &options, stop);
        let certain = !report.unplaced.is_empty();
        self.known.push((Arc::clone(&pod.class), certain));
        certain
    }
}
