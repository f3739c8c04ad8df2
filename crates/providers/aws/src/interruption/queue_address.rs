//! Where the queue is: its URL, found by name, and forgotten when the queue is gone, because one that is created again may have
//! another.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mortise_cloudprovider::{CloudError, Retry};

use crate::failure::Failure;
use crate::sdk::AwsClients;

/// A queue by its name.
#[derive(Debug)]
pub(crate) struct QueueAddress {
    pub(super) clients: Arc<AwsClients>,
    name: String,
    url: Mutex<Option<Arc<str>>>,
}

impl QueueAddress {
    /// Calls nothing yet.
    pub(crate) fn new(clients: Arc<AwsClients>, name: String) -> Self {
        Self {
            clients,
            name,
            url: Mutex::default(),
        }
    }

    /// The URL, which shows that the queue exists, or did a moment ago.
    pub(crate) async fn url(&self) -> Result<Arc<str>, CloudError> {
        let known = self.lock().clone();
        if let Some(url) = known {
            return Ok(url);
        }
        let call = self.clients.sqs.get_queue_url().queue_name(&self.name);
        let answer = call
            .send()
            .await
            .map_err(|error| self.failed(self.clients.failure("sqs:GetQueueUrl", error)))?;
        let url: Arc<str> = answer.queue_url.ok_or_else(|| self.missing())?.into();
        *self.lock() = Some(Arc::clone(&url));
        Ok(url)
    }

    /// A failed call on the queue; a queue that does not exist, perhaps not any more, is named.
    pub(super) fn failed(&self, failure: Failure) -> CloudError {
        if failure.is_not_found() {
            *self.lock() = None;
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

    fn lock(&self) -> MutexGuard<'_, Option<Arc<str>>> {
        self.url.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
