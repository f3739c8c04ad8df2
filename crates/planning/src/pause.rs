//! Pauses: where users have stopped all voluntary disruption for a while, by an annotation or in a
//! NodePoolPolicy.
//!
//! While a pause holds, no node is consolidated, replaced for drift, expired, repaired, or removed as surplus of a static
//! NodePool, and a drain that has begun evicts no more pods. Nodes are still launched, and interruptions are still acted on:
//! the cloud takes those nodes in any case.
//!
//! The annotation is on what it pauses: a Node or its NodeClaim, a NodePool, or, for the whole cluster, the namespace of the
//! service. A NodePoolPolicy states a pause of all its NodePools in its spec, where manifests are the source of what holds.
//! Every replica reads these objects anyway, so a pause survives restarts and changes of leader.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use serde::Serialize;

use mortise_apis::labels;
use mortise_apis::names::PoolName;
use mortise_apis::node_pool_policy::StatedPause;
use mortise_apis::values::{after, stated_time};
use mortise_state::snapshot::{Snapshot, StateNode};

/// How long after its end a pause may go unnoticed.
const RECHECK_MS: i64 = 5_000;

/// What a pause covers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PauseScope {
    /// Every node.
    Cluster,
    /// The nodes of all NodePools of a NodePoolPolicy.
    Policy(String),
    /// The nodes of a NodePool.
    NodePool(PoolName),
    /// One node.
    Node,
}

impl PauseScope {
    /// Label for metrics and reports.
    #[must_use]
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Cluster => "cluster",
            Self::Policy(_) => "nodepoolpolicy",
            Self::NodePool(_) => "nodepool",
            Self::Node => "node",
        }
    }
}

impl fmt::Display for PauseScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster => f.write_str("the cluster"),
            Self::Policy(name) => write!(f, "the NodePools of NodePoolPolicy {name}"),
            Self::NodePool(name) => write!(f, "NodePool {name}"),
            Self::Node => f.write_str("the node"),
        }
    }
}

/// A pause that holds.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Pause {
    /// What it covers.
    pub scope: PauseScope,
    /// The annotation's value, by convention the reason, or the reason that the policy states.
    pub reason: String,
    /// When it ends by itself; `None` when it has to be removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

impl fmt::Display for Pause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "disruption of {} is paused", self.scope)?;
        if let Some(until) = self.until {
            write!(f, " until {until}")?;
        }
        if !matches!(self.reason.as_str(), "" | "true") {
            write!(f, ": {}", self.reason)?;
        }
        Ok(())
    }
}

impl Pause {
    /// How users end it before its time.
    #[must_use]
    pub fn remedy(&self) -> String {
        match &self.scope {
            PauseScope::Policy(name) => {
                format!("remove spec.disruption.pause from NodePoolPolicy {name}")
            }
            scope => format!("mortise resume {}", scope.label()),
        }
    }
}

/// The pause that an object's annotations state, if it holds now.
#[must_use]
pub fn stated(
    annotations: Option<&BTreeMap<String, String>>,
    scope: impl FnOnce() -> PauseScope,
    now: Timestamp,
) -> Option<Pause> {
    let annotations = annotations?;
    let reason = annotations.get(labels::PAUSE)?;
    // An end that cannot be read is none: a typo must not start what was stopped.
    let until = annotations.get(labels::PAUSE_UNTIL);
    let until = until.and_then(|text| stated_time(text));
    if reason == "false" || until.is_some_and(|until| until <= now) {
        return None;
    }
    Some(Pause {
        scope: scope(),
        reason: reason.clone(),
        until,
    })
}

/// The pause of the whole cluster, if one holds.
#[must_use]
pub fn of_cluster(snapshot: &Snapshot, now: Timestamp) -> Option<Pause> {
    let namespace = snapshot.namespaces.get(&snapshot.own_namespace)?;
    stated(
        namespace.metadata.annotations.as_ref(),
        || PauseScope::Cluster,
        now,
    )
}

/// The pause that a NodePoolPolicy states, if it holds now.
#[must_use]
pub fn by_policy(name: &str, stated: Option<&StatedPause>, now: Timestamp) -> Option<Pause> {
    let stated = stated.filter(|stated| stated.holds(now))?;
    Some(Pause {
        scope: PauseScope::Policy(name.to_owned()),
        reason: stated.reason.to_string(),
        until: stated.until,
    })
}

/// The pause of a NodePool, of those of its policy, or of the cluster, if one holds: the widest.
#[must_use]
pub fn of_pool(snapshot: &Snapshot, pool: &PoolName, now: Timestamp) -> Option<Pause> {
    let of_policy = || {
        let policy = snapshot.policy_of(pool)?;
        by_policy(&policy.name, policy.pause.as_ref(), now)
    };
    of_cluster(snapshot, now).or_else(of_policy).or_else(|| {
        let object = snapshot.pools.get(pool)?;
        let scope = || PauseScope::NodePool(pool.clone());
        stated(object.metadata.annotations.as_ref(), scope, now)
    })
}

