//! Warnings reach a webhook: a receiver of this test, with the program as it is started.

use anyhow::{Result, ensure};
use mortise_tests::harness::{StateDir, wait_until};
use serde_json::{Value, json};

use crate::objects::{deployment, kwok_class, never, pool, types};
use crate::receiver::Receiver;
use crate::scene::{SOON, Scene};

/// Texts of messages so far.
fn texts(receiver: &Receiver) -> Result<Vec<String>> {
    let messages = receiver.messages();
    let texts = messages.iter().map(|message| {
        let body: Value = serde_json::from_slice(&message.body)?;
        Ok(body["text"].as_str().unwrap_or_default().to_owned())
    });
    texts.collect()
}

async fn is_told(receiver: &Receiver, what: &str) -> Result<()> {
    wait_until(&format!("a message of {what}"), SOON, || async {
        let texts = texts(receiver)?;
        ensure!(texts.iter().any(|text| text.contains(what)), "{texts:?}");
        Ok(())
    })
    .await
}

/// A NodePool for which there is no instance type.
fn impossible(name: &str) -> Value {
    pool(name, &[types(&["no-such-type"])], never())
}

#[tokio::test]
async fn warnings_reach_a_webhook_and_its_url_stays_a_secret() -> Result<()> {
    let mut state = StateDir::create("notifications")?;
    let (first, url) = Receiver::start("a-secret").await?;
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
    is_told(&first, "⚠️ *NoCompatibleInstanceTypes* `NodePool first`: ").await?;
    let told = texts(&first)?;
    ensure!(
        told.iter()
            .all(|text| text.starts_with("*mortise: 1 event in shop*\n")),
        "{told:?}"
    );

    // The Secret changes: the next message goes to the new URL.
    let (second, moved) = Receiver::start("a-secret").await?;
    std::fs::write(&file, &moved)?;
    let before = first.messages().len();
    scene.apply(&[impossible("second")]).await?;
    is_told(&second, "`NodePool second`").await?;
    ensure!(first.messages().len() == before, "{:?}", texts(&first)?);

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
