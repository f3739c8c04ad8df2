//! Admission: what CEL cannot see (other objects, the catalogue, numbers), and better words for what a schema says badly.
//!
//! ```text
//! API server ─► default:  what the definition will refuse, refused with a fix; the class reference filled in
//!            ─► (schema and CEL)
//!            ─► validate: what can never work, refused; what is probably a mistake, a warning; a preview of edits
//! ```
//!
//! Every check here is repeated by the definitions or by the workers as a condition, so nothing is lost when the webhook
//! is down. An object that is being deleted, and an update that leaves the spec alone, always pass.

mod checks;
mod defaulting;
mod finding;
mod preview;
mod review;
mod scheduler_name;
mod text;
mod validation;

pub use checks::{AdmissionCheck, CHECKS, CheckedKinds, why_never_allows};
pub use defaulting::set_defaults;
pub use finding::{AdmissionFinding, Check};
pub use review::{AdmissionRequest, AdmissionResult, GroupVersionKind, respond_to_review};
pub use scheduler_name::set_scheduler_name;
pub use validation::validate;

use jiff::Timestamp;
use mortise_apis::CrdSet;
use mortise_state::snapshot::Snapshot;

/// Settings of admission.
#[derive(Clone, Debug, Default)]
pub struct AdmissionSettings {
    /// Deny, instead of warn about, a pool that no instance type can satisfy.
    pub deny_unsatisfiable: bool,
    /// The definitions, and the node classes that are served with them.
    pub crds: CrdSet,
    /// The snapshot is of files: what is not in it may well be in the cluster.
    pub offline: bool,
}

/// What an answer is given from.
pub struct AdmissionContext<'a> {
    /// The cluster.
    pub snapshot: &'a Snapshot,
    /// Settings.
    pub rules: &'a AdmissionSettings,
    /// Now.
    pub now: Timestamp,
    /// The time for a preview is over. A closure that is true from the start asks for no preview at all.
    pub stop: &'a dyn Fn() -> bool,
}
