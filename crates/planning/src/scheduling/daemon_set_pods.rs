//! What DaemonSets request on every node.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Taint, Toleration};

use super::fits::labels_meet;
use mortise_apis::labels::WellKnown;
use mortise_apis::names::NamespacedName;
use mortise_apis::requirements::Requirements;
use mortise_apis::resources::Resources;
use mortise_apis::taints;
use mortise_state::pods::HostPort;
use mortise_state::snapshot::{PodClass, Snapshot, StateNode};

/// The pods of one DaemonSet.
#[derive(Clone, Debug)]
pub struct DaemonSetPod {
    /// The DaemonSet.
    pub key: NamespacedName,
    /// Requests and ports of its newest pod, or of its template while it has no pod. Where it may run always follows the
    /// template, because the DaemonSet controller pins each pod to its node.
    pub class: Arc<PodClass>,
}

/// The DaemonSet pods that every node may get, including those that run already.
#[derive(Clone, Debug, Default)]
pub struct DaemonSetPods {
    all: Vec<DaemonSetPod>,
}

/// What DaemonSet pods use on a group of instance types.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct DaemonSetOverhead {
    /// Sum of their requests.
    pub requests: Resources,
    /// Host ports that they use. Sorted.
    pub host_ports: Vec<HostPort>,
}

impl DaemonSetPods {
    /// The DaemonSets of a snapshot.
    ///
    /// # Cost
    /// The number of DaemonSets.
    #[must_use]
    pub fn from_snapshot(snapshot: &Snapshot) -> Self {
        if snapshot.daemon_sets.is_empty() {
            return Self::default();
        }
        let all = snapshot.daemon_sets.iter().map(|(key, set)| {
            let template = PodClass::from_template(&key.namespace, &set.spec.template);
            let class = match snapshot.daemon_pods.get(key) {
                Some(pod) => PodClass {
                    requests: pod.class.requests.clone(),
                    host_ports: pod.class.host_ports.clone(),
                    tolerations: pod.class.tolerations.clone(),
                    ..template
                },
                None => template,
            };
            DaemonSetPod {
                key: key.clone(),
                class: Arc::new(class),
            }
        });
        Self { all: all.collect() }
    }

    /// From DaemonSet pods that are known already.
    #[must_use]
    pub fn from_shapes(all: Vec<DaemonSetPod>) -> Self {
        Self { all }
    }

    /// The DaemonSets.
    #[must_use]
    pub fn all(&self) -> &[DaemonSetPod] {
        &self.all
    }

    /// What DaemonSet pods that do not run yet will request on a node.
    #[must_use]
    pub fn missing_on(&self, node: &StateNode) -> Resources {
        if self.all.is_empty() {
            return Resources::zero();
        }
        let mut expected = Resources::zero();
        for daemon in &self.all {
            let runs = tolerates_all(&daemon.class, &node.taints)
                && daemon
                    .class
                    .strict
                    .iter()
                    .any(|terms| labels_meet(node, terms));
            if runs {
                expected.add_assign(&daemon.class.requests);
            }
        }
        expected.sub(&node.daemon_used).max(&Resources::zero())
    }

    /// The DaemonSets that run on a node with these taints and requirements, by index.
    pub(crate) fn running_on<'a>(
        &'a self,
        taints: &'a [Taint],
        node: &'a Requirements,
        known: &'a WellKnown,
    ) -> impl Iterator<Item = usize> {
        let runs =
            move |(_, daemon): &(usize, &DaemonSetPod)| runs_on(&daemon.class, taints, node, known);
        self.all.iter().enumerate().filter(runs).map(|(at, _)| at)
    }
}

/// DaemonSet pods ignore taints with the effect `PreferNoSchedule`.
fn tolerates_all(class: &PodClass, taints: &[Taint]) -> bool {
    let hard = taints
        .iter()
        .filter(|taint| taint.effect != taints::PREFER_NO_SCHEDULE);
    hard.into_iter().all(|taint| {
        class
            .tolerations
            .iter()
            .any(|own: &Toleration| taints::tolerates(own, taint))
    })
}

fn runs_on(class: &PodClass, taints: &[Taint], node: &Requirements, known: &WellKnown) -> bool {
    tolerates_all(class, taints)
        && class
            .strict
            .iter()
            .any(|terms| node.is_compatible(terms, known))
}
