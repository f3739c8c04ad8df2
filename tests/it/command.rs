//! Subcommands of mortise that end by themselves.

use std::process::Stdio;

use anyhow::{Context as _, Result};
use mortise_tests::harness::mortise_binary;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

/// How it ended and what it said.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs a subcommand without a cluster in its environment.
pub(crate) async fn run(subcommand: &str, args: &[&str], stdin: Option<&str>) -> Result<Said> {
    run_with(subcommand, args, stdin, &[]).await
}

/// The same with variables in its environment.
pub(crate) async fn run_with(
    subcommand: &str,
    args: &[&str],
    stdin: Option<&str>,
    env: &[(String, String)],
) -> Result<Said> {
    let mut child = Command::new(mortise_binary().await?)
        .arg(subcommand)
        .args(args)
        .env_remove("KUBECONFIG")
        .envs(env.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let mut pipe = child.stdin.take().context("its standard input")?;
    pipe.write_all(stdin.unwrap_or_default().as_bytes()).await?;
    drop(pipe);
    let output = child.wait_with_output().await?;
    Ok(Said {
        code: output.status.code().context("a signal ended it")?,
        stdout: String::from_utf8(output.stdout)?,
        stderr: String::from_utf8(output.stderr)?,
    })
}
