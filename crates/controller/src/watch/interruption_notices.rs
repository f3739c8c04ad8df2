//! Interruption notices of cloud providers: received while this process leads, sent to the engine, acknowledged by a decider.
//!
//! Each source is read by a loop of its own, so that a poll that fails or waits holds up no other. A source that cannot be read, and one
//! that says of itself that something is wrong, shows in the log when that begins and ends, and in metrics as long as it lasts.

use std::sync::Arc;
use std::time::Duration;

use mortise_cloudprovider::{CloudProvider, InterruptionNotice, NoticeSource};
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

/// Reads the sources of one provider until `end`. Returns immediately if it has none.
///
/// # Errors
/// None: a source that cannot be read is reported, and read again later.
pub(crate) async fn run(
    provider: Arc<dyn CloudProvider>,
    inputs: mpsc::Sender<DriverMessage>,
    shared: Arc<ServiceState>,
    end: CancellationToken,
) -> Result<(), RunError> {
    let name = provider.descriptor().name;
    let loops = provider.notices().into_iter().map(|source| {
        let reader = SourceReader {
            provider: name,
            source,
            inputs: inputs.clone(),
            shared: Arc::clone(&shared),
            fault: None,
        };
        reader.run()
    });
    tokio::select! {
        () = end.cancelled() => {}
        _ = futures::future::join_all(loops) => {}
    }
    Ok(())
}

/// Reads one source.
struct SourceReader {
    provider: &'static str,
    source: Arc<dyn NoticeSource>,
    inputs: mpsc::Sender<DriverMessage>,
    shared: Arc<ServiceState>,
    /// What is wrong, as last reported.
    fault: Option<String>,
}

impl SourceReader {
    /// Ends when the engine does.
    async fn run(mut self) {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));
        loop {
            if !self.shared.health.is_leading() {
                tokio::time::sleep(FOLLOWER_INTERVAL).await;
                continue;
            }
            match self.source.next().await {
                Ok(notices) => {
                    backoff.reset();
                    self.report(self.source.fault());
                    for notice in notices {
                        if self.send(notice).await.is_err() {
                            return;
                        }
                    }
                }
                Err(error) => {
                    self.report(Some(error.to_string()));
                    let (provider, source) = (self.provider, self.source.name());
                    self.shared
                        .metrics
                        .cloud
                        .notices_failed(provider, source, error.label);
                    tokio::time::sleep(backoff.next()).await;
                }
            }
        }
    }

    /// Hands a notice to the engine; an error when that has ended.
    async fn send(&self, notice: InterruptionNotice) -> Result<(), ()> {
        let (provider, kind) = (self.provider, notice.kind.label());
        if notice.id.is_some() {
            let age = notice.sent.map(|sent| until(sent, self.shared.now()));
            self.shared.metrics.cloud.notice(notice.kind, age);
            tracing::info!(provider, kind, instances = ?notice.instances, "received interruption message");
        } else {
            tracing::debug!(provider, kind, instances = ?notice.instances, "polled interruption notice");
        }
        let input = EngineInput::Notice {
            provider: provider.into(),
            notice,
        };
        let sent = self.inputs.send(DriverMessage::Input(input)).await;
        sent.map_err(|_| ())
    }

    /// Says when the source turns bad or good again, or bad in another way.
    fn report(&mut self, fault: Option<String>) {
        let (provider, source) = (self.provider, self.source.name());
        self.shared
            .metrics
            .cloud
            .notices_healthy(provider, source, fault.is_none());
        if self.fault == fault {
            return;
        }
        match &fault {
            Some(fault) => {
                tracing::warn!(provider, source, %fault, "source of interruption notices is not healthy, continuing");
            }
            None => tracing::info!(
                provider,
                source,
                "source of interruption notices is healthy"
            ),
        }
        self.fault = fault;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    use mortise_apis::labels::WellKnown;
    use mortise_cloudprovider::{BoxFuture, CloudError, InterruptionKind, Retry};

    use super::*;
    use crate::clock::SystemClock;
    use crate::serve::exposition;

    /// Answers in order, and then waits.
    struct Script(Mutex<Vec<Result<Vec<InterruptionNotice>, CloudError>>>);

    impl NoticeSource for Script {
        fn name(&self) -> &'static str {
            "queue"
        }

        fn next(&self) -> BoxFuture<'_, Result<Vec<InterruptionNotice>, CloudError>> {
            let mut answers = self.0.lock().unwrap();
            if answers.is_empty() {
                return Box::pin(std::future::pending());
            }
            Box::pin(std::future::ready(answers.remove(0)))
        }
    }

    fn gone() -> CloudError {
        CloudError {
            label: "not_found",
            message: "no such queue".to_owned(),
            retry: Retry::Never,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_source_that_fails_is_reported_and_read_again() {
        let notice = InterruptionNotice {
            id: Some("m".into()),
            kind: InterruptionKind::SpotInterruption,
            instances: vec!["i-1".into()],
            sent: None,
            starts: None,
        };
        let answers = vec![Err(gone()), Err(gone()), Ok(vec![notice.clone()])];
        let (inputs, mut received) = mpsc::channel(1);
        let shared = ServiceState::new(
            Arc::new(SystemClock),
            WellKnown::core(),
            "test",
            serde_json::Value::Null,
        );
        shared.health.set_leading(true);
        let reader = SourceReader {
            provider: "aws",
            source: Arc::new(Script(Mutex::new(answers))),
            inputs,
            shared: Arc::clone(&shared),
            fault: None,
        };
        let task = tokio::spawn(reader.run());
        let got = received.recv().await.unwrap();
        let DriverMessage::Input(EngineInput::Notice { notice: got, .. }) = got else {
            panic!("no notice");
        };
        assert_eq!(got, notice);
        let page = exposition::render(&shared, &BTreeMap::new()).unwrap();
        for line in [
            "mortise_interruption_source_failures_total{provider=\"aws\",source=\"queue\",error=\"not_found\"} 2",
            "mortise_interruption_source_healthy{provider=\"aws\",source=\"queue\"} 1",
            "karpenter_interruption_received_messages_total{message_type=\"spot_interrupted\"} 1",
        ] {
            assert!(page.contains(line), "{line} in\n{page}");
        }
        task.abort();
    }
}
