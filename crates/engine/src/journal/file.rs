//! A file of a recording: gzip of lines of JSON.
//!
//! ```text
//! {"mortiseRecording":1,"recordedBy":...,"startedAt":...,"settings":{...},...}     the first line
//! ["2026-11-25T03:00:00.1Z",{"applied":{"kind":"Pod","object":{...}}}]            an entry
//! ["2026-11-25T03:00:01Z","end"]                                                  the last line, if the process ended in order
//! ```
//!
//! Invariant: a process may be killed at any time. What was written before the last [`JournalWriter::sync`] is read; a line that was
//! begun and not completed is not.

use std::io::{BufRead, BufReader, BufWriter, IntoInnerError, Read, Write};

use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use jiff::Timestamp;
use mortise_apis::labels::WellKnown;
use mortise_apis::node_class::served::ServedNodeClasses;
use mortise_planning::scheduling::{SchedulerConfig, SpreadDefaults};
use mortise_planning::settings::{InstanceTagging, LaunchBatching, RepairPolicies, Settings};
use serde::{Deserialize, Serialize};

use super::file_error::JournalFileError;
use super::line::JournalLine;

/// Extension of the files of recordings.
pub const EXTENSION: &str = "recording";

/// Version of the format. It increases when older programs could not read a file, or would read it wrongly.
pub const FORMAT_VERSION: u64 = 1;

/// What an engine begins with.
#[derive(Clone, Debug)]
pub struct JournalHeader {
    /// Version of mortise that recorded it.
    pub recorded_by: String,
    /// When the engine began; it names the recording.
    pub started_at: Timestamp,
    /// Number of the file in its recording, from 0. Others begin with objects, and without the memory of the deciders.
    pub file: u64,
    /// Settings of the deciders. Default spread constraints are derived from [`Self::scheduler_config`].
    pub settings: Settings,
    /// Default spread constraints as configured.
    pub scheduler_config: SchedulerConfig,
    /// Label keys of the providers.
    pub well_known: WellKnown,
    /// Node classes that the process serves.
    pub served: ServedNodeClasses,
    /// Seed of random choices.
    pub seed: u64,
}

/// The first line.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct HeaderLine {
    mortise_recording: u64,
    recorded_by: String,
    started_at: Timestamp,
    file: u64,
    seed: u64,
    settings: Settings,
    repair: Vec<RepairPolicies>,
    tagging: Vec<InstanceTagging>,
    launch_batching: Vec<LaunchBatching>,
    scheduler_config: SchedulerConfig,
    well_known: WellKnown,
    served: ServedNodeClasses,
}

/// The part of the first line that every version has.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AnyHeader {
    mortise_recording: u64,
    #[serde(default)]
    recorded_by: String,
}

/// Writes a file.
pub struct JournalWriter<W: Write> {
    lines: BufWriter<GzEncoder<W>>,
}

impl<W: Write> JournalWriter<W> {
    /// Begins a file.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn new(output: W, header: &JournalHeader) -> Result<Self, JournalFileError> {
        let settings = &header.settings;
        let first = HeaderLine {
            mortise_recording: FORMAT_VERSION,
            recorded_by: header.recorded_by.clone(),
            started_at: header.started_at,
            file: header.file,
            seed: header.seed,
            settings: settings.clone(),
            repair: settings.repair.clone(),
            tagging: settings.tagging.clone(),
            launch_batching: settings.launch_batching.clone(),
            scheduler_config: header.scheduler_config.clone(),
            well_known: header.well_known.clone(),
            served: header.served.clone(),
        };
        // The encoder clears a buffer of 32 KiB for each write, however small.
        let encoder = GzEncoder::new(output, Compression::new(4));
        let mut writer = Self {
            lines: BufWriter::with_capacity(1 << 16, encoder),
        };
        let first = serde_json::to_string(&first).map_err(std::io::Error::from)?;
        writer.line(&first)?;
        Ok(writer)
    }

    /// Writes a line.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn line(&mut self, text: &str) -> Result<(), JournalFileError> {
        self.lines.write_all(text.as_bytes())?;
        self.lines.write_all(b"\n")?;
        Ok(())
    }

    /// Hands everything to the operating system, so that it outlives this process. Each call costs some bytes of compression.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn sync(&mut self) -> Result<(), JournalFileError> {
        Ok(self.lines.flush()?)
    }

    /// The output. Bytes that wait to be compressed are not in it.
    pub fn output(&self) -> &W {
        self.lines.get_ref().get_ref()
    }

    /// Ends the file.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn finish(self) -> Result<W, JournalFileError> {
        let encoder = self.lines.into_inner();
        let encoder = encoder.map_err(IntoInnerError::into_error)?;
        let mut output = encoder.finish()?;
        output.flush()?;
        Ok(output)
    }
}

