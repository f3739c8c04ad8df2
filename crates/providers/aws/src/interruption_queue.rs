//! The queue of interruption notices.

use std::sync::Arc;

use aws_sdk_sqs::types::MessageSystemAttributeName;
use jiff::Timestamp;
use mortise_core::cloud::{CloudError, InterruptionKind, InterruptionNotice, Retry};
use tokio::sync::OnceCell;

use crate::failure::Failure;
use crate::interruption;
use crate::provider::AwsProvider;

/// How long one wait for messages lasts: the most that SQS allows.
const WAIT_SECONDS: i32 = 20;
/// How long a message is hidden from other readers after it was read. Then it comes again, unless it was acknowledged.
const HIDDEN_SECONDS: i32 = 20;

/// The queue, when its URL was found.
#[derive(Debug, Default)]
pub(crate) struct InterruptionQueue {
    url: OnceCell<String>,
}

impl AwsProvider {
    pub(crate) async fn queue_url(&self, name: &str) -> Result<&String, CloudError> {
        let find = || async {
            let answer = self
                .api
                .sqs
                .get_queue_url()
                .queue_name(name)
                .send()
                .await
                .map_err(|error| self.api.failure("sqs:GetQueueUrl", error));
            match answer {
                Ok(answer) => answer
                    .queue_url
                    .ok_or_else(|| missing_queue(name, &self.api.place)),
                Err(failure) if failure.is_not_found() => Err(missing_queue(name, &self.api.place)),
                Err(failure) => Err(failure.into()),
            }
        };
        self.queue.url.get_or_try_init(find).await
    }

    /// A failed call on the queue; a queue that was deleted meanwhile is named.
    fn queue_failure(&self, name: &str, failure: Failure) -> CloudError {
        if failure.is_not_found() {
            missing_queue(name, &self.api.place)
        } else {
            failure.into()
        }
    }

    /// Waits for messages.
    pub(crate) async fn receive(&self, name: &str) -> Result<Vec<InterruptionNotice>, CloudError> {
        let url = self.queue_url(name).await?;
        let answer = self
            .api
            .sqs
            .receive_message()
            .queue_url(url)
            .max_number_of_messages(10)
            .wait_time_seconds(WAIT_SECONDS)
            .visibility_timeout(HIDDEN_SECONDS)
            .message_system_attribute_names(MessageSystemAttributeName::SentTimestamp)
            .send()
            .await
            .map_err(|error| {
                self.queue_failure(name, self.api.failure("sqs:ReceiveMessage", error))
            })?;
        let mut notices = Vec::new();
        for message in answer.messages() {
            let Some(handle) = message.receipt_handle() else {
                continue;
            };
            let queued = message
                .attributes()
                .and_then(|all| all.get(&MessageSystemAttributeName::SentTimestamp))
                .and_then(|text| text.parse().ok());
            let queued = queued.and_then(|ms| Timestamp::from_millisecond(ms).ok());
            let read = interruption::parse(message.body().unwrap_or_default()).unwrap_or_else(|error| {
                tracing::warn!(message = message.message_id().unwrap_or_default(), %error, "failed to parse interruption message, dropping it");
                interruption::InterruptionEvent { kind: InterruptionKind::Other, instances: Vec::new(), sent: None }
            });
            // An empty id is nobody's; passed on, it could be taken for a claim that has no machine yet.
            let instances: Vec<Arc<str>> = read
                .instances
                .into_iter()
                .filter(|id| !id.is_empty())
                .collect();
            if read.kind == InterruptionKind::SpotInterruption {
                instances
                    .iter()
                    .filter_map(|id| self.machines.spot_offering(id))
                    .for_each(|offering| self.unavailable.mark_offering(offering));
            }
            notices.push(InterruptionNotice {
                id: Arc::from(handle),
                kind: read.kind,
                instances,
                sent: queued.or(read.sent),
            });
        }
        Ok(notices)
    }

    /// Removes a message.
    pub(crate) async fn delete_message(&self, name: &str, handle: &str) -> Result<(), CloudError> {
        let url = self.queue_url(name).await?;
        let call = self
            .api
            .sqs
            .delete_message()
            .queue_url(url)
            .receipt_handle(handle)
            .send()
            .await;
        call.map(|_| ())
            .map_err(|error| self.queue_failure(name, self.api.failure("sqs:DeleteMessage", error)))
    }
}

fn missing_queue(name: &str, place: &str) -> CloudError {
    let message = format!(
        "interruption queue {name:?} does not exist at {place}: create it, or correct --interruption-queue or INTERRUPTION_QUEUE (the queue's name, not its URL), or leave it empty to disable interruption handling"
    );
    CloudError {
        label: "not_found",
        message,
        retry: Retry::Again,
    }
}
