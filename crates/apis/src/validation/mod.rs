//! What is wrong with an object as it is written: the field, the value, what is allowed, and what to write instead.
//!
//! ```text
//! object ─► schema (types, bounds, patterns of our own definitions) ─┐
//!        ─► rules  (the definitions' CEL rules, with better words) ──┼─► faults
//!        ─► runtime (what no definition can say: label syntax, cron) ┘
//! ```
//!
//! Admission answers with these before the API server answers with its own words, and `lint` gives the same answers over
//! files. The schema that is walked is the one of [`CrdSet::manifests`], so what is refused here is what a definition
//! refuses, and what a pool's conditions would say later.
//!
//! Invariant: pure and total. Any JSON value gets an answer; nothing here looks at other objects. The work is bounded by the
//! length of the object: lists and maps are looked at as far as their definition lets them go, and faults are counted no
//! further than [`MOST_FAULTS`]. `null` is absent ([`crate::schema::absent`]).

mod ec2nodeclass;
mod found;
mod kubelet;
mod metadata;
mod patterns;
mod rules;
mod runtime;
mod schema;
mod syntax;

pub use found::MOST_FAULTS;
pub use metadata::metadata_faults;

use std::collections::HashSet;
use std::fmt;
use std::io::{self, Write};

use serde_json::Value;

use found::Found;

use crate::crds::CrdSet;
use crate::karpenter::nodeoverlay::NodeOverlay;
use crate::karpenter::nodepool::NodePool;
use crate::labels::WellKnown;
use crate::schema::absent::without_nulls;

/// Longest value that is quoted, in characters: enough to recognise it.
const QUOTED: usize = 80;

/// How sure it is that the object cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IssueSeverity {
    /// The definition refuses it, with or without this service.
    Schema,
    /// The API server would store it, and then nothing could ever be done with it.
    Unusable,
    /// It can be used, but hardly means what it says.
    Suspicious,
}

/// What a fault is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IssueTopic {
    /// A type, a bound, a pattern or a rule of the definition.
    Schema,
    /// A field that the definition does not have.
    UnknownField,
    /// A field, a value or a place of an older version.
    Deprecated,
    /// What no definition can say.
    Meaning,
}

/// One thing that is wrong with an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FieldIssue {
    /// How bad it is.
    pub weight: IssueSeverity,
    /// Where, such as `spec.template.spec.requirements[0].operator`.
    pub field: String,
    /// The value as JSON, cut to a length that reads; `absent` when there is none.
    pub value: String,
    /// What is wrong with it, naming what is allowed.
    pub problem: String,
    /// What to write instead.
    pub fix: String,
    /// What it is about.
    pub topic: IssueTopic,
}

impl FieldIssue {
    /// The word that is nearest to what was written, where the fix is one.
    #[must_use]
    pub fn nearest(&self) -> Option<&str> {
        nearest_in(&self.fix)
    }
}

/// The word in `did you mean "word"?`.
#[must_use]
pub fn nearest_in(fix: &str) -> Option<&str> {
    let (_, rest) = fix.split_once("did you mean ")?;
    let (word, _) = rest.rsplit_once('?')?;
    Some(word.trim_matches('"'))
}

impl fmt::Display for FieldIssue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {} {}; {}",
            self.field, self.value, self.problem, self.fix
        )
    }
}

/// Everything that is wrong with an object of this kind, in the order of weight and field. With `old`, the object before an
/// update, also what must not change; what was wrong before and is unchanged is left out, because an update that does not
/// touch it must pass. No more than [`MOST_FAULTS`] that refuse, and as many that do not.
///
/// An object that had so many faults before the update that they were not all counted is left to the API server: which of
/// the present ones are new cannot be told.
///
/// # Cost
/// Linear in the length of both objects.
#[must_use]
pub fn faults(
    set: CrdSet,
    well_known: &WellKnown,
    kind: &str,
    object: &Value,
    old: Option<&Value>,
) -> Vec<FieldIssue> {
    let object = without_nulls(object);
    let old = old.map(without_nulls);
    let old = old.as_deref();
    let mut found = at_present(set, well_known, kind, &object, old).sorted();
    if let Some(old) = old {
        let before = at_present(set, well_known, kind, old, None);
        let uncounted = before.is_cut();
        let known: HashSet<&FieldIssue> = before.all().iter().collect();
        found.retain(|fault| {
            let counted = fault.weight == IssueSeverity::Suspicious || !uncounted;
            counted && !known.contains(fault)
        });
    }
    found
}

