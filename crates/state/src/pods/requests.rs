//! Effective requests of a pod: containers, sidecars, init containers, overhead, pod-level resources, in-place resizes.

use std::collections::BTreeMap;

use mortise_apis::k8s::pod::{Container, ContainerStatus};
use mortise_apis::k8s::{Pod, ResourceList};
use mortise_apis::resources::{CPU, MEMORY, ResourceError, Resources};

/// Which amounts of a running container count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RequestSource {
    /// The spec, or what the kubelet has granted if that is more: an in-place resize takes time.
    SpecAndStatus,
    /// The spec alone.
    Spec,
}

/// The effective requests of a pod, with `pods: 1`.
///
/// # Errors
/// The quantity that is invalid.
///
/// # Source
/// The pod resource helpers of Kubernetes 1.36, checked against recorded results.
pub fn requests(pod: &Pod, source: RequestSource) -> Result<Resources, ResourceError> {
    let spec = &pod.spec;
    let running = ContainerStates::new(pod, source);
    let mut total = Resources::zero();
    for container in &spec.containers {
        total.add_assign(&running.requests(container)?);
    }
    let (mut sidecars, mut peak) = (Resources::zero(), Resources::zero());
    for container in &spec.init_containers {
        if container.restart_policy.as_deref() == Some("Always") {
            let own = running.requests(container)?;
            total.add_assign(&own);
            sidecars.add_assign(&own);
            peak = peak.max(&sidecars);
        } else {
            let own = Resources::from_api(&container.resources.requests)?;
            peak = peak.max(&own.add(&sidecars));
        }
    }
    total = total.max(&peak);
    let whole = spec.resources.as_ref().map(|resources| &resources.requests);
    for (name, quantity) in whole.into_iter().flatten() {
        if name == CPU || name == MEMORY || name.starts_with("hugepages-") {
            let one = Resources::from_api(&ResourceList::from([(name.clone(), quantity.clone())]))?;
            total.set(name, one.get(name));
        }
    }
    total.add_assign(&Resources::from_api(&spec.overhead)?);
    total.pods = 1;
    Ok(total)
}

/// Container statuses that the kubelet reports.
struct ContainerStates<'a> {
    statuses: BTreeMap<&'a str, &'a ContainerStatus>,
    infeasible: bool,
}

impl<'a> ContainerStates<'a> {
    fn new(pod: &'a Pod, source: RequestSource) -> Self {
        if source == RequestSource::Spec {
            return Self {
                statuses: BTreeMap::new(),
                infeasible: false,
            };
        }
        let status = &pod.status;
        let all = status
            .init_container_statuses
            .iter()
            .chain(&status.container_statuses);
        let statuses = all.map(|each| (each.name.as_str(), each)).collect();
        let infeasible = status.resize.as_deref() == Some("Infeasible")
            || status
                .conditions
                .iter()
                .any(|each| each.type_ == "PodResizePending" && each.reason == "Infeasible");
        Self {
            statuses,
            infeasible,
        }
    }

    fn requests(&self, container: &Container) -> Result<Resources, ResourceError> {
        let asked = Resources::from_api(&container.resources.requests)?;
        let Some(status) = self.statuses.get(container.name.as_str()) else {
            return Ok(asked);
        };
        let Some(in_force) = &status.resources else {
            return Ok(asked);
        };
        let granted = Resources::from_api(&status.allocated_resources)?;
        if self.infeasible {
            return Ok(granted.max(&Resources::from_api(&in_force.requests)?));
        }
        Ok(asked
            .max(&granted)
            .max(&Resources::from_api(&in_force.requests)?))
    }
}
