//! What the solver plans, the real kube-scheduler binds. The long run is `mortise-bench agreement`.

use anyhow::{Result, ensure};
use mortise_tests::agreement::{Advice, Arena, Outcome, Scenario};

use crate::scene::turn;

/// Scenarios of the long run, of which these are the first.
const SCENARIOS: u64 = 8;

/// kube-scheduler's own filters accept every place of the plan, on nodes that are made as planned.
#[tokio::test]
async fn the_scheduler_binds_what_is_planned() -> Result<()> {
    let _turn = turn().await?;
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
