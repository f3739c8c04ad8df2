//! The `mortise` binary.

use std::process::ExitCode;

/// Returns memory to the system after a thousand nodes were deleted, and is faster for the many small objects of calls
/// and watches.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    mortise::cli::run()
}
