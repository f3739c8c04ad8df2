//! The Kubernetes controller: watches send events to the engine, the executor applies its effects, and the same HTTP service
//! runs on a cluster or on a simulation.
//!
//! ```text
//!  API server ─► watch ────────┐                  ┌─► effects ─► API server, clouds
//!  clouds ─► watch (notices) ──┼─► engine_loop ───┼─► service_state (snapshot, decisions, metrics, readiness)
//!  Lease ─► election ──────────┘   (one thread)   │         ▲
//!                                       ▲         │         └── serve: extender, webhooks, debug, exposition, page
//!                                       └─────────┘ steps that compute for long
//! ```
//!
//! Modules import downwards only: `run` composes the others; below it are `serve`, `tls`, `election`, `engine_loop` and
//! `watch`; then `effects`, `notifications`, `service_state`, `client` and `metrics`; the modules at the bottom import nothing of this crate.
//!
//! Invariants: one thread writes the engine; only [`effects`](self) writes to the API server and to clouds; request handlers
//! read only [`ServiceState`]; every task is supervised, and the process exits with the first task that ends unexpectedly.

mod client;
mod clock;
mod config;
mod costs;
mod driver_message;
mod effects;
mod election;
mod engine_loop;
mod error;
mod flight_recorder;
mod metrics;
mod notifications;
pub mod pem;
mod run;
mod serve;
mod service_state;
#[cfg(test)]
mod testing;
mod tls;
mod traces;
mod watch;

pub use client::{Clients, Reviewer, why_failed};
pub use clock::{Clock, SystemClock};
pub use config::{
    AdmissionClients, CertificateSource, Config, LEASE_NAME, LeaderElection, Listen,
    NotificationConfig, NotificationFormat, RecordConfig, TelemetryDetail, TraceConfig,
    default_extender_clients,
};
pub use effects::failpoint::{
    Failpoint, FailpointSide, UnknownFailpoint, VARIABLE as FAILPOINT_VARIABLE,
};
pub use effects::pausing;
pub use election::{LEASE_DURATION, RENEW_DEADLINE, RETRY_PERIOD};
pub use error::{RunError, StepPanicked};
pub use metrics::{Metrics, SeriesRow};
pub use run::{CapturedCluster, RunningService, Shutdown, capture, run, start};
pub use serve::{
    AccessDenied, Addresses, DEBUG_ROUTES, DebugAccess, DebugRoute, DebugView, HttpsService,
    Listeners, Subject, explanation, serve,
};
pub use service_state::decision_log::{DecisionLog, NumberedRecord};
pub use service_state::handshakes::HandshakeCause;
pub use service_state::{LOOP_STALL, ReadinessState, ServiceState};
pub use tls::{ApiServers, Peer, Tls, TlsError, certificates};
