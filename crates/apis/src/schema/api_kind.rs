//! Group, version and names of a kind, as the API server serves it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// A kind as the API server serves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApiKind {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// Version that is read and written.
    pub version: &'static str,
    /// Kind.
    pub kind: &'static str,
    /// Resource name in URLs.
    pub plural: &'static str,
    /// Whether its objects are namespaced.
    pub namespaced: bool,
}

impl ApiKind {
    /// `group/version`, or the version alone for the core group.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// `plural.group`, as `kubectl` and the names of CRDs spell it.
    #[must_use]
    pub fn resource(&self) -> String {
        if self.group.is_empty() {
            self.plural.to_owned()
        } else {
            format!("{}.{}", self.plural, self.group)
        }
    }

    /// Path of the whole collection, or of one namespace.
    #[must_use]
    pub fn path(&self, namespace: Option<&str>) -> String {
        let root = if self.group.is_empty() { "api" } else { "apis" };
        let base = format!("/{root}/{}", self.api_version());
        match namespace {
            Some(namespace) => format!("{base}/namespaces/{namespace}/{}", self.plural),
            None => format!("{base}/{}", self.plural),
        }
    }

    /// The kind, or another name where a kind of another group has the same: no two watched kinds share it.
    #[must_use]
    pub fn unique_name(&self) -> &'static str {
        match (self.group, self.kind) {
            ("scheduling.x-k8s.io", "PodGroup") => "CoschedulingPodGroup",
            ("scheduling.volcano.sh", "PodGroup") => "VolcanoPodGroup",
            (_, kind) => kind,
        }
    }

    /// Whether the kind is a custom resource: groups below `k8s.io` and groups without a dot are Kubernetes' own.
    #[must_use]
    pub fn is_custom(&self) -> bool {
        self.group.contains('.') && !self.group.ends_with(".k8s.io")
    }
}

/// A type whose objects are all of one kind.
pub trait ApiObject {
    /// The kind.
    const KIND: ApiKind;

    /// Standard object metadata.
    fn metadata(&self) -> &ObjectMeta;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::k8s::{Pod, PodDisruptionBudget, StorageClass};
    use crate::karpenter::nodeclaim::NodeClaim;

    #[test]
    fn kinds_are_named_as_in_kubectl_and_served_at_their_paths() {
        let all = [
            Pod::KIND,
            PodDisruptionBudget::KIND,
            StorageClass::KIND,
            NodeClaim::KIND,
        ];
        let text = |kind: &ApiKind| {
            let path = kind.path(kind.namespaced.then_some("a"));
            (kind.resource(), kind.api_version(), path, kind.is_custom())
        };
        let want = [
            ("pods", "v1", "/api/v1/namespaces/a/pods", false),
            (
                "poddisruptionbudgets.policy",
                "policy/v1",
                "/apis/policy/v1/namespaces/a/poddisruptionbudgets",
                false,
            ),
            (
                "storageclasses.storage.k8s.io",
                "storage.k8s.io/v1",
                "/apis/storage.k8s.io/v1/storageclasses",
                false,
            ),
            (
                "nodeclaims.karpenter.sh",
                "karpenter.sh/v1",
                "/apis/karpenter.sh/v1/nodeclaims",
                true,
            ),
        ];
        let want = want.map(|(resource, version, path, custom)| {
            (
                resource.to_owned(),
                version.to_owned(),
                path.to_owned(),
                custom,
            )
        });
        assert_eq!(all.each_ref().map(text), want);
    }
}
