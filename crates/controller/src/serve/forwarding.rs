//! Calls of kube-scheduler that reach a replica which does not lead are answered by the leader.
//!
//! kube-scheduler keeps one connection to one replica, and the leader alone knows all nominations, booked gangs and pods about to be
//! bound. Only it can use the calls as signals, too. So a replica that does not lead asks the leader, and answers by itself, from what
//! objects say, when there is no answer soon.
//!
//! # Cost
//! One more request within the cluster for each call, on a connection that stays open. On the leader, one look at a flag.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::{HeaderName, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use jiff::Timestamp;
use mortise_apis::values::after;
use mortise_webhooks::extender::ExtenderState;
use mortise_webhooks::routes::{Handler, route};
use rustls::ClientConfig;

use crate::service_state::ServiceState;
use crate::tls::Tls;

/// Marks a call that another replica forwards. It is answered by a leader only, and never forwarded again.
const FORWARDED: HeaderName = HeaderName::from_static("mortise-forwarded");
/// What the leader's answer is like, and the trace that the call belongs to.
const KEPT: [HeaderName; 2] = [header::CONTENT_TYPE, HeaderName::from_static("traceparent")];
/// Longest wait for the leader. kube-scheduler itself waits for 300 ms, as we advise, and there has to be time for an answer of our own.
pub(super) const WITHIN: Duration = Duration::from_millis(100);
/// After a failure the leader is not asked for this time: calls do not pay for it one after another.
const PAUSE_MS: i64 = 1_000;
/// Unused connections are closed before the leader closes them.
const IDLE: Duration = Duration::from_secs(60);

type ReplicaClient = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// What replicas need to forward calls.
#[derive(Clone)]
pub(super) struct Forwarding(Arc<ForwardingState>);

struct ForwardingState {
    shared: Arc<ServiceState>,
    extender: Arc<ExtenderState>,
    tls: Arc<Tls>,
    /// Longest wait for the leader.
    within: Duration,
    /// The client, and the settings that it was built with: they change with the certificate.
    client: Mutex<Option<(Arc<ClientConfig>, ReplicaClient)>>,
    /// When the leader is asked again, in milliseconds since the epoch.
    paused_until: AtomicI64,
}

/// Why the leader gave no answer.
enum Unanswered {
    /// It cannot read the call. This replica says why, in the same words.
    Unreadable,
    /// It does not lead, is too busy, or does not accept this replica.
    Refused,
    /// It cannot be reached, or not in time.
    Failed(String),
}

impl Forwarding {
    pub(super) fn new(
        shared: Arc<ServiceState>,
        extender: Arc<ExtenderState>,
        tls: Arc<Tls>,
        within: Duration,
    ) -> Self {
        Self(Arc::new(ForwardingState {
            shared,
            extender,
            tls,
            within,
            client: Mutex::default(),
            paused_until: AtomicI64::new(i64::MIN),
        }))
    }
}

/// The middleware: asks the leader, or has the call answered here.
pub(super) async fn to_leader(
    State(Forwarding(forwarding)): State<Forwarding>,
    request: Request,
    next: Next,
) -> Response {
    let handler = route(request.uri().path()).map(|route| route.handler);
    let is_call = matches!(
        handler,
        Some(Handler::Filter | Handler::Prioritize | Handler::Preempt)
    );
    if !is_call || forwarding.shared.health.is_leading() {
        return next.run(request).await;
    }
    if request.headers().contains_key(&FORWARDED) {
        let message = "this replica does not lead\n";
        return (StatusCode::MISDIRECTED_REQUEST, message).into_response();
    }
    let (parts, body) = request.into_parts();
    // It was read before, and is in memory.
    let body = match body.collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => return (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response(),
    };
    if let Some(response) = forwarding.ask_leader(&parts, &body).await {
        return response;
    }
    next.run(Request::from_parts(parts, Body::from(body))).await
}

impl ForwardingState {
    /// The leader's answer; `None` if it gives none.
    async fn ask_leader(&self, parts: &http::request::Parts, body: &Bytes) -> Option<Response> {
        let now = self.shared.now();
        let address = self.shared.leader_address()?;
        let metrics = &self.shared.metrics.http;
        if now.as_millisecond() < self.paused_until.load(Ordering::Relaxed) {
            metrics.forwarded("not_sent");
            return None;
        }
        let client = self.client()?;
        let uri = format!("https://{address}{}", parts.uri.path());
        let mut request = http::Request::post(uri).header(FORWARDED, "true");
        for name in &KEPT {
            if let Some(value) = parts.headers.get(name) {
                request = request.header(name, value);
            }
        }
        let request = request.body(Full::new(body.clone())).ok()?;
        let answered = tokio::time::timeout(self.within, answer(client, request)).await;
        let answered = answered.unwrap_or_else(|_| {
            let message = format!("no answer within {} ms", self.within.as_millis());
            Err(Unanswered::Failed(message))
        });
        let outcome = match answered {
            Ok(response) => {
                metrics.forwarded("answered");
                self.extender.schedulers.record_forwarded_call(now);
                return Some(response);
            }
            Err(Unanswered::Unreadable) => "refused",
            Err(Unanswered::Refused) => {
                self.pause(now);
                "refused"
            }
            Err(Unanswered::Failed(error)) => {
                self.pause(now);
                tracing::debug!(%address, error, "leader did not answer an extender call");
                "failed"
            }
        };
        metrics.forwarded(outcome);
        None
    }

    fn pause(&self, now: Timestamp) {
        let until = after(now, PAUSE_MS).as_millisecond();
        self.paused_until.store(until, Ordering::Relaxed);
    }

    /// The client with the present certificate; `None` without a certificate.
    fn client(&self) -> Option<ReplicaClient> {
        let config = Arc::clone(&self.tls.current()?.to_replicas);
        let mut client = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, client)) = &*client
            && Arc::ptr_eq(of, &config)
        {
            return Some(client.clone());
        }
        let built = build(&config);
        *client = Some((config, built.clone()));
        Some(built)
    }
}

fn build(config: &ClientConfig) -> ReplicaClient {
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_nodelay(true);
    let https = HttpsConnectorBuilder::new()
        .with_tls_config(config.clone())
        .https_only()
        .enable_http1()
        .wrap_connector(http);
    Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE)
        .build(https)
}

async fn answer(
    client: ReplicaClient,
    request: http::Request<Full<Bytes>>,
) -> Result<Response, Unanswered> {
    let failed = |error: &dyn std::error::Error| {
        let cause = error.source().map(|cause| format!(": {cause}"));
        Unanswered::Failed(format!("{error}{}", cause.unwrap_or_default()))
    };
    let response = client
        .request(request)
        .await
        .map_err(|error| failed(&error))?;
    match response.status() {
        StatusCode::OK => {}
        StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE => {
            return Err(Unanswered::Unreadable);
        }
        _ => return Err(Unanswered::Refused),
    }
    let (mut parts, body) = response.into_parts();
    let body = body.collect().await.map_err(|error| failed(&error))?;
    let content_type = parts.headers.remove(header::CONTENT_TYPE);
    let mut response = Response::new(Body::from(body.to_bytes()));
    if let Some(content_type) = content_type {
        response
            .headers_mut()
            .insert(header::CONTENT_TYPE, content_type);
    }
    Ok(response)
}

#[cfg(test)]
mod tests;
