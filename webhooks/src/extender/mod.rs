//! The kube-scheduler extender: enforcement and scores, never detection (`docs/scheduler.md`).
//!
//! Rules of the hot path: one load of an immutable snapshot, no lock shared with the workers, no call to anybody. What is
//! not known is passed. Every denial has an owner and an end, and one of a few constant messages: a message that changed
//! would wake the pod by itself.

mod charges;
mod filter;
mod pod;
mod preempt;
mod prioritize;
mod verdict;
pub mod wire;

pub use charges::Charges;
pub use filter::filter;
pub use preempt::preempt;
pub use prioritize::prioritize;
pub use verdict::{Denial, Verdict, Verdicts};

/// A picture older than this is not used to deny or to score: a watch has stalled (its bookmarks come every minute at
/// the latest, and the driver confirms every second that its watches are alive).
pub const STALE_MS: i64 = 10_000;
