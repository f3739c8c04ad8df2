//! The result of a run as data.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::labels;
use mortise_apis::names::{ClaimName, NodeName, ObjectRef, PodKey};
use mortise_engine::decider_id::DeciderId;
use mortise_engine::effect::Effect;
use mortise_engine::record::{Record, Verdict};
use mortise_planning::context::PlanningContext;
use mortise_planning::disruption::candidate::{Candidate, CandidateBlocker, DisruptionClass};
use mortise_planning::disruption::command::DisruptionCommand;
use mortise_planning::disruption::disruption_view::DisruptionView;
use mortise_planning::reason::{Reason, SchedulingFailure};
use mortise_planning::scheduling::PlannedClaim;
use mortise_state::feasible_pods::FeasiblePods;
use mortise_state::ledger::NominationTarget;
use mortise_state::snapshot::{Snapshot, StateNode};

use super::dry_run::DryRun;
use super::report::{
    BlockedNode, PlanReport, PlanTotals, PlannedAction, PlannedCommand, PlannedLaunch, PlannedMove,
    RemovedNode, UnplacedPods,
};

/// The plan of a run that began at `start`.
pub(super) fn summarize(run: &mut DryRun, start: Timestamp) -> PlanReport {
    let snapshot = run.engine.snapshot(run.now);
    let abandoned = abandoned(&run.records);
    run.commands.retain(|command| {
        !command
            .targets
            .iter()
            .any(|each| abandoned.contains(&each.node))
    });
    let run = &*run;
    let launches = launches(run, &snapshot);
    let commands: Vec<PlannedCommand> = run
        .commands
        .iter()
        .map(|command| planned_command(command, &snapshot))
        .collect();
    let blocked = blocked(run, &snapshot);
    let totals = totals(run, &snapshot, &launches, &commands);
    let left: BTreeSet<&NodeName> = run
        .commands
        .iter()
        .flat_map(|command| &command.targets)
        .map(|target| &target.node)
        .collect();
    PlanReport {
        taken_at: start,
        nodes: snapshot.nodes.len().saturating_sub(launches.len()),
        pods: snapshot.pods.len(),
        pending: snapshot.pending.len(),
        placements: placements(run, &snapshot),
        launches,
        commands,
        actions: actions(run),
        unplaced: unplaced(&run.records, &snapshot),
        kept: kept(&run.records, &snapshot, &left, &blocked),
        blocked,
        totals,
    }
}

/// Nodes whose command was abandoned when it was validated.
fn abandoned(records: &[Record]) -> BTreeSet<NodeName> {
    let all = records
        .iter()
        .filter(|record| record.verdict == Verdict::Abandoned);
    all.filter_map(|record| match &record.subject {
        ObjectRef::Node(node) => Some(node.clone()),
        _ => None,
    })
    .collect()
}

/// NodeClaims to create that belong to no command.
fn launches(run: &DryRun, snapshot: &Snapshot) -> Vec<PlannedLaunch> {
    let planned = run
        .records
        .iter()
        .filter_map(|record| match &record.subject {
            ObjectRef::Claim(claim) if record.verdict == Verdict::NodePlanned => {
                Some((claim, &record.reasons))
            }
            _ => None,
        });
    let reasons: BTreeMap<&ClaimName, &Vec<Reason>> = planned.collect();
    let mut all: Vec<PlannedLaunch> = Vec::new();
    for (name, claim) in &run.claims {
        let reasons = reasons.get(name);
        let offering =
            reasons
                .into_iter()
                .flat_map(|all| all.iter())
                .find_map(|reason| match reason {
                    Reason::Offering {
                        instance_type,
                        zone,
                        capacity_type,
                        price,
                    } => Some((instance_type, zone, capacity_type, *price)),
                    _ => None,
                });
        let place = NominationTarget::Claim(name.clone());
        let nominations = snapshot.ledger.nominations_to(&place);
        let mut pods: Vec<PodKey> = nominations.map(|each| each.pod.clone()).collect();
        pods.sort();
        all.push(PlannedLaunch {
            node_pool: claim
                .pool()
                .map(|pool| pool.to_string())
                .unwrap_or_default(),
            instance_type: offering.map(|(name, ..)| name.clone()),
            zone: offering.map(|(_, zone, ..)| zone.clone()),
            capacity_type: offering.map(|(_, _, capacity_type, _)| capacity_type.clone()),
            price_micro_usd: offering.and_then(|(.., price)| price),
            instance_types: instance_types(claim),
            pods,
        });
    }
    all.sort_by(|a, b| (&a.node_pool, &a.pods).cmp(&(&b.node_pool, &b.pods)));
    all
}

