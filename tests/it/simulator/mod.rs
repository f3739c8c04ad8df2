//! The simulator and a real control plane make the same of a scenario.
//!
//! ```text
//! tests/data/agreement/*.yaml ─┬─► Script ─┬─► simulated::play ─► Outcome ─┐
//! variations (a table)        ─┘           └─► Stage::play     ─► Outcome ─┴─► differences
//! ```
//!
//! Both play the same manifests and the same timeline with the same settings. What is compared, at rest before each entry and at
//! the end: nodes by NodePool, type and capacity type, pods by NodePool, pods that wait, zones where the scenario asks for it;
//! and how often NodeClaims of each NodePool came to each stage of their life in between, and in which order. Free: names, what
//! happens within the same second, which of equal nodes or zones it is, how long a node takes to join.

mod outcome;
mod scripts;
mod simulated;
mod stage;
mod variations;

use anyhow::{Result, ensure};
use futures::StreamExt as _;

use crate::scene::{Scene, Setting};
use outcome::differences;
use scripts::Script;
use stage::Stage;

/// Scenarios at a time: each waits most of the time.
const LANES: usize = 12;

/// Of the scenarios, one in this number is played if `MORTISE_AGREEMENT` is not set: what continuous integration has time for.
const EVERY: usize = 4;

/// Scenarios that may differ: docs/benchmarks/agreement.md explains each. They are played and counted.
const KNOWN: [&str; 5] = [
    "limit-of-cpu",
    "mixed-types",
    "mixed-types-up",
    "over-nodes",
    "over-zones-wide",
];

/// Plays them; fails if one differs, and says how many do not.
async fn agree(scripts: Vec<Script>) -> Result<String> {
    let scene = Scene::start(Setting {
        flags: vec![
            "--feature-gates=StaticCapacity=true".to_owned(),
            "--disruption-cooldown=15s".to_owned(),
        ],
        ..Setting::default()
    })
    .await?;
    let stage = Stage::open(&scene).await?;
    let count = scripts.len();
    let plays = scripts.iter().map(|script| {
        let stage = &stage;
        async move {
            let wanted = simulated::play(script)?;
            let found = stage.play(script, &wanted).await?;
            let first = differences(&wanted, &found);
            if first.is_empty() || KNOWN.contains(&script.name.as_str()) {
                return anyhow::Ok((script.name.clone(), first, Vec::new()));
            }
            // A busy host makes pods late, and late pods are planned for in other batches: what differs twice is a difference.
            let again = stage.play(script, &wanted).await?;
            let second = differences(&wanted, &again);
            Ok((script.name.clone(), second, first))
        }
    });
    let mut played = futures::stream::iter(plays).buffer_unordered(LANES);
    let (mut known, mut disagree, mut once) = (Vec::new(), Vec::new(), Vec::new());
    while let Some(result) = played.next().await {
        let (name, differences, first) = result?;
        if differences.is_empty() {
            if !first.is_empty() {
                once.push(format!("{name}:\n  {}", first.join("\n  ")));
            }
            continue;
        }
        if KNOWN.contains(&name.as_str()) {
            known.push(name);
        } else {
            disagree.push(format!("{name}:\n  {}", differences.join("\n  ")));
        }
    }
    drop(played);
    disagree.sort();
    let agreeing = count - disagree.len() - known.len();
    let mut result = format!("{agreeing} of {count} scenarios agree; known to differ: {known:?}");
    if !once.is_empty() {
        result += "; differed once, and not when played again:\n";
        result += &once.join("\n");
    }
    ensure!(
        disagree.is_empty(),
        "{result}; not known:\n{}",
        disagree.join("\n")
    );
    stage.close();
    scene.end().await;
    Ok(result)
}

/// Those that are written as files and those of the table: every fourth of them; with `MORTISE_AGREEMENT=all` all of them, and with
/// any other value those that have it in their name.
#[tokio::test]
async fn scenarios_end_as_in_the_simulator() -> Result<()> {
    let mut scripts = scripts::written()?;
    scripts.extend(variations::all()?);
    ensure!(scripts.len() >= 40, "only {} scenarios", scripts.len());
    let wanted = std::env::var("MORTISE_AGREEMENT").ok();
    let scripts: Vec<Script> = match wanted.as_deref() {
        None => scripts.into_iter().step_by(EVERY).collect(),
        Some("all") => scripts,
        Some(part) => {
            let named = |script: &Script| script.name.contains(part);
            scripts.into_iter().filter(named).collect()
        }
    };
    ensure!(
        !scripts.is_empty(),
        "no scenario has {wanted:?} in its name"
    );
    println!("{}", Box::pin(agree(scripts)).await?);
    Ok(())
}
