//! What only the cluster and the catalogue can tell: missing classes, unknown values, sets that match nothing.

use std::collections::BTreeSet;
use std::sync::Arc;

use mortise_core::apis::nodepool::NodePool;
use mortise_core::catalog::Catalog;
use mortise_core::cloud::InstanceType;
use mortise_core::labels::{self, WellKnown};
use mortise_core::nearest::nearest;
use mortise_core::requirements::{Operator, Requirement, Requirements};
use mortise_core::served::Served;
use mortise_core::snapshot::Snapshot;
use serde_json::Value;

use super::Rules;
use super::review::{Answer, Kind};

/// Advice on a pool.
pub(super) fn pool(snapshot: &Snapshot, rules: &Rules, pool: &NodePool, answer: &mut Answer) {
    let reference = &pool.spec.template.spec.node_class_ref;
    let key = pool.node_class_key();
    if !reference.name.is_empty() && snapshot.synced {
        let served = rules
            .node_class_kinds
            .iter()
            .any(|kind| kind.group == reference.group && kind.kind == reference.kind);
        if !served {
            let served = Served::only(rules.node_class_kinds.clone());
            answer.warnings.push(format!(
                "nodeClassRef: no provider here serves {}.{}; served: {served}",
                reference.kind, reference.group,
            ));
        } else if !snapshot.node_classes.contains_key(&key) {
            let names = snapshot
                .node_classes
                .keys()
                .filter(|known| known.kind == key.kind)
                .map(|known| known.name.to_string());
            let hint = nearest(&reference.name, names)
                .map(|name| format!("; did you mean \"{name}\"?"))
                .unwrap_or_default();
            answer.warnings.push(format!(
                "nodeClassRef: {} \"{}\" does not exist (yet){hint}",
                reference.kind, reference.name
            ));
        }
    }
    // A class that does not exist yet has no catalogue; one of its kind tells the same names.
    let same_kind = || {
        let mut of_kind = snapshot
            .catalogs
            .iter()
            .filter(|(known, _)| known.kind == key.kind && known.group == key.group);
        of_kind.next().map(|(_, catalog)| catalog)
    };
    let Some(catalog) = snapshot.catalog_of(pool).or_else(same_kind) else {
        return;
    };
    for requirement in pool.requirements().iter() {
        answer.warnings.extend(unknown_values(catalog, requirement));
    }
    if let Some(text) = impossible(catalog, &pool.requirements(), &snapshot.well_known) {
        if rules.deny_impossible {
            answer.denied.push(text);
        } else {
            answer.warnings.push(text);
        }
    }
}

/// Values of a well-known key that no instance type of the catalogue has.
fn unknown_values(catalog: &Catalog, requirement: &Requirement) -> Vec<String> {
    if requirement.operator() != Operator::In || requirement.key() == labels::NODEPOOL {
        return Vec::new();
    }
    let mut known: BTreeSet<&str> = BTreeSet::new();
    for each in catalog.types() {
        known.extend(
            each.requirements
                .get(requirement.key())
                .into_iter()
                .flat_map(|values| values.values().iter().map(|value| &**value)),
        );
    }
    if known.is_empty() {
        return Vec::new();
    }
    let unknown = requirement
        .values()
        .iter()
        .filter(|value| !known.contains(&***value));
    unknown
        .map(|value| {
            let hint = nearest(value, known.iter().copied())
                .map(|near| format!("; did you mean \"{near}\"?"))
                .unwrap_or_default();
            format!(
                "{}: no instance type has \"{value}\"{hint}",
                short(requirement.key())
            )
        })
        .collect()
}

/// A label key without its domain reads well within the length of a warning.
fn short(key: &str) -> &str {
    key.rsplit('/').next().unwrap_or(key)
}

