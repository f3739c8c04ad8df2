//! The documents of a stream, as pieces of its text.

/// A piece of a stream, from its separator line to the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Document {
    /// The separator line (`---`, perhaps with a comment), without its line break. The first document may have none.
    pub(crate) separator: Option<String>,
    /// Everything after the separator line, line breaks as they were.
    pub(crate) body: String,
    /// Line of the stream on which the body begins, counted from 1.
    pub(crate) line: usize,
}

/// Splits a stream. A separator is a line that begins with three dashes, even within a block scalar. Content on the separator
/// line belongs to the body.
pub(crate) fn documents(text: &str) -> Vec<Document> {
    let mut found = vec![Document {
        separator: None,
        body: String::new(),
        line: 1,
    }];
    for (index, line) in text.split_inclusive('\n').enumerate() {
        if let Some(rest) = separator(line) {
            let mut rest = rest.trim();
            // Dashes after dashes would become a separator when the body is written on a line of its own.
            while let Some(inner) = separator(rest) {
                rest = inner.trim();
            }
            let comment_only = rest.is_empty() || rest.starts_with('#');
            found.push(Document {
                separator: Some(if comment_only {
                    line.trim_end().to_owned()
                } else {
                    "---".to_owned()
                }),
                body: if comment_only {
                    String::new()
                } else {
                    format!("{rest}\n")
                },
                line: index + 1 + usize::from(comment_only),
            });
        } else if let Some(last) = found.last_mut() {
            last.body.push_str(line);
        }
    }
    // There is nothing before the first separator.
    if found.len() > 1
        && found
            .first()
            .is_some_and(|first| first.body.trim().is_empty())
    {
        found.remove(0);
    }
    found
}

fn separator(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("---")?;
    (rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n'])).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_split_where_a_parser_splits_them() {
        let text = "# head\na: 1\n--- # second\nb: |\n  ---x\n  --- y\n---\n--- {c: 3}\n";
        let found = documents(text);
        let bodies: Vec<&str> = found.iter().map(|each| each.body.as_str()).collect();
        assert_eq!(
            bodies,
            ["# head\na: 1\n", "b: |\n  ---x\n  --- y\n", "", "{c: 3}\n"]
        );
        let lines: Vec<usize> = found.iter().map(|each| each.line).collect();
        assert_eq!(lines, [1, 4, 8, 8]);
        assert_eq!(found[1].separator.as_deref(), Some("--- # second"));
        assert_eq!(documents("---\na: 1").len(), 1);
        let twice = documents("a: 1\n--- ---  b: 2\n");
        assert_eq!((twice.len(), twice[1].body.as_str()), (2, "b: 2\n"));
    }
}
