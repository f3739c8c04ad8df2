//! The thread that encodes events and writes them.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use mortise_engine::journal::{JournalEncoder, JournalFileError, JournalLine, LineBody};

use super::Message;
use super::ring::RecordingFiles;
use crate::service_state::ServiceState;

/// What was written is handed to the operating system this often: a process that is killed loses no more than this.
const SYNC: Duration = Duration::from_secs(1);

/// Writes until the recorder is dropped.
///
/// # Errors
/// A file cannot be written.
pub(super) fn run(
    mut ring: RecordingFiles,
    groups: Vec<String>,
    messages: &Receiver<Message>,
    shared: &ServiceState,
) -> Result<(), JournalFileError> {
    let mut encoder = JournalEncoder::new(groups);
    let mut synced_at = Instant::now();
    let mut counted = 0;
    let mut is_dirty = true;
    loop {
        let wait = SYNC.saturating_sub(synced_at.elapsed());
        let at = match messages.recv_timeout(wait) {
            Ok(Message::Event(at, event)) => {
                let line = encoder.line(at, *event).map_err(std::io::Error::from)?;
                ring.line(&line)?;
                is_dirty = true;
                Some(at)
            }
            Ok(Message::Gap(at, missing)) => {
                ring.line(&line(&JournalLine(at, LineBody::Gap(missing)))?)?;
                is_dirty = true;
                Some(at)
            }
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                ring.line(&line(&JournalLine(shared.now(), LineBody::End))?)?;
                ring.finish()?;
                shared
                    .metrics
                    .engine
                    .recorded(ring.written().saturating_sub(counted));
                return Ok(());
            }
        };
        if synced_at.elapsed() >= SYNC {
            synced_at = Instant::now();
            if std::mem::take(&mut is_dirty) {
                ring.sync()?;
                let written = ring.written();
                let more = written.saturating_sub(counted);
                shared.metrics.engine.recorded(more);
                counted = written;
            }
        }
        if let Some(at) = at
            && ring.is_full()
        {
            let base = encoder.base(at).map_err(std::io::Error::from)?;
            ring.rotate(&base)?;
        }
    }
}

fn line(line: &JournalLine) -> Result<String, std::io::Error> {
    serde_json::to_string(line).map_err(std::io::Error::from)
}
