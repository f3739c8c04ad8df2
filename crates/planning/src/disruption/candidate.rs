//! Candidates: nodes that may be disrupted, and the blockers of the others.
//!
//! # Source
//! karpenter-core 5.2 (every method) and 5.5 (consolidation).

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use jiff::Timestamp;

use super::cost;
use super::disruption_view::DisruptionView;
use super::node_blockers;
use crate::brake::Brake;
use crate::pause::Pause;
use crate::reason::{DisruptionBlocker, Reason};
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::karpenter::nodepool::NodePool;
use mortise_apis::labels;
use mortise_apis::names::{ClaimName, NamespacedName, NodeName, PodKey, PoolName};
use mortise_apis::values::money::MicroUsd;
use mortise_cloudprovider::CapacityType;
use mortise_state::snapshot::{
    EvictionCost, NodeKey, Pod, ProtectingAnnotation, Snapshot, StateNode,
};

/// Whether a drain that pods block completes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DisruptionClass {
    /// It waits indefinitely, so pods that block it protect the node.
    Graceful,
    /// A NodeClaim with a termination grace period is deleted eventually, so its pods do not protect the node.
    Eventual,
}

/// A node that may be disrupted.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The node.
    pub node: Arc<StateNode>,
    /// Its claim.
    pub claim: Arc<NodeClaim>,
    /// Name of its Node.
    pub node_name: NodeName,
    /// Name of its claim.
    pub claim_name: ClaimName,
    /// Name of its pool.
    pub pool_name: PoolName,
    /// Its pool.
    pub pool: Arc<NodePool>,
    /// Pods that would have to be rescheduled.
    pub pods: Arc<[Arc<Pod>]>,
    /// What its disruption costs.
    pub cost: EvictionCost,
    /// Some of the node's pods have an annotation that may protect them.
    pub(super) has_annotated_pods: bool,
}

/// Why a node may not be disrupted at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CandidateBlocker {
    /// It has no claim.
    Unmanaged,
    /// It has no Node.
    NoNode,
    /// It is not initialized.
    Uninitialized,
    /// It is being deleted already.
    Deleting,
    /// It is nominated to a pod.
    Nominated(PodKey),
    /// Its annotation, or its claim's.
    DoNotDisrupt(ProtectingAnnotation),
    /// A pause of it, of its pool, of those of a policy or of the cluster.
    Paused(Pause),
    /// Too many other nodes are not ready.
    Braked(Brake),
    /// It belongs to no pool.
    NoPoolLabel,
    /// Its NodePool does not exist.
    NoPool(PoolName),
    /// Instance types of its pool are not known (yet).
    NoCatalog(PoolName),
    /// A pod's annotation.
    Pod(PodKey, ProtectingAnnotation),
    /// A disruption budget that selects a pod.
    Pdb(PodKey, NamespacedName),
    /// Several disruption budgets select one pod.
    Pdbs(PodKey, Vec<NamespacedName>),
}

impl Candidate {
    /// The candidate of a node. Nodes of other commands must not be passed.
    pub fn new(
        node: &Arc<StateNode>,
        view: &DisruptionView<'_>,
        class: DisruptionClass,
    ) -> Result<Self, CandidateBlocker> {
        let facts = view.blocker_facts();
        first(|found| node_blockers::visit(node, facts, class, found))?;
        Self::unchecked(node, facts.snapshot).ok_or(CandidateBlocker::Unmanaged)
    }

    /// The candidate again, of a node that is the same while everything else may differ: the same as [`Self::new`], without
    /// reading the node's pods if `pods_allow` says that they do not block it.
    pub(super) fn renewed(
        &self,
        view: &DisruptionView<'_>,
        class: DisruptionClass,
        pods_allow: bool,
    ) -> Result<Self, CandidateBlocker> {
        let facts = view.blocker_facts();
        let node = &self.node;
        let is_patient = class == DisruptionClass::Graceful
            || self.claim.spec.termination_grace_period.is_none();
        first(|found| {
            node_blockers::visit_nominations(&self.node_name, &self.claim_name, facts, found)?;
            node_blockers::visit_pause(node, facts, found)?;
            node_blockers::visit_brake(node, facts, found)?;
            node_blockers::visit_pool(node, facts, found)?;
            if is_patient && !pods_allow {
                node_blockers::visit_pods(node, self.has_annotated_pods, facts, found)?;
            }
            ControlFlow::Continue(())
        })?;
        let pool = facts.snapshot.pools.get(&self.pool_name);
        let pool = pool.ok_or_else(|| CandidateBlocker::NoPool(self.pool_name.clone()))?;
        Ok(Self {
            pool: Arc::clone(pool),
            ..self.clone()
        })
    }

    /// A managed node regardless of its blockers; `None` if it is not managed or has no NodePool.
    pub fn unchecked(node: &Arc<StateNode>, snapshot: &Snapshot) -> Option<Self> {
        let pool_name = node.pool()?;
        let pool = snapshot.pools.get(&pool_name).cloned()?;
        let claim = node.claim.clone()?;
        Some(Self::build(node, claim, node.node_name()?, pool_name, pool))
    }