/// The pause that covers a node, if one holds: the widest.
///
/// # Cost
/// Seven look-ups in small maps.
#[must_use]
pub fn of_node(snapshot: &Snapshot, node: &StateNode, now: Timestamp) -> Option<Pause> {
    let wider = match node.pool() {
        Some(pool) => of_pool(snapshot, &pool, now),
        None => of_cluster(snapshot, now),
    };
    wider.or_else(|| own(node, now))
}

/// Every pause that holds, with the name of the object that states it: the cluster's first, then those of policies with at
/// least one NodePool, of NodePools and of nodes.
///
/// # Cost
/// One pass over the NodePools and nodes.
#[must_use]
pub fn all(snapshot: &Snapshot, now: Timestamp) -> Vec<(String, Pause)> {
    let cluster = of_cluster(snapshot, now)
        .into_iter()
        .map(|pause| (snapshot.own_namespace.to_string(), pause));
    let policies: BTreeMap<&str, Pause> = snapshot
        .pools
        .keys()
        .filter_map(|pool| snapshot.policy_of(pool))
        .filter_map(|policy| {
            let pause = by_policy(&policy.name, policy.pause.as_ref(), now)?;
            Some((&*policy.name, pause))
        })
        .collect();
    let policies = policies
        .into_iter()
        .map(|(name, pause)| (name.to_owned(), pause));
    let pools = snapshot.pools.iter().filter_map(|(name, pool)| {
        let scope = || PauseScope::NodePool(name.clone());
        let pause = stated(pool.metadata.annotations.as_ref(), scope, now)?;
        Some((name.to_string(), pause))
    });
    let nodes = snapshot
        .nodes
        .values()
        .filter_map(|node| Some((node.name().to_owned(), own(node, now)?)));
    cluster.chain(policies).chain(pools).chain(nodes).collect()
}

/// The pause that a node's own objects state.
fn own(node: &StateNode, now: Timestamp) -> Option<Pause> {
    let object = node.node.as_ref().map(|node| &node.metadata);
    let claim = node.claim.as_ref().map(|claim| &claim.metadata);
    let mut both = object.into_iter().chain(claim);
    both.find_map(|meta| stated(meta.annotations.as_ref(), || PauseScope::Node, now))
}

/// The pause that keeps a node's pods where they are although the node is being deleted. None holds a node that the cloud takes
/// in any case.
#[must_use]
pub fn of_drain(snapshot: &Snapshot, node: &StateNode, now: Timestamp) -> Option<Pause> {
    let claim = node.claim.as_ref();
    let is_interrupted =
        claim.is_some_and(|claim| claim.annotation(labels::INTERRUPTION).is_some());
    of_node(snapshot, node, now).filter(|_| !is_interrupted)
}

/// When a decider that a pause stopped looks again: when it ends, and every five seconds, since it can be ended at any time.
#[must_use]
pub fn look_again(pause: &Pause, now: Timestamp) -> Timestamp {
    let soon = after(now, RECHECK_MS);
    pause.until.map_or(soon, |until| until.min(soon))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pause(annotations: &[(&str, &str)]) -> Option<String> {
        let annotations = annotations
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect();
        let now = "2026-03-01T12:00:00Z".parse().unwrap();
        let scope = || PauseScope::NodePool(PoolName::from("general"));
        stated(Some(&annotations), scope, now).map(|pause| pause.to_string())
    }

    #[test]
    fn a_pause_holds_until_its_end_or_until_its_annotation_is_removed() {
        let general = "disruption of NodePool general is paused";
        let (on, until) = (labels::PAUSE, labels::PAUSE_UNTIL);
        for (annotations, expected) in [
            (&[][..], None),
            (&[(until, "2027-01-01T00:00:00Z")], None),
            (&[(on, "false")], None),
            (&[(on, "true")], Some(general.to_owned())),
            (&[(on, "")], Some(general.to_owned())),
            (&[(on, "release")], Some(format!("{general}: release"))),
            (
                &[(on, "release"), (until, "2026-03-01T13:00:00Z")],
                Some(format!("{general} until 2026-03-01T13:00:00Z: release")),
            ),
            (
                &[(on, "release"), (until, "2026-03-01T14:00:00+02:00")],
                None,
            ),
            (&[(on, "x"), (until, "2026-03-01T12:00:00Z")], None),
            (
                &[(on, "x"), (until, "tomorrow")],
                Some(format!("{general}: x")),
            ),
        ] {
            assert_eq!(pause(annotations), expected, "{annotations:?}");
        }
    }
}
