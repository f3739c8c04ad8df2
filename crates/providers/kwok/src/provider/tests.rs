use std::collections::VecDeque;
use std::sync::Mutex;

use kube::client::Body;
use serde_json::{Value, json};

use super::*;

/// Requests to the API server: method and path.
type Requests = Arc<Mutex<Vec<String>>>;

/// A provider with an API server that returns these responses in turn.
fn provider(responses: &[(u16, Value)]) -> (KwokProvider, Requests) {
    let responses: Arc<Mutex<VecDeque<_>>> =
        Arc::new(Mutex::new(responses.iter().cloned().collect()));
    let requests = Requests::default();
    let recorded = Arc::clone(&requests);
    let service = tower::service_fn(move |request: http::Request<Body>| {
        recorded
            .lock()
            .unwrap()
            .push(format!("{} {}", request.method(), request.uri().path()));
        let (code, response) = responses.lock().unwrap().pop_front().unwrap();
        let builder = http::Response::builder().status(code);
        let body = Body::from(response.to_string().into_bytes());
        std::future::ready(Ok::<_, tower::BoxError>(builder.body(body).unwrap()))
    });
    let client = kube::Client::new(service, "default");
    (KwokProvider::new(client, None).unwrap(), requests)
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
async fn lists_of_missing_nodes_are_retried_while_the_api_server_is_busy() {
    let launched = json!([{
        "metadata": { "name": "c", "uid": "u" },
        "spec": { "nodeClassRef": {}, "requirements": [
            { "key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["c-1x-amd64-linux"] },
        ] },
        "status": { "providerID": "kwok://n" },
    }]);
    let (provider, requests) = provider(&[
        failure(429),
        failure(503),
        list("NodeList", &json!([])),
        failure(429),
        list("NodeList", &json!([])),
        list("NodeClaimList", &launched),
        (201, json!({ "kind": "Node", "metadata": { "name": "n" } })),
    ]);
    provider.recover().await.unwrap();
    while requests.lock().unwrap().len() < 7 {
        tokio::task::yield_now().await;
    }
    let claims = "GET /apis/karpenter.sh/v1/nodeclaims";
    let nodes = "GET /api/v1/nodes";
    assert_eq!(
        *requests.lock().unwrap(),
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
async fn a_rejected_list_is_final() {
    let (provider, requests) = provider(&[failure(403)]);
    assert!(provider.recover().await.is_err());
    assert_eq!(requests.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn instances_are_the_nodes_that_are_not_being_deleted() {
    let node = |name: &str, id: &str, deleted: Option<&str>| json!({ "metadata": { "name": name, "deletionTimestamp": deleted }, "spec": { "providerID": id } });
    let nodes = json!([
        node("a", "kwok://a", None),
        node("b", "kwok://b", Some("2026-01-01T00:00:00Z")),
        node("c", "aws:///z/i-1", None),
    ]);
    let (code, mut first) = list("NodeList", &nodes);
    first["metadata"] = json!({ "continue": "the rest" });
    let rest = json!([node("d", "kwok://d", None)]);
    let (provider, requests) = provider(&[(code, first), list("NodeList", &rest)]);
    let ids: Vec<_> = provider
        .list_instances()
        .await
        .unwrap()
        .into_iter()
        .map(|instance| instance.provider_id.to_string())
        .collect();
    assert_eq!(ids, ["kwok://a", "kwok://d"]);
    assert_eq!(requests.lock().unwrap().len(), 2, "page by page");

    let found = |node: serde_json::Value| (200, node);
    let (provider, requests) = self::provider(&[
        found(node("a", "kwok://a", None)),
        found(node("b", "kwok://b", Some("2026-01-01T00:00:00Z"))),
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
    assert_eq!(requests.lock().unwrap()[0], "GET /api/v1/nodes/a");
}
