//! Conversion of numbers to metric values.

/// A count as a gauge value.
pub(crate) fn as_i64(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Milliseconds in seconds.
#[expect(clippy::cast_precision_loss, reason = "for display only")]
pub(crate) fn seconds(ms: i64) -> f64 {
    ms as f64 / 1000.0
}

/// Percent as a fraction of one.
#[expect(clippy::cast_precision_loss, reason = "for display only")]
pub(super) fn share(percent: i64) -> f64 {
    percent as f64 / 100.0
}

/// Factor of a resource: amounts are stored in milli-CPU, bytes and counts; metrics use cores, bytes and counts.
#[expect(clippy::cast_precision_loss, reason = "for display only")]
pub(crate) fn unit(resource: &str, amount: i64) -> f64 {
    if resource == "cpu" {
        amount as f64 / 1000.0
    } else {
        amount as f64
    }
}
