//! Why a disruption is rejected, as typed facts.

use jiff::Timestamp;

use crate::reason::{DisruptionBlocker, Reason};
use mortise_apis::names::PoolName;

/// Why nodes are not disrupted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DisruptionRejection {
    /// Why. The first is the one that events show.
    pub reasons: Vec<Reason>,
    /// The NodePool whose policy `Balanced` rejects the disruption, and the score in hundredths.
    pub scored: Option<(PoolName, i64)>,
    /// Time ran out before the result was known.
    pub stopped: bool,
}

impl DisruptionRejection {
    /// A rejection for this reason.
    pub fn from_reason(reason: impl Into<Reason>) -> Self {
        Self {
            reasons: vec![reason.into()],
            scored: None,
            stopped: false,
        }
    }

    /// A simulation that was stopped before its end.
    pub(super) fn stopped() -> Self {
        Self {
            reasons: Vec::new(),
            scored: None,
            stopped: true,
        }
    }

    /// Whether it forbids every replacement of a spot node, whatever the price.
    pub(super) fn is_spot_to_spot_disabled(&self) -> bool {
        let disabled = Reason::from(DisruptionBlocker::SpotToSpotDisabled);
        self.reasons.contains(&disabled)
    }

    /// Until when the nodes wait for others that become consolidatable.
    #[must_use]
    pub fn waits_until(&self) -> Option<Timestamp> {
        self.reasons.iter().find_map(|reason| match reason {
            Reason::OthersConsolidatableSoon { until } => Some(*until),
            _ => None,
        })
    }

    /// Text for users; Karpenter's where Karpenter has one. Empty if time ran out.
    pub fn text(&self) -> String {
        let reason = self.reasons.first();
        reason.map_or_else(String::new, Reason::karpenter_text)
    }
}
