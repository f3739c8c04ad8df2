//! The results that are kept in the source.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// Writes results to the file that was asked for, else to `benches/results/NAME.json` if they are `complete`: those of
/// another size, or of a part, are written only where somebody asks.
pub(crate) fn keep(name: &str, text: String, asked: Option<&Path>, complete: bool) -> Result<()> {
    let own = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("results/{name}.json"));
    let path = match asked {
        Some(path) => path.to_owned(),
        None if complete => own(),
        None => return Ok(()),
    };
    std::fs::write(&path, text + "\n").with_context(|| format!("writing {}", path.display()))
}
