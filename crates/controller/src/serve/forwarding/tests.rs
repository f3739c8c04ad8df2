use std::net::SocketAddr;

use axum::body::Body;
use http::Request;
use mortise_webhooks::Counters;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use super::*;
use crate::config::Listen;
use crate::pem::Files;
use crate::serve::exposition;
use crate::serve::tests::service;
use crate::serve::{DebugAccess, HttpsService, Listeners, serve};
use crate::tls::certificates;

/// A pod that fits nowhere in particular, and two nodes.
const CALL: &str = r#"{"Pod":{"metadata":{"name":"web","namespace":"default","uid":"u1"},"spec":{"containers":[]}},"Nodes":null,"NodeNames":["a","b"]}"#;

/// A replica with these certificates.
fn replica(files: &Files, leading: bool) -> HttpsService {
    let replica = service(DebugAccess::CertificateOnly);
    replica.tls.load(files).unwrap();
    replica.shared.health.set_leading(leading);
    replica
}

/// Serves a replica until the token is cancelled.
async fn listen(replica: HttpsService) -> (SocketAddr, CancellationToken) {
    let any = Listen::any_port(std::net::Ipv4Addr::LOCALHOST.into());
    let listeners = Listeners::bind(&any).await.unwrap();
    let (address, end) = (listeners.addresses().https, CancellationToken::new());
    tokio::spawn(serve(replica, listeners, end.clone()));
    (address, end)
}

/// How a replica forwards. It waits for as long as a test may take on a busy host.
fn forwarding(replica: &HttpsService) -> Forwarding {
    Forwarding::new(
        Arc::clone(&replica.shared),
        Arc::clone(&replica.webhooks.extender),
        Arc::clone(&replica.tls),
        Duration::from_secs(60),
    )
}

/// What kube-scheduler gets from a replica that forwards so.
async fn call(
    replica: &HttpsService,
    forwarding: Forwarding,
    path: &str,
    body: &'static str,
) -> (StatusCode, String) {
    let request = Request::post(path)
        .header("content-type", "application/json")
        .body(Body::from(body))
        .unwrap();
    let layer = axum::middleware::from_fn_with_state(forwarding, to_leader);
    let router = mortise_webhooks::router::router(replica.webhooks.clone()).route_layer(layer);
    let response = router.oneshot(request).await.unwrap();
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8_lossy(&body).into_owned())
}

/// How many filter calls a replica has answered, and what came of those that it forwarded.
fn counts(replica: &HttpsService, outcome: &str) -> (u64, bool) {
    let page = exposition::render(&replica.shared, &Counters::default().snapshot()).unwrap();
    let line = format!("mortise_extender_forwarded_total{{outcome=\"{outcome}\"}} 1");
    (replica.webhooks.counters.filter.get(), page.contains(&line))
}

fn certificates() -> Files {
    certificates::in_memory(&[], jiff::Timestamp::now()).unwrap()
}

#[tokio::test]
async fn the_leader_answers_what_reaches_another_replica() {
    let files = certificates();
    let (leader, follower) = (replica(&files, true), replica(&files, false));
    let (address, end) = listen(leader.clone()).await;
    follower.shared.set_leader_address(Some(address));
    let to_leader = forwarding(&follower);
    let ask = async |path, body| call(&follower, to_leader.clone(), path, body).await;
    let (status, answer) = ask("/extender/v1/filter", CALL).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    assert!(answer.contains(r#""NodeNames":["a","b"]"#), "{answer}");
    assert_eq!(counts(&follower, "answered"), (0, true));
    let of_leader = counts(&leader, "answered");
    assert_eq!(of_leader, (1, false), "it forwards nothing");
    // What it cannot read is answered here, with the same reason, and the next call is forwarded again.
    let expected = call(&leader, forwarding(&leader), "/extender/v1/filter", "?").await;
    assert_eq!(ask("/extender/v1/filter", "?").await, expected);
    assert_eq!(expected.0, StatusCode::BAD_REQUEST);
    ask("/extender/v1/prioritize", CALL).await;
    assert_eq!(leader.webhooks.counters.prioritize.get(), 1);
    // Reviews are no calls of a scheduler.
    ask("/admission/v1/validate", "{}").await;
    assert_eq!(leader.webhooks.counters.validate.get(), 0);
    end.cancel();
}

#[tokio::test]
async fn without_an_answer_of_the_leader_a_replica_answers_itself() {
    let files = certificates();
    let (former, other) = (replica(&files, false), replica(&certificates(), true));
    let ((former, _ended), (other, _end)) = (listen(former).await, listen(other).await);
    let closed = {
        let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        closed.local_addr().unwrap()
    };
    for (address, outcome) in [(former, "refused"), (other, "failed"), (closed, "failed")] {
        let follower = replica(&files, false);
        follower.shared.set_leader_address(Some(address));
        let to_leader = forwarding(&follower);
        let (status, answer) = call(&follower, to_leader, "/extender/v1/filter", CALL).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        assert_eq!(counts(&follower, outcome), (1, true), "{address}");
    }
}

#[tokio::test]
async fn a_silent_leader_is_waited_for_once() {
    let follower = replica(&certificates(), false);
    // Connections to it wait.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    follower.shared.set_leader_address(Some(address));
    let forwarding = Forwarding::new(
        Arc::clone(&follower.shared),
        Arc::clone(&follower.webhooks.extender),
        Arc::clone(&follower.tls),
        Duration::from_millis(50),
    );
    // Its clock stands still: the second call comes within a second after the first.
    for (calls, outcome) in [(1, "failed"), (2, "not_sent")] {
        call(&follower, forwarding.clone(), "/extender/v1/filter", CALL).await;
        assert_eq!(counts(&follower, outcome), (calls, true), "{outcome}");
    }
}
