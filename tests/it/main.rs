//! Stories on real peers: one module each.
//!
//! `cargo test --workspace` runs all of them; `cargo test --workspace --test stories harness` those of one module.

mod access;
mod admission;
mod agreement;
mod availability;
mod aws;
mod bad_input;
mod bad_manifests;
mod bad_weather;
mod cel;
mod census;
mod chart;
mod coexistence;
mod coming_up;
mod command;
mod consolidation;
mod conversion;
mod crash;
mod crash_matrix;
mod crds;
mod devices;
mod drains;
mod edges;
mod emulator;
mod endings;
mod extender;
mod extender_criteria;
mod extender_wire;
mod failover;
mod faults;
mod harness;
mod kubectl;
mod lint;
mod migrate;
mod objects;
mod overlays;
mod provisioning;
mod repair;
mod restart;
mod rotation;
mod scale_to_zero;
mod scene;
mod shapes;
mod slow_launches;
mod static_pools;