/// Instance types in the order in which the NodeClaim lists them.
fn instance_types(claim: &NodeClaim) -> Vec<String> {
    let all = claim.spec.requirements.iter();
    let of_type = all.filter(|spec| spec.key == labels::INSTANCE_TYPE);
    of_type.flat_map(|spec| spec.values().to_vec()).collect()
}

fn planned_claim(claim: &PlannedClaim) -> PlannedLaunch {
    let cheapest = claim.cheapest.as_ref();
    let mut pods: Vec<PodKey> = claim.pods.iter().map(|pod| pod.key.clone()).collect();
    pods.sort();
    PlannedLaunch {
        node_pool: claim.pool.to_string(),
        instance_type: cheapest.map(|each| each.instance_type.to_string()),
        zone: cheapest.map(|each| each.zone.to_string()),
        capacity_type: cheapest.map(|each| each.capacity_type.to_string()),
        price_micro_usd: cheapest.and_then(|each| each.price),
        instance_types: claim
            .instance_types
            .iter()
            .map(ToString::to_string)
            .collect(),
        pods,
    }
}

fn planned_command(command: &DisruptionCommand, snapshot: &Snapshot) -> PlannedCommand {
    let nodes = command.targets.iter().map(|target| {
        let node = snapshot.nodes.get(&*target.key);
        RemovedNode {
            name: target.node.to_string(),
            node_pool: target.pool.to_string(),
            instance_type: node
                .and_then(|node| node.instance_type())
                .map(str::to_owned),
            zone: node.and_then(|node| node.zone()).map(str::to_owned),
            price_micro_usd: node.and_then(|node| node.price),
            drifted: target.detail.clone(),
        }
    });
    let nodes: Vec<RemovedNode> = nodes.collect();
    let mut moves: Vec<PlannedMove> = command
        .moves
        .placements
        .iter()
        .map(|placement| PlannedMove {
            pod: placement.pod.key.clone(),
            to: name_of(&placement.place),
        })
        .collect();
    moves.sort_by(|a, b| a.pod.cmp(&b.pod));
    let replacements: Vec<PlannedLaunch> = command.moves.claims.iter().map(planned_claim).collect();
    PlannedCommand {
        reason: command.reason().as_str(),
        before_micro_usd: nodes.iter().map(|node| node.price_micro_usd).sum(),
        after_micro_usd: replacements.iter().map(|each| each.price_micro_usd).sum(),
        nodes,
        replacements,
        moves,
    }
}

fn name_of(place: &NominationTarget) -> String {
    match place {
        NominationTarget::Node(node) => node.to_string(),
        NominationTarget::Claim(claim) => claim.to_string(),
    }
}

/// Pending pods that are nominated to nodes that are there or starting.
fn placements(run: &DryRun, snapshot: &Snapshot) -> Vec<PlannedMove> {
    let nominations = snapshot
        .ledger
        .nominations()
        .filter(|each| match &each.place {
            NominationTarget::Claim(claim) => !run.is_new(claim),
            NominationTarget::Node(_) => true,
        });
    let mut all: Vec<PlannedMove> = nominations
        .map(|each| PlannedMove {
            pod: each.pod.clone(),
            to: name_of(&each.place),
        })
        .collect();
    all.sort_by(|a, b| a.pod.cmp(&b.pod));
    all
}

/// Requests that are neither launches for pods nor part of a command.
fn actions(run: &DryRun) -> Vec<PlannedAction> {
    let action = |effect: &Effect| match effect {
        Effect::Delete { .. } => "delete",
        Effect::Evict { .. } => "evict",
        Effect::Launch(_) => "launch",
        _ => "terminate",
    };
    let all: BTreeSet<PlannedAction> = run
        .others
        .iter()
        .map(|request| PlannedAction {
            by: request.decider.label(),
            action: action(&request.effect),
            object: request
                .effect
                .target()
                .map(|target| target.to_string())
                .unwrap_or_default(),
        })
        .collect();
    all.into_iter().collect()
}

