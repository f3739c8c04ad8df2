//! Moves fields, with a finding for each.

use super::finding::{Code, FindingLog, MigrationLevel};
use crate::yaml::{MapEntry, Notes, YamlNode};

/// Source and destination of a field.
pub(crate) struct FieldMove<'a> {
    /// Path of the map that contains it.
    pub(crate) from: &'a [&'a str],
    /// Its name there.
    pub(crate) key: &'a str,
    /// Path of the destination map.
    pub(crate) to: &'a [&'a str],
    /// Its name there.
    pub(crate) name: &'a str,
}

impl FieldMove<'_> {
    /// A path with dots.
    fn dotted(path: &[&str], name: &str) -> String {
        let mut all = path.to_vec();
        all.push(name);
        all.join(".")
    }

    /// Moves the field with its comments. An existing field at the destination is kept, which is reported.
    pub(crate) fn run(
        &self,
        root: &mut YamlNode,
        level: MigrationLevel,
        why: &str,
        log: &mut FindingLog<'_>,
    ) {
        let Some(parent) = root.at_mut(self.from) else {
            return;
        };
        let Some(mut entry) = parent.remove(self.key) else {
            return;
        };
        let (from, to) = (
            Self::dotted(self.from, self.key),
            Self::dotted(self.to, self.name),
        );
        let line = entry.value.line;
        let goal = root.make(self.to);
        if let Some(known) = goal.entry_mut(self.name) {
            let same = known.value.value() == entry.value.value();
            let (kept, dropped) = (known.value.value(), entry.value.value());
            known.notes.before.extend(entry.comments());
            if same {
                log.converted(
                    Code::Removed,
                    line,
                    &from,
                    format!("is equal to {to}, which stays"),
                );
            } else {
                log.warning(
                    Code::Removed,
                    line,
                    &from,
                    format!("is {dropped}, but {to} is {kept}, which stays"),
                );
            }
            return;
        }
        self.name.clone_into(&mut entry.key.text);
        entry.key.raw = Some(self.name.to_owned());
        goal.push(entry);
        let text = format!("is {to} now{why}");
        match level {
            MigrationLevel::Converted => log.converted(Code::Moved, line, &from, text),
            MigrationLevel::Warning | MigrationLevel::Error => {
                log.warning(Code::Moved, line, &from, text)
            }
        }
    }
}

/// Removes a field; its comments move to the next field, or to the previous one.
pub(crate) fn drop_entry(parent: &mut YamlNode, key: &str) -> Option<MapEntry> {
    let place = parent
        .entries()
        .iter()
        .position(|entry| entry.key.text == key)?;
    let entry = parent.remove(key)?;
    let comments = entry.clone().comments();
    if let Some(entries) = parent.entries_mut() {
        let neighbour = match entries.get_mut(place) {
            Some(next) => Some((&mut next.notes, true)),
            None => entries.last_mut().map(|last| (&mut last.notes, false)),
        };
        if let Some((notes, comes_next)) = neighbour {
            if comes_next {
                notes.before.splice(0..0, comments);
            } else {
                notes.after.extend(comments);
            }
        }
    }
    Some(entry)
}

/// A new field with the comments of those that it replaces.
pub(crate) fn instead(key: &str, value: YamlNode, mut comments: Vec<String>) -> MapEntry {
    let mut entry = MapEntry::new(key, value);
    entry.notes = if comments.len() == 1 {
        Notes {
            inline: comments.pop().map(|comment| format!("  {comment}")),
            ..Notes::default()
        }
    } else {
        Notes {
            before: comments,
            ..Notes::default()
        }
    };
    entry
}

