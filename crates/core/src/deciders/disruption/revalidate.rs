//! Looking at the premises of a command again, on a fresh picture of the cluster.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::candidate::Candidate;
use super::command::{Command, Method, Moves, Target};
use super::price::only;
use super::queue::class_of;
use super::search::{Ineligible, eligible};
use super::static_drift;
use super::what_if::{Rules, what_if};
use super::world::World;
use crate::names::ClaimName;
use crate::record::Reason;

/// Why a command is given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stale {
    /// Upstream's word: `budget`, `scheduling`, `churn` or `unknown`.
    pub(super) word: &'static str,
    /// Why.
    pub(super) reasons: Vec<Reason>,
}

const STOPPED: &str = "stopped";

impl Stale {
    /// With a text.
    pub(super) fn new(word: &'static str, what: impl Into<String>) -> Self {
        Self::because(word, Reason::Stale { what: what.into() })
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

    /// A machine is gone, or goes by itself.
    pub(super) fn vanished(target: &Target) -> Self {
        Self::new("churn", format!("node {} is there", target.node))
    }

    /// A replacement failed.
    pub(super) fn replacement(error: &str) -> Self {
        let error = error.to_owned();
        Self::because("unknown", Reason::Failed { error })
    }

    /// It is not known: time ran out.
    pub(super) fn is_stopped(&self) -> bool {
        self.word == STOPPED
    }
}

/// A command as it is now.
pub(super) struct Fresh {
    /// Machines that go. Never empty.
    pub(super) targets: Vec<Target>,
    /// Where their pods go.
    pub(super) moves: Moves,
    /// Machines that stay after all.
    pub(super) dropped: Vec<(Target, Vec<Reason>)>,
}

/// Whether the command still holds.
///
/// Empty machines that are no longer empty leave their command. Any other command stands or falls as a whole: its machines
/// must all still be candidates, the budgets must still allow them, its pods must still have a place, and no more must be
/// bought than was decided, of no other types.
pub(super) fn revalidate(
    command: &Command,
    world: &World<'_>,
    received: &BTreeMap<ClaimName, Timestamp>,
    stop: &dyn Fn() -> bool,
) -> Result<Fresh, Stale> {
    let mut kept: Vec<Candidate> = Vec::new();
    let mut dropped: Vec<(Target, Vec<Reason>)> = Vec::new();
    let mut purse = world.budgets.purse(command.reason());
    for target in &command.targets {
        let found = still(target, command.method, world, received).and_then(|candidate| {
            if purse.take(&candidate.pool_name) {
                return Ok(candidate);
            }
            let allowed = world
                .budgets
                .allowed(&candidate.pool_name, command.reason())
                .unwrap_or(i64::MAX);
            let pool = candidate.pool_name.clone();
            Err(Stale::because("budget", Reason::Budget { pool, allowed }))
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
        return Err(Stale {
            word: "churn",
            reasons: reasons.unwrap_or_default(),
        });
    }
    let moves = moves(command, &kept, world, stop)?;
    let targets = kept
        .iter()
        .map(|candidate| {
            let mut target = Target::from(candidate);
            let before = command.targets.iter().find(|each| each.key == target.key);
            target.detail = before
                .and_then(|before| before.detail.clone())
                .or(target.detail);
            target
        })
        .collect();
    Ok(Fresh {
        targets,
        moves,
        dropped,
    })
}

fn still(
    target: &Target,
    method: Method,
    world: &World<'_>,
    received: &BTreeMap<ClaimName, Timestamp>,
) -> Result<Candidate, Stale> {
    let node = world.snapshot().nodes.get(&*target.key);
    let node = node.ok_or_else(|| Stale::vanished(target))?;
    let candidate = Candidate::of(node, world, class_of(method))
        .map_err(|blocker| Stale::because("churn", blocker.reason()))?;
    if candidate.claim.uid() != target.uid {
        return Err(Stale::vanished(target));
    }
    let holds = match method {
        Method::Emptiness => candidate.is_empty() && candidate.is_consolidatable(),
        Method::Drift => candidate.drifted().is_some(),
        Method::Multi | Method::Single => match eligible(&candidate, world, received) {
            Ok(()) => true,
            // Without pods it is a better candidate than before.
            Err(Ineligible::NotYet) => candidate.is_empty() && candidate.is_consolidatable(),
            Err(Ineligible::Resting(until)) => {
                return Err(Stale::because("churn", Reason::Resting { until }));
            }
            Err(Ineligible::Refused(refusal)) => {
                return Err(Stale {
                    word: "churn",
                    reasons: refusal.reasons,
                });
            }
        },
    };
    if holds {
        return Ok(candidate);
    }
    let what = match method {
        Method::Emptiness => format!("node {} is empty and consolidatable", target.node),
        Method::Drift => format!("node {} is drifted", target.node),
        Method::Multi | Method::Single => format!("node {} is consolidatable", target.node),
    };
    Err(Stale::new("churn", what))
}

fn moves(
    command: &Command,
    kept: &[Candidate],
    world: &World<'_>,
    stop: &dyn Fn() -> bool,
) -> Result<Moves, Stale> {
    if let ([only], Method::Drift) = (kept, command.method)
        && only.pool.is_static()
    {
        return static_drift::replacement(only, world).map_err(|refusal| Stale {
            word: "scheduling",
            reasons: refusal.reasons,
        });
    }
    let candidates: Vec<&Candidate> = kept.iter().collect();
    let rules = match command.method {
        Method::Emptiness if kept.iter().all(|each| each.pods.is_empty()) => {
            return Ok(Moves::default());
        }
        Method::Emptiness => Rules::ExistingOnly,
        Method::Drift => Rules::AnyPrice,
        Method::Multi | Method::Single => Rules::Cheaper,
    };
    let mut moves = what_if(&candidates, rules, world, stop).map_err(|refusal| Stale {
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
        return Err(Stale::scheduling("its pods fit without a new node"));
    }
    let mut claims = Vec::new();
    for (fresh, decided) in moves.claims.into_iter().zip(&command.moves.claims) {
        let same = fresh.pool == decided.pool
            && decided
                .instance_types
                .iter()
                .all(|name| fresh.instance_types.contains(name));
        if !same {
            return Err(Stale::scheduling(
                "the replacement can be one of the types decided",
            ));
        }
        // What was decided is kept: a type that only now became cheap was not weighed.
        claims.push(only(fresh, &decided.instance_types, world));
    }
    moves.new = claims
        .iter()
        .map(|claim| claim.cheapest.as_ref().and_then(|cheapest| cheapest.price))
        .sum();
    moves.claims = claims;
    Ok(moves)
}
