//! Traces reach a collector: the life of a node, and the part that mortise has in requests of an API server that is traced. The bodies are
//! read by the OpenTelemetry collector's own code.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use mortise_tests::harness::{StateDir, otlp_spans, wait_until};
use serde_json::{Value, json};

use crate::admission::asked;
use crate::objects::{deployment, kwok_class, never, pool, types};
use crate::receiver::Receiver;
use crate::scene::{SOON, Scene, Setting};

/// All spans that were sent, each with the attributes of its sender as `resource`.
fn spans(program: &Path, receiver: &Receiver) -> Result<Vec<Value>> {
    let mut lines = String::new();
    for message in receiver.messages().iter() {
        ensure!(message.path == "/v1/traces", "{}", message.path);
        let content_type = &message.content_type;
        ensure!(content_type == "application/x-protobuf", "{content_type}");
        for byte in &message.body {
            lines.push_str(&format!("{byte:02x}"));
        }
        lines.push('\n');
    }
    let mut child = Command::new(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut input = child.stdin.take().context("standard input")?;
    let write = std::thread::spawn(move || input.write_all(lines.as_bytes()));
    let output = child.wait_with_output()?;
    ensure!(
        write.join().is_ok_and(|it| it.is_ok()),
        "lines were not read"
    );
    ensure!(output.status.success(), "ended with {}", output.status);
    let mut all = Vec::new();
    for line in String::from_utf8(output.stdout)?.lines() {
        let request: Value = serde_json::from_str(line).with_context(|| line.to_owned())?;
        let of_resource = &request["resourceSpans"][0];
        let spans = of_resource["scopeSpans"][0]["spans"].as_array();
        for span in spans.context("spans")? {
            let mut span = span.clone();
            span["resource"] = of_resource["resource"]["attributes"].clone();
            all.push(span);
        }
    }
    Ok(all)
}

/// The spans of this trace, roots first, then in order of their beginning.
fn of_trace<'a>(spans: &'a [Value], trace: &str) -> Vec<&'a Value> {
    let of_trace = spans.iter().filter(|span| span["traceId"] == trace);
    let mut of_trace: Vec<&Value> = of_trace.collect();
    let root = |span: &Value| span["parentSpanId"].as_str().unwrap_or_default() != "";
    let start = |span: &Value| span["startTimeUnixNano"].as_str().map(str::to_owned);
    of_trace.sort_by_key(|span| (root(span), start(span)));
    of_trace
}

fn names(spans: &[&Value]) -> Vec<String> {
    let names = spans.iter().map(|span| span["name"].as_str());
    names
        .map(|name| name.unwrap_or_default().to_owned())
        .collect()
}

fn attribute<'a>(attributes: &'a Value, key: &str) -> Option<&'a str> {
    let mut all = attributes.as_array()?.iter();
    all.find(|each| each["key"] == key)?["value"]["stringValue"].as_str()
}

/// Seconds that a span took.
fn seconds(span: &Value) -> Result<f64> {
    let at = |key: &str| -> Result<i64> { Ok(span[key].as_str().context("a time")?.parse()?) };
    let nanoseconds = at("endTimeUnixNano")? - at("startTimeUnixNano")?;
    Ok(std::time::Duration::from_nanos(u64::try_from(nanoseconds)?).as_secs_f64())
}

/// A scene that sends traces, with an API server that is traced.
struct Traced {
    program: PathBuf,
    receiver: Receiver,
    scene: Scene,
    state: StateDir,
}

impl Traced {
    async fn start() -> Result<Self> {
        let program = otlp_spans().await?;
        let (receiver, url) = Receiver::start("").await?;
        // The API server's own spans go nowhere; what it tells webhooks is the same.
        let state = StateDir::create("traces")?;
        let tracing = state.join("tracing.json");
        let config = json!({
            "apiVersion": "apiserver.config.k8s.io/v1beta1", "kind": "TracingConfiguration",
            "endpoint": "127.0.0.1:1", "samplingRatePerMillion": 1_000_000,
        });
        std::fs::write(&tracing, config.to_string())?;
        let scene = Scene::start(Setting {
            flags: vec![
                format!("--otlp-endpoint={url}"),
                "--cluster-name=shop".to_owned(),
            ],
            api_server: vec![format!("--tracing-config-file={}", tracing.display())],
            ..Setting::default()
        })
        .await?;
        asked(&scene).await?;
        Ok(Self {
            program,
            receiver,
            scene,
            state,
        })
    }

    fn spans(&self) -> Result<Vec<Value>> {
        spans(&self.program, &self.receiver)
    }

    /// Waits until a trace has spans of these names; returns its spans.
    async fn complete(&self, trace: &str, wanted: &[&str]) -> Result<Vec<Value>> {
        wait_until(&format!("trace {trace}"), SOON, || async {
            let spans = self.spans()?;
            let of_trace = of_trace(&spans, trace);
            let found = names(&of_trace);
            let is_there = |name: &&str| found.iter().any(|found| found == name);
            ensure!(wanted.iter().all(is_there), "{found:?}");
            Ok(of_trace.into_iter().cloned().collect())
        })
        .await
    }
}

