//! Supervises the components, and ends them in order.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::shutdown::Shutdown;
use crate::error::RunError;
use crate::service_state::ServiceState;

/// How long running effects may take at shutdown. Each can be repeated, so a cut-off loses only time.
const LAST_EFFECTS: Duration = Duration::from_secs(5);

/// The component that polls a provider for interruption notices.
pub(super) const NOTICES: &str = "notices";
/// The component that runs a provider's background work.
pub(super) const PROVIDER_WORKER: &str = "provider worker";

/// A component with its name and result.
pub(super) type ComponentExit = (&'static str, Result<(), RunError>);

/// Cancellation of the components, in order.
#[derive(Default)]
pub(super) struct ShutdownTokens {
    /// Watches, interruption messages, certificates, probes, election.
    pub(super) inputs: CancellationToken,
    pub(super) http: CancellationToken,
    pub(super) effects: CancellationToken,
    /// Nothing acts any more: the Lease can be released.
    pub(super) quiet: CancellationToken,
    pub(super) stopping: Arc<AtomicBool>,
}

/// Waits for the shutdown, or for the first component that exits; then ends all of them in order.
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
                // A provider without a queue, and one whose background work is done.
                Some(Ok((NOTICES | PROVIDER_WORKER, Ok(())))) => {}
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
    if tokio::time::timeout(timeout, shut_down(ends, tasks))
        .await
        .is_err()
    {
        tracing::warn!(seconds = timeout.as_secs(), "shutdown timed out");
    }
    result
}

/// The exit of a component that never fails.
pub(super) async fn exit_of(name: &'static str, part: impl Future<Output = ()>) -> ComponentExit {
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

/// Ends in order: decisions, inputs, last outcomes, last effects, and then the Lease.
async fn shut_down(ends: ShutdownTokens, mut tasks: JoinSet<ComponentExit>) {
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
