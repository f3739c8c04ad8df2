//! Devices of the cluster: what there is, and who claims it.

use std::sync::Arc;

use crate::sharded_map::ShardedMap;
use mortise_apis::k8s;
use mortise_apis::names::NamespacedName;

/// The device objects of a cluster. All empty while device claims are not looked at.
#[derive(Clone, Debug, Default)]
pub struct DeviceObjects {
    /// Claims.
    pub claims: ShardedMap<NamespacedName, k8s::ResourceClaim>,
    /// What claims that are made for pods look like.
    pub templates: ShardedMap<NamespacedName, k8s::ResourceClaimTemplate>,
    /// Kinds of devices, by name.
    pub classes: ShardedMap<Arc<str>, k8s::DeviceClass>,
    /// Devices as drivers publish them, by name.
    pub slices: ShardedMap<Arc<str>, k8s::ResourceSlice>,
}

/// A claim of a pod for devices.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodClaim {
    /// Name within the pod.
    pub name: Arc<str>,
    /// The claim behind it.
    pub source: ClaimSource,
}

/// The ResourceClaim behind a claim of a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClaimSource {
    /// One of this name, in the pod's namespace. `own`: it was made for this pod.
    Claim {
        /// The name.
        name: Arc<str>,
        /// It was made from a template, for this pod alone.
        own: bool,
    },
    /// One that is still to be made from the template of this name.
    Template(Arc<str>),
    /// The pod names neither.
    Nothing,
}

/// The claims of a pod; `None` of almost all pods. Claims that the cluster says are not needed are left out.
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
