//! Tables and lists for terminals.

/// Rows under a header, columns aligned.
#[derive(Clone, Debug)]
pub(super) struct TextTable {
    rows: Vec<Vec<String>>,
}

impl TextTable {
    pub(super) fn new(header: &[&str]) -> Self {
        Self {
            rows: vec![header.iter().map(|name| (*name).to_owned()).collect()],
        }
    }

    pub(super) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// The table, or `nothing` for a table without rows.
    pub(super) fn render(&self, nothing: &str) -> String {
        if self.rows.len() == 1 {
            return format!("{nothing}\n");
        }
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            self.rows
                .iter()
                .filter_map(|row| row.get(column))
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                line.push_str(&format!("{cell:<width$}  "));
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// `name: value` lines.
pub(super) fn facts(entries: &[(&str, String)]) -> String {
    let width = entries
        .iter()
        .map(|(name, _)| name.len())
        .max()
        .unwrap_or(0)
        + 1;
    let mut text = String::new();
    for (name, value) in entries {
        text.push_str(&format!("{:<width$} {value}\n", format!("{name}:")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let mut table = TextTable::new(&["NAME", "AGE"]);
        assert_eq!(table.render("none"), "none\n");
        table.row(vec!["a-long-name".to_owned(), "1s".to_owned()]);
        table.row(vec!["b".to_owned(), "2s".to_owned()]);
        assert_eq!(
            table.render("none"),
            "NAME         AGE\na-long-name  1s\nb            2s\n"
        );
        assert_eq!(
            facts(&[("a", "1".to_owned()), ("long", "2".to_owned())]),
            "a:    1\nlong: 2\n"
        );
    }
}
