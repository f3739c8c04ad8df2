//! Notifications: events that people want to read soon, as messages to a webhook.
//!
//! ```text
//! effects::events ─► queue ─► batch (of one interval) ─► format ─► webhook
//! ```
//!
//! # Invariant
//! Nothing waits for a notification: a full queue drops, and says so in a counter. Events are written to the API server as ever,
//! so what a webhook misses is in `kubectl get events`.

mod batch;
mod format;
mod webhook;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use mortise_apis::names::ObjectRef;
use mortise_engine::effect::Event;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::config::NotificationConfig;
use crate::error::RunError;
use crate::service_state::ServiceState;
use batch::{Batch, Notice};
use webhook::Webhook;

/// Events that may wait. Each message has a few dozen at most, so more of them are only counted.
const QUEUE: usize = 256;
/// What happens together is one message: the first event waits this long for others.
const SETTLE: Duration = Duration::from_secs(2);

impl NotificationConfig {
    fn is_wanted(&self, event: &Event) -> bool {
        if self.reasons.is_empty() {
            return event.warning && !matches!(event.target, ObjectRef::Pod(_));
        }
        self.reasons.iter().any(|reason| *reason == event.reason)
    }
}

/// Takes events that are to be notified.
#[derive(Clone, Debug)]
pub(crate) struct Notifications {
    config: Arc<NotificationConfig>,
    queue: mpsc::Sender<Notice>,
    shared: Arc<ServiceState>,
}

impl Notifications {
    /// The sending half, and the task that must be run.
    ///
    /// # Errors
    /// The URL cannot be read, or the certificates of this computer cannot.
    pub(crate) fn new(
        config: NotificationConfig,
        shared: Arc<ServiceState>,
    ) -> Result<(Self, impl Future<Output = ()> + Send), RunError> {
        let webhook =
            Webhook::new(&config.url_file).map_err(|message| RunError::Notifications {
                file: config.url_file.display().to_string(),
                message,
            })?;
        tracing::info!(
            host = webhook.host(),
            format = config.format.name(),
            "notifications are sent to a webhook"
        );
        let config = Arc::new(config);
        let (queue, waiting) = mpsc::channel(QUEUE);
        let task = run(waiting, webhook, Arc::clone(&config), Arc::clone(&shared));
        let notifications = Self {
            config,
            queue,
            shared,
        };
        Ok((notifications, task))
    }

    /// Takes an event if it is to be notified.
    pub(crate) fn offer(&self, event: &Event, now: Timestamp) {
        if !self.config.is_wanted(event) {
            return;
        }
        if self.queue.try_send(Notice::new(event, now)).is_err() {
            self.shared.metrics.effects.notified("dropped", 1);
        }
    }
}

async fn run(
    mut waiting: mpsc::Receiver<Notice>,
    mut webhook: Webhook,
    config: Arc<NotificationConfig>,
    shared: Arc<ServiceState>,
) {
    let mut next = Instant::now();
    while let Some(first) = waiting.recv().await {
        let mut batch = Batch::new(first);
        let send_at = next.max(Instant::now() + SETTLE);
        while let Ok(Some(notice)) = tokio::time::timeout_at(send_at, waiting.recv()).await {
            batch.add(notice);
        }
        let body = config.format.body(&batch, &config.cluster).to_string();
        let result = match webhook.send(body).await {
            Ok(()) => "sent",
            Err(message) => {
                tracing::warn!(
                    host = webhook.host(),
                    message,
                    events = batch.len(),
                    "failed to send notification"
                );
                "failed"
            }
        };
        shared.metrics.effects.notified(result, batch.len());
        next = Instant::now() + config.interval;
    }
}

#[cfg(test)]
mod tests;
