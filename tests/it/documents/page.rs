//! A page of the documentation with tables that are written from the code, each between two comments.

use std::ops::Range;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};

use super::repository;

/// Set to rewrite tables that differ.
const UPDATE: &str = "UPDATE_EXPECT";
const END: &str = "<!-- end -->";

pub(super) struct Page {
    name: String,
    path: PathBuf,
    text: String,
}

impl Page {
    /// A page by its path below `docs/`.
    pub(super) fn open(name: &str) -> Result<Self> {
        let path = repository().join("docs").join(name);
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        Ok(Self {
            name: name.to_owned(),
            path,
            text,
        })
    }

    /// Where the table is: after `<!-- generated: BLOCK -->` and before `<!-- end -->`.
    fn block(&self, block: &str) -> Result<Range<usize>> {
        let begin = format!("<!-- generated: {block} -->\n");
        let missing = || format!("docs/{} has no block {begin:?}", self.name);
        let start = self.text.find(&begin).with_context(missing)? + begin.len();
        let rest = self.text.get(start..).with_context(missing)?;
        let length = rest
            .find(END)
            .with_context(|| format!("docs/{}: block {block} has no end", self.name))?;
        Ok(start..start + length)
    }

    /// Compares a table with the one on the page.
    ///
    /// # Errors
    /// They differ; `UPDATE_EXPECT=1` writes the wanted one.
    pub(super) fn compare(&mut self, block: &str, wanted: &str) -> Result<()> {
        let range = self.block(block)?;
        let found = self.text.get(range.clone()).unwrap_or_default();
        if found == wanted {
            return Ok(());
        }
        if std::env::var_os(UPDATE).is_some() {
            self.text.replace_range(range, wanted);
            return Ok(std::fs::write(&self.path, &self.text)?);
        }
        let mut both = wanted.lines().zip(found.lines());
        let first = both
            .find(|(want, is)| want != is)
            .map(|(want, is)| format!("\n  code: {want}\n  page: {is}"));
        bail!(
            "docs/{}: table {block} differs from the code; set {UPDATE}=1 to rewrite it{}",
            self.name,
            first.unwrap_or_default()
        )
    }

    /// The same for rows whose last cell is written by hand: it is kept as long as the cells before it stay.
    ///
    /// # Errors
    /// The table differs, or a row has no note.
    pub(super) fn compare_with_notes(&mut self, block: &str, rows: &[String]) -> Result<()> {
        let found = self.text.get(self.block(block)?).unwrap_or_default();
        let header: String = found
            .lines()
            .take(2)
            .map(|line| format!("{line}\n"))
            .collect();
        let old: Vec<String> = found.lines().skip(2).map(str::to_owned).collect();
        let mut wanted = header;
        let mut without = Vec::new();
        for row in rows {
            let note = old.iter().find_map(|line| line.strip_prefix(row.as_str()));
            if note.is_none_or(|note| note.trim_matches([' ', '|']).is_empty()) {
                without.push(row.clone());
            }
            wanted.push_str(&format!("{row}{}\n", note.unwrap_or(" |")));
        }
        self.compare(block, &wanted)?;
        if without.is_empty() {
            return Ok(());
        }
        bail!(
            "docs/{}: write the last cell of these rows:\n{}",
            self.name,
            without.join("\n")
        )
    }

    /// Whether a table has a row whose first cell names this in code.
    pub(super) fn has_row(&self, name: &str) -> bool {
        let named = |cell: &str| {
            cell.split('`')
                .skip(1)
                .step_by(2)
                .any(|code| code == name || code.split(['?', ' ']).any(|part| part == name))
        };
        self.rows().any(named)
    }

    /// First cells of rows that begin with this, without the marks of code.
    pub(super) fn first_cells(&self, begins: &str) -> Vec<String> {
        let cells = self.rows().map(|cell| cell.trim().trim_matches('`'));
        cells
            .filter(|cell| cell.starts_with(begins))
            .map(str::to_owned)
            .collect()
    }

    /// The first cell of each row of each table.
    fn rows(&self) -> impl Iterator<Item = &str> {
        let rows = self.text.lines().filter_map(|line| line.strip_prefix("| "));
        rows.filter_map(|row| row.split(" |").next())
    }
}