/// Reads a file, line by line.
pub struct JournalReader<R: Read> {
    lines: BufReader<MultiGzDecoder<R>>,
    text: String,
    number: u64,
    is_torn: bool,
}

impl<R: Read> JournalReader<R> {
    /// Opens a file.
    ///
    /// # Errors
    /// It is something else, or of another version.
    pub fn new(input: R) -> Result<(Self, JournalHeader), JournalFileError> {
        let mut reader = Self {
            lines: BufReader::with_capacity(1 << 16, MultiGzDecoder::new(input)),
            text: String::new(),
            number: 1,
            is_torn: false,
        };
        let other = |error: String| JournalFileError::OtherFile(error);
        let read = reader.lines.read_line(&mut reader.text);
        if read.map_err(|error| other(error.to_string()))? == 0 {
            return Err(other("it is empty".to_owned()));
        }
        let header = header(&reader.text)?;
        Ok((reader, header))
    }

    /// The next entry; `None` at the end of what was written completely.
    ///
    /// # Errors
    /// A line is invalid, or the file cannot be read.
    pub fn next_line(&mut self) -> Result<Option<JournalLine>, JournalFileError> {
        self.text.clear();
        match self.lines.read_line(&mut self.text) {
            Ok(0) => return Ok(None),
            Ok(_) if self.text.ends_with('\n') => {}
            Ok(_) => {
                self.is_torn = true;
                return Ok(None);
            }
            Err(error) if is_end(&error) => {
                self.is_torn = true;
                return Ok(None);
            }
            Err(error) => return Err(self.invalid(&error)),
        }
        self.number += 1;
        match serde_json::from_str(&self.text) {
            Ok(line) => Ok(Some(line)),
            Err(error) => Err(self.invalid(&error)),
        }
    }

    /// Whether the file ends in the middle of a line or of its compression, as a killed process leaves it.
    #[must_use]
    pub const fn is_torn(&self) -> bool {
        self.is_torn
    }

    /// Number of the last line, from 1.
    #[must_use]
    pub const fn number(&self) -> u64 {
        self.number
    }

    fn invalid(&self, problem: &dyn std::fmt::Display) -> JournalFileError {
        JournalFileError::Line {
            line: self.number,
            problem: problem.to_string(),
        }
    }
}

/// A compressed file that just ends.
fn is_end(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::UnexpectedEof
}

fn header(text: &str) -> Result<JournalHeader, JournalFileError> {
    let other = |error: serde_json::Error| JournalFileError::OtherFile(error.to_string());
    let AnyHeader {
        mortise_recording: found,
        recorded_by,
    } = serde_json::from_str(text).map_err(other)?;
    if found != FORMAT_VERSION {
        return Err(JournalFileError::OtherVersion { found, recorded_by });
    }
    let line = |problem: String| JournalFileError::Line { line: 1, problem };
    let first: HeaderLine = serde_json::from_str(text).map_err(|error| line(error.to_string()))?;
    let spread_defaults = SpreadDefaults::from_config(&first.scheduler_config)
        .map_err(|error| line(format!("schedulerConfig: {error}")))?;
    Ok(JournalHeader {
        recorded_by,
        started_at: first.started_at,
        file: first.file,
        settings: Settings {
            spread_defaults,
            repair: first.repair,
            tagging: first.tagging,
            launch_batching: first.launch_batching,
            ..first.settings
        },
        scheduler_config: first.scheduler_config,
        well_known: first.well_known,
        served: first.served,
        seed: first.seed,
    })
}
