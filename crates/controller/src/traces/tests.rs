use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use mortise_cloudprovider::{LaunchRequest, LaunchedInstance};
use opentelemetry_proto::tonic::trace::v1 as otlp;
use serde_json::{Value, json};

use super::*;
use crate::serve::exposition;
use crate::testing::shared;

const UID: &str = "0af76519-16cd-43dd-8448-eb211c80319c";

fn at(second: u32) -> Timestamp {
    format!("2026-01-02T03:04:{second:02}Z").parse().unwrap()
}

/// A NodeClaim with these conditions: type, status, and the second of the change.
fn claim(conditions: &[(&str, &str, u32)], deleted: Option<u32>) -> NodeClaim {
    let condition = |(type_, status, second): &(&str, &str, u32)| {
        json!({
            "type": type_, "status": status, "lastTransitionTime": at(*second),
            "reason": format!("{type_}Reason"), "message": if *status == "True" { "" } else { "no capacity" },
        })
    };
    let conditions: Vec<Value> = conditions.iter().map(condition).collect();
    serde_json::from_value(json!({
        "metadata": {
            "name": "general-abc", "uid": UID, "creationTimestamp": at(0), "deletionTimestamp": deleted.map(at),
            "labels": { "karpenter.sh/nodepool": "general", "node.kubernetes.io/instance-type": "m5.large" },
        },
        "spec": { "nodeClassRef": { "group": "g", "kind": "k", "name": "default" }, "requirements": [] },
        "status": { "nodeName": "n1", "providerID": "aws:///a/i-1", "conditions": conditions },
    }))
    .unwrap()
}

/// Name, first and last second, and error of each span.
fn rows(spans: &[Span]) -> Vec<(String, i64, i64, Option<String>)> {
    let second = |time: Timestamp| (time.as_millisecond() - at(0).as_millisecond()) / 1_000;
    spans
        .iter()
        .map(|span| {
            let (start, end) = (second(span.start), second(span.end));
            (span.name.clone(), start, end, span.error.clone())
        })
        .collect()
}

fn row(name: &str, start: i64, end: i64) -> (String, i64, i64, Option<String>) {
    (name.to_owned(), start, end, None)
}

const STARTED: [(&str, &str, u32); 3] = [
    ("Launched", "True", 4),
    ("Registered", "True", 30),
    ("Initialized", "True", 41),
];

#[test]
fn a_node_that_is_initialized_has_a_trace_of_its_launch() {
    let before = claim(&STARTED[..2], None);
    let after = claim(&STARTED, None);
    let spans = node_claim::spans(Some(&before), Some(&after), at(42));
    let expected = [
        row("node launch", 0, 41),
        row("launch", 0, 4),
        row("register", 4, 30),
        row("initialize", 30, 41),
    ];
    assert_eq!(rows(&spans), expected);
    let root = &spans[0];
    assert!(
        root.attributes
            .contains(&("host.type", "m5.large".to_owned()))
    );
    for span in &spans[1..] {
        assert_eq!((span.trace, span.parent), (root.trace, Some(root.id)));
    }
    let ids: BTreeSet<String> = spans.iter().map(|span| format!("{:?}", span.id)).collect();
    assert_eq!(ids.len(), spans.len());
    assert_eq!(Some(root.trace), span::TraceId::from_hex(UID));

    for (before, after) in [
        (None, Some(&after)), // a process that has just begun to lead
        (Some(&before), Some(&before)),
        (Some(&after), Some(&after)),
        (None, None),
    ] {
        assert_eq!(node_claim::spans(before, after, at(42)), [] as [Span; 0]);
    }
}

#[test]
fn a_launch_that_fails_ends_with_its_reason() {
    let conditions = [("Launched", "True", 4), ("Registered", "Unknown", 4)];
    let failed = claim(&conditions, Some(50));
    let spans = node_claim::spans(Some(&failed), None, at(55));
    let why = Some("RegisteredReason: no capacity".to_owned());
    let expected = [
        ("node launch".to_owned(), 0, 50, why.clone()),
        row("launch", 0, 4),
        ("register".to_owned(), 4, 50, why),
        row("node termination", 50, 55),
        row("terminate instance", 50, 55),
    ];
    assert_eq!(rows(&spans), expected);
}

