//! The flight recorder: writes the journal of the engine to a ring of files, which `mortise replay` plays again.
//!
//! | what | where |
//! |---|---|
//! | what the engine hands over, without waiting | here |
//! | the thread that encodes and writes | `writer.rs` |
//! | the files, and how many there may be | `ring.rs` |
//!
//! # Invariant
//! A slow or full disk never delays a decision. Before the first lists are complete there are none to delay: then the recorder waits
//! for the writer, for [`PATIENCE`] in all. After that, events for which the queue has no room are missing; the recording says where
//! and how many, and a metric counts them.
//!
//! # Cost
//! The engine's thread clones each event. The writer's thread encodes and compresses: about 30 µs for an object.

mod ring;
#[cfg(test)]
mod tests;
mod writer;

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use jiff::Timestamp;
use mortise_apis::node_class::served::ServedNodeClasses;
use mortise_engine::engine::{EngineInput, JournalEvent, Recorder};
use mortise_engine::journal::{JournalFileError, JournalHeader};

use crate::config::RecordConfig;
use crate::service_state::ServiceState;
use ring::RecordingFiles;

/// Events that may wait to be written: the list of a large kind while the disk is busy. Each is a pointer and an object.
const QUEUE: usize = 65_536;
/// How long the recorder waits for the writer before the first lists are complete, in all.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long it waits at a time.
const PAUSE: Duration = Duration::from_millis(1);

/// What the writer gets.
enum Message {
    Event(Timestamp, Box<JournalEvent>),
    /// This number of events is missing here.
    Gap(Timestamp, u64),
}

/// Hands events of the engine over to the thread that writes them.
pub(crate) struct FlightRecorder {
    messages: Option<SyncSender<Message>>,
    writer: Option<JoinHandle<()>>,
    shared: Arc<ServiceState>,
    /// Events that are missing since the last one that was handed over.
    missing: u64,
    /// What is left of [`PATIENCE`].
    patience: Duration,
}

impl FlightRecorder {
    /// Opens the first file, and starts the thread.
    pub(crate) fn start(
        config: &RecordConfig,
        header: JournalHeader,
        shared: Arc<ServiceState>,
    ) -> Result<Self, JournalFileError> {
        Self::with_queue(config, header, shared, QUEUE)
    }

    fn with_queue(
        config: &RecordConfig,
        header: JournalHeader,
        shared: Arc<ServiceState>,
        capacity: usize,
    ) -> Result<Self, JournalFileError> {
        let groups = match &header.served {
            ServedNodeClasses::All => Vec::new(),
            ServedNodeClasses::Only(kinds) => {
                kinds.iter().map(|kind| kind.group.to_owned()).collect()
            }
        };
        let ring = RecordingFiles::open(config.directory.clone(), config.max_bytes, header)?;
        let (messages, received) = sync_channel(capacity);
        let (state, directory) = (Arc::clone(&shared), config.directory.clone());
        let run = move || {
            if let Err(error) = writer::run(ring, groups, &received, &state) {
                // What is not received is missing; the recorder notices that nothing receives.
                tracing::error!(directory = %directory.display(), %error, "recording ended, it cannot be written");
            }
        };
        let writer = std::thread::Builder::new()
            .name("recorder".to_owned())
            .spawn(run)?;
        Ok(Self {
            messages: Some(messages),
            writer: Some(writer),
            shared,
            missing: 0,
            patience: PATIENCE,
        })
    }

    fn miss(&mut self) {
        if self.missing == 0 && self.messages.is_some() {
            tracing::warn!("recording has a gap, the disk is too slow");
        }
        self.missing += 1;
        self.shared.metrics.engine.not_recorded();
    }

    /// Hands a message over if there is room.
    fn send(&mut self, message: Message) -> bool {
        let mut message = message;
        loop {
            let Some(messages) = &self.messages else {
                return false;
            };
            match messages.try_send(message) {
                Ok(()) => return true,
                Err(TrySendError::Full(back)) if !self.patience.is_zero() => {
                    message = back;
                    self.patience = self.patience.saturating_sub(PAUSE);
                    std::thread::sleep(PAUSE);
                }
                Err(TrySendError::Full(_)) => return false,
                Err(TrySendError::Disconnected(_)) => {
                    self.messages = None;
                    return false;
                }
            }
        }
    }
}

impl Recorder for FlightRecorder {
    fn record(&mut self, at: Timestamp, event: JournalEvent) {
        let is_synced = matches!(event, JournalEvent::Input(EngineInput::Synced));
        if self.missing > 0 {
            if !self.send(Message::Gap(at, self.missing)) {
                self.miss();
                return;
            }
            self.missing = 0;
        }
        if !self.send(Message::Event(at, Box::new(event))) {
            self.miss();
        }
        if is_synced {
            self.patience = Duration::ZERO;
        }
    }
}

impl Drop for FlightRecorder {
    /// Waits until everything is written.
    fn drop(&mut self) {
        if self.missing > 0 {
            self.patience = PATIENCE;
            let at = self.shared.now();
            self.send(Message::Gap(at, self.missing));
        }
        self.messages = None;
        if let Some(writer) = self.writer.take()
            && writer.join().is_err()
        {
            tracing::error!("recorder thread panicked");
        }
    }
}
