//! Validation: what can never work is refused, what hardly means what it says gets a warning.

use std::collections::BTreeSet;

use mortise_apis::deprecated_fields::{self, DeprecationAdvice};
use mortise_apis::karpenter::nodepool::NodePool;
use mortise_apis::validation::{IssueSeverity, IssueTopic, faults};
use serde_json::Value;

use super::finding::Check;
use super::review::{AdmissionRequest, AdmissionResult};
use super::{AdmissionContext, checks, preview};

/// Longest text of it that is read: API servers take no longer annotations.
const LONGEST_WRITTEN: usize = 256 << 10;

/// Where `kubectl apply` leaves the object as its user wrote it.
const AS_WRITTEN: &str = "/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration";

/// Answers a validation request. Deletions are refused only where an annotation of the object asks for it.
#[must_use]
pub fn validate(facts: &AdmissionContext<'_>, request: &AdmissionRequest) -> AdmissionResult {
    let mut answer = AdmissionResult::default();
    if request.operation == "DELETE" {
        checks::deletion(facts, request, &mut answer);
        return answer;
    }
    if !request.asks_for_a_spec() {
        return answer;
    }
    if let Some(newer) = request.newer_version() {
        let text = format!("apiVersion: of an older release; write {newer}");
        answer.warn(Check::Version, "apiVersion", text);
    }
    if request.kind.newer_version().is_some() {
        // Not converted, so no rule of the present version fits it.
        for DeprecationAdvice { field, instead, .. } in deprecated_fields::advice(&request.object) {
            let text = format!("{field}: {instead}");
            answer.warn(Check::Deprecated, field, text);
        }
        return answer;
    }
    itself(facts, request, &mut answer);
    match request.kind.kind.as_str() {
        "NodePool" => match serde_json::from_value::<NodePool>(request.object.clone()) {
            Ok(pool) => {
                let before = request
                    .before()
                    .and_then(|old| serde_json::from_value::<NodePool>(old.clone()).ok());
                checks::pool(facts, &pool, before.as_ref(), &mut answer);
                if request.operation == "UPDATE" {
                    preview::pool(facts, request, &pool, before.as_ref(), &mut answer);
                }
            }
            // What is wrong has been said already, in most cases.
            Err(error) if answer.denied.is_empty() => {
                answer.deny(
                    Check::Schema,
                    "spec",
                    format!("spec cannot be read: {error}"),
                );
            }
            Err(_) => {}
        },
        "NodeOverlay" => checks::overlay(facts, &request.object, &mut answer),
        "CapacityBuffer" => checks::buffer(facts, request, &mut answer),
        "EC2NodeClass" if request.operation == "UPDATE" => {
            preview::ec2_class(facts, request, &mut answer);
        }
        _ => {}
    }
    answer
}

/// What the object says of itself.
fn itself(facts: &AdmissionContext<'_>, request: &AdmissionRequest, answer: &mut AdmissionResult) {
    let definitions = facts.rules.definitions();
    let known = &facts.snapshot.well_known;
    let kind = request.kind.kind.as_str();
    let mut told = BTreeSet::new();
    for fault in faults(definitions, known, kind, &request.object, request.before()) {
        answer.fault(&fault);
        if fault.weight == IssueSeverity::Suspicious {
            told.insert(fault.field);
        }
    }
    // The API server has dropped the fields that it does not know; they are to be seen only where kubectl wrote down
    // what it was given.
    let written = |object: &Value| {
        let text = object.pointer(AS_WRITTEN)?.as_str()?;
        if text.len() > LONGEST_WRITTEN {
            return None;
        }
        serde_json::from_str::<Value>(text).ok()
    };
    let Some(now) = written(&request.object) else {
        return;
    };
    let before = request.before().and_then(written);
    for fault in faults(definitions, known, kind, &now, before.as_ref()) {
        let dropped = matches!(
            fault.topic,
            IssueTopic::UnknownField | IssueTopic::Deprecated
        );
        if dropped && fault.weight == IssueSeverity::Suspicious && !told.contains(&fault.field) {
            answer.fault(&fault);
        }
    }
}
