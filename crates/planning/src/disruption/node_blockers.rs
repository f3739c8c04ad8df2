//! What keeps a node from being disrupted voluntarily. There is one list of checks: a candidate needs the first blocker, and people get all.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use jiff::Timestamp;

use super::candidate::{Candidate, CandidateBlocker, DisruptionClass, Policy};
use super::upgrade_drift::UpgradeDrift;
use crate::brake::Brake;
use crate::drain::is_handed_over;
use crate::drain::pdb::{EvictionBlocked, Pdbs};
use crate::pause;
use crate::reason::{DisruptionBlocker, Reason};
use mortise_apis::labels;
use mortise_apis::names::{ClaimName, NodeName, PodKey, PoolName};
use mortise_state::snapshot::{Snapshot, StateNode};

/// What blockers are read from.
#[derive(Clone, Copy)]
pub struct BlockerFacts<'a> {
    /// The cluster.
    pub snapshot: &'a Snapshot,
    /// Its PodDisruptionBudgets.
    pub pdbs: &'a Pdbs<'a>,
    /// The brake, if it holds.
    pub brake: Option<Brake>,
    /// Now.
    pub now: Timestamp,
}

impl<'a> BlockerFacts<'a> {
    /// Those of a snapshot. Cost: one pass over the nodes, for the brake.
    #[must_use]
    pub fn new(snapshot: &'a Snapshot, pdbs: &'a Pdbs<'a>, now: Timestamp) -> Self {
        Self {
            snapshot,
            pdbs,
            brake: Brake::of(snapshot),
            now,
        }
    }
}

/// Gets blockers; breaks when it needs no more.
type Found<'f> = dyn FnMut(CandidateBlocker) -> ControlFlow<()> + 'f;

/// Something that keeps a node from being disrupted voluntarily, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeBlocker {
    /// As events say it.
    pub reason: Reason,
    /// The pod that it is about, if there is one.
    pub pod: Option<PodKey>,
    /// What would free the node.
    pub clears: String,
    /// When it ends by itself; `None` without such a time.
    pub until: Option<Timestamp>,
    /// What it blocks.
    pub scope: BlockerScope,
}

/// What a blocker of a node blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockerScope {
    /// Every voluntary disruption.
    Any,
    /// Consolidation: if the node is empty or drifted it is disrupted all the same.
    Consolidation,
    /// The replacement of the node because it drifted.
    Drift,
}

/// Everything that blocks the disruption of a node, in the order in which it is checked. `upgrades`: what waits because of an upgrade,
/// by NodePool.
///
/// # Cost
/// A look-up for each label of its pods.
#[must_use]
pub fn node_blockers(
    node: &Arc<StateNode>,
    facts: BlockerFacts<'_>,
    upgrades: &BTreeMap<PoolName, UpgradeDrift>,
) -> Vec<NodeBlocker> {
    let mut all = Vec::new();
    let visited = visit(node, facts, DisruptionClass::Graceful, &mut |blocker| {
        all.push(blocker.for_people());
        ControlFlow::Continue(())
    });
    if visited.is_continue()
        && let Some(candidate) = Candidate::unchecked(node, facts.snapshot)
        && !candidate.pool.is_static()
        && !has_no_pods(&candidate)
    {
        let of_consolidation = [
            never_consolidated(&candidate, facts.snapshot),
            occupied(&candidate, facts.snapshot),
        ];
        all.extend(
            of_consolidation
                .into_iter()
                .flatten()
                .map(|blocker| NodeBlocker {
                    clears: clears(&blocker),
                    reason: blocker.into(),
                    pod: None,
                    until: None,
                    scope: BlockerScope::Consolidation,
                }),
        );
    }
    all.extend(upgrade_drift(node, upgrades));
    all
}

/// The upgrade with which the node drifted, if it waits because of that.
fn upgrade_drift(
    node: &StateNode,
    upgrades: &BTreeMap<PoolName, UpgradeDrift>,
) -> Option<NodeBlocker> {
    let pool = node.pool()?;
    let upgrade = upgrades.get(&pool)?;
    upgrade.keeps(node.claim.as_ref()?).then(|| NodeBlocker {
        reason: upgrade.blocker().into(),
        pod: None,
        clears: format!("kubectl annotate nodepool {pool} {}-", labels::UPGRADED_AT),
        until: upgrade.until,
        scope: BlockerScope::Drift,
    })
}

