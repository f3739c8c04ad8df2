//! `recorder`: what the flight recorder costs while a large cluster is quiet but not still: node heartbeats, pods that come and go, and
//! the production deciders that look at each of these changes.
//!
//! The recorder's thread is measured by itself: everything that it does with an event is done in turn with the engine, and timed.

use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use jiff::Timestamp;
use mortise_apis::node_class::served::ServedNodeClasses;
use mortise_apis::values::{SplitMix64, after};
use mortise_cloudprovider::ResolvedNodeClass;
use mortise_engine::effect::{Effect, EffectOutput, Outcome};
use mortise_engine::engine::{Engine, EngineInput, JournalEvent, Recorder};
use mortise_engine::journal::{JournalEncoder, JournalHeader, JournalWriter};
use mortise_sim::recorded_cluster::RecordedCluster;
use mortise_state::resource_kinds::{EventSource, Object, ObjectEvent};
use serde::Serialize;
use serde_json::{Value, json};

use crate::output::Output;
use crate::plan::{PlanBenchArgs, cluster};
use crate::report::{Benchmark, Results, verdict};

/// Pods of a node.
const PODS: usize = 10;
/// A kubelet that has nothing to say writes its node's status this often, in seconds.
const HEARTBEAT_S: usize = 300;
/// Steps at one time, at most.
const STEPS: usize = 1_000;
/// Share of a core that the project allows (`docs/tasks/replay.md`).
const WANTED_PERCENT: f64 = 2.0;

/// Options of `recorder`.
#[derive(Debug, clap::Args, Serialize)]
pub(crate) struct RecorderArgs {
    /// Nodes, each with 10 pods.
    #[arg(long, default_value_t = 1_000)]
    nodes: usize,
    /// Virtual time, in minutes.
    #[arg(long, default_value_t = 60)]
    minutes: usize,
    /// Pods that are replaced per hour, of a hundred.
    #[arg(long, default_value_t = 50)]
    replaced_percent: usize,
    /// What is drawn.
    #[arg(long, default_value_t = 1)]
    #[serde(skip)]
    seed: u64,
    #[command(flatten)]
    #[serde(skip)]
    output: Output,
}

/// Figures of the virtual time.
#[derive(Debug, Serialize)]
pub(crate) struct RecorderResults {
    events: u64,
    steps: u64,
    base_mb: f64,
    mb_per_hour: f64,
    base_s: f64,
    recorder_percent: f64,
    deciders_percent: f64,
    microseconds_per_event: f64,
}

/// Encodes and compresses in turn with the engine.
struct Timed {
    encoder: JournalEncoder,
    writer: JournalWriter<Vec<u8>>,
    spent: Duration,
    events: u64,
    steps: u64,
    failed: Option<anyhow::Error>,
}

#[derive(Clone)]
struct SharedTimed(Arc<Mutex<Timed>>);

impl Recorder for SharedTimed {
    fn record(&mut self, at: Timestamp, event: JournalEvent) {
        let mut timed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let begun = Instant::now();
        timed.events += 1;
        timed.steps += u64::from(matches!(event, JournalEvent::Prepared(_)));
        let line = timed.encoder.line(at, event).map_err(anyhow::Error::from);
        let written = line.and_then(|line| Ok(timed.writer.line(&line)?));
        timed.note(written);
        timed.spent += begun.elapsed();
    }
}

impl SharedTimed {
    /// Does what the writer does every second.
    fn sync(&self) {
        let mut timed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let begun = Instant::now();
        let synced = timed.writer.sync();
        timed.note(synced.map_err(anyhow::Error::from));
        timed.spent += begun.elapsed();
    }

    /// Bytes, time, events and steps so far.
    fn so_far(&self) -> Result<(usize, Duration, u64, u64)> {
        let mut timed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(error) = timed.failed.take() {
            return Err(error);
        }
        let bytes = timed.writer.output().len();
        Ok((bytes, timed.spent, timed.events, timed.steps))
    }
}

