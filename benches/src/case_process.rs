//! A case in a process of its own, so that what it allocates is its own.
//!
//! `mortise-bench COMMAND --measure CASE` measures one case and prints it as a line of JSON; the command itself starts that for each.

use std::ffi::OsStr;
use std::io::Write as _;
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::report::{self, Benchmark};

/// What a process of its own measures of a case; `flags` are those of the command that the figures depend on.
pub(crate) fn measured<T: DeserializeOwned>(
    command: &str,
    case: &str,
    flags: impl IntoIterator<Item = impl AsRef<OsStr>>,
) -> Result<T> {
    let output = Command::new(std::env::current_exe()?)
        .args([command, "--measure", case])
        .args(flags)
        .output()
        .with_context(|| format!("measuring {case}"))?;
    if !output.status.success() {
        bail!(
            "measuring {case}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    serde_json::from_slice(&output.stdout).with_context(|| format!("figures of {case}"))
}

/// Runs the command, or measures one case for the process that does.
pub(crate) fn run<B: Benchmark, T: Serialize>(
    args: &B,
    case: Option<&str>,
    measure: impl FnOnce(&B, &str) -> Result<T>,
) -> Result<()> {
    let Some(case) = case else {
        return report::run(args);
    };
    let figures = measure(args, case)?;
    writeln!(std::io::stdout(), "{}", serde_json::to_string(&figures)?)?;
    Ok(())
}
