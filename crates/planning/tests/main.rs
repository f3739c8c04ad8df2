//! Plans: tables, laws over random clusters, and recorded passes.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod covering;
mod devices;
mod explain;
mod facts_disruption;
mod facts_scheduling;
mod gang_topology;
mod gangs;
mod laws_packing;
mod laws_scheduling;
mod one_pool;
mod placements;
#[path = "../../state/tests/random_world/mod.rs"]
mod random_world;
mod recorded;
