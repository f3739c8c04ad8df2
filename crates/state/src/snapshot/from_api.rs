//! Converts a pod of the API to the reduced record of the snapshot.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};

use super::devices::claims_of;
use super::pod_class::{PodClass, sorted_labels};
use super::{DeletionCost, GangKey, LaunchHold, Owner, Pod, PodClasses, PodPhase, Refusal};
use mortise_apis::names::PodKey;
use mortise_apis::{k8s, labels};

/// Annotation of the kubelet on the mirror of a static pod.
const MIRROR: &str = "kubernetes.io/config.mirror";
/// Default of the API server.
const DEFAULT_GRACE_SECONDS: i64 = 30;

impl Pod {
    /// Converts a pod. It never fails: anything malformed is recorded in the class, which keeps the pod from being placed and
    /// states why.
    #[must_use]
    pub fn from_api(object: &k8s::Pod, classes: &mut PodClasses) -> Self {
        let k8s::Pod {
            metadata,
            spec,
            status,
        } = object;
        let labels = sorted_labels(object);
        let class = classes.share(PodClass::from_pod(object, &labels));
        let annotation = |key: &str| {
            metadata
                .annotations
                .as_ref()
                .and_then(|all| all.get(key))
                .map(String::as_str)
        };
        let condition = |type_: &str| status.conditions.iter().find(|each| each.type_ == type_);
        let scheduled = condition("PodScheduled");
        let created = time(metadata.creation_timestamp.as_ref()).unwrap_or(Timestamp::UNIX_EPOCH);
        let ready = condition("Ready").filter(|each| each.status == "True");
        Self {
            key: PodKey::new(
                Arc::clone(&class.namespace),
                metadata.name.as_deref().unwrap_or_default(),
            ),
            uid: metadata.uid.as_deref().unwrap_or_default().into(),
            labels: classes.share_labels(labels),
            claims: claims_of(object),
            node: name(spec.node_name.as_deref()),
            nominated: name(status.nominated_node_name.as_deref()),
            phase: phase(&status.phase),
            owner: owner(metadata),
            created,
            deleted: time(metadata.deletion_timestamp.as_ref()),
            finalizers: kept_by(metadata),
            started: time(status.start_time.as_ref()),
            unschedulable: scheduled.is_some_and(|each| each.reason == "Unschedulable"),
            refusal: scheduled.and_then(refusal),
            has_scheduler_error: scheduled.is_some_and(|each| each.reason == "SchedulerError"),
            gated: !spec.scheduling_gates.is_empty(),
            ready: ready.is_some(),
            ready_since: ready.and_then(|each| time(each.last_transition_time.as_ref())),
            do_not_disrupt: annotation(labels::DO_NOT_DISRUPT).map(Into::into),
            is_unsafe_to_evict: classes.holds.all
                && annotation(labels::SAFE_TO_EVICT) == Some("false"),
            launch_hold: LaunchHold::of(annotation, created, classes.holds),
            deletion_cost: DeletionCost::of(annotation),
            max_moves_per_day: annotation(labels::MAX_MOVES_PER_DAY).map(Into::into),
            hand_over: annotation(labels::HAND_OVER).map(Into::into),
            grace_seconds: spec
                .termination_grace_period_seconds
                .unwrap_or(DEFAULT_GRACE_SECONDS),
            mirror: annotation(MIRROR).is_some(),
            gang: GangKey::of_pod(object).map(Arc::new),
            buffer: None,
            requested: None,
            class,
        }
    }
}

fn name<T: for<'a> From<&'a str>>(text: Option<&str>) -> Option<T> {
    text.filter(|text| !text.is_empty()).map(T::from)
}

fn time(of: Option<&Time>) -> Option<Timestamp> {
    of.map(|time| time.0)
}

fn refusal(scheduled: &k8s::PodCondition) -> Option<Arc<Refusal>> {
    (scheduled.reason == "Unschedulable").then(|| {
        let message: String = scheduled
            .message
            .chars()
            .take(Refusal::MOST_CHARS)
            .collect();
        Arc::new(Refusal {
            since: time(scheduled.last_transition_time.as_ref()),
            message: message.into(),
        })
    })
}

fn kept_by(metadata: &ObjectMeta) -> Option<Arc<str>> {
    metadata.deletion_timestamp.as_ref()?;
    let all = metadata.finalizers.as_ref().filter(|all| !all.is_empty())?;
    Some(all.join(", ").into())
}

fn phase(text: &str) -> PodPhase {
    match text {
        "Running" => PodPhase::Running,
        "Succeeded" => PodPhase::Succeeded,
        "Failed" => PodPhase::Failed,
        "Unknown" => PodPhase::Unknown,
        _ => PodPhase::Pending,
    }
}

/// The controlling owner; without one, an owner of a kind that is treated specially, or the first owner.
fn owner(metadata: &ObjectMeta) -> Option<Owner> {
    let all = metadata.owner_references.as_deref().unwrap_or_default();
    let special =
        |each: &&OwnerReference| matches!(each.kind.as_str(), "DaemonSet" | "Node" | "StatefulSet");
    let of = all
        .iter()
        .find(|each| each.controller == Some(true))
        .or_else(|| all.iter().find(special))
        .or_else(|| all.first())?;
    Some(Owner {
        kind: of.kind.as_str().into(),
        name: of.name.as_str().into(),
        uid: of.uid.as_str().into(),
    })
}
