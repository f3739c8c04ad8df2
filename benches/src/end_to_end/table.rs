//! The table that people read.

use std::io::Write;

use anyhow::Result;

use super::process::{Memory, Starts};
use super::quantiles::Quantiles;
use super::{EndToEndResults, claims, extender};
use crate::report::Results;

/// What the project wants to hold (`docs/benchmarks/end-to-end.md`).
const CLAIM_MS: f64 = 300.0;
const FILTER_MS: f64 = 2.0;
const EMPTY_MIB: f64 = 40.0;

impl Results for EndToEndResults {
    fn write_table(&self, out: &mut dyn Write) -> Result<()> {
        #[expect(clippy::cast_precision_loss, reason = "for display")]
        let size = self.binary_bytes as f64 / f64::from(1 << 20);
        writeln!(
            out,
            "control plane, mortise and this client share the test host; Kubernetes {}; binary {size:.1} MiB; {}",
            self.kubernetes, self.settings
        )?;
        starts(out, &self.starts)?;
        claims(out, &self.claims)?;
        extender(out, &self.extender)?;
        memory(out, &self.memory)
    }
}

/// How fast it starts.
fn starts(out: &mut dyn Write, starts: &Starts) -> Result<()> {
    writeln!(out, "\n{:<28}{}", "start", quantile_heads())?;
    for (name, times) in [
        ("--help", &starts.help),
        ("HTTPS port open", &starts.listening),
        ("ready", &starts.ready),
    ] {
        writeln!(out, "{name:<28}{}", quantiles(times))?;
    }
    Ok(())
}

/// Memory.
fn memory(out: &mut dyn Write, memory: &[Memory]) -> Result<()> {
    writeln!(
        out,
        "\n{:<28}{:>10}{:>10}{:>10}{:>10}",
        "memory (MiB)", "resident", "anonymous", "file", "peak"
    )?;
    for row in memory {
        write!(
            out,
            "{:<28}{:>10.1}{:>10.1}{:>10.1}{:>10.1}",
            row.when, row.resident_mib, row.anonymous_mib, row.file_mib, row.peak_mib
        )?;
        let target = (row.when == "empty cluster").then_some(EMPTY_MIB);
        writeln!(out, "{}", verdict(target, row.resident_mib, "MiB"))?;
    }
    Ok(())
}

/// Pods to claims.
fn claims(out: &mut dyn Write, claims: &[claims::Row]) -> Result<()> {
    writeln!(
        out,
        "\n{:<28}{:>8}{:>10}{:>8}  last pod created to",
        "pods -> NodeClaims", "rounds", "long ms", "claims"
    )?;
    for row in claims {
        let head = format!(
            "{:<28}{:>8}{:>10.0}{:>8}",
            row.pods, row.rounds, row.length_ms, row.claims
        );
        if row.pods == 1 {
            writeln!(
                out,
                "{head}  {:<14}{}{}",
                "its claim",
                quantiles(&row.last),
                verdict(Some(CLAIM_MS), row.last.p99_ms, "ms")
            )?;
            continue;
        }
        writeln!(
            out,
            "{head}  {:<14}{}",
            "first claim",
            quantiles(&row.first)
        )?;
        writeln!(
            out,
            "{:54}  {:<14}{}",
            "",
            "last claim",
            quantiles(&row.last)
        )?;
        writeln!(
            out,
            "{:54}  {:<14}{}{}",
            "",
            "beyond rule",
            quantiles(&row.beyond_rule),
            verdict(Some(CLAIM_MS), row.beyond_rule.p99_ms, "ms")
        )?;
    }
    Ok(())
}

/// Extender calls.
fn extender(out: &mut dyn Write, extender: &[extender::Row]) -> Result<()> {
    writeln!(
        out,
        "\n{:<12}{:>7}{:>10}{:>7}{:>7}{}{:>9}{:>8}",
        "extender",
        "names",
        "nominations",
        "conns",
        "KiB",
        quantile_heads(),
        "calls/s",
        "cpu us"
    )?;
    for row in extender {
        write!(
            out,
            "{:<12}{:>7}{:>10}{:>7}{:>7}{}{:>9.0}{:>8.0}",
            row.call,
            row.names,
            row.nominations,
            row.connections,
            row.request_bytes / 1024,
            quantiles(&row.time),
            row.calls_per_second,
            row.cpu_us_per_call
        )?;
        let is_target = row.call == "filter" && row.names <= 500 && row.connections == 1;
        writeln!(
            out,
            "{}",
            verdict(is_target.then_some(FILTER_MS), row.time.p99_ms, "ms")
        )?;
    }
    Ok(())
}

fn quantile_heads() -> String {
    format!("{:>9}{:>9}{:>9}{:>9} ms", "p50", "p90", "p99", "max")
}

fn quantiles(times: &Quantiles) -> String {
    let Quantiles {
        p50_ms,
        p90_ms,
        p99_ms,
        max_ms,
        ..
    } = times;
    format!("{p50_ms:>9.2}{p90_ms:>9.2}{p99_ms:>9.2}{max_ms:>9.2}   ")
}

fn verdict(target: Option<f64>, value: f64, unit: &str) -> String {
    match target {
        None => String::new(),
        Some(target) if value <= target => format!("  (wanted: {target} {unit})"),
        Some(target) => format!("  MISSED (wanted: {target} {unit})"),
    }
}
