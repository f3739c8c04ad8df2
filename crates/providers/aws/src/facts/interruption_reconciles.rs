//! Whole reconciles of interruption: what the queue or EC2 answers goes through our sources and the engine with its decider, and what
//! is deleted, written, told and noted is compared.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock, Mutex};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::labels;
use mortise_apis::names::{ClaimName, ObjectRef};
use mortise_cloudprovider::{CapacityType, CloudError, InstanceType, InterruptionNotice};
use mortise_deciders::InterruptionDecider;
use mortise_engine::decider::Decider;
use mortise_engine::effect::{Effect, EffectOutput, Outcome};
use mortise_engine::engine::{Engine, EngineInput};
use mortise_engine::write::ObjectWrite;
use mortise_planning::settings::Settings;
use mortise_state::resource_kinds::{EventSource, Object, ObjectEvent, ObjectKey, ObjectKind};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::api::{self, Answers, wire::ApiCall, wire::ApiError};
use super::replay::{Case, Difference, RecordedCall, Replay, load, score};
use crate::config::AwsConfig;
use crate::instances::InstanceCache;
use crate::interruption::{Interruptions, NoticeEffects};
use crate::offerings::reservation_counts::ReservationCounts;
use crate::offerings::unavailable_offerings::UnavailableOfferings;

const ZONES: [&str; 4] = [
    "test-zone-1a",
    "test-zone-1b",
    "test-zone-1c",
    "test-zone-1a-local",
];
const URL: &str = "https://sqs.us-west-2.amazonaws.com/123456789/test-cluster";

static TYPES: LazyLock<Vec<InstanceType>> = LazyLock::new(|| {
    let zones = ["us-west-2a", "us-west-2b", "us-west-2c", "us-west-2d"];
    let mut types = mortise_aws_catalog::embedded("us-west-2", &zones).unwrap();
    for offering in types.iter_mut().flat_map(|each| &mut each.offerings) {
        let at = zones.iter().position(|zone| **zone == *offering.zone);
        offering.zone = Arc::from(ZONES[at.unwrap()]);
    }
    types
});

/// The queue as recorded. Messages without a handle get their id as handle: SQS always gives one.
#[derive(Debug)]
struct RecordedQueue {
    received: RecordedCall,
    deleted: Mutex<Vec<String>>,
}

impl Answers for RecordedQueue {
    fn answer(&self, call: ApiCall) -> Result<Value, ApiError> {
        match call.op.as_str() {
            "GetQueueUrl" => Ok(json!({ "QueueUrl": URL })),
            "ReceiveMessage" => {
                for field in [
                    "QueueUrl",
                    "MaxNumberOfMessages",
                    "VisibilityTimeout",
                    "WaitTimeSeconds",
                ] {
                    assert_eq!(call.input[field], self.received.input[field], "{field}");
                }
                let asked = &call.input["MessageSystemAttributeNames"];
                assert_eq!(*asked, self.received.input["AttributeNames"]);
                let mut answer = self.received.answer()?;
                for message in answer["Messages"].as_array_mut().into_iter().flatten() {
                    message["ReceiptHandle"] = handle(message).into();
                }
                Ok(answer)
            }
            "DeleteMessageBatch" => {
                let entries = call.input["Entries"].as_array().unwrap().clone();
                assert!(entries.len() <= 10);
                let handles = entries
                    .iter()
                    .map(|entry| entry["ReceiptHandle"].as_str().unwrap());
                self.deleted
                    .lock()
                    .unwrap()
                    .extend(handles.map(str::to_owned));
                let done: Vec<Value> = entries
                    .iter()
                    .map(|entry| json!({ "Id": entry["Id"] }))
                    .collect();
                Ok(json!({ "Successful": done, "Failed": [] }))
            }
            other => panic!("{other} is not called"),
        }
    }
}

fn handle(message: &Value) -> String {
    let handle = message["ReceiptHandle"].as_str();
    handle
        .or_else(|| message["MessageId"].as_str())
        .unwrap()
        .to_owned()
}

fn list<'a>(value: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    value[field].as_array().into_iter().flatten()
}

fn time(value: &Value) -> Timestamp {
    value.as_str().unwrap().parse().unwrap()
}

