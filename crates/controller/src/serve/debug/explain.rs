//! Why an object is in its state: facts of the snapshot, nominations of the ledger and decisions of the log, joined.

use std::sync::Arc;

use jiff::Timestamp;
use mortise_apis::names::{ObjectRef, PodKey, PoolName};
use mortise_apis::nearest::nearest;
use mortise_apis::resources::quantity;
use mortise_apis::schema::conditions::ConditionStatus;
use mortise_apis::values::{since, span_text};
use mortise_apis::{Condition, labels};
use mortise_engine::record::Record;
use mortise_planning::disruption::{BlockerFacts, BudgetState, upgrade_drift};
use mortise_planning::drain::pdb::Pdbs;
use mortise_planning::drain::{drain_blockers, going_since, undrainable_because};
use mortise_planning::drain_blocker::DrainBlocker;
use mortise_planning::pause;
use mortise_planning::reason::Reason;
use mortise_planning::scheduling::{self, PodExplanation, PodSchedulingState};
use mortise_state::snapshot::{Pod, PoolUsage, Snapshot, StateNode};
use serde_json::{Value, json};

use super::deletion_order::DeletionOrder;
use super::subject::Subject;
use super::table::facts;
use super::views::{decision, decision_table, place, reasons};
use super::{DebugView, disruption, handing_over, node, policy, quantities};
use crate::service_state::ServiceState;
use crate::service_state::decision_log::NumberedRecord;
use crate::service_state::recent_drain_blockers::recent_drain_blockers;

/// Decisions shown per subject.
const DECISIONS: usize = 20;

pub(super) fn explain(shared: &ServiceState, subject: &Subject) -> Result<DebugView, String> {
    let snapshot = shared.snapshot();
    match subject {
        Subject::Pod(key) => pod(shared, &snapshot, key),
        Subject::Node(name) => {
            let node = snapshot.node(name).ok_or_else(|| {
                missing("node", name, snapshot.named.iter().map(|(name, _)| &**name))
            })?;
            Ok(node_view(shared, &snapshot, node))
        }
        Subject::Claim(name) => {
            let node = snapshot.node_of_claim(name).ok_or_else(|| {
                foreign(&snapshot, &ObjectRef::Claim(name.clone())).unwrap_or_else(|| {
                    missing(
                        "nodeclaim",
                        name,
                        snapshot.claims.iter().map(|(name, _)| &**name),
                    )
                })
            })?;
            Ok(node_view(shared, &snapshot, node))
        }
        Subject::Pool(name) => pool(shared, &snapshot, name),
    }
}

fn missing<'a>(kind: &str, name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.collect();
    let near = nearest(name, known.iter().copied())
        .map(|near| format!("; did you mean {near:?}?"))
        .unwrap_or_default();
    format!("there is no {kind} {name:?}{near}")
}

/// The explanation for a foreign NodeClaim or NodePool.
fn foreign(snapshot: &Snapshot, target: &ObjectRef) -> Option<String> {
    let class = snapshot.foreign.get(target)?;
    Some(format!(
        "{target} is ignored: no enabled provider supports {}.{} (supported: {})",
        class.kind, class.group, snapshot.served
    ))
}

/// The newest decision about a pod that explains its placement.
pub(super) fn newest_about_pod(shared: &ServiceState, key: &PodKey) -> Option<Arc<NumberedRecord>> {
    shared
        .records
        .newest(1, |record| concerns_pod(record, key))
        .pop()
}

fn concerns_pod(record: &Record, key: &PodKey) -> bool {
    matches!(&record.subject, ObjectRef::Pod(subject) if subject == key)
        || record.reasons.iter().any(|reason| match reason {
            Reason::ForPods { pods, .. } | Reason::PodsUnschedulable { pods, .. } => {
                pods.contains(key)
            }
            Reason::DoNotDisruptPod { pod, .. }
            | Reason::PodNominated { pod }
            | Reason::MultiplePdbs { pod, .. } => pod == key,
            _ => false,
        })
}