/// Which requirement removed the last instance type, if one did. Requirements are applied by the number of types that
/// each leaves on its own, the mildest first, so that the one named is the one to blame.
fn impossible(
    catalog: &Catalog,
    requirements: &Requirements,
    well_known: &WellKnown,
) -> Option<String> {
    let matches = |requirement: &Requirement, each: &InstanceType| {
        if requirement.key() == labels::NODEPOOL {
            return true;
        }
        match each.requirements.get(requirement.key()) {
            Some(own) => own.has_intersection(requirement),
            // A label of the pool's own that types do not have is put on the node by the template.
            None => !well_known.contains(requirement.key()) || requirement.allows_absence(),
        }
    };
    let mut each: Vec<(&Requirement, usize)> = requirements
        .iter()
        .map(|requirement| {
            (
                requirement,
                catalog
                    .types()
                    .iter()
                    .filter(|t| matches(requirement, t))
                    .count(),
            )
        })
        .collect();
    each.sort_by_key(|(requirement, count)| {
        (std::cmp::Reverse(*count), requirement.key().to_owned())
    });
    let mut left: Vec<_> = catalog.types().iter().collect();
    for (requirement, _) in each {
        let before = left.clone();
        left.retain(|each| matches(requirement, each));
        if left.is_empty() && !before.is_empty() {
            return Some(format!(
                "no instance type is left by {}; the other rules leave {}{}",
                cut(&requirement.to_string().replacen(
                    requirement.key(),
                    short(requirement.key()),
                    1
                )),
                before.len(),
                having(&before, requirement.key())
            ));
        }
    }
    None
}

