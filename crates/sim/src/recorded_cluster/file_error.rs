//! Why a snapshot file cannot be read or written.

use super::file::FORMAT_VERSION;

/// Why a snapshot file cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotFileError {
    /// It is something else.
    #[error("not a snapshot file: {0}; write one with `mortise snapshot -o FILE`")]
    OtherFile(String),
    /// Its format is newer or older.
    #[error(
        "the file has format version {found}, written by mortise {recorded_by}; this program reads version {FORMAT_VERSION}: write the file again with this version, or use the program that wrote it"
    )]
    OtherVersion {
        /// Version of the file.
        found: u64,
        /// Version of the program that wrote it.
        recorded_by: String,
    },
    /// It ends early.
    #[error(
        "the file is truncated: it ends after line {lines} without its last line; copy it again, or write it again"
    )]
    Truncated {
        /// Complete lines.
        lines: usize,
    },
    /// A line is invalid.
    #[error("line {line}: {problem}")]
    Line {
        /// Its number, from 1.
        line: usize,
        /// What is wrong with it.
        problem: String,
    },
    /// A node class that no provider of this program serves.
    #[error(
        "the file was recorded with node class {group}/{kind}, which no provider of this program serves: {known}"
    )]
    UnknownNodeClass {
        /// Its group.
        group: String,
        /// Its kind.
        kind: String,
        /// Those that are served.
        known: String,
    },
    /// Reading or writing failed.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}
