//! What recorded reconciles do not show: batches, receivers that help, a queue that is gone, polling without permission.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_cloudprovider::{InterruptionKind, NoticeSource, Retry};
use serde_json::{Value, json};

use super::*;
use crate::config::AwsConfig;
use crate::facts::api::wire::{ApiCall, ApiError};
use crate::facts::api::{Answers, clients};
use crate::instances::InstanceCache;

type Answer = fn(&ApiCall, usize) -> Result<Value, ApiError>;

/// Answers by a function of the call and of how many of its kind there were before.
#[derive(Debug)]
struct Scripted {
    calls: Mutex<Vec<ApiCall>>,
    answer: Answer,
}

impl Scripted {
    fn count(&self, op: &str) -> usize {
        let calls = self.calls.lock().unwrap();
        calls.iter().filter(|call| call.op == op).count()
    }
}

impl Answers for Scripted {
    fn answer(&self, call: ApiCall) -> Result<Value, ApiError> {
        let before = self.count(&call.op);
        let answer = match (call.op.as_str(), (self.answer)(&call, before)) {
            ("GetQueueUrl", Ok(Value::Null)) => {
                Ok(json!({ "QueueUrl": format!("https://sqs/1/{before}") }))
            }
            (_, answer) => answer,
        };
        self.calls.lock().unwrap().push(call);
        answer
    }
}

fn service(code: &str) -> ApiError {
    ApiError::Service {
        code: code.to_owned(),
        message: "said".to_owned(),
    }
}

fn interruptions(queue: Option<&str>, answer: Answer) -> (Arc<Scripted>, Interruptions) {
    let scripted = Arc::new(Scripted {
        calls: Mutex::default(),
        answer,
    });
    let clients = Arc::new(clients(Arc::clone(&scripted) as _));
    let config = Arc::<AwsConfig>::default();
    let effects = NoticeEffects {
        claims: Arc::default(),
        instances: Arc::new(InstanceCache::new(
            &clients,
            config,
            Arc::default(),
            Arc::default(),
        )),
        unavailable: Arc::default(),
        reservations: Arc::default(),
    };
    let queue = queue.map(str::to_owned);
    let interruptions = Interruptions::new(&clients, queue.as_ref(), effects);
    (scripted, interruptions)
}

#[tokio::test(start_paused = true)]
async fn deletions_share_calls_and_each_has_its_own_answer() {
    let (log, interruptions) = interruptions(Some("q"), |call, before| match call.op.as_str() {
        "DeleteMessageBatch" if before == 2 => Err(service("InternalError")),
        "DeleteMessageBatch" => {
            let entries = call.input["Entries"].as_array().unwrap();
            let is_bad = |entry: &&Value| entry["ReceiptHandle"] == "bad";
            let id = |entry: &Value| entry["Id"].clone();
            let good: Vec<Value> = entries
                .iter()
                .filter(|entry| !is_bad(entry))
                .map(|entry| json!({ "Id": id(entry) }))
                .collect();
            let bad: Vec<Value> = entries
                .iter()
                .filter(is_bad)
                .map(|entry| json!({ "Id": id(entry), "Code": "ReceiptHandleIsInvalid", "SenderFault": true }))
                .collect();
            Ok(json!({ "Successful": good, "Failed": bad }))
        }
        _ => Ok(Value::Null),
    });
    let handles: Vec<String> = (0..12)
        .map(|n| {
            if n == 3 {
                "bad".to_owned()
            } else {
                format!("h-{n}")
            }
        })
        .collect();
    let deletions = handles
        .iter()
        .map(|handle| interruptions.acknowledge(handle));
    let results = futures::future::join_all(deletions).await;
    assert_eq!(log.count("DeleteMessageBatch"), 2);
    let failed: Vec<usize> = (0..12).filter(|n| results[*n].is_err()).collect();
    assert_eq!(failed, [3]);
    let error = results[3].clone().unwrap_err();
    assert_eq!(error.retry, Retry::Never);
    assert!(error.message.contains("ReceiptHandleIsInvalid"), "{error}");
    // A call that fails fails for all of its messages, which come again.
    let deletions = ["a", "b"].map(|handle| interruptions.acknowledge(handle));
    let results = futures::future::join_all(deletions).await;
    assert!(results.iter().all(|result| {
        result
            .as_ref()
            .is_err_and(|error| error.retry == Retry::Again)
    }));
}

