//! Validating the premises of a command again, on a fresh snapshot of the cluster.

use std::collections::BTreeMap;

use jiff::Timestamp;

use mortise_apis::names::ClaimName;
use mortise_engine::decider::StepInput;
use mortise_planning::disruption::candidate::Candidate;
use mortise_planning::disruption::command::{
    DisruptedNode, DisruptionCommand, DisruptionReason, Method, RelocationPlan,
};
use mortise_planning::disruption::disruption_view::DisruptionView;
use mortise_planning::disruption::price::narrow_to;
use mortise_planning::disruption::search::{Ineligible, eligible};
use mortise_planning::disruption::simulation::{SimulationRules, what_if};
use mortise_planning::disruption::{DriftHold, static_drift};
use mortise_planning::pause;
use mortise_planning::reason::Reason;
use mortise_planning::scheduling::PlannedClaim;

/// Why a command is abandoned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct InvalidatedCommand {
    /// Karpenter's word: `budget`, `scheduling`, `churn` or `unknown`.
    pub(super) word: &'static str,
    /// Why.
    pub(super) reasons: Vec<Reason>,
}

const STOPPED: &str = "stopped";

impl InvalidatedCommand {
    /// With a text.
    pub(super) fn new(word: &'static str, what: impl Into<String>) -> Self {
        Self::because(word, Reason::PremiseChanged { what: what.into() })
    }

    /// With a reason.
    pub(super) fn because(word: &'static str, reason: Reason) -> Self {
        Self {
            word,
            reasons: vec![reason],
        }
    }

    /// The pods have another place to go now, or none.
    pub(super) fn scheduling(what: impl Into<String>) -> Self {
        Self::new("scheduling", what)
    }

    /// A node is gone, or is deleted by others.
    pub(super) fn vanished(target: &DisruptedNode) -> Self {
        Self::new("churn", format!("node {} is there", target.node))
    }

    /// A replacement failed.
    pub(super) fn replacement(error: &str) -> Self {
        let error = error.to_owned();
        Self::because("unknown", Reason::Failed { error })
    }

    /// A replacement failed, so that another one would probably fail as well.
    pub(super) fn is_of_replacement(&self) -> bool {
        matches!(self.reasons.as_slice(), [Reason::Failed { .. }])
    }

    /// It is not known: time ran out.
    pub(super) fn is_stopped(&self) -> bool {
        self.word == STOPPED
    }
}

/// A command as it is now.
pub(super) struct RevalidatedCommand {
    /// Nodes to delete. Never empty.
    pub(super) targets: Vec<DisruptedNode>,
    /// Where their pods go.
    pub(super) moves: RelocationPlan,
    /// Nodes that stay after all.
    pub(super) dropped: Vec<(DisruptedNode, Vec<Reason>)>,
}

/// Whether the command still holds.
///
/// Empty nodes that are no longer empty leave their command. Any other command stands or falls as a whole: its nodes
/// must all still be candidates, the budgets must still allow them, its pods must still have a place, and no more must
/// be launched than was decided, of no other types.
pub(super) fn revalidate(
    command: &DisruptionCommand,
    world: &DisruptionView<'_>,
    received: &BTreeMap<ClaimName, Timestamp>,
    stop: &dyn Fn() -> bool,
) -> Result<RevalidatedCommand, InvalidatedCommand> {
    let mut kept: Vec<Candidate> = Vec::new();
    let mut dropped: Vec<(DisruptedNode, Vec<Reason>)> = Vec::new();
    let mut allocation = world.budgets.allocation(command.reason());
    for target in &command.targets {
        let found = still(target, command.method, world, received).and_then(|candidate| {
            if allocation.allocate(&candidate.pool_name) {
                return Ok(candidate);
            }
            let allowed = world
                .budgets
                .allowed(&candidate.pool_name, command.reason())
                .unwrap_or(i64::MAX);
            let pool = candidate.pool_name.clone();
            Err(InvalidatedCommand::because(
                "budget",
                Reason::Budget { pool, allowed },
            ))
        });
        match found {
            Ok(candidate) => kept.push(candidate),
            Err(stale) if command.method == Method::Emptiness => {
                dropped.push((target.clone(), stale.reasons));
            }
            Err(stale) => return Err(stale),
        }
    }
    if kept.is_empty() {
        let reasons = dropped.pop().map(|(_, reasons)| reasons);
        return Err(InvalidatedCommand {
            word: "churn",
            reasons: reasons.unwrap_or_default(),
        });
    }
    let moves = moves(command, &kept, world, stop)?;
    let targets = kept
        .iter()
        .map(|candidate| {
            let mut target = DisruptedNode::from(candidate);
            let before = command.targets.iter().find(|each| each.key == target.key);
            target.detail = before
                .and_then(|before| before.detail.clone())
                .or(target.detail);
            target
        })
        .collect();
    Ok(RevalidatedCommand {
        targets,
        moves,
        dropped,
    })
}

