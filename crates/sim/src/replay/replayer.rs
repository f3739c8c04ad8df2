//! Gives recorded inputs to an engine, and plays recorded steps again.
//!
//! Invariant: as long as histories are the same, every call of the engine is one that the recorded engine got, in the same order, with
//! the same time.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use mortise_apis::names::NodeClassKey;
use mortise_apis::node_class::NodeClassObject;
use mortise_cloudprovider::{InstanceType, ResolveRequest, ResolvedNodeClass};
use mortise_engine::decider::Decider;
use mortise_engine::decider_id::DeciderId;
use mortise_engine::effect::{Effect, EffectOutput, Outcome};
use mortise_engine::engine::{
    EffectRequest, Engine, EngineInput, JournalEvent, RecordedStep, Recorder, StepJob,
};
use mortise_engine::journal::{
    JournalHeader, JournalLine, LineBody, RecordedOutcome, RequestLine, StepSummary,
};
use mortise_planning::settings::Settings;
use mortise_state::resource_kinds::{EventSource, ObjectEvent};
use serde_json::json;

use super::free_run::FreeRun;
use super::recorded_scores::RecordedScores;
use super::report::{Parting, ReplayReport, Totals};
use crate::scores::Scores;

/// Most requests that are kept for their outcomes. Outcomes come within minutes; these are the requests of hours.
const REQUESTS: usize = 200_000;

/// How the replayed history relates to the recorded one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Course {
    /// The same so far.
    Same,
    /// The deciders began without memory: steps are played as recorded, and may differ.
    Cold,
    /// The settings are others, and the histories have parted: deciders are stepped when they are due.
    Parted,
    /// Nothing can be said any more: entries are only counted.
    Lost,
}

/// The steps that the engine has committed since they were last taken.
#[derive(Clone, Default)]
pub(super) struct Steps(Arc<Mutex<Vec<RecordedStep>>>);

impl Recorder for Steps {
    fn record(&mut self, _: Timestamp, event: JournalEvent) {
        if let JournalEvent::Committed(step) = event {
            let mut steps = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            steps.push(step);
        }
    }
}

impl Steps {
    pub(super) fn take(&self) -> Vec<RecordedStep> {
        let mut steps = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *steps)
    }
}

/// A replay.
pub(super) struct Replayer {
    engine: Engine,
    steps: Steps,
    course: Course,
    /// The settings are others.
    has_changes: bool,
    /// Steps that were begun and have not ended.
    jobs: BTreeMap<DeciderId, StepJob>,
    /// Requests by their recorded number.
    requests: BTreeMap<u64, EffectRequest>,
    /// Recorded requests so far.
    next_request: u64,
    /// The last instance types of each node class.
    types: BTreeMap<NodeClassKey, Vec<InstanceType>>,
    free: FreeRun,
    scores: RecordedScores,
    report: ReplayReport,
    /// Name of the file that is read.
    file: String,
    next_file: u64,
}

impl Replayer {
    /// An engine as the recorded one began.
    pub(super) fn new(
        header: &JournalHeader,
        settings: Settings,
        deciders: Vec<Box<dyn Decider>>,
        has_changes: bool,
    ) -> Self {
        let steps = Steps::default();
        let engine = Engine::new(
            deciders,
            settings,
            header.well_known.clone(),
            header.seed,
            header.started_at,
        );
        let engine = engine
            .serving(header.served.clone())
            .recorded_by(Box::new(steps.clone()));
        let is_cold = header.file > 0;
        Self {
            engine,
            steps,
            course: if is_cold { Course::Cold } else { Course::Same },
            has_changes,
            jobs: BTreeMap::new(),
            requests: BTreeMap::new(),
            next_request: 0,
            types: BTreeMap::new(),
            free: FreeRun::default(),
            scores: RecordedScores::default(),
            report: ReplayReport {
                recorded_by: header.recorded_by.clone(),
                started_at: header.started_at,
                from: None,
                to: None,
                files: 0,
                inputs: 0,
                steps: 0,
                by_decider: BTreeMap::new(),
                is_equal: false,
                parting: None,
                is_cold,
                equal_since: None,
                missing: 0,
                gap_at: None,
                is_torn: false,
                has_end: false,
                scores: Scores::default(),
                scored_s: 0,
                recorded: Totals::default(),
                replayed: Totals::default(),
            },
            file: String::new(),
            next_file: header.file + 1,
        }
    }

