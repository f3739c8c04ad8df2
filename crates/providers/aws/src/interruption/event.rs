//! Messages of the interruption queue: EventBridge events, read into what they announce. Pure.
//!
//! A message that means nothing to us is [`InterruptionKind::Other`] and is removed from the queue; so is one that cannot be read, after a
//! line in the log: it would come back indefinitely and say nothing new.
//!
//! # Source
//! EventBridge's envelope and the EC2 and Health events of the EC2 user guide; checked against recorded answers, which is where the
//! leniency comes from (keys in any case, an empty body, a message without an instance id).

use std::sync::Arc;

use jiff::Timestamp;
use mortise_cloudprovider::InterruptionKind;
use serde_json::{Map, Value};

/// What a message announces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterruptionEvent {
    /// What kind of thing.
    pub kind: InterruptionKind,
    /// Ids of the instances concerned, as written; an id that the message should have but lacks is empty.
    pub instances: Vec<Arc<str>>,
    /// When the event happened.
    pub sent: Option<Timestamp>,
    /// When what it announces begins, if it says so.
    pub starts: Option<Timestamp>,
}

/// Why a message cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// It is not one JSON object.
    #[error("the message is not JSON: {0}")]
    Syntax(String),
    /// A field has the wrong type.
    #[error("field `{field}` of the message: expected {expected}, got {found}")]
    Field {
        /// Path of the field.
        field: &'static str,
        /// What is allowed.
        expected: &'static str,
        /// What was there.
        found: String,
    },
}

const TEXT: &str = "a text";

/// Reads the body of a queue message.
/// # Errors
/// It is not JSON, or a field that we read has another type than the event's.
pub fn parse(body: &str) -> Result<InterruptionEvent, MessageError> {
    if body.is_empty() {
        return Ok(nothing(None));
    }
    let value: Value =
        serde_json::from_str(body).map_err(|error| MessageError::Syntax(error.to_string()))?;
    let envelope = match &value {
        Value::Object(envelope) => envelope,
        Value::Null => return Ok(nothing(None)),
        other => {
            return Err(MessageError::Syntax(format!(
                "expected an object, got {other}"
            )));
        }
    };
    let version = text(envelope, "version")?;
    let source = text(envelope, "source")?;
    let detail_type = text(envelope, "detail-type")?;
    let sent = match field(envelope, "time") {
        None | Some(Value::Null) => None,
        Some(value) => {
            let time = value
                .as_str()
                .and_then(|text| text.parse::<Timestamp>().ok());
            Some(time.ok_or_else(|| wrong("time", "an RFC 3339 time", value))?)
        }
    };
    let none = Map::new();
    let detail = match field(envelope, "detail") {
        None | Some(Value::Null) => &none,
        Some(value) => value
            .as_object()
            .ok_or_else(|| wrong("detail", "an object", value))?,
    };
    if version != "0" {
        return Ok(nothing(sent));
    }
    let one = |kind| {
        Ok(InterruptionEvent {
            kind,
            instances: vec![Arc::from(text(detail, "instance-id")?)],
            sent,
            starts: None,
        })
    };
    match (source, detail_type) {
        ("aws.ec2", "EC2 Spot Instance Interruption Warning") => {
            one(InterruptionKind::SpotInterruption)
        }
        ("aws.ec2", "EC2 Instance Rebalance Recommendation") => {
            one(InterruptionKind::RebalanceRecommendation)
        }
        ("aws.ec2", "EC2 Capacity Reservation Instance Interruption Warning") => {
            one(InterruptionKind::CapacityReservationInterruption)
        }
        ("aws.ec2", "EC2 Instance State-change Notification") => {
            match state(text(detail, "state")?) {
                Some(kind) => one(kind),
                None => Ok(nothing(None)),
            }
        }
        ("aws.health", "AWS Health Event") => health(detail, sent),
        _ => Ok(nothing(sent)),
    }
}

const fn nothing(sent: Option<Timestamp>) -> InterruptionEvent {
    InterruptionEvent {
        kind: InterruptionKind::Other,
        instances: Vec::new(),
        sent,
        starts: None,
    }
}

/// What a state means for the node. EC2 writes lower case; in any other case every ending state counts as the final one, as recorded.
fn state(state: &str) -> Option<InterruptionKind> {
    match state {
        "stopping" | "stopped" => Some(InterruptionKind::Stopping),
        _ => ["stopping", "stopped", "shutting-down", "terminated"]
            .iter()
            .any(|end| end.eq_ignore_ascii_case(state))
            .then_some(InterruptionKind::Terminated),
    }
}

fn health(
    detail: &Map<String, Value>,
    sent: Option<Timestamp>,
) -> Result<InterruptionEvent, MessageError> {
    if text(detail, "service")? != "EC2" || text(detail, "eventTypeCategory")? != "scheduledChange"
    {
        return Ok(nothing(None));
    }
    // An event that is over or was called off is sent once more, as closed.
    if field(detail, "statusCode").and_then(Value::as_str) == Some("closed") {
        return Ok(nothing(sent));
    }
    let entities = match field(detail, "affectedEntities") {
        None | Some(Value::Null) => &[][..],
        Some(value) => value
            .as_array()
            .ok_or_else(|| wrong("detail.affectedEntities", "a list of objects", value))?,
    };
    let instances = entities.iter().map(|entity| {
        let entity = entity
            .as_object()
            .ok_or_else(|| wrong("detail.affectedEntities", "a list of objects", entity))?;
        Ok(Arc::from(text(entity, "entityValue")?))
    });
    Ok(InterruptionEvent {
        kind: InterruptionKind::ScheduledChange,
        instances: instances.collect::<Result<_, _>>()?,
        sent,
        starts: field(detail, "startTime")
            .and_then(Value::as_str)
            .and_then(start_time),
    })
}

