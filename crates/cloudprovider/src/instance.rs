//! Instances as a cloud lists and terminates them.

use jiff::Timestamp;
use serde::Serialize;

use mortise_apis::names::ProviderId;

/// Answer to [`crate::CloudProvider::terminate`]. It is asked again until the machine is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TerminationStatus {
    /// Termination was asked for, or is under way.
    Started,
    /// There is no such machine (any more).
    Gone,
}

/// A machine as [`crate::CloudProvider::list_instances`] lists it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Instance {
    /// Its id.
    pub provider_id: ProviderId,
    /// Name of the claim it was launched for, when the cloud remembers.
    pub claim: Option<String>,
    /// When it was launched.
    pub created: Option<Timestamp>,
    /// `true` while it is going away.
    pub terminating: bool,
}
