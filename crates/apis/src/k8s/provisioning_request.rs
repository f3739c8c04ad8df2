//! Requests for room for a set of pods before the pods exist: Cluster Autoscaler's `ProvisioningRequest`, which Kueue makes.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::names::NamespacedName;
use crate::schema::conditions::{Condition, find, is_true};
use crate::schema::object::{is_default, null_as_default, object};

object! {
    /// Room for a set of pods: all of it, or none.
    pub struct ProvisioningRequest(
        "autoscaling.x-k8s.io", "v1", "ProvisioningRequest", "provisioningrequests", NamespaceResourceScope
    ) {
        /// What is wanted.
        pub spec as "spec": ProvisioningRequestSpec,
        /// What is.
        pub status as "status": ProvisioningRequestStatus,
    }
}

/// What is wanted. It never changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProvisioningRequestSpec {
    /// The pods.
    #[serde(deserialize_with = "null_as_default")]
    pub pod_sets: Vec<PodSet>,
    /// What is to be done, and by whom.
    pub provisioning_class_name: String,
    /// Parameters of the class.
    #[serde(
        skip_serializing_if = "is_default",
        deserialize_with = "null_as_default"
    )]
    pub parameters: BTreeMap<String, String>,
}

/// Equal pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSet {
    /// The PodTemplate in the same namespace.
    pub pod_template_ref: PodTemplateName,
    /// How many.
    pub count: i64,
}

/// Names a PodTemplate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PodTemplateName {
    /// Its name.
    pub name: String,
}

/// What is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProvisioningRequestStatus {
    /// How far it is.
    #[serde(deserialize_with = "null_as_default")]
    pub conditions: Vec<Condition>,
}

/// What is to be done for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProvisioningClass {
    /// Find room on nodes that exist.
    CheckCapacity,
    /// Find room on nodes that exist, and launch those that are missing.
    BestEffortAtomic,
}

impl ProvisioningClass {
    /// Both classes.
    pub const ALL: [Self; 2] = [Self::CheckCapacity, Self::BestEffortAtomic];

    /// Its name in objects.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::CheckCapacity => "check-capacity.autoscaling.x-k8s.io",
            Self::BestEffortAtomic => "best-effort-atomic-scale-up.autoscaling.x-k8s.io",
        }
    }
}

/// The request is served.
pub const ACCEPTED: &str = "Accepted";
/// There is room for all its pods.
pub const PROVISIONED: &str = "Provisioned";
/// There will be none.
pub const FAILED: &str = "Failed";
/// Its room is not kept any more.
pub const BOOKING_EXPIRED: &str = "BookingExpired";
/// Its room was taken away. Others write it.
const CAPACITY_REVOKED: &str = "CapacityRevoked";

/// Parameter: seconds after which a request without room fails.
const VALID_UNTIL: &str = "ValidUntilSeconds";
/// Parameter: whether a check that finds no room fails, instead of being made again.
const NO_RETRY: &str = "noRetry";
/// A request without room fails after this time by default, as in Cluster Autoscaler.
const VALID_FOR: SignedDuration = SignedDuration::from_hours(7 * 24);
/// Room is kept for this time, as in Cluster Autoscaler.
const BOOKED_FOR: SignedDuration = SignedDuration::from_mins(10);

/// How far a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestPhase {
    /// Room is searched.
    Searching,
    /// Room was found, and is kept until this time.
    Booked(Timestamp),
    /// Nothing is kept for it.
    Over,
}

impl RequestPhase {
    /// Word for views and metrics.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Searching => "searching",
            Self::Booked(_) => "booked",
            Self::Over => "over",
        }
    }
}

impl ProvisioningRequest {
    /// Namespace and name.
    #[must_use]
    pub fn key(&self) -> NamespacedName {
        NamespacedName::from(&self.metadata)
    }

    /// What is to be done for it; `None` for a class that another controller serves.
    #[must_use]
    pub fn class(&self) -> Option<ProvisioningClass> {
        let mut all = ProvisioningClass::ALL.into_iter();
        all.find(|class| class.as_str() == self.spec.provisioning_class_name)
    }

    /// Whether a condition is `True`.
    #[must_use]
    pub fn is(&self, type_: &str) -> bool {
        is_true(&self.status.conditions, type_)
    }

    /// How far it is.
    #[must_use]
    pub fn phase(&self) -> RequestPhase {
        let ends = [FAILED, BOOKING_EXPIRED, CAPACITY_REVOKED];
        if self.metadata.deletion_timestamp.is_some() || ends.iter().any(|type_| self.is(type_)) {
            return RequestPhase::Over;
        }
        let provisioned = find(&self.status.conditions, PROVISIONED);
        let since = provisioned.filter(|_| self.is(PROVISIONED));
        since.map_or(RequestPhase::Searching, |condition| {
            let since = condition.last_transition_time.as_ref();
            let since = since.map_or(Timestamp::UNIX_EPOCH, |time| time.0);
            RequestPhase::Booked(since.saturating_add(BOOKED_FOR).unwrap_or(Timestamp::MAX))
        })
    }

    /// When it was made.
    #[must_use]
    pub fn created(&self) -> Timestamp {
        let created = self.metadata.creation_timestamp.as_ref();
        created.map_or(Timestamp::UNIX_EPOCH, |time| time.0)
    }

    /// When it fails if there is no room. A parameter that is no number of seconds counts as none.
    #[must_use]
    pub fn valid_until(&self) -> Timestamp {
        let seconds = self.spec.parameters.get(VALID_UNTIL);
        let seconds = seconds.and_then(|text| text.parse::<u32>().ok());
        let valid = seconds.map_or(VALID_FOR, |seconds| {
            SignedDuration::from_secs(i64::from(seconds))
        });
        self.created()
            .saturating_add(valid)
            .unwrap_or(Timestamp::MAX)
    }

    /// Whether it fails as soon as a check finds no room.
    #[must_use]
    pub fn is_tried_once(&self) -> bool {
        self.class() == Some(ProvisioningClass::CheckCapacity)
            && self.spec.parameters.get(NO_RETRY).map(String::as_str) == Some("true")
    }
}
