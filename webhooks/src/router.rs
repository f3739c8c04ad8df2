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

/// A preview is abandoned after this: the rest of the second that it may take is for reading, writing and the network.
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
    pub view: Arc<dyn ClusterView>,
    /// Counts for metrics.
    pub counters: Arc<Counters>,
    /// What the extender keeps from one call to the next.
    pub extender: Arc<ExtenderState>,
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
                    respond_on_pool(pool, app, handler, trusted.is_some(), body)
                },
            ),
            None => post(
                move |State(app): State<WebhookState>, body: Bytes| async move {
                    dispatch_or_500(&app, Input::from_trusted(handler, &body))
                },
            ),
        };
        let method = method.layer(DefaultBodyLimit::max(route.body_limit));
        router = router.route(route.path, method);
    }
    router.with_state(app)
}

/// Answers a body on a thread of the pool.
async fn respond_on_pool(
    pool: Pool,
    app: WebhookState,
    handler: Handler,
    trusted: bool,
    body: Bytes,
) -> Response {
    let permit = (trusted && may_preview(handler, &body))
        .then(|| PREVIEWS.try_acquire().ok())
        .flatten();
    let preview = permit.is_some();
    let work = move || {
        let input = Input {
            trusted,
            preview,
            ..Input::from_trusted(handler, &body)
        };
        let answered = dispatch_or_500(&app, input);
        drop(permit);
        answered
    };
    // A preview takes up to a second, and has a bound of its own; the turns are for those who take milliseconds.
    let answered = if preview {
        tokio::task::spawn_blocking(work).await
    } else {
        pool.run(work).await
    };
    answered.unwrap_or_else(|_| internal_error())
}

/// Answers a body without a server around: what the route of this path would; `None` when there is no such path, or it is not
/// served. Nothing is previewed.
#[must_use]
pub fn respond(app: &WebhookState, path: &str, body: &[u8]) -> Option<Response> {
    let route = ROUTES.iter().find(|route| route.path == path)?;
    if route.handler == Handler::Convert && !app.conversion {
        return None;
    }
    Some(dispatch_or_500(
        app,
        Input::from_trusted(route.handler, body),
    ))
}