    /// Why a file is not the next one of this recording.
    pub(super) fn follows(&mut self, header: &JournalHeader) -> Option<String> {
        if header.started_at != self.report.started_at {
            return Some(format!(
                "it is of the recording of {}, and not of that of {}",
                header.started_at, self.report.started_at
            ));
        }
        if header.file != self.next_file {
            return Some(format!(
                "it is file {} of its recording; file {} must come before it",
                header.file, self.next_file
            ));
        }
        self.next_file += 1;
        None
    }

    /// The next entries are of this file.
    pub(super) fn file_begins(&mut self, name: &str) {
        name.clone_into(&mut self.file);
    }

    /// A file has been read. Only the last one may be torn; one before it lacks entries.
    pub(super) const fn file_ended(&mut self, is_torn: bool) {
        self.report.files += 1;
        self.report.is_torn = is_torn;
    }

    /// Plays an entry.
    ///
    /// # Errors
    /// An object cannot be read.
    pub(super) fn play(&mut self, line: JournalLine, number: u64) -> Result<(), String> {
        let JournalLine(at, body) = line;
        self.report.from.get_or_insert(at);
        self.report.to = Some(at);
        if self.report.is_torn {
            // A file before this one ended in the middle.
            self.report.is_torn = false;
            self.lose(at, 1);
        }
        if self.course == Course::Parted {
            self.run_until(at);
        }
        if let (Some(snapshot), true) = (self.engine.last_snapshot(), self.is_scored()) {
            self.scores.pass(at, snapshot);
        }
        match body {
            LineBody::Frozen(generation) => self.freeze(at, generation, number),
            LineBody::Prepared(decider) => self.prepare(at, decider, number),
            LineBody::Committed(step) => self.commit(at, &step, number),
            LineBody::Outcome(outcome) => {
                self.report.inputs += 1;
                self.outcome(at, *outcome, number);
            }
            LineBody::Catalog(class, resolved) => self.resolve(at, class, resolved),
            LineBody::BaseEnds { steps, requests } => {
                self.engine.continue_steps(steps);
                self.next_request = requests;
            }
            LineBody::Gap(missing) => self.lose(at, missing),
            LineBody::End => self.report.has_end = true,
            other => {
                self.report.inputs += 1;
                let input = input(other)?;
                if let EngineInput::News(event) = &input
                    && self.is_scored()
                {
                    self.scores.changed(at, event);
                }
                if self.course != Course::Lost {
                    self.engine.apply(input, at);
                }
            }
        }
        Ok(())
    }

    /// Whether the state is the recorded one.
    const fn is_scored(&self) -> bool {
        matches!(self.course, Course::Same | Course::Cold)
    }

    /// Some events are missing here. Nothing can be claimed about what follows.
    fn lose(&mut self, at: Timestamp, missing: u64) {
        self.report.missing += missing;
        self.report.gap_at.get_or_insert(at);
        self.course = Course::Lost;
    }

    fn freeze(&mut self, at: Timestamp, generation: u64, line: u64) {
        match self.course {
            Course::Same => {
                let now = self.engine.snapshot(at).generation;
                if now != generation {
                    let what = format!("snapshot {generation} was frozen then, {now} is now");
                    self.part(at, line, None, what, None, None);
                }
            }
            Course::Cold => drop(self.engine.snapshot(at)),
            Course::Parted => self.turn(at),
            Course::Lost => {}
        }
    }

    fn prepare(&mut self, at: Timestamp, decider: DeciderId, line: u64) {
        match self.course {
            Course::Same => {
                let due = self.engine.due(at);
                if due != Some(decider) {
                    let due = due.map_or("none", DeciderId::label);
                    let what = format!("{decider} was stepped then, {due} is due now");
                    self.part(at, line, Some(decider), what, None, None);
                    return;
                }
            }
            Course::Cold => {}
            Course::Parted => return self.turn(at),
            Course::Lost => return,
        }
        if let Some(job) = self.engine.prepare(decider, at) {
            self.jobs.insert(decider, job);
        }
    }

    fn commit(&mut self, at: Timestamp, recorded: &StepSummary, line: u64) {
        self.report.steps += 1;
        self.report.recorded.add(recorded);
        let first = self.next_request;
        self.next_request += recorded.requests.len() as u64;
        let count = self.report.by_decider.entry(recorded.decider.label());
        count.or_default().recorded += 1;
        match self.course {
            Course::Same | Course::Cold => {}
            Course::Parted => {
                let numbers = first..;
                for (number, RequestLine(text, _)) in numbers.zip(&recorded.requests) {
                    self.free.recorded(at, number, text, &mut self.requests);
                }
                return;
            }
            Course::Lost => return,
        }
        let Some(step) = self.run(at, recorded) else {
            return;
        };
        let replayed = StepSummary::of(&step);
        self.number(first, recorded, &replayed, step);
        self.report.replayed.add(&replayed);
        if replayed == *recorded {
            let count = self.report.by_decider.entry(recorded.decider.label());
            count.or_default().equal += 1;
            if self.report.is_cold {
                self.report.equal_since.get_or_insert(at);
            }
            return;
        }
        self.report.equal_since = None;
        let what = difference(recorded, &replayed);
        let (decider, recorded) = (recorded.decider, recorded.clone());
        self.part(
            at,
            line,
            Some(decider),
            what,
            Some(recorded),
            Some(replayed),
        );
    }

