use std::sync::Arc;

use axum::body::Body;
use http::Request;
use http_body_util::BodyExt as _;
use tower::ServiceExt as _;

use super::*;
use crate::testing;

fn test_router(shared: Arc<ServiceState>) -> axum::Router {
    router(DebugState {
        shared,
        extender: Arc::default(),
        counters: Arc::default(),
    })
}

async fn get(path: &str, accept: &str) -> (u16, String) {
    let request = Request::get(path)
        .header("accept", accept)
        .body(Body::empty())
        .unwrap();
    let response = test_router(testing::shared())
        .oneshot(request)
        .await
        .unwrap();
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

async fn json_of(path: &str) -> Value {
    let (status, body) = get(path, "application/json").await;
    assert_eq!(status, 200, "{path}: {body}");
    serde_json::from_str(&body).unwrap()
}

async fn text_of(path: &str) -> String {
    let (status, body) = get(path, "text/plain").await;
    assert_eq!(status, 200, "{path}: {body}");
    body
}

#[tokio::test]
async fn lists_answer_in_both_forms() {
    assert_eq!(json_of("/debug/config").await["seed"], 7);
    assert_eq!(
        text_of("/debug/config").await,
        "batch_idle: 1s\nseed:       7\n"
    );
    let snapshot = json_of("/debug/snapshot").await;
    assert_eq!(
        (
            &snapshot["counts"]["nodes"],
            &snapshot["counts"]["pending"],
            &snapshot["synced"]
        ),
        (&2.into(), &2.into(), &true.into())
    );
    let pending = json_of("/debug/pending").await;
    assert_eq!(pending["count"], 2);
    assert_eq!(pending["pods"][0]["pod"], "shop/big");
    assert_eq!(
        pending["pods"][0]["why"],
        "pool general: no instance type has enough cpu"
    );
    assert_eq!(pending["pods"][1]["nominated_to"], "node/n2");
    let text = text_of("/debug/pending").await;
    assert!(
        text.starts_with("POD ") && text.contains("shop/web-2  5m0s  cpu=1500m pods=1  node/n2"),
        "{text}"
    );
    let nominations = json_of("/debug/nominations").await;
    assert_eq!(nominations["nominations"][0]["target"], "node/n2");
    assert_eq!(nominations["fences"][0]["reason"], "disruption");
    assert!(text_of("/debug/nominations").await.contains("  90s"));
}

#[tokio::test]
async fn the_index_lists_every_path_and_its_parameters() {
    let text = text_of("/debug").await;
    let json = json_of("/debug").await;
    for route in DEBUG_ROUTES {
        assert!(text.contains(&route.usage()), "{text}");
        assert!(json.to_string().contains(route.path), "{json}");
    }
    assert!(text.contains("/debug/decisions?limit="), "{text}");
    // A parameter of the table is one that the path knows.
    for name in ["pod", "node", "nodepool", "nodeclaim"] {
        let (status, body) = get(&format!("/debug/explain?{name}=x/y"), "*/*").await;
        assert_eq!(status, 404, "{name}: {body}");
    }
}

#[tokio::test]
async fn costs_without_prices_are_empty_in_every_form() {
    let json = json_of("/debug/costs").await;
    assert_eq!(json["accounts"].as_array().map(Vec::len), Some(0));
    assert_eq!(
        text_of("/debug/costs").await,
        "no node with a known price has been seen\n"
    );
    assert_eq!(
        get("/debug/costs.csv", "*/*").await,
        (200, "hour,account,name,cost,on_demand_cost\n".to_owned())
    );
}

#[tokio::test]
async fn decisions_are_newest_first_and_limited() {
    let all = json_of("/debug/decisions").await;
    assert_eq!(all.as_array().map(Vec::len), Some(2));
    assert_eq!(
        (&all[0]["subject"], &all[0]["verdict"]),
        (&"pod/shop/big".into(), &"unschedulable".into())
    );
    assert_eq!(
        json_of("/debug/decisions?limit=1")
            .await
            .as_array()
            .map(Vec::len),
        Some(1)
    );
    let (status, body) = get("/debug/decisions?limit=many", "*/*").await;
    assert_eq!(status, 400);
    assert!(body.contains("limit must be a number"), "{body}");
    assert!(
        text_of("/debug/decisions")
            .await
            .contains("unschedulable  pool general")
    );
}

#[tokio::test]
async fn explain_joins_what_is_known() {
    let big = json_of("/debug/explain?pod=shop/big").await;
    assert_eq!(big["verdict"], "pending; no NodePool can run it (see why)");
    assert_eq!(big["why"], "pool general: no instance type has enough cpu");
    let blocker = &big["blockers"][0];
    assert_eq!(
        (&blocker["pool"], &blocker["blocker"]),
        (&"general".into(), &"not_ready".into())
    );
    let text = text_of("/debug/explain?pod=shop/big").await;
    assert!(
        text.contains("blocker:")
            && text.contains("pool general: the pool is not ready: Ready is False"),
        "{text}"
    );
    let nominated = text_of("/debug/explain?pod=web-2&namespace=shop").await;
    assert!(
        nominated.contains("pending; nominated to node/n2")
            && nominated.contains("for at most another 90s"),
        "{nominated}"
    );
    assert_eq!(
        json_of("/debug/explain?pod=shop/web-1").await["disruption_budgets"][0],
        "shop/web"
    );
    let node = json_of("/debug/explain?node=n1").await;
    assert_eq!(
        (&node["phase"], &node["pods"]),
        (&"ready".into(), &1.into())
    );
    let blockers = node["not_disrupted_because"].to_string();
    assert!(
        blockers.contains("PodDisruptionBudget=[shop/web]")
            && blockers.contains("Node isn't managed by karpenter"),
        "{blockers}"
    );
    let pool = text_of("/debug/explain?nodepool=general").await;
    assert!(
        pool.contains("limit:            cpu: 8 of 100")
            && pool.contains("limit:            nodes: 2 of 10"),
        "{pool}"
    );
    assert!(
        pool.contains("Ready: NodeClassReady not yet")
            && pool.contains("no instance type has enough cpu"),
        "{pool}"
    );
}

#[tokio::test]
async fn disruption_lists_blockers_with_what_frees_them_and_budgets() {
    let seen = json_of("/debug/disruption").await;
    let blockers = &seen["nodes"][0]["blockers"];
    let text = "Pdb prevents pod evictions (PodDisruptionBudget=[shop/web]), for pod shop/web-1";
    let own = blockers.as_array().unwrap().iter();
    let own: Vec<&Value> = own.filter(|each| each["text"] == text).collect();
    assert_eq!(own.len(), 1, "{blockers}");
    assert_eq!(
        own[0]["clears"],
        "more replicas of its workload become ready, or the budget allows more"
    );
    assert_eq!(
        seen["pools"][0]["now"][0],
        serde_json::json!({ "reason": "Empty", "allowed": 0, "disrupted": 0, "left": 0 })
    );
    assert!(text_of("/debug/disruption").await.contains(text));
    let node = json_of("/debug/explain?node=n1").await;
    assert_eq!(&node["disruption_blockers"], blockers);
    assert_eq!(
        (&node["leading"], &node["at"]),
        (&false.into(), &"2026-05-01T12:00:00Z".into())
    );
    let pool = json_of("/debug/explain?nodepool=general").await;
    assert_eq!(pool["budgets"]["now"], seen["pools"][0]["now"]);
}

#[tokio::test]
async fn wrong_questions_are_answered_with_what_is_right() {
    for (path, status, part) in [
        ("/debug/explain", 400, "exactly one of"),
        ("/debug/explain?pod=a&node=b", 400, "exactly one of"),
        ("/debug/explain?pots=a", 400, "unknown field"),
        (
            "/debug/explain?node=n3",
            404,
            "there is no node \"n3\"; did you mean \"n1\"?",
        ),
        (
            "/debug/explain?nodepool=generl",
            404,
            "did you mean \"general\"?",
        ),
        (
            "/debug/explain?pod=shop/webb-2",
            404,
            "there is no pod \"shop/webb-2\"; did you mean \"web-2\"?",
        ),
        ("/debug/explain?nodeclaim=x", 404, "there is no nodeclaim"),
    ] {
        let (got, body) = get(path, "*/*").await;
        assert_eq!(got, status, "{path}: {body}");
        assert!(body.contains(part), "{path}: {body}");
    }
}

#[tokio::test]
async fn nothing_secret_is_in_any_answer() {
    let subjects = ["/debug/explain?pod=shop/web-1", "/debug/explain?node=n1"];
    let without_subject = |path: &&str| !["/debug/explain", "/debug/config"].contains(path);
    let views = DEBUG_ROUTES.iter().map(|route| route.path);
    for path in views.filter(without_subject).chain(subjects) {
        if path == "/api/v1/stream" {
            continue; // the same as the state, in frames; it does not end
        }
        let mut body = String::new();
        for form in ["application/json", "text/plain"] {
            let (status, text) = get(path, form).await;
            assert_eq!(status, 200, "{path}: {text}");
            body += &text;
        }
        assert!(
            !body.contains("hunter2")
                && !body.contains("PASSWORD")
                && !body.contains("never shown"),
            "{path}"
        );
    }
}

#[tokio::test]
async fn the_page_gets_everything_and_then_what_changes() {
    let shared = testing::shared();
    let request = Request::get("/api/v1/stream").body(Body::empty()).unwrap();
    let response = test_router(Arc::clone(&shared))
        .oneshot(request)
        .await
        .unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let mut body = response.into_body();
    let mut next = async || {
        String::from_utf8(
            body.frame()
                .await
                .unwrap()
                .unwrap()
                .into_data()
                .unwrap()
                .to_vec(),
        )
        .unwrap()
    };
    let first = next().await;
    assert!(
        first.starts_with("event: state\ndata: {") && first.contains("\"name\":\"n1\""),
        "{first}"
    );
    let mut record = shared.records.newest(1, |_| true)[0].record.clone();
    record.generation = 77;
    shared.record(vec![record]);
    let second = next().await;
    assert!(
        second.starts_with("event: decision\n") && second.contains("\"generation\":77"),
        "{second}"
    );
    let mut snapshot = (*shared.snapshot()).clone();
    snapshot.nodes.remove("kwok://n2");
    snapshot.generation += 1;
    shared.publish(Arc::new(snapshot));
    let third = next().await;
    assert!(
        third.starts_with("event: nodes\n") && third.contains("\"gone\":[\"kwok://n2\"]"),
        "{third}"
    );
    assert!(next().await.starts_with("event: totals\n"));
    drop(body);
    assert_eq!(
        shared.streams.available_permits(),
        16,
        "the place is free again"
    );
}
