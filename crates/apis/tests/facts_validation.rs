//! Recorded verdicts: what API servers take, what pools are refused at run time, and what kubelet settings are valid.

#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking where its expectation stands"
)]

mod facts;

use facts::check;
use mortise_apis::CrdSet;
use mortise_apis::labels::WellKnown;
use mortise_apis::validation::{FieldIssue, IssueSeverity, faults};
use serde_json::{Value, json};

fn texts(found: &[FieldIssue]) -> Vec<String> {
    found
        .iter()
        .map(|fault| format!("{:?} {fault}", fault.weight))
        .collect()
}

/// `Ok` when a verdict is the recorded one.
fn agrees(valid: bool, found: &[FieldIssue]) -> Result<(), String> {
    if valid == found.is_empty() {
        Ok(())
    } else if valid {
        Err(format!("is valid, but: {:#?}", texts(found)))
    } else {
        Err("is not valid, but nothing was found".to_owned())
    }
}

#[test]
fn definitions_take_what_api_servers_take() {
    check("crd_admission", |case| {
        let set = match case["crds"].as_str() {
            Some("aws") => CrdSet::Aws,
            _ => CrdSet::Core,
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
fn pools_are_valid_as_at_run_time() {
    check("runtime_validate", |case| {
        let kind = case["object"]["kind"].as_str().unwrap();
        let mut found = faults(
            CrdSet::Core,
            &WellKnown::core(),
            kind,
            &case["object"],
            None,
        );
        found.retain(|fault| fault.weight != IssueSeverity::Suspicious);
        // An empty taint value is refused by the pattern of the definition and never reaches the check at run time.
        found.retain(|fault| !(fault.field.ends_with(".value") && fault.value == "\"\""));
        agrees(case["valid"] == json!(true), &found)
    });
}

#[test]
fn kubelet_settings_are_valid_as_recorded() {
    check("kubelet_validate", |case| {
        let object = json!({ "spec": {
            "amiFamily": "AL2023",
            "amiSelectorTerms": [{ "alias": "al2023@latest" }],
            "kubelet": case["kubelet"],
            "role": "nodes",
            "securityGroupSelectorTerms": [{ "id": "sg-1" }],
            "subnetSelectorTerms": [{ "id": "subnet-1" }],
        } });
        let mut found: Vec<FieldIssue> = faults(
            CrdSet::Aws,
            &WellKnown::aws(),
            "EC2NodeClass",
            &object,
            None,
        );
        found.retain(|fault| fault.field.starts_with("spec.kubelet"));
        agrees(case["valid"] == Value::Bool(true), &found)
    });
}