/// The lists of a pool's template that say which nodes it makes.
const MAKES_NODES: [&str; 5] = [
    "spec.template.metadata.annotations",
    "spec.template.metadata.labels",
    "spec.template.spec.requirements",
    "spec.template.spec.startupTaints",
    "spec.template.spec.taints",
];

/// What is wrong with the annotations, labels, taints and requirements of a pool's template, so that no node can be made from it. The rest
/// of a pool that was stored all the same has safe readings of its own (a budget that cannot be read allows nothing).
#[must_use]
pub fn template_faults(pool: &NodePool, well_known: &WellKnown) -> Vec<FieldIssue> {
    let Ok(object) = serde_json::to_value(pool) else {
        return Vec::new(); // every pool can be written: it was read from the same form
    };
    let mut found = at_present(CrdSet::Core, well_known, "NodePool", &object, None).sorted();
    found.retain(|fault| {
        // An empty taint value breaks the definition's pattern, and harms no node.
        let empty_taint = fault.field.ends_with(".value") && fault.value == "\"\"";
        let makes_nodes = MAKES_NODES.iter().any(|list| fault.field.starts_with(list));
        fault.weight != IssueSeverity::Suspicious && makes_nodes && !empty_taint
    });
    found
}

/// What keeps an overlay from being applied: whatever the definition or its meaning refuses.
#[must_use]
pub fn overlay_faults(overlay: &NodeOverlay, well_known: &WellKnown) -> Vec<FieldIssue> {
    let Ok(object) = serde_json::to_value(overlay) else {
        return Vec::new(); // every overlay can be written: it was read from the same form
    };
    let mut found = at_present(CrdSet::Core, well_known, "NodeOverlay", &object, None).sorted();
    found.retain(|fault| fault.weight != IssueSeverity::Suspicious);
    found
}

/// The faults as one text, for a condition.
#[must_use]
pub fn in_words(faults: &[FieldIssue]) -> String {
    let texts: Vec<String> = faults.iter().map(ToString::to_string).collect();
    texts.join("; ")
}

fn at_present(
    set: CrdSet,
    well_known: &WellKnown,
    kind: &str,
    object: &Value,
    old: Option<&Value>,
) -> Found {
    let mut found = Found::default();
    if let Some(definition) = schema::definition(set, kind) {
        schema::beside_spec(object, &mut found);
        definition.spec(object, old.and_then(|old| old.get("spec")), &mut found);
    }
    let mut beyond = runtime::faults(kind, object, well_known).sorted();
    // What the schema has refused already needs no second sentence.
    beyond.retain(|fault| {
        !found.all().iter().any(|known| {
            fault
                .field
                .strip_prefix(&known.field)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        })
    });
    beyond.into_iter().for_each(|fault| found.push(fault));
    deprecated(object, &mut found);
    found
}

/// For what older versions called otherwise, the new name is a better fix than any; and a field that is gone is told also
/// where nothing else is wrong with it.
fn deprecated(object: &Value, found: &mut Found) {
    for advice in crate::deprecated_fields::advice(object) {
        let mut known = false;
        for fault in found.all_mut().filter(|fault| fault.field == advice.field) {
            fault.fix.clone_from(&advice.instead);
            fault.topic = IssueTopic::Deprecated;
            known = true;
        }
        if !known {
            found.push(FieldIssue {
                weight: IssueSeverity::Suspicious,
                field: advice.field,
                value: advice.found,
                problem: "has no effect any more".to_owned(),
                fix: advice.instead,
                topic: IssueTopic::Deprecated,
            });
        }
    }
}

/// A value as it is quoted in a fault.
fn quoted(value: &Value) -> String {
    let mut start = Start(Vec::new());
    // It ends early where there is more than is quoted.
    let whole = serde_json::to_writer(&mut start, value).is_ok();
    let text = String::from_utf8_lossy(&start.0);
    if whole && text.chars().count() <= QUOTED {
        return text.into_owned();
    }
    let mut short: String = text.chars().take(QUOTED - 3).collect();
    short.push_str("...");
    short
}

/// Takes the beginning of a text, enough for [`QUOTED`] characters, and refuses the rest.
struct Start(Vec<u8>);

