//! Durations on the command line.

use mortise_apis::values::GoDuration;

/// A duration in Go's notation, such as `10s` or `1m30s`, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Millis(pub i64);

impl std::str::FromStr for Millis {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let duration = GoDuration::parse(text)
            .map_err(|error| format!("{error}; write it like 10s or 1m30s"))?;
        let millis = duration.as_nanos() / 1_000_000;
        if millis < 0 {
            Err("must not be negative".to_owned())
        } else {
            Ok(Self(millis))
        }
    }
}

impl std::fmt::Display for Millis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}ms", self.0)
    }
}
