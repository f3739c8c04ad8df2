//! Recorded verdicts: what API servers take, and what kubelet settings are valid; hashes and label tables.

#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking where its expectation stands"
)]

#[path = "../../../../apis/tests/facts/mod.rs"]
mod facts;

use facts::{agrees, check, check_hashes, table, texts};
use mortise_apis::CrdSet;
use mortise_apis::issues::{FieldIssue, IssueSeverity};
use mortise_apis::labels::WellKnown;
use mortise_apis::validation::faults;
use mortise_aws_class::hash::HASH_VERSION;
use mortise_aws_class::labels::well_known;
use mortise_aws_class::spec::Ec2NodeClass;
use mortise_aws_class::{Ec2NodeClassApi, kubelet_configuration};
use serde_json::{Map, Value, json};

fn definitions() -> CrdSet {
    CrdSet::of_class(&Ec2NodeClassApi)
}

#[test]
fn definitions_take_what_api_servers_take() {
    let aws = definitions();
    check("crd_admission", |case| {
        let set = match case["crds"].as_str() {
            Some("aws") => &aws,
            _ => CrdSet::core(),
        };
        let kind = case["kind"].as_str().unwrap();
        let previous = case.get("previous").filter(|previous| !previous.is_null());
        let mut found = faults(set, &WellKnown::core(), kind, &case["object"], previous);
        // The API server knows nothing beyond the definition.
        found.retain(|fault| fault.weight == IssueSeverity::Schema);
        agrees(case["accepted"] == json!(true), &found)
    });
}

#[test]
fn kubelet_settings_are_valid_as_recorded() {
    let aws = definitions();
    check("kubelet_validate", |case| {
        let object = json!({ "spec": {
            "amiFamily": "AL2023",
            "amiSelectorTerms": [{ "alias": "al2023@latest" }],
            "kubelet": case["kubelet"],
            "role": "nodes",
            "securityGroupSelectorTerms": [{ "id": "sg-1" }],
            "subnetSelectorTerms": [{ "id": "subnet-1" }],
        } });
        let mut found: Vec<FieldIssue> = faults(&aws, &well_known(), "EC2NodeClass", &object, None);
        found.retain(|fault| fault.field.starts_with("spec.kubelet"));
        agrees(case["valid"] == Value::Bool(true), &found)
    });
}

#[test]
fn kubelet_settings_have_the_recorded_faults() {
    check("kubelet_validate", |case| {
        let none = Map::new();
        let kubelet = case["kubelet"].as_object().unwrap_or(&none);
        let (ours, recorded) = (
            kubelet_configuration::faults(kubelet),
            texts(&case["errors"]),
        );
        if ours == recorded {
            Ok(())
        } else {
            Err(format!("ours {ours:?}, recorded {recorded:?}"))
        }
    });
}

#[test]
fn hashes_are_as_recorded() {
    check_hashes(
        "ec2nodeclass_hash",
        "ec2NodeClass",
        HASH_VERSION,
        |class: &Ec2NodeClass, case| class.hash(case["caBundle"].as_str().unwrap_or_default()),
    );
}

#[test]
fn label_tables_are_as_recorded() {
    let names = |all: Vec<&std::sync::Arc<str>>| -> Vec<String> {
        all.into_iter().map(ToString::to_string).collect()
    };
    let recorded = table("aws_label_tables");
    let aws = well_known();
    assert_eq!(
        names(aws.keys().collect()),
        texts(&recorded["wellKnownLabels"])
    );
    assert_eq!(
        names(aws.domains().collect()),
        texts(&recorded["restrictedDomains"])
    );
    for (key, values) in recorded["wellKnownValues"].as_object().unwrap() {
        let mut theirs = texts(values);
        theirs.sort();
        assert_eq!(
            aws.known_values(key)
                .map(|known| names(known.iter().collect())),
            Some(theirs),
            "{key}"
        );
    }
}
