//! What keeps drifted nodes of a NodePool from being replaced now: the wave of its policy, or an upgrade that came with them.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::candidate::Candidate;
use super::disruption_view::DisruptionView;
use super::drift_waves::DriftWave;
use super::rejection::DisruptionRejection;
use super::upgrade_drift::UpgradeDrift;
use mortise_apis::names::PoolName;

/// What keeps a drifted node.
#[derive(Clone, Copy, Debug)]
pub enum DriftHold<'v> {
    /// It drifted with an upgrade.
    Upgrade(&'v UpgradeDrift),
    /// The wave in which it would be replaced has no room.
    Wave(&'v DriftWave),
}

impl<'v> DriftHold<'v> {
    /// What keeps a drifted node from being replaced now; `None` if nothing does.
    #[must_use]
    pub fn of(candidate: &Candidate, view: &'v DisruptionView<'_>) -> Option<Self> {
        let upgrade = view.upgrade_drift(&candidate.pool_name);
        if let Some(upgrade) = upgrade.filter(|upgrade| upgrade.keeps(&candidate.claim)) {
            return Some(Self::Upgrade(upgrade));
        }
        let is_limited = candidate.pool.is_static() || !candidate.pods.is_empty();
        let wave = view.drift_wave(&candidate.pool_name)?;
        (is_limited && wave.remaining() == 0).then_some(Self::Wave(wave))
    }

    /// Why the node is not replaced.
    #[must_use]
    pub fn rejection(&self) -> DisruptionRejection {
        match self {
            Self::Upgrade(upgrade) => DisruptionRejection::from_reason(upgrade.blocker()),
            Self::Wave(wave) => wave.rejection(),
        }
    }

    /// When it may end by itself.
    const fn next_at(&self) -> Option<Timestamp> {
        match self {
            Self::Upgrade(upgrade) => upgrade.until,
            Self::Wave(wave) => wave.next_at,
        }
    }
}

/// NodePools whose oldest drifted node is kept. Each is reported once per evaluation, as the others wait for their turn.
#[derive(Debug, Default)]
pub(super) struct HeldDrift<'v> {
    pools: BTreeMap<PoolName, DriftHold<'v>>,
}

impl<'v> HeldDrift<'v> {
    /// Whether the node is kept, and if it is and no other node of the NodePool was reported, reports it.
    pub(super) fn blocks(
        &mut self,
        candidate: &Candidate,
        view: &'v DisruptionView<'_>,
        refused: impl FnOnce(&Candidate, &DisruptionRejection),
    ) -> bool {
        let Some(hold) = DriftHold::of(candidate, view) else {
            return false;
        };
        let pool = candidate.pool_name.clone();
        if self.pools.insert(pool, hold).is_none() {
            refused(candidate, &hold.rejection());
        }
        true
    }

    /// When the first of these holds may end by itself.
    pub(super) fn next_at(&self) -> Option<Timestamp> {
        let holds = self.pools.values();
        holds.filter_map(DriftHold::next_at).min()
    }
}
