//! Devices of the cluster, and the claims for them.

use std::sync::Arc;

use crate::sharded_map::ShardedMap;
use mortise_apis::k8s;
use mortise_apis::names::NamespacedName;

/// The device objects of a cluster. All empty while support for device claims is disabled.
#[derive(Clone, Debug, Default)]
pub struct DeviceObjects {
    /// ResourceClaims.
    pub claims: ShardedMap<NamespacedName, k8s::ResourceClaim>,
    /// Templates of ResourceClaims that are created for pods.
    pub templates: ShardedMap<NamespacedName, k8s::ResourceClaimTemplate>,
    /// DeviceClasses, by name.
    pub classes: ShardedMap<Arc<str>, k8s::DeviceClass>,
    /// ResourceSlices, in which drivers publish devices, by name.
    pub slices: ShardedMap<Arc<str>, k8s::ResourceSlice>,
}

/// A claim of a pod for devices.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodClaim {
    /// Name in the pod.
    pub name: Arc<str>,
    /// The ResourceClaim behind it.
    pub source: ClaimSource,
}

/// The ResourceClaim behind a claim of a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClaimSource {
    /// A ResourceClaim of this name, in the namespace of the pod.
    Claim {
        /// The name.
        name: Arc<str>,
        /// It was created from a template, for this pod alone.
        own: bool,
    },
    /// A ResourceClaim that is not created yet, from the template of this name.
    Template(Arc<str>),
    /// The pod names neither a ResourceClaim nor a template.
    Nothing,
}

/// The device claims of a pod; `None` for almost all pods. Claims that the status marks as not needed are left out.
pub(super) fn claims_of(pod: &k8s::Pod) -> Option<Arc<[PodClaim]>> {
    let all = &pod.spec.resource_claims;
    if all.is_empty() {
        return None;
    }
    let made = &pod.status.resource_claim_statuses;
    let claims = all.iter().filter_map(|claim| {
        let source = match (
            &claim.resource_claim_name,
            &claim.resource_claim_template_name,
        ) {
            (Some(name), _) => ClaimSource::Claim {
                name: name.as_str().into(),
                own: false,
            },
            (None, Some(template)) => match made.iter().find(|made| made.name == claim.name) {
                None => ClaimSource::Template(template.as_str().into()),
                Some(made) => ClaimSource::Claim {
                    name: made.resource_claim_name.as_deref()?.into(),
                    own: true,
                },
            },
            (None, None) => ClaimSource::Nothing,
        };
        Some(PodClaim {
            name: claim.name.as_str().into(),
            source,
        })
    });
    Some(claims.collect())
}