    /// Plays the step that was begun, and stops it where it was stopped.
    fn run(&mut self, at: Timestamp, recorded: &StepSummary) -> Option<RecordedStep> {
        let job = self.jobs.remove(&recorded.decider)?;
        let asked = Cell::new(0_u64);
        let finished = job.run(&|| {
            let before = asked.get();
            asked.set(before + 1);
            recorded.stopped_after.is_some_and(|most| before >= most)
        });
        self.engine.commit(finished, at);
        self.steps.take().pop()
    }

    /// Remembers requests under the numbers of the equal recorded ones.
    fn number(
        &mut self,
        first: u64,
        recorded: &StepSummary,
        replayed: &StepSummary,
        step: RecordedStep,
    ) {
        let mut numbers: BTreeMap<&RequestLine, Vec<u64>> = BTreeMap::new();
        for (number, request) in (first..).zip(&recorded.requests) {
            numbers.entry(request).or_default().push(number);
        }
        numbers.values_mut().for_each(|all| all.reverse());
        for (request, line) in step.requests.into_iter().zip(&replayed.requests) {
            if let Some(number) = numbers.get_mut(line).and_then(Vec::pop) {
                self.requests.insert(number, request);
            } else if self.has_changes {
                self.free.keep(line.0.clone(), request);
            }
        }
        while self.requests.len() > REQUESTS {
            self.requests.pop_first();
        }
    }

    fn outcome(&mut self, at: Timestamp, recorded: RecordedOutcome, line: u64) {
        let RecordedOutcome {
            request: number,
            mut result,
            same_types,
        } = recorded;
        if self.course == Course::Lost {
            return;
        }
        let request = number
            .and_then(|number| self.requests.get(&number))
            .cloned();
        if let Ok(EffectOutput::Resolved(resolved)) = &mut result {
            let class = request.as_ref().and_then(|request| match &*request.effect {
                Effect::Resolve(asked) => Some(asked.class.key.clone()),
                _ => None,
            });
            if let Some(class) = class {
                if same_types {
                    let types = self.types.get(&class).cloned().unwrap_or_default();
                    Arc::make_mut(resolved).instance_types = types;
                } else {
                    self.types.insert(class, resolved.instance_types.clone());
                }
            }
        }
        if let (Some(request), Ok(output), true) = (&request, &result, self.is_scored()) {
            let snapshot = self.engine.last_snapshot().map(|last| &**last);
            self.scores.done(&request.effect, output, snapshot);
        }
        match (request, number) {
            (Some(request), _) => self.answer(at, request, result),
            (None, Some(number)) if self.course == Course::Parted => {
                self.free.outcome(at, number, result);
            }
            (None, number) if self.course == Course::Same => {
                let number = number.map_or_else(|| "unknown".to_owned(), |n| n.to_string());
                let what = format!("there is an outcome of request {number}, which was not made");
                self.part(at, line, None, what, None, None);
            }
            // Without memory: the request was made before.
            (None, _) => {}
        }
    }

    fn answer(
        &mut self,
        at: Timestamp,
        request: EffectRequest,
        result: Result<EffectOutput, mortise_engine::effect::EffectError>,
    ) {
        let EffectRequest {
            decider,
            term,
            effect,
        } = request;
        let outcome = Outcome { effect, result };
        let input = EngineInput::Outcome {
            decider,
            term,
            outcome,
        };
        self.engine.apply(input, at);
    }

    fn apply_all(&mut self, at: Timestamp, answered: Vec<super::free_run::Answer>) {
        for (request, result) in answered {
            self.answer(at, request, result);
        }
    }

    /// What a node class stood for when the file began.
    fn resolve(&mut self, at: Timestamp, class: NodeClassKey, resolved: Arc<ResolvedNodeClass>) {
        self.types
            .insert(class.clone(), resolved.instance_types.clone());
        let metadata = json!({ "metadata": { "name": &*class.name } });
        let class = NodeClassObject::new(class, metadata);
        let request = EffectRequest {
            decider: DeciderId::NodeClass,
            term: self.engine.term(),
            effect: Arc::new(Effect::Resolve(Box::new(ResolveRequest::from(class)))),
        };
        self.answer(at, request, Ok(EffectOutput::Resolved(resolved)));
    }

