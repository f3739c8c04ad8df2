//! The node class of Amazon EC2: what admission, lint, conversion, CRDs and RBAC need to know of it, and what an account needs
//! before nodes can be launched in it (`install`). What its fields mean to the cloud is in `crates/providers/aws`.
//!
//! Pure: no input or output, no clock, no environment, no logging.

mod contradictions;
pub mod conversion;
mod crd;
mod deprecated_fields;
mod go_json;
pub mod hash;
pub mod install;
mod kubelet;
pub mod kubelet_configuration;
mod kubelet_fields;
pub mod labels;
mod patterns;
mod rules;
mod selector_terms;
pub mod spec;
pub mod status;

use mortise_apis::issues::{IssueCollector, PatternDescription, RuleCheck};
use mortise_apis::node_class::{
    ClassContradiction, ClassHash, DeprecatedField, LabelTable, NodeClassApi, NodeClassKind,
    OldVersion,
};
use mortise_apis::requirements::Requirements;
use mortise_apis::schema::crd_manifest::CrdManifest;
use serde_json::Value;

use hash::HASH_VERSION;
use spec::{Ec2NodeClass, KIND};

/// The API of EC2NodeClass.
#[derive(Clone, Copy, Debug)]
pub struct Ec2NodeClassApi;

fn read(object: &Value) -> Option<Ec2NodeClass> {
    serde_json::from_value(object.clone()).ok()
}

impl NodeClassApi for Ec2NodeClassApi {
    fn kind(&self) -> NodeClassKind {
        KIND
    }

    fn crd(&self) -> CrdManifest {
        crd::ec2_node_class()
    }

    fn labels(&self) -> LabelTable {
        labels::LABELS
    }

    fn edit_spec_of(&self, kind: &str, spec: &mut Value) {
        if kind == "NodePool" {
            crd::edit_pool_spec(spec);
        }
    }

    fn rule_check(&self, message: &str) -> Option<RuleCheck> {
        rules::native_check(message)
    }

    fn pattern(&self, pattern: &str) -> Option<PatternDescription> {
        patterns::description(pattern)
    }

    fn example(&self, field: &str) -> Option<&'static str> {
        Some(match field {
            "amiSelectorTerms" => "amiSelectorTerms: [{alias: al2023@latest}]",
            "subnetSelectorTerms" => {
                "subnetSelectorTerms: [{tags: {karpenter.sh/discovery: <cluster>}}]"
            }
            "securityGroupSelectorTerms" => {
                "securityGroupSelectorTerms: [{tags: {karpenter.sh/discovery: <cluster>}}]"
            }
            _ => return None,
        })
    }

    fn issues(&self, spec: &Value, issues: &mut IssueCollector) {
        kubelet::faults(spec, issues);
        selector_terms::mixed_terms(spec, issues);
    }

    fn contradictions(&self, object: &Value, pool: &Requirements) -> Vec<ClassContradiction> {
        contradictions::contradictions(object, pool)
    }

    /// Without the certificate of the cluster, which the provider hashes along: two specs are compared in one cluster.
    fn hash(&self, object: &Value) -> Option<ClassHash> {
        let class = read(object)?;
        Some(ClassHash {
            version: HASH_VERSION,
            value: class.hash(""),
        })
    }

    fn changes_selectors(&self, old: &Value, new: &Value) -> bool {
        let (Some(old), Some(new)) = (read(old), read(new)) else {
            return false;
        };
        let (new, old) = (&new.spec, &old.spec);
        new.ami_selector_terms != old.ami_selector_terms
            || new.subnet_selector_terms != old.subnet_selector_terms
            || new.security_group_selector_terms != old.security_group_selector_terms
            || new.capacity_reservation_selector_terms != old.capacity_reservation_selector_terms
    }

    fn old_version(&self) -> Option<OldVersion> {
        Some(OldVersion {
            spec: conversion::old_spec,
            up: conversion::up,
            down: conversion::down,
        })
    }

    fn former_kinds(&self) -> &'static [&'static str] {
        deprecated_fields::FORMER_KINDS
    }

    fn deprecated_fields(&self) -> &'static [DeprecatedField] {
        deprecated_fields::FIELDS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mortise_apis::CrdSet;
    use mortise_apis::validation::{coverage, faults};
    use serde_json::json;

    fn definitions() -> CrdSet {
        CrdSet::of_class(&Ec2NodeClassApi)
    }

    #[test]
    fn every_pattern_and_every_rule_of_the_definitions_is_known() {
        let coverage = coverage(&definitions());
        assert!(
            coverage.schemas > 150 && coverage.rules > 60,
            "{coverage:?}"
        );
        assert_eq!(coverage.unanswered, Vec::<String>::new());
    }

    #[test]
    fn any_value_gets_an_answer() {
        let known = labels::well_known();
        for spec in [
            json!({ "amiSelectorTerms": { "a": 1 }, "kubelet": [], "tags": "x" }),
            json!({ "kubelet": { "maxPods": "many" } }),
            json!(7),
        ] {
            let object = json!({ "spec": spec });
            let found = faults(&definitions(), &known, KIND.kind, &object, Some(&object));
            assert!(
                found.iter().all(|issue| !issue.field.is_empty()),
                "{found:?}"
            );
        }
    }
}
