//! The queue without the rest of the provider, for whoever measures how fast it is read.

use std::sync::Arc;

use mortise_cloudprovider::{CloudError, NoticeSource};

use super::{InterruptionQueue, NoticeEffects};
use crate::config::AwsConfig;
use crate::instances::InstanceCache;
use crate::sdk::{AwsClients, NoRegion};

/// The receivers of a queue, and its acknowledgements, as the provider uses them.
#[derive(Debug)]
pub struct QueueReader {
    queue: Arc<InterruptionQueue>,
}

impl QueueReader {
    /// Calls nothing yet. Calls are signed with a key that no account has.
    /// # Errors
    /// No region is set.
    pub async fn new(config: AwsConfig) -> Result<Self, NoRegion> {
        let clients = AwsClients::with_test_key(&config).await?;
        let (clients, config) = (Arc::new(clients), Arc::new(config));
        let name = config.interruption_queue.clone().unwrap_or_default();
        let reservations = Arc::default();
        let instances =
            InstanceCache::new(&clients, config, Arc::clone(&reservations), Arc::default());
        let effects = NoticeEffects {
            claims: Arc::default(),
            instances: Arc::new(instances),
            unavailable: Arc::default(),
            reservations,
        };
        let address = super::QueueAddress::new(clients, name);
        let queue = InterruptionQueue::new(address, Arc::new(effects));
        Ok(Self {
            queue: Arc::new(queue),
        })
    }

    /// Its receivers, each of which is read by one loop.
    #[must_use]
    pub fn receivers(&self) -> Vec<Arc<dyn NoticeSource>> {
        self.queue.receivers()
    }

    /// Removes a message.
    /// # Errors
    /// SQS refuses it, or does not answer.
    pub async fn acknowledge(&self, handle: &str) -> Result<(), CloudError> {
        self.queue.delete(handle).await
    }
}
