//! Capacity that a cloud refused lately, and zones that are shifted away: kept in one place for planning, launches, consolidation and
//! drift.

use std::sync::Arc;

use jiff::Timestamp;
use mortise_apis::values::StaticText;
use serde::{Deserialize, Deserializer, Serialize};

use crate::capacity_type::CapacityType;

/// Capacity that is not asked for until a time. A field that is absent means any: without an instance type and a zone, for
/// example, a whole capacity type.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UnavailableCapacity {
    /// Instance type name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_type: Option<Arc<str>>,
    /// Zone name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<Arc<str>>,
    /// Capacity type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity_type: Option<CapacityType>,
    /// A narrower place of the provider, such as `subnet/subnet-1` or `placement-group/pg-1/2`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// What the cloud said: its error code, or the notice.
    pub cause: String,
    /// When it is asked for again.
    pub until: Timestamp,
}

/// A zone that the operator, or the cloud, has shifted away from the cluster: nothing is launched into it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ShiftedZone {
    /// Its id, by which the shift names it: the same zone has another name in another account.
    pub id: Arc<str>,
    /// Label of nodes that has the id as its value.
    pub id_label: &'static str,
    /// Its name; `None` if the node class launches nothing there anyway.
    pub name: Option<Arc<str>>,
    /// When the shift ends, unless it is cancelled or extended.
    pub until: Timestamp,
}

impl<'de> Deserialize<'de> for ShiftedZone {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Stored {
            id: Arc<str>,
            id_label: StaticText,
            name: Option<Arc<str>>,
            until: Timestamp,
        }
        let stored = Stored::deserialize(deserializer)?;
        Ok(Self {
            id: stored.id,
            id_label: stored.id_label.0,
            name: stored.name,
            until: stored.until,
        })
    }
}
