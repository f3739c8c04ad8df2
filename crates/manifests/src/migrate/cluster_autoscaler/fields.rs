//! Which fields of a node group are converted, and why others are not.

use mortise_apis::nearest::nearest;

use crate::migrate::finding::{Code, FindingLog};
use crate::yaml::YamlNode;

/// What becomes of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldAnswer {
    /// The reader of the group converts it, with all that is in it.
    Converted,
    /// It describes the group, and is no setting.
    Description,
    /// Why nothing takes its place.
    NotNeeded(&'static str),
    /// What to do about it.
    NoCounterpart(&'static str),
}

/// Path of a field, dots between names, and its answer.
pub(super) type FieldRow = (&'static str, FieldAnswer);

/// Reports the fields of an object that are not converted. Those that no row names are errors if the format is strict, because
/// then they are typos; else they are newer than the table.
pub(super) fn report(
    object: &YamlNode,
    rows: &[FieldRow],
    is_strict: bool,
    log: &mut FindingLog<'_>,
) {
    below(object, "", rows, is_strict, log);
}

fn below(
    object: &YamlNode,
    before: &str,
    rows: &[FieldRow],
    is_strict: bool,
    log: &mut FindingLog<'_>,
) {
    for entry in object.entries() {
        let path = format!("{before}{}", entry.key.text);
        let nothing = entry.value.is_nothing()
            || entry
                .value
                .value()
                .as_object()
                .is_some_and(serde_json::Map::is_empty)
            || entry.value.value().as_array().is_some_and(Vec::is_empty);
        match rows.iter().find(|(known, _)| *known == path) {
            Some((_, FieldAnswer::Converted | FieldAnswer::Description)) => {}
            _ if nothing => {}
            Some((_, FieldAnswer::NotNeeded(why))) => log.converted(
                Code::Removed,
                entry.line,
                &path,
                format!("is not needed: {why}"),
            ),
            Some((_, FieldAnswer::NoCounterpart(why))) => log.warning(
                Code::Unsupported,
                entry.line,
                &path,
                format!("has no counterpart: {why}"),
            ),
            None => {
                let inside = format!("{path}.");
                if rows.iter().any(|(known, _)| known.starts_with(&inside)) {
                    below(&entry.value, &inside, rows, is_strict, log);
                    continue;
                }
                let meant = nearest(&path, rows.iter().map(|(known, _)| *known));
                let meant =
                    meant.map_or_else(String::new, |name| format!("; {name} is meant, perhaps"));
                let text =
                    format!("is not a field that is known here, and is not converted{meant}");
                if is_strict {
                    log.error(Code::Unsupported, entry.line, &path, text);
                } else {
                    log.warning(Code::Unsupported, entry.line, &path, text);
                }
            }
        }
    }
}
