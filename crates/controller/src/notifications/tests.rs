use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use mortise_apis::names::PodKey;
use mortise_engine::decider_id::DeciderId;
use mortise_engine::events::events_of;
use mortise_engine::record::{Record, Verdict, Visibility};
use mortise_planning::reason::Reason;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::batch::WRITTEN;
use super::*;
use crate::config::NotificationFormat;
use crate::serve::exposition;
use crate::testing::shared;

fn event(reason: &'static str, warning: bool, target: ObjectRef, message: &str) -> Event {
    let record = Record {
        at: Timestamp::UNIX_EPOCH,
        decider: DeciderId::Termination,
        subject: target.clone(),
        verdict: Verdict::Blocked,
        reasons: vec![Reason::Eviction {
            pod: PodKey::new("a", "p"),
        }],
        visibility: Visibility::Event,
        related: Vec::new(),
        generation: 1,
    };
    // Only records make events; what they say is set here.
    let mut event = events_of(&record).remove(0);
    event.target = target;
    event.warning = warning;
    event.reason = reason.into();
    message.clone_into(&mut event.message);
    event
}

fn interrupted(message: &str) -> Event {
    let claim = ObjectRef::Claim("default-x7kq2".into());
    event("SpotInterrupted", true, claim, message)
}

fn batch(events: &[Event]) -> Batch {
    let at: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
    let mut notices = events.iter().map(|event| Notice::new(event, at));
    let mut batch = Batch::new(notices.next().unwrap());
    notices.for_each(|notice| batch.add(notice));
    batch
}

fn config(format: NotificationFormat, reasons: &[&str]) -> NotificationConfig {
    NotificationConfig {
        url_file: PathBuf::new(),
        format,
        reasons: reasons.iter().map(|&reason| reason.to_owned()).collect(),
        interval: Duration::ZERO,
        cluster: "shop".to_owned(),
    }
}

#[test]
fn warnings_that_are_not_about_pods_are_notified_or_what_is_named() {
    let pod = ObjectRef::Pod(PodKey::new("a", "p"));
    let pool = ObjectRef::Pool("general".into());
    let table = [
        (
            event("SpotInterrupted", true, pool.clone(), ""),
            true,
            false,
        ),
        (event("Evicted", false, pool, ""), false, true),
        (
            event("FailedScheduling", true, pod.clone(), ""),
            false,
            true,
        ),
        (event("Evicted", false, pod, ""), false, true),
    ];
    let all = config(NotificationFormat::Json, &[]);
    let named = config(NotificationFormat::Json, &["Evicted", "FailedScheduling"]);
    for (event, by_default, by_name) in table {
        assert_eq!(all.is_wanted(&event), by_default, "{event:?}");
        assert_eq!(named.is_wanted(&event), by_name, "{event:?}");
    }
}

#[test]
fn each_format_says_the_same() {
    let pod = event(
        "Evicted",
        false,
        ObjectRef::Pod(PodKey::new("shop", "web_1")),
        "Evicted pod: <!channel> *now* `x`",
    );
    let batch = batch(&[interrupted("SpotInterrupted event was received"), pod]);
    let body = |format: NotificationFormat| format.body(&batch, "shop");
    assert_eq!(
        body(NotificationFormat::Json),
        json!({
            "source": "mortise", "cluster": "shop", "omitted": 0,
            "events": [
                {
                    "time": "2026-01-02T03:04:05Z", "type": "Warning", "reason": "SpotInterrupted",
                    "object": { "kind": "NodeClaim", "namespace": null, "name": "default-x7kq2" },
                    "message": "SpotInterrupted event was received",
                },
                {
                    "time": "2026-01-02T03:04:05Z", "type": "Normal", "reason": "Evicted",
                    "object": { "kind": "Pod", "namespace": "shop", "name": "web_1" },
                    "message": "Evicted pod: <!channel> *now* `x`",
                },
            ],
        })
    );
    assert_eq!(
        body(NotificationFormat::Slack),
        json!({ "text": "*mortise: 2 events in shop*\n⚠️ *SpotInterrupted* `NodeClaim default-x7kq2`: SpotInterrupted event was received\n\
            ℹ️ *Evicted* `Pod shop/web_1`: Evicted pod: &lt;!channel&gt; *now* 'x'" })
    );
    assert_eq!(
        body(NotificationFormat::Discord),
        json!({
            "content": "**mortise: 2 events in shop**\n⚠️ **SpotInterrupted** NodeClaim default-x7kq2: SpotInterrupted event was received\n\
                ℹ️ **Evicted** Pod shop/web\\_1: Evicted pod: \\<!channel\\> \\*now\\* \\`x\\`",
            "allowed_mentions": { "parse": [] },
        })
    );
    let card = body(NotificationFormat::Teams);
    let texts: Vec<&str> = card["attachments"][0]["content"]["body"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|block| block["text"].as_str())
        .collect();
    assert_eq!(
        texts,
        [
            "mortise: 2 events in shop",
            "⚠️ **SpotInterrupted** NodeClaim default-x7kq2: SpotInterrupted event was received",
            "ℹ️ **Evicted** Pod shop/web\\_1: Evicted pod: \\<!channel\\> \\*now\\* \\`x\\`",
        ]
    );
}

