//! Why a recording cannot be read or written.

use super::file::FORMAT_VERSION;

/// Why a recording cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum JournalFileError {
    /// It is something else.
    #[error("not a recording: {0}; `mortise serve --record DIR` writes recordings")]
    OtherFile(String),
    /// Its format is newer or older.
    #[error(
        "the recording has format version {found}, written by mortise {recorded_by}; this program reads version {FORMAT_VERSION}: use the program that wrote it"
    )]
    OtherVersion {
        /// Version of the file.
        found: u64,
        /// Version of the program that wrote it.
        recorded_by: String,
    },
    /// A line is invalid.
    #[error("line {line}: {problem}")]
    Line {
        /// Its number, from 1.
        line: u64,
        /// What is wrong with it.
        problem: String,
    },
    /// Reading or writing failed.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}
