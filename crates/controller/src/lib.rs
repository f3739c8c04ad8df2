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
//! nothing but [`Shared`]; every task is supervised, and the first that ends unasked ends the process.

mod auth;
mod backoff;
pub mod certificates;
mod clients;
mod clock;
mod config;
mod debug;
mod drains;
mod driver;
mod effects;
mod error;
mod failpoint;
mod handshakes;
mod lease;
mod license;
mod liveness;
mod metrics;
mod notices;
mod objects;
mod preflight;
mod records;
mod reviews;
mod run;
mod serve;
mod shared;
mod shutdown;
#[cfg(test)]
mod testing;
mod tls;
mod transport;
mod ui;
mod watch;

pub use auth::{DebugAccess, Refused};
pub use clients::Clients;
pub use clock::{Clock, Wall};
pub use config::{
    AdmissionClients, CertificateSource, Config, LEASE_NAME, LeaderElection, Listen,
    default_extender_clients,
};
pub use debug::{Subject, View, explanation};
pub use driver::StepPanicked;
pub use error::RunError;
pub use failpoint::{Failpoint, Moment, UnknownFailpoint, VARIABLE as FAILPOINT_VARIABLE};
pub use handshakes::HandshakeCause;
pub use lease::{LEASE_DURATION, RENEW_DEADLINE, RETRY_PERIOD};
pub use metrics::{Detail, Metrics};
pub use records::{Numbered, Records};
pub use reviews::Reviewer;
pub use run::{Running, run, start};
pub use serve::{Addresses, Listeners, Service, serve};
pub use shared::{Health, LOOP_STALL, Shared};
pub use shutdown::Shutdown;
pub use tls::{ApiServers, Peer, Tls, TlsError};
