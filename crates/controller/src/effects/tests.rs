mod stage;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use mortise_apis::names::{NodeClassKey, ObjectRef, PodKey};
use mortise_apis::node_class::NodeClassObject;
use mortise_cloudprovider::{CloudProvider, LaunchRequest};
use mortise_engine::decider_id::DeciderId;
use mortise_engine::effect::{Event, ProviderRef};
use mortise_engine::events::events_of;
use mortise_engine::record::{Record, Verdict, Visibility};
use mortise_planning::reason::Reason;
use serde_json::{Value, json};

use super::*;
use crate::serve::exposition;
use crate::testing;
use stage::{Bench, Cloud, as_claim, claim, claim_write, status};

/// Some event.
fn event() -> Event {
    let record = Record {
        at: jiff::Timestamp::UNIX_EPOCH,
        decider: DeciderId::Termination,
        subject: ObjectRef::Node("n".into()),
        verdict: Verdict::Waiting,
        reasons: vec![Reason::PodsWaiting { count: 1 }],
        visibility: Visibility::Event,
        related: Vec::new(),
        generation: 1,
    };
    events_of(&record).remove(0)
}

#[tokio::test(start_paused = true)]
async fn news_come_before_the_outcome() {
    let mut bench = Bench::leading(&[(201, claim("c", "p"))]);
    bench.order(Effect::CreateClaim(as_claim(claim("c", "p"))));
    assert_eq!(bench.next().await, "news of c");
    assert_eq!(bench.next().await, "Written");
    assert_eq!(
        bench.server.requests(),
        ["POST /apis/karpenter.sh/v1/nodeclaims?"]
    );
    let page = exposition::render(&bench.shared, &BTreeMap::new()).unwrap();
    assert!(page.contains("karpenter_nodeclaims_created_total{reason=\"provisioned\",nodepool=\"p\",min_values_relaxed=\"false\"} 1"), "{page}");
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_exists_is_ours_only_when_it_comes_from_the_same_decision() {
    let exists = || status(409, "AlreadyExists", "nodeclaims \"c\" already exists");
    let meant = |pool: &str, intent: &str| {
        let mut claim = claim("c", pool);
        claim["metadata"]["annotations"] = json!({ "mortise.sh/intent": intent });
        claim
    };
    let mut bench = Bench::leading(&[
        exists(),
        (200, meant("p", "1")),
        exists(),
        (200, meant("another", "1")),
        exists(),
        (200, meant("p", "2")),
        exists(),
        (200, claim("c", "p")),
    ]);
    let order = || Effect::CreateClaim(as_claim(meant("p", "1")));
    bench.order(order());
    assert_eq!(
        (bench.next().await.as_str(), bench.next().await.as_str()),
        ("news of c", "Written")
    );
    for other in ["pool", "decision", "hand"] {
        bench.order(order());
        assert_eq!(bench.next().await, "refused", "of another {other}");
    }
    assert_eq!(
        bench.server.requests()[1],
        "GET /apis/karpenter.sh/v1/nodeclaims/c"
    );
}

#[tokio::test(start_paused = true)]
async fn trouble_of_the_server_is_waited_out_and_conflicts_are_not() {
    let busy = status(503, "ServiceUnavailable", "not now");
    let mut bench = Bench::leading(&[
        busy.clone(),
        status(429, "TooManyRequests", "too many requests"),
        (200, claim("c", "p")),
        status(409, "Conflict", "changed"),
        status(404, "NotFound", "gone"),
        status(422, "Invalid", "wrong"),
    ]);
    bench.order(claim_write(true));
    assert_eq!(
        (bench.next().await.as_str(), bench.next().await.as_str()),
        ("news of c", "Written")
    );
    assert_eq!(
        bench.server.requests(),
        vec!["PATCH /apis/karpenter.sh/v1/nodeclaims/c/status?"; 3]
    );
    assert_eq!(
        bench.server.body(0),
        json!({ "metadata": { "resourceVersion": "7" }, "status": { "nodeName": "n" } })
    );
    for want in ["conflict", "not_found", "refused"] {
        bench.order(claim_write(false));
        assert_eq!(bench.next().await, want);
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_fails_in_time_when_the_server_stays_away() {
    let away: Vec<_> = (0..100)
        .map(|_| status(503, "ServiceUnavailable", "not now"))
        .collect();
    let mut bench = Bench::leading(&away);
    let start = tokio::time::Instant::now();
    bench.order(claim_write(false));
    assert_eq!(bench.next().await, "unavailable");
    assert!(
        start.elapsed() <= Duration::from_secs(30),
        "{:?}",
        start.elapsed()
    );
    let tries = bench.server.requests().len();
    assert!((6..=20).contains(&tries), "{tries}");

    // A drain asks for evictions again by itself, and is to know soon what is in its way.
    let start = tokio::time::Instant::now();
    bench.order(Effect::Evict {
        pod: PodKey::new("a", "p"),
        uid: "u".into(),
    });
    assert_eq!(bench.next().await, "unavailable");
    let took = start.elapsed();
    assert!(took <= Duration::from_secs(5), "{took:?}");
    assert!(bench.server.requests().len() >= tries + 3);
}

#[tokio::test(start_paused = true)]
async fn evictions_have_answers_of_their_own() {
    let budget = json!({ "kind": "Status", "status": "Failure", "code": 429, "reason": "TooManyRequests", "message": "Cannot evict",
        "details": { "causes": [{ "reason": "DisruptionBudget", "message": "needs 2" }] } });
    let several = status(
        500,
        "InternalError",
        "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
    );
    let mut bench = Bench::leading(&[
        (201, json!({ "kind": "Status", "status": "Success" })),
        (429, budget),
        several,
        status(404, "NotFound", "gone"),
        status(
            409,
            "Conflict",
            "the UID in the precondition does not match",
        ),
        status(503, "ServiceUnavailable", "try again"),
        (201, json!({ "kind": "Status", "status": "Success" })),
        status(403, "Forbidden", "cannot create pods/eviction"),
    ]);
    for want in [
        "Evicted",
        "blocked",
        "multiple_budgets",
        "not_found",
        "conflict",
        "Evicted",
        "refused",
    ] {
        bench.order(Effect::Evict {
            pod: PodKey::new("a", "p"),
            uid: "u".into(),
        });
        assert_eq!(bench.next().await, want);
    }
    assert_eq!(
        bench.server.requests()[0],
        "POST /api/v1/namespaces/a/pods/p/eviction?"
    );
    assert_eq!(
        bench.server.body(0)["deleteOptions"]["preconditions"]["uid"],
        "u"
    );
    // Every answer counts, also one after which the request was repeated.
    let page = exposition::render(&bench.shared, &BTreeMap::new());
    let page = page.unwrap();
    for (code, times) in [
        (200, 2),
        (403, 1),
        (404, 1),
        (409, 1),
        (429, 1),
        (500, 1),
        (503, 1),
    ] {
        let line = format!("karpenter_pods_eviction_requests_total{{code=\"{code}\"}} {times}\n");
        assert!(page.contains(&line), "{line} in\n{page}");
    }
}

#[tokio::test(start_paused = true)]
async fn deleting_what_is_gone_is_done() {
    let going = json!({ "kind": "NodeClaim", "metadata": { "name": "c", "resourceVersion": "9", "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["x"] }, "spec": {} });
    let gone = json!({ "kind": "NodeClaim", "metadata": { "name": "c", "resourceVersion": "9", "deletionTimestamp": "2026-01-01T00:00:00Z" }, "spec": {} });
    let mut bench = Bench::leading(&[
        (200, going),
        (200, gone),
        status(404, "NotFound", "gone"),
        status(409, "Conflict", "another UID"),
    ]);
    let delete = || Effect::Delete {
        target: ObjectRef::Claim("c".into()),
        uid: Some("u".into()),
        grace_seconds: None,
    };
    for want in [
        &["news of c", "Deleted"][..],
        &["end of c", "Deleted"],
        &["Deleted"],
        &["Deleted"],
    ] {
        bench.order(delete());
        for each in want {
            assert_eq!(bench.next().await, *each);
        }
    }
    assert_eq!(bench.server.body(0)["preconditions"]["uid"], "u");
}

#[tokio::test(start_paused = true)]
async fn clouds_are_found_by_the_kind_of_the_class_and_asked_again() {
    let mut bench = Bench::leading(&[]);
    let launch = |value: Value| {
        Effect::Launch(Box::new(LaunchRequest {
            claim: as_claim(value),
            node_class: None,
            batch: None,
        }))
    };
    bench.order(launch(claim("c", "p")));
    assert_eq!(bench.next().await, "Launched");
    let mut foreign = claim("c", "p");
    foreign["spec"]["nodeClassRef"]["kind"] = json!("Other");
    bench.order(launch(foreign));
    assert_eq!(bench.next().await, "launch", "no provider serves it");
    bench.order(Effect::ListInstances);
    assert_eq!(
        bench.next().await,
        "Instances",
        "throttled once, then answered"
    );
    let class = NodeClassObject::new(NodeClassKey::new("g", "K", "default"), Value::Null);
    bench.order(Effect::Resolve(Box::new(class.into())));
    assert_eq!(bench.next().await, "unauthorized");
    bench.order(Effect::Acknowledge {
        provider: "fake".into(),
        notice: "m".into(),
    });
    assert_eq!(bench.next().await, "Acknowledged");
    let page = exposition::render(&bench.shared, &BTreeMap::new()).unwrap();
    assert!(page.contains("karpenter_cloudprovider_errors_total{controller=\"lifecycle\",method=\"List\",provider=\"fake\",error=\"throttled\"} 1"), "{page}");
    assert!(bench.server.requests().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_does_not_list_its_instances_is_told_from_one_that_has_none() {
    let cloud = |name, refusals| -> Arc<dyn CloudProvider> {
        let refusals = Mutex::new(refusals);
        Arc::new(Cloud { name, refusals })
    };
    let (by, shared) = (DeciderId::GarbageCollection, testing::shared());
    let both = CloudProviders::new(vec![cloud("mute", u32::MAX), cloud("fine", 0)]);
    let done = both.instances(by, &shared.metrics).await.unwrap();
    let EffectOutput::Instances(listings) = done else {
        panic!("{done:?}")
    };
    let said: Vec<(&str, Result<usize, &str>)> = listings
        .iter()
        .map(|listing| {
            let instances = listing.instances.as_ref();
            let count = instances.map(Vec::len).map_err(|error| error.label);
            (&*listing.provider, count)
        })
        .collect();
    assert_eq!(said, [("fine", Ok(0)), ("mute", Err("throttled"))]);
    let class = NodeClassKey::new("g", "K", "default");
    assert!(listings.iter().all(|listing| listing.serves.covers(&class)));

    let mute = CloudProviders::new(vec![cloud("mute", u32::MAX)]);
    let error = mute.instances(by, &shared.metrics).await.unwrap_err();
    assert_eq!(error.label(), "throttled");

    let missing = ProviderRef::Named("gone".into());
    let error = both
        .terminate(by, &missing, &"m".into(), &"c".into(), &shared.metrics)
        .await
        .unwrap_err();
    assert_eq!(error.label(), "no_provider");
}

#[tokio::test(start_paused = true)]
async fn the_end_of_leadership_cuts_off_what_runs_and_answers_what_waits() {
    let mut bench = Bench::leading(&[]);
    for instance in ["a", "b"] {
        bench.order(Effect::Terminate {
            provider: ProviderRef::OfClass(NodeClassKey::new("g", "K", "default")),
            provider_id: instance.into(),
            claim: "c".into(),
        });
    }
    bench.order(claim_write(false));
    // Let the first termination and the patch begin: both are never answered.
    while bench.server.requests().is_empty() {
        tokio::task::yield_now().await;
    }
    bench
        .commands
        .send(ExecutorMessage::Leading(false))
        .unwrap();
    for _ in 0..3 {
        assert_eq!(bench.next().await, "unavailable");
    }
    bench.order(claim_write(false));
    assert_eq!(bench.next().await, "unavailable");
    bench.order(Effect::Event(event()));
    bench.commands.send(ExecutorMessage::Leading(true)).unwrap();
    bench.order(Effect::Event(event()));
    while bench.server.requests().len() < 2 {
        tokio::task::yield_now().await;
    }
    assert_eq!(
        bench.server.requests()[1],
        "POST /api/v1/namespaces/default/events?",
        "only the leader sends events"
    );
}

#[tokio::test(start_paused = true)]
async fn leave_that_ran_out_stops_what_is_under_way() {
    let mut bench = Bench::leading(&[
        status(503, "ServiceUnavailable", "not now"),
        (200, claim("c", "p")),
    ]);
    let soon = tokio::time::Instant::now() + Duration::from_millis(20);
    bench.license.extend(soon);
    bench.order(claim_write(true));
    assert_eq!(bench.next().await, "unavailable");
    bench.order(claim_write(true));
    assert_eq!(bench.next().await, "unavailable");
    assert_eq!(
        bench.server.requests().len(),
        1,
        "nothing was sent after it"
    );
}
