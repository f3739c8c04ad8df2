//! One span, and its form in OpenTelemetry's protocol.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};

use jiff::Timestamp;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1 as otlp;
use opentelemetry_proto::tonic::trace::v1::Status;
use opentelemetry_proto::tonic::trace::v1::span::Link;
pub(super) use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;

/// The trace that a span belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TraceId(u128);

/// A span within its trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SpanId(u64);

/// Something that took time.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Span {
    pub(super) trace: TraceId,
    pub(super) id: SpanId,
    /// `None`: the span is the root of its trace.
    pub(super) parent: Option<SpanId>,
    pub(super) name: String,
    pub(super) kind: SpanKind,
    pub(super) start: Timestamp,
    pub(super) end: Timestamp,
    pub(super) attributes: Vec<(&'static str, String)>,
    /// The span of another trace that came before.
    pub(super) link: Option<(TraceId, SpanId)>,
    /// Why it failed.
    pub(super) error: Option<String>,
}

impl TraceId {
    /// 32 hexadecimal digits, with or without hyphens; `None` for anything else, and for zero, which no trace has.
    pub(super) fn from_hex(text: &str) -> Option<Self> {
        let digits: String = text.chars().filter(|each| *each != '-').collect();
        let is_hex = digits.len() == 32 && digits.bytes().all(|each| each.is_ascii_hexdigit());
        let id = u128::from_str_radix(&digits, 16).ok()?;
        (is_hex && id != 0).then_some(Self(id))
    }

    /// Another trace about the same.
    pub(super) const fn other(self) -> Self {
        Self(!self.0)
    }

    /// The root of the trace: its first half.
    pub(super) fn root(self) -> SpanId {
        self.child(0)
    }

    /// The span at this place below the root.
    pub(super) fn child(self, at: u64) -> SpanId {
        let half = u64::try_from(self.0 >> 64).unwrap_or_default() ^ at;
        SpanId(half.max(1))
    }
}

impl SpanId {
    /// 16 hexadecimal digits; `None` for anything else, and for zero, which no span has.
    pub(super) fn from_hex(text: &str) -> Option<Self> {
        let is_hex = text.len() == 16 && text.bytes().all(|each| each.is_ascii_hexdigit());
        let id = u64::from_str_radix(text, 16).ok()?;
        (is_hex && id != 0).then_some(Self(id))
    }

    /// Of a span that no other has to find.
    pub(super) fn random() -> Self {
        Self(RandomState::new().build_hasher().finish().max(1))
    }
}

impl From<Span> for otlp::Span {
    fn from(span: Span) -> Self {
        let nanoseconds = |at: Timestamp| u64::try_from(at.as_nanosecond()).unwrap_or_default();
        let link = |(trace, id): (TraceId, SpanId)| Link {
            trace_id: trace.0.to_be_bytes().to_vec(),
            span_id: id.0.to_be_bytes().to_vec(),
            ..Link::default()
        };
        let parent = span.parent.map(|id| id.0.to_be_bytes().to_vec());
        Self {
            trace_id: span.trace.0.to_be_bytes().to_vec(),
            span_id: span.id.0.to_be_bytes().to_vec(),
            parent_span_id: parent.unwrap_or_default(),
            name: span.name,
            kind: span.kind.into(),
            start_time_unix_nano: nanoseconds(span.start),
            end_time_unix_nano: nanoseconds(span.end),
            attributes: key_values(span.attributes),
            links: span.link.into_iter().map(link).collect(),
            status: span.error.map(|message| Status {
                message,
                code: StatusCode::Error.into(),
            }),
            ..Self::default()
        }
    }
}

/// Attributes without those that are empty.
pub(super) fn key_values(attributes: Vec<(&'static str, String)>) -> Vec<KeyValue> {
    let all = attributes.into_iter().filter(|(_, text)| !text.is_empty());
    all.map(|(key, text)| KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue {
            value: Some(Value::StringValue(text)),
        }),
        ..KeyValue::default()
    })
    .collect()
}
