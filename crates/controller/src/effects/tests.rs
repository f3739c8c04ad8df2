use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;
use std::time::Duration;

use kube::client::Body;
use mortise_core::apis::NodeClaim;
use mortise_core::cloud::{
    BoxFuture, CloudError, CloudProvider, Instance, LaunchError, LaunchRequest, Launched,
    NodeClassKind, NodeClassObject, Notice, RepairPolicy, ResolvedNodeClass, Retry, Terminated,
};
use mortise_core::effect::{Event, ObjectRef, Patch, ProviderRef};
use mortise_core::index::{Object, ObjectKey};
use mortise_core::labels::WellKnown;
use mortise_core::names::{NodeClassKey, PodKey, ProviderId};
use serde_json::{Value, json};

use super::limiter::Limiter;
use super::*;
use crate::objects::Kinds;
use crate::testing;

/// An API server that gives these answers in turn, and notes what it was asked.
#[derive(Clone, Default)]
struct Server {
    answers: Arc<Mutex<VecDeque<(u16, Value)>>>,
    asked: Arc<Mutex<Vec<(String, String, Value)>>>,
}

impl Server {
    fn answering(answers: &[(u16, Value)]) -> Self {
        let server = Self::default();
        server
            .answers
            .lock()
            .unwrap()
            .extend(answers.iter().cloned());
        server
    }

    fn client(&self) -> kube::Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let server = server.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect_bytes().await.unwrap();
                let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
                let path = parts.uri.path_and_query().unwrap().to_string();
                server
                    .asked
                    .lock()
                    .unwrap()
                    .push((parts.method.to_string(), path, body));
                let answer = server.answers.lock().unwrap().pop_front();
                let Some((code, answer)) = answer else {
                    return std::future::pending().await;
                };
                let response = http::Response::builder().status(code);
                Ok::<_, tower::BoxError>(
                    response
                        .body(Body::from(answer.to_string().into_bytes()))
                        .unwrap(),
                )
            }
        });
        kube::Client::new(service, "default")
    }

    /// Method and path of every request.
    fn requests(&self) -> Vec<String> {
        self.asked
            .lock()
            .unwrap()
            .iter()
            .map(|(method, path, _)| format!("{method} {path}"))
            .collect()
    }

    fn body(&self, index: usize) -> Value {
        self.asked.lock().unwrap()[index].2.clone()
    }
}

fn status(code: u16, reason: &str, message: &str) -> (u16, Value) {
    (
        code,
        json!({ "kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message }),
    )
}

/// A cloud that launches at once, and waits for ever when asked to terminate.
struct Cloud {
    name: &'static str,
    /// How often it refuses to list its machines.
    refusals: Mutex<u32>,
}

const KIND: NodeClassKind = NodeClassKind {
    group: "g",
    version: "v1",
    kind: "K",
    plural: "ks",
};

impl CloudProvider for Cloud {
    fn name(&self) -> &'static str {
        self.name
    }
    fn node_class_kinds(&self) -> &'static [NodeClassKind] {
        &[KIND]
    }
    fn well_known(&self) -> WellKnown {
        WellKnown::core()
    }
    fn resolve<'a>(
        &'a self,
        _: &'a NodeClassObject,
    ) -> BoxFuture<'a, Result<ResolvedNodeClass, CloudError>> {
        Box::pin(async {
            Err(CloudError {
                label: "unauthorized",
                message: "no".to_owned(),
                retry: Retry::Never,
            })
        })
    }
    fn launch<'a>(
        &'a self,
        request: &'a LaunchRequest,
    ) -> BoxFuture<'a, Result<Launched, LaunchError>> {
        let provider_id = ProviderId::new(format!("fake://{}", request.claim.name()));
        Box::pin(async move {
            Ok(Launched {
                provider_id,
                image_id: None,
                labels: BTreeMap::new(),
                annotations: BTreeMap::new(),
                capacity: BTreeMap::new(),
                allocatable: BTreeMap::new(),
            })
        })
    }
    fn terminate<'a>(
        &'a self,
        _: &'a ProviderId,
        _: &'a str,
    ) -> BoxFuture<'a, Result<Terminated, CloudError>> {
        Box::pin(std::future::pending())
    }
    fn instances(&self) -> BoxFuture<'_, Result<Vec<Instance>, CloudError>> {
        let mut left = self.refusals.lock().unwrap();
        let refuse = *left > 0;
        *left = left.saturating_sub(1);
        Box::pin(async move {
            if refuse {
                return Err(CloudError {
                    label: "throttled",
                    message: "slow down".to_owned(),
                    retry: Retry::Again,
                });
            }
            Ok(Vec::new())
        })
    }
    fn drifted<'a>(
        &'a self,
        _: &'a NodeClaim,
        _: &'a NodeClassObject,
    ) -> BoxFuture<'a, Result<Option<String>, CloudError>> {
        Box::pin(async { Ok(None) })
    }
    fn notices(&self) -> Option<BoxFuture<'_, Result<Vec<Notice>, CloudError>>> {
        None
    }
    fn acknowledge<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<(), CloudError>> {
        Box::pin(async { Ok(()) })
    }
    fn repair_policies(&self) -> Vec<RepairPolicy> {
        Vec::new()
    }
}

