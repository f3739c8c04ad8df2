//! One pod in a large cluster, from the watch event to the decision: index, freeze, two steps of provisioning, commit.

use std::time::Instant;

use anyhow::{Context as _, Result};
use jiff::SignedDuration;
use mortise_apis::{k8s, labels};
use mortise_engine::effect::Effect;
use mortise_state::resource_kinds::{Object, ObjectEvent, ObjectKey};
use serde_json::{Value, json};

use super::Row;
use super::world::{Mix, TEAMS, World, apart, pod, read, spread, together};
use crate::test_host::{peak_mib, resident_mib};

/// An app of which 200 pods run.
const APP: &str = "app-40";

/// What the pod is like, by the name of its row.
const KINDS: [&str; 8] = [
    "a small pod that fits on a node",
    "a large pod",
    "a small pod for full nodes of a team",
    "a small pod, zone spread",
    "a large pod, zone spread",
    "a small pod, zone affinity",
    "a small pod, host anti-affinity",
    "a large pod, host anti-affinity",
];

fn kind(seed: u64, at: usize, number: usize) -> Value {
    let mut new = pod(seed, 1_000_000, number, Mix::Plain);
    new["metadata"]["labels"]["app"] = json!(APP);
    let large = matches!(at, 1 | 4 | 7);
    let requests = if large {
        json!({"cpu": "6", "memory": "20Gi"})
    } else {
        json!({"cpu": "100m", "memory": "128Mi"})
    };
    let spec = &mut new["spec"];
    spec["containers"][0]["resources"]["requests"] = requests;
    if let Some(all) = spec.as_object_mut() {
        all.remove("nodeSelector");
    }
    match at {
        2 => spec["nodeSelector"] = json!({"team": format!("team-{}", TEAMS - 2)}),
        3 | 4 => spread(spec, APP, labels::TOPOLOGY_ZONE),
        5 => together(spec, APP, labels::TOPOLOGY_ZONE),
        6 | 7 => apart(spec, APP, labels::HOSTNAME),
        _ => {}
    }
    new
}

/// One row per kind of pod, and one for the freeze alone.
pub(super) fn rows(seed: u64, runs: usize) -> Result<Vec<Row>> {
    const WANTED_MS: f64 = 5.0;
    let mut world = World::new(seed, 20, 800)?;
    world.add_nodes(5_000, 20, 20)?;
    world.start();
    drop(world.engine.turn(world.now, 8, &|| false));
    let mut rows = Vec::new();
    let mut number = 0;
    let times = runs.max(1) * 20;
    for (at, what) in KINDS.into_iter().enumerate() {
        let (mut freezes, mut all) = (Vec::new(), Vec::new());
        let (mut placed, mut claims) = (0, 0);
        for _ in 0..times {
            number += 1;
            let value = kind(seed, at, number);
            let pod: k8s::Pod = read(value)?;
            let decided = decide(&mut world, Object::Pod(Box::new(pod)))?;
            freezes.push(decided.freeze_ms);
            all.push(decided.all_ms);
            (placed, claims) = (decided.placed, decided.claims);
        }
        if at == 0 {
            rows.push(row("freeze", 0, 0, freezes, WANTED_MS));
        }
        rows.push(row(what, placed, claims, all, WANTED_MS));
    }
    Ok(rows)
}

struct Decided {
    freeze_ms: f64,
    all_ms: f64,
    placed: usize,
    claims: usize,
}

/// Adds the pod, waits for the decision, and takes everything back.
fn decide(world: &mut World, pod: Object) -> Result<Decided> {
    let later = |at: jiff::Timestamp, ms: i64| {
        at.checked_add(SignedDuration::from_millis(ms))
            .context("time")
    };
    world.now = later(world.now, 60_000)?;
    drop(world.engine.turn(world.now, 8, &|| false));
    // Readers hold the snapshot before, so that what changes is copied.
    let before = world.engine.snapshot(world.now);
    let key = pod.key();

    let start = Instant::now();
    world.put(pod);
    let frozen = world.engine.snapshot(world.now);
    let freeze_ms = start.elapsed().as_secs_f64() * 1e3;
    let mut orders = world.engine.turn(world.now, 8, &|| false).orders;
    let end = later(world.now, 100)?;
    orders.extend(world.engine.turn(end, 8, &|| false).orders);
    let all_ms = start.elapsed().as_secs_f64() * 1e3;

    let placed = world.engine.snapshot(end).ledger.nominations().count();
    drop((before, frozen));
    let mut claims = 0;
    for order in orders {
        if let Effect::CreateClaim(claim) = &*order.effect {
            claims += 1;
            let object = Object::Claim(Box::new((**claim).clone()));
            let key = object.key();
            world.put(object);
            gone(world, key);
        }
    }
    gone(world, key);
    Ok(Decided {
        freeze_ms,
        all_ms,
        placed,
        claims,
    })
}

fn gone(world: &mut World, key: ObjectKey) {
    world.take(ObjectEvent::Deleted(key, None));
}

fn row(what: &str, placed: usize, claims: usize, mut times: Vec<f64>, wanted_ms: f64) -> Row {
    times.sort_by(f64::total_cmp);
    let at = |percent: usize| {
        let rank = (times.len() * percent).div_ceil(100).max(1);
        times.get(rank - 1).copied().unwrap_or(f64::NAN)
    };
    let ms = (at(0), at(50), at(99));
    Row {
        case: "one".to_owned(),
        what: what.to_owned(),
        pods: 1,
        placed,
        nodes: claims,
        ms,
        peak_mib: peak_mib(),
        resident_mib: resident_mib(),
        wanted: format!("p99 <= {wanted_ms:.0} ms"),
        met: ms.2 <= wanted_ms,
    }
}
