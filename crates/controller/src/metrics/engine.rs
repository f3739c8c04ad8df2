//! The engine loop: decisions, steps of deciders, inputs and watches, and leadership.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use mortise_engine::decider_id::DeciderId;
use mortise_engine::record::Record;

use super::families::{Buckets, Families};
use super::labels;
use super::numbers::as_i64;
use super::series::{SeriesRow, series};

series! {
    /// The families.
    EngineSeries {
        scheduling_duration: always histogram[labels::Controller; 2; Buckets::DURATIONS] "karpenter_scheduler_scheduling_duration_seconds" "Duration of scheduling";
        leader: always gauge[labels::Lease; 2] "leader_election_master_status" "1 while this process is the leader";
        input_queue_depth: always gauge[] "mortise_input_queue_depth" "Events and outcomes waiting for the engine";
        decisions: always counter[labels::DeciderVerdict; 80] "mortise_decisions" "Decisions by decider and verdict";
        step_duration: always histogram[labels::Decider; 12; Buckets::SHORT] "mortise_step_duration_seconds" "Duration of one step of a decider";
        watch_restarts: always counter[labels::Kind; 24] "mortise_watch_restarts" "Watch restarts";
        recorded_bytes: always counter[] "mortise_recorder_bytes" "Bytes written by the flight recorder";
        not_recorded: always counter[] "mortise_recorder_missing_events" "Events that the flight recorder could not write; a replay claims nothing about what follows them";
        unparsable: always counter[labels::Kind; 24] "mortise_unparsable_objects" "Objects that could not be parsed; their previous state stays in use";
    }
}

/// The families, and the state that they need.
#[derive(Debug)]
pub(crate) struct EngineMetrics {
    series: EngineSeries,
    /// When the current planning of pods started.
    planning: Mutex<Option<Instant>>,
}

impl EngineMetrics {
    pub(super) fn register(families: &mut Families<'_>) -> Self {
        Self {
            series: EngineSeries::register(families),
            planning: Mutex::default(),
        }
    }

    /// The rows of the table.
    pub(super) fn rows() -> Vec<SeriesRow> {
        EngineSeries::rows()
    }

    /// Counts a decision.
    pub(super) fn decided(&self, record: &Record) {
        self.series.decisions.count(&labels::DeciderVerdict {
            decider: record.decider.label(),
            verdict: record.verdict.label(),
        });
    }

    /// Sets whether this process leads.
    pub(crate) fn leading(&self, lease: &str, leading: bool) {
        let labels = labels::Lease {
            name: lease.to_owned(),
        };
        self.series.leader.set(&labels, i64::from(leading));
    }

    /// Sets the number of queued inputs.
    pub(crate) fn inputs_queued(&self, waiting: usize) {
        self.series.input_queue_depth.set(as_i64(waiting));
    }

    /// Since when a plan for pods is being computed; `None`: no planning is in progress.
    pub(crate) fn planning_since(&self) -> Option<Instant> {
        *self.planning.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_planning(&self, since: Option<Instant>) {
        *self.planning.lock().unwrap_or_else(PoisonError::into_inner) = since;
    }

    /// Records the start of a step.
    pub(crate) fn stepping(&self, decider: DeciderId) {
        if decider == DeciderId::Provisioning {
            self.set_planning(Some(Instant::now()));
        }
    }

    /// Records the end of a step.
    pub(crate) fn stepped(&self, decider: DeciderId, took: Duration) {
        let seconds = took.as_secs_f64();
        let labels = labels::Decider {
            decider: decider.label(),
        };
        self.series.step_duration.observe(&labels, seconds);
        if decider == DeciderId::Provisioning {
            self.set_planning(None);
            let labels = labels::Controller {
                controller: "provisioner",
            };
            self.series.scheduling_duration.observe(&labels, seconds);
        }
    }

    /// Counts a restarted watch.
    pub(crate) fn watch_restarted(&self, kind: &str) {
        self.series.watch_restarts.count(&labels::Kind {
            kind: kind.to_owned(),
        });
    }

    /// Counts bytes that the flight recorder wrote.
    pub(crate) fn recorded(&self, bytes: u64) {
        self.series.recorded_bytes.inc_by(bytes);
    }

    /// Counts an event that the flight recorder could not write.
    pub(crate) fn not_recorded(&self) {
        self.series.not_recorded.inc();
    }

    /// Counts an object that could not be parsed.
    pub(crate) fn unparsable(&self, kind: &str) {
        self.series.unparsable.count(&labels::Kind {
            kind: kind.to_owned(),
        });
    }
}
