//! Objects of manifest files, and the lines of their fields.
//!
//! Invariant: uses the parser of [`crate::migrate`], so that reports about a file and its conversion agree.

use serde_json::Value;

use crate::migrate::finding::FindingLog;
use crate::migrate::{MigrationFinding, about_us, is_part, label, list_items, unconverted};
use crate::yaml::{Document, NodeContent, YamlNode, documents, read};

/// An object in a text.
#[derive(Clone, Debug)]
pub struct Manifest {
    root: YamlNode,
}

/// A document that does not parse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnparsableDocument {
    /// Line of the text, counted from 1.
    pub line: usize,
    /// Problem in this line.
    pub problem: String,
    /// It contains names of mortise or Karpenter kinds.
    pub ours: bool,
    /// It looks like a template that was not rendered.
    pub template: bool,
}

/// The objects of a YAML or JSON text in their order; those of a `List` one by one. Empty documents are left out.
#[must_use]
pub fn manifests(text: &str) -> Vec<Result<Manifest, UnparsableDocument>> {
    let mut found = Vec::new();
    for Document { body, line, .. } in documents(text) {
        match read(&body, line) {
            Ok(document) => {
                let Some(root) = document.root else { continue };
                let items = list_items(&root);
                if items.is_empty() {
                    found.push(Ok(Manifest { root }));
                } else {
                    found.extend(items.into_iter().map(|root| Ok(Manifest { root })));
                }
            }
            Err((line, problem)) => found.push(Err(UnparsableDocument {
                line,
                problem,
                ours: about_us(&body),
                template: body.contains("{{"),
            })),
        }
    }
    found
}

impl Manifest {
    /// The object as Kubernetes reads it.
    #[must_use]
    pub fn value(&self) -> Value {
        self.root.value()
    }

    /// Line on which it begins.
    #[must_use]
    pub const fn line(&self) -> usize {
        self.root.line
    }

    /// Line of a field such as `spec.requirements[0].key` or `metadata.labels["example.com/team"]`; for a missing field, of the
    /// nearest field around it.
    #[must_use]
    pub fn line_of(&self, field: &str) -> usize {
        find(&self.root, field, self.root.line).0
    }

    /// Value of a field, with the path of [`Self::line_of`]; `None` if the field is missing.
    #[must_use]
    pub fn value_of(&self, field: &str) -> Option<Value> {
        find(&self.root, field, self.root.line)
            .1
            .map(YamlNode::value)
    }

    /// The kind that this is a fragment of, as documentation quotes them: without `apiVersion`, `kind` and name.
    #[must_use]
    pub fn part_of(&self) -> Option<&'static str> {
        if self.root.get("kind").is_some() || self.root.get("apiVersion").is_some() {
            return None;
        }
        let terms = |field: &str| {
            let items = self
                .root
                .get(field)
                .map(YamlNode::items)
                .unwrap_or_default();
            let words = ["id", "tags", "name", "alias"];
            items
                .iter()
                .any(|item| words.iter().any(|word| item.value.get(word).is_some()))
        };
        let lists = [
            "amiSelectorTerms",
            "subnetSelectorTerms",
            "securityGroupSelectorTerms",
        ];
        if is_part(&self.root) {
            Some("NodePool")
        } else if lists.into_iter().any(terms) {
            Some("EC2NodeClass")
        } else {
            None
        }
    }

    /// Text that looks like a placeholder.
    #[must_use]
    pub fn placeholders(&self, file: &str) -> Vec<MigrationFinding> {
        self.remarks(file, unconverted::placeholders)
    }

    /// Names of older versions in an object of another kind, such as a node selector.
    #[must_use]
    pub fn old_names(&self, file: &str) -> Vec<MigrationFinding> {
        self.remarks(file, unconverted::report)
    }

    fn remarks(
        &self,
        file: &str,
        look: impl Fn(&YamlNode, &mut FindingLog<'_>),
    ) -> Vec<MigrationFinding> {
        let mut findings = Vec::new();
        look(
            &self.root,
            &mut FindingLog {
                file,
                object: label(&self.root),
                findings: &mut findings,
            },
        );
        findings
    }
}

