//! Drift that comes with an upgrade of mortise: nodes that drift right after it wait until it is known how many they are, and if
//! they are many, until a person agrees.
//!
//! # Problem
//! Another version may compare nodes with their templates in another way. If it finds differences everywhere, drift replaces the
//! whole cluster, within budgets, and no NodePool was changed.
//!
//! # Rule
//! The controller of NodePools writes its version to each of them, and when another version follows also the time. NodeClaims
//! that are older and drift within [`WINDOW_MS`] of it wait until that time is over: by then each was compared, also by its
//! provider. If they are then more than three, and more than the set percentage of the NodePool's nodes, they go on waiting until
//! the annotation with the time is removed, or until fewer of them are left.
//!
//! Everything is read from objects, so a restart changes nothing.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::reason::DisruptionBlocker;
use crate::settings::Settings;
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::karpenter::nodepool::NodePool;
use mortise_apis::labels;
use mortise_apis::names::PoolName;
use mortise_apis::schema::conditions::{ConditionStatus, find};
use mortise_apis::values::after;
use mortise_state::snapshot::{Snapshot, StateNode};

/// Providers are asked about each node every five minutes, and the answers have to be written.
pub const WINDOW_MS: i64 = 6 * 60_000;

/// The first nodes may drift before the NodePool shows the version: both are written by the same start.
const EARLY_MS: i64 = 10_000;

/// This number of nodes may drift with an upgrade, whatever share of the NodePool they are.
const SOME: usize = 3;

/// Nodes of a NodePool that drifted with an upgrade and wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpgradeDrift {
    pool: PoolName,
    version: String,
    at: Timestamp,
    /// How many of its nodes drifted.
    pub drifted: usize,
    /// Its nodes that are older than the upgrade.
    pub nodes: usize,
    /// Until when they wait because others may follow; `None` if they wait for a person.
    pub until: Option<Timestamp>,
}

impl UpgradeDrift {
    /// The upgrade that a NodePool has seen, without its nodes.
    fn begin(pool: &NodePool, settings: &Settings, now: Timestamp) -> Option<Self> {
        let annotations = pool.metadata.annotations.as_ref()?;
        let shown = annotations.get(labels::VERSION)?;
        if settings.upgrade_drift_percent >= 100 {
            return None;
        }
        let (at, version) = if settings.version.is_empty() || *shown == settings.version {
            (annotations.get(labels::UPGRADED_AT)?.parse().ok()?, shown)
        } else {
            // It is about to be written.
            (now, &settings.version)
        };
        let end = after(at, WINDOW_MS);
        Some(Self {
            pool: pool.name(),
            version: version.clone(),
            at,
            drifted: 0,
            nodes: 0,
            until: (now < end).then_some(end),
        })
    }

    fn count(&mut self, node: &StateNode) {
        let claim = node.claim.as_ref().filter(|_| !node.deleting);
        if let Some(claim) = claim.filter(|claim| self.is_older(claim)) {
            self.nodes += 1;
            self.drifted += usize::from(self.keeps(claim));
        }
    }

    /// Whether they are too many, or may become it.
    fn waits(&self, settings: &Settings) -> bool {
        let percent = settings.upgrade_drift_percent as usize;
        let allowed = self.nodes.saturating_mul(percent) / 100;
        match self.until {
            Some(_) => self.nodes > SOME,
            None => self.drifted > allowed.max(SOME),
        }
    }

    fn is_older(&self, claim: &NodeClaim) -> bool {
        let created = claim.metadata.creation_timestamp.as_ref();
        created.is_some_and(|created| created.0 < self.at)
    }

    /// Whether the NodeClaim is one of them.
    #[must_use]
    pub fn keeps(&self, claim: &NodeClaim) -> bool {
        let drifted = find(&claim.status.conditions, "Drifted");
        let drifted = drifted.filter(|condition| condition.status == ConditionStatus::True);
        let since = drifted.and_then(|condition| condition.last_transition_time.as_ref());
        let window = after(self.at, -EARLY_MS)..=after(self.at, WINDOW_MS);
        self.is_older(claim) && since.is_some_and(|since| window.contains(&since.0))
    }

    /// Why they are not replaced.
    #[must_use]
    pub fn blocker(&self) -> DisruptionBlocker {
        DisruptionBlocker::UpgradeDrift {
            pool: self.pool.clone(),
            version: self.version.clone(),
            drifted: self.drifted,
            nodes: self.nodes,
            until: self.until,
        }
    }
}

/// What waits in each NodePool where something does.
///
/// # Cost
/// One pass over the nodes if a NodePool has seen an upgrade.
#[must_use]
pub fn all(
    snapshot: &Snapshot,
    settings: &Settings,
    now: Timestamp,
) -> BTreeMap<PoolName, UpgradeDrift> {
    let pools = snapshot.pools.values();
    let upgraded = pools.filter_map(|pool| UpgradeDrift::begin(pool, settings, now));
    let mut all: BTreeMap<PoolName, UpgradeDrift> = upgraded
        .map(|upgrade| (upgrade.pool.clone(), upgrade))
        .collect();
    if all.is_empty() {
        return all;
    }
    for node in snapshot.nodes.values() {
        let pool = node.label(labels::NODEPOOL);
        if let Some(upgrade) = pool.and_then(|pool| all.get_mut(pool)) {
            upgrade.count(node);
        }
    }
    all.retain(|_, upgrade| upgrade.waits(settings));
    all
}
