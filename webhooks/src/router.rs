//! The only file of this crate that knows HTTP: extract, call, wrap.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Extension, Router};
use mortise_apis::k8s::Pod;
use mortise_state::snapshot::Snapshot;
use serde::Serialize;
use tokio::sync::Semaphore;

use crate::admission::{self, AdmissionContext, AdmissionSettings};
use crate::extender::{self, ExtenderCall, ExtenderState, wire};
use crate::limits::REVIEW;
use crate::pool::Pool;
use crate::routes::{Handler, ROUTES};
use crate::{ClusterView, Counters, conversion};

/// A preview is given up after this: the rest of the second that it may take is for reading, writing and the network.
const PREVIEW: Duration = Duration::from_millis(800);

/// Previews that are computed at a time. Anyone may ask for one, and each takes a processor.
static PREVIEWS: Semaphore = Semaphore::const_new(1);

/// Reviews that are answered at a time; each takes a processor for milliseconds.
const REVIEWS: usize = 2;
/// Conversions that are computed at a time: an API server asks for whole lists.
const CONVERSIONS: usize = 1;

/// In the extensions of a request whose caller may know what the cluster holds. A request without it is answered from the
/// object alone: whoever mounts the router says whom it trusts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trusted;

/// A call that is answered.
#[derive(Clone, Copy)]
struct Input<'a> {
    handler: Handler,
    body: &'a [u8],
    /// The caller may know what the cluster holds.
    trusted: bool,
    /// It is answered with a preview.
    preview: bool,
}

/// What handlers share.
#[derive(Clone)]
pub struct WebhookState {
    /// The process around them.
    pub world: Arc<dyn ClusterView>,
    /// Counts for metrics.
    pub counters: Arc<Counters>,
    /// What the extender keeps from one call to the next.
    pub memory: Arc<ExtenderState>,
    /// How admission answers.
    pub rules: Arc<AdmissionSettings>,
    /// Conversion between versions was asked for; without it there is no such path.
    pub conversion: bool,
}

/// The routes of [`crate::routes::ROUTES`]. Who may call, and how much may be sent at a time, is checked by the server that
/// this is mounted in.
///
/// kube-scheduler's calls are answered on the thread that reads them: they are short, and their callers are known. Whatever
/// anyone may send waits for a thread of a `Pool`, so that no body keeps the lease or a probe waiting.
pub fn router(app: WebhookState) -> Router {
    let reviews = Pool::new(REVIEWS);
    let conversions = Pool::new(CONVERSIONS);
    let mut router = Router::new();
    for route in ROUTES {
        let handler = route.handler;
        let pool = match handler {
            Handler::Convert if !app.conversion => continue,
            Handler::Convert => Some(conversions.clone()),
            Handler::Validate | Handler::Default | Handler::SchedulerName => Some(reviews.clone()),
            _ => None,
        };
        let method = match pool {
            Some(pool) => post(
                move |State(app): State<WebhookState>,
                      trusted: Option<Extension<Trusted>>,
                      body: Bytes| {
                    pooled(pool, app, handler, trusted.is_some(), body)
                },
            ),
            None => post(
                move |State(app): State<WebhookState>, body: Bytes| async move {
                    answer(&app, Input::of(handler, &body))
                },
            ),
        };
        let method = method.layer(DefaultBodyLimit::max(route.body_limit));
        router = router.route(route.path, method);
    }
    router.with_state(app)
}

/// Answers a body on a thread of the pool.
async fn pooled(
    pool: Pool,
    app: WebhookState,
    handler: Handler,
    trusted: bool,
    body: Bytes,
) -> Response {
    let turn = (trusted && may_preview(handler, &body))
        .then(|| PREVIEWS.try_acquire().ok())
        .flatten();
    let preview = turn.is_some();
    let work = move || {
        let input = Input {
            trusted,
            preview,
            ..Input::of(handler, &body)
        };
        let answered = answer(&app, input);
        drop(turn);
        answered
    };
    // A preview takes up to a second, and has a bound of its own; the turns are for those who take milliseconds.
    let answered = if preview {
        tokio::task::spawn_blocking(work).await
    } else {
        pool.run(work).await
    };
    answered.unwrap_or_else(|_| failed())
}