/// Our sources, with what they know and note.
struct Provider {
    interruptions: Interruptions,
    unavailable: Arc<UnavailableOfferings>,
    reservations: Arc<ReservationCounts>,
}

impl Provider {
    fn new(case: &Case, answers: Arc<dyn Answers>) -> Self {
        let clients = Arc::new(api::clients(answers));
        let unavailable: Arc<UnavailableOfferings> = Arc::default();
        let reservations: Arc<ReservationCounts> = Arc::default();
        let effects = NoticeEffects {
            claims: Arc::default(),
            instances: Arc::new(InstanceCache::new(
                &clients,
                Arc::<AwsConfig>::default(),
                Arc::clone(&reservations),
                Arc::default(),
            )),
            unavailable: Arc::clone(&unavailable),
            reservations: Arc::clone(&reservations),
        };
        let known = case.given["capacityReservationAvailability"].as_object();
        for (id, count) in known.into_iter().flatten() {
            let left = count["count"].as_u64().unwrap().try_into().unwrap();
            reservations.read(id, left, Instant::now());
        }
        let queue = "test-cluster".to_owned();
        let interruptions = Interruptions::new(&clients, Some(&queue), effects);
        let claims: Vec<Arc<NodeClaim>> = objects(case, "NodeClaim")
            .map(|claim| Arc::new(serde_json::from_value(claim.clone()).unwrap()))
            .collect();
        if let Some(claim) = claims.first() {
            interruptions.claims.note(&claim.node_class_key(), &claims);
        }
        Self {
            interruptions,
            unavailable,
            reservations,
        }
    }

    /// Spot offerings that were marked, as `spot:type:zone`.
    fn marks(&self) -> BTreeSet<String> {
        let view = self.unavailable.view(ZONES.map(Arc::from).into(), None);
        let mut marks = BTreeSet::new();
        for each in TYPES.iter() {
            let spot = each.offerings.iter().filter(|offering| {
                offering.available && offering.capacity_type == CapacityType::Spot
            });
            for offering in spot.filter(|offering| !view.allow(each, offering)) {
                marks.insert(format!("spot:{}:{}", each.name, offering.zone));
            }
        }
        marks
    }
}

fn objects<'a>(case: &'a Case, kind: &'a str) -> impl Iterator<Item = &'a Value> {
    list(&case.given, "objects").filter(move |object| object["kind"] == kind)
}

/// What the engine did.
#[derive(Debug, Default)]
struct Done {
    deleted: BTreeSet<String>,
    forced: BTreeSet<String>,
    acknowledged: Vec<Arc<str>>,
    events: BTreeSet<[String; 5]>,
}

/// An engine that knows the case's objects, and what it did.
struct World {
    engine: Engine,
    now: Timestamp,
    claims: BTreeMap<ClaimName, NodeClaim>,
    done: Done,
}

impl World {
    fn new(case: &Case, now: Timestamp) -> Self {
        let deciders: Vec<Box<dyn Decider>> = vec![Box::new(InterruptionDecider::new())];
        let known = mortise_aws_class::labels::well_known();
        let mut world = Self {
            engine: Engine::new(deciders, Settings::default(), known, 7, now),
            now,
            claims: BTreeMap::new(),
            done: Done::default(),
        };
        let mut keys: BTreeMap<ObjectKind, BTreeSet<ObjectKey>> = BTreeMap::new();
        for claim in objects(case, "NodeClaim") {
            let claim: NodeClaim = serde_json::from_value(claim.clone()).unwrap();
            world.claims.insert(claim.name(), claim.clone());
            let key = ObjectKey::Claim(claim.name());
            keys.entry(ObjectKind::Claim).or_default().insert(key);
            world.apply(Object::Claim(Box::new(claim)));
        }
        for node in objects(case, "Node") {
            let node = Object::Node(serde_json::from_value(node.clone()).unwrap());
            keys.entry(ObjectKind::Node).or_default().insert(node.key());
            world.apply(node);
        }
        for (kind, keys) in keys {
            let version = None;
            world.news(ObjectEvent::Listed {
                kind,
                keys,
                version,
            });
        }
        world.engine.apply(EngineInput::Synced, now);
        world.engine.apply(EngineInput::Leading(true), now);
        world
    }

