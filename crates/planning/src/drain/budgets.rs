//! Why a PodDisruptionBudget allows no eviction.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::drain_blocker::DrainBlockerKind;
use mortise_apis::k8s::{PodDisruptionBudget, find_condition};
use mortise_apis::names::NamespacedName;
use mortise_state::pods::Selector;
use mortise_state::snapshot::{Pod, Snapshot};

/// Kind of what blocks the eviction of a pod, the facts, and what would clear it.
pub(super) type PodBlocker = (DrainBlockerKind, String, String);

/// What blocks the eviction of the pod; `None` when no PodDisruptionBudget blocks the pod.
///
/// # Cost
/// The PodDisruptionBudgets of the pod's namespace, and the pending pods where some are missing.
pub(super) fn drain_blocker(snapshot: &Snapshot, pod: &Pod) -> Option<PodBlocker> {
    let selects = |pdb: &PodDisruptionBudget| {
        let selector = pdb.spec.selector.as_ref();
        selector.is_some_and(|selector| Selector::new(selector).matches_labels(&pod.labels))
    };
    let own: Vec<(&NamespacedName, &PodDisruptionBudget)> = snapshot
        .pdbs
        .iter()
        .filter(|(name, pdb)| name.namespace == pod.key.namespace && selects(pdb))
        .map(|(name, pdb)| (name, &**pdb))
        .collect();
    match own.as_slice() {
        [] => None,
        [(name, pdb)] => exhausted(snapshot, pod, name, pdb),
        several => {
            let names: Vec<&str> = several.iter().map(|(name, _)| &*name.name).collect();
            let names = names.join(", ");
            Some((
                DrainBlockerKind::MultiplePdbs,
                format!("disruption budgets {names} all select it, which evictions do not support"),
                format!(
                    "let only one of {names} select it, and annotate that one, so that kube-controller-manager computes it again"
                ),
            ))
        }
    }
}

fn exhausted(
    snapshot: &Snapshot,
    pod: &Pod,
    name: &NamespacedName,
    pdb: &PodDisruptionBudget,
) -> Option<PodBlocker> {
    let status = &pdb.status;
    let frees_unready = pdb.spec.unhealthy_pod_eviction_policy.as_deref() == Some("AlwaysAllow");
    // A status of an older generation allows nothing, regardless of its value.
    let is_stale = status.observed_generation < pdb.metadata.generation;
    if (status.disruptions_allowed > 0 && !is_stale) || (frees_unready && !pod.ready) {
        return None;
    }
    let (healthy, desired, expected) = (
        status.current_healthy,
        status.desired_healthy,
        status.expected_pods,
    );
    let asks = asks(pdb);
    let failed = find_condition(&status.conditions, "DisruptionAllowed")
        .is_some_and(|each| each.status == "False" && each.reason == "SyncFailed");
    if failed {
        return Some((
            DrainBlockerKind::PdbNotCountable,
            format!(
                "disruption budget {name} ({asks}) cannot count its pods: a controller is missing or has no scale subresource"
            ),
            "use an existing controller for the pods, or a numeric minAvailable".to_owned(),
        ));
    }
    if is_stale {
        return Some((
            DrainBlockerKind::PdbNotComputed,
            format!("disruption budget {name} ({asks}) is not computed yet"),
            "kube-controller-manager must be running and compute it".to_owned(),
        ));
    }
    if desired >= expected {
        return Some((
            DrainBlockerKind::PdbNeverAllows,
            format!(
                "disruption budget {name} ({asks}) requires {desired} of {expected} pods: it never allows an eviction"
            ),
            format!("allow one unavailable pod in the budget, or run more than {desired} pods"),
        ));
    }
    // Of several budgets that select a pod, kube-controller-manager updates an arbitrary one when the pod changes. When
    // that one is deleted, the status of the other stays stale (observed on 1.36 for half of the pods).
    if pod.ready && healthy == 0 {
        return Some((
            DrainBlockerKind::PdbNotComputed,
            format!(
                "disruption budget {name} ({asks}) has 0 ready pods of {expected}, and this one is ready: its status is outdated"
            ),
            format!("annotate {name}: kube-controller-manager computes it again when it changes"),
        ));
    }
    if !pod.ready && healthy < desired {
        return Some((
            DrainBlockerKind::PdbPodNotReady,
            format!(
                "it is not ready, and disruption budget {name} ({asks}) has {healthy} ready pods of {desired} required"
            ),
            "set unhealthyPodEvictionPolicy: AlwaysAllow on the budget, or make its pods ready"
                .to_owned(),
        ));
    }
    if healthy < expected {
        let selector = pdb.spec.selector.as_ref().map(Selector::new);
        let waits = snapshot.pending.sorted().into_iter().find(|(_, each)| {
            each.key.namespace == name.namespace
                && selector
                    .as_ref()
                    .is_some_and(|selector| selector.matches_labels(&each.labels))
        });
        if let Some((key, _)) = waits {
            return Some((
                DrainBlockerKind::PdbPodsPending,
                format!(
                    "disruption budget {name} ({asks}) has {healthy} ready pods of {expected}, and pod {key} has no node"
                ),
                format!("pod {key} must be scheduled; see /debug/explain?pod={key}"),
            ));
        }
        return Some((
            DrainBlockerKind::PdbPodsNotReady,
            format!(
                "disruption budget {name} ({asks}) has {healthy} ready pods of {expected}, and requires {desired}"
            ),
            format!("more than {desired} of its pods must be ready"),
        ));
    }
    Some((
        DrainBlockerKind::PdbExhausted,
        format!("disruption budget {name} ({asks}) is exhausted by other evictions"),
        "it allows the next eviction when the evicted pods are ready on other nodes".to_owned(),
    ))
}

/// The budget's requirement, as written.
fn asks(pdb: &PodDisruptionBudget) -> String {
    let text = |value: &IntOrString| match value {
        IntOrString::Int(count) => count.to_string(),
        IntOrString::String(text) => text.clone(),
    };
    match (&pdb.spec.min_available, &pdb.spec.max_unavailable) {
        (Some(least), _) => format!("minAvailable {}", text(least)),
        (None, Some(most)) => format!("maxUnavailable {}", text(most)),
        (None, None) => "minAvailable 1".to_owned(),
    }
}
