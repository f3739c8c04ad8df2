//! Two and three replicas; the lease is lost and comes back, to the same or to another, in the middle of every step of
//! nodes' lives, in an order that chance makes, for many seeds: no machine is leaked or made twice, no finalizer stays, no
//! limit and no budget is exceeded, nothing protected goes, and the pods run.
//!
//! `MORTISE_LEASE_SEEDS=1000` plays that many seeds instead of the few that every test run does; `MORTISE_LEASE_SEEDS=17-17`
//! plays one.

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
fn a_lease_that_is_lost_around_any_step_leaks_doubles_and_exceeds_nothing() {
    play_seeds("MORTISE_LEASE_SEEDS", SEEDS, |seed| Matrix {
        seed,
        faults: [Fault::LeaseLostBefore, Fault::LeaseLostAfter],
        replicas: 2 + usize::try_from(seed % 2).unwrap(),
    });
}
