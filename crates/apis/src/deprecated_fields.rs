//! Fields and kinds that are gone, or that people write into the wrong place: what to write instead.
//!
//! An API server drops fields that a definition does not have before any webhook sees the object. What kubectl was given
//! is in the annotation of the last applied configuration, so that is checked too.

use std::fmt;

use serde_json::Value;

use crate::node_class::{DeprecationCondition, NodeClassRegistry};
use crate::schema::groups::{GROUP, V1};

/// What to write instead of something that an object contains.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeprecationAdvice {
    /// Place of the field, dots between names.
    pub field: String,
    /// What stands there, as JSON, at most 40 characters.
    pub found: String,
    /// What to write instead: half a sentence.
    pub instead: String,
}

impl fmt::Display for DeprecationAdvice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.field, self.found, self.instead)
    }
}

/// Longest quoted value.
const QUOTED: usize = 40;
/// Most items of a list that are checked: no list of these kinds may be as long.
const MOST_ITEMS: usize = 200;
/// Longest annotation, in bytes: API servers take no more of all of them together.
const LONGEST_ANNOTATION: usize = 256 << 10;
/// kubectl keeps here what it was given.
const LAST_APPLIED: &str =
    "/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration";

/// A row: JSON pointer (`*` for each item of a list), when, and what to write instead (`{}` is the value).
type Row = (&'static str, DeprecationCondition, &'static str);

const POOL: &[Row] = &[
    (
        "/spec/providerRef",
        DeprecationCondition::There,
        "write spec.template.spec.nodeClassRef with group, kind and name",
    ),
    (
        "/spec/nodeClassRef",
        DeprecationCondition::There,
        "write spec.template.spec.nodeClassRef",
    ),
    (
        "/spec/instanceTypes",
        DeprecationCondition::There,
        "write a requirement on node.kubernetes.io/instance-type: In {}",
    ),
    (
        "/spec/cluster",
        DeprecationCondition::There,
        "leave it out: name and endpoint of the cluster are settings of the service",
    ),
    (
        "/spec/ttlSecondsAfterEmpty",
        DeprecationCondition::There,
        "write spec.disruption: {consolidationPolicy: WhenEmpty, consolidateAfter: {}s}",
    ),
    (
        "/spec/ttlSecondsUntilExpired",
        DeprecationCondition::There,
        "write spec.template.spec.expireAfter: {}s",
    ),
    (
        "/spec/consolidation",
        DeprecationCondition::There,
        "write spec.disruption.consolidateAfter: 0s (on) or Never (off)",
    ),
    (
        "/spec/requirements",
        DeprecationCondition::There,
        "write spec.template.spec.requirements",
    ),
    (
        "/spec/taints",
        DeprecationCondition::There,
        "write spec.template.spec.taints",
    ),
    (
        "/spec/startupTaints",
        DeprecationCondition::There,
        "write spec.template.spec.startupTaints",
    ),
    (
        "/spec/labels",
        DeprecationCondition::There,
        "write spec.template.metadata.labels",
    ),
    (
        "/spec/annotations",
        DeprecationCondition::There,
        "write spec.template.metadata.annotations",
    ),
    (
        "/spec/expireAfter",
        DeprecationCondition::There,
        "write spec.template.spec.expireAfter",
    ),
    (
        "/spec/terminationGracePeriod",
        DeprecationCondition::There,
        "write spec.template.spec.terminationGracePeriod",
    ),
    (
        "/spec/consolidationPolicy",
        DeprecationCondition::There,
        "write spec.disruption.consolidationPolicy",
    ),
    (
        "/spec/consolidateAfter",
        DeprecationCondition::There,
        "write spec.disruption.consolidateAfter",
    ),
    (
        "/spec/budgets",
        DeprecationCondition::There,
        "write spec.disruption.budgets",
    ),
    (
        "/spec/limits/resources",
        DeprecationCondition::There,
        "write the amounts into spec.limits itself",
    ),
    (
        "/spec/template/spec/nodeClassRef/apiVersion",
        DeprecationCondition::There,
        "write group, without the version",
    ),
    (
        "/spec/disruption/expireAfter",
        DeprecationCondition::There,
        "write spec.template.spec.expireAfter",
    ),
    (
        "/spec/disruption/consolidationPolicy",
        DeprecationCondition::Is("WhenUnderutilized"),
        "write WhenEmptyOrUnderutilized",
    ),
    (
        "/spec/template/spec/requirements/*/key",
        DeprecationCondition::Is("karpenter.sh/do-not-consolidate"),
        "annotate pods or nodes with karpenter.sh/do-not-disrupt: \"true\"",
    ),
    (
        "/spec/template/spec/requirements/*/key",
        DeprecationCondition::Is("karpenter.sh/do-not-evict"),
        "annotate pods or nodes with karpenter.sh/do-not-disrupt: \"true\"",
    ),
    (
        "/spec/template/spec/requirements/*/key",
        DeprecationCondition::Is("karpenter.sh/provisioner-name"),
        "leave it out: nodes get karpenter.sh/nodepool by themselves",
    ),
    (
        "/spec/template/metadata/labels/karpenter.sh~1provisioner-name",
        DeprecationCondition::There,
        "leave it out: nodes get karpenter.sh/nodepool by themselves",
    ),
    (
        "/spec/template/metadata/annotations/karpenter.sh~1do-not-consolidate",
        DeprecationCondition::There,
        "write karpenter.sh/do-not-disrupt",
    ),
    (
        "/spec/template/metadata/annotations/karpenter.sh~1do-not-evict",
        DeprecationCondition::There,
        "write karpenter.sh/do-not-disrupt",
    ),
    (
        "/disruption",
        DeprecationCondition::There,
        "write spec.disruption",
    ),
    (
        "/template",
        DeprecationCondition::There,
        "write spec.template",
    ),
    ("/limits", DeprecationCondition::There, "write spec.limits"),
    ("/weight", DeprecationCondition::There, "write spec.weight"),
];

