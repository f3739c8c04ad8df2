//! Pods that are not evicted, but handed over: their Deployment is restarted, starts a new pod elsewhere, and ends the old one once the new
//! one is available.
//!
//! # Problem
//! Evicting the only pod of a workload interrupts it for as long as a new pod takes to start, and a PodDisruptionBudget that prevents
//! that prevents the drain as well.
//!
//! # Rule
//! The pod asks for it by annotation, and belongs to a Deployment that
//! - has one pod, or whose PodDisruptionBudgets never allow an eviction: of several pods the others do the work meanwhile;
//! - starts a new pod before it ends an old one, and is not paused.
//!
//! The node is tainted by then, so the new pod goes elsewhere. A pod that is still there when its time is over is evicted like any other.
//! That time begins with the deletion of the node: every replica of the service knows it, also after a restart.

use std::fmt;

use jiff::Timestamp;

use super::blockers::going_since;
use super::budgets::standing_blocker;
use crate::drain::pdb::Pdbs;
use mortise_apis::labels::HAND_OVER;
use mortise_apis::names::NamespacedName;
use mortise_apis::values::{GoDuration, after};
use mortise_state::snapshot::{Pod, Rollout, Snapshot, StateNode};

/// How long a pod waits to be handed over if its annotation says `true`.
const DEFAULT_WAIT_MS: i64 = 5 * 60_000;

/// Label of pods of a ReplicaSet of a Deployment: the end of the ReplicaSet's name.
const TEMPLATE_HASH: &str = "pod-template-hash";

/// How a pod is handed over.
#[derive(Clone, Copy, Debug)]
pub struct HandOver<'a> {
    /// Its Deployment.
    pub deployment: &'a NamespacedName,
    /// How far the Deployment is.
    pub rollout: &'a Rollout,
    /// How long it is waited for, in milliseconds.
    pub wait_ms: i64,
}

/// Why a pod that asks to be handed over is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoHandOver {
    /// The service runs without `--hand-over`.
    IsOff,
    /// The annotation is no duration.
    BadValue(String),
    /// It belongs to no Deployment that exists.
    NoDeployment,
    /// The Deployment is paused.
    Paused(NamespacedName),
    /// The Deployment may end the old pod before the new one is available.
    EndsFirst(NamespacedName),
    /// Other pods of the Deployment do its work, and may be evicted one after another.
    HasOthers(NamespacedName, i32),
}

impl fmt::Display for NoHandOver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::IsOff => f.write_str("the service runs without --hand-over"),
            Self::BadValue(error) => write!(f, "annotation {HAND_OVER}: {error}, or \"true\""),
            Self::NoDeployment => f.write_str("it belongs to no Deployment"),
            Self::Paused(name) => write!(f, "deployment {name} is paused"),
            Self::EndsFirst(name) => write!(
                f,
                "deployment {name} may end a pod before the next is available: it needs the strategy RollingUpdate with maxSurge over 0 and maxUnavailable 0"
            ),
            Self::HasOthers(name, replicas) => write!(
                f,
                "deployment {name} has {replicas} replicas, and its budgets allow evictions"
            ),
        }
    }
}

/// How the pod is handed over; `None` if it does not ask for that.
///
/// # Errors
/// It asks for it, and why that is not possible.
///
/// # Cost
/// A look-up, and that of [`Pdbs::check`] for a Deployment of several pods.
#[must_use]
pub fn hand_over<'a>(
    snapshot: &'a Snapshot,
    pdbs: &Pdbs<'_>,
    pod: &Pod,
) -> Option<Result<HandOver<'a>, NoHandOver>> {
    let wait = pod.hand_over.as_deref().filter(|wait| *wait != "false")?;
    Some(possible(snapshot, pdbs, pod, wait))
}

/// Whether a drain hands the pod over, so that its PodDisruptionBudgets do not matter.
#[must_use]
pub fn is_handed_over(snapshot: &Snapshot, pdbs: &Pdbs<'_>, pod: &Pod) -> bool {
    hand_over(snapshot, pdbs, pod).is_some_and(|checked| checked.is_ok())
}

fn possible<'a>(
    snapshot: &'a Snapshot,
    pdbs: &Pdbs<'_>,
    pod: &Pod,
    wait: &str,
) -> Result<HandOver<'a>, NoHandOver> {
    let all = snapshot.rollouts.as_ref().ok_or(NoHandOver::IsOff)?;
    let wait_ms = match wait {
        "true" => DEFAULT_WAIT_MS,
        wait => {
            let wait = GoDuration::parse(wait);
            let wait = wait.map_err(|error| NoHandOver::BadValue(error.to_string()))?;
            wait.as_nanos() / 1_000_000
        }
    };
    let name = deployment_name(pod).ok_or(NoHandOver::NoDeployment)?;
    let found = all.get_key_value(&name);
    let found = found.filter(|(_, rollout)| rollout.selector.matches_labels(&pod.labels));
    let (deployment, rollout) = found.ok_or(NoHandOver::NoDeployment)?;
    if rollout.is_paused {
        return Err(NoHandOver::Paused(name));
    }
    if !rollout.starts_before_it_ends {
        return Err(NoHandOver::EndsFirst(name));
    }
    if rollout.replicas > 1 && standing_blocker(pdbs, pod).is_none() {
        return Err(NoHandOver::HasOthers(name, rollout.replicas));
    }
    Ok(HandOver {
        deployment,
        rollout,
        wait_ms,
    })
}

/// The Deployment of a pod by the name of its ReplicaSet, to which the Deployment controller adds the hash of the template.
fn deployment_name(pod: &Pod) -> Option<NamespacedName> {
    let owner = pod
        .owner
        .as_ref()
        .filter(|owner| &*owner.kind == "ReplicaSet")?;
    let hash = pod.label(TEMPLATE_HASH)?;
    let name = owner.name.strip_suffix(&**hash)?.strip_suffix('-')?;
    Some(NamespacedName::new(pod.key.namespace.clone(), name))
}

/// What a drain does about a pod that it would evict otherwise.
#[derive(Clone, Copy, Debug)]
pub struct HandOverStep<'a> {
    /// How it is handed over.
    pub hand_over: HandOver<'a>,
    /// The Deployment is at work; otherwise it is to be restarted.
    pub is_begun: bool,
    /// The drain waits for it until then.
    pub until: Timestamp,
}

/// What the drain of its node does about a pod; `None`: it is evicted.
#[must_use]
pub fn hand_over_step<'a>(
    (snapshot, pdbs): (&'a Snapshot, &Pdbs<'_>),
    node: &StateNode,
    pod: &Pod,
    now: Timestamp,
) -> Option<HandOverStep<'a>> {
    let hand_over = hand_over(snapshot, pdbs, pod)?.ok()?;
    let until = after(going_since(snapshot, node)?, hand_over.wait_ms);
    if until <= now {
        return None;
    }
    let HandOver { rollout, .. } = hand_over;
    // One that is running replaces this pod as well, unless the pod is a new one: then it is restarted once more when it is done.
    let is_begun = rollout.is_running || rollout.handed_over.as_ref() == Some(&pod.uid);
    Some(HandOverStep {
        hand_over,
        is_begun,
        until,
    })
}