    fn build(
        node: &Arc<StateNode>,
        claim: Arc<NodeClaim>,
        node_name: NodeName,
        pool_name: PoolName,
        pool: Arc<NodePool>,
    ) -> Self {
        Self {
            pods: node.reschedulable().cloned().collect(),
            cost: cost::of_node(node),
            has_annotated_pods: node
                .pods
                .iter()
                .any(|pod| pod.do_not_disrupt.is_some() || pod.is_unsafe_to_evict),
            node: Arc::clone(node),
            claim_name: claim.name(),
            claim,
            node_name,
            pool_name,
            pool,
        }
    }

    /// Key of the node.
    pub fn key(&self) -> &NodeKey {
        &self.node.key
    }

    /// Price of the node; `None` when unknown.
    pub fn price(&self) -> Option<MicroUsd> {
        self.node.price
    }

    /// Capacity type of the node.
    pub fn capacity_type(&self) -> Option<CapacityType> {
        capacity_type(&self.node)
    }

    /// No pod with a positive cost would have to move.
    pub fn is_empty(&self) -> bool {
        self.cost <= EvictionCost::ONE
    }

    /// The claim's condition `Consolidatable` is true.
    pub fn is_consolidatable(&self) -> bool {
        self.claim.is_true("Consolidatable")
    }

    /// Since when the claim is drifted, and why.
    pub fn drifted(&self) -> Option<(Timestamp, &str)> {
        let condition =
            mortise_apis::schema::conditions::find(&self.claim.status.conditions, "Drifted")?;
        let holds = condition.status == mortise_apis::schema::conditions::ConditionStatus::True;
        let since = condition.last_transition_time.as_ref().map(|time| time.0);
        holds.then(|| (since.unwrap_or(Timestamp::MIN), condition.reason.as_str()))
    }

    /// The policy of its pool.
    pub fn policy(&self) -> Policy {
        Policy::from_pool(&self.pool)
    }
}

/// When a pool's nodes may be consolidated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Only without pods.
    WhenEmpty,
    /// Whenever it saves anything.
    WhenEmptyOrUnderutilized,
    /// When the savings justify the disruption.
    Balanced,
}

impl Policy {
    fn from_pool(pool: &NodePool) -> Self {
        let text = pool
            .spec
            .disruption
            .as_ref()
            .and_then(|disruption| disruption.consolidation_policy.as_deref());
        match text {
            Some("WhenEmpty") => Self::WhenEmpty,
            Some("Balanced") => Self::Balanced,
            _ => Self::WhenEmptyOrUnderutilized,
        }
    }
}

/// The first blocker that is found.
fn first(
    visit: impl FnOnce(&mut dyn FnMut(CandidateBlocker) -> ControlFlow<()>) -> ControlFlow<()>,
) -> Result<(), CandidateBlocker> {
    let mut first = None;
    let visited = visit(&mut |blocker| {
        first = Some(blocker);
        ControlFlow::Break(())
    });
    debug_assert_eq!(visited.is_break(), first.is_some());
    first.map_or(Ok(()), Err)
}

impl CandidateBlocker {
    /// Whether it gets an event. Unmanaged nodes get none.
    pub const fn is_reported(&self) -> bool {
        !matches!(self, Self::Unmanaged)
    }

    /// The reason for the record.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Nominated(pod) => Reason::PodNominated { pod: pod.clone() },
            Self::DoNotDisrupt(by) => Reason::DoNotDisruptNode { by: *by },
            Self::Paused(pause) => Reason::Paused(pause.clone()),
            Self::Pod(pod, by) => Reason::DoNotDisruptPod {
                pod: pod.clone(),
                by: *by,
            },
            Self::Pdb(_, pdb) => Reason::Pdb { pdb: pdb.clone() },
            Self::Pdbs(pod, pdbs) => Reason::MultiplePdbs {
                pod: pod.clone(),
                pdbs: pdbs.clone(),
            },
            Self::Unmanaged => DisruptionBlocker::Unmanaged.into(),
            Self::NoNode => DisruptionBlocker::NoNode.into(),
            Self::Uninitialized => DisruptionBlocker::Uninitialized.into(),
            Self::Deleting => DisruptionBlocker::NodeDeleting.into(),
            Self::Braked(Brake { unready, nodes }) => DisruptionBlocker::Braked {
                unready: *unready,
                nodes: *nodes,
            }
            .into(),
            Self::NoPoolLabel => DisruptionBlocker::NoPoolLabel.into(),
            Self::NoPool(pool) => DisruptionBlocker::PoolNotFound { pool: pool.clone() }.into(),
            Self::NoCatalog(pool) => {
                DisruptionBlocker::CatalogUnknown { pool: pool.clone() }.into()
            }
        }
    }
}

impl fmt::Display for CandidateBlocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason().karpenter_text())
    }
}

/// The capacity type of a node, by its label.
pub(super) fn capacity_type(node: &StateNode) -> Option<CapacityType> {
    CapacityType::parse(node.label(labels::CAPACITY_TYPE)?)
}

/// How many pods move when these nodes are removed.
pub(super) fn count_pods(candidates: &[&Candidate]) -> usize {
    candidates.iter().map(|each| each.pods.len()).sum()
}
