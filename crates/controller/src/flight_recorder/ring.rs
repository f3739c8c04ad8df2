//! The files of recordings in a directory. A recording has one or more; the oldest are deleted when there are too many bytes.
//!
//! ```text
//! 20261125T030000.123456789Z-000000.recording     the first file of a process: from its start
//! 20261125T030000.123456789Z-000001.recording     begins with the objects of that time
//! ```
//!
//! # Invariant
//! All recordings in the directory together, of earlier processes too, have at most the configured number of bytes; only the file that
//! is being written is never deleted, and it ends at an eighth of them, besides the objects with which it begins.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use mortise_engine::journal::{EXTENSION, JournalFileError, JournalHeader, JournalWriter};

/// Bytes that may wait in buffers when a file is found to be full.
const BUFFERED: u64 = 1 << 17;

/// The files.
pub(super) struct RecordingFiles {
    directory: PathBuf,
    max_bytes: u64,
    header: JournalHeader,
    file: Option<JournalWriter<Counted>>,
    path: PathBuf,
    /// Bytes of the objects with which the file begins.
    base_bytes: u64,
    /// Bytes of the files before this one.
    written_before: u64,
}

/// A file that knows how long it is.
struct Counted {
    file: File,
    bytes: u64,
}

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl RecordingFiles {
    /// Creates the directory and the first file, and deletes what is too old.
    pub(super) fn open(
        directory: PathBuf,
        max_bytes: u64,
        header: JournalHeader,
    ) -> Result<Self, JournalFileError> {
        let mut builder = std::fs::DirBuilder::new();
        builder.recursive(true).mode(0o700).create(&directory)?;
        let mut ring = Self {
            directory,
            max_bytes,
            header,
            file: None,
            path: PathBuf::new(),
            base_bytes: 0,
            written_before: 0,
        };
        ring.begin()?;
        ring.sync()?;
        Ok(ring)
    }

    /// Writes a line.
    pub(super) fn line(&mut self, text: &str) -> Result<(), JournalFileError> {
        match &mut self.file {
            Some(file) => file.line(text),
            None => Ok(()),
        }
    }

    /// Hands everything to the operating system.
    pub(super) fn sync(&mut self) -> Result<(), JournalFileError> {
        match &mut self.file {
            Some(file) => file.sync(),
            None => Ok(()),
        }
    }

    /// Bytes so far, of all files of this recording.
    pub(super) fn written(&self) -> u64 {
        self.written_before + self.bytes()
    }

    /// Whether the next file must begin.
    pub(super) fn is_full(&self) -> bool {
        self.bytes() - self.base_bytes >= self.segment()
    }

    /// Ends the file and begins the next with these lines.
    pub(super) fn rotate(&mut self, base: &[String]) -> Result<(), JournalFileError> {
        self.finish()?;
        self.header.file += 1;
        self.begin()?;
        for line in base {
            self.line(line)?;
        }
        self.sync()?;
        self.base_bytes = self.bytes();
        self.delete_old()
    }

    /// Ends the file.
    pub(super) fn finish(&mut self) -> Result<(), JournalFileError> {
        if let Some(file) = self.file.take() {
            self.written_before += file.finish()?.bytes;
        }
        Ok(())
    }

    /// Bytes after which the next file begins.
    const fn segment(&self) -> u64 {
        self.max_bytes / 8
    }

    fn bytes(&self) -> u64 {
        self.file.as_ref().map_or(0, |file| file.output().bytes)
    }

    fn begin(&mut self) -> Result<(), JournalFileError> {
        let started = self.header.started_at.strftime("%Y%m%dT%H%M%S.%9fZ");
        let name = format!("{started}-{:06}.{EXTENSION}", self.header.file);
        self.path = self.directory.join(name);
        let mut options = OpenOptions::new();
        // It has the names of a cluster's objects.
        let file = options
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&self.path)?;
        let output = Counted { file, bytes: 0 };
        self.file = Some(JournalWriter::new(output, &self.header)?);
        self.base_bytes = 0;
        self.delete_old()
    }

    /// Deletes the oldest files until the current one has room.
    fn delete_old(&self) -> Result<(), JournalFileError> {
        let own = self.base_bytes + self.segment() + BUFFERED;
        let mut files = recordings(&self.directory)?;
        files.retain(|(path, _)| *path != self.path);
        let mut total: u64 = files.iter().map(|(_, bytes)| bytes).sum();
        for (path, bytes) in files {
            if total + own <= self.max_bytes {
                return Ok(());
            }
            std::fs::remove_file(&path)?;
            tracing::info!(file = %path.display(), "old recording deleted, the limit of bytes is reached");
            total -= bytes;
        }
        Ok(())
    }
}

/// Recordings of a directory with their bytes, the oldest first: names begin with a time.
fn recordings(directory: &Path) -> io::Result<Vec<(PathBuf, u64)>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.extension().is_some_and(|found| found == EXTENSION) {
            let bytes = std::fs::metadata(&path)?.len();
            files.push((path, bytes));
        }
    }
    files.sort_unstable();
    Ok(files)
}
