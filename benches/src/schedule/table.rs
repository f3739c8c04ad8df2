//! The table that people read.

use std::io::Write;

use anyhow::Result;

use super::baseline::Baseline;
use super::{Row, ScheduleResults};
use crate::report::Results;

impl Results for ScheduleResults {
    fn write_table(&self, out: &mut dyn Write) -> Result<()> {
        heading(out)?;
        for row in &self.rows {
            let mut baselines = self.baselines.iter();
            write_row(out, row, baselines.find(|each| each.input == row.input))?;
        }
        let without: usize = self.rows.iter().map(|row| row.pods - row.placed).sum();
        writeln!(
            out,
            "{} inputs, {without} pods without a place, {} rules broken",
            self.rows.len(),
            self.violations()
        )?;
        Ok(())
    }
}

fn heading(out: &mut dyn Write) -> Result<()> {
    writeln!(
        out,
        "gap is what the plan costs above the linear-programming bound; speed, price and memory are ours to the reference's; speed is by processor time, which other work on the test host does not change"
    )?;
    writeln!(
        out,
        "{:<24}{:>7}{:>7}{:>9}{:>9}{:>10}{:>7}{:>10}{:>7}{:>8}{:>6} |{:>7}{:>7}{:>10}{:>6} |{:>6}{:>7}{:>6}",
        "input",
        "pods",
        "placed",
        "ms",
        "cpu ms",
        "pods/s",
        "nodes",
        "$/h",
        "gap",
        "MiB",
        "viol.",
        "pods/s",
        "nodes",
        "$/h",
        "MiB",
        "speed",
        "price",
        "MiB"
    )?;
    Ok(())
}

/// One input, the reference's figures, and the ratios.
fn write_row(out: &mut dyn Write, row: &Row, baseline: Option<&Baseline>) -> Result<()> {
    let peak = row.peak_mib.unwrap_or(f64::NAN);
    let speed = row.pods_per_cpu_second.unwrap_or(row.pods_per_second);
    write!(
        out,
        "{:<24}{:>7}{:>7}{:>9.2}{:>9.2}{:>10.0}{:>7}{:>10.3}{:>6.1}%{:>8.1}{:>6} |",
        row.input,
        row.pods,
        row.placed,
        row.seconds.1 * 1e3,
        row.cpu_seconds.unwrap_or(f64::NAN) * 1e3,
        speed,
        row.nodes,
        row.dollars_per_hour,
        (row.dollars_per_hour / row.lower_bound - 1.0) * 100.0,
        peak,
        row.violations
    )?;
    match baseline {
        Some(theirs) => writeln!(
            out,
            "{:>7.0}{:>7}{:>10.3}{:>6.0} |{:>5.0}x{:>7.3}{:>6.2}",
            theirs.pods_per_second,
            theirs.nodes,
            theirs.dollars_per_hour.0,
            theirs.peak_mib,
            speed / theirs.pods_per_second,
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
