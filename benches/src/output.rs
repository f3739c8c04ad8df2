//! Where a report goes: printed as text or JSON, and recorded in the source.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde::Serialize;

/// Where a report goes.
#[derive(Debug, clap::Args)]
pub(crate) struct Output {
    /// Print the report as JSON instead of text.
    #[arg(long)]
    pub(crate) json: bool,
    /// Where to write the report as JSON. Default: benches/results/COMMAND.json in the source, if all of it was measured in
    /// the default sizes.
    #[arg(long)]
    out: Option<PathBuf>,
}

impl Output {
    /// Nowhere.
    pub(crate) const fn none() -> Self {
        Self {
            json: false,
            out: None,
        }
    }

    /// Prints a report with `--json`, and writes it to the file of `--out`, else to `benches/results/NAME.json` if it is
    /// `complete`: one of other sizes, or of a part, is written only with `--out`.
    pub(crate) fn keep(&self, name: &str, report: &impl Serialize, complete: bool) -> Result<()> {
        let text = serde_json::to_string_pretty(report)? + "\n";
        if self.json {
            std::io::stdout().write_all(text.as_bytes())?;
        }
        let own = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("results/{name}.json"));
        let path = match &self.out {
            Some(path) => path,
            None if complete => &own,
            None => return Ok(()),
        };
        std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))
    }
}