    fn news(&mut self, event: ObjectEvent) {
        self.engine.apply(EngineInput::News(event), self.now);
    }

    fn apply(&mut self, object: Object) {
        self.news(ObjectEvent::Applied(object, EventSource::Watch));
    }

    /// Executes an effect as an API server without anything in its way does.
    fn execute(&mut self, effect: &Effect) -> EffectOutput {
        match effect {
            Effect::Delete {
                target: ObjectRef::Claim(name),
                ..
            } => {
                self.done.deleted.insert(name.to_string());
                let mut claim = self.claims[name].clone();
                claim.metadata.deletion_timestamp = Some(Time(self.now));
                self.apply(Object::Claim(Box::new(claim)));
                EffectOutput::Deleted
            }
            Effect::Write(write) => {
                self.write(write);
                EffectOutput::Written
            }
            Effect::Acknowledge { notice, .. } => {
                self.done.acknowledged.push(Arc::clone(notice));
                EffectOutput::Acknowledged
            }
            Effect::Event(event) => {
                let type_ = if event.warning { "Warning" } else { "Normal" };
                let name = match &event.target {
                    ObjectRef::Claim(name) => name.to_string(),
                    ObjectRef::Node(name) => name.to_string(),
                    other => panic!("{other}"),
                };
                let (kind, reason) = (event.target.kind(), &*event.reason);
                let texts = [kind, &name, reason, type_, &event.message];
                self.done.events.insert(texts.map(str::to_owned));
                EffectOutput::Sent
            }
            other => panic!("{other:?}"),
        }
    }

    fn write(&mut self, write: &ObjectWrite) {
        let ObjectRef::Claim(name) = &write.target else {
            panic!("{write:?}")
        };
        let patch = write.render().merge;
        let claim = self.claims.get_mut(name).unwrap();
        for (key, value) in patch["metadata"]["annotations"].as_object().unwrap() {
            let all = claim.metadata.annotations.get_or_insert_default();
            all.insert(key.clone(), value.as_str().unwrap().to_owned());
            if key == labels::TERMINATION_TIMESTAMP {
                self.done.forced.insert(name.to_string());
            }
        }
        let claim = Object::Claim(Box::new(claim.clone()));
        self.apply(claim);
    }
}

/// Gives the notices to an engine that knows the case's objects, and executes what it asks for.
fn decide(case: &Case, now: Timestamp, notices: Vec<InterruptionNotice>) -> Done {
    let mut world = World::new(case, now);
    for notice in notices {
        let provider = "aws".into();
        world
            .engine
            .apply(EngineInput::Notice { provider, notice }, now);
    }
    loop {
        let turn = world.engine.turn(now, 100, &|| false);
        if turn.orders.is_empty() {
            return world.done;
        }
        for order in turn.orders {
            let outcome = Outcome {
                result: Ok(world.execute(&order.effect)),
                effect: Arc::clone(&order.effect),
            };
            let (decider, term) = (order.decider, order.term);
            let input = EngineInput::Outcome {
                decider,
                term,
                outcome,
            };
            world.engine.apply(input, now);
        }
    }
}

/// Names of claims that were deleted, and of those whose grace period was ended.
fn recorded_changes(case: &Case) -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut deleted, mut forced) = (BTreeSet::new(), BTreeSet::new());
    for change in list(&case.expect, "changes").filter(|change| change["kind"] == "NodeClaim") {
        let name = change["name"].as_str().unwrap().to_owned();
        let meta = &change["object"]["metadata"];
        if change["deleted"] == true || meta["deletionTimestamp"].is_string() {
            deleted.insert(name.clone());
        }
        if meta["annotations"][labels::TERMINATION_TIMESTAMP].is_string() {
            forced.insert(name);
        }
    }
    (deleted, forced)
}

fn recorded_events(case: &Case) -> BTreeSet<[String; 5]> {
    let text = |event: &Value, field: &str| event[field].as_str().unwrap_or_default().to_owned();
    let fields = ["object", "name", "reason", "type", "message"];
    list(&case.expect, "events")
        .map(|event| fields.map(|field| text(event, field)))
        .collect()
}

