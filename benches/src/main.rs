//! Entry point of the benchmarks.

/// As the `mortise` binary: what is measured in this process is what users run.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> anyhow::Result<()> {
    mortise_bench::run()
}
