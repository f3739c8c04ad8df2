//! Stories on real peers: one module each.
//!
//! `cargo test --workspace` runs all of them; `cargo test --workspace --test stories harness` those of one module.

mod access;
mod admission;
mod availability;
mod aws;
mod bad_input;
mod cel;
mod coexistence;
mod consolidation;
mod conversion;
mod crash;
mod crds;
mod edges;
mod emulator;
mod extender;
mod harness;
mod kubectl;
mod lint;
mod migrate;
mod objects;
mod overlays;
mod provisioning;
mod scale_to_zero;
mod scene;
