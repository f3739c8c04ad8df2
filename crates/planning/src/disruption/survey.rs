//! Disruption state of every node, and what each method would do. Nothing is executed: for `explain`, for `plan`, and for
//! comparison with recorded decisions.

use std::collections::BTreeMap;

use serde::Serialize;

use super::candidate::{Candidate, CandidateBlocker, DisruptionClass};
use super::command::DisruptionReason;
use super::disruption_view::DisruptionView;
use super::refusals::Refusals;
use super::search::{self, ConsolidationSearch, FoundCommand, Ineligible, SearchOutcome};
use super::simulation::{SimulationRules, what_if};
use crate::context::PlanningContext;
use crate::reason::Reason;
use crate::scheduling::PlannedClaim;
use mortise_apis::names::{NodeName, PodKey, PoolName};
use mortise_apis::values::money::MicroUsd;
use mortise_state::snapshot::EvictionCost;

/// The disruption state of a node.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodeSurvey {
    /// Name of its Node, or of its NodeClaim while there is no Node.
    pub name: String,
    /// Price; `None` when unknown.
    pub price: Option<MicroUsd>,
    /// Cost of its disruption.
    pub cost: EvictionCost,
    /// Pods that would have to move. In the order of their keys.
    pub pods: Vec<PodKey>,
    /// Why it may not be consolidated, with Karpenter's text and as a reason.
    pub blocked: Option<(String, Reason)>,
    /// Why it may not be disrupted at all, not even with a termination grace period.
    pub blocked_for_good: Option<(String, Reason)>,
    /// Why it may not be consolidated, although it may be disrupted.
    pub ineligible: Option<String>,
}

/// The command that a method would propose.
#[derive(Clone, Debug)]
pub struct Proposal {
    /// `emptiness`, `drift`, `multi` or `single`.
    pub method: &'static str,
    /// Nodes to remove.
    pub nodes: Vec<NodeName>,
    /// NodeClaims to create.
    pub claims: Vec<PlannedClaim>,
    /// Savings; `None` when a price is unknown.
    pub savings: Option<MicroUsd>,
}

/// Result of [`survey`].
#[derive(Clone, Debug, Default)]
pub struct Survey {
    /// Nodes with a NodeClaim.
    pub machines: Vec<NodeSurvey>,
    /// Remaining disruptions of each NodePool for each reason; `None` means no limit.
    pub allowed: BTreeMap<(PoolName, &'static str), Option<i64>>,
    /// Proposal of each method on its own. Methods without a proposal are not listed.
    pub proposals: Vec<Proposal>,
    /// Rejections of consolidation, by Node.
    pub refusals: BTreeMap<NodeName, String>,
}

/// At what price nodes may be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplacementPricing {
    /// By one that is cheaper, as consolidation does.
    Cheaper,
    /// By as many as are needed at any price, as drift does.
    AnyPrice,
}

/// Where these Nodes' pods would run, and what would replace the Nodes, if they were removed together. Budgets and
/// blockers are ignored: the result is what would happen, not whether it is allowed.
///
/// # Errors
/// Why it would be rejected: a name of no managed Node, unschedulable pods, or no cheaper replacement.
pub fn consider(
    context: PlanningContext<'_>,
    nodes: &[NodeName],
    terms: ReplacementPricing,
    stop: &dyn Fn() -> bool,
) -> Result<Proposal, String> {
    let view = DisruptionView::new(context, &BTreeMap::new(), None).without_bound();
    let mut candidates = Vec::new();
    for name in nodes {
        let node = context.snapshot.node(name);
        let node = node.ok_or_else(|| format!("there is no node {name}"))?;
        candidates.push(
            Candidate::unchecked(node, view.snapshot())
                .ok_or_else(|| format!("node {name} is unmanaged, or belongs to no NodePool"))?,
        );
    }
    let candidates: Vec<&Candidate> = candidates.iter().collect();
    let rules = match terms {
        ReplacementPricing::Cheaper => SimulationRules::Cheaper,
        ReplacementPricing::AnyPrice => SimulationRules::AnyPrice,
    };
    let moves = what_if(&candidates, rules, &view, stop).map_err(|refusal| {
        if refusal.stopped {
            "time ran out".to_owned()
        } else {
            refusal.text()
        }
    })?;
    Ok(Proposal {
        method: match terms {
            ReplacementPricing::Cheaper if nodes.len() > 1 => "multi",
            ReplacementPricing::Cheaper => "single",
            ReplacementPricing::AnyPrice => "drift",
        },
        nodes: nodes.to_vec(),
        savings: moves.savings(),
        claims: moves.claims,
    })
}

