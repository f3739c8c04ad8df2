//! Other programs in the cluster that launch nodes, evict pods or drain nodes, by the labels that their charts give their pods.

use std::collections::BTreeMap;

use super::Snapshot;

/// A program whose work meets that of mortise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OtherController {
    /// Launches nodes for the same pods, in node groups.
    ClusterAutoscaler,
    /// Evicts pods, by rules of its own.
    Descheduler,
    /// Drains nodes on the same notices of EC2.
    NodeTerminationHandler,
}

/// Labels that say which program a pod belongs to.
const LABELS: [&str; 3] = ["app.kubernetes.io/name", "app", "k8s-app"];

impl OtherController {
    /// All of them.
    pub const ALL: [Self; 3] = [
        Self::ClusterAutoscaler,
        Self::Descheduler,
        Self::NodeTerminationHandler,
    ];

    /// Its name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ClusterAutoscaler => "cluster-autoscaler",
            Self::Descheduler => "descheduler",
            Self::NodeTerminationHandler => "node-termination-handler",
        }
    }

    /// The program of a pod label. Charts put the cloud in front of the name: `aws-cluster-autoscaler`.
    fn of_label(key: &str, value: &str) -> Option<Self> {
        if !LABELS.contains(&key) {
            return None;
        }
        let mut all = Self::ALL.into_iter();
        all.find(|each| value.ends_with(each.as_str()))
    }

    /// Those that run, with the number of their pods that are on a node.
    ///
    /// # Cost
    /// A look at each set of labels of pods: hundreds in a large cluster.
    #[must_use]
    pub fn running(snapshot: &Snapshot) -> BTreeMap<Self, u32> {
        let mut all = BTreeMap::new();
        for (key, places) in snapshot.pod_labels.by_labels() {
            let mut labels = key.labels.iter();
            if let Some(found) = labels.find_map(|(key, value)| Self::of_label(key, value)) {
                let pods: u32 = places.iter().map(|(_, count)| count).sum();
                *all.entry(found).or_insert(0) += pods;
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_charts_and_manifests_name_the_program() {
        let of = |key, value| OtherController::of_label(key, value).map(OtherController::as_str);
        for (key, value, name) in [
            (
                "app.kubernetes.io/name",
                "aws-cluster-autoscaler",
                Some("cluster-autoscaler"),
            ),
            ("app", "cluster-autoscaler", Some("cluster-autoscaler")),
            ("k8s-app", "cluster-autoscaler", Some("cluster-autoscaler")),
            ("app.kubernetes.io/name", "descheduler", Some("descheduler")),
            (
                "app.kubernetes.io/name",
                "aws-node-termination-handler",
                Some("node-termination-handler"),
            ),
            ("team", "cluster-autoscaler", None),
            ("app", "cluster-autoscaler-exporter", None),
            ("app", "web", None),
        ] {
            assert_eq!(of(key, value), name, "{key}={value}");
        }
    }
}