#[test]
fn messages_are_bounded() {
    let long = "x".repeat(1_000);
    let all: Vec<Event> = (0..WRITTEN + 5).map(|_| interrupted(&long)).collect();
    let batch = batch(&all);
    let slack = NotificationFormat::Slack.body(&batch, "");
    let text = slack["text"].as_str().unwrap();
    assert!(text.starts_with("*mortise: 25 events*\n"), "{text}");
    assert!(text.ends_with("\n… and 5 more: kubectl get events -A"));
    assert_eq!(text.lines().count(), WRITTEN + 2);
    let discord = NotificationFormat::Discord.body(&batch, "");
    let text = discord["content"].as_str().unwrap();
    assert!(
        text.encode_utf16().count() <= 2_000 && text.ends_with("\n…"),
        "{text}"
    );
}

/// A receiver that gives these answers, then 200, and keeps what it was sent.
struct Receiver {
    url: String,
    bodies: Arc<Mutex<Vec<Value>>>,
}

impl Receiver {
    async fn start(answers: &[(StatusCode, Option<&'static str>)]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let bodies = Arc::<Mutex<Vec<Value>>>::default();
        let answers = Arc::new(Mutex::new(answers.iter().copied().collect::<VecDeque<_>>()));
        let kept = Arc::clone(&bodies);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (kept, answers) = (Arc::clone(&kept), Arc::clone(&answers));
                let answer = service_fn(move |request: Request<Incoming>| {
                    let (kept, answers) = (Arc::clone(&kept), Arc::clone(&answers));
                    async move {
                        assert_eq!(request.uri().path(), "/hook");
                        assert_eq!(request.headers()["content-type"], "application/json");
                        let body = request.collect().await.unwrap().to_bytes();
                        kept.lock()
                            .unwrap()
                            .push(serde_json::from_slice(&body).unwrap());
                        let (status, after) =
                            answers.lock().unwrap().pop_front().unwrap_or_default();
                        let mut response = Response::new(Empty::<Bytes>::new());
                        *response.status_mut() = status;
                        if let Some(after) = after {
                            let after = after.parse().unwrap();
                            response.headers_mut().insert("retry-after", after);
                        }
                        Ok::<_, Infallible>(response)
                    }
                });
                let http = hyper::server::conn::http1::Builder::new();
                tokio::spawn(http.serve_connection(TokioIo::new(stream), answer));
            }
        });
        Self { url, bodies }
    }

    fn bodies(&self) -> Vec<Value> {
        self.bodies.lock().unwrap().clone()
    }
}

struct UrlFile(PathBuf);

impl UrlFile {
    fn new(name: &str, text: &str) -> Self {
        let file = std::env::temp_dir().join(format!("mortise-{name}-{}", std::process::id()));
        std::fs::write(&file, text).unwrap();
        Self(file)
    }
}