#[test]
fn a_node_that_goes_has_a_trace_that_is_linked_to_its_launch() {
    let drained = [
        ("Drained", "True", 53),
        ("VolumesDetached", "True", 54),
        ("DisruptionReason", "True", 49),
    ];
    let gone = claim(&[&STARTED[..], &drained].concat(), Some(50));
    let spans = node_claim::spans(Some(&gone), None, at(58));
    let expected = [
        row("node termination", 50, 58),
        row("drain", 50, 53),
        row("detach volumes", 53, 54),
        row("terminate instance", 54, 58),
    ];
    assert_eq!(rows(&spans), expected);
    let launched = span::TraceId::from_hex(UID).unwrap();
    assert_eq!(spans[0].link, Some((launched, launched.root())));
    assert_ne!(spans[0].trace, launched);
    let why = ("mortise.reason", "DisruptionReasonReason".to_owned());
    assert!(spans[0].attributes.contains(&why));

    // Another one of this name is there.
    let mut other = claim(&[], None);
    other.metadata.uid = Some("another".to_owned());
    let spans = node_claim::spans(Some(&gone), Some(&other), at(58));
    assert_eq!(spans.len(), 4);
    // What has no UID of the usual form has no trace.
    assert_eq!(node_claim::spans(Some(&other), None, at(58)), []);
}

#[test]
fn calls_to_the_cloud_are_spans_of_the_same_traces() {
    let launched = Effect::Launch(Box::new(LaunchRequest {
        claim: Arc::new(claim(&[], None)),
        node_class: None,
        batch: None,
    }));
    let snapshot = shared().snapshot();
    let times = (at(1), at(3));
    let ok: Result<EffectOutput, EffectError> =
        Ok(EffectOutput::Launched(Box::new(LaunchedInstance {
            provider_id: "aws:///a/i-1".into(),
            image_id: None,
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            capacity: BTreeMap::new(),
            allocatable: BTreeMap::new(),
        })));
    let span = node_claim::call(&launched, &ok, times, &snapshot).unwrap();
    let trace = span::TraceId::from_hex(UID).unwrap();
    assert_eq!((span.trace, span.parent), (trace, Some(trace.root())));
    let found = rows(std::slice::from_ref(&span));
    assert_eq!(found, [row("launch instance (call)", 1, 3)]);
    assert!(
        span.attributes
            .contains(&("host.id", "aws:///a/i-1".to_owned()))
    );

    let error = EffectError::Unavailable("no answer".to_owned());
    let said = error.to_string();
    let span = node_claim::call(&launched, &Err(error), times, &snapshot).unwrap();
    assert_eq!(span.error, Some(said));
    let listed = Ok(EffectOutput::Sent);
    assert_eq!(
        node_claim::call(&Effect::ListInstances, &listed, times, &snapshot),
        None
    );
}

#[test]
fn a_message_says_who_sends_and_what_took_how_long() {
    let config = TraceConfig {
        endpoint: "http://c:4318/v1/traces".parse().unwrap(),
        cluster: String::new(),
    };
    let source = TraceSource {
        version: "1.2".to_owned(),
        instance: "mortise-0".to_owned(),
    };
    let gone = claim(&STARTED, Some(50));
    let spans = node_claim::spans(Some(&gone), None, at(58));
    let sent = request(&resource(&config, source), spans);
    let of_resource = &sent.resource_spans[0];
    let attributes = &of_resource.resource.as_ref().unwrap().attributes;
    let keys: Vec<&str> = attributes.iter().map(|each| each.key.as_str()).collect();
    assert_eq!(
        keys,
        ["service.name", "service.version", "service.instance.id"],
        "no cluster"
    );
    let root: &otlp::Span = &of_resource.scope_spans[0].spans[0];
    assert_eq!(root.parent_span_id, [] as [u8; 0]);
    assert_eq!((root.trace_id.len(), root.span_id.len()), (16, 8));
    assert_eq!(
        root.end_time_unix_nano - root.start_time_unix_nano,
        8_000_000_000
    );
    assert_eq!(root.links[0].trace_id, hex(UID));
    assert_eq!(root.status, None);
}

fn hex(uid: &str) -> Vec<u8> {
    let digits = uid.replace('-', "");
    u128::from_str_radix(&digits, 16)
        .unwrap()
        .to_be_bytes()
        .to_vec()
}

#[tokio::test]
async fn what_does_not_fit_into_the_queue_is_dropped_and_counted() {
    let shared = shared();
    let (queue, _waiting) = mpsc::channel(3);
    let counter = shared.metrics.effects.count_spans();
    let traces = Traces { queue, counter };
    let gone = claim(&STARTED, Some(50));
    traces.claim_changed(Some(&gone), None, at(58));
    traces.claim_changed(Some(&gone), None, at(58));
    let page = exposition::render(&shared, &BTreeMap::new()).unwrap();
    assert!(
        page.contains("mortise_trace_spans_total{result=\"dropped\"} 1"),
        "{page}"
    );
}
