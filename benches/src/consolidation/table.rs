//! The table that people read.

use std::io::Write;

use anyhow::Result;

use super::{CASES, ConsolidationResults, Row};
use crate::report::Results;

impl Results for ConsolidationResults {
    fn write_table(&self, out: &mut dyn Write) -> Result<()> {
        writeln!(
            out,
            "first: until the first command is decided, or it is clear that there is none; idle: a round at rest; all: every step until rest, validations included; times in ms, by processor time from 20 ms on, the first a median, steps in parentheses; idle s: with the pauses between steps"
        )?;
        writeln!(
            out,
            "could: what would be saved at the linear-programming bound; gap: what the nodes cost above it in the end"
        )?;
        writeln!(
            out,
            "{:<16}{:>6}{:>7}{:>16}{:>16}{:>8}{:>18}{:>9}{:>6}{:>6}{:>7}{:>6}{:>7}{:>10}{:>10}{:>7}{:>7}{:>8}{:>7}",
            "case",
            "nodes",
            "pods",
            "first",
            "idle",
            "idle s",
            "all",
            "longest",
            "min",
            "comm.",
            "gone",
            "new",
            "moved",
            "$/h",
            "after",
            "saved",
            "could",
            "gap",
            "MiB"
        )?;
        for row in &self.rows {
            write_row(out, row)?;
        }
        writeln!(out, "the first command of each, next to the reference's")?;
        for row in &self.rows {
            write_first(out, row)?;
        }
        for (name, inputs) in CASES {
            if self.rows.iter().any(|row| row.case == name) {
                writeln!(out, "{name}: {inputs}")?;
            }
        }
        Ok(())
    }
}

fn write_row(out: &mut dyn Write, row: &Row) -> Result<()> {
    let timed = |ms: f64, steps: usize| format!("{ms:.1} ({steps})");
    // A run that was cut off has no round at rest.
    let (idle, idle_s) = if row.is_cut_off {
        ("-".to_owned(), "-".to_owned())
    } else {
        let idle = timed(row.last_round_ms, row.last_round_steps);
        (idle, format!("{:.1}", row.last_round_s))
    };
    let share = |to: f64| (1.0 - to / row.before) * 100.0;
    writeln!(
        out,
        "{:<16}{:>6}{:>7}{:>16}{:>16}{:>8}{:>18}{:>9.1}{:>6.0}{:>6}{:>7}{:>6}{:>7}{:>10.3}{:>10.3}{:>6.1}%{:>6.1}%{:>7.1}%{:>7.0}{}{}",
        row.case,
        row.nodes,
        row.pods,
        timed(row.first_round_ms.1, row.first_round_steps),
        idle,
        idle_s,
        timed(row.total_ms, row.steps),
        row.longest_ms,
        row.minutes,
        row.commands,
        row.removed,
        row.launched,
        row.moved,
        row.before,
        row.after,
        share(row.after),
        share(row.lower_bound),
        (row.after / row.lower_bound - 1.0) * 100.0,
        row.peak_mib.unwrap_or(f64::NAN),
        if row.is_cut_off { " CUT OFF" } else { "" },
        if row.overfull + row.lost > 0 {
            format!(
                " BROKEN: {} nodes overfull, {} pods lost",
                row.overfull, row.lost
            )
        } else {
            String::new()
        }
    )?;
    if row.abandoned > 0 {
        writeln!(
            out,
            "    {} nodes of commands that were abandoned",
            row.abandoned
        )?;
    }
    Ok(())
}

fn write_first(out: &mut dyn Write, row: &Row) -> Result<()> {
    match &row.first {
        Some(first) => write!(
            out,
            "{:<16}{:>5} nodes gone{:>5} pods moved{:>3} new{:>9.3} $/h saved{:>9.1} ms",
            row.case, first.nodes, first.pods, first.launched, first.saving, row.first_round_ms.1
        )?,
        None => write!(
            out,
            "{:<16}{:>5} nodes gone{:>44.1} ms",
            row.case, 0, row.first_round_ms.1
        )?,
    }
    let Some(theirs) = &row.recorded else {
        writeln!(out, " | no recorded figures")?;
        return Ok(());
    };
    writeln!(
        out,
        " | {:>5} nodes gone{:>5} pods moved{:>9.3} $/h saved{:>10.1} ms | {:.0} times as fast",
        theirs.nodes,
        theirs.pods,
        theirs.saving,
        theirs.ms,
        theirs.ms / row.first_round_ms.1
    )?;
    Ok(())
}
