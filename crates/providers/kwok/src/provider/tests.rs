use std::collections::VecDeque;
use std::sync::Mutex;

use kube::client::Body;
use serde_json::{Value, json};

use super::*;

/// What an API server was asked: method and path.
type Asked = Arc<Mutex<Vec<String>>>;

/// A provider on an API server that gives these answers in turn.
fn provider(answers: &[(u16, Value)]) -> (KwokProvider, Asked) {
    let answers: Arc<Mutex<VecDeque<_>>> = Arc::new(Mutex::new(answers.iter().cloned().collect()));
    let asked = Asked::default();
    let noted = Arc::clone(&asked);
    let service = tower::service_fn(move |request: http::Request<Body>| {
        noted
            .lock()
            .unwrap()
            .push(format!("{} {}", request.method(), request.uri().path()));
        let (code, answer) = answers.lock().unwrap().pop_front().unwrap();
        let response = http::Response::builder().status(code);
        let body = Body::from(answer.to_string().into_bytes());
        std::future::ready(Ok::<_, tower::BoxError>(response.body(body).unwrap()))
    });
    let client = kube::Client::new(service, "default");
    (KwokProvider::new(client, None).unwrap(), asked)
}

fn failure(code: u16) -> (u16, Value) {
    let status = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": if code == 404 { "NotFound" } else { "R" }, "message": "m" });
    (code, status)
}

fn list(kind: &str, items: &Value) -> (u16, Value) {
    (
        200,
        json!({ "kind": kind, "apiVersion": "v1", "metadata": {}, "items": items }),
    )
}

#[tokio::test(start_paused = true)]
async fn a_busy_api_server_is_asked_again_for_what_was_owed() {
    let owed = json!([{
        "metadata": { "name": "c", "uid": "u" },
        "spec": { "nodeClassRef": {}, "requirements": [
            { "key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["c-1x-amd64-linux"] },
        ] },
        "status": { "providerID": "kwok://n" },
    }]);
    let (provider, asked) = provider(&[
        failure(429),
        failure(503),
        list("NodeList", &json!([])),
        failure(429),
        list("NodeList", &json!([])),
        list("NodeClaimList", &owed),
        (201, json!({ "kind": "Node", "metadata": { "name": "n" } })),
    ]);
    provider.recover().await.unwrap();
    while asked.lock().unwrap().len() < 7 {
        tokio::task::yield_now().await;
    }
    let claims = "GET /apis/karpenter.sh/v1/nodeclaims";
    let nodes = "GET /api/v1/nodes";
    assert_eq!(
        *asked.lock().unwrap(),
        [
            nodes,
            nodes,
            nodes,
            claims,
            nodes,
            claims,
            "POST /api/v1/nodes"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_refusal_to_list_is_final() {
    let (provider, asked) = provider(&[failure(403)]);
    assert!(provider.recover().await.is_err());
    assert_eq!(asked.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn machines_are_the_nodes_that_stay() {
    let node = |name: &str, id: &str, deleted: Option<&str>| json!({ "metadata": { "name": name, "deletionTimestamp": deleted }, "spec": { "providerID": id } });
    let nodes = json!([
        node("a", "kwok://a", None),
        node("b", "kwok://b", Some("2026-01-01T00:00:00Z")),
        node("c", "aws:///z/i-1", None),
    ]);
    let (code, mut first) = list("NodeList", &nodes);
    first["metadata"] = json!({ "continue": "the rest" });
    let rest = json!([node("d", "kwok://d", None)]);
    let (provider, asked) = provider(&[(code, first), list("NodeList", &rest)]);
    let ids: Vec<_> = provider
        .list_instances()
        .await
        .unwrap()
        .into_iter()
        .map(|instance| instance.provider_id.to_string())
        .collect();
    assert_eq!(ids, ["kwok://a", "kwok://d"]);
    assert_eq!(asked.lock().unwrap().len(), 2, "page by page");

    let of = |node: serde_json::Value| (200, node);
    let (provider, asked) = self::provider(&[
        of(node("a", "kwok://a", None)),
        of(node("b", "kwok://b", Some("2026-01-01T00:00:00Z"))),
        failure(404),
        failure(403),
    ]);
    let find = async |id: &str| {
        let found = provider.instance(&ProviderId::from(id)).await;
        found
            .map(|found| found.is_some())
            .map_err(|error| error.label)
    };
    assert_eq!(find("kwok://a").await, Ok(true));
    assert_eq!(find("kwok://b").await, Ok(false), "it is being deleted");
    assert_eq!(find("kwok://c").await, Ok(false), "not found");
    assert_eq!(find("kwok://d").await, Err("refused"), "that says nothing");
    assert_eq!(asked.lock().unwrap()[0], "GET /api/v1/nodes/a");
}