const CLAIM: &[Row] = &[(
    "/spec/nodeClassRef/apiVersion",
    DeprecationCondition::There,
    "write group, without the version",
)];

/// What to write instead of fields of a NodePool, a NodeClaim or a node class (and what they were called first) that are gone
/// or misplaced, in the order of their places; nothing for other kinds. Budgets with a duration and no schedule are among them.
///
/// # Cost
/// Some lookups, and reading the last applied configuration once where there is one.
#[must_use]
pub fn advice(classes: &NodeClassRegistry, object: &Value) -> Vec<DeprecationAdvice> {
    let Some(kind) = object.get("kind").and_then(Value::as_str) else {
        return Vec::new();
    };
    let rows = rows_of(classes, kind);
    if rows.is_empty() {
        return Vec::new();
    }
    let given: Option<Value> = object
        .pointer(LAST_APPLIED)
        .and_then(Value::as_str)
        .filter(|text| text.len() <= LONGEST_ANNOTATION)
        .and_then(|text| serde_json::from_str(text).ok());
    let mut found = Vec::new();
    for object in std::iter::once(object).chain(&given) {
        for (pointer, when, instead) in &rows {
            walk(object, pointer, String::new(), &mut |field, value| {
                let holds = match when {
                    DeprecationCondition::There => !value.is_null(),
                    DeprecationCondition::Is(text) => value == text,
                };
                if holds {
                    found.push(filled(field, value, instead));
                }
            });
        }
        budgets(object, &mut found);
    }
    found.sort();
    found.dedup_by(|a, b| a.field == b.field);
    found
}

