//! A recorded history is played again: equal bit for bit, or the report says where it parts.

use std::io::{Cursor, Read as _};
use std::sync::{Arc, Mutex};

use crate::world::{minutes, options, start};
use mortise_apis::labels::WellKnown;
use mortise_apis::node_class::served::ServedNodeClasses;
use mortise_engine::decider::{Decider, Step, StepInput};
use mortise_engine::decider_id::DeciderId;
use mortise_engine::engine::{Engine, EngineInput, JournalEvent, Recorder};
use mortise_engine::journal::{JournalEncoder, JournalHeader, JournalReader, JournalWriter};
use mortise_planning::scheduling::SchedulerConfig;
use mortise_planning::settings::Settings;
use mortise_sim::replay::{NamedFile, ReplayError, ReplayReport, SettingChange, replay};
use mortise_sim::{Fault, FaultTarget, Recordings, Scores, Simulation, WatchFault};
use mortise_state::index::Changes;
use mortise_state::resource_kinds::ObjectKind;

/// Twenty minutes with lost capacity, interruptions, doubled effects, a late watch, a lost lease and a crash; the recordings of
/// all processes.
fn recorded(seed: u64) -> Vec<Vec<u8>> {
    let recordings = recorded_in(seed, Recordings::default());
    recordings.into_iter().flatten().collect()
}

fn recorded_in(seed: u64, recordings: Recordings) -> Vec<Vec<Vec<u8>>> {
    let mut options = options(seed);
    options.interruption_every_s = 240;
    let mut simulation = Simulation::recorded(options, mortise_deciders::all(), recordings.clone());
    let faults = [
        ("launch", Fault::Twice),
        ("create_claim", Fault::Twice),
        ("patch", Fault::LeaseLostAfter),
        ("terminate", Fault::CrashAfter),
    ];
    for (at, (effect, fault)) in (1..).zip(faults) {
        simulation.disturb(FaultTarget::Kind(effect), 3, fault, mortise_deciders::all());
        if at == 2 {
            simulation.disturb_watch(&ObjectKind::Pod, Some(WatchFault::Late(15_000)));
        }
        simulation.run_until(minutes(at * 5));
        simulation.disturb_watch(&ObjectKind::Pod, None);
    }
    simulation.run_until(minutes(23));
    recordings.finish().unwrap()
}

fn played(content: Vec<u8>, changes: &[SettingChange]) -> Result<ReplayReport, ReplayError> {
    let file = NamedFile {
        name: "test".to_owned(),
        content: Cursor::new(content),
    };
    replay([file], mortise_deciders::all(), changes)
}

fn header(content: &[u8]) -> JournalHeader {
    JournalReader::new(content).unwrap().1
}

/// The lines of a file, without the first.
fn lines(content: &[u8]) -> Vec<String> {
    let mut text = String::new();
    flate2::read::GzDecoder::new(content)
        .read_to_string(&mut text)
        .unwrap();
    text.lines().skip(1).map(str::to_owned).collect()
}

fn written(header: &JournalHeader, lines: &[String]) -> Vec<u8> {
    let mut writer = JournalWriter::new(Vec::new(), header).unwrap();
    lines.iter().for_each(|line| writer.line(line).unwrap());
    writer.finish().unwrap()
}

#[test]
fn a_history_with_faults_replays_bit_for_bit() {
    let mut processes = 0;
    for seed in [3, 12, 40] {
        for (process, content) in recorded(seed).into_iter().enumerate() {
            let report = played(content, &[]).unwrap();
            assert!(
                report.is_equal,
                "seed {seed}, process {process}: {:#?}",
                report.parting
            );
            assert!(report.inputs > 500 && report.steps > 500, "{report:#?}");
            assert_eq!(report.recorded, report.replayed);
            processes += 1;
        }
    }
    assert!(processes > 3, "some process is killed: {processes}");
}

/// How well a cluster was run is the same in its simulation and in the recording of it, except for the time between a change and
/// the next look at it.
#[test]
fn a_recording_has_the_scores_of_its_cluster() {
    for seed in [3, 12] {
        let recordings = Recordings::default();
        let deciders = mortise_deciders::all();
        let mut simulation = Simulation::recorded(options(seed), deciders, recordings.clone());
        simulation.keep_scores();
        simulation.run_until(minutes(45));
        let scores = simulation.scores();
        let mut processes = recordings.finish().unwrap();
        let content = processes.swap_remove(0).swap_remove(0);
        let report = played(content, &[]).unwrap();
        let recorded = report.scores;
        assert!(report.is_equal, "{:?}", report.parting);
        assert!(
            (2_600..=2_700).contains(&report.scored_s),
            "{}",
            report.scored_s
        );
        assert_eq!(recorded.evictions, scores.evictions);
        assert_eq!(recorded.most_moved, scores.most_moved);
        assert_eq!(recorded.nodes_launched, scores.nodes_launched);
        assert_eq!(recorded.unused_nodes, scores.unused_nodes);
        assert_eq!(recorded.moved_back, scores.moved_back);
        assert_eq!(recorded.daemon_pods, scores.daemon_pods);
        assert_eq!(recorded.late_daemon_pods, scores.late_daemon_pods);
        assert!(
            scores.evictions > 20 && scores.nodes_launched > 20,
            "{scores:?}"
        );
        let close = |now: i64, then: i64, per_mille: i64| {
            assert!(
                (now - then).abs() * 1_000 <= then * per_mille,
                "{now} is not {then}: {recorded:?} {scores:?}"
            );
        };
        let elsewhere = |scores: &Scores| i64::try_from(scores.bound_elsewhere).unwrap();
        close(elsewhere(&recorded), elsewhere(&scores), 50);
        close(recorded.spent_micro_usd, scores.spent_micro_usd, 30);
        close(recorded.bound_micro_usd, scores.bound_micro_usd, 50);
        assert!((recorded.pending_s.p50 - scores.pending_s.p50).abs() <= 1);
        assert!((recorded.pending_s.p99 - scores.pending_s.p99).abs() <= 1);
        assert!((recorded.lifetime_min.p50 - scores.lifetime_min.p50).abs() <= 1);
        assert!(recorded.most_nodes.abs_diff(scores.most_nodes) <= 1);
    }
}

