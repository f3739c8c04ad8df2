//! What the kernel says of mortise's process.

use std::fs;

use anyhow::{Context as _, Result};
use serde::Serialize;

use super::quantiles::Quantiles;

/// Memory of the process.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Memory {
    /// When: what the cluster had.
    pub(crate) when: String,
    /// Resident (`VmRSS`).
    pub(crate) resident_mib: f64,
    /// Of it, what is not a file's (`RssAnon`): heap and stacks.
    pub(crate) anonymous_mib: f64,
    /// Of it, the program itself (`RssFile`), which the kernel may drop and read again.
    pub(crate) file_mib: f64,
    /// The most that was ever resident (`VmHWM`).
    pub(crate) peak_mib: f64,
}

impl Memory {
    /// Of a process.
    pub(crate) fn of(pid: u32, when: String) -> Result<Self> {
        let path = format!("/proc/{pid}/status");
        let status = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        let mib = |field: &str| -> Result<f64> {
            let line = status
                .lines()
                .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))
                .with_context(|| format!("{path} has no {field}"))?;
            let kib: f64 = line.trim().trim_end_matches("kB").trim().parse()?;
            Ok(kib / 1024.0)
        };
        Ok(Self {
            when,
            resident_mib: mib("VmRSS")?,
            anonymous_mib: mib("RssAnon")?,
            file_mib: mib("RssFile")?,
            peak_mib: mib("VmHWM")?,
        })
    }
}

/// Startup time of the program.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Starts {
    /// `mortise --help`, from start to end of the process.
    pub(crate) help: Quantiles,
    /// `mortise serve`, from start of the process until its HTTPS port is open.
    pub(crate) listening: Quantiles,
    /// `mortise serve`, from start of the process until `/readyz` says so: certificates made, all lists read.
    pub(crate) ready: Quantiles,
}

/// Time that a process has spent on processors, in seconds. The kernel counts in ticks of 10 ms.
pub(crate) fn cpu_seconds(pid: u32) -> Result<f64> {
    /// What `getconf CLK_TCK` says on every Linux that Rust runs on.
    const TICKS_PER_SECOND: f64 = 100.0;
    let path = format!("/proc/{pid}/stat");
    let stat = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    // The name, in parentheses, may hold blanks. After it come state (1st) ... utime (12th), stime (13th).
    let (_, fields) = stat.rsplit_once(')').context("no name")?;
    let ticks = fields
        .split_whitespace()
        .skip(11)
        .take(2)
        .map(str::parse::<f64>)
        .sum::<Result<f64, _>>()
        .with_context(|| format!("{path}: {stat}"))?;
    Ok(ticks / TICKS_PER_SECOND)
}
