//! The life of a NodeClaim as two traces: from its creation until its node is initialized, and from its deletion until it is gone.
//!
//! Their IDs derive from the UID of the NodeClaim: whoever leads when a phase ends sends spans of the same trace, and a trace is found by
//! the UID alone. Phases end when their condition turned true, in whole seconds, as Kubernetes stores times.

use jiff::Timestamp;
use mortise_apis::schema::conditions::Condition;
use mortise_apis::{NodeClaim, labels};
use mortise_engine::effect::{Effect, EffectError, EffectOutput};
use mortise_state::snapshot::Snapshot;

use super::span::{Span, SpanId, SpanKind, TraceId};

/// What happens until a node takes pods, and the condition that ends it.
const LAUNCH: [(&str, &str); 3] = [
    ("launch", "Launched"),
    ("register", "Registered"),
    ("initialize", "Initialized"),
];
/// What happens until a node is gone.
const TERMINATION: [(&str, &str); 2] =
    [("drain", "Drained"), ("detach volumes", "VolumesDetached")];
/// What is left to do then.
const TERMINATE: &str = "terminate instance";

/// Spans of what changed on a NodeClaim.
pub(super) fn spans(
    before: Option<&NodeClaim>,
    after: Option<&NodeClaim>,
    now: Timestamp,
) -> Vec<Span> {
    let Some(before) = before else {
        return Vec::new();
    };
    let initialized = |claim: &NodeClaim| claim.is_true("Initialized");
    let spans = match after.filter(|after| after.metadata.uid == before.metadata.uid) {
        Some(after) if initialized(after) && !initialized(before) => launch(after, now),
        Some(_) => None,
        None => gone(before, now),
    };
    spans.unwrap_or_default()
}

/// The span of a call to the cloud.
pub(super) fn call(
    effect: &Effect,
    result: &Result<EffectOutput, EffectError>,
    (start, end): (Timestamp, Timestamp),
    snapshot: &Snapshot,
) -> Option<Span> {
    let (claim, name) = match effect {
        Effect::Launch(request) => (&request.claim, "launch instance"),
        Effect::Terminate { claim, .. } => (snapshot.claims.get(claim)?, TERMINATE),
        _ => return None,
    };
    let launched = launch_trace(claim)?;
    let trace = match effect {
        Effect::Launch(_) => launched,
        _ => launched.other(),
    };
    let attributes = match result {
        Ok(EffectOutput::Launched(launched)) => {
            let label = |key: &str| launched.labels.get(key).cloned().unwrap_or_default();
            vec![
                ("host.id", launched.provider_id.to_string()),
                ("host.type", label(labels::INSTANCE_TYPE)),
                ("cloud.availability_zone", label(labels::TOPOLOGY_ZONE)),
                ("mortise.capacity_type", label(labels::CAPACITY_TYPE)),
            ]
        }
        _ => Vec::new(),
    };
    Some(Span {
        trace,
        id: SpanId::random(),
        parent: Some(trace.root()),
        name: format!("{name} (call)"),
        kind: SpanKind::Client,
        start,
        end,
        attributes,
        link: None,
        error: result.as_ref().err().map(ToString::to_string),
    })
}

/// The trace of the launch.
fn launch_trace(claim: &NodeClaim) -> Option<TraceId> {
    TraceId::from_hex(claim.metadata.uid.as_deref()?)
}

/// From creation until the node is initialized, or until `now`.
fn launch(claim: &NodeClaim, now: Timestamp) -> Option<Vec<Span>> {
    let trace = launch_trace(claim)?;
    let created = claim.metadata.creation_timestamp.as_ref()?.0;
    let mut spans = vec![root(trace, "node launch", claim, (created, now))];
    let mut from = created;
    for (name, condition) in LAUNCH {
        let until = turned_true(claim, condition);
        let error = until.is_none().then(|| why_not(claim, condition));
        let until = until.map_or(now, |at| at.max(from));
        spans.push(phase((trace, spans.len()), name, (from, until), error));
        from = until;
        if spans.iter().any(|span| span.error.is_some()) {
            break;
        }
    }
    if let (Some(last), Some((root, _))) = (spans.last().cloned(), spans.split_first_mut()) {
        root.end = last.end;
        root.error = last.error;
    }
    Some(spans)
}

