//! What dividing the costs of nodes among namespaces costs: an hour in which nothing changes, and one of much change.

use std::sync::Arc;

use anyhow::Result;
use jiff::Timestamp;
use mortise_apis::values::after;
use mortise_state::costs::Allocation;
use mortise_state::snapshot::{Snapshot, StateNode};

use super::world::World;
use super::{Clock, Row, spread_of};
use crate::test_host::{peak_mib, resident_mib};

/// Readings of an hour: one every ten seconds.
const READINGS: i64 = 360;
const READ_MS: i64 = 10_000;
/// Wanted for an hour in which nothing changes.
const WANTED_MS: f64 = 1.0;

/// Two rows for each size.
pub(super) fn rows(seed: u64, runs: usize) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (nodes, pods_each) in [(1_000, 10), (5_000, 20)] {
        let mut world = World::new(seed, 20, 400)?.with_on_demand_nodes();
        world.add_nodes(nodes, 20, pods_each)?;
        world.start();
        let snapshot = world.engine.snapshot(world.now);
        let size = (nodes, nodes * pods_each);
        let still = measured(runs, || hour(&snapshot, world.now, 0));
        rows.push(row(
            format!("{nodes} nodes, nothing changes"),
            size,
            still,
            Some(WANTED_MS),
        ));
        let busy = measured(runs, || hour(&snapshot, world.now, nodes / 100));
        rows.push(row(
            format!("{nodes} nodes, 1 % change every 10 s"),
            size,
            busy,
            None,
        ));
    }
    Ok(rows)
}

/// Milliseconds in which an hour is charged when this number of nodes changes before each reading.
fn hour(snapshot: &Arc<Snapshot>, begin: Timestamp, changes: usize) -> f64 {
    let label = Arc::from("app");
    let mut accounts = Allocation::default();
    let mut snapshot = Snapshot::clone(snapshot);
    accounts.read(&snapshot, begin, (true, Some(&label)));
    let all: Vec<Arc<StateNode>> = snapshot.nodes.values().cloned().collect();
    let mut next = all.iter().cycle();
    let mut ms = 0.0;
    for reading in 1..=READINGS {
        for node in next.by_ref().take(changes) {
            // The same node, as a change of it leaves it: at another place in memory.
            snapshot.insert_node(Arc::new(StateNode::clone(node)));
        }
        snapshot.generation += u64::from(changes > 0);
        let now = after(begin, reading * READ_MS);
        let clock = Clock::start();
        accounts.read(&snapshot, now, (true, Some(&label)));
        ms += clock.ms();
    }
    ms
}

fn measured(runs: usize, run: impl Fn() -> f64) -> (f64, f64, f64) {
    spread_of((0..runs.max(1)).map(|_| run()).collect())
}

fn row(
    what: String,
    (nodes, pods): (usize, usize),
    ms: (f64, f64, f64),
    wanted: Option<f64>,
) -> Row {
    Row {
        case: "costs".to_owned(),
        what,
        pods,
        placed: pods,
        nodes,
        ms,
        peak_mib: peak_mib(),
        resident_mib: resident_mib(),
        wanted: wanted.map_or_else(String::new, |ms| format!("<= {ms:.0} ms an hour")),
        met: wanted.is_none_or(|wanted| ms.1 <= wanted),
    }
}
