//! What the solver plans, the real kube-scheduler binds; and pods that arrive over time all run in the end. The long runs
//! are `mortise-bench agreement` and `mortise-bench agreement --arrivals`.

use anyhow::{Result, ensure};
use futures::future::try_join_all;
use mortise_tests::agreement::arrivals::{Field, Known, Played, Timetable};
use mortise_tests::agreement::{Advice, Arena, Outcome, Scenario};

use crate::scene::two_turns;

/// Scenarios of the long run, of which these are the first.
const SCENARIOS: u64 = 8;
/// Drawn timetables of the long run, of which these are the first.
const DRAWN: u64 = 2;

/// kube-scheduler's own filters accept every place of the plan, on nodes that are made as planned.
#[tokio::test]
async fn the_scheduler_binds_what_is_planned() -> Result<()> {
    let _turns = two_turns().await?;
    let mut arena = Box::pin(Arena::start(Advice::Plan)).await?;
    let mut outcomes: Vec<Outcome> = Vec::new();
    for number in 0..SCENARIOS {
        let scenario = Scenario::draw(1, number);
        outcomes.push(Box::pin(arena.play(&scenario)).await?);
    }
    let pods: usize = outcomes.iter().map(|each| each.landings.len()).sum();
    let nodes: usize = outcomes.iter().map(|each| each.new_nodes).sum();
    ensure!(
        pods > 40 && nodes > 8,
        "{pods} pods on {nodes} new nodes are not worth the name"
    );
    let missing: Vec<_> = outcomes.iter().flat_map(Outcome::missing).collect();
    ensure!(missing.is_empty(), "not bound: {missing:#?}");
    arena.end().await;
    Ok(())
}

/// Those on which pods were once seen to wait, several times, and some drawn ones, all at a time on one control plane.
async fn everybody_runs(advice: Advice) -> Result<()> {
    let _turns = two_turns().await?;
    let field = Box::pin(Field::start(advice)).await?;
    let mut timetables: Vec<Timetable> = Vec::new();
    for (known, rounds) in [
        (Known::HostAntiAffinityPair, 4),
        (Known::LateHostAntiAffinityPair, 4),
        (Known::EightDeployments, 4),
    ] {
        timetables.extend((0..rounds).map(|round| Timetable::known(known, 1, round)));
    }
    timetables.extend((0..DRAWN).map(|number| Timetable::draw(1, number)));
    let plays = timetables.iter().map(|each| Box::pin(field.play(each)));
    let played: Vec<Played> = try_join_all(plays).await?;
    let waiting: usize = played.iter().map(|each| each.waiting.len()).sum();
    let pods: usize = played.iter().map(Played::count).sum();
    let failed = played.iter().filter(|each| !each.waiting.is_empty());
    let failed: Vec<String> = failed.map(ToString::to_string).collect();
    ensure!(
        waiting == 0,
        "{waiting} of {pods} pods wait:\n{}",
        failed.join("")
    );
    field.end().await;
    Ok(())
}

/// No pod stays pending when kube-scheduler decides alone.
#[tokio::test]
async fn pods_that_arrive_over_time_all_run() -> Result<()> {
    everybody_runs(Advice::None).await
}

/// Nor when it asks the extender.
#[tokio::test]
async fn pods_that_arrive_over_time_all_run_with_the_extender() -> Result<()> {
    everybody_runs(Advice::Promises).await
}
