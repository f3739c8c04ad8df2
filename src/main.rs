//! The `mortise` binary.

use std::process::ExitCode;

/// Gives memory back when a thousand machines are gone, and takes less time for the many small objects of calls and watches.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    mortise::cli::run()
}