impl<'a> Input<'a> {
    /// By a caller that is trusted, without a preview.
    const fn from_trusted(handler: Handler, body: &'a [u8]) -> Self {
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
fn dispatch_or_500(app: &WebhookState, input: Input<'_>) -> Response {
    let answered = catch_unwind(AssertUnwindSafe(|| dispatch(app, input)));
    answered.unwrap_or_else(|_| {
        app.counters.panics.inc();
        internal_error()
    })
}

fn internal_error() -> Response {
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

fn dispatch(app: &WebhookState, input: Input<'_>) -> Response {
    let Input { handler, body, .. } = input;
    let counters = &app.counters;
    let is_review = matches!(
        handler,
        Handler::Validate | Handler::Default | Handler::SchedulerName
    );
    if is_review && let Err(too_much) = REVIEW.check(body) {
        counters.malformed.inc();
        // The failure policy decides: the definitions refuse what is wrong with it all the same.
        let text = format!("the review {too_much}\n");
        return (StatusCode::PAYLOAD_TOO_LARGE, text).into_response();
    }
    match handler {
        Handler::Filter | Handler::SimulateFilter => {
            let real = handler == Handler::Filter;
            counters.filter.add(u64::from(real));
            with_body::<wire::Args<'_>>(counters, body, |args| respond_to_filter(app, &args, real))
        }
        Handler::Prioritize | Handler::SimulatePrioritize => {
            let real = handler == Handler::Prioritize;
            counters.prioritize.add(u64::from(real));
            with_body::<wire::Args<'_>>(counters, body, |args| {
                respond_to_prioritize(app, &args, real)
            })
        }
        Handler::Preempt => {
            counters.preempt.inc();
            with_body::<wire::PreemptionArgs>(counters, body, |args| respond_to_preempt(app, args))
        }
        Handler::Validate => {
            counters.validate.inc();
            counters.withheld.add(u64::from(!input.trusted));
            respond_to_validation(app, input)
        }
        Handler::SchedulerName => {
            counters.scheduler_name.inc();
            json_response(&admission::respond_to_review(body, counters, |request| {
                match input.trusted {
                    true => admission::set_scheduler_name(&app.view.snapshot(), request),
                    // The label of a namespace is a fact of the cluster too.
                    false => admission::AdmissionResult::default(),
                }
            }))
        }
        Handler::Convert => match conversion::convert(app.rules.crds.known(), body, counters) {
            Ok(answer) => json_response(&answer),
            Err(error) => (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response(),
        },
        Handler::Default => {
            counters.default.inc();
            json_response(&admission::respond_to_review(body, counters, |request| {
                admission::set_defaults(&app.rules, &app.view.snapshot().well_known, request)
            }))
        }
    }
}

fn respond_to_filter(app: &WebhookState, args: &wire::Args<'_>, real: bool) -> Response {
    let (view, extender_state) = (&*app.view, &app.extender);
    let start = Instant::now();
    if real {
        record_scheduler_call(view, extender_state, &args.pod);
    }
    let answer = extender::filter(view, extender_state, &app.counters, args, real);
    if real {
        let mut denied = BTreeMap::new();
        let failed = answer.failed_and_unresolvable_nodes.iter();
        for (_, message) in failed.flat_map(|failed| &failed.0) {
            *denied.entry(*message).or_insert(0) += 1;
        }
        let nodes = args.names().len();
        let call = new_call(view, "filter", &args.pod, nodes, start);
        extender_state.call_log.push(ExtenderCall {
            nominated_node: answer.nominated_node,
            denied,
            ..call
        });
    }
    json_response(&answer)
}

fn respond_to_prioritize(app: &WebhookState, args: &wire::Args<'_>, real: bool) -> Response {
    let (view, extender_state) = (&*app.view, &app.extender);
    let start = Instant::now();
    if real {
        record_scheduler_call(view, extender_state, &args.pod);
    }
    let answer = extender::prioritize(view, extender_state, &app.counters, args);
    if real {
        let best = answer.iter().map(|each| each.score).max();
        let call = new_call(view, "prioritize", &args.pod, answer.len(), start);
        extender_state.call_log.push(ExtenderCall { best, ..call });
    }
    json_response(&answer)
}

fn respond_to_preempt(app: &WebhookState, args: wire::PreemptionArgs) -> Response {
    let (view, extender_state) = (&*app.view, &app.extender);
    let start = Instant::now();
    record_scheduler_call(view, extender_state, &args.pod);
    let call = new_call(view, "preempt", &args.pod, args.len(), start);
    let answer = extender::preempt(view, extender_state, &app.counters, args);
    let micros = micros_since(start);
    extender_state
        .call_log
        .push(ExtenderCall { micros, ..call });
    json_response(&answer)
}

fn respond_to_validation(app: &WebhookState, input: Input<'_>) -> Response {
    let view = &*app.view;
    json_response(&admission::respond_to_review(
        input.body,
        &app.counters,
        |request| {
            let start = Instant::now();
            let snapshot = match input.trusted {
                true => view.snapshot(),
                // Nothing but how labels are read.
                false => Snapshot::unseen(view.snapshot().well_known.clone(), view.now()).into(),
            };
            admission::validate(
                &AdmissionContext {
                    snapshot: &snapshot,
                    rules: &app.rules,
                    now: view.now(),
                    stop: &|| !input.preview || start.elapsed() > PREVIEW,
                },
                request,
            )
        },
    ))
}

/// A scheduler asks.
fn record_scheduler_call(view: &dyn ClusterView, extender_state: &ExtenderState, pod: &Pod) {
    let scheduler = pod.spec.scheduler_name.as_deref();
    extender_state.schedulers.record_call(scheduler, view.now());
}

/// What is kept of a call, as far as all calls have it.
fn new_call(
    view: &dyn ClusterView,
    call: &'static str,
    pod: &Pod,
    nodes: usize,
    start: Instant,
) -> ExtenderCall {
    let part = |text: &Option<String>| text.clone().unwrap_or_default();
    let (namespace, name) = (part(&pod.metadata.namespace), part(&pod.metadata.name));
    ExtenderCall {
        at: view.now(),
        call,
        pod: format!("{namespace}/{name}"),
        nodes,
        nominated_node: None,
        denied: BTreeMap::new(),
        best: None,
        micros: micros_since(start),
    }
}

fn micros_since(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX)
}

/// A body that cannot be read is 400 with the place of the error: kube-scheduler then goes on without us. An empty answer
/// would reject every node.
fn with_body<'a, T: serde::Deserialize<'a>>(
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

fn json_response<T: Serialize>(value: &T) -> Response {
    match serde_json::to_vec(value) {
        Ok(body) => ([(header::CONTENT_TYPE, "application/json")], body).into_response(),
        Err(error) => (
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("failed to encode response: {error}\n"),
        )
            .into_response(),
    }
}
