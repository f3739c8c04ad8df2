//! The lists: configuration, snapshot, pending pods, nominations, decisions, and the state for the page.

use jiff::Timestamp;
use mortise_apis::resources::Resources;
use mortise_apis::values::money::MicroUsd;
use mortise_apis::values::{since, span_text};
use mortise_engine::decider_id::DeciderId;
use mortise_engine::freshness::{HOLDING, depends};
use mortise_engine::record::Record;
use mortise_state::ledger::NominationTarget;
use mortise_state::resource_kinds::ObjectKind;
use mortise_state::snapshot::{OtherController, Pod, PoolUsage, Snapshot, Stalled};
use serde_json::{Value, json};

use super::table::{TextTable, facts};
use super::{DebugView, node, quantities};
use crate::service_state::ServiceState;
use crate::service_state::decision_log::NumberedRecord;

/// Pending pods per response; the rest is counted.
const MOST_PENDING: usize = 1000;
/// Decisions in the first state of the page.
const PAGE_DECISIONS: usize = 100;

pub(super) fn config(shared: &ServiceState) -> DebugView {
    let json = shared.effective.clone();
    let text = match &json {
        Value::Object(entries) => {
            let lines: Vec<(&str, String)> = entries
                .iter()
                .map(|(name, value)| (name.as_str(), plain(value)))
                .collect();
            facts(&lines)
        }
        other => format!("{}\n", plain(other)),
    };
    DebugView { json, text }
}

