//! How far a simulation is, on a terminal.

use std::io::{IsTerminal as _, Write as _};
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use mortise_apis::values::{after, since};
use mortise_sim::scenario::ScenarioRun;

use super::column::Column;

/// Virtual time that is played between two looks at the clock.
const SLICE_MS: i64 = 10 * 60_000;
/// What takes less shows no progress.
const QUIET: Duration = Duration::from_secs(2);

/// One line on standard error, while it is a terminal.
pub(super) struct Progress {
    whole_ms: i64,
    done_ms: AtomicI64,
    /// Percent that the line shows; less than 0: there is none.
    shown: AtomicI64,
    begin: Instant,
    is_shown: bool,
}

impl Progress {
    pub(super) fn new(columns: &[Column], seeds: u64) -> Self {
        let ms = columns
            .iter()
            .map(|column| column.file.spec.duration.as_nanos() / 1_000_000);
        Self {
            whole_ms: ms.sum::<i64>().saturating_mul(seeds.cast_signed()).max(1),
            done_ms: AtomicI64::new(0),
            shown: AtomicI64::new(-1),
            begin: Instant::now(),
            is_shown: std::io::stderr().is_terminal(),
        }
    }

    /// Until when to play now; `None` at the end.
    pub(super) fn next(&self, run: &mut ScenarioRun) -> Option<Timestamp> {
        let (now, end) = (run.simulation().now(), run.end());
        if now >= end {
            return None;
        }
        let until = after(now, SLICE_MS).min(end);
        let slice = since(until, now);
        let done = self.done_ms.fetch_add(slice, Ordering::Relaxed);
        self.show(done);
        Some(until)
    }

    fn show(&self, done_ms: i64) {
        let percent = done_ms.saturating_mul(100) / self.whole_ms;
        if !self.is_shown || self.begin.elapsed() < QUIET {
            return;
        }
        if self.shown.swap(percent, Ordering::Relaxed) != percent {
            let played = SignedDuration::from_millis(done_ms).as_hours();
            let hours = SignedDuration::from_millis(self.whole_ms).as_hours();
            let mut out = std::io::stderr().lock();
            // Progress that cannot be shown is no reason to stop.
            drop(write!(
                out,
                "\rplayed {played} of {hours} hours, {percent} % "
            ));
            drop(out.flush());
        }
    }

    /// Removes the line.
    pub(super) fn end(&self) {
        if self.shown.load(Ordering::Relaxed) >= 0 {
            let mut out = std::io::stderr().lock();
            // As above.
            drop(write!(out, "\r{:60}\r", ""));
            drop(out.flush());
        }
    }
}
