//! Waiting for a condition.

use std::time::Duration;

use anyhow::{Result, anyhow};
use tokio::time::Instant;

/// First pause between two probes; most conditions hold within a few of these.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// Longest pause: keeps a waiting test from using CPU that the awaited work needs.
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

/// Probes until it succeeds. An `Err` of the probe means "not yet", and says what is still missing; the last one becomes
/// part of the error when `timeout` is over. This is the only place of the harness that waits by polling.
///
/// # Errors
/// `timeout` passed; the text names `what`, the time, and the last probe's reason.
pub async fn wait_until<T, F, Fut>(what: &str, timeout: Duration, mut probe: F) -> Result<T>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T>>,
{
    let deadline = Instant::now() + timeout;
    let mut pause = FIRST_PAUSE;
    let mut last: Option<anyhow::Error> = None;
    loop {
        // A probe that hangs must not outlast the deadline.
        match tokio::time::timeout_at(deadline, probe()).await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(reason)) => last = Some(reason),
            Err(_) => last = last.or_else(|| Some(anyhow!("the probe did not answer"))),
        }
        if Instant::now() + pause >= deadline {
            let reason = last.unwrap_or_else(|| anyhow!("nothing seen"));
            return Err(reason.context(format!("waited {timeout:?} for {what}")));
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 3 / 2).min(LONGEST_PAUSE);
    }
}
