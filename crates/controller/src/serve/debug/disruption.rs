//! What keeps each node from being disrupted voluntarily, what would free it, and when what waits for a time ends; and what the
//! budgets of each NodePool allow.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use mortise_apis::karpenter::nodepool::NodePool;
use mortise_apis::names::PoolName;
use mortise_apis::schema::conditions::{ConditionStatus, find};
use mortise_planning::disruption::consolidate_after::elapses_at;
use mortise_planning::disruption::upgrade_drift::UpgradeDrift;
use mortise_planning::disruption::{
    BlockerFacts, BlockerScope, BudgetState, budget_states, node_blockers, upgrade_drift,
};
use mortise_planning::drain::pdb::Pdbs;
use mortise_planning::drain::{going_since, undrainable_nodes};
use mortise_state::snapshot::{Snapshot, StateNode};
use serde::Serialize;
use serde_json::{Value, json};

use super::DebugView;
use super::table::TextTable;
use crate::service_state::ServiceState;
use mortise_apis::values::{since, span_text};

/// How far ahead the next change of a budget is searched.
const AHEAD: SignedDuration = SignedDuration::from_hours(24 * 14);

/// Something that keeps a node from being disrupted voluntarily.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct DisruptionBlocker {
    /// The fact.
    pub(super) text: String,
    /// What would free the node.
    pub(super) clears: String,
    /// When it ends by itself; `None` without such a time.
    pub(super) until: Option<Timestamp>,
}

/// Everything in the snapshot that blocks the disruption of a node, each once, in the words of events. Cost: a look-up for each label of
/// its pods.
pub(super) fn blockers(
    node: &Arc<StateNode>,
    facts: BlockerFacts<'_>,
    upgrades: &BTreeMap<PoolName, UpgradeDrift>,
) -> Vec<DisruptionBlocker> {
    let mut all: Vec<DisruptionBlocker> = Vec::new();
    for blocker in node_blockers(node, facts, upgrades) {
        let mut text = blocker.reason.karpenter_text();
        if let Some(pod) = &blocker.pod {
            text.push_str(&format!(", for pod {pod}"));
        }
        text.push_str(match blocker.scope {
            BlockerScope::Any => "",
            BlockerScope::Consolidation => " (consolidation only)",
            BlockerScope::Drift => " (drift only)",
        });
        all.push(DisruptionBlocker {
            text,
            clears: blocker.clears,
            until: blocker.until,
        });
    }
    all
}

/// When something is going to happen to a node.
pub(super) fn times(snapshot: &Snapshot, node: &StateNode) -> Value {
    let claim = node.claim.as_ref();
    let pool = node.pool().and_then(|name| snapshot.pools.get(&name));
    let disruption = pool.and_then(|pool| pool.spec.disruption.as_ref());
    let drifted = claim.and_then(|claim| {
        let condition = find(&claim.status.conditions, "Drifted")?;
        (condition.status == ConditionStatus::True).then(|| {
            json!({
                "reason": condition.reason,
                "since": condition.last_transition_time.as_ref().map(|time| time.0),
            })
        })
    });
    let fence = node
        .claim_name()
        .and_then(|claim| snapshot.ledger.fence(&claim))
        .map(|fence| json!({ "reason": fence.reason.label(), "since": fence.from }));
    let consolidatable_at = pool
        .zip(claim)
        .filter(|(pool, _)| !pool.is_static())
        .and_then(|(pool, claim)| elapses_at(claim, pool));
    json!({
        "consolidation_policy": disruption.and_then(|each| each.consolidation_policy.as_deref()),
        "consolidate_after": disruption.and_then(|each| each.consolidate_after.as_ref()).map(|text| text.as_str()),
        "consolidatable": claim.is_some_and(|claim| claim.is_true("Consolidatable")),
        "consolidatable_at": consolidatable_at,
        "drifted": drifted,
        "expires_at": claim.and_then(|claim| claim.expires_at()),
        "termination_grace_period": claim.and_then(|claim| claim.spec.termination_grace_period.as_ref()).map(|text| text.as_str()),
        "deleting_since": going_since(snapshot, node),
        "terminates_by": claim.and_then(|claim| claim.termination_deadline()),
        "fence": fence,
    })
}

