//! Flags of the flight recorder.

use std::path::PathBuf;

use clap::Args;
use mortise_apis::values::Quantity;
use mortise_controller::RecordConfig;
use mortise_planning::scheduling::SchedulerConfig;

/// The least that all recordings together may have: an eighth of it is a file.
const LEAST: i64 = 16 << 20;

/// Flags of the flight recorder.
#[derive(Args, Clone, Debug)]
pub struct RecordArgs {
    /// Record the inputs of every decision in this directory, for `mortise replay`; it must outlive the process
    #[arg(long, env = "MORTISE_RECORD", value_name = "DIR")]
    record: Option<PathBuf>,
    /// Most bytes of all recordings in the directory; the oldest are deleted
    #[arg(
        long,
        env = "MORTISE_RECORD_MAX_SIZE",
        value_name = "SIZE",
        default_value = "512Mi"
    )]
    record_max_size: Size,
}

impl RecordArgs {
    /// Where to record; `None` = nothing is recorded.
    #[must_use]
    pub fn config(&self, scheduler_config: SchedulerConfig) -> Option<RecordConfig> {
        let directory = self.record.clone()?;
        Some(RecordConfig {
            directory,
            max_bytes: self.record_max_size.0,
            scheduler_config,
        })
    }
}

/// A number of bytes, as a quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Size(u64);

impl std::str::FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bytes = Quantity::parse(text).map_err(|error| error.to_string())?;
        let bytes = bytes.value();
        u64::try_from(bytes)
            .ok()
            .filter(|_| bytes >= LEAST)
            .map(Self)
            .ok_or_else(|| "at least 16Mi is allowed".to_owned())
    }
}

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let bytes = i64::try_from(self.0).unwrap_or(i64::MAX);
        write!(f, "{}", Quantity::from_bytes(bytes))
    }
}
