use std::collections::VecDeque;
use std::sync::Mutex;

use hyper::body::{Bytes, Frame};
use kube::client::Body;
use mortise_apis::labels::WellKnown;
use mortise_engine::freshness;
use mortise_state::resource_kinds::ObjectKind;

use super::*;
use crate::client::reader::Reader;
use crate::clock::SystemClock;
use crate::serve::exposition;

/// An API server that sends these bodies in order, and then no further response. Records path and query of each request.
#[derive(Clone, Default)]
struct Script(Arc<Mutex<(Answers, Vec<String>)>>);

/// Status codes and bodies, in order.
type Answers = VecDeque<(u16, String)>;

impl Script {
    fn client(answers: &[(u16, &str)]) -> (Self, kube::Client) {
        let script = Self::default();
        script.0.lock().unwrap().0 = answers
            .iter()
            .map(|(code, body)| (*code, (*body).to_owned()))
            .collect();
        let of_service = script.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let mut inner = of_service.0.lock().unwrap();
            inner.1.push(request.uri().to_string());
            let answer = inner.0.pop_front();
            async move {
                match answer {
                    Some((code, body)) => Ok::<_, tower::BoxError>(
                        http::Response::builder()
                            .status(code)
                            .body(Body::from(body.into_bytes()))
                            .unwrap(),
                    ),
                    None => std::future::pending().await,
                }
            }
        });
        (script, kube::Client::new(service, "default"))
    }

    fn requests(&self) -> Vec<String> {
        self.0.lock().unwrap().1.clone()
    }
}

fn watch(client: kube::Client) -> (Watch, mpsc::Receiver<DriverMessage>) {
    let (inputs, received) = mpsc::channel(64);
    let kind = ResourceKind::all(&[])
        .into_iter()
        .find(|kind| kind.index == ObjectKind::Pool)
        .unwrap();
    let shared = ServiceState::new(
        Arc::new(SystemClock),
        WellKnown::core(),
        "test",
        serde_json::Value::Null,
    );
    (
        Watch {
            kind,
            reader: Reader::new(client),
            inputs,
            shared,
            liveness: Arc::default(),
            unlisted: Arc::new(AtomicUsize::new(1)),
        },
        received,
    )
}

fn pool(name: &str, version: u32, rest: &str) -> String {
    format!(
        r#"{{"apiVersion":"karpenter.sh/v1","kind":"NodePool","metadata":{{"name":"{name}","resourceVersion":"{version}"}}{rest}}}"#
    )
}

fn list(version: u32, token: &str, items: &[String]) -> String {
    format!(
        r#"{{"apiVersion":"karpenter.sh/v1","kind":"NodePoolList","metadata":{{"resourceVersion":"{version}","continue":"{token}"}},"items":[{}]}}"#,
        items.join(",")
    )
}

