//! The Kubernetes shell: watches feed the core, effects leave it, and the same HTTP service stands on a cluster or on a
//! simulation.
//!
//! ```text
//!  API server ─► watch ─┐                           ┌─► effects ─► API server, clouds
//!  clouds ─► notices ───┼─► driver (engine, one thread) ─► Shared (snapshot, decisions, metrics, health)
//!  Lease ─► lease ──────┘          ▲        │                   ▲
//!                                  └────────┘ heavy steps       └── serve: extender, webhooks, debug, page
//! ```
//!
//! Invariants: one thread writes the engine; only [`effects`](self) writes to the outside; whatever answers a request reads
//! nothing but [`ServiceState`]; every task is supervised, and the first that ends unasked ends the process.

mod auth;
mod backoff;
pub mod certificates;
mod clients;
mod clock;
mod config;
mod debug;
mod decision_log;
mod driver;
mod effects;
mod error;
mod failpoint;
mod handshakes;
mod interruption_notices;
mod leadership_deadline;
mod lease;
mod metrics;
mod objects;
mod preflight;
mod recent_drain_blockers;
mod reviews;
mod run;
mod serve;
mod service_state;
mod shutdown;
#[cfg(test)]
mod testing;
mod tls;
mod transport;
mod ui;
mod watch;
mod watch_health;

pub use auth::{AccessDenied, DebugAccess};
pub use clients::Clients;
pub use clock::{Clock, SystemClock};
pub use config::{
    AdmissionClients, CertificateSource, Config, LEASE_NAME, LeaderElection, Listen,
    default_extender_clients,
};
pub use debug::{DebugView, Subject, explanation};
pub use decision_log::{DecisionLog, NumberedRecord};
pub use driver::StepPanicked;
pub use error::RunError;
pub use failpoint::{Failpoint, FailpointSide, UnknownFailpoint, VARIABLE as FAILPOINT_VARIABLE};
pub use handshakes::HandshakeCause;
pub use lease::{LEASE_DURATION, RENEW_DEADLINE, RETRY_PERIOD};
pub use metrics::{Metrics, TelemetryDetail};
pub use reviews::Reviewer;
pub use run::{RunningService, run, start};
pub use serve::{Addresses, HttpsService, Listeners, serve};
pub use service_state::{LOOP_STALL, ReadinessState, ServiceState};
pub use shutdown::Shutdown;
pub use tls::{ApiServers, Peer, Tls, TlsError};
