//! Plays a recording again: the same engine and the production deciders get the same inputs at the same times.
//!
//! | what | where |
//! |---|---|
//! | inputs into the engine, and the recorded steps again | `replayer.rs` |
//! | with other settings: what follows where histories have parted | `free_run.rs` |
//! | changes of settings | `setting_change.rs` |
//! | how well the recorded cluster was run | `recorded_scores.rs` |
//! | what came of it | `report.rs` |
//!
//! # What is claimed
//! A replay of a whole recording is equal bit for bit: every step of every decider requests, decides, counts and waits for the same.
//! Where a recording has a gap, nothing is claimed about what follows. A file in the middle of a recording begins with objects and
//! without the memory of the deciders; its first steps may differ, and the report counts them.

mod free_run;
mod recorded_scores;
mod replayer;
mod report;
mod setting_change;

use std::io::Read;

use mortise_engine::decider::Decider;
use mortise_engine::journal::{JournalFileError, JournalHeader, JournalReader, LineBody};
use mortise_planning::settings::Settings;

pub use report::{Parting, ReplayReport, StepCount, Totals};
pub use setting_change::{SettingChange, SettingChangeError};

use replayer::Replayer;

/// Why a recording cannot be played.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// A file cannot be read.
    #[error("{name}: {error}")]
    File {
        /// Its name.
        name: String,
        /// What is wrong with it.
        error: JournalFileError,
    },
    /// There is no file.
    #[error("there is no recording")]
    Empty,
    /// A line cannot be given to the engine.
    #[error("{name}: line {line}: {problem}")]
    Input {
        /// Name of the file.
        name: String,
        /// Number of the line.
        line: u64,
        /// What is wrong with it.
        problem: String,
    },
    /// A setting cannot be changed.
    #[error(transparent)]
    Setting(#[from] SettingChangeError),
}

/// A file of a recording with its name.
pub struct NamedFile<R> {
    /// Its name, for errors.
    pub name: String,
    /// Its content.
    pub content: R,
}

/// Plays the files of one recording in order. With `changes` the settings are others, and the histories may part.
///
/// # Errors
/// A file cannot be read, or a setting cannot be changed.
///
/// # Cost
/// That of the recorded steps: an hour of a quiet cluster takes seconds.
pub fn replay<R: Read>(
    files: impl IntoIterator<Item = NamedFile<R>>,
    deciders: Vec<Box<dyn Decider>>,
    changes: &[SettingChange],
) -> Result<ReplayReport, ReplayError> {
    let mut deciders = Some(deciders);
    let mut replayer: Option<Replayer> = None;
    for NamedFile { name, content } in files {
        let failed = |error| ReplayError::File {
            name: name.clone(),
            error,
        };
        let (mut reader, header) = JournalReader::new(content).map_err(failed)?;
        let mut skips_base = header.file > 0;
        let player = match (&mut replayer, deciders.take()) {
            (Some(player), _) => {
                if let Some(problem) = player.follows(&header) {
                    return Err(failed(JournalFileError::OtherFile(problem)));
                }
                player
            }
            (None, Some(deciders)) => {
                skips_base = false;
                let settings = changed(&header, changes)?;
                replayer.insert(Replayer::new(
                    &header,
                    settings,
                    deciders,
                    !changes.is_empty(),
                ))
            }
            (None, None) => return Err(ReplayError::Empty),
        };
        player.file_begins(&name);
        while let Some(line) = reader.next_line().map_err(failed)? {
            if skips_base {
                skips_base = !matches!(line.1, LineBody::BaseEnds { .. });
                continue;
            }
            player
                .play(line, reader.number())
                .map_err(|problem| ReplayError::Input {
                    name: name.clone(),
                    line: reader.number(),
                    problem,
                })?;
        }
        player.file_ended(reader.is_torn());
    }
    replayer.map(Replayer::report).ok_or(ReplayError::Empty)
}

fn changed(header: &JournalHeader, changes: &[SettingChange]) -> Result<Settings, ReplayError> {
    let mut settings = header.settings.clone();
    for change in changes {
        settings = change.apply(settings)?;
    }
    Ok(settings)
}