impl Drop for UrlFile {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.0));
    }
}

#[tokio::test]
async fn what_happens_together_is_one_message() {
    let receiver = Receiver::start(&[]).await;
    let file = UrlFile::new("together", &format!("{}\n", receiver.url));
    let shared = shared();
    let config = NotificationConfig {
        url_file: file.0.clone(),
        ..config(NotificationFormat::Json, &[])
    };
    let (notifications, task) = Notifications::new(config, Arc::clone(&shared)).unwrap();
    let pool = event("DisruptionBlocked", false, ObjectRef::Pool("p".into()), "x");
    for event in [interrupted("a"), pool, interrupted("b")] {
        notifications.offer(&event, Timestamp::UNIX_EPOCH);
    }
    drop(notifications);
    task.await;
    let bodies = receiver.bodies();
    assert_eq!(bodies.len(), 1, "{bodies:?}");
    let messages = bodies[0]["events"].as_array().unwrap().iter();
    let messages: Vec<&str> = messages
        .filter_map(|each| each["message"].as_str())
        .collect();
    assert_eq!(messages, ["a", "b"]);
    let metrics = exposition::render(&shared, &BTreeMap::new()).unwrap();
    assert!(
        metrics.contains("mortise_notified_events_total{result=\"sent\"} 2"),
        "{metrics}"
    );
}

#[tokio::test]
async fn a_receiver_that_asks_for_it_is_asked_again() {
    let busy = (StatusCode::TOO_MANY_REQUESTS, Some("0"));
    let broken = (StatusCode::BAD_GATEWAY, Some("0"));
    let gone = (StatusCode::NOT_FOUND, Some("0"));
    let table: [(&[_], usize, Result<(), &str>); 4] = [
        (&[busy, broken], 3, Ok(())),
        (&[broken, broken, broken], 4, Ok(())),
        (
            &[broken; 4],
            4,
            Err("the receiver answered 502 Bad Gateway"),
        ),
        (&[gone], 1, Err("the receiver answered 404 Not Found")),
    ];
    for (at, (answers, sent, result)) in table.into_iter().enumerate() {
        let receiver = Receiver::start(answers).await;
        let file = UrlFile::new(&format!("again-{at}"), &receiver.url);
        let mut webhook = Webhook::new(&file.0).unwrap();
        let answered = webhook.send("{}".to_owned()).await;
        assert_eq!(answered, result.map_err(str::to_owned), "{at}");
        assert_eq!(receiver.bodies().len(), sent, "{at}");
    }
}

#[tokio::test]
async fn a_url_that_changes_is_used() {
    let (old, new) = (Receiver::start(&[]).await, Receiver::start(&[]).await);
    let file = UrlFile::new("changes", &old.url);
    let mut webhook = Webhook::new(&file.0).unwrap();
    webhook.send("1".to_owned()).await.unwrap();
    std::fs::write(&file.0, &new.url).unwrap();
    webhook.send("2".to_owned()).await.unwrap();
    assert_eq!(
        (old.bodies(), new.bodies()),
        (vec![json!(1)], vec![json!(2)])
    );
}

#[test]
fn a_file_without_a_url_is_refused_and_never_shown() {
    let table = [
        ("", "it is empty"),
        ("hooks.example.com/secret", "it has no URL"),
        ("ftp://hooks.example.com/secret", "it has no URL"),
        ("https:///secret", "it has no URL"),
        ("https://hooks.example.com/a secret", "it has no URL"),
    ];
    for (at, (text, expected)) in table.into_iter().enumerate() {
        let file = UrlFile::new(&format!("refused-{at}"), text);
        let Err(message) = Webhook::new(&file.0) else {
            panic!("{text} was taken");
        };
        assert!(
            message.starts_with(expected) && !message.contains("secret"),
            "{text}: {message}"
        );
    }
    let Err(message) = Webhook::new(std::path::Path::new("/nowhere")) else {
        panic!("a file that is not there was taken");
    };
    assert!(message.contains("No such file"), "{message}");
}
