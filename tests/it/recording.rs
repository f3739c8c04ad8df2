//! `mortise serve --record` on a cluster with churn and a kill, and `mortise replay` of what it left.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, DeleteParams};
use mortise_tests::harness::wait_until;
use serde_json::{Value, json};

use crate::command::{self, Said};
use crate::crash_matrix::forget_lease;
use crate::objects::{LINUX, deployment, kwok_class, pool};
use crate::scene::{SOON, Scene};

pub(crate) const EQUAL: i32 = 0;
const UNREADABLE: i32 = 1;
const WRONG_USAGE: i32 = 2;
const DIFFERS: i32 = 9;

async fn replayed(path: &Path, args: &[&str]) -> Result<Said> {
    let path = path.display().to_string();
    command::run("replay", &[&[path.as_str()], args].concat(), None).await
}

/// The recordings of a report, with the code that is expected.
pub(crate) async fn report(path: &Path, args: &[&str], code: i32) -> Result<Vec<Value>> {
    let said = replayed(path, &[args, &["-o", "json"]].concat()).await?;
    ensure!(said.code == code, "{said:?}");
    let report: Value = serde_json::from_str(&said.stdout)?;
    let all = report["recordings"].as_array().context("recordings")?;
    Ok(all.clone())
}

pub(crate) fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

/// Recordings by name, with their length.
fn files(directory: &Path) -> Result<BTreeMap<PathBuf, u64>> {
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        files.insert(entry.path(), entry.metadata()?.len());
    }
    Ok(files)
}