/// Answers a body without a server around: what the route of this path would; `None` when there is no such path, or it is not
/// served. Nothing is previewed.
#[must_use]
pub fn respond(app: &WebhookState, path: &str, body: &[u8]) -> Option<Response> {
    let route = ROUTES.iter().find(|route| route.path == path)?;
    if route.handler == Handler::Convert && !app.conversion {
        return None;
    }
    Some(answer(app, Input::of(route.handler, body)))
}

impl<'a> Input<'a> {
    /// By somebody who is trusted, without a preview.
    const fn of(handler: Handler, body: &'a [u8]) -> Self {
        Self {
            handler,
            body,
            trusted: true,
            preview: false,
        }
    }
}

/// Answers one call. A panic inside never reaches the caller: the scheduler gets everything passed, the API server an
/// error that its failure policy deals with.
fn answer(app: &WebhookState, input: Input<'_>) -> Response {
    let answered = catch_unwind(AssertUnwindSafe(|| call(app, input)));
    answered.unwrap_or_else(|_| {
        app.counters.panics.inc();
        failed()
    })
}

fn failed() -> Response {
    (
        StatusCode::INTERNAL_SERVER_ERROR,
        "internal error; nothing was decided",
    )
        .into_response()
}

/// Only a dry run is answered with a preview, which must not keep other requests waiting.
fn may_preview(handler: Handler, body: &[u8]) -> bool {
    const DRY_RUN: &[u8] = b"\"dryRun\":true";
    handler == Handler::Validate && body.windows(DRY_RUN.len()).any(|part| part == DRY_RUN)
}

