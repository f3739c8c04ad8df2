//! Why capacity was unavailable, in a few words: EC2 has an open set of codes, metrics need a closed one.

use crate::failure::{SPOT_ROLE, SUBNET_FULL};

/// Cause of the marks that an interruption notice sets.
pub(crate) const SPOT_INTERRUPTION: &str = "SpotInterruption";

/// Why capacity was unavailable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnavailabilityCause {
    /// EC2 has none.
    NoCapacity,
    /// The account may not have more.
    Quota,
    /// The zone does not have it at all.
    NotSupported,
    /// A subnet has no addresses left.
    SubnetFull,
    /// All instances of a reservation are in use.
    ReservationFull,
    /// EC2 took an instance of it back.
    Interruption,
    /// The account has no service-linked role for spot instances.
    SpotRole,
    /// Anything else.
    Other,
}

impl UnavailabilityCause {
    /// The cause that a code of EC2, or the name of a notice, stands for.
    pub(crate) fn of(code: &str) -> Self {
        match code {
            "InsufficientInstanceCapacity" | "UnfulfillableCapacity" => Self::NoCapacity,
            "MaxSpotInstanceCountExceeded" | "VcpuLimitExceeded" | "MaxFleetCountExceeded" => {
                Self::Quota
            }
            "Unsupported" => Self::NotSupported,
            "ReservationCapacityExceeded" => Self::ReservationFull,
            SUBNET_FULL => Self::SubnetFull,
            SPOT_INTERRUPTION => Self::Interruption,
            SPOT_ROLE => Self::SpotRole,
            _ => Self::Other,
        }
    }

    /// Its label in metrics.
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::NoCapacity => "no_capacity",
            Self::Quota => "quota",
            Self::NotSupported => "not_supported",
            Self::SubnetFull => "subnet_full",
            Self::ReservationFull => "reservation_full",
            Self::Interruption => "interruption",
            Self::SpotRole => "spot_role",
            Self::Other => "other",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::SHORTAGE;

    #[test]
    fn every_code_of_a_shortage_has_a_cause() {
        for code in SHORTAGE.into_iter().chain([SPOT_ROLE, SPOT_INTERRUPTION]) {
            let cause = UnavailabilityCause::of(code);
            assert_ne!(cause, UnavailabilityCause::Other, "{code}");
        }
        let unknown = UnavailabilityCause::of("SomethingNew");
        assert_eq!(unknown.label(), "other");
    }
}
