//! Steps with long computations, on one thread per decider.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use mortise_engine::decider_id::DeciderId;
use mortise_engine::engine::StepJob;
use tokio::sync::mpsc;

use crate::driver_message::DriverMessage;
use crate::error::panic_text;

/// Longest step of a decider on its own thread.
const MAX_STEP: Duration = Duration::from_secs(60);

/// Whether steps of this decider may compute for long.
pub(super) const fn is_heavy(id: DeciderId) -> bool {
    matches!(id, DeciderId::Provisioning | DeciderId::Disruption)
}

/// Threads of the heavy deciders, started on first use.
#[derive(Default)]
pub(super) struct StepThreads {
    senders: BTreeMap<DeciderId, std::sync::mpsc::Sender<StepJob>>,
}

impl StepThreads {
    pub(super) fn start_step(
        &mut self,
        id: DeciderId,
        job: StepJob,
        completed: &mpsc::Sender<DriverMessage>,
        stopping: &Arc<AtomicBool>,
    ) {
        let sender = self.senders.entry(id).or_insert_with(|| {
            let (sender, jobs) = std::sync::mpsc::channel::<StepJob>();
            let (completed, stopping) = (completed.clone(), Arc::clone(stopping));
            let spawned = std::thread::Builder::new()
                .name(id.label().to_owned())
                .spawn(move || run_steps(id, &jobs, &completed, &stopping));
            if let Err(error) = spawned {
                tracing::error!(decider = id.label(), %error, "failed to start decider thread");
            }
            sender
        });
        if sender.send(job).is_err() {
            let message = "its thread exited".to_owned();
            // This thread drains the queue, so there is capacity unless the process is stuck.
            if completed
                .try_send(DriverMessage::Panicked { id, message })
                .is_err()
            {
                tracing::error!(decider = id.label(), "decider thread exited");
                std::process::abort();
            }
        }
    }
}

fn run_steps(
    id: DeciderId,
    jobs: &std::sync::mpsc::Receiver<StepJob>,
    completed: &mpsc::Sender<DriverMessage>,
    stopping: &AtomicBool,
) {
    while let Ok(job) = jobs.recv() {
        let _span = step_span(id).entered();
        let start = Instant::now();
        let stop = || stopping.load(Ordering::Relaxed) || start.elapsed() >= MAX_STEP;
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
        if completed.blocking_send(message).is_err() {
            return;
        }
    }
}

/// The span of one step: log lines inside name its decider.
pub(super) fn step_span(id: DeciderId) -> tracing::Span {
    tracing::debug_span!("step", decider = id.label())
}
