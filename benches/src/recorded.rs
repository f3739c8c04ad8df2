//! Where results go: printed as JSON where somebody asks, and kept in the source.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde::Serialize;

/// Where results go besides the table.
#[derive(Debug, clap::Args)]
pub(crate) struct Output {
    /// Print the results as JSON instead of a table.
    #[arg(long)]
    pub(crate) json: bool,
    /// Where to write the results as JSON. Default: benches/results/COMMAND.json in the source, if all of it was measured in
    /// the default sizes.
    #[arg(long)]
    out: Option<PathBuf>,
}

impl Output {
    /// Prints results if they are asked for as JSON, and writes them to the file that was asked for, else to
    /// `benches/results/NAME.json` if they are `complete`: those of another size, or of a part, are written only where
    /// somebody asks.
    pub(crate) fn keep(&self, name: &str, results: &impl Serialize, complete: bool) -> Result<()> {
        let text = serde_json::to_string_pretty(results)? + "\n";
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
