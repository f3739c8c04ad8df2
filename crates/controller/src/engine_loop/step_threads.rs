//! Steps that may compute for long, on a thread for each of their deciders.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use mortise_engine::decider_id::DeciderId;
use mortise_engine::engine::StepJob;
use tokio::sync::mpsc;

use crate::driver_message::DriverMessage;
use crate::error::panic_text;

/// Longest step of a decider on a thread of its own.
const STEP: Duration = Duration::from_secs(60);

/// A decider whose steps may compute for long.
pub(super) const fn is_heavy(id: DeciderId) -> bool {
    matches!(id, DeciderId::Provisioning | DeciderId::Disruption)
}

/// Threads of the heavy deciders, made when first needed.
#[derive(Default)]
pub(super) struct StepThreads {
    senders: BTreeMap<DeciderId, std::sync::mpsc::Sender<StepJob>>,
}

impl StepThreads {
    pub(super) fn run(
        &mut self,
        id: DeciderId,
        job: StepJob,
        answers: &mpsc::Sender<DriverMessage>,
        stopping: &Arc<AtomicBool>,
    ) {
        let sender = self.senders.entry(id).or_insert_with(|| {
            let (sender, jobs) = std::sync::mpsc::channel::<StepJob>();
            let (answers, stopping) = (answers.clone(), Arc::clone(stopping));
            let spawned = std::thread::Builder::new()
                .name(id.label().to_owned())
                .spawn(move || work(id, &jobs, &answers, &stopping));
            if let Err(error) = spawned {
                tracing::error!(decider = id.label(), %error, "failed to start decider thread");
            }
            sender
        });
        if sender.send(job).is_err() {
            let message = "its thread exited".to_owned();
            // The queue is drained by the very thread that is here: there is room, or the process is lost anyway.
            if answers
                .try_send(DriverMessage::Panicked { id, message })
                .is_err()
            {
                tracing::error!(decider = id.label(), "decider thread exited");
                std::process::abort();
            }
        }
    }
}

fn work(
    id: DeciderId,
    jobs: &std::sync::mpsc::Receiver<StepJob>,
    answers: &mpsc::Sender<DriverMessage>,
    stopping: &AtomicBool,
) {
    while let Ok(job) = jobs.recv() {
        let _span = step_span(id).entered();
        let start = Instant::now();
        let stop = || stopping.load(Ordering::Relaxed) || start.elapsed() >= STEP;
        let message =
            match std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| job.run(&stop))) {
                Ok(finished) => DriverMessage::Finished {
                    id,
                    finished: Box::new(finished),
                    took: start.elapsed(),
                },
                Err(payload) => DriverMessage::Panicked {
                    id,
                    message: panic_text(&*payload),
                },
            };
        if answers.blocking_send(message).is_err() {
            return;
        }
    }
}

/// The span of one step: what is logged inside names its decider.
pub(super) fn step_span(id: DeciderId) -> tracing::Span {
    tracing::debug_span!("step", decider = id.label())
}
