//! Validation: what can never work is refused, what is probably a mistake gets a warning.

use std::collections::BTreeSet;

use mortise_apis::deprecated_fields::{self, DeprecationAdvice};
use mortise_apis::issues::{IssueSeverity, IssueTopic};
use mortise_apis::karpenter::nodepool::NodePool;
use mortise_apis::validation::faults;
use serde_json::Value;

use super::checks::PoolRequest;
use super::finding::Check;
use super::review::{AdmissionRequest, AdmissionResult};
use super::{AdmissionContext, checks};

/// Longest text of it that is read: API servers take no longer annotations.
const LONGEST_WRITTEN: usize = 256 << 10;

/// Where `kubectl apply` leaves the object as its user wrote it.
const AS_WRITTEN: &str = "/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration";

/// Answers a validation request. Deletions are refused only where an annotation of the object asks for it.
#[must_use]
pub fn validate(context: &AdmissionContext<'_>, request: &AdmissionRequest) -> AdmissionResult {
    let mut answer = AdmissionResult::default();
    if request.operation == "DELETE" {
        checks::check_deletion(context, request, &mut answer);
        return answer;
    }
    if !request.changes_spec() {
        return answer;
    }
    let classes = context.rules.crds.known();
    if let Some(newer) = request.newer_version(classes) {
        answer.warn(
            Check::Version,
            "apiVersion",
            "apiVersion: of an older release",
            format!("write {newer}"),
        );
    }
    if request.kind.newer_version(classes).is_some() {
        // Not converted, so no rule of the present version fits it.
        for DeprecationAdvice { field, instead, .. } in
            deprecated_fields::advice(classes, &request.object)
        {
            let text = format!("{field}: {instead}");
            answer.warn(Check::Deprecated, field, text, "");
        }
        return answer;
    }
    check_fields(context, request, &mut answer);
    if request.kind.kind == "NodePool" {
        check_pool(context, request, &mut answer);
    } else {
        checks::check_write(context, request, &mut answer);
    }
    answer
}

/// What the cluster and the catalog say of a NodePool, which is read once for all checks.
fn check_pool(
    context: &AdmissionContext<'_>,
    request: &AdmissionRequest,
    answer: &mut AdmissionResult,
) {
    match serde_json::from_value::<NodePool>(request.object.clone()) {
        Ok(pool) => {
            let before = request
                .before()
                .and_then(|old| serde_json::from_value::<NodePool>(old.clone()).ok());
            let request = PoolRequest {
                request,
                pool: &pool,
                before: before.as_ref(),
            };
            checks::check_pool(context, &request, answer);
        }
        // What is wrong has been said already, in most cases.
        Err(error) if answer.denied.is_empty() => {
            answer.deny(
                Check::Schema,
                "spec",
                format!("spec cannot be read: {error}"),
                "",
            );
        }
        Err(_) => {}
    }
}

/// What the object says of itself.
fn check_fields(
    context: &AdmissionContext<'_>,
    request: &AdmissionRequest,
    answer: &mut AdmissionResult,
) {
    let crds = &context.rules.crds;
    let known = &context.snapshot.well_known;
    let kind = request.kind.kind.as_str();
    let mut reported = BTreeSet::new();
    for fault in faults(crds, known, kind, &request.object, request.before()) {
        answer.add_issue(&fault);
        if fault.weight == IssueSeverity::Suspicious {
            reported.insert(fault.field);
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
    for fault in faults(crds, known, kind, &now, before.as_ref()) {
        let dropped = matches!(
            fault.topic,
            IssueTopic::UnknownField | IssueTopic::Deprecated
        );
        if dropped && fault.weight == IssueSeverity::Suspicious && !reported.contains(&fault.field)
        {
            answer.add_issue(&fault);
        }
    }
}
