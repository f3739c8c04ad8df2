//! `mortise replay`: plays a recording of `mortise serve --record` again, as it was or with other settings.

mod table;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use jiff::Timestamp;
use mortise_engine::journal::{EXTENSION, JournalFileError, JournalHeader, JournalReader};
use mortise_sim::replay::{NamedFile, ReplayReport, SettingChange, replay};
use serde_json::json;

use super::{PARTED, WITH_WARNINGS, line};

/// Play a recording of the service again: the same inputs, the same decisions; or with other settings
#[derive(Args)]
#[command(
    long_about = "Play a recording of `mortise serve --record DIR` again. The same engine and deciders get the same inputs at the same times; every\n\
request and every decision is compared. Where histories part, it shows the first step that differs, what it decided then and now, and why.\n\n\
With --set it is played a second time with other settings: where histories part first, and what was decided in both. The deciders go on to\n\
see the recorded cluster; requests that were not made then are not executed. Nothing is asked of a cluster or a cloud.",
    after_long_help = "Exit codes: 0 every decision is equal, or with --set: played; 1 a file cannot be read; 2 wrong usage; 7 played, but the recording\n\
has a gap or begins in the middle, so that not everything can be claimed; 9 a decision differs.\n\n\
Examples:\n  mortise replay /var/lib/mortise/recordings\n  mortise replay recordings --at 2026-11-24T03:00:00Z\n  \
mortise replay recordings --set batch-idle-duration=5s --set SpotToSpotConsolidation=true -o json"
)]
pub(super) struct ReplayArgs {
    /// Directory with recordings, or one file
    #[arg(value_name = "PATH")]
    path: PathBuf,
    /// Only the recording of the process that ran at this time
    #[arg(long, value_name = "TIME")]
    at: Option<Timestamp>,
    /// Play again with another setting: the name of a flag of serve, or of a feature gate
    #[arg(long = "set", value_name = "NAME=VALUE")]
    changes: Vec<SettingChange>,
    /// Output format
    #[arg(short, long, value_enum, default_value = "table")]
    output: ReplayFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ReplayFormat {
    /// Text
    Table,
    /// One JSON object, whose fields stay
    Json,
}

/// The recording of one process.
struct Recording {
    started_at: Timestamp,
    /// Its files in order, with their numbers.
    files: Vec<(u64, PathBuf)>,
}

/// What came of a recording.
struct Played {
    files: Vec<String>,
    /// With the recorded settings.
    replay: ReplayReport,
    /// With other settings.
    changed: Option<ReplayReport>,
}

/// Reads, plays and shows.
pub(super) fn run(args: &ReplayArgs) -> anyhow::Result<ExitCode> {
    let mut played = Vec::new();
    for recording in selected(args)? {
        let replay = play(&recording, &[])?;
        let changed = match args.changes.as_slice() {
            [] => None,
            changes => Some(play(&recording, changes)?),
        };
        let files = recording.files.iter();
        let each = Played {
            files: files.map(|(_, path)| path.display().to_string()).collect(),
            replay,
            changed,
        };
        if args.output == ReplayFormat::Table {
            if !played.is_empty() {
                line("");
            }
            table::lines(&each).iter().for_each(|text| line(text));
        }
        played.push(each);
    }
    if args.output == ReplayFormat::Json {
        let all: Vec<_> = played.iter().map(|each| json!({ "files": each.files, "replay": each.replay, "changed": each.changed })).collect();
        line(&serde_json::to_string_pretty(
            &json!({ "recordings": all }),
        )?);
    }
    let differs = |each: &Played| each.replay.parting.is_some() && !each.replay.is_cold;
    Ok(if played.iter().any(differs) {
        ExitCode::from(PARTED)
    } else if played.iter().all(|each| each.replay.is_equal) {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(WITH_WARNINGS)
    })
}

fn play(recording: &Recording, changes: &[SettingChange]) -> anyhow::Result<ReplayReport> {
    let mut files = Vec::new();
    for (_, path) in &recording.files {
        files.push(NamedFile {
            name: path.display().to_string(),
            content: open(path)?,
        });
    }
    Ok(replay(files, mortise_deciders::all(), changes)?)
}

fn open(path: &Path) -> anyhow::Result<File> {
    File::open(path).with_context(|| format!("cannot read {}", path.display()))
}

/// The recordings that the arguments mean, the oldest first.
fn selected(args: &ReplayArgs) -> anyhow::Result<Vec<Recording>> {
    let path = &args.path;
    let is_directory = std::fs::metadata(path)
        .with_context(|| format!("cannot read {}", path.display()))?
        .is_dir();
    let mut recordings = if is_directory {
        recordings(path)?
    } else {
        let header = header(path)?;
        vec![Recording {
            started_at: header.started_at,
            files: vec![(header.file, path.clone())],
        }]
    };
    if recordings.is_empty() {
        bail!(
            "{} has no recordings; `mortise serve --record DIR` writes them",
            path.display()
        );
    }
    if let Some(at) = args.at {
        let first = recordings.first().map(|each| each.started_at);
        recordings.retain(|each| each.started_at <= at);
        // The one that began last before then ran at that time, or had ended.
        recordings = recordings.pop().into_iter().collect();
        if let (true, Some(first)) = (recordings.is_empty(), first) {
            bail!("--at {at}: the oldest recording begins at {first}");
        }
    }
    Ok(recordings)
}

/// The recordings of a directory: files by the start of their process. Of one whose middle is missing, what comes after it.
fn recordings(directory: &Path) -> anyhow::Result<Vec<Recording>> {
    let place = || format!("cannot read {}", directory.display());
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).with_context(place)? {
        let path = entry.with_context(place)?.path();
        if path.extension().is_some_and(|found| found == EXTENSION) {
            let header = header(&path)?;
            files.push((header.started_at, header.file, path));
        }
    }
    files.sort_unstable();
    let mut recordings: Vec<Recording> = Vec::new();
    for (started_at, number, path) in files {
        match recordings.last_mut() {
            Some(last) if last.started_at == started_at => {
                let is_next = last
                    .files
                    .last()
                    .is_some_and(|(file, _)| file + 1 == number);
                if !is_next {
                    last.files.clear();
                }
                last.files.push((number, path));
            }
            _ => recordings.push(Recording {
                started_at,
                files: vec![(number, path)],
            }),
        }
    }
    Ok(recordings)
}

fn header(path: &Path) -> anyhow::Result<JournalHeader> {
    let read = JournalReader::new(open(path)?);
    let (_, header) = read.map_err(|error: JournalFileError| {
        anyhow::anyhow!("cannot read {}: {error}", path.display())
    })?;
    Ok(header)
}
