//! Annotations in which one version stores fields of the other.

/// On `v1` NodePools and NodeClaims: the kubelet settings of `v1beta1`, as JSON (Karpenter's name). Unused since 1.1: the
/// settings belong to the node class, to which `mortise migrate` moves them.
pub const KUBELET: &str = "compatibility.karpenter.sh/v1beta1-kubelet-conversion";
/// On `v1` NodePools and NodeClaims: the reference to the node class as `v1beta1` had it, as JSON (Karpenter's name).
pub const NODE_CLASS_REFERENCE: &str = "compatibility.karpenter.sh/v1beta1-nodeclass-reference";
/// On `v1beta1` objects: fields that only `v1` has, as JSON (mortise's name).
pub const V1_FIELDS: &str = "mortise.sh/v1-fields";
/// On `v1` objects: fields that only `v1beta1` has, as JSON (mortise's name).
pub const V1BETA1_FIELDS: &str = "mortise.sh/v1beta1-fields";
