//! Instances as a cloud lists and terminates them.

use jiff::Timestamp;
use serde::Serialize;

use mortise_apis::names::ProviderId;

/// Result of [`crate::CloudProvider::terminate`], which is called again until the instance does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TerminationStatus {
    /// Termination was requested, or is in progress.
    Started,
    /// The instance does not exist (any more).
    Gone,
}

/// An instance as [`crate::CloudProvider::list_instances`] lists it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Instance {
    /// Its id.
    pub provider_id: ProviderId,
    /// Name of the NodeClaim that it was launched for, if the cloud stores it.
    pub claim: Option<String>,
    /// When it was launched.
    pub created: Option<Timestamp>,
    /// `true` while it is terminating.
    pub terminating: bool,
}
