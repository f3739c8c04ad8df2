use std::path::PathBuf;

use mortise_apis::labels::WellKnown;
use mortise_engine::journal::{JournalLine, JournalReader, LineBody};
use mortise_planning::scheduling::SchedulerConfig;
use mortise_planning::settings::Settings;
use mortise_state::resource_kinds::{EventSource, Object, ObjectEvent};
use serde_json::json;

use super::*;
use crate::clock::SystemClock;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_790_000_000 + second).unwrap()
}

fn header(second: i64) -> JournalHeader {
    JournalHeader {
        recorded_by: "test".to_owned(),
        started_at: at(second),
        file: 0,
        settings: Settings::default(),
        scheduler_config: SchedulerConfig::default(),
        well_known: WellKnown::core(),
        served: ServedNodeClasses::All,
        seed: 7,
    }
}

fn state() -> Arc<ServiceState> {
    let clock = Arc::new(SystemClock);
    ServiceState::new(clock, WellKnown::core(), "test", serde_json::Value::Null)
}

/// A directory of this test, and a configuration for it.
fn config(name: &str, max_bytes: u64) -> RecordConfig {
    let directory = std::env::temp_dir().join(format!("mortise-{name}-{}", std::process::id()));
    if directory.exists() {
        std::fs::remove_dir_all(&directory).unwrap();
    }
    RecordConfig {
        directory,
        max_bytes,
        scheduler_config: SchedulerConfig::default(),
    }
}

fn pod(number: u64, version: u64) -> JournalEvent {
    // Text that does not compress well.
    let noise: Vec<String> = (0..40)
        .map(|at: u64| {
            let word =
                (number * 1_000_003 + version * 7_919 + at).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            format!("{word:x}")
        })
        .collect();
    let pod = json!({
        "metadata": {
            "name": format!("p{number}"), "namespace": "n", "resourceVersion": version.to_string(),
            "annotations": { "karpenter.sh/note": noise.concat() },
        },
        "spec": { "containers": [] },
    });
    let pod: mortise_apis::k8s::Pod = serde_json::from_value(pod).unwrap();
    let event = ObjectEvent::Applied(Object::from(pod), EventSource::Watch);
    JournalEvent::Input(EngineInput::News(event))
}

fn files(config: &RecordConfig) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(&config.directory).unwrap();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort_unstable();
    paths
}

fn bytes(config: &RecordConfig) -> u64 {
    let files = files(config).into_iter();
    files
        .map(|path| std::fs::metadata(path).unwrap().len())
        .sum()
}

fn read(path: &PathBuf) -> (JournalHeader, Vec<LineBody>, bool) {
    let file = std::fs::File::open(path).unwrap();
    let (mut reader, header) = JournalReader::new(file).unwrap();
    let mut lines = Vec::new();
    while let Some(JournalLine(_, body)) = reader.next_line().unwrap() {
        lines.push(body);
    }
    (header, lines, reader.is_torn())
}

fn count(lines: &[LineBody], is_one: impl Fn(&LineBody) -> bool) -> usize {
    lines.iter().filter(|line| is_one(line)).count()
}

#[test]
fn the_ring_is_bounded_and_every_file_begins_with_the_objects() {
    let config = config("ring", 2_000_000);
    for process in 0..2 {
        let started = header(process);
        let mut recorder = FlightRecorder::start(&config, started, state()).unwrap();
        for version in 1..=8_000 {
            recorder.record(at(process), pod(version % 10, version));
        }
        drop(recorder);
        assert!(bytes(&config) <= config.max_bytes, "{}", bytes(&config));
    }
    let files = files(&config);
    assert!(files.len() > 3, "{files:?}");
    for pair in files.windows(2) {
        let (before, after) = (read(&pair[0]).0, read(&pair[1]).0);
        assert_eq!(after.started_at, at(1), "the older process is gone");
        assert_eq!(before.file + 1, after.file, "none is missing in between");
    }
    let (last, lines, is_torn) = read(files.last().unwrap());
    assert!(last.file > 5 && !is_torn, "{}", last.file);
    let is_base = |line: &LineBody| matches!(line, LineBody::BaseEnds { .. });
    let base = lines.iter().position(is_base).unwrap();
    let is_pod = |line: &LineBody| matches!(line, LineBody::Applied(_));
    assert_eq!(count(&lines[..base], is_pod), 10, "every object once");
    assert!(matches!(lines.last(), Some(LineBody::End)));
    std::fs::remove_dir_all(&config.directory).unwrap();
}

#[test]
fn what_finds_no_room_is_counted_where_it_is_missing() {
    let config = config("overflow", 100_000_000);
    let shared = state();
    let mut recorder =
        FlightRecorder::with_queue(&config, header(0), Arc::clone(&shared), 0).unwrap();
    recorder.record(at(0), JournalEvent::Input(EngineInput::Synced));
    for number in 0..5_000 {
        recorder.record(at(1), pod(number, number + 1));
    }
    drop(recorder);
    let (_, lines, _) = read(&files(&config)[0]);
    let missing = lines.iter().map(|line| match line {
        LineBody::Gap(missing) => *missing,
        _ => 0,
    });
    let missing: u64 = missing.sum();
    let written = count(&lines, |line| matches!(line, LineBody::Applied(_))) as u64;
    assert!(missing > 0, "a queue without room overflows");
    assert_eq!(missing + written, 5_000);
    let mut page = String::new();
    shared.metrics.encode(&mut page).unwrap();
    let counter = format!("mortise_recorder_missing_events_total {missing}\n");
    assert!(page.contains(&counter), "{counter}");
    std::fs::remove_dir_all(&config.directory).unwrap();
}

#[test]
fn what_a_killed_process_leaves_is_read_up_to_its_last_line() {
    let config = config("killed", 100_000_000);
    let mut recorder = FlightRecorder::start(&config, header(0), state()).unwrap();
    for number in 0..200 {
        recorder.record(at(1), pod(number, number + 1));
    }
    drop(recorder);
    let path = &files(&config)[0];
    let whole = std::fs::read(path).unwrap();
    std::fs::write(path, &whole[..whole.len() / 2]).unwrap();
    let (_, lines, is_torn) = read(path);
    assert!(is_torn);
    let pods = count(&lines, |line| matches!(line, LineBody::Applied(_)));
    assert!(pods > 10 && pods < 200, "{pods}");
    std::fs::remove_dir_all(&config.directory).unwrap();
}

#[test]
fn a_directory_that_cannot_be_written_is_an_error() {
    let config = config("file", 100_000_000);
    std::fs::write(&config.directory, "a file").unwrap();
    assert!(FlightRecorder::start(&config, header(0), state()).is_err());
    std::fs::remove_file(&config.directory).unwrap();
}
