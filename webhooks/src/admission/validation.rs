//! Validation of NodePools and node classes against the cluster as it is.

use mortise_core::apis::nodepool::NodePool;
use mortise_core::snapshot::Snapshot;

use super::review::{Answer, Request};
use super::{Rules, advice, shape};

/// Answers a validation request. Deletions are never refused.
#[must_use]
pub fn validate(snapshot: &Snapshot, rules: &Rules, request: &Request) -> Answer {
    let mut answer = Answer::default();
    match (request.kind.kind.as_str(), request.operation.as_str()) {
        ("NodePool", "DELETE") => answer
            .warnings
            .extend(advice::deleting_pool(snapshot, &request.name)),
        ("NodePool", _) => {
            answer.denied.extend(shape::requirements(
                &request.object,
                "/spec/template/spec/requirements",
            ));
            match serde_json::from_value::<NodePool>(request.object.clone()) {
                Ok(pool) => advice::pool(snapshot, rules, &pool, &mut answer),
                Err(error) => answer.denied.push(format!("spec cannot be read: {error}")),
            }
        }
        (_, "DELETE") => answer.warnings.extend(advice::deleting_class(
            snapshot,
            &request.kind,
            &request.name,
        )),
        ("EC2NodeClass", _) => advice::ec2_class(&request.object, &mut answer),
        _ => {}
    }
    answer
}