/// Waits until what happened so far is in the file: it is written every second.
pub(crate) async fn written(directory: &Path) -> Result<()> {
    let before = files(directory)?;
    wait_until("another second in the recording", SOON, || async {
        let now = files(directory)?;
        ensure!(now != before, "{now:?}");
        Ok(())
    })
    .await
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "one story, told in order")]
async fn a_killed_and_a_stopped_process_replay_bit_for_bit() -> Result<()> {
    let directory = std::env::temp_dir().join(format!("mortise-record-{}", std::process::id()));
    if directory.exists() {
        std::fs::remove_dir_all(&directory)?;
    }
    let flag = format!("--record={}", directory.display());
    let mut scene = Scene::with(&[&flag]).await?;
    let size = ("700m", "512Mi");
    let consolidates = json!({ "disruption": { "consolidateAfter": "2s" } });
    scene
        .apply(&[kwok_class(), pool("any", &[LINUX], consolidates)])
        .await?;
    scene
        .apply(&[deployment("web", 3, size, json!({}))])
        .await?;
    scene.running("web", 3).await?;
    // Pods that arrive over time, and a node that a user deletes.
    for replicas in [7, 12] {
        scene.scale("web", replicas).await?;
        scene.running("web", replicas).await?;
    }
    let nodes = scene.nodes().await?;
    let deleted = nodes.keys().next().context("a node")?;
    let all: Api<Node> = Api::all(scene.plane.client());
    all.delete(deleted, &DeleteParams::default()).await?;
    wait_until("the deleted node to be gone", SOON, || async {
        let nodes = scene.nodes().await?;
        ensure!(!nodes.contains_key(deleted), "{deleted} is there");
        Ok(())
    })
    .await?;
    scene.running("web", 12).await?;
    scene.scale("web", 4).await?;
    written(&directory).await?;
    scene.mortise.kill9().await;

    forget_lease(&scene).await?;
    scene.mortise.start_again(&[]).await?;
    scene.mortise.wait_ready().await?;
    scene.running("web", 4).await?;
    scene.settled(1).await?;
    scene.scale("web", 0).await?;
    scene.empty().await?;
    let bytes = scene
        .mortise
        .metric("mortise_recorder_bytes_total", &[])
        .await?;
    let missing = scene
        .mortise
        .metric("mortise_recorder_missing_events_total", &[])
        .await?;
    ensure!(bytes > 0.0 && missing == 0.0, "{bytes} bytes, {missing}");
    let code = scene.mortise.terminate().await;
    ensure!(code == 0, "ended with {code}");

    let recordings = report(&directory, &[], EQUAL).await?;
    ensure!(recordings.len() == 2, "one of each process: {recordings:?}");
    for (recording, has_end) in recordings.iter().zip([false, true]) {
        let replay = &recording["replay"];
        ensure!(replay["isEqual"] == true, "{}", replay["parting"]);
        ensure!(replay["hasEnd"] == has_end, "{replay}");
        ensure!(number(&replay["inputs"]) > 100 && number(&replay["steps"]) > 50);
        ensure!(replay["recorded"] == replay["replayed"], "{replay}");
        let launched = &replay["recorded"]["distinct"]["launch"];
        let disrupted = &replay["recorded"]["distinct"]["terminate"];
        ensure!(number(disrupted) > 0, "{replay}");
        ensure!(has_end || number(launched) > 1, "{replay}");
    }
    let said = replayed(&directory, &[]).await?;
    ensure!(said.stdout.matches("every decision equal").count() == 2);
    ensure!(said.stdout.contains("the process ended in order"));

    // With another setting the histories part, and both are counted.
    let first = recordings[0]["files"][0].as_str().context("its file")?;
    let changed = report(
        Path::new(first),
        &["--set", "batch-idle-duration=20ms"],
        EQUAL,
    )
    .await?;
    let changed = &changed[0]["changed"];
    ensure!(changed["parting"]["decider"] == "provisioning", "{changed}");
    ensure!(
        number(&changed["replayed"]["distinct"]["create_claim"]) > 0,
        "{changed}"
    );
    let said = replayed(Path::new(first), &["--set", "batch-idle=3s"]).await?;
    ensure!(
        said.code == WRONG_USAGE && said.stderr.contains("batch-idle-duration"),
        "{said:?}"
    );

    // The recording of the time that is asked for.
    let second = recordings[1]["replay"]["to"].as_str().context("its end")?;
    let at = report(&directory, &["--at", second], EQUAL).await?;
    ensure!(at.len() == 1 && at[0]["files"] == recordings[1]["files"]);
    let said = replayed(&directory, &["--at", "2020-01-01T00:00:00Z"]).await?;
    ensure!(
        said.code == UNREADABLE && said.stderr.contains("oldest"),
        "{said:?}"
    );

    // Both processes next to the second one: by the hour, since they are not equally long.
    let file = recordings[1]["files"][0].as_str().context("its file")?;
    let said = replayed(&directory, &["--compare", file]).await?;
    ensure!(said.code == EQUAL, "{said:?}");
    let row = |words: &str| said.stdout.lines().find(|line| line.starts_with(words));
    for words in [
        "recorded time",
        "spent an hour",
        "pods waited: half",
        "evictions",
    ] {
        let values = row(words).and_then(|row| row.strip_prefix(words));
        let values = values.map(|values| values.split_whitespace().count());
        ensure!(values == Some(2), "{words}: {said:?}");
    }
    let launched = row("nodes launched").context("nodes launched")?;
    let launched: Vec<u64> = launched
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect();
    ensure!(launched.len() == 2 && launched[0] > launched[1], "{said:?}");

    // Another seed stands for a program that decides otherwise.
    let other = directory.join("other.recording");
    std::fs::write(&other, with_seed(Path::new(first), 7)?)?;
    let said = replayed(&other, &[]).await?;
    ensure!(
        said.code == DIFFERS && said.stdout.contains("histories part at"),
        "{said:?}"
    );
    std::fs::remove_dir_all(&directory)?;
    scene.end().await;
    Ok(())
}

/// The recording, as if its process had had another seed.
fn with_seed(path: &Path, seed: u64) -> Result<Vec<u8>> {
    let file = std::fs::File::open(path)?;
    let (mut reader, mut header) = mortise_engine::journal::JournalReader::new(file)?;
    header.seed = seed;
    let mut writer = mortise_engine::journal::JournalWriter::new(Vec::new(), &header)?;
    while let Some(line) = reader.next_line()? {
        writer.line(&serde_json::to_string(&line)?)?;
    }
    Ok(writer.finish()?)
}
