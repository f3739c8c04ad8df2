//! The service is killed before and after every lifecycle step of nodes, in random order, for many seeds: no instance is leaked
//! or launched twice, no finalizer stays, and the pods run.
//!
//! `MORTISE_CRASH_SEEDS=1000` (or `just crash-matrix`) runs that many seeds instead of the default;
//! `MORTISE_CRASH_SEEDS=17-17` runs one.

use crate::world::matrix::{Matrix, play_seeds};
use crate::world::seeds::Seeds;
use mortise_sim::Fault;

/// Default number of seeds.
const SEEDS: u64 = 4;

#[test]
fn a_crash_around_any_step_leaks_and_doubles_nothing() {
    let seeds = Seeds {
        variable: "MORTISE_CRASH_SEEDS",
        usual: SEEDS,
        test: "crash_matrix",
    };
    play_seeds(&seeds, |seed| Matrix {
        seed,
        faults: [Fault::CrashBefore, Fault::CrashAfter],
        replicas: 1,
        is_batched: seed % 2 == 0,
    });
}