fn pod(shared: &ServiceState, snapshot: &Snapshot, key: &PodKey) -> Result<DebugView, String> {
    let found = snapshot.pods.get(key).ok_or_else(|| {
        let of_namespace = snapshot
            .pods
            .iter()
            .filter(|(each, _)| each.namespace == key.namespace)
            .map(|(each, _)| &*each.name);
        format!(
            "{} (completed pods are not stored)",
            missing("pod", &key.name, of_namespace)
                .replace("pod \"", &format!("pod \"{}/", key.namespace))
        )
    })?;
    let now = shared.now();
    let nomination = snapshot.ledger.nomination(&found.uid);
    let records = shared
        .records
        .newest(DECISIONS, |record| concerns_pod(record, key));
    let explanation = scheduling::explain(now, snapshot, found, &shared.settings().solve_options());
    let verdict = pod_verdict(snapshot, &explanation);
    let nominated_to = nomination.map(|nomination| place(&nomination.place));
    let mut lines = vec![
        ("pod", key.to_string()),
        ("verdict", verdict.clone()),
        ("age", span_text(since(now, found.created))),
        ("requests", quantities::text(&found.class.requests)),
        ("priority", found.class.priority.to_string()),
        ("scheduler", found.class.scheduler_name.to_string()),
    ];
    if let Some(owner) = &found.owner {
        lines.push(("owner", format!("{}/{}", owner.kind, owner.name)));
    }
    if let Some(node) = &found.node {
        lines.push(("node", node.to_string()));
    }
    if let (Some(nomination), Some(nominated_to)) = (nomination, &nominated_to) {
        lines.push((
            "nominated to",
            format!(
                "{nominated_to}, for at most another {}",
                span_text(since(nomination.until, now))
            ),
        ));
    }
    for reason in &explanation.reasons {
        lines.push(("blocker", reason.to_string()));
    }
    let deletion_order = DeletionOrder::of(snapshot, found);
    if let Some(order) = &deletion_order {
        lines.push(("deletion cost", order.text()));
    }
    let hand_over = handing_over::of(snapshot, found);
    if let Some(answer) = &hand_over {
        lines.push(("hand-over", handing_over::text(answer)));
    }
    let why = records.first().map(|newest| reasons(&newest.record));
    if let Some(why) = &why {
        lines.push(("why", why.clone()));
    }
    let mut json = json!({
        "pod": key.to_string(),
        "uid": found.uid,
        "verdict": verdict,
        "phase": found.phase,
        "node": found.node,
        "created": found.created,
        "requests": quantities::json(&found.class.requests),
        "priority": found.class.priority,
        "scheduler": &*found.class.scheduler_name,
        "unschedulable": found.unschedulable,
        "gated": found.gated,
        "nominated_to": nominated_to,
        "nominated_until": nomination.map(|nomination| nomination.until),
        "do_not_disrupt": found.do_not_disrupt.as_deref(),
        "disruption_budgets": budgets_of(snapshot, found).iter().map(|name| name.to_string()).collect::<Vec<_>>(),
        "deletion_cost": deletion_order.as_ref().map(DeletionOrder::json),
        "hand_over": hand_over.as_ref().map(handing_over::json),
        "state": explanation.state,
        "scheduler_says": found.refusal.as_ref().map(|refusal| &*refusal.message),
        "not_confirmed_by": explanation.unconfirmed.as_deref(),
        "blockers": per_pool(&explanation.reasons),
        "why": why,
        "decisions": records.iter().map(|each| decision(each)).collect::<Vec<_>>(),
    });
    answered_by(shared, &mut json);
    Ok(DebugView {
        json,
        text: with_decisions(shared, &lines, &records),
    })
}

/// When the explanation was made, and whether by the replica that leads: only that one has decisions.
fn answered_by(shared: &ServiceState, json: &mut Value) {
    json["at"] = json!(shared.now());
    json["leading"] = json!(shared.health.is_leading());
}

/// The blockers of a pod per NodePool, with the nearest instance type and what it lacks.
fn per_pool(reasons: &[Reason]) -> Vec<Value> {
    let mut all: Vec<Value> = Vec::new();
    for reason in reasons {
        match reason {
            Reason::PoolRefused {
                pool,
                blocker,
                constraint,
                detail,
                ..
            } => all.push(json!({
                "pool": pool, "blocker": blocker.label(), "constraint": constraint, "detail": detail,
            })),
            Reason::NearestTypeShortfall {
                instance_type,
                resource,
                by,
            } => {
                if let Some(of_pool) = all.last_mut() {
                    of_pool["nearest_type"] = json!(instance_type);
                    of_pool["lacks"] = json!({resource.as_str(): quantity(resource, *by).to_string()});
                }
            }
            other => all.push(json!({ "detail": other.to_string() })),
        }
    }
    all
}