fn same<T: PartialEq + std::fmt::Debug>(
    what: &str,
    ours: &T,
    recorded: &T,
) -> Result<(), Difference> {
    if ours == recorded {
        return Ok(());
    }
    Err(format!("{what}: ours {ours:?}, recorded {recorded:?}").into())
}

/// Events were recorded in one of the suites only.
fn has_events(case: &Case) -> bool {
    case.suite == "matrix"
}

async fn queue(case: &Case) -> Result<(), Difference> {
    let received = case.calls.iter().find(|call| call.op == "ReceiveMessage");
    let answers = Arc::new(RecordedQueue {
        received: received.unwrap().clone(),
        deleted: Mutex::default(),
    });
    let provider = Provider::new(case, Arc::clone(&answers) as _);
    let source = provider.interruptions.sources().remove(0);
    let notices: Result<Vec<InterruptionNotice>, CloudError> = source.next().await;
    let notices = match (notices, case.expect.get("error")) {
        (Err(error), Some(_)) if error.label == "not_found" => return Ok(()),
        (Ok(notices), None) => notices,
        (other, recorded) => return Err(format!("ours {other:?}, recorded {recorded:?}").into()),
    };
    let done = decide(case, time(&case.given["realNow"]), notices);
    let acks = done
        .acknowledged
        .iter()
        .map(|handle| provider.interruptions.acknowledge(handle));
    for answer in futures::future::join_all(acks).await {
        answer.map_err(|error| error.to_string())?;
    }
    let (deleted, _) = recorded_changes(case);
    same("deleted", &done.deleted, &deleted)?;
    if has_events(case) {
        same("events", &done.events, &recorded_events(case))?;
    }
    let mut recorded: Vec<String> = list(&received.unwrap().out, "Messages")
        .map(handle)
        .collect();
    let calls = case
        .calls
        .iter()
        .filter(|call| call.op == "DeleteMessage")
        .count();
    same("deletions", &recorded.len(), &calls)?;
    recorded.sort();
    let mut handles = answers.deleted.lock().unwrap().clone();
    handles.sort();
    same("deleted messages", &handles, &recorded)?;
    let effects =
        |op: &'static str| list(&case.expect, "effects").filter(move |effect| effect["op"] == op);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let marks = effects("ice.MarkUnavailable")
        .map(|effect| &effect["args"])
        .map(|args| {
            let part = |field: &str| text(&args[field]);
            format!(
                "{}:{}:{}",
                part("capacityType"),
                part("instanceType"),
                part("zone")
            )
        });
    same("marks", &provider.marks(), &marks.collect())?;
    for id in effects("capacityreservation.MarkUnavailable")
        .flat_map(|effect| list(&effect["args"], "ids"))
    {
        let left = provider.reservations.left(id.as_str().unwrap());
        same("left in the reservation", &left, &0)?;
    }
    Ok(())
}

/// The claims of these names have nothing but scheduled events, all of them over or yet to come.
fn waits_for_events(case: &Case, names: &BTreeSet<&String>, now: Timestamp) -> bool {
    let statuses: Vec<&Value> = case
        .calls
        .iter()
        .flat_map(|call| list(&call.out, "InstanceStatuses"))
        .collect();
    names.iter().all(|name| {
        let claim =
            objects(case, "NodeClaim").find(|claim| claim["metadata"]["name"] == name.as_str());
        let id = claim.and_then(|claim| claim["status"]["providerID"].as_str()?.rsplit('/').next());
        let of = statuses
            .iter()
            .filter(|status| status["InstanceId"].as_str() == id);
        let mut events = of.flat_map(|status| list(status, "Events"));
        id.is_some()
            && events.all(|event| {
                event["Description"]
                    .as_str()
                    .is_some_and(|text| text.starts_with('['))
                    || event["NotBefore"]
                        .as_str()
                        .is_some_and(|at| at.parse::<Timestamp>().unwrap() > now)
            })
    })
}

/// Recorded calls with filters, in an account with more instances than a page.
#[derive(Debug)]
struct LargeAccount(Arc<Replay>);

impl Answers for LargeAccount {
    fn answer(&self, call: ApiCall) -> Result<Value, ApiError> {
        if call.input["Filters"].is_null() {
            return Ok(json!({ "NextToken": "more" }));
        }
        self.0.answer(call)
    }
}

