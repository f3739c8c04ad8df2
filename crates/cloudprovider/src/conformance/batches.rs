//! Rules of launches that are made together.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::ConformanceRun;
use crate::launch::{LaunchBatch, LaunchRequest};
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::names::ProviderId;
use mortise_apis::node_class::NodeClassObject;

/// Launches these NodeClaims as one batch, and again as another process would that knows of none of the instances, and of the first.
/// Returns the instances, in the order of the NodeClaims.
pub(super) async fn keeps_batches(
    run: &mut ConformanceRun<'_>,
    claims: &[Arc<NodeClaim>],
    class: &NodeClassObject,
) -> Vec<ProviderId> {
    let first = launched_together(run, claims, &[], class).await;
    let distinct: BTreeSet<&ProviderId> = first.iter().collect();
    run.require(
        distinct.len() == claims.len(),
        "each NodeClaim of a batch gets an instance of its own",
        || format!("{first:?}"),
    );
    let again = launched_together(run, claims, &[], class).await;
    run.require(
        again == first,
        "a repeated launch of a batch returns the instances of the first",
        || format!("{first:?} and {again:?}"),
    );
    if let (Some((_, rest)), Some((taken, others))) = (claims.split_first(), first.split_first()) {
        let left = launched_together(run, rest, std::slice::from_ref(taken), class).await;
        run.require(
            left == others,
            "an instance of a batch that a NodeClaim has is given to no other",
            || format!("{others:?} and {left:?}"),
        );
    }
    first
}

async fn launched_together(
    run: &mut ConformanceRun<'_>,
    claims: &[Arc<NodeClaim>],
    taken: &[ProviderId],
    class: &NodeClassObject,
) -> Vec<ProviderId> {
    let batch = Arc::new(LaunchBatch {
        token: Arc::from("conformance"),
        claims: claims.to_vec(),
        taken: taken.to_vec(),
    });
    let mut ids = Vec::new();
    for claim in claims {
        let request = LaunchRequest {
            claim: Arc::clone(claim),
            node_class: Some(class.clone()),
            batch: Some(Arc::clone(&batch)),
        };
        match run.provider.launch(&request).await {
            Ok(launched) => ids.push(launched.provider_id),
            Err(error) => run.fail(
                "the NodeClaims of a batch are launched",
                format!("{}: {error}", claim.name()),
            ),
        }
    }
    ids
}
