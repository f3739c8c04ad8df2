//! Who may call what: the extender needs a certificate, debug paths a token whose owner has the right.

use anyhow::{Result, ensure};
use mortise_tests::harness::{Authority, Http, Reply, wait_until};
use serde_json::{Value, json};

use crate::objects::reader_and_stranger;
use crate::scene::{SOON, Scene, Setting};

#[tokio::test]
async fn callers_must_say_who_they_are() -> Result<()> {
    let two_paths =
        json!({ "nonResourceURLs": ["/debug/config", "/debug/pending"], "verbs": ["get"] });
    let setting = Setting {
        insecure_debug: false,
        manifests: vec![reader_and_stranger(two_paths)],
        ..Setting::default()
    };
    let scene = Scene::start(setting).await?;
    let body = json!({ "Pod": { "metadata": { "name": "x", "namespace": "default" }, "spec": { "containers": [] } }, "NodeNames": ["n1"] });
    let anonymous = scene.mortise.http()?;
    extender(&scene, &anonymous, &body).await?;

    let get = async |http: &Http, path: &str| -> Result<Reply> {
        http.get(&scene.mortise.url(path)).await
    };
    let refused = get(&anonymous, "debug/config").await?;
    ensure!(
        refused.status == 401 && refused.body.contains("bearer token"),
        "{refused:?}"
    );
    let wrong = anonymous
        .clone()
        .with_header("Authorization", "Bearer not.a.token");
    let refused = get(&wrong, "debug/config").await?;
    ensure!(refused.status == 401, "{refused:?}");

    let reader = scene.caller("reader").await?;
    // The authorizer reads roles from a watch: the first answer may be older than the role, and is believed for a while.
    wait_until("the reader's right to be known", SOON, || async {
        let reply = get(&reader, "debug/pending").await?;
        ensure!(reply.status == 200, "{reply:?}");
        Ok(())
    })
    .await?;
    let config: Value = get(&reader, "debug/config").await?.json()?;
    ensure!(config.is_object(), "{config}");
    let refused = get(&reader, "debug/snapshot").await?;
    ensure!(
        refused.status == 403 && refused.body.contains("/debug/snapshot"),
        "{refused:?}"
    );

    let stranger = scene.caller("stranger").await?;
    let refused = get(&stranger, "debug/config").await?;
    ensure!(
        refused.status == 403 && refused.body.contains("nonResourceURLs"),
        "{refused:?}"
    );
    // Nothing else is open by mistake, neither with nor without a known path; but the page's empty shell is, which asks for
    // a token itself.
    for path in ["api/v1/state", "api/v1/stream", "debug/explain?pod=a/b"] {
        let reply = get(&anonymous, path).await?;
        ensure!(reply.status == 401, "{path}: {}", reply.status);
    }
    // What is not there is not there for anybody, and the API server is not asked who wants to know.
    let asked = scene
        .mortise
        .metric("mortise_token_reviews_total", &[])
        .await?;
    for path in ["debug/nothing", "metrics", "anything?at=all"] {
        for who in [&anonymous, &wrong, &stranger] {
            let reply = get(who, path).await?;
            ensure!(reply.status == 404, "{path}: {}", reply.status);
        }
    }
    let now = scene
        .mortise
        .metric("mortise_token_reviews_total", &[])
        .await?;
    ensure!(now == asked, "{now} reviews, {asked} before");
    // The scheduler's certificate opens debug paths too.
    let config: Value = get(&scene.mortise.scheduler_http()?, "debug/config")
        .await?
        .json()?;
    ensure!(config.is_object(), "{config}");

    // Probes and metrics are for everybody, and hold no secrets.
    scene.mortise.wait_ready().await?;
    let page = scene.mortise.metrics().await?;
    ensure!(page.contains("# EOF"), "{page}");
    scene.end().await;
    Ok(())
}

/// Criterion 15: the extender's paths open for its own clients only; others are refused before the body is read.
async fn extender(scene: &Scene, anonymous: &Http, body: &Value) -> Result<()> {
    let ca = std::fs::read_to_string(scene.plane.dir().join("mortise-certs/ca.crt"))?;
    let foreign = Authority::new("someone-else")?.client("mortise-extender-client", &[])?;
    let foreign = Http::new(&ca, Some(&foreign))?;
    for path in ["filter", "prioritize", "preempt"] {
        let url = scene.mortise.url(&format!("extender/v1/{path}"));
        let refused = anonymous.post(&url, body).await?;
        ensure!(
            refused.status == 403 && refused.body.contains("client certificate"),
            "{path}: {refused:?}"
        );
        // A certificate of another authority is as good as none: the handshake fails, or the answer is the same.
        let answer = foreign.post(&url, body).await;
        ensure!(
            answer.as_ref().is_ok_and(|reply| reply.status == 403) || answer.is_err(),
            "{path}: {answer:?}"
        );
    }
    let known = scene.mortise.scheduler_http()?;
    let passed = known
        .post(&scene.mortise.url("extender/v1/filter"), body)
        .await?
        .json()?;
    ensure!(passed["NodeNames"] == json!(["n1"]), "{passed}");
    Ok(())
}
