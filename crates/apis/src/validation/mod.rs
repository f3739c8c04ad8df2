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
//! length of the object: lists and maps are checked as far as their definition lets them go, and faults are counted no
//! further than [`MOST_FAULTS`](crate::issues::MOST_FAULTS). `null` is absent ([`crate::schema::absent`]).

mod coverage;
mod metadata;
mod patterns;
mod rules;
mod runtime;
mod schema;
mod syntax;

pub use coverage::{Coverage, coverage};
pub use metadata::metadata_faults;
pub use syntax::is_label_key;

use std::collections::HashSet;

use serde::Serialize;
use serde_json::Value;

use crate::crds::CrdSet;
use crate::issues::{FieldIssue, Found, IssueSeverity, IssueTopic};
use crate::karpenter::nodeoverlay::NodeOverlay;
use crate::karpenter::nodepool::NodePool;
use crate::labels::WellKnown;
use crate::node_class::NodeClassRegistry;
use crate::node_pool_policy::NodePoolPolicy;
use crate::schema::absent::without_nulls;

/// Everything that is wrong with an object of this kind, in the order of weight and field. With `old`, the object before an
/// update, also what must not change; what was wrong before and is unchanged is left out, because an update that does not
/// touch it must pass. No more than [`MOST_FAULTS`](crate::issues::MOST_FAULTS) that refuse, and as many that do not.
///
/// An object that had too many faults before the update to count them all is left to the API server: which of the
/// present ones are new cannot be told.
///
/// # Cost
/// Linear in the length of both objects.
#[must_use]
pub fn faults(
    set: &CrdSet,
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
    let mut found = at_present(CrdSet::core(), well_known, "NodePool", &object, None).sorted();
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
    faults_of("NodeOverlay", overlay, well_known)
}

/// What keeps a policy from meaning what it says.
#[must_use]
pub fn policy_faults(policy: &NodePoolPolicy, well_known: &WellKnown) -> Vec<FieldIssue> {
    faults_of("NodePoolPolicy", policy, well_known)
}

fn faults_of(kind: &str, object: &impl Serialize, well_known: &WellKnown) -> Vec<FieldIssue> {
    let Ok(object) = serde_json::to_value(object) else {
        return Vec::new(); // every object can be written: it was read from the same form
    };
    let mut found = at_present(CrdSet::core(), well_known, kind, &object, None).sorted();
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
    set: &CrdSet,
    well_known: &WellKnown,
    kind: &str,
    object: &Value,
    old: Option<&Value>,
) -> Found {
    let mut found = Found::default();
    if let Some(definition) = schema::definition(set, kind) {
        schema::next_to_spec(object, &mut found);
        definition.spec(object, old.and_then(|old| old.get("spec")), &mut found);
    }
    let mut beyond = runtime::faults(set.known(), kind, object, well_known).sorted();
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
    deprecated(set.known(), object, &mut found);
    found
}

/// For what older versions called otherwise, the new name is a better fix than any; and a field that is gone is told also
/// where nothing else is wrong with it.
fn deprecated(classes: &NodeClassRegistry, object: &Value, found: &mut Found) {
    for advice in crate::deprecated_fields::advice(classes, object) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_and_every_rule_of_the_definitions_is_known() {
        let coverage = coverage(CrdSet::core());
        assert!(coverage.schemas > 60 && coverage.rules > 10, "{coverage:?}");
        assert_eq!(coverage.unanswered, Vec::<String>::new());
    }

    #[test]
    fn what_was_wrong_before_and_is_not_touched_passes() {
        let object = |replicas: i64| {
            serde_json::json!({ "spec": { "weight": 0, "limits": { "nodes": replicas }, "template": { "spec": {
                "nodeClassRef": { "group": "g", "kind": "K", "name": "n" }, "requirements": [],
            } } } })
        };
        let known = WellKnown::core();
        let before = faults(CrdSet::core(), &known, "NodePool", &object(1), None);
        assert_eq!(before.len(), 1, "{before:?}");
        let after = faults(
            CrdSet::core(),
            &known,
            "NodePool",
            &object(2),
            Some(&object(1)),
        );
        assert_eq!(after, Vec::new());
    }

    #[test]
    fn values_that_do_not_exist_do_not_count_for_min_values() {
        const TENANCY: &str = "example.com/tenancy";
        let known = WellKnown::core()
            .with_keys([TENANCY])
            .with_values(TENANCY, ["dedicated", "default"]);
        let found = |key: &str, operator: &str, values: &[&str], least: u64| {
            let requirement = serde_json::json!({ "key": key, "operator": operator, "values": values, "minValues": least });
            let pool = serde_json::json!({ "spec": { "template": { "spec": {
                "nodeClassRef": { "group": "g", "kind": "K", "name": "n" }, "requirements": [requirement],
            } } } });
            let found = faults(CrdSet::core(), &known, "NodePool", &pool, None);
            found.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let capacity_type =
            |values: &[&str], least| found("karpenter.sh/capacity-type", "In", values, least);
        let at = "spec.template.spec.requirements[0]";
        assert_eq!(
            capacity_type(&["spot", "foo"], 2),
            [format!(
                "{at}.minValues: 2 is more than the values that exist: of spot, foo, 1 is one of on-demand, reserved, spot; lower minValues to 1"
            )]
        );
        assert_eq!(
            capacity_type(&["spot", "on-demnd"], 2),
            [format!(
                "{at}.minValues: 2 is more than the values that exist: of spot, on-demnd, 1 is one of on-demand, reserved, spot; did you mean \"on-demand\"?"
            )]
        );
        let none = Vec::<String>::new();
        assert_eq!(capacity_type(&["spot", "foo"], 1), none);
        assert_eq!(capacity_type(&["spot", "on-demand", "foo"], 2), none);
        let of_tenancy = found(TENANCY, "In", &["host", "default"], 2);
        assert!(
            of_tenancy[0].contains("of host, default, 1 is one of"),
            "{of_tenancy:?}"
        );
        let of_tenancy = found(TENANCY, "In", &["host"], 1);
        assert!(
            of_tenancy[0].contains("has none of dedicated, default"),
            "{of_tenancy:?}"
        );
        assert_eq!(found(TENANCY, "NotIn", &["host", "default"], 3), none);
        assert_eq!(found("example.com/team", "In", &["a", "b"], 2), none);
    }

    #[test]
    fn any_value_gets_an_answer() {
        let values = [
            Value::Null,
            serde_json::json!([]),
            serde_json::json!("text"),
            serde_json::json!({ "spec": 7 }),
            serde_json::json!({ "spec": { "template": [], "disruption": "no", "limits": [1], "weight": 1.5 } }),
        ];
        for kind in [
            "NodePool",
            "NodeClaim",
            "CapacityBuffer",
            "NodeOverlay",
            "NodePoolPolicy",
            "Pod",
        ] {
            for value in &values {
                let found = faults(CrdSet::core(), &WellKnown::core(), kind, value, Some(value));
                assert!(
                    found.iter().all(|fault| !fault.field.is_empty()),
                    "{found:?}"
                );
            }
        }
    }
}
