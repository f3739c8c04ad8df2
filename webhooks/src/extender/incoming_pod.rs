//! The pod of a call: as the snapshot knows it or as the body shows it, and what only the body says.

use std::collections::BTreeMap;
use std::sync::Arc;

use mortise_apis::names::PodKey;
use mortise_apis::values::GoDuration;
use mortise_apis::{k8s, labels};
use mortise_state::snapshot::{Pod, PodClasses, Snapshot};

/// Priorities from here on belong to Kubernetes itself (`system-cluster-critical` and above).
const SYSTEM_PRIORITY: i32 = 2_000_000_000;
/// What our own pods are called by their label `app.kubernetes.io/name`.
const OWN_NAMES: [&str; 2] = ["mortise", "karpenter"];
const NAME_LABEL: &str = "app.kubernetes.io/name";

/// A pod that looks for a node.
#[derive(Clone, Debug)]
pub struct IncomingPod {
    /// The snapshot's record if it is the same pod, else one made from the body.
    pub pod: Arc<Pod>,
    /// How long it runs, in milliseconds, as far as it says so.
    pub run_ms: Option<i64>,
    /// It ends by itself: a Job owns it, or it says how long it runs.
    pub runs_to_completion: bool,
    /// How its workload wants to be divided between spot and other capacity.
    pub spot: Option<SpotPreference>,
    /// `status.nominatedNodeName`: the scheduler has made room for it there.
    pub nominated: Option<Box<str>>,
}

/// Part of a workload that should be on spot capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpotPreference {
    /// Per cent of the pods beyond the base, 0 to 100.
    pub percent: i64,
    /// Pods that should not be on spot capacity in any case.
    pub base: i64,
}

impl SpotPreference {
    /// The annotations of a pod; a number that cannot be read is as good as none.
    fn from_annotations(annotations: &BTreeMap<String, String>) -> Option<Self> {
        let number = |key: &str| annotations.get(key)?.trim().parse::<i64>().ok();
        let percent = number(labels::SPOT_PERCENT)?;
        (0..=100).contains(&percent).then(|| Self {
            percent,
            base: number(labels::ON_DEMAND_BASE_CAPACITY).unwrap_or(0).max(0),
        })
    }

    /// Whether the next pod should be on spot capacity, when `spot` pods of the workload are and `others` are not.
    #[must_use]
    pub const fn prefers_spot(self, spot: i64, others: i64) -> bool {
        // Of all pods with the new one, those beyond the base times the share, rounded down.
        let beyond = spot + others + 1 - self.base;
        if beyond <= 0 {
            return false;
        }
        spot < beyond * self.percent / 100
    }
}

impl IncomingPod {
    /// The pod of a body.
    #[must_use]
    pub fn from_call(snapshot: &Snapshot, body: &k8s::Pod) -> Self {
        let uid = body.metadata.uid.as_deref().unwrap_or_default();
        let key = PodKey::new(
            body.metadata.namespace.as_deref().unwrap_or_default(),
            body.metadata.name.as_deref().unwrap_or_default(),
        );
        let pod = match snapshot.pods.get(&key) {
            Some(known) if &*known.uid == uid => Arc::clone(known),
            _ => Arc::new(Pod::from_api(body, &mut PodClasses::default())),
        };
        let none = BTreeMap::new();
        let annotations = body.metadata.annotations.as_ref().unwrap_or(&none);
        let annotated = annotations
            .get(labels::EXPECTED_DURATION)
            .and_then(|text| GoDuration::parse(text).ok())
            .map(|time| time.as_nanos() / 1_000_000);
        let deadline = body
            .spec
            .active_deadline_seconds
            .map(|seconds| seconds.saturating_mul(1_000));
        let run_ms = annotated.or(deadline).filter(|ms| *ms > 0);
        let nominated = body.status.nominated_node_name.as_deref();
        Self {
            runs_to_completion: pod.is_of_job() || run_ms.is_some(),
            run_ms,
            spot: SpotPreference::from_annotations(annotations),
            nominated: nominated.filter(|name| !name.is_empty()).map(Into::into),
            pod,
        }
    }

    /// Pods that are never denied: they must run where they are sent, or the cluster cannot work without them. `own`:
    /// this service's namespace.
    #[must_use]
    pub fn exemption(&self, own: Option<&str>) -> Option<FilterExemption> {
        let pod = &self.pod;
        if pod.is_daemon() {
            Some(FilterExemption::Daemon)
        } else if pod.is_node_owned() {
            Some(FilterExemption::StaticPod)
        } else if pod.class.critical || pod.class.priority >= SYSTEM_PRIORITY {
            Some(FilterExemption::Critical)
        } else if own.is_some_and(|own| is_own_pod(pod, own)) {
            Some(FilterExemption::OwnPod)
        } else {
            None
        }
    }
}

/// Why a pod is never denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterExemption {
    /// A DaemonSet owns it.
    Daemon,
    /// It is a node's own, a static pod's mirror.
    StaticPod,
    /// Its priority is one of the cluster's own.
    Critical,
    /// It is one of this service: denied, nothing might answer any more.
    OwnPod,
}

fn is_own_pod(pod: &Pod, namespace: &str) -> bool {
    &*pod.key.namespace == namespace
        && pod
            .label(NAME_LABEL)
            .is_some_and(|name| OWN_NAMES.contains(&&**name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workload_is_divided_as_it_wants() {
        let preference = SpotPreference {
            percent: 70,
            base: 2,
        };
        let (mut spot, mut others) = (0, 0);
        let mut first = Vec::new();
        for _ in 0..102 {
            let to_spot = preference.prefers_spot(spot, others);
            first.push(to_spot);
            *(if to_spot { &mut spot } else { &mut others }) += 1;
        }
        assert_eq!((spot, others), (70, 32));
        assert_eq!(first[..2], [false, false], "the base comes first");
        let never = SpotPreference {
            percent: 0,
            base: 0,
        };
        assert!(!never.prefers_spot(0, 100));
        let always = SpotPreference {
            percent: 100,
            base: 0,
        };
        assert!(always.prefers_spot(100, 0));
    }

    #[test]
    fn preferences_that_cannot_be_read_are_none() {
        let preference = |percent: &str, base: &str| {
            SpotPreference::from_annotations(&BTreeMap::from([
                (labels::SPOT_PERCENT.to_owned(), percent.to_owned()),
                (labels::ON_DEMAND_BASE_CAPACITY.to_owned(), base.to_owned()),
            ]))
        };
        assert_eq!(
            preference("70", "2"),
            Some(SpotPreference {
                percent: 70,
                base: 2
            })
        );
        assert_eq!(preference("101", "2"), None);
        assert_eq!(preference("seventy", "2"), None);
        assert_eq!(
            preference("5", "-3"),
            Some(SpotPreference {
                percent: 5,
                base: 0
            })
        );
    }
}