impl Write for Start {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        const ENOUGH: usize = 4 * QUOTED;
        let room = ENOUGH.saturating_sub(self.0.len()).min(bytes.len());
        self.0.extend(bytes.iter().take(room));
        if room < bytes.len() {
            return Err(io::ErrorKind::WriteZero.into());
        }
        Ok(room)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// `a`, `a or b`, `a, b or c`.
fn either<S: AsRef<str>>(words: &[S]) -> String {
    match words {
        [] => String::new(),
        [only] => only.as_ref().to_owned(),
        [most @ .., last] => {
            let most: Vec<&str> = most.iter().map(AsRef::as_ref).collect();
            format!("{} or {}", most.join(", "), last.as_ref())
        }
    }
}

/// The nearest of the allowed words as a fix, or else the advice given.
fn meant<S: AsRef<str>>(
    word: &str,
    allowed: impl IntoIterator<Item = S>,
    or: impl FnOnce() -> String,
) -> String {
    match crate::nearest::nearest(word, allowed) {
        Some(near) => format!("did you mean \"{near}\"?"),
        None => or(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every schema of every definition with its path.
    fn schemas(schema: &'static Value, path: &str, all: &mut Vec<(String, &'static Value)>) {
        all.push((path.to_owned(), schema));
        for (name, property) in schema
            .get("properties")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
        {
            schemas(property, &format!("{path}.{name}"), all);
        }
        for inner in ["items", "additionalProperties"] {
            if let Some(inner) = schema.get(inner).filter(|inner| inner.is_object()) {
                schemas(inner, &format!("{path}[]"), all);
            }
        }
    }

    #[test]
    fn every_pattern_and_every_rule_of_the_definitions_is_known() {
        let mut all = Vec::new();
        for set in CrdSet::ALL {
            for kind in [
                "NodePool",
                "NodeClaim",
                "NodeOverlay",
                "CapacityBuffer",
                "EC2NodeClass",
                "KWOKNodeClass",
            ] {
                if let Some(definition) = schema::definition(set, kind) {
                    schemas(
                        definition.of_spec,
                        &format!("{} {kind}", set.as_str()),
                        &mut all,
                    );
                }
            }
        }
        assert!(all.len() > 300, "{} schemas", all.len());
        let mut rules_seen = 0;
        for (path, schema) in all {
            if let Some(pattern) = schema.get("pattern").and_then(Value::as_str) {
                assert!(
                    patterns::description(pattern).is_some(),
                    "{path}: pattern {pattern}"
                );
            }
            for rule in schema
                .get("x-kubernetes-validations")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
            {
                let message = rule.get("message").and_then(Value::as_str).unwrap();
                assert!(
                    rules::native_check(message).is_some(),
                    "{path}: rule {message}"
                );
                rules_seen += 1;
            }
        }
        assert!(rules_seen > 100, "{rules_seen} rules");
    }

    #[test]
    fn what_was_wrong_before_and_is_not_touched_passes() {
        let object = |replicas: i64| {
            serde_json::json!({ "spec": { "weight": 0, "limits": { "nodes": replicas }, "template": { "spec": {
                "nodeClassRef": { "group": "g", "kind": "K", "name": "n" }, "requirements": [],
            } } } })
        };
        let known = WellKnown::core();
        let before = faults(CrdSet::Core, &known, "NodePool", &object(1), None);
        assert_eq!(before.len(), 1, "{before:?}");
        let after = faults(
            CrdSet::Core,
            &known,
            "NodePool",
            &object(2),
            Some(&object(1)),
        );
        assert_eq!(after, Vec::new());
    }

    #[test]
    fn any_value_gets_an_answer() {
        let values = [
            Value::Null,
            serde_json::json!([]),
            serde_json::json!("text"),
            serde_json::json!({ "spec": 7 }),
            serde_json::json!({ "spec": { "template": [], "disruption": "no", "limits": [1], "weight": 1.5 } }),
            serde_json::json!({ "spec": { "amiSelectorTerms": { "a": 1 }, "kubelet": [], "tags": "x" } }),
        ];
        for kind in [
            "NodePool",
            "NodeClaim",
            "EC2NodeClass",
            "CapacityBuffer",
            "NodeOverlay",
            "Pod",
        ] {
            for value in &values {
                let found = faults(CrdSet::Aws, &WellKnown::aws(), kind, value, Some(value));
                assert!(
                    found.iter().all(|fault| !fault.field.is_empty()),
                    "{found:?}"
                );
            }
        }
    }
}