/// Finds what blocks a node, most general first.
pub(super) fn visit(
    node: &StateNode,
    facts: BlockerFacts<'_>,
    class: DisruptionClass,
    found: &mut Found<'_>,
) -> ControlFlow<()> {
    let claim = node.claim.as_ref();
    if claim.is_none() {
        found(CandidateBlocker::Unmanaged)?;
    }
    let name = node.node_name();
    if name.is_none() {
        found(CandidateBlocker::NoNode)?;
    }
    if !node.initialized {
        found(CandidateBlocker::Uninitialized)?;
    }
    if node.deleting {
        found(CandidateBlocker::Deleting)?;
    }
    if let (Some(name), Some(claim)) = (&name, claim) {
        visit_nominations(name, &claim.name(), facts, found)?;
    }
    if let Some(by) = node.protecting_annotation() {
        found(CandidateBlocker::DoNotDisrupt(by))?;
    }
    visit_pause(node, facts, found)?;
    visit_brake(node, facts, found)?;
    if claim.is_some() {
        visit_pool(node, facts, found)?;
    }
    let has_deadline = claim.is_some_and(|claim| claim.spec.termination_grace_period.is_some());
    if class == DisruptionClass::Eventual && has_deadline {
        return ControlFlow::Continue(());
    }
    visit_pods(node, true, facts, found)
}

/// Pods that the node is nominated to. A nomination to a pod that is bound here already has ended; the event may still be pending.
pub(super) fn visit_nominations(
    node: &NodeName,
    claim: &ClaimName,
    facts: BlockerFacts<'_>,
    found: &mut Found<'_>,
) -> ControlFlow<()> {
    let snapshot = facts.snapshot;
    for nomination in snapshot.ledger.nominations_of_node(Some(node), Some(claim)) {
        let pod = snapshot.pods.get(&nomination.pod);
        if pod.is_none_or(|pod| pod.node.as_ref() != Some(node)) {
            found(CandidateBlocker::Nominated(nomination.pod.clone()))?;
        }
    }
    ControlFlow::Continue(())
}

pub(super) fn visit_pause(
    node: &StateNode,
    facts: BlockerFacts<'_>,
    found: &mut Found<'_>,
) -> ControlFlow<()> {
    match pause::of_node(facts.snapshot, node, facts.now) {
        Some(pause) => found(CandidateBlocker::Paused(pause)),
        None => ControlFlow::Continue(()),
    }
}

pub(super) fn visit_brake(
    node: &StateNode,
    facts: BlockerFacts<'_>,
    found: &mut Found<'_>,
) -> ControlFlow<()> {
    match facts.brake {
        Some(brake) if node.is_ready() => found(CandidateBlocker::Braked(brake)),
        _ => ControlFlow::Continue(()),
    }
}

/// The NodePool and its instance types are known.
pub(super) fn visit_pool(
    node: &StateNode,
    facts: BlockerFacts<'_>,
    found: &mut Found<'_>,
) -> ControlFlow<()> {
    let Some(name) = node.pool() else {
        return found(CandidateBlocker::NoPoolLabel);
    };
    match facts.snapshot.pools.get(&name) {
        None => found(CandidateBlocker::NoPool(name)),
        Some(pool) if facts.snapshot.catalog_of(pool).is_none() => {
            found(CandidateBlocker::NoCatalog(name))
        }
        Some(_) => ControlFlow::Continue(()),
    }
}

/// Pods that protect themselves (`are_annotated`: some may), then those that PodDisruptionBudgets protect.
pub(super) fn visit_pods(
    node: &StateNode,
    are_annotated: bool,
    facts: BlockerFacts<'_>,
    found: &mut Found<'_>,
) -> ControlFlow<()> {
    if are_annotated {
        for pod in node
            .pods
            .iter()
            .filter(|pod| !pod.is_disruptable(facts.now))
        {
            let by = pod.protecting_annotation();
            found(CandidateBlocker::Pod(pod.key.clone(), by))?;
        }
    }
    if facts.pdbs.is_empty() {
        return ControlFlow::Continue(());
    }
    for pod in &node.pods {
        let checked = facts.pdbs.check(pod, facts.now);
        if checked.is_err() && is_handed_over(facts.snapshot, facts.pdbs, pod) {
            continue;
        }
        match checked {
            Ok(()) => {}
            Err(EvictionBlocked::Exhausted(pdb)) => {
                found(CandidateBlocker::Pdb(pod.key.clone(), pdb))?;
            }
            Err(EvictionBlocked::Several(pdbs)) => {
                found(CandidateBlocker::Pdbs(pod.key.clone(), pdbs))?;
            }
        }
    }
    ControlFlow::Continue(())
}

