//! Criterion 6: the messages exactly as kube-scheduler encodes and decodes them (its Go types have no JSON tags, so
//! the outer keys are the names of their fields), with every encoding of an empty value.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]

mod test_cluster;

use std::sync::Arc;

use jiff::Timestamp;
use mortise_state::ledger::{Fence, FenceReason, LedgerOp};
use mortise_state::snapshot::Snapshot;
use mortise_webhooks::admission::AdmissionSettings;
use mortise_webhooks::router::{WebhookState, respond};
use serde_json::{Value, json};
use test_cluster::{TestCluster, now, pool};

struct At(Arc<Snapshot>);

impl mortise_webhooks::ClusterView for At {
    fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.0)
    }

    fn age_ms(&self) -> i64 {
        0
    }

    fn now(&self) -> Timestamp {
        now()
    }
}

/// Two nodes, of which `web-1` is being replaced.
fn app() -> WebhookState {
    let mut cluster = TestCluster::new();
    cluster.pool(&pool("web", &json!({})));
    for number in 0..2 {
        cluster.node("web", "m5.xlarge", number, 1);
    }
    cluster.ledger(LedgerOp::Fence(Fence {
        claim: "web-1".into(),
        reason: FenceReason::Disruption,
        from: now(),
    }));
    WebhookState {
        view: Arc::new(At(Arc::new(cluster.snapshot()))),
        counters: Arc::default(),
        extender: Arc::default(),
        rules: Arc::new(AdmissionSettings::default()),
        conversion: false,
    }
}

/// Status and body.
async fn post(app: &WebhookState, verb: &str, body: &str) -> (u16, String) {
    let answer = respond(app, &format!("/extender/v1/{verb}"), body.as_bytes()).unwrap();
    let status = answer.status().as_u16();
    let bytes = axum::body::to_bytes(answer.into_body(), 1 << 20)
        .await
        .unwrap();
    (status, String::from_utf8(bytes.to_vec()).unwrap())
}

const POD: &str = r#"{"metadata":{"name":"a","namespace":"d","uid":"u1","creationTimestamp":null},"spec":{"containers":[{"name":"c","resources":{}}]},"status":{}}"#;

#[tokio::test]
async fn criterion_6_answers_are_what_the_scheduler_reads() {
    let app = app();
    let both = format!(r#"{{"Pod":{POD},"Nodes":null,"NodeNames":["web-0","web-1","x"]}}"#);
    let one_denied = r#"{"Nodes":null,"NodeNames":["web-0","x"],"FailedNodes":null,"FailedAndUnresolvableNodes":{"web-1":"node is being replaced or removed"},"Error":""}"#;
    assert_eq!(
        post(&app, "filter", &both).await,
        (200, one_denied.to_owned())
    );
    let scores =
        r#"[{"Host":"web-0","Score":5},{"Host":"web-1","Score":0},{"Host":"x","Score":0}]"#;
    assert_eq!(
        post(&app, "prioritize", &both).await,
        (200, scores.to_owned())
    );
    let whole = format!(
        r#"{{"Pod":{POD},"Nodes":{{"metadata":{{}},"items":[{{"metadata":{{"name":"web-0"}},"spec":{{"providerID":"p"}}}},{{"metadata":{{"name":"web-1"}}}}]}},"NodeNames":null}}"#
    );
    let whole_nodes = r#"{"Nodes":{"metadata":{},"items":[{"metadata":{"name":"web-0"},"spec":{"providerID":"p"}}]},"NodeNames":null,"FailedNodes":null,"FailedAndUnresolvableNodes":{"web-1":"node is being replaced or removed"},"Error":""}"#;
    assert_eq!(
        post(&app, "filter", &whole).await,
        (200, whole_nodes.to_owned())
    );
    let victims = format!(
        r#"{{"Pod":{POD},"NodeNameToVictims":null,"NodeNameToMetaVictims":{{"web-0":{{"Pods":[{{"UID":"u9"}}],"NumPDBViolations":1}},"web-1":{{"Pods":[{{"UID":"u8"}}],"NumPDBViolations":0}},"x":{{"Pods":null,"NumPDBViolations":0}}}}}}"#
    );
    let left = r#"{"NodeNameToMetaVictims":{"web-0":{"Pods":[{"UID":"u9"}],"NumPDBViolations":1},"x":{"Pods":null,"NumPDBViolations":0}}}"#;
    assert_eq!(
        post(&app, "preempt", &victims).await,
        (200, left.to_owned())
    );
}

/// Null, missing and empty are equivalent, unknown keys are ignored, and a response is never empty.
#[tokio::test]
async fn criterion_6_nothing_has_many_forms() {
    let app = app();
    for names in ["", r#","NodeNames":null"#, r#","NodeNames":[]"#] {
        for nodes in ["", r#","Nodes":null"#] {
            for more in ["", r#","Later":{"a":[1]}"#] {
                let body = format!(r#"{{"Pod":{POD}{names}{nodes}{more}}}"#);
                let (status, answer) = post(&app, "filter", &body).await;
                let answer: Value = serde_json::from_str(&answer).unwrap();
                assert_eq!((status, &answer["NodeNames"]), (200, &json!([])), "{body}");
                assert_eq!(
                    post(&app, "prioritize", &body).await,
                    (200, "[]".to_owned()),
                    "{body}"
                );
            }
        }
    }
    for nodes in [r#"{"metadata":null,"items":null}"#, r#"{"items":[]}"#, "{}"] {
        let body = format!(r#"{{"Pod":{POD},"Nodes":{nodes}}}"#);
        let (status, answer) = post(&app, "filter", &body).await;
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(
            (status, &answer["Nodes"]["items"]),
            (200, &json!([])),
            "{body}"
        );
    }
    for victims in [
        "",
        r#","NodeNameToMetaVictims":null"#,
        r#","NodeNameToMetaVictims":{}"#,
        r#","NodeNameToVictims":{}"#,
    ] {
        let body = format!(r#"{{"Pod":{POD}{victims}}}"#);
        let (status, answer) = post(&app, "preempt", &body).await;
        assert_eq!(
            (status, &*answer),
            (200, r#"{"NodeNameToMetaVictims":{}}"#),
            "{body}"
        );
    }
    for pods in ["null", "[]"] {
        let body = format!(r#"{{"Pod":{POD},"NodeNameToVictims":{{"web-0":{{"Pods":{pods}}}}}}}"#);
        let (status, answer) = post(&app, "preempt", &body).await;
        let expected = format!(
            r#"{{"NodeNameToMetaVictims":{{"web-0":{{"Pods":{pods},"NumPDBViolations":0}}}}}}"#
        );
        assert_eq!((status, answer), (200, expected), "{body}");
    }
}

/// An invalid body is rejected, so that kube-scheduler continues without the extender; an empty response would reject
/// every node.
#[tokio::test]
async fn bodies_that_cannot_be_read_are_refused() {
    let app = app();
    let bodies = [
        "",
        "null",
        "[]",
        "{",
        "\u{0}",
        r#"{"NodeNames":["a"]}"#,
        r#"{"Pod":7}"#,
        r#"{"Pod":{},"NodeNames":7}"#,
    ];
    for verb in ["filter", "prioritize", "preempt"] {
        for body in bodies
            .iter()
            .filter(|body| verb != "preempt" || !body.contains("NodeNames\":7"))
        {
            let (status, text) = post(&app, verb, body).await;
            assert_eq!(status, 400, "{verb} {body:?}");
            assert!(
                text.starts_with("body is not an extender message: "),
                "{text}"
            );
        }
    }
    assert_eq!(app.counters.malformed.get(), 8 + 8 + 7);
}
