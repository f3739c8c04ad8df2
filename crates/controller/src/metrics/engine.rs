//! The engine loop: decisions, steps of deciders, inputs and watches, and leadership.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use mortise_engine::decider_id::DeciderId;
use mortise_engine::record::Record;
use prometheus_client::metrics::gauge::Gauge;

use super::bounded::{Counters, Gauges, Histograms};
use super::families::{Families, short_duration};
use super::labels;
use super::numbers::as_i64;

/// The families.
#[derive(Debug)]
pub(crate) struct EngineMetrics {
    /// When the current planning of pods started.
    planning: Mutex<Option<Instant>>,
    scheduling_duration: Histograms<labels::Controller>,
    leader: Gauges<labels::Lease>,
    input_queue_depth: Gauge,
    decisions: Counters<labels::DeciderVerdict>,
    step_duration: Histograms<labels::Decider>,
    watch_restarts: Counters<labels::Kind>,
    unparsable: Counters<labels::Kind>,
}

impl EngineMetrics {
    pub(super) fn register(families: &mut Families<'_>) -> Self {
        let durations = families.durations();
        Self {
            planning: Mutex::new(None),
            scheduling_duration: families.histograms(
                "karpenter_scheduler_scheduling_duration_seconds",
                "Duration of scheduling",
                2,
                durations,
            ),
            leader: families.gauges(
                "leader_election_master_status",
                "1 while this process is the leader",
                2,
            ),
            input_queue_depth: families.gauge(
                "mortise_input_queue_depth",
                "Events and outcomes waiting for the engine",
            ),
            decisions: families.counters(
                "mortise_decisions",
                "Decisions by decider and verdict",
                80,
            ),
            step_duration: families.histograms(
                "mortise_step_duration_seconds",
                "Duration of one step of a decider",
                12,
                short_duration,
            ),
            watch_restarts: families.counters("mortise_watch_restarts", "Watch restarts", 24),
            unparsable: families.counters(
                "mortise_unparsable_objects",
                "Objects that could not be parsed; their previous state stays in use",
                24,
            ),
        }
    }

    /// Counts a decision.
    pub(super) fn decided(&self, record: &Record) {
        self.decisions.count(&labels::DeciderVerdict {
            decider: record.decider.label(),
            verdict: record.verdict.label(),
        });
    }

    /// Sets whether this process leads.
    pub(crate) fn leading(&self, lease: &str, leading: bool) {
        let labels = labels::Lease {
            name: lease.to_owned(),
        };
        self.leader.set(&labels, i64::from(leading));
    }

    /// Sets the number of queued inputs.
    pub(crate) fn inputs_queued(&self, waiting: usize) {
        self.input_queue_depth.set(as_i64(waiting));
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
        self.step_duration.observe(&labels, seconds);
        if decider == DeciderId::Provisioning {
            self.set_planning(None);
            let labels = labels::Controller {
                controller: "provisioner",
            };
            self.scheduling_duration.observe(&labels, seconds);
        }
    }

    /// Counts a restarted watch.
    pub(crate) fn watch_restarted(&self, kind: &str) {
        self.watch_restarts.count(&labels::Kind {
            kind: kind.to_owned(),
        });
    }

    /// Counts an object that could not be parsed.
    pub(crate) fn unparsable(&self, kind: &str) {
        self.unparsable.count(&labels::Kind {
            kind: kind.to_owned(),
        });
    }
}
