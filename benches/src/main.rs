//! Entry point of the benchmarks.

fn main() -> anyhow::Result<()> {
    mortise_bench::run()
}