struct Bench {
    server: Server,
    commands: mpsc::UnboundedSender<Command>,
    results: mpsc::Receiver<Message>,
    shared: Arc<Shared>,
    license: Arc<License>,
}

impl Bench {
    /// Runs effects as the leader against these answers.
    fn leading(answers: &[(u16, Value)]) -> Self {
        let server = Server::answering(answers);
        let shared = testing::shared();
        let license = Arc::new(License::new());
        license.extend_for_ever();
        let api = Api::new(
            server.client(),
            Arc::new(Limiter::new(1000.0, 1000)),
            Arc::new(Kinds::new(vec![KIND])),
            Arc::clone(&license),
        );
        let (events, send) = Events::new(api.clone(), Arc::clone(&shared));
        tokio::spawn(send);
        let clouds = Clouds::new(vec![Arc::new(Cloud {
            name: "fake",
            refusals: Mutex::new(1),
        })]);
        let outside = Outside {
            api,
            clouds,
            events,
            shared: Arc::clone(&shared),
            license: Arc::clone(&license),
        };
        let (commands, orders) = mpsc::unbounded_channel();
        let (send, results) = mpsc::channel(64);
        tokio::spawn(run(orders, send, outside, 4));
        commands.send(Command::Leading(true)).unwrap();
        Self {
            server,
            commands,
            results,
            shared,
            license,
        }
    }

    fn order(&self, effect: Effect) {
        let order = Order {
            decider: DeciderId::Lifecycle,
            effect: Arc::new(effect),
        };
        self.commands
            .send(Command::Order {
                order,
                why: "provisioned",
            })
            .unwrap();
    }

    /// The next answer in a few words.
    async fn next(&mut self) -> String {
        match self.results.recv().await.unwrap() {
            Message::Input(Input::News(News::Applied(Object::Claim(claim), _))) => {
                format!("news of {}", claim.name())
            }
            Message::Input(Input::News(News::Deleted(ObjectKey::Claim(name)))) => {
                format!("end of {name}")
            }
            Message::Input(Input::Outcome { outcome, .. }) => match outcome.result {
                Ok(done) => format!("{done:?}")
                    .split(['(', ' '])
                    .next()
                    .unwrap()
                    .to_owned(),
                Err(error) => error.label().to_owned(),
            },
            other => panic!("{other:?}"),
        }
    }
}

fn claim(name: &str, pool: &str) -> Value {
    json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": { "name": name, "resourceVersion": "5", "labels": { "karpenter.sh/nodepool": pool } },
        "spec": { "nodeClassRef": { "group": "g", "kind": "K", "name": "default" }, "requirements": [] },
    })
}

fn as_claim(value: Value) -> Arc<NodeClaim> {
    Arc::new(serde_json::from_value(value).unwrap())
}