fn pod_verdict(snapshot: &Snapshot, explanation: &PodExplanation) -> String {
    let PodExplanation {
        state, unconfirmed, ..
    } = explanation;
    if *state == PodSchedulingState::Unschedulable && snapshot.pools.is_empty() {
        return if snapshot.foreign_pools().next().is_some() {
            format!(
                "pending; no NodePool references a supported node class (supported: {})",
                snapshot.served
            )
        } else {
            "pending; there is no NodePool".to_owned()
        };
    }
    match unconfirmed {
        Some(scheduler) if *state != PodSchedulingState::Unschedulable => {
            format!("{state}; scheduler {scheduler} has not reported it unschedulable yet")
        }
        _ => state.to_string(),
    }
}

fn budgets_of(snapshot: &Snapshot, pod: &Pod) -> Vec<mortise_apis::names::NamespacedName> {
    let selects = |budget: &mortise_apis::k8s::PodDisruptionBudget| {
        let Some(selector) = &budget.spec.selector else {
            return false;
        };
        let labels: std::collections::BTreeMap<String, String> = pod
            .labels
            .iter()
            .map(|(key, value)| (key.to_string(), value.to_string()))
            .collect();
        kube::core::Selector::try_from(selector.clone())
            .is_ok_and(|selector| kube::core::SelectorExt::matches(&selector, &labels))
    };
    let mine = snapshot
        .pdbs
        .iter()
        .filter(|(name, budget)| name.namespace == pod.key.namespace && selects(budget));
    mine.map(|(name, _)| name.clone()).collect()
}

fn concerns_node(record: &Record, node: &StateNode) -> bool {
    let (name, claim) = (node.node_name(), node.claim_name());
    let subject = match &record.subject {
        ObjectRef::Node(subject) => Some(subject) == name.as_ref(),
        ObjectRef::Claim(subject) => Some(subject) == claim.as_ref(),
        _ => false,
    };
    let mentions = |reason: &Reason| match reason {
        Reason::OnNode { node, .. } => Some(node) == name.as_ref(),
        Reason::OnClaim { claim: each, .. } => Some(each) == claim.as_ref(),
        _ => false,
    };
    subject || record.reasons.iter().any(mentions)
}

fn node_view(shared: &ServiceState, snapshot: &Snapshot, node: &Arc<StateNode>) -> DebugView {
    let records = shared
        .records
        .newest(DECISIONS, |record| concerns_node(record, node));
    let now = shared.now();
    let pdbs = Pdbs::new(snapshot);
    let facts = BlockerFacts::new(snapshot, &pdbs, now);
    let upgrades = upgrade_drift::all(snapshot, shared.settings(), now);
    let blockers = disruption::blockers(node, facts, &upgrades);
    let conditions = node
        .claim
        .as_ref()
        .map(|claim| claim.status.conditions.as_slice())
        .unwrap_or_default();
    let mut lines = node_facts(snapshot, node, now);
    let not_true = |condition: &&Condition| {
        condition.status != ConditionStatus::True
            && condition.type_ != "Drifted"
            && condition.type_ != "Consolidatable"
    };
    for condition in conditions.iter().filter(not_true) {
        lines.push(awaited(condition));
    }
    let blockers_now = current_blockers(shared, snapshot, node, now);
    lines.extend(
        blockers_now
            .iter()
            .map(|each| ("drain blocker", each.text(now))),
    );
    let undrainable = undrainable_because(snapshot, &pdbs, now, node);
    lines.extend(
        undrainable
            .iter()
            .map(|each| ("never drains", format!("{each}; {}", each.unblocks))),
    );
    if let Some(fence) = node
        .claim_name()
        .and_then(|claim| snapshot.ledger.fence(&claim))
    {
        lines.push((
            "fence",
            format!(
                "{} since {}",
                fence.reason.label(),
                span_text(since(now, fence.from))
            ),
        ));
    }
    for blocker in &blockers {
        lines.push((
            "not disrupted",
            format!("{}; {}", blocker.text, blocker.clears),
        ));
    }
    let mut json = node::json(snapshot, node);
    answered_by(shared, &mut json);
    json["times"] = disruption::times(snapshot, node);
    json["disruption_blockers"] = json!(blockers);
    json["conditions"] = conditions.iter().map(condition_json).collect();
    json["taints"] = node
        .taints
        .iter()
        .map(|taint| json!({ "key": taint.key, "value": taint.value, "effect": taint.effect }))
        .collect();
    json["pod_names"] = node
        .pods
        .iter()
        .map(|pod| Value::from(pod.key.to_string()))
        .collect();
    json["not_disrupted_because"] = blockers
        .into_iter()
        .map(|each| Value::from(each.text))
        .collect();
    json["drain_blockers"] = json!(blockers_now);
    json["never_drains_because"] = json!(undrainable);
    json["decisions"] = records.iter().map(|each| decision(each)).collect();
    DebugView {
        json,
        text: with_decisions(shared, &lines, &records),
    }
}