/// The root is first, all others are below it, and its phases take all of its time.
fn check_tree(spans: &[Value], root: &str) -> Result<()> {
    let first = spans.first().context("a root")?;
    ensure!(first["name"] == root, "{first}");
    let mut phases = 0.0;
    for span in spans.iter().skip(1) {
        ensure!(span["parentSpanId"] == first["spanId"], "{span}");
        let name = span["name"].as_str().unwrap_or_default();
        if !name.ends_with("(call)") {
            phases += seconds(span)?;
        }
    }
    ensure!((phases - seconds(first)?).abs() < 0.001, "{spans:?}");
    Ok(())
}

/// The API server's request is the parent of ours, and whoever does not trace a request is not traced.
async fn check_requests(traced: &Traced) -> Result<()> {
    traced.scene.mortise.debug("snapshot").await?;
    let spans = traced.spans()?;
    let called = |name: &str| spans.iter().find(|span| span["name"] == name);
    let asked = called("POST /admission/v1/validate");
    let asked = asked.with_context(|| format!("a request of the API server: {spans:?}"))?;
    let parent = asked["parentSpanId"].as_str().unwrap_or_default();
    ensure!(asked["kind"] == 2 && parent.len() == 16, "{asked}");
    let status = attribute(&asked["attributes"], "http.response.status_code");
    ensure!(status == Some("200"), "{asked}");
    ensure!(called("GET /debug/snapshot").is_none(), "{spans:?}");
    Ok(())
}

#[tokio::test]
async fn the_life_of_a_node_and_requests_of_a_traced_api_server() -> Result<()> {
    let mut traced = Traced::start().await?;
    let scene = &traced.scene;
    let pending = deployment("web", 1, ("1", "256Mi"), json!({}));
    let small = types(&["c-2x-amd64-linux"]);
    scene
        .apply(&[kwok_class(), pool("general", &[small], never()), pending])
        .await?;
    scene.running("web", 1).await?;
    let claims = scene.claims().await?;
    let (name, claim) = claims.first_key_value().context("a NodeClaim")?;
    let trace = claim.uid().context("a UID")?.to_string().replace('-', "");
    let phases = [
        "node launch",
        "launch",
        "launch instance (call)",
        "register",
        "initialize",
    ];
    let launch = traced.complete(&trace, &phases).await?;
    ensure!(launch.len() == phases.len(), "{launch:?}");
    check_tree(&launch, "node launch")?;
    let is_error = |span: &Value| !span["status"]["code"].is_null();
    ensure!(!launch.iter().any(is_error), "{launch:?}");
    let root = launch.first().context("a root")?;
    for (key, value) in [
        ("mortise.nodeclaim", name.as_str()),
        ("mortise.nodepool", "general"),
        ("host.type", "c-2x-amd64-linux"),
    ] {
        let found = attribute(&root["attributes"], key);
        ensure!(found == Some(value), "{key}: {root}");
    }
    for (key, value) in [("service.name", "mortise"), ("k8s.cluster.name", "shop")] {
        let found = attribute(&root["resource"], key);
        ensure!(found == Some(value), "{key}: {root}");
    }
    check_requests(&traced).await?;

    for object in [["deployment", "web"], ["nodeclaim", name]] {
        let args = ["delete", object[0], object[1]];
        scene.plane.kubectl(&args).await?.ok()?;
    }
    let ends = wait_until("the termination", SOON, || async {
        let spans = traced.spans()?;
        let ends = spans.iter().find(|span| span["name"] == "node termination");
        Ok(ends.context("no trace of the termination")?.clone())
    })
    .await?;
    ensure!(ends["links"][0]["traceId"] == trace.as_str(), "{ends}");
    let other = ends["traceId"].as_str().context("an ID")?;
    // Without pods the drain ends before it is written that it began.
    let phases = ["terminate instance", "terminate instance (call)"];
    let termination = traced.complete(other, &phases).await?;
    check_tree(&termination, "node termination")?;
    let sent = ["result=\"sent\""];
    let sent = scene.mortise.metric("mortise_trace_spans_total", &sent);
    ensure!(sent.await? >= 8.0, "spans are counted");
    traced.scene.end().await;
    traced.state.discard();
    Ok(())
}

/// A collector that does not answer keeps nothing from being done.
#[tokio::test]
async fn a_collector_that_is_not_there_is_said_and_stops_nothing() -> Result<()> {
    let scene = Scene::with(&["--otlp-endpoint=http://127.0.0.1:1"]).await?;
    let pending = deployment("web", 1, ("1", "256Mi"), json!({}));
    let small = types(&["c-2x-amd64-linux"]);
    scene
        .apply(&[kwok_class(), pool("general", &[small], never()), pending])
        .await?;
    scene.running("web", 1).await?;
    wait_until("a line in the log", SOON, || async {
        let log = std::fs::read_to_string(scene.mortise.log_path())?;
        ensure!(log.contains("failed to send traces"), "{log}");
        ensure!(log.contains("http://127.0.0.1:1/v1/traces"), "{log}");
        let failed = scene
            .mortise
            .metric("mortise_trace_spans_total", &["result=\"failed\""])
            .await?;
        ensure!(failed >= 1.0, "{failed} spans");
        Ok(())
    })
    .await?;
    scene.end().await;
    Ok(())
}