async fn next(received: &mut mpsc::Receiver<DriverMessage>) -> String {
    match received.recv().await.unwrap() {
        DriverMessage::Input(EngineInput::News(ObjectEvent::Applied(
            Object::Pool(pool),
            EventSource::Watch,
        ))) => format!(
            "applied {}@{}",
            pool.name(),
            pool.metadata.resource_version.unwrap()
        ),
        DriverMessage::Input(EngineInput::News(ObjectEvent::Deleted(ObjectKey::Pool(name), _))) => {
            format!("deleted {name}")
        }
        DriverMessage::Input(EngineInput::News(ObjectEvent::Unreadable(ObjectKey::Pool(name)))) => {
            format!("unreadable {name}")
        }
        DriverMessage::Input(EngineInput::Watch {
            kind: ObjectKind::Pool,
            state,
        }) => match state {
            WatchState::Stands => "stands".to_owned(),
            WatchState::Broke => "broke".to_owned(),
            WatchState::Bookmark(version) => format!("all up to {}", version.unwrap()),
        },
        DriverMessage::Input(EngineInput::Synced) => "synced".to_owned(),
        DriverMessage::Input(EngineInput::News(ObjectEvent::Listed { keys, version, .. })) => {
            format!("listed {keys:?}@{}", version.unwrap())
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn lists_pages_watches_and_resumes_from_the_last_version() {
    let bad = pool("bad", 3, r#","spec":{"weight":"heavy"}"#);
    let events = [
        format!(r#"{{"type":"MODIFIED","object":{}}}"#, pool("a", 11, "")),
        format!(r#"{{"type":"MODIFIED","object":{}}}"#, pool("b", 12, r#","spec":7"#)),
        format!(r#"{{"type":"DELETED","object":{}}}"#, pool("bad", 13, r#","spec":{"weight":"heavy"}"#)),
        r#"{"type":"BOOKMARK","object":{"apiVersion":"karpenter.sh/v1","kind":"NodePool","metadata":{"resourceVersion":"20"}}}"#.to_owned(),
    ];
    let gone = r#"{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old resource version"}}"#;
    let (script, client) = Script::client(&[
        (200, &list(10, "next", &[pool("a", 1, "")])),
        (200, &list(10, "", &[pool("b", 2, ""), bad])),
        (200, &events.join("\n")),
        (503, "{}"),
        (200, gone),
        (200, &list(30, "", &[pool("c", 25, "")])),
    ]);
    let (watch, mut received) = watch(client);
    let (metrics, liveness) = (Arc::clone(&watch.shared), Arc::clone(&watch.liveness));
    let end = CancellationToken::new();
    let task = tokio::spawn(watch.run(end.clone()));
    for want in [
        "broke",
        "applied a@1",
        "applied b@2",
        "unreadable bad",
        "listed {Pool(\"a\"), Pool(\"b\"), Pool(\"bad\")}@10",
        "synced",
        "stands",
        "applied a@11",
        "unreadable b",
        "deleted bad",
        "all up to 20",
        "broke",
        "broke",
        "stands",
        "broke",
        "applied c@25",
        "listed {Pool(\"c\")}@30",
    ] {
        assert_eq!(next(&mut received).await, want);
    }
    let requests = script.requests();
    assert!(requests[1].contains("continue=next"), "{requests:?}");
    assert!(
        requests[2].contains("watch=true")
            && requests[2].contains("resourceVersion=10")
            && requests[2].contains("allowWatchBookmarks=true"),
        "{requests:?}"
    );
    assert!(
        requests[3].contains("resourceVersion=20"),
        "goes on from the bookmark: {requests:?}"
    );
    assert!(
        requests[4].contains("resourceVersion=20"),
        "and again after the failure: {requests:?}"
    );
    assert!(
        !requests[5].contains("watch"),
        "too old: lists again: {requests:?}"
    );
    let page = exposition::render(&metrics, &std::collections::BTreeMap::new()).unwrap();
    assert!(
        page.contains("mortise_unparsable_objects_total{kind=\"NodePool\"} 2"),
        "bad in the list, b in the watch"
    );
    assert!(
        liveness.time_since_confirmed().is_some(),
        "the watch stood again"
    );
    end.cancel();
    task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn repeated_relists_back_off() {
    let gone = r#"{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old resource version"}}"#;
    let lists: Vec<String> = (1..=7).map(|version| list(version, "", &[])).collect();
    let answers: Vec<(u16, &str)> = lists
        .iter()
        .flat_map(|list| [(200, list.as_str()), (200, gone)])
        .collect();
    let (_, client) = Script::client(&answers);
    let (watch, mut received) = watch(client);
    let liveness = Arc::clone(&watch.liveness);
    let task = tokio::spawn(watch.run(CancellationToken::new()));
    let mut waits = Vec::new();
    let mut last = Instant::now();
    while waits.len() < lists.len() {
        let word = next(&mut received).await;
        if word == "broke" && waits.len() > 1 {
            // During the pause that follows.
            tokio::task::yield_now().await;
            assert_eq!(
                liveness.time_since_confirmed(),
                None,
                "it shows nothing: {waits:?}"
            );
        }
        if word.starts_with("listed") {
            waits.push(last.elapsed().as_millis());
            last = Instant::now();
        }
    }
    task.abort();
    assert_eq!(waits[..2], [0, 0], "the first time at once: {waits:?}");
    for (wait, full) in waits[2..].iter().zip([500, 1_000, 2_000, 4_000, 8_000]) {
        assert!((full / 2..=full + 1).contains(wait), "{waits:?}");
    }
}

/// An API server whose lists show these versions of one pool in turn, and then the last again. Its first
/// `silent` watches are silent; the others begin with a bookmark and go on in silence.
fn quiet(versions: &'static [u32], silent: usize) -> kube::Client {
    let counts = Arc::new((AtomicUsize::new(0), AtomicUsize::new(0)));
    let service = tower::service_fn(move |request: http::Request<Body>| {
        type Frames = futures::stream::BoxStream<'static, Result<Frame<Bytes>, tower::BoxError>>;
        let (lists, watches) = &*counts;
        let frames: Frames = if request.uri().to_string().contains("watch=true") {
            let mark = r#"{"type":"BOOKMARK","object":{"apiVersion":"karpenter.sh/v1","kind":"NodePool","metadata":{"resourceVersion":"90"}}}"#;
            let is_silent = watches.fetch_add(1, Ordering::Relaxed) < silent;
            let begin = (!is_silent).then(|| Ok(Frame::data(Bytes::from(format!("{mark}\n")))));
            futures::stream::iter(begin)
                .chain(futures::stream::pending())
                .boxed()
        } else {
            let turn = lists
                .fetch_add(1, Ordering::Relaxed)
                .min(versions.len() - 1);
            let text = list(50 + versions[turn], "", &[pool("a", versions[turn], "")]);
            futures::stream::iter([Ok(Frame::data(Bytes::from(text)))]).boxed()
        };
        let body = http_body_util::StreamBody::new(frames);
        async move { Ok::<_, tower::BoxError>(http::Response::new(body)) }
    });
    kube::Client::new(service, "default")
}

#[tokio::test(start_paused = true)]
async fn a_silent_watch_is_relisted_and_is_never_old() {
    let (watch, mut received) = watch(quiet(&[1], usize::MAX));
    let liveness = Arc::clone(&watch.liveness);
    let task = tokio::spawn(watch.run(CancellationToken::new()));
    let begun = Instant::now();
    let mut said = Vec::new();
    for _ in 0..10 {
        said.push(next(&mut received).await);
    }
    let listed = "listed {Pool(\"a\")}@51";
    let again = ["applied a@1", listed, "stands"];
    let first = ["broke", "applied a@1", listed, "synced", "stands"];
    assert_eq!(said[..5], first);
    assert_eq!(said[5..8], again);
    assert_eq!(said[8..], again[..2]);
    let elapsed = begun.elapsed();
    assert_eq!(
        elapsed.as_secs(),
        2 * SILENCE_TIMEOUT.as_secs(),
        "{elapsed:?}"
    );
    assert!(
        liveness.time_since_confirmed().is_some(),
        "nothing was hidden"
    );
    let silent = Duration::from_millis(freshness::SILENT_MS.unsigned_abs());
    assert!(
        SILENCE_TIMEOUT < silent,
        "it would be old before it is listed"
    );
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_missed_objects_is_broken_until_its_next_event() {
    // The first watch is silent while the pool changes, the second as well; the third speaks.
    let (watch, mut received) = watch(quiet(&[1, 60, 120], 2));
    let liveness = Arc::clone(&watch.liveness);
    let task = tokio::spawn(watch.run(CancellationToken::new()));
    for want in [
        "broke",
        "applied a@1",
        "listed {Pool(\"a\")}@51",
        "synced",
        "stands",
        "applied a@60",
        "listed {Pool(\"a\")}@110",
        "broke",
    ] {
        assert_eq!(next(&mut received).await, want);
    }
    tokio::task::yield_now().await;
    assert_eq!(liveness.time_since_confirmed(), None, "it hid a change");
    for want in [
        "applied a@120",
        "listed {Pool(\"a\")}@170",
        "broke",
        "stands",
        "all up to 90",
    ] {
        assert_eq!(next(&mut received).await, want);
    }
    assert!(liveness.time_since_confirmed().is_some(), "it speaks");
    task.abort();
}
