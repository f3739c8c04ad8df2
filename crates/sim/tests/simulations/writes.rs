//! The merge patches of simulated histories, pinned: a change of how writes are represented must not change a byte of
//! them, nor their order.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use mortise_engine::decider_id::DeciderId;

use crate::world::{options, start};
use mortise_engine::decider::{Decider, Step, StepInput};
use mortise_engine::effect::Effect;
use mortise_planning::settings::Settings;
use mortise_sim::Simulation;
use mortise_state::index::Changes;

/// Digests and counts of the patches of one history.
#[derive(Debug, PartialEq, Eq)]
struct PatchLog {
    /// FNV-1a over all of them in order.
    digest: u64,
    /// By kind of the target, and whether the status subresource is meant.
    counts: BTreeMap<(String, bool), usize>,
}

impl PatchLog {
    const fn new() -> Self {
        Self {
            digest: 0xcbf2_9ce4_8422_2325,
            counts: BTreeMap::new(),
        }
    }

    fn add(&mut self, effect: &Effect) {
        let Effect::Write(write) = effect else {
            return;
        };
        let body = write.edit.render(None);
        let status = body.subresource.is_some();
        let count = self.counts.entry((write.target.kind().to_owned(), status));
        *count.or_default() += 1;
        let line = format!(
            "{} {} {:?} {}\n",
            write.target, status, write.resource_version, body.merge
        );
        for byte in line.bytes() {
            self.digest = (self.digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

/// A decider whose patches are logged.
struct LoggedDecider {
    decider: Box<dyn Decider>,
    log: Arc<Mutex<PatchLog>>,
}

impl Decider for LoggedDecider {
    fn id(&self) -> DeciderId {
        self.decider.id()
    }

    fn fresh(&self) -> Box<dyn Decider> {
        Box::new(Self {
            decider: self.decider.fresh(),
            log: Arc::clone(&self.log),
        })
    }

    fn is_needed(&self, settings: &Settings) -> bool {
        self.decider.is_needed(settings)
    }

    fn is_interested(&self, changes: &Changes) -> bool {
        self.decider.is_interested(changes)
    }

    fn step(&mut self, input: &StepInput<'_>, stop: &dyn Fn() -> bool) -> Step {
        let step = self.decider.step(input, stop);
        let mut log = self.log.lock().unwrap();
        step.effects.iter().for_each(|effect| log.add(effect));
        drop(log);
        step
    }
}

fn patches_of(seed: u64, minutes: i64) -> PatchLog {
    let log = Arc::new(Mutex::new(PatchLog::new()));
    let logged = |decider| -> Box<dyn Decider> {
        Box::new(LoggedDecider {
            decider,
            log: Arc::clone(&log),
        })
    };
    let all = mortise_deciders::all().into_iter().map(logged).collect();
    let mut simulation = Simulation::new(options(seed), all);
    simulation.run_until(mortise_apis::values::after(start(), minutes * 60_000));
    drop(simulation);
    Arc::into_inner(log).unwrap().into_inner().unwrap()
}

#[test]
fn patches_of_a_history_stay_as_they_are() {
    let logs = [1, 7].map(|seed| (seed, patches_of(seed, 40)));
    for (seed, log) in &logs {
        assert_eq!(log.counts.len(), 5, "seed {seed}: {log:?}");
    }
    let digests = logs.map(|(seed, log)| (seed, log.digest));
    assert_eq!(
        digests,
        [
            (1, 14_496_165_300_010_724_782),
            (7, 17_201_846_422_016_022_841)
        ]
    );
}
