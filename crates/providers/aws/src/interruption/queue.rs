//! The SQS queue of interruption notices.

use std::sync::Arc;

use aws_sdk_sqs::types::{Message, MessageSystemAttributeName};
use jiff::Timestamp;
use mortise_cloudprovider::{CloudError, InterruptionKind, InterruptionNotice, Retry};
use tokio::sync::OnceCell;

use crate::failure::Failure;
use crate::instances::InstanceCache;
use crate::interruption::event::{self, InterruptionEvent};
use crate::offerings::unavailable_offerings::{UnavailableKey, UnavailableOfferings};
use crate::sdk::AwsClients;

/// How long one wait for messages lasts: the most that SQS allows.
const WAIT_SECONDS: i32 = 20;
/// How long a message is hidden from other readers after it was read. Then it comes again, unless it was acknowledged.
const HIDDEN_SECONDS: i32 = 20;

/// The queue, whose URL is looked up once.
#[derive(Debug)]
pub(crate) struct InterruptionQueue {
    clients: Arc<AwsClients>,
    name: String,
    instances: Arc<InstanceCache>,
    unavailable: Arc<UnavailableOfferings>,
    url: OnceCell<String>,
}

impl InterruptionQueue {
    /// Calls nothing yet. Spot offerings of instances that are interrupted are noted in `unavailable`.
    pub(crate) fn new(
        clients: Arc<AwsClients>,
        name: String,
        instances: Arc<InstanceCache>,
        unavailable: Arc<UnavailableOfferings>,
    ) -> Self {
        Self {
            clients,
            name,
            instances,
            unavailable,
            url: OnceCell::new(),
        }
    }

    /// The URL, which shows that the queue exists.
    pub(crate) async fn url(&self) -> Result<&String, CloudError> {
        let find = || async {
            let call = self.clients.sqs.get_queue_url().queue_name(&self.name);
            let answer = call
                .send()
                .await
                .map_err(|error| self.failed(self.clients.failure("sqs:GetQueueUrl", error)))?;
            answer.queue_url.ok_or_else(|| self.missing())
        };
        self.url.get_or_try_init(find).await
    }

    /// Waits for messages.
    pub(crate) async fn receive(&self) -> Result<Vec<InterruptionNotice>, CloudError> {
        let url = self.url().await?;
        let answer = self
            .clients
            .sqs
            .receive_message()
            .queue_url(url)
            .max_number_of_messages(10)
            .wait_time_seconds(WAIT_SECONDS)
            .visibility_timeout(HIDDEN_SECONDS)
            .message_system_attribute_names(MessageSystemAttributeName::SentTimestamp)
            .send()
            .await
            .map_err(|error| self.failed(self.clients.failure("sqs:ReceiveMessage", error)))?;
        let notices: Vec<InterruptionNotice> =
            answer.messages().iter().filter_map(notice).collect();
        for notice in &notices {
            if notice.kind == InterruptionKind::SpotInterruption {
                notice
                    .instances
                    .iter()
                    .filter_map(|id| self.instances.spot_offering(id))
                    .for_each(|offering| self.unavailable.mark(UnavailableKey::Offering(offering)));
            }
        }
        Ok(notices)
    }

    /// Removes a message.
    pub(crate) async fn delete(&self, handle: &str) -> Result<(), CloudError> {
        let url = self.url().await?;
        let call = self
            .clients
            .sqs
            .delete_message()
            .queue_url(url)
            .receipt_handle(handle)
            .send()
            .await;
        call.map(|_| ())
            .map_err(|error| self.failed(self.clients.failure("sqs:DeleteMessage", error)))
    }

    /// A failed call on the queue; a queue that does not exist, perhaps not any more, is named.
    fn failed(&self, failure: Failure) -> CloudError {
        if failure.is_not_found() {
            self.missing()
        } else {
            failure.into()
        }
    }

    fn missing(&self) -> CloudError {
        let Self { clients, name, .. } = self;
        let message = format!(
            "interruption queue {name:?} does not exist at {}: create it, or correct --interruption-queue or INTERRUPTION_QUEUE (the queue's name, not its URL), or leave it empty to disable interruption handling",
            clients.place
        );
        CloudError {
            label: "not_found",
            message,
            retry: Retry::Again,
        }
    }
}

/// What a message announces; `None` for one that could not be acknowledged.
fn notice(message: &Message) -> Option<InterruptionNotice> {
    let handle = message.receipt_handle()?;
    let queued = message
        .attributes()
        .and_then(|all| all.get(&MessageSystemAttributeName::SentTimestamp))
        .and_then(|text| text.parse().ok())
        .and_then(|ms| Timestamp::from_millisecond(ms).ok());
    let event = event::parse(message.body().unwrap_or_default()).unwrap_or_else(|error| {
        tracing::warn!(message = message.message_id().unwrap_or_default(), %error, "failed to parse interruption message, dropping it");
        InterruptionEvent {
            kind: InterruptionKind::Other,
            instances: Vec::new(),
            sent: None,
        }
    });
    // An empty id names no instance; passed on, it could be taken for a claim that has none yet.
    let instances = event.instances.into_iter().filter(|id| !id.is_empty());
    Some(InterruptionNotice {
        id: Arc::from(handle),
        kind: event.kind,
        instances: instances.collect(),
        sent: queued.or(event.sent),
    })
}
