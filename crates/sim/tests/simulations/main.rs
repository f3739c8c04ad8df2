//! Days of a simulated cluster. One program, so that long simulations run next to each other.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod arrivals;
mod bad_image;
mod baseline;
mod baseline_facts;
mod cloud_limits;
mod commitments;
mod crash_matrix;
mod cycles;
mod events;
mod faults;
mod gangs;
mod history;
mod lean_nodes;
mod learned_buffers;
mod lease_matrix;
mod on_demand_share;
mod plan;
mod plan_example;
mod policies;
mod recorded_scenario;
mod replay;
mod scale_down;
mod scenario;
mod scenario_changes;
mod scenario_gangs;
mod scenario_workloads;
mod steady;
mod watches;
mod world;
mod writes;
mod zone_balance;