fn node_patch(status: bool) -> Effect {
    Effect::Patch(Patch {
        target: ObjectRef::Claim("c".into()),
        status,
        resource_version: Some("7".to_owned()),
        merge: json!({ "status": { "nodeName": "n" } }),
    })
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
    let page = bench
        .shared
        .metrics
        .page(&bench.shared, &BTreeMap::new())
        .unwrap();
    assert!(page.contains("karpenter_nodeclaims_created_total{reason=\"provisioned\",nodepool=\"p\",min_values_relaxed=\"false\"} 1"), "{page}");
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_exists_is_ours_only_when_its_pool_says_so() {
    let exists = status(409, "AlreadyExists", "nodeclaims \"c\" already exists");
    let mut bench = Bench::leading(&[
        exists.clone(),
        (200, claim("c", "p")),
        exists,
        (200, claim("c", "another")),
    ]);
    bench.order(Effect::CreateClaim(as_claim(claim("c", "p"))));
    assert_eq!(
        (bench.next().await.as_str(), bench.next().await.as_str()),
        ("news of c", "Written")
    );
    bench.order(Effect::CreateClaim(as_claim(claim("c", "p"))));
    assert_eq!(bench.next().await, "refused");
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
    bench.order(node_patch(true));
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
        bench.order(node_patch(false));
        assert_eq!(bench.next().await, want);
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_stays_away_is_given_up_in_time() {
    let away: Vec<_> = (0..100)
        .map(|_| status(503, "ServiceUnavailable", "not now"))
        .collect();
    let mut bench = Bench::leading(&away);
    let start = tokio::time::Instant::now();
    bench.order(node_patch(false));
    assert_eq!(bench.next().await, "unavailable");
    assert!(
        start.elapsed() <= Duration::from_secs(30),
        "{:?}",
        start.elapsed()
    );
    let tries = bench.server.requests().len();
    assert!((6..=20).contains(&tries), "{tries}");
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
    let page = bench.shared.metrics.page(&bench.shared, &BTreeMap::new());
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
    let class = NodeClassObject {
        key: NodeClassKey::new("g", "K", "default"),
        object: Arc::new(Value::Null),
    };
    bench.order(Effect::Resolve(class));
    assert_eq!(bench.next().await, "unauthorized");
    bench.order(Effect::Acknowledge {
        provider: "fake".into(),
        notice: "m".into(),
    });
    assert_eq!(bench.next().await, "Acknowledged");
    let page = bench
        .shared
        .metrics
        .page(&bench.shared, &BTreeMap::new())
        .unwrap();
    assert!(page.contains("karpenter_cloudprovider_errors_total{controller=\"lifecycle\",method=\"List\",provider=\"fake\",error=\"throttled\"} 1"), "{page}");
    assert!(bench.server.requests().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_does_not_list_its_machines_is_told_from_one_that_has_none() {
    let cloud = |name, refusals| -> Arc<dyn CloudProvider> {
        let refusals = Mutex::new(refusals);
        Arc::new(Cloud { name, refusals })
    };
    let (by, shared) = (DeciderId::GarbageCollection, testing::shared());
    let both = Clouds::new(vec![cloud("mute", u32::MAX), cloud("fine", 0)]);
    let done = both.instances(by, &shared.metrics).await.unwrap();
    let Done::Instances(listings) = done else {
        panic!("{done:?}")
    };
    let said: Vec<(&str, Result<usize, &str>)> = listings
        .iter()
        .map(|listing| {
            let machines = listing.machines.as_ref();
            let machines = machines.map(Vec::len).map_err(|error| error.label);
            (&*listing.provider, machines)
        })
        .collect();
    assert_eq!(said, [("fine", Ok(0)), ("mute", Err("throttled"))]);
    let class = NodeClassKey::new("g", "K", "default");
    assert!(listings.iter().all(|listing| listing.serves.covers(&class)));

    let mute = Clouds::new(vec![cloud("mute", u32::MAX)]);
    let error = mute.instances(by, &shared.metrics).await.unwrap_err();
    assert_eq!(error.label(), "throttled");

    let nobody = ProviderRef::Named("gone".into());
    let error = both
        .terminate(by, &nobody, &"m".into(), &"c".into(), &shared.metrics)
        .await
        .unwrap_err();
    assert_eq!(error.label(), "no_provider");
}

#[tokio::test(start_paused = true)]
async fn the_end_of_leadership_cuts_off_what_runs_and_answers_what_waits() {
    let mut bench = Bench::leading(&[]);
    for machine in ["a", "b"] {
        bench.order(Effect::Terminate {
            provider: ProviderRef::OfClass(NodeClassKey::new("g", "K", "default")),
            provider_id: machine.into(),
            claim: "c".into(),
        });
    }
    bench.order(node_patch(false));
    // Let the first termination and the patch begin: both are never answered.
    while bench.server.requests().is_empty() {
        tokio::task::yield_now().await;
    }
    bench.commands.send(Command::Leading(false)).unwrap();
    for _ in 0..3 {
        assert_eq!(bench.next().await, "unavailable");
    }
    bench.order(node_patch(false));
    assert_eq!(bench.next().await, "unavailable");
    bench.order(Effect::Event(Event::normal(
        ObjectRef::Node("n".into()),
        "R",
        "m",
    )));
    bench.commands.send(Command::Leading(true)).unwrap();
    bench.order(Effect::Event(Event::normal(
        ObjectRef::Node("n".into()),
        "R",
        "m",
    )));
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
    bench.order(node_patch(true));
    assert_eq!(bench.next().await, "unavailable");
    bench.order(node_patch(true));
    assert_eq!(bench.next().await, "unavailable");
    assert_eq!(
        bench.server.requests().len(),
        1,
        "nothing was sent after it"
    );
}