/// The line and, if present, the YAML node of a field.
fn find<'a>(node: &'a YamlNode, field: &str, line: usize) -> (usize, Option<&'a YamlNode>) {
    if field.is_empty() {
        return (line, Some(node));
    }
    match &node.content {
        NodeContent::Scalar(_) => (line, None),
        NodeContent::Map { entries, .. } => {
            // Names may contain dots: the longest match is used.
            let fitting = entries.iter().filter_map(|entry| {
                let rest = after(field, &entry.key.text)?;
                Some((entry, rest))
            });
            match fitting.min_by_key(|(_, rest)| rest.len()) {
                Some((entry, rest)) => find(&entry.value, rest, entry.line),
                None => (line, None),
            }
        }
        NodeContent::List { items, .. } => {
            let index = field.strip_prefix('[').and_then(|rest| {
                let (number, rest) = rest.split_once(']')?;
                Some((number.parse::<usize>().ok()?, rest))
            });
            match index.and_then(|(index, rest)| Some((items.get(index)?, rest))) {
                Some((item, rest)) => find(
                    &item.value,
                    rest.strip_prefix('.').unwrap_or(rest),
                    item.value.line,
                ),
                None => (line, None),
            }
        }
    }
}

/// Rest of a path after a name, which is plain or in brackets and quotes.
fn after<'a>(field: &'a str, name: &str) -> Option<&'a str> {
    let quoted = format!("[{name:?}]");
    let rest = field
        .strip_prefix(&quoted)
        .or_else(|| field.strip_prefix(name))?;
    match rest.strip_prefix('.') {
        Some(below) => Some(below),
        None => (rest.is_empty() || rest.starts_with('[')).then_some(rest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# a pool\nkind: NodePool\nmetadata:\n  name: x\n  labels:\n    a.b/c: d\n    a: e\nspec:\n  template:\n    spec:\n      requirements:\n        - key: k\n          operator: In\n          values: [v]\n        -\n          operator: Exists\n---\nkind: [\n---\nkind: List\nitems:\n- kind: A\n- kind: B\n  spec: {c: 1}\n";

    #[test]
    fn fields_have_lines() {
        let found = manifests(TEXT);
        assert_eq!(found.len(), 4);
        let pool = found[0].as_ref().unwrap();
        for (field, line) in [
            ("", 2),
            ("kind", 2),
            ("metadata.name", 4),
            ("metadata.labels[\"a.b/c\"]", 6),
            ("metadata.labels.a.b/c", 6),
            ("metadata.labels.a", 7),
            ("metadata.labels.zzz", 5),
            ("spec.template.spec.requirements", 11),
            ("spec.template.spec.requirements[0].values", 14),
            ("spec.template.spec.requirements[0].minValues", 12),
            ("spec.template.spec.requirements[1].operator", 16),
            ("spec.template.spec.requirements[7]", 11),
            ("spec.template.spec.nodeClassRef.name", 10),
            ("status.conditions", 2),
        ] {
            assert_eq!(pool.line_of(field), line, "{field}");
        }
        assert_eq!(pool.value_of("metadata.labels.a"), Some("e".into()));
        assert_eq!(pool.value_of("metadata.labels.zzz"), None);
        let torn = found[1].as_ref().unwrap_err();
        assert!((18..=19).contains(&torn.line) && !torn.ours, "{torn:?}");
        let last = found[3].as_ref().unwrap();
        assert_eq!((last.line(), last.line_of("spec.c")), (23, 24));
        assert_eq!(last.value()["kind"], "B");
    }
    #[test]
    fn pieces_are_told_by_their_fields() {
        let part = |text: &str| manifests(text)[0].as_ref().unwrap().part_of();
        assert_eq!(part("disruption: {consolidateAfter: 1m}"), Some("NodePool"));
        assert_eq!(
            part("amiSelectorTerms: [{alias: a@b}]"),
            Some("EC2NodeClass")
        );
        assert_eq!(
            part("kind: NodePool\nspec: {disruption: {consolidateAfter: 1m}}"),
            None
        );
        assert_eq!(part("replicaCount: 3"), None);
    }
}