    /// The histories part here.
    fn part(
        &mut self,
        at: Timestamp,
        line: u64,
        decider: Option<DeciderId>,
        what: String,
        recorded: Option<StepSummary>,
        replayed: Option<StepSummary>,
    ) {
        if self.report.parting.is_none() {
            self.report.parting = Some(Parting {
                at,
                file: self.file.clone(),
                line,
                inputs: self.report.inputs,
                steps: self.report.steps,
                decider,
                what,
                recorded,
                replayed,
            });
        }
        self.course = match self.course {
            Course::Same if self.has_changes => {
                self.jobs_end(at);
                Course::Parted
            }
            Course::Same => Course::Lost,
            other => other,
        };
    }

    /// Steps that were begun before the histories parted end now.
    fn jobs_end(&mut self, at: Timestamp) {
        for (_, job) in std::mem::take(&mut self.jobs) {
            let finished = job.run(&|| false);
            self.engine.commit(finished, at);
        }
        self.settle(at);
    }

    /// Steps what is due before a time.
    fn run_until(&mut self, at: Timestamp) {
        while let Some(wake) = self.engine.next_wake().filter(|wake| *wake < at) {
            let now = self.free.advance(wake);
            if now >= at {
                return;
            }
            self.turn(now);
        }
    }

    /// Steps what is due now.
    fn turn(&mut self, at: Timestamp) {
        let overdue = self.free.overdue(at);
        self.apply_all(at, overdue);
        self.engine.turn(at, crate::replicas::STEPS, &|| false);
        self.settle(at);
    }

    /// Counts what was decided, and answers what the recording answers.
    fn settle(&mut self, at: Timestamp) {
        for step in self.steps.take() {
            let summary = StepSummary::of(&step);
            self.report.replayed.add(&summary);
            for (request, RequestLine(text, _)) in step.requests.into_iter().zip(summary.requests) {
                let answered = self.free.requested(at, text, request, &mut self.requests);
                self.apply_all(at, answered);
            }
        }
    }

    /// What came of it.
    pub(super) fn report(mut self) -> ReplayReport {
        let report = &mut self.report;
        (report.scores, report.scored_s) = self.scores.scores();
        report.is_equal = report.parting.is_none() && !report.is_cold && report.missing == 0;
        self.report
    }
}

/// The input of an entry that is one.
fn input(body: LineBody) -> Result<EngineInput, String> {
    Ok(match body {
        LineBody::Applied(applied) => {
            let object = applied.kind.deserialize(applied.object);
            let object = object.map_err(|error| format!("{}: {error}", applied.kind))?;
            let source = if applied.written {
                EventSource::Write
            } else {
                EventSource::Watch
            };
            EngineInput::News(ObjectEvent::Applied(object, source))
        }
        LineBody::Deleted(key, version) => EngineInput::News(ObjectEvent::Deleted(key, version)),
        LineBody::Unreadable(key) => EngineInput::News(ObjectEvent::Unreadable(key)),
        LineBody::Listed {
            kind,
            keys,
            version,
        } => EngineInput::News(ObjectEvent::Listed {
            kind,
            keys,
            version,
        }),
        LineBody::Watch(kind, state) => EngineInput::Watch { kind, state },
        LineBody::Synced => EngineInput::Synced,
        LineBody::Notice(provider, notice) => EngineInput::Notice { provider, notice },
        LineBody::Feasible(pod, at) => EngineInput::Feasible { pod, at },
        LineBody::Leading(leading) => EngineInput::Leading(leading),
        other => return Err(format!("{other:?} is no input")),
    })
}

/// What differs between two steps, in words.
fn difference(recorded: &StepSummary, replayed: &StepSummary) -> String {
    if recorded.requests != replayed.requests {
        return "its requests differ".to_owned();
    }
    if recorded.commands != replayed.commands {
        return "its disruption commands differ".to_owned();
    }
    if recorded.decisions != replayed.decisions || recorded.counts != replayed.counts {
        return "its decisions differ".to_owned();
    }
    if recorded.wake != replayed.wake {
        let time = |wake: Option<Timestamp>| {
            wake.map_or_else(|| "a change".to_owned(), |wake| wake.to_string())
        };
        return format!(
            "it waited for {} then, and for {} now",
            time(recorded.wake),
            time(replayed.wake)
        );
    }
    if recorded.stopped_after != replayed.stopped_after {
        return "it was stopped elsewhere".to_owned();
    }
    "the content of its decisions differs".to_owned()
}
