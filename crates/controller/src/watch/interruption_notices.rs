//! Interruption messages of cloud providers: polled while this process leads, sent to the engine, acknowledged by a decider.

use std::sync::Arc;
use std::time::Duration;

use mortise_cloudprovider::{CloudProvider, Retry};
use mortise_engine::engine::EngineInput;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::client::backoff::Backoff;
use crate::clock::until;
use crate::driver_message::DriverMessage;
use crate::error::RunError;
use crate::service_state::ServiceState;

/// How often a follower checks whether it leads.
const FOLLOWER_INTERVAL: Duration = Duration::from_secs(1);

/// Polls one provider until `end`. Returns immediately if the provider has no queue.
///
/// # Errors
/// The first poll fails permanently: the queue does not exist or may not be read.
pub(crate) async fn run(
    provider: Arc<dyn CloudProvider>,
    inputs: mpsc::Sender<DriverMessage>,
    shared: Arc<ServiceState>,
    end: CancellationToken,
) -> Result<(), RunError> {
    tokio::select! {
        () = end.cancelled() => Ok(()),
        result = poll(&*provider, &inputs, &shared) => result,
    }
}

async fn poll(
    provider: &dyn CloudProvider,
    inputs: &mpsc::Sender<DriverMessage>,
    shared: &ServiceState,
) -> Result<(), RunError> {
    let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));
    let mut answered = false;
    loop {
        if !shared.health.is_leading() {
            tokio::time::sleep(FOLLOWER_INTERVAL).await;
            continue;
        }
        let Some(poll) = provider.notices() else {
            return Ok(());
        };
        match poll.await {
            Ok(notices) => {
                answered = true;
                backoff.reset();
                for notice in notices {
                    let age = notice.sent.map(|sent| until(sent, shared.now()));
                    shared.metrics.cloud.notice(notice.kind, age);
                    tracing::info!(provider = provider.descriptor().name, kind = notice.kind.label(), instances = ?notice.instances, "received interruption message");
                    let input = EngineInput::Notice {
                        provider: provider.descriptor().name.into(),
                        notice,
                    };
                    if inputs.send(DriverMessage::Input(input)).await.is_err() {
                        return Ok(());
                    }
                }
            }
            Err(error) if error.retry == Retry::Never && !answered => {
                return Err(RunError::Provider {
                    provider: provider.descriptor().name.to_owned(),
                    message: format!("its queue cannot be read: {error}"),
                });
            }
            Err(error) => {
                tracing::warn!(provider = provider.descriptor().name, %error, "failed to receive interruption messages, retrying");
                tokio::time::sleep(backoff.next()).await;
            }
        }
    }
}