/// Pods that the last pass could not place, and pods that are not placed at all.
fn unplaced(records: &[Record], snapshot: &Snapshot) -> Vec<UnplacedPods> {
    let mut last: BTreeMap<&PodKey, Option<String>> = BTreeMap::new();
    for record in records
        .iter()
        .filter(|each| each.decider == DeciderId::Provisioning)
    {
        let ObjectRef::Pod(pod) = &record.subject else {
            continue;
        };
        match record.verdict {
            Verdict::Unschedulable => {
                let why = SchedulingFailure::new(&record.reasons).to_string();
                last.insert(pod, Some(why));
            }
            Verdict::Ignored => {
                let why = record.reasons.first().map(ToString::to_string);
                last.insert(pod, Some(why.unwrap_or_default()));
            }
            Verdict::Nominated => drop(last.insert(pod, None)),
            _ => {}
        }
    }
    let mut by_reason: BTreeMap<String, Vec<PodKey>> = BTreeMap::new();
    for (pod, why) in last {
        if let Some(why) = why
            && snapshot.pending.get(pod).is_some()
        {
            by_reason.entry(why).or_default().push(pod.clone());
        }
    }
    by_reason
        .into_iter()
        .map(|(why, pods)| UnplacedPods { pods, why })
        .collect()
}

fn pool_of(node: &StateNode) -> String {
    node.pool().map(|pool| pool.to_string()).unwrap_or_default()
}

/// Managed nodes that may not be disrupted.
fn blocked(run: &DryRun, snapshot: &Arc<Snapshot>) -> Vec<BlockedNode> {
    let feasible = FeasiblePods::default();
    let context = PlanningContext {
        now: run.now,
        snapshot,
        settings: run.engine.settings(),
        feasible: &feasible,
        seed: 0,
    };
    let commands = run
        .commands
        .iter()
        .map(|command| (command.id, command.clone()));
    let commands: BTreeMap<u64, DisruptionCommand> = commands.collect();
    let view = DisruptionView::new(context, &commands, None);
    let mut all: Vec<BlockedNode> = Vec::new();
    for node in view.nodes() {
        if node.claim_name().is_some_and(|claim| run.is_new(&claim)) {
            continue;
        }
        match Candidate::new(node, &view, DisruptionClass::Graceful) {
            Ok(_) | Err(CandidateBlocker::Unmanaged | CandidateBlocker::Deleting) => {}
            Err(blocker) => all.push(BlockedNode {
                node: node.name().to_owned(),
                node_pool: pool_of(node),
                why: blocker.to_string(),
            }),
        }
    }
    all.sort();
    all
}

/// Nodes that disruption refused, with the last reasons.
fn kept(
    records: &[Record],
    snapshot: &Snapshot,
    left: &BTreeSet<&NodeName>,
    blocked: &[BlockedNode],
) -> Vec<BlockedNode> {
    let blocked: BTreeSet<&str> = blocked.iter().map(|each| each.node.as_str()).collect();
    let mut last: BTreeMap<&NodeName, &Record> = BTreeMap::new();
    for record in records {
        if let (DeciderId::Disruption, Verdict::Refused | Verdict::Blocked, ObjectRef::Node(node)) =
            (record.decider, record.verdict, &record.subject)
        {
            last.insert(node, record);
        }
    }
    let kept = last.into_iter().filter(|(node, record)| {
        record.verdict == Verdict::Refused
            && !left.contains(node)
            && !blocked.contains(node.as_str())
    });
    kept.map(|(node, record)| BlockedNode {
        node: node.to_string(),
        node_pool: snapshot
            .node(node)
            .map(|node| pool_of(node))
            .unwrap_or_default(),
        why: texts(&record.reasons),
    })
    .collect()
}

fn texts(reasons: &[Reason]) -> String {
    let texts: Vec<String> = reasons.iter().map(ToString::to_string).collect();
    texts.join("; ")
}

fn totals(
    run: &DryRun,
    snapshot: &Snapshot,
    launches: &[PlannedLaunch],
    commands: &[PlannedCommand],
) -> PlanTotals {
    let mut totals = PlanTotals::default();
    let is_new = |node: &StateNode| node.claim_name().is_some_and(|claim| run.is_new(&claim));
    let nodes = snapshot.nodes.values();
    for node in nodes.filter(|node| node.is_managed() && !is_new(node)) {
        let price = node.price.unwrap_or_default();
        totals.unknown_prices += usize::from(node.price.is_none());
        totals.before_micro_usd += price;
        if node.deleting {
            totals.removed_micro_usd += price;
        }
    }
    for launch in launches {
        totals.unknown_prices += usize::from(launch.price_micro_usd.is_none());
        totals.launches_micro_usd += launch.price_micro_usd.unwrap_or_default();
    }
    for command in commands {
        match command.before_micro_usd.zip(command.after_micro_usd) {
            Some((before, after)) => totals.commands_micro_usd += after - before,
            None => totals.unknown_prices += 1,
        }
    }
    let change = totals.launches_micro_usd + totals.commands_micro_usd;
    totals.after_micro_usd = totals.before_micro_usd - totals.removed_micro_usd + change;
    totals
}
