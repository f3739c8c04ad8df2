//! Effects, events, and write requests.

use std::time::Duration;

use super::bounded::Counters;
use super::families::Buckets;
use super::numbers::as_i64;
use super::series::series;
use super::{labels, writes};

series! {
    /// The families.
    EffectMetrics {
        outcomes: always counter[labels::EffectResult; 60] "mortise_effects" "Effects by result";
        duration: always histogram[labels::EffectName; 12; Buckets::DURATIONS] "mortise_effect_duration_seconds" "Time from the request of an effect to its result, including retries";
        waiting: always gauge[labels::Lane; 8] "mortise_effect_queue_depth" "Effects that are queued";
        running: always gauge[labels::Lane; 8] "mortise_effects_running" "Effects that are running";
        events_sent: always counter[] "mortise_events_sent" "Events sent";
        events_dropped: always counter[labels::ReasonOnly; 6] "mortise_events_dropped" "Events dropped, by reason";
        event_queue_depth: always gauge[] "mortise_event_queue_depth" "Events that are queued";
        notified: always counter[labels::ResultOnly; 3] "mortise_notified_events" "Events of notifications, by result";
        traced: always counter[labels::ResultOnly; 3] "mortise_trace_spans" "Spans of traces, by result";
        api_writes: always counter[labels::ApiWrite; 60] "mortise_api_writes" "Write requests to the API server, including retries";
    }
}

impl EffectMetrics {
    /// Counts the outcome of an effect.
    pub(crate) fn done(&self, effect: &'static str, result: &'static str, took: Duration) {
        self.outcomes
            .count(&labels::EffectResult { effect, result });
        self.duration
            .observe(&labels::EffectName { effect }, took.as_secs_f64());
    }

    /// Sets the number of queued and running effects of a lane.
    pub(crate) fn queued(&self, lane: &'static str, waiting: usize, running: usize) {
        let labels = labels::Lane { lane };
        self.waiting.set(&labels, as_i64(waiting));
        self.running.set(&labels, as_i64(running));
    }

    /// Counts a sent event.
    pub(crate) fn event_sent(&self) {
        self.events_sent.inc();
    }

    /// Counts a dropped event.
    pub(crate) fn event_dropped(&self, reason: &'static str) {
        self.events_dropped.count(&labels::ReasonOnly { reason });
    }

    /// Sets the number of queued events.
    pub(crate) fn events_queued(&self, waiting: usize) {
        self.event_queue_depth.set(as_i64(waiting));
    }

    /// Counts events of notifications.
    pub(crate) fn notified(&self, result: &'static str, events: usize) {
        let labels = labels::ResultOnly { result };
        self.notified.count_by(&labels, events as u64);
    }

    /// The counter of spans of traces.
    pub(crate) fn count_spans(&self) -> SpanCounter {
        SpanCounter(self.traced.clone())
    }

    /// The counter of write requests to the API server.
    pub(crate) fn count_writes(&self) -> WriteCounter {
        WriteCounter(self.api_writes.clone())
    }
}

/// Counts spans of traces.
#[derive(Clone, Debug)]
pub(crate) struct SpanCounter(Counters<labels::ResultOnly>);

impl SpanCounter {
    /// Counts spans with this result.
    pub(crate) fn count(&self, result: &'static str, spans: usize) {
        let labels = labels::ResultOnly { result };
        self.0.count_by(&labels, spans as u64);
    }
}

/// Counts write requests to the API server.
#[derive(Clone, Debug)]
pub(crate) struct WriteCounter(Counters<labels::ApiWrite>);

impl WriteCounter {
    /// Counts a sent request.
    pub(crate) fn sent(&self, method: &http::Method, path: &str) {
        if let Some(write) = writes::parse_request(method, path) {
            self.0.count(&write);
        }
    }
}
