//! Why a PodDisruptionBudget allows no eviction.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::drain::pdb::Pdbs;
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
/// The pending pods where some of a budget are missing.
pub(super) fn drain_blocker(snapshot: &Snapshot, pdbs: &Pdbs<'_>, pod: &Pod) -> Option<PodBlocker> {
    standing_blocker(pdbs, pod).or_else(|| match pdbs.of_pod(pod).as_slice() {
        [(name, pdb)] if !allows(pdb, pod) => Some(passing_blocker(snapshot, pod, name, pdb)),
        _ => None,
    })
}

/// What blocks the eviction of the pod until an object is changed; `None` when no PodDisruptionBudget does.
pub(super) fn standing_blocker(pdbs: &Pdbs<'_>, pod: &Pod) -> Option<PodBlocker> {
    match pdbs.of_pod(pod).as_slice() {
        [] => None,
        [(name, pdb)] if allows(pdb, pod) => None,
        [(name, pdb)] => never_allows(name, pdb),
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

/// A status of an older generation allows nothing, regardless of its value.
fn is_stale(pdb: &PodDisruptionBudget) -> bool {
    pdb.status.observed_generation < pdb.metadata.generation
}

fn allows(pdb: &PodDisruptionBudget, pod: &Pod) -> bool {
    let frees_unready = pdb.spec.unhealthy_pod_eviction_policy.as_deref() == Some("AlwaysAllow");
    (pdb.status.disruptions_allowed > 0 && !is_stale(pdb)) || (frees_unready && !pod.ready)
}

/// Why the budget allows no eviction until it, or what it counts, is changed.
fn never_allows(name: &NamespacedName, pdb: &PodDisruptionBudget) -> Option<PodBlocker> {
    let status = &pdb.status;
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
    let (desired, expected) = (status.desired_healthy, status.expected_pods);
    (!is_stale(pdb) && desired >= expected).then(|| {
        (
            DrainBlockerKind::PdbNeverAllows,
            format!(
                "disruption budget {name} ({asks}) requires {desired} of {expected} pods: it never allows an eviction"
            ),
            format!("allow one unavailable pod in the budget, or run more than {desired} pods"),
        )
    })
}

/// Why the budget allows no eviction now.
fn passing_blocker(
    snapshot: &Snapshot,
    pod: &Pod,
    name: &NamespacedName,
    pdb: &PodDisruptionBudget,
) -> PodBlocker {
    let asks = asks(pdb);
    if is_stale(pdb) {
        return (
            DrainBlockerKind::PdbNotComputed,
            format!("disruption budget {name} ({asks}) is not computed yet"),
            "kube-controller-manager must be running and compute it".to_owned(),
        );
    }
    let status = &pdb.status;
    let (healthy, desired, expected) = (
        status.current_healthy,
        status.desired_healthy,
        status.expected_pods,
    );
    // Of several budgets that select a pod, kube-controller-manager updates an arbitrary one when the pod changes. When
    // that one is deleted, the status of the other stays stale (observed on 1.36 for half of the pods).
    if pod.ready && healthy == 0 {
        return (
            DrainBlockerKind::PdbNotComputed,
            format!(
                "disruption budget {name} ({asks}) has 0 ready pods of {expected}, and this one is ready: its status is outdated"
            ),
            format!("annotate {name}: kube-controller-manager computes it again when it changes"),
        );
    }
    if !pod.ready && healthy < desired {
        return (
            DrainBlockerKind::PdbPodNotReady,
            format!(
                "it is not ready, and disruption budget {name} ({asks}) has {healthy} ready pods of {desired} required"
            ),
            "set unhealthyPodEvictionPolicy: AlwaysAllow on the budget, or make its pods ready"
                .to_owned(),
        );
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
            return (
                DrainBlockerKind::PdbPodsPending,
                format!(
                    "disruption budget {name} ({asks}) has {healthy} ready pods of {expected}, and pod {key} has no node"
                ),
                format!("pod {key} must be scheduled; see /debug/explain?pod={key}"),
            );
        }
        return (
            DrainBlockerKind::PdbPodsNotReady,
            format!(
                "disruption budget {name} ({asks}) has {healthy} ready pods of {expected}, and requires {desired}"
            ),
            format!("more than {desired} of its pods must be ready"),
        );
    }
    (
        DrainBlockerKind::PdbExhausted,
        format!("disruption budget {name} ({asks}) is exhausted by other evictions"),
        "it allows the next eviction when the evicted pods are ready on other nodes".to_owned(),
    )
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
