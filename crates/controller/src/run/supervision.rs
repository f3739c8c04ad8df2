//! Supervising the components, and ending them in order.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::shutdown::Shutdown;
use crate::error::RunError;
use crate::service_state::ServiceState;

/// How long effects that run at shutdown may go on. Each may be repeated, so cutting one off loses nothing but time.
const LAST_EFFECTS: Duration = Duration::from_secs(5);

/// A part with its name and how it ended.
pub(super) type ComponentExit = (&'static str, Result<(), RunError>);

/// The ends of the parts, in the order in which they are asked for.
#[derive(Default)]
pub(super) struct ShutdownTokens {
    /// Watches, notices, certificates, probes, election.
    pub(super) inputs: CancellationToken,
    pub(super) http: CancellationToken,
    pub(super) effects: CancellationToken,
    /// Nothing acts any more: the Lease may go.
    pub(super) quiet: CancellationToken,
    pub(super) stopping: Arc<AtomicBool>,
}

/// Waits for the shutdown, or for the first component that ends by itself; then ends them all in order.
pub(super) async fn supervise(
    mut tasks: JoinSet<ComponentExit>,
    ends: ShutdownTokens,
    shared: &ServiceState,
    timeout: Duration,
    shutdown: Shutdown,
) -> Result<(), RunError> {
    let result = loop {
        tokio::select! {
            () = shutdown.requested() => break Ok(()),
            ended = tasks.join_next() => match ended {
                // A cloud that sends no messages.
                Some(Ok(("notices", Ok(())))) => {}
                Some(Ok((name, Ok(())))) => break Err(RunError::Ended(name)),
                Some(Ok((_, Err(error)))) => break Err(error),
                Some(Err(_)) => break Err(RunError::Ended("a task (it panicked)")),
                None => break Err(RunError::Ended("everything")),
            },
        }
    };
    if let Err(error) = &result {
        tracing::error!(%error, "ending");
    }
    shared.health.set_stopping();
    if tokio::time::timeout(timeout, end(ends, tasks))
        .await
        .is_err()
    {
        tracing::warn!(seconds = timeout.as_secs(), "shutdown timed out");
    }
    result
}

/// The exit of a component that never fails.
pub(super) async fn named(name: &'static str, part: impl Future<Output = ()>) -> ComponentExit {
    part.await;
    (name, Ok(()))
}

/// Spawns a component that is cut off at `end`.
pub(super) fn spawn_until(
    tasks: &mut JoinSet<ComponentExit>,
    name: &'static str,
    end: CancellationToken,
    part: impl Future<Output = ()> + Send + 'static,
) {
    tasks.spawn(async move {
        tokio::select! {
            () = end.cancelled() => {}
            () = part => {}
        }
        (name, Ok(()))
    });
}

/// Ends in order: no more decisions, no more inputs, last answers, last effects, and then the Lease.
async fn end(ends: ShutdownTokens, mut tasks: JoinSet<ComponentExit>) {
    ends.stopping.store(true, Ordering::Relaxed);
    ends.inputs.cancel();
    ends.http.cancel();
    let cut = tokio::time::sleep(LAST_EFFECTS);
    tokio::pin!(cut);
    let mut effects_end = false;
    loop {
        tokio::select! {
            ended = tasks.join_next() => match ended {
                None => return,
                Some(Ok(("effects", _))) => {
                    effects_end = true;
                    ends.effects.cancel();
                    ends.quiet.cancel();
                }
                Some(Ok((_, Err(error)))) => tracing::warn!(%error, "component failed during shutdown"),
                Some(_) => {}
            },
            () = &mut cut, if !effects_end => {
                effects_end = true;
                tracing::warn!("running effects were cancelled, the next leader repeats them");
                ends.effects.cancel();
                ends.quiet.cancel();
            }
        }
    }
}
