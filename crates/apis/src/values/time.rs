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

/// A span in its two largest units, such as `2m5s`; a negative one is `0s`.
#[must_use]
pub fn span_text(ms: i64) -> String {
    let seconds = (ms / 1_000).max(0);
    match seconds {
        0..=119 => format!("{seconds}s"),
        120..=7_199 => format!("{}m{}s", seconds / 60, seconds % 60),
        7_200..=172_799 => format!("{}h{}m", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{}d{}h", seconds / 86_400, seconds / 3_600 % 24),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_two_units() {
        for (ms, want) in [
            (5_000, "5s"),
            (125_000, "2m5s"),
            (7_260_000, "2h1m"),
            (200_000_000, "2d7h"),
            (-5, "0s"),
        ] {
            assert_eq!(span_text(ms), want);
        }
        assert_eq!(
            [0, 119_000, 120_000, 7_200_000, 200_000_000, -5].map(span_text),
            ["0s", "119s", "2m0s", "2h0m", "2d7h", "0s"]
        );
    }
}