/// What to write instead of a kind or a version that is not served; `None` for those that are, and for kinds of others.
#[must_use]
pub fn kind_advice(classes: &NodeClassRegistry, api_version: &str, kind: &str) -> Option<String> {
    let (group, version) = api_version.split_once('/')?;
    let now = match (group, kind) {
        (GROUP, "Provisioner") => format!("NodePool of {GROUP}/{V1}"),
        (GROUP, "Machine") => {
            return Some("NodeClaim, which the service makes itself: leave it out".to_owned());
        }
        (GROUP, "NodePool" | "NodeClaim") if version != V1 => format!("{group}/{V1}"),
        _ => {
            let class = classes.of_group(group)?;
            let now = class.kind();
            if class.former_kinds().contains(&kind) {
                format!("{} of {group}/{}", now.kind, now.version)
            } else if kind == now.kind && version != now.version && class.old_version().is_some() {
                format!("{group}/{}", now.version)
            } else {
                return None;
            }
        }
    };
    Some(format!("{now}; `mortise migrate` converts it"))
}

/// The rows for a kind.
fn rows_of(classes: &NodeClassRegistry, kind: &str) -> Vec<Row> {
    let own = match kind {
        "NodePool" | "Provisioner" => POOL,
        "NodeClaim" => CLAIM,
        _ => &[],
    };
    let of_classes = classes
        .iter()
        .flat_map(|class| class.deprecated_fields())
        .filter(|row| row.kinds.contains(&kind))
        .map(|row| (row.pointer, row.when, row.instead));
    own.iter().copied().chain(of_classes).collect()
}

fn filled(field: &str, value: &Value, instead: &str) -> DeprecationAdvice {
    let text = value.to_string();
    let mut found: String = text.chars().take(QUOTED).collect();
    if found.len() < text.len() {
        found = text.chars().take(QUOTED - 3).collect();
        found.push_str("...");
    }
    // A map or a long text is not repeated in the advice.
    let short = value.as_str().map_or_else(|| text.clone(), str::to_owned);
    let short = if short.chars().count() > QUOTED {
        "...".to_owned()
    } else {
        short
    };
    DeprecationAdvice {
        field: field.to_owned(),
        found,
        instead: if value.is_object() {
            instead.replace("{}", "{...}")
        } else {
            instead.replace("{}", &short)
        },
    }
}

/// Calls for each value at a pointer.
fn walk(value: &Value, pointer: &str, at: String, see: &mut impl FnMut(&str, &Value)) {
    let Some(rest) = pointer.strip_prefix('/') else {
        see(&at, value);
        return;
    };
    let (name, rest) = match rest.split_once('/') {
        Some((name, _)) => (name, rest.get(name.len()..).unwrap_or_default()),
        None => (rest, ""),
    };
    if name == "*" {
        for (index, item) in items(value).enumerate() {
            walk(item, rest, format!("{at}[{index}]"), see);
        }
        return;
    }
    let name = name.replace("~1", "/");
    if let Some(next) = value.get(&name) {
        let at = if at.is_empty() {
            name
        } else {
            format!("{at}.{name}")
        };
        walk(next, rest, at, see);
    }
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten().take(MOST_ITEMS)
}