/// A value as plain text, strings without quotes.
fn plain(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

/// Names of other programs that run, with the number of their pods.
fn other_controllers(snapshot: &Snapshot) -> Value {
    let all = OtherController::running(snapshot).into_iter();
    all.map(|(program, pods)| (program.as_str().to_owned(), json!(pods)))
        .collect()
}

pub(super) fn snapshot(shared: &ServiceState) -> DebugView {
    let snapshot = shared.snapshot();
    let counts = [
        ("pods", snapshot.pods.len()),
        ("pending", snapshot.pending.len()),
        ("nodes", snapshot.nodes.len()),
        ("nodeclaims", snapshot.claims.len()),
        ("nodepools", snapshot.pools.len()),
        ("node_classes", snapshot.node_classes.len()),
        ("foreign_objects", snapshot.foreign.len()),
        ("catalogs", snapshot.catalogs.len()),
        ("disruption_budgets", snapshot.pdbs.len()),
        ("daemon_sets", snapshot.daemon_sets.len()),
        ("nominations", snapshot.ledger.nominations().count()),
        ("expected_claims", snapshot.ledger.expected_claims().len()),
        ("fences", snapshot.ledger.fences().len()),
    ];
    let (records, bytes) = shared.records.size();
    let health = &shared.health;
    let mut json = json!({
        "generation": snapshot.generation,
        "taken_at": snapshot.taken_at,
        "age_ms": shared.snapshot_age_ms(),
        "watches": watches(shared),
        "synced": snapshot.synced,
        "leading": health.is_leading(),
        "not_ready_because": health.unready_reasons(snapshot.synced),
        "decisions": { "retained": records, "bytes": bytes },
        "catalogs": catalogs(&snapshot),
        "other_controllers": other_controllers(&snapshot),
    });
    for (name, count) in counts {
        json["counts"][name] = Value::from(count);
    }
    let mut lines = vec![
        ("generation", snapshot.generation.to_string()),
        ("age", span_text(shared.snapshot_age_ms())),
        ("synced", snapshot.synced.to_string()),
        ("leading", health.is_leading().to_string()),
        ("decisions retained", records.to_string()),
    ];
    lines.extend(
        counts
            .iter()
            .map(|(name, count)| (*name, count.to_string())),
    );
    let old = shared.freshness().old(shared.now());
    lines.extend(old.iter().map(|old| ("old", old.to_string())));
    DebugView {
        json,
        text: facts(&lines),
    }
}

/// Silence of each watch, the kind of age of old ones, and the deciders that they suspend.
fn watches(shared: &ServiceState) -> Vec<Value> {
    let (freshness, now) = (shared.freshness(), shared.now());
    let old = freshness.old(now);
    let one = |(kind, silent_ms): (&ObjectKind, i64)| {
        let name = kind.to_string();
        let how = old.iter().find(|each| each.kind == name);
        let depends: Vec<&str> = HOLDING
            .into_iter()
            .filter(|decider| depends(*decider, kind))
            .map(DeciderId::label)
            .collect();
        json!({ "kind": name, "silent_ms": silent_ms, "old": how, "held_when_old": depends })
    };
    freshness.silences(now).map(one).collect()
}

fn catalogs(snapshot: &Snapshot) -> Vec<Value> {
    let one = |(key, catalog): (
        &mortise_apis::names::NodeClassKey,
        &std::sync::Arc<mortise_state::catalog::Catalog>,
    )| {
        let available = catalog
            .types()
            .iter()
            .filter(|each| each.offerings.iter().any(|offering| offering.available))
            .count();
        json!({ "node_class": key.to_string(), "types": catalog.types().len(), "types_available": available, "version": catalog.version().to_string() })
    };
    snapshot.catalogs.iter().map(one).collect()
}

/// The target of a nomination, as text.
pub(super) fn place(place: &NominationTarget) -> String {
    match place {
        NominationTarget::Node(name) => format!("node/{name}"),
        NominationTarget::Claim(name) => format!("nodeclaim/{name}"),
    }
}

fn pending_pod(snapshot: &Snapshot, pod: &Pod, now: Timestamp) -> Value {
    let nomination = snapshot.ledger.nomination(&pod.uid);
    json!({
        "pod": pod.key.to_string(),
        "uid": pod.uid,
        "created": pod.created,
        "unschedulable": pod.unschedulable,
        "priority": pod.class.priority,
        "requests": quantities::json(&pod.class.requests),
        "nominated_to": nomination.map(|nomination| place(&nomination.place)),
        "stalled": snapshot.stalled(pod, now),
        "scheduler_says": pod.refusal.as_ref().map(|refusal| &*refusal.message),
    })
}

fn oldest_first(snapshot: &Snapshot) -> Vec<std::sync::Arc<Pod>> {
    let mut pods: Vec<_> = snapshot.pending.values().cloned().collect();
    pods.sort_by(|a, b| a.created.cmp(&b.created).then_with(|| a.key.cmp(&b.key)));
    pods
}

pub(super) fn pending(shared: &ServiceState) -> DebugView {
    let (snapshot, now) = (shared.snapshot(), shared.now());
    let pods = oldest_first(&snapshot);
    let mut table = TextTable::new(&[
        "POD",
        "AGE",
        "REQUESTS",
        "NOMINATED TO",
        "STALLED",
        "WHY NOT",
    ]);
    let mut list = Vec::new();
    for pod in pods.iter().take(MOST_PENDING) {
        let stalled = snapshot.stalled(pod, now);
        let why = match snapshot.ledger.nomination(&pod.uid) {
            Some(_) if stalled.is_none() => String::new(),
            _ => super::explain::newest_about_pod(shared, &pod.key)
                .map(|record| reasons(&record.record))
                .unwrap_or_default(),
        };
        let mut entry = pending_pod(&snapshot, pod, now);
        entry["why"] = Value::from(why.clone());
        table.row(vec![
            pod.key.to_string(),
            span_text(since(now, pod.created)),
            quantities::text(&pod.class.requests),
            entry["nominated_to"].as_str().unwrap_or("-").to_owned(),
            stalled.map_or("-", Stalled::label).to_owned(),
            why,
        ]);
        list.push(entry);
    }
    let more = pods.len().saturating_sub(MOST_PENDING);
    let mut text = table.render("no pods are pending");
    if more > 0 {
        text.push_str(&format!("and {more} more\n"));
    }
    DebugView {
        json: json!({ "count": pods.len(), "more": more, "pods": list }),
        text,
    }
}

pub(super) fn nominations(shared: &ServiceState) -> DebugView {
    let (snapshot, now) = (shared.snapshot(), shared.now());
    let mut nominations: Vec<_> = snapshot.ledger.nominations().collect();
    nominations.sort_by(|a, b| a.pod.cmp(&b.pod).then_with(|| a.uid.cmp(&b.uid)));
    let mut table = TextTable::new(&["KIND", "OWNER", "TARGET", "AMOUNT", "AGE", "EXPIRES IN"]);
    for each in &nominations {
        let expires = span_text(since(each.until, now));
        table.row(vec![
            "pod".to_owned(),
            each.pod.to_string(),
            place(&each.place),
            quantities::text(&each.requests),
            span_text(since(now, each.from)),
            expires,
        ]);
    }
    for coming in snapshot.ledger.expected_claims().values() {
        let place = format!("nodepool/{}", coming.pool);
        table.row(vec![
            "expected claim".to_owned(),
            coming.claim.to_string(),
            place,
            coming
                .capacity
                .as_ref()
                .map_or_else(|| "any instance type".to_owned(), quantities::text),
            span_text(since(now, coming.from)),
            "launch".to_owned(),
        ]);
    }
    for fence in snapshot.ledger.fences().values() {
        let cells = [
            "fence".to_owned(),
            fence.reason.label().to_owned(),
            format!("nodeclaim/{}", fence.claim),
            "all".to_owned(),
            span_text(since(now, fence.from)),
            "removal".to_owned(),
        ];
        table.row(cells.to_vec());
    }
    let nominations: Vec<Value> = nominations
        .iter()
        .map(|each| {
            json!({
                "pod": each.pod.to_string(), "uid": each.uid, "target": place(&each.place), "priority": each.priority,
                "amount": quantities::json(&each.requests), "from": each.from, "until": each.until,
            })
        })
        .collect();
    let expected_claims: Vec<Value> = snapshot
        .ledger
        .expected_claims()
        .values()
        .map(|each| json!({ "claim": each.claim, "pool": each.pool, "capacity": each.capacity.as_ref().map(quantities::json), "from": each.from }))
        .collect();
    let fences: Vec<Value> = snapshot
        .ledger
        .fences()
        .values()
        .map(
            |each| json!({ "claim": each.claim, "reason": each.reason.label(), "from": each.from }),
        )
        .collect();
    DebugView {
        json: json!({ "nominations": nominations, "expected_claims": expected_claims, "fences": fences }),
        text: table.render("there are no nominations, expected claims or fences"),
    }
}

/// The reasons of a decision in one line.
pub(super) fn reasons(record: &Record) -> String {
    record
        .reasons
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("; ")
}

/// A decision with its reasons, also as text.
pub(super) fn decision(numbered: &NumberedRecord) -> Value {
    let NumberedRecord { id, record } = numbered;
    json!({
        "id": id,
        "at": record.at,
        "decider": record.decider,
        "subject": record.subject.to_string(),
        "kind": record.subject.kind(),
        "verdict": record.verdict,
        "reasons": record.reasons,
        "text": reasons(record),
        "generation": record.generation,
    })
}

pub(super) fn decisions(shared: &ServiceState, limit: usize) -> DebugView {
    let records = shared.records.newest(limit, |_| true);
    DebugView {
        json: Value::Array(records.iter().map(|each| decision(each)).collect()),
        text: decision_table(shared, &records).render("no decisions yet"),
    }
}

/// Decisions as a table, newest first.
pub(super) fn decision_table(
    shared: &ServiceState,
    records: &[std::sync::Arc<NumberedRecord>],
) -> TextTable {
    let now = shared.now();
    let mut table = TextTable::new(&["AGO", "DECIDER", "SUBJECT", "VERDICT", "WHY"]);
    for NumberedRecord { record, .. } in records.iter().map(|each| &**each) {
        let cells = [
            span_text(since(now, record.at)),
            record.decider.to_string(),
            record.subject.to_string(),
            record.verdict.label().to_owned(),
            reasons(record),
        ];
        table.row(cells.to_vec());
    }
    table
}

/// The first state of the page.
pub(super) fn state(shared: &ServiceState) -> Value {
    let snapshot = shared.snapshot();
    let nodes: Vec<Value> = snapshot
        .nodes
        .sorted()
        .into_iter()
        .map(|(_, node)| node::json(&snapshot, node))
        .collect();
    let decisions: Vec<Value> = shared
        .records
        .newest(PAGE_DECISIONS, |_| true)
        .iter()
        .map(|each| decision(each))
        .collect();
    let pending: Vec<Value> = oldest_first(&snapshot)
        .iter()
        .take(MOST_PENDING)
        .map(|pod| pending_pod(&snapshot, pod, shared.now()))
        .collect();
    json!({
        "totals": totals(shared, &snapshot),
        "pools": pools(&snapshot),
        "nodes": nodes,
        "pending": pending,
        "decisions": decisions,
    })
}

/// The totals of the page.
pub(super) fn totals(shared: &ServiceState, snapshot: &Snapshot) -> Value {
    let mut price = MicroUsd::default();
    let mut unknown = 0_usize;
    let (mut allocatable, mut used) = (Resources::zero(), Resources::zero());
    for node in snapshot.nodes.values() {
        match node.price {
            Some(each) => price += each,
            None => unknown += usize::from(node.is_managed()),
        }
        allocatable.add_assign(&node.allocatable);
        used.add_assign(&node.used);
    }
    json!({
        "at": shared.now(),
        "generation": snapshot.generation,
        "age_ms": shared.snapshot_age_ms(),
        "synced": snapshot.synced,
        "leading": shared.health.is_leading(),
        "nodes": snapshot.nodes.len(),
        "pods": snapshot.pods.len(),
        "pending": snapshot.pending.len(),
        "nominations": snapshot.ledger.nominations().count(),
        "price": price.dollars(),
        "price_unknown": unknown,
        "allocatable": quantities::json(&allocatable),
        "used": quantities::json(&used),
    })
}

fn pools(snapshot: &Snapshot) -> Vec<Value> {
    let usage = PoolUsage::all(snapshot);
    snapshot
        .pools
        .iter()
        .map(|(name, pool)| {
            let used = usage.get(name);
            let limits = pool.limits();
            let limit = limits
                .resources
                .iter()
                .fold(Resources::zero(), |all, (resource, amount)| {
                    all.with(resource, *amount)
                });
            json!({
                "name": name,
                "ready": pool.is_ready(),
                "weight": pool.spec.weight.unwrap_or(0),
                "node_class": pool.node_class_key().to_string(),
                "nodes": used.map_or(0, |used| used.nodes),
                "nodes_limit": limits.nodes,
                "capacity": used.map(|used| quantities::json(&used.capacity)),
                "limits": quantities::json(&limit),
            })
        })
        .collect()
}
