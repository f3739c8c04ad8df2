//! What the figures were measured on.

use std::fs;
use std::io::{self, Write};
use std::process::Command;

use serde::Serialize;

/// The computer that results belong to.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct TestHost {
    /// Processor model; empty when it is not known.
    cpu: String,
    /// Processors that this process may use.
    processors: usize,
    /// Processors that others kept busy in the last minute, roughly: the load average when the run began.
    load: f64,
    /// The build has debug assertions: figures mean nothing.
    debug_build: bool,
}

impl TestHost {
    /// Looks at this one.
    pub(crate) fn here() -> Self {
        let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = info
            .lines()
            .find_map(|line| line.strip_prefix("model name")?.split_once(':'));
        Self {
            cpu: model.map_or_else(String::new, |(_, name)| name.trim().to_owned()),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            load: load(),
            debug_build: cfg!(debug_assertions),
        }
    }

    /// The line of a report about it.
    pub(crate) fn write_line(&self, out: &mut dyn Write) -> io::Result<()> {
        let Self {
            cpu,
            processors,
            load,
            debug_build,
        } = self;
        writeln!(out, "test host {cpu}, {processors} processors, load {load}")?;
        if *debug_build {
            writeln!(
                out,
                "DEBUG BUILD: figures mean nothing; build with --release"
            )?;
        }
        Ok(())
    }
}

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git")
        .args(args)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Commit of the source, with `+` when one of these paths, relative to this crate, differs from it; empty outside a checkout.
pub(crate) fn commit(sources: &[&str]) -> String {
    let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else {
        return String::new();
    };
    let mut status = vec!["status", "--porcelain", "--"];
    status.extend(sources);
    let changed = git(&status).is_some_and(|files| !files.is_empty());
    if changed {
        format!("{commit}+")
    } else {
        commit
    }
}

fn load() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ')
        .next()
        .and_then(|first| first.parse().ok())
        .unwrap_or(f64::NAN)
}

/// Time that the calling thread has spent on a processor, in seconds; `None` where `/proc` does not tell. Unlike wall time it
/// does not grow when other processes use the test host.
pub(crate) fn cpu_seconds() -> Option<f64> {
    let text = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let nanos: f64 = text.split(' ').next()?.parse().ok()?;
    Some(nanos / 1e9)
}

/// Peak resident memory of this process in MiB; `None` where `/proc` does not tell.
pub(crate) fn peak_mib() -> Option<f64> {
    status_mib("VmHWM:")
}

/// Resident memory of this process in MiB; `None` where `/proc` does not tell.
pub(crate) fn resident_mib() -> Option<f64> {
    status_mib("VmRSS:")
}

fn status_mib(field: &str) -> Option<f64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    let kib: f64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kib / 1024.0)
}
