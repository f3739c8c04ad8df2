//! The kube-scheduler extender: enforcement and scores, never detection (`docs/design/extender.md`).
//!
//! Rules of the hot path: one load of an immutable snapshot, no lock shared with the workers, no call to anybody. What is
//! not known is passed. Every denial has an owner and an end, and one of a few constant messages: a message that changed
//! would wake the pod by itself.

mod assumed_pods;
mod call_log;
mod daemonset_reservations;
mod denied_pods;
mod extender_state;
mod feasibility_signals;
mod filter;
mod incoming_pod;
mod node_filter;
mod node_lifetime;
mod preempt;
mod prioritize;
mod schedulers;
mod spot_counts;
pub mod wire;

pub use assumed_pods::AssumedPods;
pub use call_log::{CallLog, ExtenderCall};
pub use daemonset_reservations::DaemonSetReservations;
pub use denied_pods::DeniedPods;
pub use extender_state::ExtenderState;
pub use feasibility_signals::FeasibilitySignals;
pub use filter::filter;
pub use incoming_pod::{FilterExemption, IncomingPod, SpotPreference};
pub use node_filter::{Denial, FilterVerdict, NodeFilter};
pub use node_lifetime::NodeLifetime;
pub use preempt::preempt;
pub use prioritize::prioritize;
pub use schedulers::{CHECK_SCHEDULER, CallsSeen, SchedulerCalls, Schedulers};
pub use spot_counts::SpotCounts;

use mortise_state::snapshot::Snapshot;

use crate::{ClusterView, Counters};

/// A snapshot older than this is not used to deny or to score: a watch has stalled (its bookmarks come every minute at
/// the latest, and the driver confirms every second that its watches are alive).
pub const STALE_MS: i64 = 10_000;

/// Whether the snapshot may be used; if not, that is counted.
fn is_usable(view: &dyn ClusterView, snapshot: &Snapshot, counters: &Counters) -> bool {
    if !snapshot.synced {
        counters.passed_unsynced.inc();
        return false;
    }
    if view.age_ms() > STALE_MS {
        counters.passed_stale.inc();
        return false;
    }
    true
}
