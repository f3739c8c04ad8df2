//! Interruption notices: the queue with its messages, and what is polled without one.

mod acknowledgements;
mod capacity_blocks;
mod claimed_instances;
pub mod event;
mod instance_status;
mod notice_effects;
mod queue;
mod queue_address;
mod queue_audit;
mod queue_reader;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use mortise_cloudprovider::{CloudError, NoticeSource};

pub(crate) use self::capacity_blocks::CapacityBlockPoll;
pub(crate) use self::claimed_instances::ClaimedInstances;
pub(crate) use self::instance_status::InstanceStatusPoll;
pub(crate) use self::notice_effects::NoticeEffects;
pub(crate) use self::queue::InterruptionQueue;
use self::queue_address::QueueAddress;
pub use self::queue_reader::QueueReader;
use crate::sdk::AwsClients;

/// Everything that announces interruptions.
#[derive(Debug)]
pub(crate) struct Interruptions {
    /// `None` when no queue is set.
    queue: Option<Arc<InterruptionQueue>>,
    statuses: Arc<InstanceStatusPoll>,
    blocks: Arc<CapacityBlockPoll>,
    /// What NodeClaims say of their instances.
    pub(crate) claims: Arc<ClaimedInstances>,
}

impl Interruptions {
    /// Calls nothing yet. An empty name is none.
    pub(crate) fn new(
        clients: &Arc<AwsClients>,
        queue: Option<&String>,
        effects: NoticeEffects,
    ) -> Self {
        let claims = Arc::clone(&effects.claims);
        let blocks = CapacityBlockPoll::new(
            Arc::clone(clients),
            Arc::clone(&claims),
            Arc::clone(&effects.reservations),
        );
        let effects = Arc::new(effects);
        let queue = queue.filter(|name| !name.is_empty()).map(|name| {
            let address = QueueAddress::new(Arc::clone(clients), name.clone());
            Arc::new(InterruptionQueue::new(address, effects))
        });
        Self {
            queue,
            statuses: Arc::new(InstanceStatusPoll::new(Arc::clone(clients))),
            blocks: Arc::new(blocks),
            claims,
        }
    }

    /// Finds the queue, if one is set.
    pub(crate) async fn check(&self) -> Result<(), CloudError> {
        match &self.queue {
            Some(queue) => queue.check().await,
            None => Ok(()),
        }
    }

    /// What announces interruptions: the queue if one is set, and always what is polled.
    pub(crate) fn sources(&self) -> Vec<Arc<dyn NoticeSource>> {
        let receivers = self.queue.as_ref().map(InterruptionQueue::receivers);
        let polls: [Arc<dyn NoticeSource>; 2] = [
            Arc::clone(&self.statuses) as _,
            Arc::clone(&self.blocks) as _,
        ];
        receivers.into_iter().flatten().chain(polls).collect()
    }

    /// An instance of ours is terminated.
    pub(crate) fn terminated(&self, instance: &str) {
        if let Some(queue) = &self.queue {
            queue.expect_end(instance);
        }
    }

    /// Removes a message from the queue.
    pub(crate) async fn acknowledge(&self, handle: &str) -> Result<(), CloudError> {
        match &self.queue {
            Some(queue) => queue.delete(handle).await,
            None => Ok(()),
        }
    }
}