impl Benchmark for RecorderArgs {
    const NAME: &'static str = "recorder";
    const SOURCES: &'static [&'static str] = &["../crates", "src"];
    type Results = RecorderResults;

    fn output(&self) -> &Output {
        &self.output
    }

    fn seed(&self) -> Option<u64> {
        Some(self.seed)
    }

    fn is_complete(&self) -> bool {
        self.nodes == 1_000 && self.minutes == 60 && self.replaced_percent == 50
    }

    #[expect(clippy::cast_precision_loss, reason = "for display")]
    fn measure(&self) -> Result<RecorderResults> {
        let cluster = cluster(&PlanBenchArgs::quiet(self.nodes, PODS, self.seed))?;
        let timed = SharedTimed(Arc::new(Mutex::new(Timed::new(&cluster)?)));
        let objects: Vec<Object> = cluster.objects.values().cloned().collect();
        let mut service = Service::new(cluster, &timed);
        for object in &objects {
            service.show(object.clone());
        }
        service.begin();
        service.turn();
        timed.sync();
        let (base_bytes, base_time, first, first_steps) = timed.so_far()?;
        let begun = Instant::now();
        let nodes: Vec<&Object> = objects
            .iter()
            .filter(|each| matches!(each, Object::Node(_)))
            .collect();
        let pods: Vec<&Object> = objects
            .iter()
            .filter(|each| matches!(each, Object::Pod(_)))
            .collect();
        let mut random = SplitMix64::new(self.seed);
        let seconds = self.minutes * 60;
        let mut replaced = 0;
        for second in 0..seconds {
            service.now = after(service.now, 1_000);
            for at in (second % HEARTBEAT_S..nodes.len()).step_by(HEARTBEAT_S) {
                service.show_again(nodes[at], json!({}))?;
            }
            let due = pods.len() * self.replaced_percent * (second + 1) / 100 / 3_600;
            while replaced < due {
                replaced += 1;
                let pod = usize::try_from(random.below(pods.len() as u64)).unwrap_or(0);
                service.replace(pods[pod], replaced)?;
            }
            service.turn();
            timed.sync();
        }
        let whole = begun.elapsed();
        let (bytes, time, events, steps) = timed.so_far()?;
        let (spent, events) = (time.saturating_sub(base_time), events - first);
        let share = |part: Duration| 100.0 * part.as_secs_f64() / seconds as f64;
        Ok(RecorderResults {
            events,
            steps: steps - first_steps,
            base_mb: base_bytes as f64 / 1e6,
            mb_per_hour: (bytes - base_bytes) as f64 / 1e6 * 3_600.0 / seconds as f64,
            base_s: base_time.as_secs_f64(),
            recorder_percent: share(spent),
            deciders_percent: share(whole.saturating_sub(spent)),
            microseconds_per_event: spent.as_secs_f64() * 1e6 / events as f64,
        })
    }
}

impl Timed {
    /// Keeps the first failure.
    fn note(&mut self, done: Result<()>) {
        if let (Err(error), None) = (done, &self.failed) {
            self.failed = Some(error);
        }
    }

    fn new(cluster: &RecordedCluster) -> Result<Self> {
        let header = JournalHeader {
            recorded_by: env!("CARGO_PKG_VERSION").to_owned(),
            started_at: cluster.taken_at,
            file: 0,
            settings: cluster.settings.clone(),
            scheduler_config: cluster.scheduler_config.clone(),
            well_known: cluster.well_known.clone(),
            served: ServedNodeClasses::only(cluster.served.clone()),
            seed: 0,
        };
        let groups = cluster.served.iter().map(|kind| kind.group.to_owned());
        Ok(Self {
            encoder: JournalEncoder::new(groups.collect()),
            writer: JournalWriter::new(Vec::new(), &header)?,
            spent: Duration::ZERO,
            events: 0,
            steps: 0,
            failed: None,
        })
    }
}

/// An engine whose node classes are resolved, and whose other requests nothing answers.
struct Service {
    engine: Engine,
    cluster: RecordedCluster,
    now: Timestamp,
    version: u64,
}

