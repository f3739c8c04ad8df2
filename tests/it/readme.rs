//! What the README says is done as it stands there, and kube-scheduler's calls arrive; with a configuration that does not fit
//! they do not, and everything that should say so says so.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use mortise_tests::harness::{
    Component, ControlPlane, Http, Launch, Port, Process, StateDir, mortise_binary, wait_until,
};
use serde_json::{Value, json};

use crate::objects::{kwok_class, never, pod, small_pool};
use crate::scene::{SOON, on_node, turn};

const README: &str = include_str!("../../README.md");
/// The port in the README; a story takes one that is free.
const README_PORT: &str = "8443";

/// The commands of the section about a real cluster, without their comments.
fn commands() -> Result<Vec<String>> {
    let (_, section) = README
        .split_once("## On a real cluster\n")
        .context("the section")?;
    let (_, block) = section.split_once("```sh\n").context("its commands")?;
    let (block, _) = block.split_once("```").context("their end")?;
    let command = |line: &str| {
        let line = line.split_once("  #").map_or(line, |(line, _)| line);
        line.trim().to_owned()
    };
    Ok(block.lines().map(command).collect())
}

/// A person's terminal: the directory, and where the programs are.
struct Terminal {
    dir: StateDir,
    path: String,
    kubeconfig: PathBuf,
    https: Port,
    metrics: Port,
    health: Port,
}

impl Terminal {
    async fn open(plane: &ControlPlane) -> Result<Self> {
        let dir = StateDir::create("readme")?;
        let cluster = dir.subdirectory(".cache")?.join("cluster");
        std::os::unix::fs::symlink(plane.dir(), cluster)?;
        let programs = [mortise_binary().await?, plane.kubectl_path()];
        let mut folders: Vec<String> = programs
            .iter()
            .filter_map(|program| Some(program.parent()?.display().to_string()))
            .collect();
        folders.push(std::env::var("PATH")?);
        Ok(Self {
            path: folders.join(":"),
            dir,
            kubeconfig: plane.kubeconfig_path(),
            https: Port::claim()?,
            metrics: Port::claim()?,
            health: Port::claim()?,
        })
    }

