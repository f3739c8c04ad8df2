//! Executes effects: the only modules that write.
//!
//! ```text
//! order ─► lanes (bounded, in order per object) ─► call with retries ─► news of the answer, then the outcome ─► driver
//! ```
//!
//! Effects run only while this process leads. When leadership ends, waiting effects fail and running ones are cancelled. Every
//! effect is idempotent, so a cancelled one can be repeated.

#![expect(clippy::disallowed_types, reason = "the only modules that write")]

pub(crate) mod api;
pub(crate) mod ca_bundle;
pub(crate) mod cloud;
pub(crate) mod events;
pub(crate) mod failpoint;
mod lanes;
pub(crate) mod leadership_deadline;
pub(crate) mod lease;
mod log;
mod look;
pub mod pausing;
pub(crate) mod secret;
pub(crate) mod wake_pods;

use std::sync::Arc;
use std::time::Instant;

use mortise_cloudprovider::LaunchError;
use mortise_engine::decider_id::DeciderId;
use mortise_engine::effect::{Effect, EffectError, EffectOutput, Outcome};
use mortise_engine::engine::{EffectRequest, EngineInput};
use mortise_state::resource_kinds::ObjectEvent;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::driver_message::{DriverMessage, ExecutorMessage};
use crate::service_state::ServiceState;
use api::ApiWriter;
use cloud::CloudProviders;
use events::Events;
use lanes::{EffectPriority, Lane, LaneKey, Lanes};
use leadership_deadline::LeadershipDeadline;

/// Most writes to the API server at a time; the rate limit is usually what binds.
const WRITES: usize = 64;
/// Most terminations at a time; clouds batch them.
const TERMINATIONS: usize = 16;
/// Most questions to a cloud at a time.
const QUESTIONS: usize = 8;
/// Most acknowledgements at a time.
const ACKNOWLEDGEMENTS: usize = 100;

/// Everything that effects need.
#[derive(Clone)]
pub(crate) struct EffectClients {
    pub(crate) api: ApiWriter,
    pub(crate) clouds: CloudProviders,
    pub(crate) events: Events,
    pub(crate) shared: Arc<ServiceState>,
    pub(crate) license: Arc<LeadershipDeadline>,
}

struct FinishedEffect {
    lane: Lane,
    key: LaneKey,
}

/// Runs until the commands end; then waits for what runs.
pub(crate) async fn run(
    mut commands: mpsc::UnboundedReceiver<ExecutorMessage>,
    results: mpsc::Sender<DriverMessage>,
    outside: EffectClients,
    launches: usize,
) {
    let mut lanes = Lanes::new(|lane| match lane {
        Lane::Write => WRITES,
        Lane::Launch => launches,
        Lane::Terminate => TERMINATIONS,
        Lane::Ask => QUESTIONS,
        Lane::Acknowledge => ACKNOWLEDGEMENTS,
    });
    let mut running: JoinSet<FinishedEffect> = JoinSet::new();
    let mut term: Option<CancellationToken> = None;
    loop {
        if let Some(term) = &term {
            while let Some((lane, key, (order, why))) = lanes.next() {
                let (outside, results, term) = (outside.clone(), results.clone(), term.clone());
                running.spawn(async move {
                    execute(&outside, &results, &term, order, why).await;
                    FinishedEffect { lane, key }
                });
            }
        }
        for (lane, waiting, active) in lanes.depths() {
            outside
                .shared
                .metrics
                .effects
                .queued(lane.label(), waiting, active);
        }
        tokio::select! {
            // Losing the lease must be noticed before anything else is begun.
            biased;
            command = commands.recv() => match command {
                None => break,
                Some(ExecutorMessage::Leading(true)) => term = Some(CancellationToken::new()),
                Some(ExecutorMessage::Leading(false)) => {
                    if let Some(term) = term.take() {
                        term.cancel();
                    }
                    for (order, _) in lanes.drain() {
                        deliver(&results, Vec::new(), order, Err(not_leading())).await;
                    }
                }
                Some(ExecutorMessage::Tell(event)) => {
                    if term.is_some() {
                        outside.events.send(event);
                    }
                }
                Some(ExecutorMessage::Order { order, why }) => match (&*order.effect, &term) {
                    (Effect::Event(event), Some(_)) => outside.events.send(event.clone()),
                    (Effect::Event(_), None) => {}
                    (_, None) => {
                        deliver(&results, Vec::new(), order, Err(not_leading())).await;
                    }
                    (effect, Some(_)) => {
                        let (lane, about) = ((Lane::of(effect), EffectPriority::of(effect)), effect.target());
                        lanes.push(lane, about, (order, why));
                    }
                },
            },
            Some(ended) = running.join_next() => match ended {
                Ok(FinishedEffect { lane, key }) => lanes.done(lane, key),
                Err(error) => std::panic::resume_unwind(error.into_panic()),
            },
        }
    }
    while running.join_next().await.is_some() {}
}

fn not_leading() -> EffectError {
    EffectError::Unavailable("lost leadership".to_owned())
}