/// Of a NodeClaim that is gone: the launch, if it never came to an end, and the termination.
fn gone(claim: &NodeClaim, now: Timestamp) -> Option<Vec<Span>> {
    let launched = launch_trace(claim)?;
    let deleted = claim.metadata.deletion_timestamp.as_ref();
    let deleted = deleted.map_or(now, |at| at.0);
    let mut spans = Vec::new();
    if !claim.is_true("Initialized") {
        spans = launch(claim, deleted)?;
    }
    let trace = launched.other();
    let mut root = root(trace, "node termination", claim, (deleted, now));
    root.link = Some((launched, launched.root()));
    let reason = condition(claim, "DisruptionReason").map(|condition| condition.reason.clone());
    root.attributes
        .push(("mortise.reason", reason.unwrap_or_default()));
    let mut termination = vec![root];
    let mut from = deleted;
    for (name, condition) in TERMINATION {
        // Without a Node there is nothing to drain.
        let Some(until) = turned_true(claim, condition) else {
            continue;
        };
        let until = until.max(from);
        termination.push(phase((trace, termination.len()), name, (from, until), None));
        from = until;
    }
    termination.push(phase(
        (trace, termination.len()),
        TERMINATE,
        (from, now),
        None,
    ));
    spans.extend(termination);
    Some(spans)
}

fn root(
    trace: TraceId,
    name: &str,
    claim: &NodeClaim,
    (start, end): (Timestamp, Timestamp),
) -> Span {
    let label = |key: &str| {
        let labels = claim.metadata.labels.as_ref();
        labels.and_then(|labels| labels.get(key)).cloned()
    };
    let attributes = [
        ("mortise.nodeclaim", claim.metadata.name.clone()),
        ("mortise.nodepool", label(labels::NODEPOOL)),
        ("k8s.node.name", claim.status.node_name.clone()),
        ("host.id", claim.status.provider_id.clone()),
        ("host.type", label(labels::INSTANCE_TYPE)),
        ("cloud.availability_zone", label(labels::TOPOLOGY_ZONE)),
        ("mortise.capacity_type", label(labels::CAPACITY_TYPE)),
    ];
    let known = attributes.into_iter();
    Span {
        trace,
        id: trace.root(),
        parent: None,
        name: name.to_owned(),
        kind: SpanKind::Internal,
        start,
        end: end.max(start),
        attributes: known
            .map(|(key, text)| (key, text.unwrap_or_default()))
            .collect(),
        link: None,
        error: None,
    }
}

/// The span at this place below the root.
fn phase(
    (trace, at): (TraceId, usize),
    name: &str,
    (start, end): (Timestamp, Timestamp),
    error: Option<String>,
) -> Span {
    Span {
        trace,
        id: trace.child(at as u64),
        parent: Some(trace.root()),
        name: name.to_owned(),
        kind: SpanKind::Internal,
        start,
        end: end.max(start),
        attributes: Vec::new(),
        link: None,
        error,
    }
}

fn condition<'a>(claim: &'a NodeClaim, type_: &str) -> Option<&'a Condition> {
    let mut conditions = claim.status.conditions.iter();
    conditions.find(|condition| condition.type_ == type_)
}

/// When a condition turned true.
fn turned_true(claim: &NodeClaim, type_: &str) -> Option<Timestamp> {
    let condition = condition(claim, type_).filter(|_| claim.is_true(type_))?;
    condition.last_transition_time.as_ref().map(|time| time.0)
}

/// What a condition that is not true says.
fn why_not(claim: &NodeClaim, type_: &str) -> String {
    match condition(claim, type_) {
        Some(condition) if !condition.message.is_empty() => {
            format!("{}: {}", condition.reason, condition.message)
        }
        Some(condition) if !condition.reason.is_empty() => condition.reason.clone(),
        _ => format!("not {type_}"),
    }
}
