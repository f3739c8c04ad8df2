//! Blocks of output in the documentation. `<!-- output: PATH -->` before a block names the test that produces it; every line must
//! occur there, except prompts (`$ ...`) and omissions (`...`).

use std::path::Path;

use anyhow::{Context as _, Result};

use super::links::files;

const MARK: &str = "<!-- output: ";

/// The number of lines that were compared, and those that are not where they should be.
pub(super) fn not_found(repository: &Path) -> Result<(usize, Vec<String>)> {
    let mut pages = files(&repository.join("docs"), "md")?;
    pages.push(repository.join("README.md"));
    let (mut count, mut wrong) = (0, Vec::new());
    for page in &pages {
        let text = std::fs::read_to_string(page)?;
        for part in text.split(MARK).skip(1) {
            let (source, rest) = part.split_once(" -->\n```").context("a block of code")?;
            let (block, _) = rest.split_once("\n```").context("its end")?;
            let produced = std::fs::read_to_string(repository.join(source))
                .with_context(|| source.to_owned())?
                .replace("\\\"", "\"");
            // The first line is the language.
            for line in block.lines().skip(1).map(str::trim) {
                if line.is_empty() || line == "..." || line.starts_with("$ ") {
                    continue;
                }
                count += 1;
                // kubectl puts the word before what a webhook warns.
                let line = line.strip_prefix("Warning: ").unwrap_or(line);
                if !produced.contains(line) {
                    wrong.push(format!("{}: not in {source}: {line}", page.display()));
                }
            }
        }
    }
    Ok((count, wrong))
}
