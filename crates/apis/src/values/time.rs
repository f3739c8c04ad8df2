//! Arithmetic with timestamps and milliseconds.

use jiff::Timestamp;

/// `now` plus milliseconds; the far end of time when it does not fit.
#[must_use]
pub fn after(now: Timestamp, ms: i64) -> Timestamp {
    now.checked_add(jiff::SignedDuration::from_millis(ms))
        .unwrap_or(Timestamp::MAX)
}

/// Milliseconds from `then` to `now`.
#[must_use]
pub fn since(now: Timestamp, then: Timestamp) -> i64 {
    now.as_millisecond().saturating_sub(then.as_millisecond())
}

/// A time that a user stated as text, in RFC 3339 with any offset; `None` when it is none.
#[must_use]
pub fn stated_time(text: &str) -> Option<Timestamp> {
    text.trim().parse().ok()
}

/// `base_ms` doubled `times` times, `max_ms` at most.
#[must_use]
pub fn doubled(base_ms: i64, times: u32, max_ms: i64) -> i64 {
    base_ms.saturating_mul(1_i64 << times.min(30)).min(max_ms)
}
