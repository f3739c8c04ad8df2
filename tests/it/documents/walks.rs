//! The walks through the code in the page on the architecture: each function that they name exists in the file that they name.

use std::path::Path;

use anyhow::{Context as _, Result};

/// Steps of the walks, as function and file: table rows whose last two cells are in backticks, below the heading "Walks".
fn steps(page: &str) -> impl Iterator<Item = (&str, &str)> {
    let below = page.split("\n## ").find(|part| part.starts_with("Walks"));
    let rows = below
        .unwrap_or_default()
        .lines()
        .filter(|line| line.starts_with("| "));
    rows.filter_map(|row| {
        let mut cells = row.trim_matches(['|', ' ']).rsplit(" | ");
        let file = cells.next()?.strip_prefix('`')?.strip_suffix('`')?;
        let function = cells.next()?.strip_prefix('`')?.strip_suffix('`')?;
        Some((function, file))
    })
}

/// How many steps there are, and those that name what does not exist.
pub(super) fn not_found(repository: &Path) -> Result<(usize, Vec<String>)> {
    let page = repository.join("docs/design/architecture.md");
    let page = std::fs::read_to_string(&page).with_context(|| page.display().to_string())?;
    let (mut count, mut wrong) = (0, Vec::new());
    for (function, file) in steps(&page) {
        count += 1;
        let source = std::fs::read_to_string(repository.join(file)).unwrap_or_default();
        let name = function.rsplit("::").next().unwrap_or(function);
        let defined = ["(", "<"]
            .iter()
            .any(|end| source.contains(&format!("fn {name}{end}")));
        if !defined {
            wrong.push(format!("{function} is not in {file}"));
        }
    }
    Ok((count, wrong))
}

#[test]
fn rows_of_the_section_are_read() {
    let page = "# A\n\n## Walks\n\n| step | function | file |\n|---|---|---|\n| one | `a` | `b.rs` |\n\n## Other\n\n| x | `c` | `d` |\n";
    assert_eq!(steps(page).collect::<Vec<_>>(), [("a", "b.rs")]);
}