impl Service {
    fn new(cluster: RecordedCluster, recorder: &SharedTimed) -> Self {
        let now = cluster.taken_at;
        let engine = Engine::new(
            mortise_deciders::all(),
            cluster.settings.clone(),
            cluster.well_known.clone(),
            0,
            now,
        );
        let engine = engine
            .serving(ServedNodeClasses::only(cluster.served.clone()))
            .recorded_by(Box::new(recorder.clone()));
        Self {
            engine,
            cluster,
            now,
            version: 1,
        }
    }

    fn begin(&mut self) {
        for input in [EngineInput::Synced, EngineInput::Leading(true)] {
            self.engine.apply(input, self.now);
        }
    }

    fn show(&mut self, object: Object) {
        let event = ObjectEvent::Applied(object, EventSource::Watch);
        self.engine.apply(EngineInput::News(event), self.now);
    }

    /// A new version of an object, with these changes.
    fn show_again(&mut self, object: &Object, changes: Value) -> Result<()> {
        let kind = object.key().kind();
        let mut value = serde_json::to_value(object)?;
        for (pointer, change) in changes.as_object().into_iter().flatten() {
            if let Some(field) = value.pointer_mut(pointer) {
                *field = change.clone();
            }
        }
        self.version += 1;
        value["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.show(kind.deserialize(value)?);
        Ok(())
    }

    /// A pod ends, and another one starts on its node: deleted, gone, created, bound, running.
    fn replace(&mut self, pod: &Object, number: usize) -> Result<()> {
        self.show_again(pod, json!({ "/status/phase": "Running" }))?;
        self.version += 1;
        let gone = ObjectEvent::Deleted(pod.key(), Some(self.version));
        self.engine.apply(EngineInput::News(gone), self.now);
        let name = json!(format!("replacement-{number}"));
        let uid = json!(format!(
            "{number:08x}-5bd1-4e95-8f3a-{:012x}",
            number * 7_919
        ));
        let phases = ["Pending", "Pending", "Running"];
        for phase in phases {
            let changes =
                json!({ "/metadata/name": name, "/metadata/uid": uid, "/status/phase": phase });
            self.show_again(pod, changes)?;
        }
        Ok(())
    }

    /// Steps what is due, and answers what the cloud is asked about node classes.
    fn turn(&mut self) {
        loop {
            let turn = self.engine.turn(self.now, STEPS, &|| false);
            let mut answered = false;
            for request in turn.orders {
                let Effect::Resolve(asked) = &*request.effect else {
                    continue;
                };
                let Some(types) = self.cluster.catalogs.get(&asked.class.key) else {
                    continue;
                };
                let resolved = ResolvedNodeClass {
                    status: None,
                    annotations: std::collections::BTreeMap::new(),
                    finalizer: None,
                    instance_types: types.clone(),
                    shifted_zones: Vec::new(),
                    again_ms: None,
                };
                let outcome = Outcome {
                    effect: Arc::clone(&request.effect),
                    result: Ok(EffectOutput::Resolved(Arc::new(resolved))),
                };
                let input = EngineInput::Outcome {
                    decider: request.decider,
                    term: request.term,
                    outcome,
                };
                self.engine.apply(input, self.now);
                answered = true;
            }
            if !answered {
                return;
            }
        }
    }
}

impl Results for RecorderResults {
    fn write_table(&self, out: &mut dyn Write) -> Result<()> {
        let verdict = verdict(self.recorder_percent, WANTED_PERCENT);
        writeln!(
            out,
            "{} events, {} steps of deciders",
            self.events, self.steps
        )?;
        writeln!(
            out,
            "first lists: {:.2} MB, {:.2} s",
            self.base_mb, self.base_s
        )?;
        writeln!(out, "recording: {:.2} MB per hour", self.mb_per_hour)?;
        writeln!(
            out,
            "recorder: {:.3} % of a core, target {WANTED_PERCENT} %: {verdict}; {:.1} us per event",
            self.recorder_percent, self.microseconds_per_event
        )?;
        writeln!(
            out,
            "engine and deciders: {:.3} % of a core",
            self.deciders_percent
        )?;
        Ok(())
    }
}