/// What the budgets of a NodePool allow now, and the budgets with the next time at which each begins or ends.
pub(super) fn budgets(pool: &NodePool, states: &[BudgetState], now: Timestamp) -> Value {
    let now_allowed: Vec<Value> = states
        .iter()
        .map(|state| {
            json!({
                "reason": state.reason,
                "allowed": state.allowed,
                "disrupted": state.consumed,
                "left": state.allowed.map(|allowed| allowed.saturating_sub(state.consumed).max(0)),
            })
        })
        .collect();
    let disruption = pool.spec.disruption.as_ref();
    let written = disruption.and_then(|each| each.budgets.as_deref());
    let written = written.unwrap_or_default();
    let compiled = pool.budgets();
    let windows: Vec<Value> = written
        .iter()
        .zip(compiled.iter())
        .map(|(text, budget)| {
            let spans = match budget.window() {
                Ok(Some(window)) => {
                    window.spans(now, now.checked_add(AHEAD).unwrap_or(Timestamp::MAX))
                }
                Ok(None) | Err(_) => Vec::new(),
            };
            let next = spans.first();
            let is_active = budget.is_active(now).unwrap_or(true);
            json!({
                "nodes": text.nodes,
                "reasons": text.reasons,
                "schedule": text.schedule,
                "duration": text.duration.as_ref().map(|text| text.as_str()),
                "active": is_active,
                "changes_at": next.map(|(begin, end)| if is_active { *end } else { *begin }),
                "error": budget.error().map(ToString::to_string),
            })
        })
        .collect();
    json!({ "now": now_allowed, "written": windows })
}

/// The states of all budgets, by NodePool.
pub(super) fn states_by_pool(
    snapshot: &Snapshot,
    now: Timestamp,
) -> BTreeMap<PoolName, Vec<BudgetState>> {
    let mut all: BTreeMap<PoolName, Vec<BudgetState>> = BTreeMap::new();
    for state in budget_states(snapshot, now) {
        all.entry(state.pool.clone()).or_default().push(state);
    }
    all
}

/// `/debug/disruption`.
pub(super) fn view(shared: &ServiceState) -> DebugView {
    let (snapshot, now) = (shared.snapshot(), shared.now());
    let pdbs = Pdbs::new(&snapshot);
    let facts = BlockerFacts::new(&snapshot, &pdbs, now);
    let upgrades = upgrade_drift::all(&snapshot, shared.settings(), now);
    let mut table = TextTable::new(&["NODE", "POOL", "BLOCKED BY", "CLEARS"]);
    let mut nodes = Vec::new();
    for (_, node) in snapshot.nodes.sorted() {
        let blockers = blockers(node, facts, &upgrades);
        let pool = node.pool().map(|pool| pool.to_string());
        for blocker in &blockers {
            let until = blocker
                .until
                .map(|until| format!(", or in {}", span_text(since(until, now))))
                .unwrap_or_default();
            table.row(vec![
                node.name().to_owned(),
                pool.clone().unwrap_or_else(|| "-".to_owned()),
                blocker.text.clone(),
                format!("{}{until}", blocker.clears),
            ]);
        }
        let mut entry = times(&snapshot, node);
        entry["key"] = json!(&*node.key);
        entry["name"] = json!(node.name());
        entry["pool"] = json!(pool);
        entry["blockers"] = json!(blockers);
        nodes.push(entry);
    }
    let states = states_by_pool(&snapshot, now);
    let pools: Vec<Value> = snapshot
        .pools
        .iter()
        .map(|(name, pool)| {
            let states = states.get(name).map(Vec::as_slice).unwrap_or_default();
            let mut entry = budgets(pool, states, now);
            entry["name"] = json!(name);
            entry
        })
        .collect();
    let undrainable = undrainable_nodes(&snapshot, now);
    let mut text = table.render("nothing blocks the disruption of any node");
    if !undrainable.is_empty() {
        let mut table = TextTable::new(&["NEVER DRAINS", "POOL", "BECAUSE OF", "TO FREE IT"]);
        for node in &undrainable {
            let pool = node.pool.as_ref().map_or("-", PoolName::as_str);
            for blocker in &node.blockers {
                table.row(vec![
                    node.node.to_string(),
                    pool.to_owned(),
                    blocker.to_string(),
                    blocker.unblocks.clone(),
                ]);
            }
        }
        text.push('\n');
        text.push_str(&table.render(""));
    }
    DebugView {
        json: json!({ "at": now, "nodes": nodes, "pools": pools, "undrainable": undrainable }),
        text,
    }
}