fn still(
    target: &DisruptedNode,
    method: Method,
    world: &DisruptionView<'_>,
    received: &BTreeMap<ClaimName, Timestamp>,
) -> Result<Candidate, InvalidatedCommand> {
    let node = world.snapshot().nodes.get(&*target.key);
    let node = node.ok_or_else(|| InvalidatedCommand::vanished(target))?;
    let candidate = Candidate::new(node, world, method.candidate_class())
        .map_err(|blocker| InvalidatedCommand::because("churn", blocker.reason()))?;
    if candidate.claim.uid() != target.uid {
        return Err(InvalidatedCommand::vanished(target));
    }
    let holds = match method {
        Method::Emptiness => {
            candidate.is_empty()
                && candidate.is_consolidatable()
                && world.room().pods_on(candidate.key()) == 0
        }
        Method::Drift => {
            if let Some(hold) = DriftHold::of(&candidate, world) {
                return Err(InvalidatedCommand {
                    word: "budget",
                    reasons: hold.rejection().reasons,
                });
            }
            candidate.drifted().is_some()
        }
        Method::Multi | Method::Single | Method::Repack => {
            match eligible(&candidate, world, received) {
                Ok(()) => true,
                // Without pods it is a better candidate than before.
                Err(Ineligible::NotYet) => candidate.is_empty() && candidate.is_consolidatable(),
                Err(Ineligible::Resting(until)) => {
                    return Err(InvalidatedCommand::because(
                        "churn",
                        Reason::CooldownActive { until },
                    ));
                }
                Err(Ineligible::Refused(refusal)) => {
                    return Err(InvalidatedCommand {
                        word: "churn",
                        reasons: refusal.reasons,
                    });
                }
            }
        }
    };
    if holds {
        return Ok(candidate);
    }
    let what = match method {
        Method::Emptiness => format!("node {} is empty and consolidatable", target.node),
        Method::Drift => format!("node {} is drifted", target.node),
        Method::Multi | Method::Single | Method::Repack => {
            format!("node {} is consolidatable", target.node)
        }
    };
    Err(InvalidatedCommand::new("churn", what))
}

