//! Criterion 6: kube-scheduler's own Go types write what we read, and read what we write.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use mortise_apis::labels::WellKnown;
use mortise_state::index::Index;
use mortise_state::snapshot::Snapshot;
use mortise_tests::harness::extender_types;
use mortise_webhooks::ClusterView;
use mortise_webhooks::admission::AdmissionSettings;
use mortise_webhooks::router::{WebhookState, respond};
use serde_json::Value;

/// A cluster in which there is nothing.
struct Empty(Arc<Snapshot>);

impl ClusterView for Empty {
    fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.0)
    }

    fn age_ms(&self) -> i64 {
        0
    }

    fn now(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH
    }
}

fn app() -> WebhookState {
    let mut index = Index::new(WellKnown::core(), true, Timestamp::UNIX_EPOCH);
    index.set_synced();
    WebhookState {
        view: Arc::new(Empty(Arc::new(index.freeze(Timestamp::UNIX_EPOCH)))),
        counters: Arc::default(),
        extender: Arc::default(),
        rules: Arc::new(AdmissionSettings::default()),
        conversion: false,
    }
}

/// Runs the program with these lines of input.
fn run(program: &Path, argument: &str, input: &str) -> Result<Vec<String>> {
    let mut child = Command::new(program)
        .arg(argument)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    child
        .stdin
        .take()
        .context("standard input")?
        .write_all(input.as_bytes())?;
    let output = child.wait_with_output()?;
    ensure!(
        output.status.success(),
        "{argument} ended with {}",
        output.status
    );
    let text = String::from_utf8(output.stdout)?;
    Ok(text.lines().map(str::to_owned).collect())
}

#[tokio::test]
async fn criterion_06_the_schedulers_own_types_understand_us() -> Result<()> {
    let program = extender_types().await?;
    let app = app();
    let mut answers = Vec::new();
    for line in run(&program, "requests", "")? {
        let (verb, body) = line.split_once('\t').context("a verb and a body")?;
        let path = format!("/extender/v1/{verb}");
        let answer = respond(&app, &path, body.as_bytes()).context("a path")?;
        ensure!(answer.status() == 200, "{verb} {body}: {}", answer.status());
        let bytes = answer.into_body().collect().await?.to_bytes();
        answers.push((
            verb.to_owned(),
            String::from_utf8(bytes.to_vec())?,
            body.to_owned(),
        ));
    }
    ensure!(answers.len() == 13, "{} requests", answers.len());
    let input: String = answers
        .iter()
        .map(|(verb, answer, _)| format!("{verb}\t{answer}\n"))
        .collect();
    let understood = run(&program, "read", &input)?;
    ensure!(
        understood.len() == answers.len(),
        "{} answers",
        understood.len()
    );
    for ((verb, answer, body), understood) in answers.iter().zip(understood) {
        let theirs: Value = serde_json::from_str(&understood)
            .with_context(|| format!("{verb} of {body}: {understood}"))?;
        let ours: Value = serde_json::from_str(answer)?;
        // An empty cluster denies nothing: what was offered comes back, in the half that it came in.
        let asked: Value = serde_json::from_str(body)?;
        match verb.as_str() {
            "filter" => {
                ensure!(theirs["NodeNames"] == asked["NodeNames"], "{understood}");
                // A list of nothing may be null in Go.
                let items = |value: &Value| value["Nodes"]["items"].as_array().cloned();
                let (back, sent) = (items(&theirs), items(&asked));
                ensure!(
                    back.unwrap_or_default() == sent.unwrap_or_default(),
                    "{understood} of {body}"
                );
                ensure!(
                    theirs["Nodes"].is_null() == asked["Nodes"].is_null(),
                    "{understood} of {body}"
                );
                ensure!(theirs["Error"] == "", "{understood}");
            }
            "prioritize" => ensure!(theirs == ours, "{understood} of {answer}"),
            _ => {
                let names = |value: &Value| -> Vec<String> {
                    let all = value.as_object().into_iter().flatten();
                    all.map(|(name, _)| name.clone()).collect()
                };
                let whole = names(&asked["NodeNameToVictims"]);
                let by_uid = names(&asked["NodeNameToMetaVictims"]);
                let left = names(&theirs["NodeNameToMetaVictims"]);
                ensure!(left == [whole, by_uid].concat(), "{understood} of {body}");
                let one = theirs.pointer("/NodeNameToMetaVictims/n1/Pods/0/UID");
                ensure!(
                    left.is_empty() || one.is_some_and(|uid| uid == "v"),
                    "{understood}"
                );
            }
        }
    }
    Ok(())
}