async fn execute(
    outside: &EffectClients,
    results: &mpsc::Sender<DriverMessage>,
    term: &CancellationToken,
    order: EffectRequest,
    why: &'static str,
) {
    let (start, started_at) = (Instant::now(), outside.shared.now());
    failpoint::begin(&order.effect).await;
    let done = tokio::select! {
        biased;
        () = term.cancelled() => (Err(not_leading()), Vec::new()),
        done = execute_if_leader(outside, &order) => done,
    };
    let (result, news) = done;
    failpoint::end(&order.effect, result.is_ok());
    let took = start.elapsed();
    let word = result.as_ref().map_or_else(EffectError::label, |_| "done");
    outside
        .shared
        .metrics
        .effects
        .done(order.effect.label(), word, took);
    if let Some(traces) = outside.shared.traces() {
        let shared = &outside.shared;
        let times = (started_at, shared.now());
        traces.called(&order.effect, &result, times, &shared.snapshot());
    }
    if let (Effect::CreateClaim(claim), Ok(_)) = (&*order.effect, &result) {
        outside.shared.metrics.nodes.claim_created(claim, why);
    }
    match (&*order.effect, &result) {
        (
            Effect::Launch(request),
            Err(EffectError::Launch(LaunchError::InsufficientCapacity { unavailable, .. })),
        ) => {
            let (class, shared) = (request.claim.node_class_key(), &outside.shared);
            let snapshot = shared.snapshot();
            shared
                .metrics
                .cloud
                .launch_failed(&class, unavailable, &snapshot);
        }
        (Effect::Terminate { claim, .. }, Err(EffectError::Cloud(_))) => {
            let shared = &outside.shared;
            shared
                .metrics
                .cloud
                .termination_failed(claim, &shared.snapshot());
        }
        _ => {}
    }
    if term.is_cancelled() {
        tracing::debug!(
            effect = order.effect.label(),
            "effect cancelled, lost leadership"
        );
    } else {
        log::effect(&order, &result, took);
    }
    deliver(results, news, order, result).await;
}

/// An outcome, and news of every object that came with it.
type Performed = (Result<EffectOutput, EffectError>, Vec<ObjectEvent>);

/// Carries the order out while this process may act: its election may be later in noticing that it may not. Whatever
/// happens in several steps (a launch, a call that is tried again) is cut off between two of them.
async fn execute_if_leader(outside: &EffectClients, order: &EffectRequest) -> Performed {
    let done = outside.license.while_valid(perform(outside, order)).await;
    done.unwrap_or_else(|| (Err(not_leading()), Vec::new()))
}

async fn perform(outside: &EffectClients, order: &EffectRequest) -> Performed {
    let EffectClients {
        api,
        clouds,
        shared,
        ..
    } = outside;
    let (by, metrics) = (order.decider, &shared.metrics);
    // Boxed: each arm is a large future, and tens of them may be waiting.
    let cloud = |result: Result<EffectOutput, EffectError>| (result, Vec::new());
    let write = |(result, news): api::Written| (result, news.into_iter().collect());
    match &*order.effect {
        Effect::CreateClaim(claim) => write(Box::pin(api.create_claim(claim)).await),
        Effect::Write(change) => write(Box::pin(api.write(change)).await),
        Effect::Delete {
            target,
            uid,
            grace_seconds,
        } => write(Box::pin(api.delete(target, uid.as_ref(), *grace_seconds)).await),
        Effect::Evict { pod, uid } => {
            write(Box::pin(api.evict(pod, uid, &|code| metrics.pods.eviction(code))).await)
        }
        Effect::ListPods(node) => Box::pin(api.pods_of(node)).await,
        Effect::Launch(request) => cloud(Box::pin(clouds.launch(by, request, metrics)).await),
        Effect::Terminate {
            provider,
            provider_id,
            claim,
        } => cloud(Box::pin(clouds.terminate(by, provider, provider_id, claim, metrics)).await),
        Effect::ListInstances => cloud(Box::pin(clouds.instances(by, metrics)).await),
        Effect::FindInstance {
            provider,
            provider_id,
        } => cloud(Box::pin(clouds.instance(by, provider, provider_id, metrics)).await),
        Effect::Resolve(request) => cloud(Box::pin(clouds.resolve(by, request, metrics)).await),
        Effect::CheckDrift { claim, class } => {
            cloud(Box::pin(clouds.drifted(by, claim, class, metrics)).await)
        }
        Effect::TagInstance(claim) => cloud(Box::pin(clouds.tag(by, claim, metrics)).await),
        Effect::Acknowledge { provider, notice } => {
            cloud(Box::pin(clouds.acknowledge(by, provider, notice, metrics)).await)
        }
        Effect::Event(event) => {
            outside.events.send(event.clone());
            (Ok(EffectOutput::Sent), Vec::new())
        }
    }
}

/// News first: when the decider gets its outcome, the index knows what the write made.
async fn deliver(
    results: &mpsc::Sender<DriverMessage>,
    news: Vec<ObjectEvent>,
    order: EffectRequest,
    result: Result<EffectOutput, EffectError>,
) {
    let outcome = Outcome {
        effect: order.effect,
        result,
    };
    let messages = news
        .into_iter()
        .map(EngineInput::News)
        .chain([EngineInput::Outcome {
            decider: order.decider,
            term: order.term,
            outcome,
        }]);
    for message in messages {
        if results.send(DriverMessage::Input(message)).await.is_err() {
            tracing::debug!("effect completed after the engine loop exited");
        }
    }
}

/// Decision facts of one effect, logged once.
fn by(decider: DeciderId) -> &'static str {
    decider.label()
}

/// Name of this host; in a cluster, of the pod.
pub(crate) fn hostname() -> String {
    let of_environment = std::env::var("HOSTNAME")
        .ok()
        .filter(|name| !name.is_empty());
    let of_kernel = || {
        std::fs::read_to_string("/proc/sys/kernel/hostname")
            .ok()
            .map(|name| name.trim().to_owned())
            .filter(|name| !name.is_empty())
    };
    of_environment
        .or_else(of_kernel)
        .unwrap_or_else(|| "mortise".to_owned())
}

#[cfg(test)]
mod tests;
