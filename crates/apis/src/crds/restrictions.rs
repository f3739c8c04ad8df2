//! Rules on label keys: some domains belong to the autoscaler or to a provider, and users may set only certain keys in
//! them.

use std::fmt::Write as _;

use serde_json::Value;

use crate::node_class::{KeyLocation, NodeClassRegistry};
use crate::schema::fields::rule;

/// A domain that is not the user's, and the keys in it that users may set all the same.
struct LabelDomain {
    name: &'static str,
    open: &'static [&'static str],
}

const AUTOSCALER: LabelDomain = LabelDomain {
    name: "karpenter.sh",
    open: &["capacity-type", "nodepool"],
};

/// The rules on keys for one place, in the order in which they are reported.
pub(super) fn rules(classes: &NodeClassRegistry, place: KeyLocation) -> Value {
    let mut rules = vec![domain_rule(place, &AUTOSCALER)];
    if matches!(
        place,
        KeyLocation::PoolLabels | KeyLocation::PoolRequirement
    ) {
        rules.push(key_rule(place, "karpenter.sh/nodepool"));
    }
    rules.push(key_rule(place, "kubernetes.io/hostname"));
    for class in classes.iter() {
        let labels = class.labels();
        if let Some(open) = labels.open_at(place) {
            let name = labels.domain;
            rules.push(domain_rule(place, &LabelDomain { name, open }));
        }
    }
    Value::Array(rules)
}

fn domain_rule(place: KeyLocation, domain: &LabelDomain) -> Value {
    let mut open = String::new();
    for key in domain.open {
        let separator = if open.is_empty() { "" } else { ", " };
        let _infallible = write!(open, "{separator}\"{}/{key}\"", domain.name);
    }
    let allowed = |key: &str| {
        format!(
            "{key} in [{open}] || !{key}.find(\"^([^/]+)\").endsWith(\"{}\")",
            domain.name
        )
    };
    rule(
        &on_keys(place, allowed),
        &format!("label domain \"{}\" is restricted", domain.name),
    )
}

fn key_rule(place: KeyLocation, restricted: &str) -> Value {
    rule(
        &on_keys(place, |key| format!("{key} != \"{restricted}\"")),
        &format!("label \"{restricted}\" is restricted"),
    )
}

fn on_keys(place: KeyLocation, condition: impl Fn(&str) -> String) -> String {
    if place == KeyLocation::PoolLabels {
        format!("self.all(x, {})", condition("x"))
    } else {
        condition("self")
    }
}