fn moves(
    command: &DisruptionCommand,
    kept: &[Candidate],
    world: &DisruptionView<'_>,
    stop: &dyn Fn() -> bool,
) -> Result<RelocationPlan, InvalidatedCommand> {
    if let ([only], Method::Drift) = (kept, command.method)
        && only.pool.is_static()
    {
        return static_drift::replacement(only, world).map_err(|refusal| InvalidatedCommand {
            word: "scheduling",
            reasons: refusal.reasons,
        });
    }
    let candidates: Vec<&Candidate> = kept.iter().collect();
    let rules = match command.method {
        Method::Emptiness if kept.iter().all(|each| each.pods.is_empty()) => {
            return Ok(RelocationPlan::default());
        }
        Method::Emptiness => SimulationRules::ExistingOnly,
        Method::Drift => SimulationRules::AnyPrice,
        Method::Multi | Method::Single => SimulationRules::Cheaper,
        Method::Repack => SimulationRules::CheaperTogether,
    };
    let mut moves =
        what_if(&candidates, rules, world, stop).map_err(|refusal| InvalidatedCommand {
            word: if refusal.stopped {
                STOPPED
            } else {
                "scheduling"
            },
            reasons: refusal.reasons,
        })?;
    if !command.method.is_consolidation() {
        return Ok(moves);
    }
    if moves.claims.len() > command.moves.claims.len() {
        return Err(InvalidatedCommand::scheduling(
            "its pods fit without a new node",
        ));
    }
    if command.method == Method::Repack {
        return repacked(command, moves);
    }
    let mut claims = Vec::new();
    for (fresh, decided) in moves.claims.into_iter().zip(&command.moves.claims) {
        let same = fresh.pool == decided.pool
            && decided
                .instance_types
                .iter()
                .all(|name| fresh.instance_types.contains(name));
        if !same {
            return Err(InvalidatedCommand::scheduling(
                "the replacement can be one of the types decided",
            ));
        }
        // What was decided is kept: a type that only now became cheap was not weighed.
        claims.push(narrow_to(fresh, &decided.instance_types, world));
    }
    moves.new = claims.iter().map(PlannedClaim::cost).sum();
    moves.claims = claims;
    Ok(moves)
}

/// What a repacking must still save, in percent of what it was to save when it was decided.
const LEAST_LEFT_PERCENT: i64 = 90;

/// New nodes may be others than those decided, since each packing is one of many. They keep the rules of the search, and save
/// nearly as much as decided.
fn repacked(
    command: &DisruptionCommand,
    fresh: RelocationPlan,
) -> Result<RelocationPlan, InvalidatedCommand> {
    let decided = command.moves.savings().unwrap_or_default();
    let holds = fresh.savings().is_some_and(|fresh| {
        fresh.0.saturating_mul(100) >= decided.0.saturating_mul(LEAST_LEFT_PERCENT)
    });
    if holds {
        return Ok(fresh);
    }
    Err(InvalidatedCommand::scheduling(format!(
        "moving its pods saves {LEAST_LEFT_PERCENT} % of what was decided"
    )))
}

/// Between taint and deletion minutes may pass: nothing that came to be protected meanwhile is touched.
pub(super) fn last_look(
    command: &DisruptionCommand,
    input: &StepInput<'_>,
) -> Result<(), InvalidatedCommand> {
    for target in &command.targets {
        let Some(node) = input.snapshot.nodes.get(&*target.key) else {
            continue;
        };
        if let Some(by) = node.protecting_annotation() {
            return Err(InvalidatedCommand::because(
                "churn",
                Reason::DoNotDisruptNode { by },
            ));
        }
        if let Some(pause) = pause::of_node(input.snapshot, node, input.now) {
            return Err(InvalidatedCommand::because("churn", Reason::Paused(pause)));
        }
        let eventual = command.reason() == DisruptionReason::Drifted
            && node
                .claim
                .as_ref()
                .is_some_and(|claim| claim.spec.termination_grace_period.is_some());
        let protected = node.pods.iter().find(|pod| !pod.is_disruptable(input.now));
        if let Some(pod) = protected.filter(|_| !eventual) {
            let by = pod.protecting_annotation();
            let pod = pod.key.clone();
            return Err(InvalidatedCommand::because(
                "churn",
                Reason::DoNotDisruptPod { pod, by },
            ));
        }
        let moves_pods = !command.moves.placements.is_empty() || !command.moves.claims.is_empty();
        if command.method == Method::Emptiness
            && !moves_pods
            && let Some(pod) = node.reschedulable().next()
        {
            return Err(InvalidatedCommand::scheduling(format!(
                "pod {} came",
                pod.key
            )));
        }
    }
    Ok(())
}
