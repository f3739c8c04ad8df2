//! `mortise replay`: plays a recording of `mortise serve --record` again, as it was or with other settings.

mod comparison;
mod table;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use jiff::Timestamp;
use mortise_engine::journal::{EXTENSION, JournalFileError, JournalHeader, JournalReader};
use mortise_sim::replay::{NamedFile, ReplayReport, SettingChange, replay};
use serde::Serialize;
use serde_json::json;

use super::{PARTED, WITH_WARNINGS, line};

/// Play a recording of the service again: the same inputs, the same decisions; or with other settings
#[derive(Args)]
#[command(
    long_about = "Play a recording of `mortise serve --record DIR` again. The same engine and deciders get the same inputs at the same times; every\n\
request and every decision is compared. Where histories part, it shows the first step that differs, what it decided then and now, and why.\n\n\
With --set it is played a second time with other settings: where histories part first, and what was decided in both. The deciders go on to\n\
see the recorded cluster; requests that were not made then are not executed. With --compare it shows how well the clusters of two recordings\n\
were run. Nothing is asked of a cluster or a cloud.",
    after_long_help = "Exit codes: 0 every decision is equal, or with --set: played; 1 a file cannot be read; 2 wrong usage; 7 played, but the recording\n\
has a gap or begins in the middle, so that not everything can be claimed; 9 a decision differs.\n\n\
Examples:\n  mortise replay /var/lib/mortise/recordings\n  mortise replay recordings --at 2026-11-24T03:00:00Z\n  \
mortise replay before --compare after\n  \
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
    /// Another directory or file, of another time or cluster: print how well both were run, side by side
    #[arg(
        long,
        value_name = "PATH",
        conflicts_with = "changes",
        help_heading = "Compare"
    )]
    compare: Option<PathBuf>,
    /// Of --compare only the recording of the process that ran at this time
    #[arg(
        long,
        value_name = "TIME",
        requires = "compare",
        help_heading = "Compare"
    )]
    compare_at: Option<Timestamp>,
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
#[derive(Serialize)]
struct Played {
    files: Vec<String>,
    /// With the recorded settings.
    replay: ReplayReport,
    /// With other settings.
    changed: Option<ReplayReport>,
}

/// Reads, plays and shows.
pub(super) fn run(args: &ReplayArgs) -> anyhow::Result<ExitCode> {
    let first = play_all(&args.path, args.at, &args.changes)?;
    let other = match &args.compare {
        Some(path) => Some((path, play_all(path, args.compare_at, &[])?)),
        None => None,
    };
    match (args.output, &other) {
        (ReplayFormat::Table, None) => {
            for (nth, each) in first.iter().enumerate() {
                if nth > 0 {
                    line("");
                }
                table::lines(each).iter().for_each(|text| line(text));
            }
        }
        (ReplayFormat::Table, Some((path, other))) => {
            let columns = [(&*args.path, &*first), (&**path, &**other)];
            comparison::lines(columns)
                .iter()
                .for_each(|text| line(text));
            // Of these the scores are not of everything.
            let all = first.iter().chain(other);
            for each in all.filter(|each| !each.replay.is_equal) {
                line("");
                table::lines(each).iter().for_each(|text| line(text));
            }
        }
        (ReplayFormat::Json, None) => {
            line(&serde_json::to_string_pretty(
                &json!({ "recordings": first }),
            )?);
        }
        (ReplayFormat::Json, Some((_, other))) => line(&serde_json::to_string_pretty(
            &json!({ "recordings": first, "compared": other }),
        )?),
    }
    let mut all = first.iter().chain(other.iter().flat_map(|(_, all)| all));
    let differs = |each: &Played| each.replay.parting.is_some() && !each.replay.is_cold;
    Ok(if all.clone().any(differs) {
        ExitCode::from(PARTED)
    } else if all.all(|each| each.replay.is_equal) {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(WITH_WARNINGS)
    })
}

/// Plays the recordings of a path; all of them, or that of the process that ran at a time.
fn play_all(
    path: &Path,
    at: Option<Timestamp>,
    changes: &[SettingChange],
) -> anyhow::Result<Vec<Played>> {
    let mut played = Vec::new();
    for recording in selected(path, at)? {
        let replay = play(&recording, &[])?;
        let changed = match changes {
            [] => None,
            changes => Some(play(&recording, changes)?),
        };
        let files = recording.files.iter();
        played.push(Played {
            files: files.map(|(_, path)| path.display().to_string()).collect(),
            replay,
            changed,
        });
    }
    Ok(played)
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

/// The recordings of a path, the oldest first; with a time, only that of the process that ran then.
fn selected(path: &Path, at: Option<Timestamp>) -> anyhow::Result<Vec<Recording>> {
    let is_directory = std::fs::metadata(path)
        .with_context(|| format!("cannot read {}", path.display()))?
        .is_dir();
    let mut recordings = if is_directory {
        recordings(path)?
    } else {
        let header = header(path)?;
        vec![Recording {
            started_at: header.started_at,
            files: vec![(header.file, path.to_owned())],
        }]
    };
    if recordings.is_empty() {
        bail!(
            "{} has no recordings; `mortise serve --record DIR` writes them",
            path.display()
        );
    }
    if let Some(at) = at {
        let first = recordings.first().map(|each| each.started_at);
        recordings.retain(|each| each.started_at <= at);
        // The one that began last before then ran at that time, or had ended.
        recordings = recordings.pop().into_iter().collect();
        if let (true, Some(first)) = (recordings.is_empty(), first) {
            bail!(
                "{}: the oldest recording begins at {first}, after {at}",
                path.display()
            );
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
