//! Disruption budgets of a workload.

use mortise_apis::k8s::{Pod, PodDisruptionBudget};
use mortise_state::pods::Selector;
use mortise_state::resource_kinds::{Object, ObjectKey};
use serde_json::{Value, json};

use super::WORKLOAD_LABEL;
use super::owners::{Owned, WorkloadKind};
use crate::pod_budget::desired_healthy;
use crate::recorded_cluster::RecordedCluster;

/// The budget of a workload, in the form that is simulated: a number of its own pods. A percentage is of the replicas at the start, and
/// a budget of several workloads holds for each of them.
pub(super) fn budget(cluster: &RecordedCluster, owned: &Owned<'_>) -> Option<Value> {
    if owned.kind == WorkloadKind::Job {
        return None;
    }
    let sample = owned.newest()?;
    let expected = i32::try_from(owned.pods.len()).unwrap_or(i32::MAX);
    let objects = cluster.objects.iter();
    let of_pods = objects.filter_map(|(key, object)| match (key, object) {
        (ObjectKey::Pdb(name), Object::Pdb(budget)) if name.namespace == owned.namespace => {
            selects(budget, sample).then_some(budget)
        }
        _ => None,
    });
    let allowed: Vec<i32> = of_pods
        .map(|budget| expected - desired_healthy(budget, expected))
        .collect();
    let allowed = match allowed[..] {
        [] => return None,
        [allowed] => allowed.max(0),
        // The API server evicts no pod that is in several budgets.
        _ => 0,
    };
    Some(json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": { "name": owned.simulated_name },
        "spec": {
            "selector": { "matchLabels": { WORKLOAD_LABEL: owned.simulated_name } },
            "maxUnavailable": allowed,
        },
    }))
}

fn selects(budget: &PodDisruptionBudget, pod: &Pod) -> bool {
    let labels = pod.metadata.labels.as_ref();
    let label = |key: &str| labels?.get(key).map(String::as_str);
    let selector = budget.spec.selector.as_ref();
    selector.is_some_and(|selector| Selector::new(selector).matches(label))
}