#[tokio::test(start_paused = true)]
async fn a_deletion_survives_the_one_that_began_its_call() {
    let (log, interruptions) = interruptions(Some("q"), |call, _| match call.op.as_str() {
        "DeleteMessageBatch" => Ok(json!({ "Successful": [], "Failed": [] })),
        _ => Ok(Value::Null),
    });
    let first = tokio::time::timeout(Duration::from_millis(1), interruptions.acknowledge("a"));
    let second = interruptions.acknowledge("b");
    let (first, second) = futures::future::join(first, second).await;
    assert!(first.is_err(), "cut off");
    assert!(second.is_ok());
    assert_eq!(log.count("DeleteMessageBatch"), 1);
}

fn messages(count: usize) -> Value {
    let body = json!({ "version": "0", "source": "aws.ec2", "detail-type": "EC2 Spot Instance Interruption Warning", "detail": { "instance-id": "i-1" } }).to_string();
    let message = |n| json!({ "MessageId": format!("m-{n}"), "ReceiptHandle": format!("h-{n}"), "Body": body });
    json!({ "Messages": (0..count).map(message).collect::<Vec<_>>() })
}

#[tokio::test(start_paused = true)]
async fn receivers_help_while_answers_are_full() {
    let (log, interruptions) = interruptions(Some("q"), |call, before| match call.op.as_str() {
        "ReceiveMessage" => Ok(messages(if before < 3 { 10 } else { 1 })),
        _ => Ok(Value::Null),
    });
    let sources = interruptions.sources();
    let helpers: Vec<_> = sources
        .iter()
        .filter(|source| source.name() == "queue-helper")
        .collect();
    assert!(helpers.len() > 1);
    let soon = Duration::from_millis(1);
    assert!(
        tokio::time::timeout(soon, helpers[0].next()).await.is_err(),
        "there is nothing to help with"
    );
    assert_eq!(log.count("ReceiveMessage"), 0);
    assert_eq!(sources[0].next().await.unwrap().len(), 10);
    for helper in &helpers[..2] {
        assert_eq!(helper.next().await.unwrap().len(), 10);
    }
    let helped = helpers[2].next().await.unwrap();
    assert_eq!(helped.len(), 1);
    assert_eq!(helped[0].kind, InterruptionKind::SpotInterruption);
    let calls = log.calls.lock().unwrap();
    let waits: BTreeSet<String> = calls
        .iter()
        .filter(|call| call.op == "ReceiveMessage")
        .map(|call| call.input["WaitTimeSeconds"].to_string())
        .collect();
    assert_eq!(waits, ["0".to_owned(), "20".to_owned()].into());
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_comes_back_is_found_again() {
    let (log, interruptions) = interruptions(Some("q"), |call, before| match call.op.as_str() {
        "ReceiveMessage" if before == 0 => Err(service("QueueDoesNotExist")),
        "GetQueueUrl" if before == 1 => Err(service("QueueDoesNotExist")),
        "ReceiveMessage" => Ok(messages(1)),
        _ => Ok(Value::Null),
    });
    let queue = interruptions.sources().remove(0);
    for _ in 0..2 {
        let error = queue.next().await.unwrap_err();
        assert_eq!((error.label, error.retry), ("not_found", Retry::Again));
        assert!(
            error
                .message
                .contains("interruption queue \"q\" does not exist"),
            "{error}"
        );
    }
    assert_eq!(queue.next().await.unwrap().len(), 1);
    let last = log.calls.lock().unwrap().last().unwrap().clone();
    assert_eq!(last.input["QueueUrl"], "https://sqs/1/2");
}

fn source(interruptions: &Interruptions, name: &str) -> Arc<dyn NoticeSource> {
    let mut sources = interruptions.sources().into_iter();
    sources.find(|source| source.name() == name).unwrap()
}

#[tokio::test(start_paused = true)]
async fn polling_works_without_a_queue_and_goes_on_when_it_is_allowed_again() {
    let (log, interruptions) = interruptions(None, |call, before| match call.op.as_str() {
        "DescribeInstanceStatus" if before == 0 => Err(service("UnauthorizedOperation")),
        "DescribeInstanceStatus" => Ok(json!({ "InstanceStatuses": [{
            "InstanceId": "i-1",
            "SystemStatus": { "Status": "impaired", "Details": [{ "Name": "reachability", "Status": "failed", "ImpairedSince": "2020-01-01T00:00:00Z" }] },
            "Events": [{ "Code": "instance-stop", "Description": "[Completed] done" }],
        }] })),
        _ => Ok(Value::Null),
    });
    let names: Vec<&str> = interruptions
        .sources()
        .iter()
        .map(|source| source.name())
        .collect();
    assert_eq!(names, ["instance-status", "capacity-blocks"]);
    assert!(interruptions.acknowledge("x").await.is_ok());
    let statuses = source(&interruptions, "instance-status");
    let begun = tokio::time::Instant::now();
    assert!(statuses.next().await.unwrap().is_empty());
    let fault = statuses.fault().unwrap();
    assert!(
        fault.contains("allow ec2:DescribeInstanceStatus"),
        "{fault}"
    );
    let notices = statuses.next().await.unwrap();
    assert_eq!(begun.elapsed(), Duration::from_secs(600));
    assert_eq!(statuses.fault(), None);
    let found: Vec<_> = notices
        .iter()
        .map(|notice| (notice.kind, notice.id.is_some()))
        .collect();
    assert_eq!(found, [(InterruptionKind::SystemStatus, false)]);
    statuses.next().await.unwrap();
    assert_eq!(begun.elapsed(), Duration::from_secs(720));
    for _ in 0..4 {
        statuses.next().await.unwrap();
    }
    assert_eq!(begun.elapsed(), Duration::from_secs(1200));
    assert_eq!(
        log.count("DescribeInstanceStatus"),
        7,
        "one call says everything, events too"
    );
}

#[tokio::test(start_paused = true)]
async fn an_account_with_more_instances_than_a_page_is_asked_by_filters() {
    let (log, interruptions) = interruptions(None, |call, _| match call.op.as_str() {
        "DescribeInstanceStatus" if call.input["Filters"].is_null() => {
            assert_eq!(
                call.input["MaxResults"].to_string().trim_matches('"'),
                "1000"
            );
            Ok(json!({
                "NextToken": "more",
                "InstanceStatuses": [{ "InstanceId": "i-1", "InstanceStatus": { "Status": "ok" } }],
            }))
        }
        "DescribeInstanceStatus" if call.input["Filters"][0]["Name"] == "event.code" => Ok(json!({
            "InstanceStatuses": [{ "InstanceId": "i-2", "Events": [{ "Code": "instance-stop" }] }],
        })),
        _ => Ok(Value::Null),
    });
    let statuses = source(&interruptions, "instance-status");
    let begun = tokio::time::Instant::now();
    let found = statuses.next().await.unwrap();
    assert_eq!(found[0].kind, InterruptionKind::EventStatus);
    assert_eq!(log.count("DescribeInstanceStatus"), 1 + 3);
    while begun.elapsed() < Duration::from_secs(3_480) {
        statuses.next().await.unwrap();
    }
    assert_eq!(
        log.count("DescribeInstanceStatus"),
        4 + 29 * 2 + 5,
        "events are asked for every ten minutes"
    );
    statuses.next().await.unwrap();
    assert_eq!(
        log.count("DescribeInstanceStatus"),
        67 + 1 + 3,
        "after an hour it may be smaller"
    );
}

#[tokio::test(start_paused = true)]
async fn what_no_filter_would_find_is_no_finding() {
    let (_, interruptions) = interruptions(None, |call, _| match call.op.as_str() {
        "DescribeInstanceStatus" => {
            let failed = json!([{ "Name": "reachability", "Status": "failed", "ImpairedSince": "2020-01-01T00:00:00Z" }]);
            Ok(json!({ "InstanceStatuses": [
                { "InstanceId": "i-1", "InstanceStatus": { "Status": "initializing", "Details": failed } },
                { "InstanceId": "i-2", "InstanceStatus": { "Status": "ok" }, "Events": [{ "Code": "instance-event-window" }] },
                { "InstanceId": "i-3", "InstanceStatus": { "Status": "impaired", "Details": failed } },
            ] }))
        }
        _ => Ok(Value::Null),
    });
    let statuses = source(&interruptions, "instance-status");
    let notices = statuses.next().await.unwrap();
    let found: Vec<_> = notices
        .iter()
        .flat_map(|notice| notice.instances.iter().map(|id| &**id))
        .collect();
    assert_eq!(found, ["i-3"]);
}

#[tokio::test(start_paused = true)]
async fn a_status_that_has_just_begun_to_fail_is_asked_for_when_it_counts() {
    let (_, interruptions) = interruptions(None, |call, _| match call.op.as_str() {
        "DescribeInstanceStatus" => {
            let began = Timestamp::now() - Duration::from_secs(30);
            Ok(json!({ "InstanceStatuses": [{
            "InstanceId": "i-1",
            "InstanceStatus": { "Status": "impaired", "Details": [{ "Name": "reachability", "Status": "failed", "ImpairedSince": began.to_string() }] },
        }] }))
        }
        _ => Ok(Value::Null),
    });
    let statuses = source(&interruptions, "instance-status");
    let begun = tokio::time::Instant::now();
    assert!(statuses.next().await.unwrap().is_empty());
    statuses.next().await.unwrap();
    let waited = begun.elapsed().as_secs();
    assert!((85..=90).contains(&waited), "{waited} s");
}

#[tokio::test(start_paused = true)]
async fn a_block_that_cannot_be_read_does_not_hide_another() {
    let (log, interruptions) = interruptions(None, |call, _| {
        let id = call.input["CapacityReservationIds"][0].as_str().unwrap();
        match id {
            "cr-gone" => Err(service("InvalidCapacityReservationId.NotFound")),
            "cr-denied" => Err(service("UnauthorizedOperation")),
            _ => Ok(json!({ "CapacityReservations": [{
                "CapacityReservationId": id, "AvailableInstanceCount": 3,
                "EndDate": if id == "cr-late" { "2026-01-01T12:00:00Z" } else { "2026-01-01T10:35:00Z" },
            }] })),
        }
    });
    let poll = CapacityBlockPoll::new(
        Arc::new(clients(Arc::clone(&log) as _)),
        Arc::clone(&interruptions.claims),
        Arc::default(),
    );
    let now: Timestamp = "2026-01-01T10:00:00Z".parse().unwrap();
    assert!(poll.poll(now).await.unwrap().is_empty());
    assert_eq!(
        log.count("DescribeCapacityReservations"),
        0,
        "no instance runs in a block"
    );
    let claim = |reservation: &str, of: &str| -> Arc<NodeClaim> {
        let labels = json!({ "karpenter.k8s.aws/capacity-reservation-id": reservation, "karpenter.k8s.aws/capacity-reservation-type": of });
        let claim = json!({
            "metadata": { "name": reservation, "labels": labels },
            "spec": { "nodeClassRef": { "group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "c" } },
            "status": { "providerID": format!("aws:///zone/i-{reservation}") },
        });
        Arc::new(serde_json::from_value(claim).unwrap())
    };
    let block = "capacity-block";
    let claims = [
        ("cr-gone", block),
        ("cr-denied", block),
        ("cr-soon", block),
        ("cr-late", block),
        ("cr-open", "default"),
    ];
    let claims: Vec<_> = claims.into_iter().map(|(id, of)| claim(id, of)).collect();
    interruptions
        .claims
        .note(&claims[0].node_class_key(), &claims);
    let notices = poll.poll(now).await.unwrap();
    assert_eq!(
        log.count("DescribeCapacityReservations"),
        4,
        "ordinary reservations are not asked for"
    );
    let [notice] = notices.as_slice() else {
        panic!("{notices:?}")
    };
    assert_eq!(notice.instances, [Arc::from("i-cr-soon")]);
    assert_eq!(notice.starts.unwrap().to_string(), "2026-01-01T10:05:00Z");
    // Without any that ends, the error shows.
    interruptions
        .claims
        .note(&claims[0].node_class_key(), &claims[..2]);
    assert_eq!(
        poll.poll(now).await.unwrap_err().code,
        "UnauthorizedOperation"
    );
}