/// Fields that an API server sets, and that a manifest should not contain.
pub(crate) fn strip_server_fields(root: &mut YamlNode, log: &mut FindingLog<'_>) {
    let mut gone = Vec::new();
    let status = root.get("status").map(|status| status.line);
    if let Some(line) = status {
        drop_entry(root, "status");
        gone.push(("status", line));
    }
    if let Some(metadata) = root.get_mut("metadata") {
        for name in [
            "creationTimestamp",
            "generation",
            "managedFields",
            "ownerReferences",
            "resourceVersion",
            "selfLink",
            "uid",
        ] {
            if let Some(entry) = drop_entry(metadata, name) {
                gone.push((name, entry.value.line));
            }
        }
        let empty = metadata.get_mut("annotations").is_some_and(|annotations| {
            for name in [
                "kubectl.kubernetes.io/last-applied-configuration",
                "karpenter.sh/provisioner-hash",
                "karpenter.sh/nodepool-hash",
                "karpenter.sh/nodepool-hash-version",
                "karpenter.k8s.aws/nodetemplate-hash",
                "karpenter.k8s.aws/ec2nodeclass-hash",
                "karpenter.k8s.aws/ec2nodeclass-hash-version",
                "karpenter.sh/stored-version-migrated",
            ] {
                if let Some(entry) = drop_entry(annotations, name) {
                    gone.push((name, entry.value.line));
                }
            }
            annotations.entries().is_empty()
        });
        if empty {
            drop_entry(metadata, "annotations");
        }
    }
    if let Some((_, line)) = gone.first() {
        let names: Vec<&str> = gone.iter().map(|(name, _)| *name).collect();
        log.converted(
            Code::Removed,
            *line,
            "",
            format!("written by the cluster: {}", names.join(", ")),
        );
    }
}

/// Sets apiVersion and kind of the object.
pub(crate) fn set_type(
    root: &mut YamlNode,
    api_version: &str,
    kind: &str,
    log: &mut FindingLog<'_>,
) {
    let text = |key| {
        root.get(key)
            .and_then(YamlNode::text)
            .unwrap_or_default()
            .to_owned()
    };
    let (old_version, old_kind) = (text("apiVersion"), text("kind"));
    if old_version == api_version && old_kind == kind {
        return;
    }
    let line = root
        .get("apiVersion")
        .or_else(|| root.get("kind"))
        .map_or(0, |node| node.line);
    let was = if old_version.is_empty() {
        format!("{old_kind} without apiVersion")
    } else {
        format!("{old_kind} of {old_version}")
    };
    log.converted(
        Code::Version,
        line,
        "",
        format!("{was} is {kind} of {api_version} now"),
    );
    root.set("kind", YamlNode::plain(kind));
    if root.get("apiVersion").is_some() {
        root.set("apiVersion", YamlNode::plain(api_version));
    } else if let Some(entries) = root.entries_mut() {
        entries.insert(0, MapEntry::new("apiVersion", YamlNode::plain(api_version)));
    }
}

/// A new object of a kind.
pub(super) fn new_object(api_version: &str, kind: &str, name: YamlNode) -> YamlNode {
    let mut object = YamlNode::map();
    object.set("apiVersion", YamlNode::plain(api_version));
    object.set("kind", YamlNode::plain(kind));
    object.make(&["metadata"]).set("name", name);
    object
}

/// A value that is not a map where fields are moved: the object cannot be converted, which was reported.
#[derive(Debug)]
pub(crate) struct UnexpectedStructure;

/// Whether all values on the path of a move are maps. Others are reported, and the object is not converted.
pub(crate) fn maps_hold(
    root: &YamlNode,
    paths: &[&[&str]],
    log: &mut FindingLog<'_>,
) -> Result<(), UnexpectedStructure> {
    let mut all = Ok(());
    for path in paths {
        let found = root.at(path).filter(|node| !node.is_nothing());
        if let Some(node) = found
            && !matches!(node.content, crate::yaml::NodeContent::Map { .. })
        {
            all = Err(UnexpectedStructure);
            log.error(
                Code::Unreadable,
                node.line,
                &path.join("."),
                format!(
                    "{} is no map of fields; the object is left as it is",
                    node.value()
                ),
            );
        }
    }
    all
}
