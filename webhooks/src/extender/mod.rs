//! The kube-scheduler extender: enforcement and scores, never detection (`docs/scheduler.md`).
//!
//! Rules of the hot path: one load of an immutable snapshot, no lock shared with the workers, no call to anybody. What is
//! not known is passed. Every denial has an owner and an end, and one of a few constant messages: a message that changed
//! would wake the pod by itself.

mod asker;
mod calls;
mod charges;
mod filter;
mod held;
mod life;
mod memory;
mod preempt;
mod prioritize;
mod rooms;
mod schedulers;
mod shares;
mod signals;
mod verdict;
pub mod wire;

pub use asker::{Asker, Exemption, SpotWish};
pub use calls::{Call, Calls};
pub use charges::Charges;
pub use filter::filter;
pub use held::HeldPods;
pub use life::Life;
pub use memory::Memory;
pub use preempt::preempt;
pub use prioritize::prioritize;
pub use rooms::Rooms;
pub use schedulers::{CHECK_SCHEDULER, CallsSeen, SchedulerCalls, Schedulers};
pub use shares::Shares;
pub use signals::Signals;
pub use verdict::{Denial, Verdict, Verdicts};

use mortise_core::snapshot::Snapshot;

use crate::{Counters, World};

/// A picture older than this is not used to deny or to score: a watch has stalled (its bookmarks come every minute at
/// the latest, and the driver confirms every second that its watches are alive).
pub const STALE_MS: i64 = 10_000;

/// Whether the picture may be used; if not, that is counted.
fn is_usable(world: &dyn World, snapshot: &Snapshot, counters: &Counters) -> bool {
    if !snapshot.synced {
        counters.passed_unsynced.inc();
        return false;
    }
    if world.age_ms() > STALE_MS {
        counters.passed_stale.inc();
        return false;
    }
    true
}
