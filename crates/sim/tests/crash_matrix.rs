//! The service is killed before and after every step of nodes' lives, in an order that chance makes, for many seeds: no
//! machine is leaked or made twice, no finalizer stays, and the pods run.
//!
//! `MORTISE_CRASH_SEEDS=1000` (or `just crash-matrix`) plays that many seeds instead of the few that every test run does;
//! `MORTISE_CRASH_SEEDS=17-17` plays one.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod world;

use mortise_sim::Fault;
use world::matrix::{Matrix, play_seeds};

/// Seeds of a test run that says nothing else.
const SEEDS: u64 = 4;

#[test]
fn a_crash_around_any_step_leaks_and_doubles_nothing() {
    play_seeds("MORTISE_CRASH_SEEDS", SEEDS, |seed| Matrix {
        seed,
        faults: [Fault::CrashBefore, Fault::CrashAfter],
        replicas: 1,
    });
}
