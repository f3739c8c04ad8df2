//! Tags that an instance gets once its node is known. Pure.

use std::collections::BTreeMap;

use mortise_apis::karpenter::nodeclaim::NodeClaim;

use crate::instances::calls::NewTags;
use crate::instances::record::{InstanceRecord, NAME};
use crate::tags;

/// Annotations of claims whose instance has all tags: the first stands for the names of node and claim, the second for the name of the
/// cluster, which instances of old versions lack.
pub(crate) const TAGGED_ANNOTATIONS: [&str; 2] = [
    "karpenter.k8s.aws/tagged",
    "compatibility.karpenter.k8s.aws/cluster-name-tagged",
];

/// The annotations as they are written.
pub(super) fn annotations() -> BTreeMap<String, String> {
    let all = TAGGED_ANNOTATIONS.into_iter();
    all.map(|key| (key.to_owned(), "true".to_owned())).collect()
}

fn node_name(claim: &NodeClaim) -> Option<&str> {
    let name = claim.status.node_name.as_deref();
    name.filter(|name| !name.is_empty())
}

/// Whether the instance of a claim is to be tagged: its node is known, it stays, and it was not tagged before.
pub(super) fn is_due(claim: &NodeClaim) -> bool {
    let is_tagged = |key: &str| claim.annotation(key).is_some();
    claim.metadata.deletion_timestamp.is_none()
        && node_name(claim).is_some()
        && !TAGGED_ANNOTATIONS.iter().all(|key| is_tagged(key))
}

/// The tags that an instance lacks, sorted by key. Those that it has are never changed: they may be the users'.
pub(super) fn missing(claim: &NodeClaim, cluster: &str, instance: &InstanceRecord) -> NewTags {
    let wanted = [
        (NAME, node_name(claim).map(str::to_owned)),
        (tags::EKS_CLUSTER, Some(cluster.to_owned())),
        (tags::NODECLAIM, Some(claim.name().to_string())),
    ];
    wanted
        .into_iter()
        .filter(|(key, _)| !instance.described.tags.contains_key(*key))
        .filter_map(|(key, value)| Some((key.to_owned(), value?)))
        .collect()
}
