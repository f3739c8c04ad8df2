//! Traces: how long the phases of a node's life took, and the service's part of requests that a caller traces, in OpenTelemetry's protocol.
//!
//! ```text
//! engine loop, effects, HTTPS ─► queue ─► batch ─► OTLP over HTTP ─► collector
//! ```
//!
//! # Invariant
//! Nothing waits for a collector: a full queue drops, and says so in a counter.
//!
//! # Cost
//! Nothing without a collector. With one, some ten spans for a node that comes and goes, and one for each request that its caller traces.

mod node_claim;
mod span;
mod trace_parent;

use std::time::Duration;

use http::Uri;
use hyper::body::Bytes;
use jiff::Timestamp;
use mortise_apis::NodeClaim;
use mortise_engine::effect::{Effect, EffectError, EffectOutput};
use mortise_state::snapshot::Snapshot;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans};
use prost::Message as _;
use tokio::sync::mpsc;

use crate::client::receiver::ReceiverClient;
use crate::config::TraceConfig;
use crate::error::RunError;
use crate::metrics::SpanCounter;
use span::{Span, SpanId, SpanKind, key_values};
use trace_parent::TraceParent;

/// Spans that may wait.
const QUEUE: usize = 2048;
/// Most spans of one message.
const BATCH: usize = 512;
/// The first span waits this long for others.
const SETTLE: Duration = Duration::from_secs(1);

/// Takes spans that are to be sent.
#[derive(Clone, Debug)]
pub(crate) struct Traces {
    queue: mpsc::Sender<Span>,
    counter: SpanCounter,
}

/// Who sends, as the collector shows it.
#[derive(Clone, Debug)]
pub(crate) struct TraceSource {
    /// Version of the program.
    pub(crate) version: String,
    /// Name of the process among its replicas.
    pub(crate) instance: String,
}

/// A request that its caller traces.
pub(crate) struct TracedRequest {
    parent: TraceParent,
    start: Timestamp,
    method: String,
    /// Without parameters.
    path: String,
}

impl TracedRequest {
    /// `None` for a request that its caller does not trace.
    pub(crate) fn begin<B>(request: &http::Request<B>, now: Timestamp) -> Option<Self> {
        Some(Self {
            parent: TraceParent::of_request(request.headers())?,
            start: now,
            method: request.method().to_string(),
            path: request.uri().path().to_owned(),
        })
    }

    fn span(self, status: http::StatusCode, end: Timestamp) -> Span {
        let Self {
            parent,
            start,
            method,
            path,
        } = self;
        Span {
            trace: parent.trace,
            id: SpanId::random(),
            parent: Some(parent.span),
            name: format!("{method} {path}"),
            kind: SpanKind::Server,
            start,
            end,
            attributes: vec![
                ("http.request.method", method),
                ("url.path", path),
                ("http.response.status_code", status.as_str().to_owned()),
            ],
            link: None,
            error: status.is_server_error().then(|| status.to_string()),
        }
    }
}

impl Traces {
    /// The sending half, and the task that must be run.
    ///
    /// # Errors
    /// This computer has no certificate authorities.
    pub(crate) fn new(
        config: TraceConfig,
        source: TraceSource,
        counter: SpanCounter,
    ) -> Result<(Self, impl Future<Output = ()> + Send), RunError> {
        let client = ReceiverClient::new().map_err(|message| RunError::Traces {
            endpoint: config.endpoint.to_string(),
            message,
        })?;
        tracing::info!(endpoint = %config.endpoint, "traces are sent to a collector");
        let (queue, waiting) = mpsc::channel(QUEUE);
        let task = run(waiting, client, config, source, counter.clone());
        Ok((Self { queue, counter }, task))
    }

    /// Takes what changed on a NodeClaim.
    pub(crate) fn claim_changed(
        &self,
        before: Option<&NodeClaim>,
        after: Option<&NodeClaim>,
        now: Timestamp,
    ) {
        self.offer(node_claim::spans(before, after, now));
    }

    /// Takes the call of an effect to the cloud.
    pub(crate) fn called(
        &self,
        effect: &Effect,
        result: &Result<EffectOutput, EffectError>,
        times: (Timestamp, Timestamp),
        snapshot: &Snapshot,
    ) {
        self.offer(node_claim::call(effect, result, times, snapshot));
    }

    /// Takes a request whose answer begins to be sent.
    pub(crate) fn answered(
        &self,
        request: TracedRequest,
        status: http::StatusCode,
        now: Timestamp,
    ) {
        self.offer([request.span(status, now)]);
    }

    fn offer(&self, spans: impl IntoIterator<Item = Span>) {
        for span in spans {
            if self.queue.try_send(span).is_err() {
                self.counter.count("dropped", 1);
            }
        }
    }
}

async fn run(
    mut waiting: mpsc::Receiver<Span>,
    client: ReceiverClient,
    config: TraceConfig,
    source: TraceSource,
    counter: SpanCounter,
) {
    let resource = resource(&config, source);
    let mut batch = Vec::new();
    while waiting.recv_many(&mut batch, BATCH).await > 0 {
        let send_at = tokio::time::Instant::now() + SETTLE;
        while batch.len() < BATCH
            && let Ok(Some(span)) = tokio::time::timeout_at(send_at, waiting.recv()).await
        {
            batch.push(span);
        }
        let count = batch.len();
        let body = request(&resource, batch.drain(..)).encode_to_vec();
        let url = || Ok::<Uri, String>(config.endpoint.clone());
        let sent = client.send(url, "application/x-protobuf", Bytes::from(body));
        let result = match sent.await {
            Ok(()) => "sent",
            Err(message) => {
                tracing::warn!(endpoint = %config.endpoint, message, spans = count, "failed to send traces");
                "failed"
            }
        };
        counter.count(result, count);
    }
}

fn resource(config: &TraceConfig, source: TraceSource) -> Resource {
    Resource {
        attributes: key_values(vec![
            ("service.name", "mortise".to_owned()),
            ("service.version", source.version),
            ("service.instance.id", source.instance),
            ("k8s.cluster.name", config.cluster.clone()),
        ]),
        ..Resource::default()
    }
}

fn request(
    resource: &Resource,
    spans: impl IntoIterator<Item = Span>,
) -> ExportTraceServiceRequest {
    ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans {
            resource: Some(resource.clone()),
            scope_spans: vec![ScopeSpans {
                scope: Some(InstrumentationScope {
                    name: "mortise".to_owned(),
                    ..InstrumentationScope::default()
                }),
                spans: spans.into_iter().map(Into::into).collect(),
                ..ScopeSpans::default()
            }],
            ..ResourceSpans::default()
        }],
    }
}

#[cfg(test)]
mod tests;
