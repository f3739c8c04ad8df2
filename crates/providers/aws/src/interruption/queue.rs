//! The SQS queue of interruption notices, read by one long poll and, while it is full, by several receivers at once.

use std::sync::Arc;

use aws_sdk_sqs::types::{Message, MessageSystemAttributeName};
use jiff::Timestamp;
use mortise_cloudprovider::{
    BoxFuture, CloudError, InterruptionKind, InterruptionNotice, NoticeSource,
};
use tokio::sync::Semaphore;

use super::acknowledgements::Acknowledgements;
use super::event::{self, InterruptionEvent};
use super::notice_effects::NoticeEffects;
use super::queue_address::QueueAddress;
use super::queue_audit::QueueAudit;

/// How long one wait for messages lasts: the most that SQS allows.
const WAIT_SECONDS: i32 = 20;
/// How long a message is hidden from other readers after it was read. Then it comes again, unless it was acknowledged.
const HIDDEN_SECONDS: i32 = 20;
/// Most messages of one answer.
/// # Source
/// SQS's limit.
const MOST: usize = 10;
/// Receivers besides the one that always waits. They are idle, at no cost, while answers are not full.
const HELPERS: usize = 7;

/// The queue.
#[derive(Debug)]
pub(crate) struct InterruptionQueue {
    address: Arc<QueueAddress>,
    effects: Arc<NoticeEffects>,
    acknowledgements: Arc<Acknowledgements>,
    audit: QueueAudit,
    /// Receives of helpers that are worth it.
    worth: Semaphore,
}

impl InterruptionQueue {
    /// Calls nothing yet. What a message means for offerings and reservations is noted in `effects`.
    pub(crate) fn new(address: QueueAddress, effects: Arc<NoticeEffects>) -> Self {
        let address = Arc::new(address);
        Self {
            acknowledgements: Arc::new(Acknowledgements::new(Arc::clone(&address))),
            address,
            effects,
            audit: QueueAudit::default(),
            worth: Semaphore::new(0),
        }
    }

    /// Finds the queue.
    pub(crate) async fn check(&self) -> Result<(), CloudError> {
        self.address.url().await.map(|_| ())
    }

    /// Its receivers.
    pub(crate) fn receivers(self: &Arc<Self>) -> Vec<Arc<dyn NoticeSource>> {
        let helper = || -> Arc<dyn NoticeSource> { Arc::new(Helper(Arc::clone(self))) };
        let first: Arc<dyn NoticeSource> = Arc::clone(self) as _;
        std::iter::once(first)
            .chain(std::iter::repeat_with(helper).take(HELPERS))
            .collect()
    }

    /// An instance of ours ends, which the queue should say in a moment.
    pub(crate) fn expect_end(&self, instance: &str) {
        self.audit.expect(instance);
    }

    /// Removes a message.
    pub(crate) async fn delete(&self, handle: &str) -> Result<(), CloudError> {
        self.acknowledgements.delete(handle).await
    }

    /// Receives messages, and waits so long for the first.
    pub(crate) async fn receive(
        &self,
        seconds: i32,
    ) -> Result<Vec<InterruptionNotice>, CloudError> {
        let url = self.address.url().await?;
        let clients = &self.address.clients;
        let answer = clients
            .sqs
            .receive_message()
            .queue_url(&*url)
            .max_number_of_messages(10)
            .wait_time_seconds(seconds)
            .visibility_timeout(HIDDEN_SECONDS)
            .message_system_attribute_names(MessageSystemAttributeName::SentTimestamp)
            .send()
            .await
            .map_err(|error| {
                self.address
                    .failed(clients.failure("sqs:ReceiveMessage", error))
            })?;
        if answer.messages().len() >= MOST {
            // Two more for each full answer, so that all help within three answers.
            let idle = HELPERS.saturating_sub(self.worth.available_permits());
            self.worth.add_permits(idle.min(2));
        }
        let notices: Vec<InterruptionNotice> =
            answer.messages().iter().filter_map(notice).collect();
        for notice in &notices {
            self.effects.note(notice);
            if is_end(notice.kind) {
                notice.instances.iter().for_each(|id| self.audit.seen(id));
            }
        }
        Ok(notices)
    }
}

impl NoticeSource for InterruptionQueue {
    fn name(&self) -> &'static str {
        "queue"
    }

    fn next(&self) -> BoxFuture<'_, Result<Vec<InterruptionNotice>, CloudError>> {
        Box::pin(self.receive(WAIT_SECONDS))
    }

    fn fault(&self) -> Option<String> {
        self.audit.fault()
    }
}

/// A receiver that works while answers are full.
#[derive(Debug)]
struct Helper(Arc<InterruptionQueue>);

impl Helper {
    async fn help(&self) -> Result<Vec<InterruptionNotice>, CloudError> {
        // The semaphore is never closed.
        if let Ok(permit) = self.0.worth.acquire().await {
            permit.forget();
        }
        self.0.receive(0).await
    }
}

impl NoticeSource for Helper {
    fn name(&self) -> &'static str {
        "queue-helper"
    }

    fn next(&self) -> BoxFuture<'_, Result<Vec<InterruptionNotice>, CloudError>> {
        Box::pin(self.help())
    }
}

const fn is_end(kind: InterruptionKind) -> bool {
    matches!(
        kind,
        InterruptionKind::Stopping | InterruptionKind::Terminated
    )
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
        tracing::warn!(message = message.message_id().unwrap_or_default(), %error, "failed parsing interruption message, deleting it");
        InterruptionEvent {
            kind: InterruptionKind::Other,
            instances: Vec::new(),
            sent: None,
            starts: None,
        }
    });
    // An empty id names no instance; passed on, it could be taken for a claim that has none yet.
    let instances = event.instances.into_iter().filter(|id| !id.is_empty());
    Some(InterruptionNotice {
        id: Some(Arc::from(handle)),
        kind: event.kind,
        instances: instances.collect(),
        sent: queued.or(event.sent),
        starts: event.starts,
    })
}