/// A time as AWS Health writes it (RFC 2822, such as `Thu, 27 Jan 2026 13:19:03 GMT`) or as everything else does. One that cannot be
/// read is not known: the event is acted on at once.
fn start_time(text: &str) -> Option<Timestamp> {
    let health = || {
        jiff::fmt::rfc2822::DateTimeParser::new()
            .relaxed_weekday(true)
            .parse_timestamp(text)
    };
    text.parse().or_else(|_| health()).ok()
}

/// A field by its name, or by its name in another case.
fn field<'a>(object: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    object.get(name).or_else(|| {
        object
            .iter()
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    })
}

/// A text field; empty when it is absent.
fn text<'a>(object: &'a Map<String, Value>, name: &'static str) -> Result<&'a str, MessageError> {
    match field(object, name) {
        None | Some(Value::Null) => Ok(""),
        Some(value) => value.as_str().ok_or_else(|| wrong(name, TEXT, value)),
    }
}

fn wrong(field: &'static str, expected: &'static str, found: &Value) -> MessageError {
    MessageError::Field {
        field,
        expected,
        found: found.to_string().chars().take(60).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(detail_type: &str, detail: &str) -> String {
        format!(
            r#"{{"version":"0","source":"aws.ec2","detail-type":"{detail_type}","time":"2026-01-02T03:04:05Z","detail":{detail}}}"#
        )
    }

    #[test]
    fn kinds() {
        for (detail_type, kind) in [
            (
                "EC2 Spot Instance Interruption Warning",
                InterruptionKind::SpotInterruption,
            ),
            (
                "EC2 Instance Rebalance Recommendation",
                InterruptionKind::RebalanceRecommendation,
            ),
            (
                "EC2 Capacity Reservation Instance Interruption Warning",
                InterruptionKind::CapacityReservationInterruption,
            ),
        ] {
            let read = parse(&event(detail_type, r#"{"instance-id":"i-1"}"#)).unwrap();
            assert_eq!(
                (read.kind, &*read.instances),
                (kind, &[Arc::from("i-1")][..]),
                "{detail_type}"
            );
            assert_eq!(read.sent.map(|time| time.as_second()), Some(1_767_323_045));
        }
    }

    #[test]
    fn scheduled_changes_have_their_start() {
        let event = |more: &str| {
            let body = format!(
                r#"{{"version":"0","source":"aws.health","detail-type":"AWS Health Event","detail":{{"service":"EC2","eventTypeCategory":"scheduledChange","affectedEntities":[{{"entityValue":"i-1"}}]{more}}}}}"#
            );
            parse(&body).unwrap()
        };
        for (text, starts) in [
            (
                "Thu, 15 Jan 2026 13:19:03 GMT",
                Some("2026-01-15T13:19:03Z"),
            ),
            ("2026-01-15T13:19:03Z", Some("2026-01-15T13:19:03Z")),
            ("", None),
            ("soon", None),
        ] {
            let read = event(&format!(r#","startTime":"{text}""#));
            assert_eq!(read.kind, InterruptionKind::ScheduledChange);
            assert_eq!(
                read.starts.map(|time| time.to_string()).as_deref(),
                starts,
                "{text}"
            );
        }
        assert_eq!(
            event(r#","statusCode":"upcoming""#).kind,
            InterruptionKind::ScheduledChange
        );
        let closed = event(r#","statusCode":"closed""#);
        assert_eq!(
            (closed.kind, closed.instances.len()),
            (InterruptionKind::Other, 0)
        );
    }

    #[test]
    fn wrong_types_are_named() {
        let error = |body: &str| parse(body).unwrap_err().to_string();
        assert_eq!(
            error(r#"{"version":0}"#),
            "field `version` of the message: expected a text, got 0"
        );
        assert_eq!(
            error(r#"{"time":"yesterday"}"#),
            "field `time` of the message: expected an RFC 3339 time, got \"yesterday\""
        );
        assert_eq!(
            error(&event(
                "EC2 Instance Rebalance Recommendation",
                r#"{"instance-id":7}"#
            )),
            "field `instance-id` of the message: expected a text, got 7"
        );
        assert!(error("[1]").starts_with("the message is not JSON: expected an object"));
    }

    #[test]
    fn keys_match_in_any_case() {
        let body = event(
            "EC2 Instance Rebalance Recommendation",
            r#"{"Instance-ID":"i-1"}"#,
        )
        .replace("\"version\"", "\"VERSION\"");
        assert_eq!(
            parse(&body).unwrap().kind,
            InterruptionKind::RebalanceRecommendation
        );
    }
}