fn call(app: &WebhookState, input: Input<'_>) -> Response {
    let Input { handler, body, .. } = input;
    let counters = &app.counters;
    let of_review = matches!(
        handler,
        Handler::Validate | Handler::Default | Handler::SchedulerName
    );
    if of_review && let Err(too_much) = REVIEW.check(body) {
        counters.malformed.inc();
        // The failure policy decides: the definitions refuse what is wrong with it all the same.
        let text = format!("the review {too_much}\n");
        return (StatusCode::PAYLOAD_TOO_LARGE, text).into_response();
    }
    match handler {
        Handler::Filter | Handler::SimulateFilter => {
            let real = handler == Handler::Filter;
            counters.filter.add(u64::from(real));
            parsed::<wire::Args<'_>>(counters, body, |args| filter(app, &args, real))
        }
        Handler::Prioritize | Handler::SimulatePrioritize => {
            let real = handler == Handler::Prioritize;
            counters.prioritize.add(u64::from(real));
            parsed::<wire::Args<'_>>(counters, body, |args| prioritize(app, &args, real))
        }
        Handler::Preempt => {
            counters.preempt.inc();
            parsed::<wire::PreemptionArgs>(counters, body, |args| preempt(app, args))
        }
        Handler::Validate => {
            counters.validate.inc();
            counters.withheld.add(u64::from(!input.trusted));
            validate(app, input)
        }
        Handler::SchedulerName => {
            counters.scheduler_name.inc();
            json(&admission::review(body, counters, |request| {
                match input.trusted {
                    true => admission::scheduler_name(&app.world.snapshot(), request),
                    // The label of a namespace is a fact of the cluster too.
                    false => admission::AdmissionResult::default(),
                }
            }))
        }
        Handler::Convert => match conversion::convert(body, counters) {
            Ok(answer) => json(&answer),
            Err(error) => (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response(),
        },
        Handler::Default => {
            counters.default.inc();
            json(&admission::review(body, counters, |request| {
                admission::default(&app.rules, &app.world.snapshot().well_known, request)
            }))
        }
    }
}

fn filter(app: &WebhookState, args: &wire::Args<'_>, real: bool) -> Response {
    let (world, memory) = (&*app.world, &app.memory);
    let begun = Instant::now();
    if real {
        called(world, memory, &args.pod);
    }
    let answer = extender::filter(world, memory, &app.counters, args, real);
    if real {
        let mut denied = BTreeMap::new();
        let failed = answer.failed_and_unresolvable_nodes.iter();
        for (_, message) in failed.flat_map(|failed| &failed.0) {
            *denied.entry(*message).or_insert(0) += 1;
        }
        let nodes = args.names().len();
        let call = asked(world, "filter", &args.pod, nodes, begun);
        memory.calls.keep(ExtenderCall {
            nominated_node: answer.nominated_node,
            denied,
            ..call
        });
    }
    json(&answer)
}

fn prioritize(app: &WebhookState, args: &wire::Args<'_>, real: bool) -> Response {
    let (world, memory) = (&*app.world, &app.memory);
    let begun = Instant::now();
    if real {
        called(world, memory, &args.pod);
    }
    let answer = extender::prioritize(world, memory, &app.counters, args);
    if real {
        let best = answer.iter().map(|each| each.score).max();
        let call = asked(world, "prioritize", &args.pod, answer.len(), begun);
        memory.calls.keep(ExtenderCall { best, ..call });
    }
    json(&answer)
}

fn preempt(app: &WebhookState, args: wire::PreemptionArgs) -> Response {
    let (world, memory) = (&*app.world, &app.memory);
    let begun = Instant::now();
    called(world, memory, &args.pod);
    let call = asked(world, "preempt", &args.pod, args.len(), begun);
    let answer = extender::preempt(world, memory, &app.counters, args);
    let micros = micros_since(begun);
    memory.calls.keep(ExtenderCall { micros, ..call });
    json(&answer)
}

fn validate(app: &WebhookState, input: Input<'_>) -> Response {
    let world = &*app.world;
    json(&admission::review(input.body, &app.counters, |request| {
        let begun = Instant::now();
        let snapshot = match input.trusted {
            true => world.snapshot(),
            // Nothing but how labels are read.
            false => Snapshot::unseen(world.snapshot().well_known.clone(), world.now()).into(),
        };
        admission::validate(
            &AdmissionContext {
                snapshot: &snapshot,
                rules: &app.rules,
                now: world.now(),
                stop: &|| !input.preview || begun.elapsed() > PREVIEW,
            },
            request,
        )
    }))
}

/// A scheduler asks.
fn called(world: &dyn ClusterView, memory: &ExtenderState, pod: &Pod) {
    let scheduler = pod.spec.scheduler_name.as_deref();
    memory.schedulers.called(scheduler, world.now());
}

/// What is kept of a call, as far as all calls have it.
fn asked(
    world: &dyn ClusterView,
    call: &'static str,
    pod: &Pod,
    nodes: usize,
    begun: Instant,
) -> ExtenderCall {
    let part = |text: &Option<String>| text.clone().unwrap_or_default();
    let (namespace, name) = (part(&pod.metadata.namespace), part(&pod.metadata.name));
    ExtenderCall {
        at: world.now(),
        call,
        pod: format!("{namespace}/{name}"),
        nodes,
        nominated_node: None,
        denied: BTreeMap::new(),
        best: None,
        micros: micros_since(begun),
    }
}

fn micros_since(begun: Instant) -> u64 {
    u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX)
}

/// A body that cannot be read is 400 with the place of the error: kube-scheduler then goes on without us. An empty answer
/// would reject every node.
fn parsed<'a, T: serde::Deserialize<'a>>(
    counters: &Counters,
    body: &'a [u8],
    then: impl FnOnce(T) -> Response,
) -> Response {
    match serde_json::from_slice(body) {
        Ok(value) => then(value),
        Err(error) => {
            counters.malformed.inc();
            (
                StatusCode::BAD_REQUEST,
                format!("body is not an extender message: {error}\n"),
            )
                .into_response()
        }
    }
}

fn json<T: Serialize>(value: &T) -> Response {
    match serde_json::to_vec(value) {
        Ok(body) => ([(header::CONTENT_TYPE, "application/json")], body).into_response(),
        Err(error) => (
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("failed to encode response: {error}\n"),
        )
            .into_response(),
    }
}