fn budgets(object: &Value, found: &mut Vec<DeprecationAdvice>) {
    walk(
        object,
        "/spec/disruption/budgets/*",
        String::new(),
        &mut |field, budget| {
            if let Some(duration) = budget.get("duration")
                && budget.get("schedule").is_none()
            {
                found.push(filled(
                &format!("{field}.duration"),
                duration,
                "leave it out (the budget always holds, for nodes that go at one time), or add a schedule",
            ));
            }
        },
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::sync::LazyLock;

    static NO_CLASSES: LazyLock<NodeClassRegistry> = LazyLock::new(NodeClassRegistry::default);

    fn put(pointer: &str, value: Value) -> Value {
        let mut all = value;
        for name in pointer
            .split('/')
            .skip(1)
            .collect::<Vec<_>>()
            .into_iter()
            .rev()
        {
            all = if name == "*" {
                json!([all])
            } else {
                json!({ name.replace("~1", "/"): all })
            };
        }
        all
    }

    #[test]
    fn every_row_answers_for_its_field() {
        for (kind, rows) in [("NodePool", POOL), ("NodeClaim", CLAIM)] {
            for (pointer, when, instead) in rows {
                let value = match when {
                    DeprecationCondition::There => json!(30),
                    DeprecationCondition::Is(text) => json!(text),
                };
                let mut object = put(pointer, value.clone());
                object["kind"] = json!(kind);
                let said = advice(&NO_CLASSES, &object);
                assert_eq!(said.len(), 1, "{kind} {pointer}: {said:?}");
                assert_eq!(said[0].found, value.to_string(), "{pointer}");
                assert_eq!(said[0].instead, instead.replace("{}", "30"), "{pointer}");
                let name = pointer.rsplit('/').next().unwrap().replace("~1", "/");
                assert!(said[0].field.ends_with(&name), "{said:?}");
                // The same when the API server has dropped it, but kubectl kept what it was given.
                let kept = json!({
                    "kind": kind,
                    "metadata": { "annotations": { "kubectl.kubernetes.io/last-applied-configuration": object.to_string() } },
                });
                assert_eq!(advice(&NO_CLASSES, &kept), said, "{pointer}");
                let others = json!({ "kind": "Deployment", "spec": object["spec"] });
                assert_eq!(advice(&NO_CLASSES, &others), []);
            }
        }
    }

    #[test]
    fn what_is_right_gets_no_advice() {
        let pool = json!({
            "kind": "NodePool",
            "metadata": { "annotations": { "kubectl.kubernetes.io/last-applied-configuration": "no JSON" } },
            "spec": {
                "weight": 1,
                "limits": { "cpu": 1 },
                "disruption": {
                    "consolidationPolicy": "WhenEmpty",
                    "consolidateAfter": "0s",
                    "budgets": [{ "nodes": "1" }, { "nodes": "0", "schedule": "@daily", "duration": "1h" }],
                },
                "template": { "metadata": { "labels": { "a": "b" } }, "spec": {
                    "expireAfter": "Never", "requirements": [{ "key": "a", "operator": "Exists" }],
                    "nodeClassRef": { "group": "g", "kind": "K", "name": "n" },
                } },
            },
        });
        assert_eq!(advice(&NO_CLASSES, &pool), []);
    }

    #[test]
    fn sentences() {
        let pool = json!({
            "kind": "NodePool",
            "spec": {
                "ttlSecondsAfterEmpty": 30,
                "disruption": { "budgets": [{ "nodes": "10%", "duration": "5m" }] },
            },
        });
        let said: Vec<String> = advice(&NO_CLASSES, &pool)
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            said,
            [
                "spec.disruption.budgets[0].duration: \"5m\": leave it out (the budget always holds, for nodes that go at one time), or add a schedule",
                "spec.ttlSecondsAfterEmpty: 30: write spec.disruption: {consolidationPolicy: WhenEmpty, consolidateAfter: 30s}",
            ]
        );
    }

    #[test]
    fn kinds() {
        for (version, kind, part) in [
            (
                "karpenter.sh/v1alpha5",
                "Provisioner",
                "NodePool of karpenter.sh/v1",
            ),
            (
                "karpenter.sh/v1beta1",
                "NodePool",
                "karpenter.sh/v1; `mortise migrate`",
            ),
            ("karpenter.sh/v1alpha5", "Machine", "leave it out"),
        ] {
            let said = kind_advice(&NO_CLASSES, version, kind).unwrap();
            assert!(said.contains(part), "{said}");
        }
        for (version, kind) in [
            ("karpenter.sh/v1", "NodePool"),
            ("apps/v1", "Deployment"),
            ("karpenter.sh/v1alpha1", "NodeOverlay"),
            ("other.io/v1beta1", "NodePool"),
        ] {
            assert_eq!(kind_advice(&NO_CLASSES, version, kind), None);
        }
    }
}