/// Evaluates everything, as if no command were in progress. `stop` returns true when the result so far is due.
///
/// # Cost
/// One simulation for each node that may be consolidated; for requests of users, not for loops.
#[must_use]
pub fn survey(context: PlanningContext<'_>, stop: &dyn Fn() -> bool) -> Survey {
    let none = BTreeMap::new();
    let view = DisruptionView::new(context, &none, None).without_bound();
    let received = BTreeMap::new();
    let mut survey = Survey::default();
    let (mut graceful, mut eventual) = (Vec::new(), Vec::new());
    for node in view.nodes().into_iter().filter(|node| node.is_managed()) {
        let text = |blocker: &CandidateBlocker| (blocker.to_string(), blocker.reason());
        let first = Candidate::new(node, &view, DisruptionClass::Graceful);
        let second = Candidate::new(node, &view, DisruptionClass::Eventual);
        let ineligible = match first
            .as_ref()
            .map(|each| search::eligible(each, &view, &received))
        {
            Ok(Err(Ineligible::Refused(refusal))) => Some(refusal.text()),
            Ok(Err(Ineligible::Resting(until))) => {
                Some(Reason::CooldownActive { until }.to_string())
            }
            Ok(Err(Ineligible::NotYet)) => Some("not consolidatable".to_owned()),
            Ok(Ok(())) | Err(_) => None,
        };
        survey.machines.push(NodeSurvey {
            name: node.name().to_owned(),
            price: node.price,
            cost: super::cost::of_node(node),
            pods: node.reschedulable().map(|pod| pod.key.clone()).collect(),
            blocked: first.as_ref().err().map(text),
            blocked_for_good: second.as_ref().err().map(text),
            ineligible,
        });
        graceful.extend(first);
        eventual.extend(second);
    }
    for pool in view.snapshot().pools.keys() {
        for reason in DisruptionReason::ALL {
            let left = view.budgets.remaining(pool, reason);
            let left = view.budgets.allowed(pool, reason).map(|_| left);
            survey.allowed.insert((pool.clone(), reason.as_str()), left);
        }
    }
    let mut propose = |method, found: FoundCommand| {
        survey.proposals.push(Proposal {
            method,
            nodes: found
                .candidates
                .iter()
                .map(|each| each.node_name.clone())
                .collect(),
            savings: found.moves.savings(),
            claims: found.moves.claims,
        });
    };
    let mut none = Refusals::default();
    if let SearchOutcome::Found(found) = search::empty(&graceful, &view, &mut none, stop) {
        propose("emptiness", *found);
    }
    let mut none = Refusals::default();
    let drifted = search::drifted(&eventual, &view, |_| false, &mut none, |_, _| {}, stop);
    if let SearchOutcome::Found(found) = drifted {
        propose("drift", *found);
    }
    let eligible: Vec<&Candidate> = graceful
        .iter()
        .filter(|each| search::eligible(each, &view, &received).is_ok())
        .collect();
    let mut refusals = BTreeMap::new();
    let refused = |candidate: &Candidate, refusal: &super::rejection::DisruptionRejection| {
        refusals.insert(candidate.node_name.clone(), refusal.text());
    };
    let (multi, single) = ConsolidationSearch::default().both(eligible, &view, refused, stop);
    if let SearchOutcome::Found(found) = multi {
        propose("multi", *found);
    }
    if let SearchOutcome::Found(found) = single {
        propose("single", *found);
    }
    survey.refusals = refusals;
    survey
}
