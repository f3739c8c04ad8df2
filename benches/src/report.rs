//! The table that people read.

use std::io::Write;
use std::path::Path;

use anyhow::Result;

use crate::baseline::Baseline;
use crate::machine::Machine;
use crate::schedule::{Results, Row};

/// What was measured, where and from what.
pub(crate) fn heading(
    out: &mut impl Write,
    machine: &Machine,
    folder: &Path,
    seed: u64,
    runs: usize,
) -> Result<()> {
    let Machine {
        cpu,
        processors,
        commit,
        debug_build,
    } = machine;
    writeln!(
        out,
        "machine {cpu}, {processors} processors; commit {commit}; seed {seed}; median of {runs} runs; inputs {}",
        folder.display()
    )?;
    if *debug_build {
        writeln!(
            out,
            "DEBUG BUILD: speeds mean nothing; build with --release"
        )?;
    }
    writeln!(
        out,
        "{:<24}{:>7}{:>7}{:>10}{:>10}{:>7}{:>10}{:>9}{:>6} | {:>8}{:>7}{:>10}{:>9} | {:>7}{:>7}{:>7}",
        "input",
        "pods",
        "placed",
        "ms",
        "pods/s",
        "nodes",
        "$/h",
        "MiB",
        "viol.",
        "ref /s",
        "nodes",
        "$/h (min)",
        "MiB",
        "speed",
        "$/h",
        "MiB"
    )?;
    Ok(())
}

/// One input, the reference's figures, and the ratios: speed ours to theirs, price and memory ours to theirs.
pub(crate) fn row(out: &mut impl Write, row: &Row, baseline: Option<&Baseline>) -> Result<()> {
    let peak = row.peak_mib.unwrap_or(f64::NAN);
    write!(
        out,
        "{:<24}{:>7}{:>7}{:>10.2}{:>10.0}{:>7}{:>10.3}{:>9.1}{:>6} |",
        row.input,
        row.pods,
        row.placed,
        row.seconds.1 * 1e3,
        row.pods_per_second,
        row.nodes,
        row.dollars_per_hour,
        peak,
        row.violations
    )?;
    match baseline {
        Some(theirs) => writeln!(
            out,
            " {:>8.0}{:>7}{:>10.3}{:>9.0} | {:>6.0}x{:>7.3}{:>7.2}",
            theirs.pods_per_second,
            theirs.nodes,
            theirs.dollars_per_hour.0,
            theirs.peak_mib,
            row.pods_per_second / theirs.pods_per_second,
            row.dollars_per_hour / theirs.dollars_per_hour.0,
            peak / theirs.peak_mib
        )?,
        None => writeln!(out, " no recorded figures")?,
    }
    if !row.unplaced.is_empty() {
        let kinds: Vec<String> = row
            .unplaced
            .iter()
            .map(|(kind, count)| format!("{kind} {count}"))
            .collect();
        writeln!(out, "    without a place: {}", kinds.join(", "))?;
        for reason in row.reasons.iter().take(3) {
            writeln!(out, "        {reason}")?;
        }
    }
    for violation in &row.first_violations {
        writeln!(out, "    broken: {violation}")?;
    }
    Ok(())
}

/// The sums.
pub(crate) fn closing(out: &mut impl Write, results: &Results) -> Result<()> {
    let violations: usize = results.rows.iter().map(|row| row.violations).sum();
    let without: usize = results.rows.iter().map(|row| row.pods - row.placed).sum();
    writeln!(
        out,
        "{} inputs, {without} pods without a place, {violations} rules broken",
        results.rows.len()
    )?;
    Ok(())
}