#[test]
fn a_damaged_input_is_the_place_of_parting() {
    let content = recorded(3).swap_remove(0);
    let (header, mut all) = (header(&content), lines(&content));
    let total = all.len();
    // DaemonSet pods ask for more than they did: new nodes are planned with less room.
    let is_daemon_set = |line: &String| line.contains(r#""kind":"DaemonSet""#);
    let at = all.iter().position(is_daemon_set).unwrap();
    let damaged = all[at].replacen("100m", "900m", 1);
    assert_ne!(damaged, all[at]);
    let original = std::mem::replace(&mut all[at], damaged);
    let report = played(written(&header, &all), &[]).unwrap();
    assert!(!report.is_equal);
    let parting = report.parting.unwrap();
    assert!(parting.line > at as u64, "{parting:?}");
    assert!(parting.line < total as u64 / 2, "{parting:?}");
    let (then, now) = (parting.recorded.unwrap(), parting.replayed.unwrap());
    assert_ne!(then.digest, now.digest);
    assert_eq!(Some(then.decider), parting.decider);
    all[at] = original;
    assert!(played(written(&header, &all), &[]).unwrap().is_equal);

    all[at] = all[at].replacen("DaemonSet", "DaemonSat", 1);
    let error = played(written(&header, &all), &[]).unwrap_err().to_string();
    let place = format!("test: line {}:", at + 2);
    assert!(error.starts_with(&place), "{error}");
}

#[test]
fn a_torn_file_replays_up_to_its_last_line() {
    let content = recorded(11).swap_remove(0);
    let whole = played(content.clone(), &[]).unwrap();
    assert!(!whole.is_torn);
    for cut in [content.len() / 2, content.len() - 3] {
        let report = played(content[..cut].to_vec(), &[]).unwrap();
        assert!(report.is_torn && report.is_equal, "{:?}", report.parting);
        assert!(report.steps > 50 && report.inputs <= whole.inputs);
    }
    let error = played(b"something else".to_vec(), &[]).unwrap_err();
    assert!(error.to_string().contains("not a recording"), "{error}");
}

#[test]
fn another_version_is_named() {
    let mut text = Vec::new();
    let mut encoder = flate2::write::GzEncoder::new(&mut text, flate2::Compression::fast());
    let first = "{\"mortiseRecording\":99,\"recordedBy\":\"9.9.9\"}\n";
    std::io::Write::write_all(&mut encoder, first.as_bytes()).unwrap();
    encoder.finish().unwrap();
    let error = played(text, &[]).unwrap_err().to_string();
    assert!(
        error.contains("format version 99, written by mortise 9.9.9"),
        "{error}"
    );
}

#[test]
fn nothing_is_claimed_after_a_gap() {
    let content = recorded(12).swap_remove(0);
    let (header, mut all) = (header(&content), lines(&content));
    let middle = all.len() / 2;
    let at: (jiff::Timestamp, serde_json::Value) = serde_json::from_str(&all[middle]).unwrap();
    let gap = format!("[\"{}\",{{\"gap\":3}}]", at.0);
    all.splice(middle..middle + 3, [gap]);
    let report = played(written(&header, &all), &[]).unwrap();
    assert!(!report.is_equal && report.parting.is_none());
    assert_eq!((report.missing, report.gap_at), (3, Some(at.0)));
    let equal: u64 = report.by_decider.values().map(|count| count.equal).sum();
    assert!(equal > 50 && equal < report.steps);
}

#[test]
fn with_other_settings_the_first_difference_is_shown_and_both_are_counted() {
    let content = recorded(40).swap_remove(0);
    let same: SettingChange = "batch-idle-duration=1s".parse().unwrap();
    let report = played(content.clone(), &[same]).unwrap();
    assert!(report.is_equal, "{:?}", report.parting);

    let change: SettingChange = "batch-idle-duration=20ms".parse().unwrap();
    let report = played(content, &[change]).unwrap();
    let Some(parting) = report.parting else {
        panic!("{report:#?}")
    };
    assert_eq!(parting.decider, Some(DeciderId::Provisioning));
    let count = |totals: &mortise_sim::replay::Totals, word: &str| {
        totals.distinct.get(word).copied().unwrap_or_default()
    };
    for word in ["create_claim", "launch", "patch"] {
        let (then, now) = (count(&report.recorded, word), count(&report.replayed, word));
        assert!(then > 0 && now > 0, "{word}: {then} then, {now} now");
    }
    assert_eq!(
        count(&report.recorded, "resolve"),
        count(&report.replayed, "resolve")
    );
}

#[test]
fn a_recording_of_several_files_is_exact_from_its_first_and_counted_from_its_middle() {
    let mut files = recorded_in(12, Recordings::in_files_of(3_000)).swap_remove(0);
    assert!(files.len() > 2, "{}", files.len());
    let play = |files: &[Vec<u8>]| {
        let named = files.iter().enumerate().map(|(number, content)| NamedFile {
            name: format!("file {number}"),
            content: content.as_slice(),
        });
        replay(named, mortise_deciders::all(), &[])
    };
    let whole = play(&files).unwrap();
    assert!(whole.is_equal, "{:?}", whole.parting);
    assert_eq!(whole.files, files.len() as u64);

    // Without its first file: most steps are equal, and none is claimed.
    let rest = play(&files[1..]).unwrap();
    assert!(rest.is_cold && !rest.is_equal);
    let equal: u64 = rest.by_decider.values().map(|count| count.equal).sum();
    assert!(equal * 2 > rest.steps, "{equal} of {}", rest.steps);
    assert_eq!(whole.steps, rest.steps + steps_of(&files[0]));

    let second = files.remove(1);
    let error = play(&files).unwrap_err().to_string();
    assert!(error.contains("file 1 must come before it"), "{error}");
    // A file that is torn lacks entries, if another follows.
    files.insert(1, second[..second.len() / 2].to_vec());
    let torn = play(&files).unwrap();
    assert!(!torn.is_equal && torn.missing > 0 && !torn.is_torn);
}

/// Steps that a file has.
fn steps_of(content: &[u8]) -> u64 {
    let steps = lines(content).into_iter();
    steps
        .filter(|line| line.contains("{\"committed\":"))
        .count() as u64
}

/// Works until the stop signal comes, and waits for as many milliseconds as it has worked.
struct Patient;

impl Decider for Patient {
    fn id(&self) -> DeciderId {
        DeciderId::Disruption
    }

    fn fresh(&self) -> Box<dyn Decider> {
        Box::new(Self)
    }

    fn is_interested(&self, _: &Changes) -> bool {
        false
    }

    fn step(&mut self, input: &StepInput<'_>, stop: &dyn Fn() -> bool) -> Step {
        let worked = (0..1_000).take_while(|_| !stop()).count();
        let mut step = Step::default();
        step.wake_in(input.now, i64::try_from(worked).unwrap());
        step
    }
}

/// Writes lines into memory.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

struct LineRecorder(JournalEncoder, Lines);

impl Recorder for LineRecorder {
    fn record(&mut self, at: jiff::Timestamp, event: JournalEvent) {
        let line = self.0.line(at, event).unwrap();
        self.1.0.lock().unwrap().push(line);
    }
}

#[test]
fn a_step_that_the_clock_stopped_is_stopped_at_the_same_place() {
    let lines = Lines::default();
    let mut engine = Engine::new(
        vec![Box::new(Patient)],
        Settings::default(),
        WellKnown::core(),
        0,
        start(),
    )
    .recorded_by(Box::new(LineRecorder(
        JournalEncoder::new(Vec::new()),
        lines.clone(),
    )));
    engine.apply(EngineInput::Synced, start());
    engine.apply(EngineInput::Leading(true), start());
    let id = engine.due(start()).unwrap();
    let job = engine.prepare(id, start()).unwrap();
    let left = std::cell::Cell::new(17_u32);
    let finished = job.run(&|| {
        let is_over = left.get() == 0;
        left.set(left.get().saturating_sub(1));
        is_over
    });
    engine.commit(finished, minutes(1));
    let header = JournalHeader {
        recorded_by: "test".to_owned(),
        started_at: start(),
        file: 0,
        settings: Settings::default(),
        scheduler_config: SchedulerConfig::default(),
        well_known: WellKnown::core(),
        served: ServedNodeClasses::All,
        seed: 0,
    };
    let mut lines = lines.0.lock().unwrap().clone();
    let play = |lines: &[String]| {
        let content = written(&header, lines);
        let file = NamedFile {
            name: "test".to_owned(),
            content: content.as_slice(),
        };
        replay([file], vec![Box::new(Patient)], &[]).unwrap()
    };
    let report = play(&lines);
    assert!(report.is_equal && report.steps == 1, "{report:#?}");
    let last = lines.last_mut().unwrap();
    let elsewhere = last.replace(r#""stoppedAfter":17"#, r#""stoppedAfter":16"#);
    assert_ne!(elsewhere, *last);
    *last = elsewhere;
    let parting = play(&lines).parting.unwrap();
    assert!(parting.what.starts_with("it waited for"), "{parting:?}");
}