/// Why a node is never consolidated, whatever runs on it.
pub(super) fn never_consolidated(
    candidate: &Candidate,
    snapshot: &Snapshot,
) -> Option<DisruptionBlocker> {
    let Candidate { node, pool, .. } = candidate;
    let name = node.instance_type().unwrap_or_default();
    let catalog = snapshot.catalog_of(pool);
    if catalog.is_none_or(|catalog| catalog.get(name).is_none()) {
        return Some(DisruptionBlocker::InstanceTypeNotFound {
            instance_type: name.to_owned(),
        });
    }
    for label in [labels::CAPACITY_TYPE, labels::TOPOLOGY_ZONE] {
        if node.label(label).is_none() {
            return Some(DisruptionBlocker::LabelMissing { label });
        }
    }
    let disruption = pool.spec.disruption.as_ref();
    let after = disruption.and_then(|disruption| disruption.consolidate_after.as_ref());
    after
        .is_some_and(|after| after.is_never())
        .then(|| DisruptionBlocker::ConsolidationDisabled {
            pool: candidate.pool_name.clone(),
        })
}

/// Why a node with these pods is not consolidated.
pub(super) fn occupied(candidate: &Candidate, snapshot: &Snapshot) -> Option<DisruptionBlocker> {
    if candidate.policy() == Policy::WhenEmpty && !has_no_pods(candidate) {
        return Some(DisruptionBlocker::NodeNotEmpty {
            pool: candidate.pool_name.clone(),
        });
    }
    let policy = snapshot.policy_of(&candidate.pool_name)?;
    let (percent, minimum) = policy.used_well_enough(&candidate.node)?;
    Some(DisruptionBlocker::UsedWellEnough {
        policy: policy.name.to_string(),
        percent,
        minimum,
    })
}

/// Emptiness has the node, not consolidation.
fn has_no_pods(candidate: &Candidate) -> bool {
    candidate.is_empty() && candidate.pods.is_empty()
}

impl CandidateBlocker {
    fn for_people(self) -> NodeBlocker {
        let until = match &self {
            Self::Paused(pause) => pause.until,
            _ => None,
        };
        let pod = match &self {
            Self::Pdb(pod, _) | Self::Pdbs(pod, _) | Self::Nominated(pod) => Some(pod.clone()),
            // The reason of an annotated pod names it.
            _ => None,
        };
        NodeBlocker {
            reason: self.reason(),
            clears: self.clears(),
            pod,
            until,
            scope: BlockerScope::Any,
        }
    }

    /// What would free the node.
    fn clears(&self) -> String {
        let text = match self {
            Self::Unmanaged => "nothing: mortise does not disrupt nodes that it did not launch",
            Self::NoNode => "its instance joins the cluster",
            Self::Uninitialized => {
                "it becomes Ready with all its resources and without startup taints"
            }
            Self::Deleting => "nothing: it goes already",
            Self::Nominated(_) => "the pod is bound, or its nomination expires",
            Self::DoNotDisrupt(_) => "remove the annotation from the node or its NodeClaim",
            Self::Paused(pause) => return pause.remedy(),
            Self::Braked(_) => "nodes become ready again, or those that do not are deleted",
            Self::NoPoolLabel => "nothing: no NodePool has it",
            Self::NoPool(_) => "delete the NodeClaim, or create the NodePool",
            Self::NoCatalog(_) => "the node class becomes Ready",
            Self::Pod(..) => "remove the annotation, or delete the pod",
            Self::Pdb(..) => {
                "more replicas of its workload become ready, or the budget allows more"
            }
            Self::Pdbs(..) => "let one budget select the pod",
        };
        text.to_owned()
    }
}

/// What would let consolidation have the node.
fn clears(blocker: &DisruptionBlocker) -> String {
    let text = match blocker {
        DisruptionBlocker::InstanceTypeNotFound { .. } => {
            "the instance type is offered again; within an hour the node drifts otherwise"
        }
        DisruptionBlocker::LabelMissing { .. } => "give the node the label",
        DisruptionBlocker::ConsolidationDisabled { .. } => {
            "set disruption.consolidateAfter of the NodePool to a duration"
        }
        DisruptionBlocker::NodeNotEmpty { .. } => {
            "its pods leave it, or set disruption.consolidationPolicy of the NodePool to WhenEmptyOrUnderutilized"
        }
        DisruptionBlocker::UsedWellEnough { .. } => {
            "pods leave it, or raise disruption.minimumUtilization of the policy"
        }
        _ => "something changes",
    };
    text.to_owned()
}
