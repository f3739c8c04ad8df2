//! Two and three replicas; the lease is lost and acquired, by the same or by another replica, around every lifecycle step of
//! nodes, in random order, for many seeds: no instance is leaked or launched twice, no finalizer stays, no limit and no budget
//! is exceeded, no protected pod is disrupted, and the pods run.
//!
//! `MORTISE_LEASE_SEEDS=1000` runs that many seeds instead of the default; `MORTISE_LEASE_SEEDS=17-17`
//! runs one.

use crate::world::matrix::{Matrix, play_seeds};
use crate::world::seeds::Seeds;
use mortise_sim::Fault;

/// Default number of seeds.
const SEEDS: u64 = 4;

#[test]
fn a_lease_that_is_lost_around_any_step_leaks_doubles_and_exceeds_nothing() {
    let seeds = Seeds {
        variable: "MORTISE_LEASE_SEEDS",
        usual: SEEDS,
        test: "lease_matrix",
    };
    play_seeds(&seeds, |seed| Matrix {
        seed,
        faults: [Fault::LeaseLostBefore, Fault::LeaseLostAfter],
        replicas: 2 + usize::try_from(seed % 2).unwrap(),
        is_batched: seed % 3 == 0,
    });
}
