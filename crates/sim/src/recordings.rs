//! Recordings of the processes of a simulation, in memory: one for each start.

use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use mortise_engine::engine::{JournalEvent, Recorder};
use mortise_engine::journal::{JournalEncoder, JournalFileError, JournalHeader, JournalWriter};

/// The recordings of all processes so far. Clones share them.
#[derive(Clone, Default)]
pub struct Recordings {
    all: Arc<Mutex<Vec<Shared>>>,
    /// Entries of a file; `None` = each recording is one file.
    entries: Option<u64>,
}

type Shared = Arc<Mutex<Recording>>;

struct Recording {
    header: JournalHeader,
    encoder: JournalEncoder,
    writer: Option<JournalWriter<Vec<u8>>>,
    /// Files that have ended.
    files: Vec<Vec<u8>>,
    /// Entries of the file that is being written.
    entries: u64,
    /// Entries of a file.
    most: Option<u64>,
    error: Option<JournalFileError>,
}

impl Recordings {
    /// Recordings whose files have this number of entries each.
    #[must_use]
    pub fn in_files_of(entries: u64) -> Self {
        Self {
            all: Arc::default(),
            entries: Some(entries),
        }
    }

    /// Begins the recording of a process. `groups`: API groups of its node classes.
    pub(crate) fn start(&self, header: &JournalHeader, groups: Vec<String>) -> Box<dyn Recorder> {
        let (writer, error) = match JournalWriter::new(Vec::new(), header) {
            Ok(writer) => (Some(writer), None),
            Err(error) => (None, Some(error)),
        };
        let recording = Arc::new(Mutex::new(Recording {
            header: header.clone(),
            encoder: JournalEncoder::new(groups),
            writer,
            files: Vec::new(),
            entries: 0,
            most: self.entries,
            error,
        }));
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(Arc::clone(&recording));
        Box::new(MemoryRecorder(recording))
    }

    /// Ends all recordings, and returns the files of each in the order of the starts. What happens later is not recorded.
    ///
    /// # Errors
    /// A value could not be written, which is a defect.
    pub fn finish(&self) -> Result<Vec<Vec<Vec<u8>>>, JournalFileError> {
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let mut recordings = Vec::new();
        for recording in &*all {
            let mut recording = recording.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(error) = recording.error.take() {
                return Err(error);
            }
            if let Some(writer) = recording.writer.take() {
                recording.files.push(writer.finish()?);
            }
            recordings.push(std::mem::take(&mut recording.files));
        }
        Ok(recordings)
    }
}

struct MemoryRecorder(Shared);

impl Recorder for MemoryRecorder {
    fn record(&mut self, at: Timestamp, event: JournalEvent) {
        let mut recording = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(failed) = recording.write(at, event) {
            recording.error = Some(failed);
            recording.writer = None;
        }
    }
}

impl Recording {
    fn write(&mut self, at: Timestamp, event: JournalEvent) -> Result<(), JournalFileError> {
        let Some(file) = &mut self.writer else {
            return Ok(());
        };
        let line = self.encoder.line(at, event).map_err(std::io::Error::from)?;
        file.line(&line)?;
        self.entries += 1;
        if self.most.is_some_and(|most| self.entries >= most) {
            self.entries = 0;
            self.header.file += 1;
            let mut next = JournalWriter::new(Vec::new(), &self.header)?;
            for line in self.encoder.base(at).map_err(std::io::Error::from)? {
                next.line(&line)?;
            }
            if let Some(ended) = self.writer.replace(next) {
                self.files.push(ended.finish()?);
            }
        }
        Ok(())
    }
}