/// Facts of a node, one line each.
fn node_facts(
    snapshot: &Snapshot,
    node: &StateNode,
    now: Timestamp,
) -> Vec<(&'static str, String)> {
    let label = |key: &str| node.label(key).unwrap_or("-").to_owned();
    let (nominated, nominations) = node::nominated(snapshot, node);
    vec![
        (
            "node",
            node.node_name()
                .map_or_else(|| "-".to_owned(), |name| name.to_string()),
        ),
        (
            "nodeclaim",
            node.claim_name()
                .map_or_else(|| "-".to_owned(), |name| name.to_string()),
        ),
        (
            "nodepool",
            node.pool()
                .map_or_else(|| "-".to_owned(), |name| name.to_string()),
        ),
        ("phase", node::phase(snapshot, node).to_owned()),
        (
            "age",
            node.created()
                .map_or_else(|| "-".to_owned(), |created| span_text(since(now, created))),
        ),
        (
            "offering",
            format!(
                "{} {} {}",
                label(labels::INSTANCE_TYPE),
                label(labels::TOPOLOGY_ZONE),
                label(labels::CAPACITY_TYPE)
            ),
        ),
        (
            "price",
            node.price
                .map_or_else(|| "unknown".to_owned(), |price| price.to_string()),
        ),
        ("allocatable", quantities::text(&node.allocatable)),
        (
            "used",
            format!(
                "{} by {} pods",
                quantities::text(&node.used),
                node.pods.len()
            ),
        ),
        (
            "nominated",
            format!("{} to {nominations} pods", quantities::text(&nominated)),
        ),
    ]
}

/// Drain blockers of a node: from the snapshot, or else from recent decisions.
fn current_blockers(
    shared: &ServiceState,
    snapshot: &Snapshot,
    node: &StateNode,
    now: Timestamp,
) -> Vec<DrainBlocker> {
    let shown = drain_blockers(snapshot, now, node);
    if shown.is_empty() && going_since(snapshot, node).is_some() {
        let recent = recent_drain_blockers(&shared.records, now);
        return recent
            .for_node(node.node_name(), node.claim_name())
            .to_vec();
    }
    shown
}

fn condition_json(condition: &Condition) -> Value {
    json!({
        "type": condition.type_, "status": condition.status.as_str(), "reason": condition.reason, "message": condition.message,
        "since": condition.last_transition_time.as_ref().map(|time| time.0),
    })
}

