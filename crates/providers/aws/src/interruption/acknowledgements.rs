//! Deletions of messages, several with one call.
//!
//! # Invariant
//! Whoever asks for a deletion is answered, even if another asker that began the same call is cut off: calls run in tasks of their own.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aws_sdk_sqs::types::DeleteMessageBatchRequestEntry;
use mortise_cloudprovider::{CloudError, Retry};
use tokio::sync::{Notify, oneshot};

use super::queue_address::QueueAddress;

/// A call waits this long for further messages, unless it is full.
const WINDOW: Duration = Duration::from_millis(20);
/// Most messages of one call.
/// # Source
/// SQS's limit.
const MOST: usize = 10;

type Asker = (String, oneshot::Sender<Result<(), CloudError>>);

/// Messages to be deleted.
#[derive(Debug)]
pub(crate) struct Acknowledgements {
    queue: Arc<QueueAddress>,
    waiting: Mutex<Vec<Asker>>,
    full: Notify,
}

impl Acknowledgements {
    /// Deletes nothing yet.
    pub(crate) fn new(queue: Arc<QueueAddress>) -> Self {
        Self {
            queue,
            waiting: Mutex::default(),
            full: Notify::new(),
        }
    }

    /// Deletes the message with this handle, together with others that are asked for at the same time.
    pub(crate) async fn delete(self: &Arc<Self>, handle: &str) -> Result<(), CloudError> {
        let (answer, answered) = oneshot::channel();
        let count = {
            let mut waiting = self.lock();
            waiting.push((handle.to_owned(), answer));
            waiting.len()
        };
        match count {
            1 => drop(tokio::spawn(Arc::clone(self).collect())),
            MOST => self.full.notify_one(),
            _ => {}
        }
        answered.await.unwrap_or_else(|_| Err(cut_off()))
    }

    /// Waits until a call is worth it, and makes it.
    async fn collect(self: Arc<Self>) {
        tokio::select! {
            () = tokio::time::sleep(WINDOW) => {}
            () = self.full.notified() => {}
        }
        let mut all = std::mem::take(&mut *self.lock());
        let mut calls = Vec::new();
        while !all.is_empty() {
            let rest = all.split_off(all.len().min(MOST));
            calls.push(self.delete_batch(std::mem::replace(&mut all, rest)));
        }
        futures::future::join_all(calls).await;
    }

    async fn delete_batch(&self, askers: Vec<Asker>) {
        let handles = askers.iter().map(|(handle, _)| handle.as_str());
        let mut results = self.call(handles).await;
        for (index, (_, answer)) in askers.into_iter().enumerate() {
            let result = match &mut results {
                Ok(failed) => failed
                    .iter()
                    .find(|(id, _)| *id == index.to_string())
                    .map_or(Ok(()), |(_, error)| Err(error.clone())),
                Err(error) => Err(error.clone()),
            };
            // An asker that was cut off needs no answer.
            answer.send(result).ok();
        }
    }

    /// The messages that could not be deleted, by their position.
    async fn call(
        &self,
        handles: impl Iterator<Item = &str>,
    ) -> Result<Vec<(String, CloudError)>, CloudError> {
        let url = self.queue.url().await?;
        let entries = handles.enumerate().map(|(index, handle)| {
            DeleteMessageBatchRequestEntry::builder()
                .id(index.to_string())
                .receipt_handle(handle)
                .build()
                .map_err(|error| unsendable(&error))
        });
        let call = self
            .queue
            .clients
            .sqs
            .delete_message_batch()
            .queue_url(&*url);
        let answer = call
            .set_entries(Some(entries.collect::<Result<_, _>>()?))
            .send()
            .await
            .map_err(|error| {
                let failure = self.queue.clients.failure("sqs:DeleteMessageBatch", error);
                self.queue.failed(failure)
            })?;
        let failed = answer.failed().iter().map(|entry| {
            let error = CloudError {
                label: "refused",
                message: format!(
                    "sqs:DeleteMessageBatch refused a message: {}: {}",
                    entry.code(),
                    entry.message().unwrap_or_default()
                ),
                retry: if entry.sender_fault() {
                    Retry::Never
                } else {
                    Retry::Again
                },
            };
            (entry.id().to_owned(), error)
        });
        Ok(failed.collect())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Asker>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn cut_off() -> CloudError {
    CloudError {
        label: "unreachable",
        message: "the deletion of a message was cut off".to_owned(),
        retry: Retry::Again,
    }
}

fn unsendable(error: &dyn std::fmt::Display) -> CloudError {
    CloudError {
        label: "refused",
        message: format!("the deletion of a message cannot be written: {error}"),
        retry: Retry::Never,
    }
}
