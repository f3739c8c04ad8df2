//! Connections to the API server, the meaning of its responses, and connections to receivers.

#![expect(
    clippy::disallowed_types,
    reason = "clients are made here; other modules get a reader"
)]

pub(crate) mod backoff;
pub(crate) mod clients;
pub(crate) mod error_class;
pub(crate) mod permissions;
pub(crate) mod reader;
pub(crate) mod receiver;
pub(crate) mod resource_kinds;
pub(crate) mod reviews;
pub(crate) mod token_bucket;
mod transport;

pub use clients::{Clients, why_failed};
pub use reviews::Reviewer;
