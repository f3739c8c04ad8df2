//! Tags, annotations and names that we and Karpenter share, and our own.

/// Tag: instance belongs to a cluster. The value is [`OWNED`].
pub(crate) fn cluster_tag(cluster: &str) -> String {
    format!("kubernetes.io/cluster/{cluster}")
}

/// Value of the cluster tag on what we made.
pub(crate) const OWNED: &str = "owned";
/// Tag: name of the EKS cluster.
pub(crate) const EKS_CLUSTER: &str = "eks:eks-cluster-name";
/// Tag: name of the NodePool.
pub(crate) const NODEPOOL: &str = "karpenter.sh/nodepool";
/// Tag: name of the NodeClaim.
pub(crate) const NODECLAIM: &str = "karpenter.sh/nodeclaim";
/// Tag: name of the node class.
pub(crate) const NODE_CLASS: &str = "karpenter.k8s.aws/ec2nodeclass";
/// Tag: UID of the NodeClaim. Our own: it is how a launch that was cut off is found again.
pub(crate) const NODECLAIM_UID: &str = "mortise.sh/nodeclaim-uid";
/// Tag: token of the launch by which the instance was made together with others. Our own; the NodeClaims have the same as annotation.
pub(crate) const LAUNCH_BATCH: &str = mortise_apis::labels::LAUNCH_BATCH;
/// Tag: which request of that launch, and for how many instances. Our own: it says whether all of them are visible.
pub(crate) const LAUNCH_REQUEST: &str = "mortise.sh/launch-request";

/// Annotation on classes and claims: hash of the class.
pub(crate) const CLASS_HASH: &str = "karpenter.k8s.aws/ec2nodeclass-hash";
/// Annotation on classes and claims: version of the hash.
pub(crate) const CLASS_HASH_VERSION: &str = "karpenter.k8s.aws/ec2nodeclass-hash-version";
/// Annotation on claims: instance profile of the instance.
pub(crate) const INSTANCE_PROFILE: &str = "karpenter.k8s.aws/instance-profile-name";
/// Finalizer of classes.
pub(crate) const CLASS_FINALIZER: &str = "karpenter.k8s.aws/termination";

/// Prefix of launch template names.
pub(crate) const TEMPLATE_PREFIX: &str = "karpenter.k8s.aws/";

/// The part of a provider id that EC2 knows: `i-...` of `aws:///us-east-1a/i-...`.
pub(crate) fn instance_id(provider_id: &str) -> Option<&str> {
    let (_, located) = provider_id.split_once(":///")?;
    let (_, id) = located.rsplit_once('/')?;
    (!id.is_empty()).then_some(id)
}

/// The provider id of an instance.
pub(crate) fn provider_id(zone: &str, instance: &str) -> String {
    format!("aws:///{zone}/{instance}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn provider_ids_go_both_ways() {
        assert_eq!(
            instance_id(&provider_id("us-east-1a", "i-0abc")),
            Some("i-0abc")
        );
        for id in ["", "i-0abc", "kwok://x", "aws:///us-east-1a/", "aws:///"] {
            assert_eq!(instance_id(id), None, "{id}");
        }
    }
}