    fn variables(&self) -> Vec<(String, String)> {
        [
            ("PATH", self.path.clone()),
            ("KUBECONFIG", self.kubeconfig.display().to_string()),
            ("MORTISE_HTTPS_PORT", self.https.number().to_string()),
            ("METRICS_PORT", self.metrics.number().to_string()),
            ("HEALTH_PROBE_PORT", self.health.number().to_string()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .to_vec()
    }

    /// The line with the port of this story.
    fn line(&self, command: &str) -> String {
        command.replace(README_PORT, &self.https.number().to_string())
    }

    /// A line that stays in its terminal.
    async fn stays(&self, command: &str) -> Result<Process> {
        let launch = Launch {
            name: "mortise".to_owned(),
            program: "bash".into(),
            args: vec!["-c".to_owned(), format!("exec {}", self.line(command))],
            env: self.variables(),
            log: self.dir.join("mortise.log"),
            dir: Some(self.dir.path().to_owned()),
        };
        Process::start(&launch).await
    }

    /// A line that ends by itself: what it printed, and its exit code.
    async fn run(&self, command: &str) -> Result<(String, Option<i32>)> {
        let output = tokio::process::Command::new("bash")
            .args(["-o", "pipefail", "-c", &self.line(command)])
            .envs(self.variables())
            .current_dir(self.dir.path())
            .stdin(std::process::Stdio::null())
            .kill_on_drop(true)
            .output()
            .await?;
        let said =
            [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        Ok((said.concat(), output.status.code()))
    }

    fn http(&self) -> Result<Http> {
        let ca = self.dir.join(".cache/certs/ca.crt");
        Http::new(&std::fs::read_to_string(ca)?, None)
    }

    async fn extender(&self) -> Result<Value> {
        let url = format!("https://{}/debug/extender", self.https.address());
        self.http()?.get(&url).await?.json()
    }

    async fn metrics(&self) -> Result<String> {
        let url = format!("http://{}/metrics", self.metrics.address());
        Http::new("", None)?.get(&url).await?.ok()
    }
}

/// The value of a series; 0 when it is not there.
fn value(page: &str, series: &str) -> f64 {
    page.lines()
        .find_map(|line| line.strip_prefix(series)?.trim().parse().ok())
        .unwrap_or(0.0)
}

async fn runs_on(plane: &ControlPlane, name: &str) -> Result<()> {
    let pods: Api<Pod> = Api::default_namespaced(plane.client());
    wait_until(&format!("pod {name} on a node"), SOON, || async {
        ensure!(on_node(&pods.get(name).await?).is_some(), "it waits");
        Ok(())
    })
    .await
}

async fn apply(plane: &ControlPlane, objects: &[Value]) -> Result<()> {
    let documents: Vec<String> = objects.iter().map(Value::to_string).collect();
    plane.apply_yaml(&documents.join("\n---\n")).await?;
    Ok(())
}

#[tokio::test]
async fn the_readme_to_the_letter_brings_calls() -> Result<()> {
    let _turn = turn().await?;
    let builder = ControlPlane::builder().full().without(Component::Scheduler);
    let mut plane = Box::pin(builder.start()).await?;
    let mut terminal = Terminal::open(&plane).await?;
    let mut serving = None;
    for command in commands()? {
        if command.starts_with("just cluster") {
            continue;
        }
        if command.starts_with("mortise serve") {
            let process = terminal.stays(&command).await?;
            let url = format!("http://{}/readyz", terminal.health.address());
            let http = Http::new("", None)?;
            let ready = wait_until("mortise to be ready", SOON, || async {
                http.get(&url).await?.ok()?;
                Ok(())
            });
            process.while_alive("not ready yet", ready).await?;
            serving = Some(process);
            continue;
        }
        let (said, code) = terminal.run(&command).await?;
        ensure!(code == Some(0), "{command}: {code:?}: {said}");
    }
    let mut serving = serving.context("the README serves")?;
    plane
        .start_scheduler_with(&terminal.dir.join("scheduler.yaml"))
        .await?;
    let mut class = kwok_class();
    class["spec"] = json!({});
    apply(&plane, &[class, small_pool("default", never())]).await?;
    let small = |name: &str| pod(name, "web", ("10m", "16Mi"), json!({}));
    apply(&plane, &[small("first")]).await?;
    runs_on(&plane, "first").await?;
    // The first pod's node was made for it; where there is a node, there is a call.
    apply(&plane, &[small("second")]).await?;
    runs_on(&plane, "second").await?;
    let page = terminal.metrics().await?;
    ensure!(value(&page, "mortise_webhook_calls_total{call=\"filter\"}") > 0.0);
    ensure!(value(&page, "mortise_extender_unasked_binds") == 0.0);
    let told = terminal.extender().await?;
    let asked = &told["asked_by"]["schedulers"];
    ensure!(
        asked
            .as_array()
            .into_iter()
            .flatten()
            .any(|each| each["scheduler"] == "default-scheduler"),
        "{told}"
    );

    silent(&mut plane, &terminal).await?;
    serving.kill().await;
    terminal.dir.discard();
    plane.stop().await;
    Ok(())
}

/// The configuration expects a name that the certificate does not have.
async fn silent(plane: &mut ControlPlane, terminal: &Terminal) -> Result<()> {
    const WRONG: &str = "mortise.kube-system.svc";
    let lines = commands()?;
    let written = lines
        .iter()
        .find(|line| line.starts_with("mortise manifests scheduler"))
        .context("the line that writes the configuration")?;
    let wrong = written
        .replace("> scheduler.yaml", "> wrong.yaml")
        .replace("--url", &format!("--server-name {WRONG} --url"));
    let (said, code) = terminal.run(&wrong).await?;
    ensure!(code == Some(0), "{said}");
    let (said, code) = terminal.run("mortise check scheduler wrong.yaml").await?;
    ensure!(
        code == Some(0),
        "nothing in the file is wrong by itself: {said}"
    );
    let (said, code) = terminal
        .run("mortise check scheduler wrong.yaml --live")
        .await?;
    ensure!(
        code == Some(8) && said.contains("tlsConfig.serverName") && said.contains(WRONG),
        "{code:?}: {said}"
    );
    plane
        .start_scheduler_with(&terminal.dir.join("wrong.yaml"))
        .await?;
    let begun = std::time::Instant::now();
    let pods: Api<Pod> = Api::default_namespaced(plane.client());
    // A pod every five seconds, until the report that no scheduler calls the extender.
    wait_until("the silence to be told", Duration::from_mins(4), || async {
        let name = format!("late-{}", begun.elapsed().as_secs() / 5);
        apply(plane, &[pod(&name, "late", ("10m", "16Mi"), json!({}))]).await?;
        let page = terminal.metrics().await?;
        let unasked = value(&page, "mortise_extender_unasked_binds");
        let bound = pods.list(&ListParams::default().labels("app=late")).await?;
        let bound = bound
            .items
            .iter()
            .filter(|pod| on_node(pod).is_some())
            .count();
        ensure!(unasked > 0.0, "{unasked} of {bound} bound pods");
        Ok(())
    })
    .await?;
    let page = terminal.metrics().await?;
    let series = "mortise_tls_handshakes_failed_total{cause=\"name_not_in_certificate\"}";
    ensure!(value(&page, series) > 0.0, "{page}");
    let told = terminal.extender().await?;
    let failed = told["failed_handshakes"].as_array().into_iter().flatten();
    ensure!(
        failed.into_iter().any(|each| each["asked_for"] == WRONG),
        "{told}"
    );
    wait_until("lines in the log", SOON, || async {
        let log = read(&terminal.dir.join("mortise.log"))?;
        let about = |part: &str| log.lines().filter(|line| line.contains(part)).count();
        let handshakes = about("TLS handshakes failed");
        // Once a minute, and not once a pod.
        let most = usize::try_from(begun.elapsed().as_secs() / 60)? + 2;
        ensure!(
            (1..=most).contains(&handshakes),
            "{handshakes} lines, at most {most}"
        );
        ensure!(about("pods are bound without extender calls") == 1, "{log}");
        Ok(())
    })
    .await
}

fn read(path: &Path) -> Result<String> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(text),
        Err(error) => bail!("{}: {error}", path.display()),
    }
}
