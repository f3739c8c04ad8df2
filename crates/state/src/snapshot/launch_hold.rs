//! What keeps nodes from being launched for a pod: annotations of Cluster Autoscaler that ask for that.

use std::fmt;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use mortise_apis::labels;
use mortise_apis::values::GoDuration;

/// Which annotations hold launches back.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HoldAnnotations {
    /// All that Cluster Autoscaler has.
    pub(crate) all: bool,
    /// The one that names a ProvisioningRequest.
    pub(crate) requests: bool,
}

/// Why no node is launched for a pod that waits for one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LaunchHold {
    /// It is not old enough.
    Until(Timestamp),
    /// It is part of this ProvisioningRequest, which asks for the nodes of all of its pods at once.
    ForRequest(Arc<str>),
}

impl LaunchHold {
    /// What the annotations of a pod ask for. A delay that cannot be read is none, as in Cluster Autoscaler.
    pub(super) fn of<'a>(
        annotation: impl Fn(&str) -> Option<&'a str>,
        created: Timestamp,
        counts: HoldAnnotations,
    ) -> Option<Self> {
        let mut requests = labels::CONSUME_PROVISIONING_REQUEST.iter();
        let request = requests.find_map(|key| annotation(key));
        if let Some(name) = request.filter(|_| counts.all || counts.requests) {
            return Some(Self::ForRequest(name.into()));
        }
        if !counts.all {
            return None;
        }
        let delay = GoDuration::parse(annotation(labels::POD_SCALE_UP_DELAY)?).ok()?;
        let until = created.checked_add(SignedDuration::from(delay)).ok()?;
        (until > created).then_some(Self::Until(until))
    }

    /// When it ends; `None` if it does not end by itself.
    #[must_use]
    pub const fn until(&self) -> Option<Timestamp> {
        match self {
            Self::Until(until) => Some(*until),
            Self::ForRequest(_) => None,
        }
    }

    /// Whether it holds.
    #[must_use]
    pub fn holds(&self, now: Timestamp) -> bool {
        self.until().is_none_or(|until| now < until)
    }
}

impl fmt::Display for LaunchHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Until(until) => write!(
                f,
                "annotation {}: no node is launched for it before {until:.0}",
                labels::POD_SCALE_UP_DELAY
            ),
            Self::ForRequest(name) => write!(
                f,
                "annotation {}: no node is launched for it alone, since ProvisioningRequest {name} asks for all of its pods",
                labels::CONSUME_PROVISIONING_REQUEST[0]
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn hold(annotations: &[(&str, &str)], expected: &str) {
        let of = |key: &str| {
            let mut all = annotations.iter();
            all.find(|(known, _)| *known == key)
                .map(|(_, value)| *value)
        };
        let counts = HoldAnnotations {
            all: true,
            requests: false,
        };
        let hold = LaunchHold::of(of, Timestamp::UNIX_EPOCH, counts);
        let text = hold.map(|hold| hold.to_string()).unwrap_or_default();
        assert_eq!(text, expected);
    }

    #[test]
    fn annotations_say_until_when_and_for_what() {
        hold(&[], "");
        hold(
            &[(labels::POD_SCALE_UP_DELAY, "1m30s")],
            "annotation cluster-autoscaler.kubernetes.io/pod-scale-up-delay: no node is launched for it before 1970-01-01T00:01:30Z",
        );
        for bad in ["soon", "", "-5m", "0s"] {
            hold(&[(labels::POD_SCALE_UP_DELAY, bad)], "");
        }
        for key in labels::CONSUME_PROVISIONING_REQUEST {
            hold(
                &[(key, "train"), (labels::POD_SCALE_UP_DELAY, "1m")],
                "annotation autoscaling.x-k8s.io/consume-provisioning-request: no node is launched for it alone, since ProvisioningRequest train asks for all of its pods",
            );
        }
    }

    #[test]
    fn where_only_requests_are_served_only_they_hold() {
        let of = |annotation: &str| {
            let counts = HoldAnnotations {
                all: false,
                requests: true,
            };
            let value = |key: &str| (key == annotation).then_some("1m");
            LaunchHold::of(value, Timestamp::UNIX_EPOCH, counts)
        };
        assert_eq!(of(labels::POD_SCALE_UP_DELAY), None);
        let held = of(labels::CONSUME_PROVISIONING_REQUEST[1]);
        assert_eq!(held, Some(LaunchHold::ForRequest("1m".into())));
    }

    #[test]
    fn a_delay_ends_and_a_request_does_not() {
        let at = |s: i64| Timestamp::from_second(s).unwrap();
        assert!(LaunchHold::Until(at(5)).holds(at(4)));
        assert!(!LaunchHold::Until(at(5)).holds(at(5)));
        assert!(LaunchHold::ForRequest("a".into()).holds(at(9)));
    }
}