/// Enough to know the rule again: what follows it in the warning matters more than a long list of values.
fn cut(text: &str) -> String {
    const MOST: usize = 45;
    if text.chars().count() <= MOST {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(MOST - 3).collect();
    short.push_str("...");
    short
}

/// What the types have of a key: one of these in the rule would bring types back.
fn having(types: &[&Arc<InstanceType>], key: &str) -> String {
    let of = |each: &&Arc<InstanceType>| {
        let own = each.requirements.get(key);
        own.map(|own| own.values().to_vec()).unwrap_or_default()
    };
    let values: BTreeSet<_> = types.iter().flat_map(of).collect();
    let numbers: Option<BTreeSet<i64>> = values.iter().map(|value| value.parse().ok()).collect();
    match (numbers, values.len()) {
        (_, 0) => format!(", without {}", short(key)),
        (Some(numbers), 4..) => {
            let ends = (numbers.first(), numbers.last());
            let (Some(first), Some(last)) = ends else {
                return String::new();
            };
            format!(", with {first} to {last}")
        }
        (_, count) => {
            let shown: Vec<&str> = values.iter().take(3).map(|value| &**value).collect();
            let more = if count > 3 { ", ..." } else { "" };
            format!(", with {}{more}", shown.join(", "))
        }
    }
}

/// Deleting a pool drains what it has.
pub(super) fn deleting_pool(snapshot: &Snapshot, name: &str) -> Option<String> {
    let (mut nodes, mut pods) = (0, 0);
    for node in snapshot.nodes_of_pool(name) {
        nodes += 1;
        pods += node.reschedulable().count();
    }
    (nodes > 0)
        .then(|| format!("deleting NodePool \"{name}\" drains {nodes} nodes with {pods} pods"))
}

/// Deleting a class that claims use.
pub(super) fn deleting_class(snapshot: &Snapshot, kind: &Kind, name: &str) -> Option<String> {
    let uses = |reference: &mortise_core::apis::names::NodeClassRef| {
        reference.kind == kind.kind && reference.group == kind.group && reference.name == name
    };
    let claims = snapshot
        .claims
        .values()
        .filter(|claim| uses(&claim.spec.node_class_ref))
        .count();
    (claims > 0).then(|| {
        format!(
            "{} \"{name}\" is used by {claims} NodeClaims and goes when they are gone",
            kind.kind
        )
    })
}

/// Advice on an EC2NodeClass that needs no cloud.
pub(super) fn ec2_class(object: &Value, answer: &mut Answer) {
    let empty = |at: &str| {
        object
            .pointer(at)
            .and_then(Value::as_array)
            .is_none_or(Vec::is_empty)
    };
    for field in [
        "subnetSelectorTerms",
        "securityGroupSelectorTerms",
        "amiSelectorTerms",
    ] {
        if empty(&format!("/spec/{field}")) {
            answer
                .denied
                .push(format!("spec.{field}: at least one term is needed"));
        }
    }
    let has = |field: &str| {
        object
            .pointer(&format!("/spec/{field}"))
            .and_then(Value::as_str)
            .is_some_and(|text| !text.is_empty())
    };
    if !has("role") && !has("instanceProfile") {
        answer
            .denied
            .push("spec: one of role and instanceProfile is needed".to_owned());
    }
}

#[cfg(test)]
mod tests {
    use mortise_core::resources::Resources;

    use super::*;

    /// Types of 1, 2, 4, ... 128 CPUs for each architecture, in these zones.
    fn catalog() -> Catalog {
        let of = |arch: &str, cpu: i64| InstanceType {
            name: format!("{arch}-{cpu}").into(),
            requirements: Requirements::from_iter([
                Requirement::is(labels::INSTANCE_TYPE, format!("{arch}-{cpu}")),
                Requirement::is(labels::ARCH, arch),
                Requirement::is(labels::kwok::INSTANCE_CPU, cpu.to_string()),
                Requirement::new(labels::TOPOLOGY_ZONE, Operator::In, ["a", "b"]),
            ]),
            capacity: Resources::of(cpu * 1_000, 1 << 30),
            overhead: Resources::default(),
            offerings: Vec::new(),
        };
        let sizes = || (0..8).map(|power| 1 << power);
        let amd = sizes().map(|cpu| of("amd64", cpu));
        Catalog::build(amd.chain(sizes().map(|cpu| of("arm64", cpu))).collect())
    }

    #[test]
    fn the_rule_to_blame_comes_first_and_then_what_would_fit() {
        let long = (0..40).map(|n| format!("some-long-name-{n}"));
        let cases = [
            (
                vec![Requirement::new(
                    labels::kwok::INSTANCE_CPU,
                    Operator::Gt,
                    ["500"],
                )],
                "no instance type is left by instance-cpu Exists >=501; the other rules leave 16, with 1 to 128",
            ),
            (
                vec![
                    Requirement::is(labels::ARCH, "arm64"),
                    Requirement::is(labels::TOPOLOGY_ZONE, "c"),
                ],
                "no instance type is left by zone In [c]; the other rules leave 8, with a, b",
            ),
            (
                vec![
                    Requirement::is(labels::ARCH, "arm64"),
                    Requirement::is(labels::INSTANCE_TYPE, "amd64-4"),
                ],
                "no instance type is left by instance-type In [amd64-4]; the other rules leave 8, with arm64-1, arm64-128, arm64-16, ...",
            ),
            (
                vec![Requirement::new(labels::ARCH, Operator::In, long)],
                "no instance type is left by arch In [some-long-name-0 some-long-name-1 some...; the other rules leave 16, with amd64, arm64",
            ),
        ];
        for (requirements, want) in cases {
            let said = impossible(
                &catalog(),
                &Requirements::from_iter(requirements),
                &WellKnown::kwok(),
            );
            let said = said.unwrap_or_default();
            assert_eq!(said, want);
            assert!(said.chars().count() <= 122, "{}", said.chars().count());
        }
        let some = Requirements::from_iter([Requirement::is(labels::ARCH, "arm64")]);
        assert_eq!(impossible(&catalog(), &some, &WellKnown::kwok()), None);
    }

    #[test]
    fn a_class_of_another_provider_is_answered_and_nothing_else_is_asked_of_its_pool() {
        let rules = Rules {
            node_class_kinds: vec![mortise_core::cloud::NodeClassKind {
                group: "karpenter.kwok.sh",
                version: "v1alpha1",
                kind: "KWOKNodeClass",
                plural: "kwoknodeclasses",
            }],
            ..Rules::default()
        };
        let theirs: NodePool = serde_json::from_value(serde_json::json!({
            "metadata": { "name": "theirs" },
            "spec": { "template": { "spec": {
                "nodeClassRef": { "group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default" },
                "requirements": [{ "key": labels::ARCH, "operator": "In", "values": ["none"] }],
            } } },
        }))
        .unwrap();
        let now = jiff::Timestamp::UNIX_EPOCH;
        let mut index = mortise_core::index::Index::new(WellKnown::kwok(), true, now);
        index.set_synced();
        let mut answer = Answer::default();
        pool(&index.freeze(now), &rules, &theirs, &mut answer);
        assert_eq!(
            answer.warnings,
            [
                "nodeClassRef: no provider here serves EC2NodeClass.karpenter.k8s.aws; served: KWOKNodeClass.karpenter.kwok.sh"
            ]
        );
        assert!(answer.denied.is_empty());
    }
}