fn pool(shared: &ServiceState, snapshot: &Snapshot, name: &PoolName) -> Result<DebugView, String> {
    let found = snapshot.pools.get(name).ok_or_else(|| {
        foreign(snapshot, &ObjectRef::Pool(name.clone()))
            .unwrap_or_else(|| missing("nodepool", name, snapshot.pools.keys().map(|name| &**name)))
    })?;
    let concerns = |record: &Record| {
        let mentions = |reason: &Reason| match reason {
            Reason::FromPool { pool }
            | Reason::PoolRefused { pool, .. }
            | Reason::Budget { pool, .. }
            | Reason::Replicas { pool, .. }
            | Reason::LaunchesPaused { pool, .. }
            | Reason::Limit { pool, .. } => pool == name,
            _ => false,
        };
        matches!(&record.subject, ObjectRef::Pool(subject) if subject == name)
            || record.reasons.iter().any(mentions)
    };
    let records = shared.records.newest(DECISIONS, concerns);
    let usage = PoolUsage::all(snapshot).remove(name).unwrap_or_default();
    let limits = found.limits();
    let class = found.node_class_key();
    let catalog = snapshot.catalog_of(found);
    let offered =
        catalog.map(|catalog| catalog.count_offered(&found.requirements(), &snapshot.well_known));
    let conditions = &found.status.conditions;
    let mut lines = vec![
        ("nodepool", name.to_string()),
        ("ready", found.is_ready().to_string()),
        ("node class", class.to_string()),
        (
            "node class found",
            snapshot.node_classes.contains_key(&class).to_string(),
        ),
        (
            "instance types",
            offered.map_or_else(
                || "not known yet".to_owned(),
                |count| {
                    format!(
                        "{count} of {}",
                        catalog.map_or(0, |catalog| catalog.types().len())
                    )
                },
            ),
        ),
        ("nodes", usage.nodes.to_string()),
        ("capacity", quantities::text(&usage.capacity)),
        ("weight", found.spec.weight.unwrap_or(0).to_string()),
    ];
    for (resource, limit) in &limits.resources {
        lines.push((
            "limit",
            format!(
                "{resource}: {} of {}",
                quantities::one(resource, usage.capacity.get(resource)),
                quantities::one(resource, *limit)
            ),
        ));
    }
    if let Some(nodes) = limits.nodes {
        lines.push(("limit", format!("nodes: {} of {nodes}", usage.nodes)));
    }
    let now = shared.now();
    let in_force = snapshot.policy_of(name);
    let (paid_for, commitments) = policy::commitments(name, snapshot);
    let of_policy = in_force.iter().flat_map(|of| policy::lines(of, now));
    lines.extend(of_policy.map(|line| ("policy", line)));
    lines.extend(paid_for.into_iter().map(|line| ("paid for", line)));
    for condition in conditions
        .iter()
        .filter(|condition| condition.status != ConditionStatus::True)
    {
        lines.push(awaited(condition));
    }
    let states = disruption::states_by_pool(snapshot, now)
        .remove(name)
        .unwrap_or_default();
    lines.extend(states.iter().map(|state| ("budget", budget_text(state))));
    let mut json = json!({
        "nodepool": name,
        "ready": found.is_ready(),
        "node_class": class.to_string(),
        "node_class_found": snapshot.node_classes.contains_key(&class),
        "instance_types_offered": offered,
        "nodes": usage.nodes,
        "nodes_limit": limits.nodes,
        "capacity": quantities::json(&usage.capacity),
        "limits": limits.resources.iter().map(|(name, amount)| (name.clone(), Value::from(quantities::one(name, *amount)))).collect::<serde_json::Map<_, _>>(),
        "conditions": conditions.iter().map(condition_json).collect::<Vec<_>>(),
        "budgets": disruption::budgets(found, &states, now),
        "pause": pause::of_pool(snapshot, name, now),
        "policy": in_force.map(|of| policy::json(of, now)),
        "commitments": commitments,
        "decisions": records.iter().map(|each| decision(each)).collect::<Vec<_>>(),
    });
    answered_by(shared, &mut json);
    Ok(DebugView {
        json,
        text: with_decisions(shared, &lines, &records),
    })
}

/// `Empty: 1 of 2`.
fn budget_text(state: &BudgetState) -> String {
    let allowed = state
        .allowed
        .map_or_else(|| "no limit".to_owned(), |allowed| allowed.to_string());
    format!("{}: {} of {allowed}", state.reason, state.consumed)
}

/// A condition that is not true.
fn awaited(condition: &Condition) -> (&'static str, String) {
    let Condition {
        type_,
        reason,
        message,
        ..
    } = condition;
    ("waits for", format!("{type_}: {reason} {message}"))
}

fn with_decisions(
    shared: &ServiceState,
    lines: &[(&str, String)],
    records: &[Arc<NumberedRecord>],
) -> String {
    let table = decision_table(shared, records).render("no decisions about it in memory");
    format!("{}\n{table}", facts(lines))
}
