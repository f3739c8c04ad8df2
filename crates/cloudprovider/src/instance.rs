//! Instances as a cloud lists and terminates them.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::capacity_type::CapacityType;
use mortise_apis::names::ProviderId;

/// Result of [`crate::CloudProvider::terminate`], which is called again until the instance does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TerminationStatus {
    /// Termination was requested, or is in progress.
    Started,
    /// The instance does not exist (any more).
    Gone,
}

/// An instance as [`crate::CloudProvider::list_instances`] lists it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instance {
    /// Its id.
    pub provider_id: ProviderId,
    /// Name of the NodeClaim that it was launched for, if the cloud stores it.
    pub claim: Option<String>,
    /// Token of the batch that it was launched in, if it was launched in one: it may belong to any NodeClaim of it.
    pub batch: Option<String>,
    /// When it was launched.
    pub created: Option<Timestamp>,
    /// `true` while it is terminating.
    pub terminating: bool,
    /// What it is, as far as the cloud says.
    pub details: InstanceDetails,
}

/// What an instance is; `None` is not known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceDetails {
    /// Name of its instance type, which may be one that no node class offers any more.
    pub instance_type: Option<String>,
    /// Its zone.
    pub zone: Option<String>,
    /// How it is paid for now.
    pub capacity_type: Option<CapacityType>,
    /// The capacity reservation that it was launched into and still runs in.
    pub reservation: Option<String>,
    /// Its image.
    pub image: Option<String>,
}
