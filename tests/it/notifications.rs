//! Warnings reach a webhook: a receiver of this test, with the program as it is started.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Result, ensure};
use http::{Request, Response};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use mortise_tests::harness::{StateDir, wait_until};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::objects::{deployment, kwok_class, never, pool, types};
use crate::scene::{SOON, Scene};

/// Takes messages, and keeps their bodies.
#[derive(Clone, Default)]
struct Receiver(Arc<Mutex<Vec<Value>>>);

impl Receiver {
    /// Begins to listen; returns the URL too.
    async fn start() -> Result<(Self, String)> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}/a-secret", listener.local_addr()?);
        let receiver = Self::default();
        let kept = receiver.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let kept = kept.clone();
                let answer = service_fn(move |request: Request<Incoming>| {
                    let kept = kept.clone();
                    async move {
                        let body = request.collect().await.map(|body| body.to_bytes());
                        let body = serde_json::from_slice(&body.unwrap_or_default());
                        kept.bodies().push(body.unwrap_or_default());
                        Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
                    }
                });
                let http = hyper::server::conn::http1::Builder::new();
                tokio::spawn(http.serve_connection(TokioIo::new(stream), answer));
            }
        });
        Ok((receiver, url))
    }

    fn bodies(&self) -> MutexGuard<'_, Vec<Value>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Texts of messages so far.
    fn texts(&self) -> Vec<String> {
        let bodies = self.bodies();
        let texts = bodies
            .iter()
            .map(|body| body["text"].as_str().unwrap_or_default());
        texts.map(str::to_owned).collect()
    }

    async fn is_told(&self, what: &str) -> Result<()> {
        wait_until(&format!("a message of {what}"), SOON, || async {
            let texts = self.texts();
            ensure!(texts.iter().any(|text| text.contains(what)), "{texts:?}");
            Ok(())
        })
        .await
    }
}

/// A NodePool for which there is no instance type.
fn impossible(name: &str) -> Value {
    pool(name, &[types(&["no-such-type"])], never())
}

#[tokio::test]
async fn warnings_reach_a_webhook_and_its_url_stays_a_secret() -> Result<()> {
    let mut state = StateDir::create("notifications")?;
    let (first, url) = Receiver::start().await?;
    let file = state.join("url");
    std::fs::write(&file, &url)?;
    let scene = Scene::with(&[
        &format!("--notification-url-file={}", file.display()),
        "--notification-format=slack",
        "--notification-interval=1s",
        "--cluster-name=shop",
    ])
    .await?;
    let pending = deployment("web", 1, ("1", "256Mi"), json!({}));
    scene
        .apply(&[kwok_class(), impossible("first"), pending])
        .await?;
    first
        .is_told("⚠️ *NoCompatibleInstanceTypes* `NodePool first`: ")
        .await?;
    let texts = first.texts();
    ensure!(
        texts
            .iter()
            .all(|text| text.starts_with("*mortise: 1 event in shop*\n")),
        "{texts:?}"
    );

    // The Secret changes: the next message goes to the new URL.
    let (second, moved) = Receiver::start().await?;
    std::fs::write(&file, &moved)?;
    let before = first.texts().len();
    scene.apply(&[impossible("second")]).await?;
    second.is_told("`NodePool second`").await?;
    ensure!(first.texts().len() == before, "{:?}", first.texts());

    let config = scene.mortise.http()?;
    let config = config.get(&scene.mortise.url("debug/config")).await?.ok()?;
    let log = std::fs::read_to_string(scene.mortise.log_path())?;
    ensure!(log.contains("notifications are sent to a webhook"), "{log}");
    for text in [&config, &log] {
        ensure!(!text.contains("a-secret"), "{text}");
    }
    let metrics = scene.mortise.metrics().await?;
    ensure!(
        metrics.contains("mortise_notified_events_total{result=\"sent\"}"),
        "{metrics}"
    );
    scene.end().await;
    state.discard();
    Ok(())
}
