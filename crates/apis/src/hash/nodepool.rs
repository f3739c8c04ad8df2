//! The hash of a NodePool's template.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Taint;

use super::structure::{Structure, fnv, int64, list, map, text_value};
use crate::karpenter::nodepool::{NodeClaimTemplateSpec, NodePool, TemplateMetadata};
use crate::schema::duration_text::DurationText;
use crate::schema::groups::NodeClassRef;
use crate::values::GoDuration;

impl NodePool {
    /// The drift hash, version [`NODE_POOL_HASH_VERSION`](super::NODE_POOL_HASH_VERSION). It covers labels, annotations,
    /// taints, startup taints, the reference to the node class, grace period and age limit of the template; requirements
    /// have a drift check of their own.
    #[must_use]
    pub fn hash(&self) -> u64 {
        let template = &self.spec.template;
        Structure::new("NodeClaimTemplate")
            .field("ObjectMeta", template.metadata.as_ref().and_then(metadata))
            .field("Spec", Some(spec(&template.spec)))
            .finish()
    }
}

/// `None` when neither labels nor annotations are given; an empty map is given.
fn metadata(metadata: &TemplateMetadata) -> Option<u64> {
    let labels = metadata.labels.as_ref().map(map);
    let annotations = metadata.annotations.as_ref().map(map);
    (labels.is_some() || annotations.is_some()).then(|| {
        Structure::new("ObjectMeta")
            .field("Labels", labels)
            .field("Annotations", annotations)
            .finish()
    })
}

fn spec(spec: &NodeClaimTemplateSpec) -> u64 {
    let reference =
        (spec.node_class_ref != NodeClassRef::default()).then(|| node_class(&spec.node_class_ref));
    Structure::new("NodeClaimTemplateSpec")
        .field("Taints", spec.taints.as_deref().map(taints))
        .field("StartupTaints", spec.startup_taints.as_deref().map(taints))
        .field("NodeClassRef", reference)
        .field(
            "TerminationGracePeriod",
            spec.termination_grace_period.as_ref().map(grace_period),
        )
        .field(
            "ExpireAfter",
            spec.expire_after.as_ref().and_then(age_limit),
        )
        .finish()
}

fn node_class(reference: &NodeClassRef) -> u64 {
    Structure::new("NodeClassReference")
        .field("Kind", text_value(&reference.kind))
        .field("Name", text_value(&reference.name))
        .field("Group", text_value(&reference.group))
        .finish()
}

fn taints(taints: &[Taint]) -> u64 {
    list(taints.iter().map(|taint| {
        Structure::new("Taint")
            .field("Key", text_value(&taint.key))
            .field(
                "Value",
                text_value(taint.value.as_deref().unwrap_or_default()),
            )
            .field("Effect", text_value(&taint.effect))
            .field(
                "TimeAdded",
                taint.time_added.as_ref().map(|time| moment(time.0)),
            )
            .finish()
    }))
}

/// Go's binary form of a moment: version 1, seconds since year 1 and nanoseconds, both big endian, and the offset of
/// the process's time zone in minutes. The offset is that of UTC, in which controllers run.
fn moment(time: Timestamp) -> u64 {
    const YEAR_1_TO_1970: i64 = 62_135_596_800;
    let mut bytes = vec![1];
    bytes.extend((time.as_second() + YEAR_1_TO_1970).to_be_bytes());
    bytes.extend(time.subsec_nanosecond().to_be_bytes());
    bytes.extend(0_i16.to_be_bytes());
    Structure::new("Time")
        .field("Time", Some(fnv(&bytes)))
        .finish()
}

/// A pointer to a duration: zero is set, with nothing inside.
fn grace_period(duration: &DurationText) -> u64 {
    let inside = duration_value(duration).filter(|value| *value != int64(0));
    Structure::new("Duration")
        .field("Duration", inside)
        .finish()
}

/// A duration or `Never`, which counts as absent.
fn age_limit(duration: &DurationText) -> Option<u64> {
    duration_value(duration).map(|value| {
        Structure::new("NillableDuration")
            .field("Duration", Some(value))
            .finish()
    })
}

/// Hash of the nanoseconds; `None` for `Never`. A text that is no duration (the CRD admits numbers that are too large) is
/// hashed as it is, so that a change of it is a change.
fn duration_value(duration: &DurationText) -> Option<u64> {
    if duration.is_never() {
        return None;
    }
    Some(GoDuration::parse(duration.as_str()).map_or_else(
        |_| super::structure::text(duration.as_str()),
        |go| int64(go.as_nanos()),
    ))
}