async fn statuses(case: &Case) -> Result<(), Difference> {
    let replay = Arc::new(Replay::of(case));
    let account = Arc::new(LargeAccount(Arc::clone(&replay)));
    let clients = Arc::new(api::clients(account));
    let now = time(&case.given["now"]);
    let poll = crate::interruption::InstanceStatusPoll::new(clients);
    let notices = poll
        .poll(now)
        .await
        .map_err(|failure| failure.to_string())?;
    replay.settled()?;
    if case.op == "instancestatus.List" {
        return listed(case, &notices);
    }
    let done = decide(case, now, notices);
    let (deleted, forced) = recorded_changes(case);
    let differing: BTreeSet<&String> = done.deleted.symmetric_difference(&deleted).collect();
    if !differing.is_empty()
        && done.deleted.is_subset(&deleted)
        && waits_for_events(case, &differing, now)
    {
        return Err(Difference::Meant(
            "scheduled events that are over are not acted on, and those ahead when their time comes",
        ));
    }
    if deleted.is_empty() && !done.deleted.is_empty() && case.suite == "controllers/interruption" {
        return Err(Difference::Meant(
            "recorded without a consequence, while the same input is also recorded with it",
        ));
    }
    same("deleted", &done.deleted, &deleted)?;
    let kept: BTreeSet<String> = list(&case.expect, "changes")
        .filter(|change| change["object"].is_object())
        .filter_map(|change| change["name"].as_str().map(str::to_owned))
        .collect();
    let ours: BTreeSet<String> = done.forced.intersection(&kept).cloned().collect();
    same("forced", &ours, &forced)?;
    if has_events(case) {
        same("events", &done.events, &recorded_events(case))?;
    }
    Ok(())
}

fn listed(case: &Case, notices: &[InterruptionNotice]) -> Result<(), Difference> {
    let ours = notices.iter().flat_map(|notice| {
        let category = notice.kind.status_category().unwrap_or_default().to_owned();
        notice
            .instances
            .iter()
            .map(move |id| (id.to_string(), category.clone()))
    });
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let mut recorded = BTreeSet::new();
    for status in case.expect["result"].as_array().into_iter().flatten() {
        for detail in list(status, "Details") {
            recorded.insert((text(&status["InstanceID"]), text(&detail["Category"])));
        }
    }
    same("statuses", &ours.collect(), &recorded)
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    runtime.unwrap().block_on(future)
}

#[test]
fn notices_have_the_recorded_consequences() {
    score("interruption.jsonl", |case| match case.op.as_str() {
        "controllers/interruption.Controller.Reconcile" => block_on(queue(case)),
        "controllers/interruption.InstanceStatusController.Reconcile" | "instancestatus.List" => {
            block_on(statuses(case))
        }
        other => Err(format!("{other} is not known").into()),
    });
}

#[test]
fn capacity_blocks_end_as_recorded() {
    let cases = load("capacity_reservation.jsonl");
    let expirations = cases
        .iter()
        .filter(|case| case.op.ends_with("expiration.Reconcile"));
    for case in expirations {
        let replay = Arc::new(Replay::of(case));
        let provider = Provider::new(case, Arc::clone(&replay) as _);
        let now = time(&case.given["now"]);
        let (claims, counts) = (
            Arc::clone(&provider.interruptions.claims),
            Arc::clone(&provider.reservations),
        );
        let clients = Arc::new(api::clients(Arc::clone(&replay) as _));
        let poll = crate::interruption::CapacityBlockPoll::new(clients, claims, counts);
        block_on(async {
            let notices = poll.poll(now).await.unwrap();
            replay.settled().unwrap();
            let done = decide(case, now, notices);
            assert_eq!(done.deleted, recorded_changes(case).0, "{}", case.id);
            let after = case.expect["after"]["capacityReservationAvailability"].as_object();
            for (id, count) in after.into_iter().flatten() {
                let left = u64::from(provider.reservations.left(id));
                assert_eq!(Some(left), count["count"].as_u64(), "{id}");
            }
        });
        println!("capacity_reservation.jsonl {}: passed", case.id);
    }
}
