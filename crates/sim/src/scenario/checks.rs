//! Whether the names in a timeline are those of the cluster and the cloud.

use mortise_apis::values::GoDuration;
use mortise_cloudprovider::InstanceType;
use mortise_state::resource_kinds::ObjectKind;

use super::cluster_objects::ClusterObjects;
use super::timeline::{TimelineAction, Watch};
use crate::manifest_error::ManifestError;

/// Kinds whose watch can fail.
const WATCHED: [(&str, ObjectKind); 4] = [
    ("Pod", ObjectKind::Pod),
    ("Node", ObjectKind::Node),
    ("NodeClaim", ObjectKind::Claim),
    ("NodePool", ObjectKind::Pool),
];

/// The names in an entry are those of the cluster and the cloud.
pub(super) fn check(
    action: &TimelineAction<'_>,
    field: &str,
    objects: &ClusterObjects,
    catalog: &[InstanceType],
) -> Result<(), ManifestError> {
    let known = |name: &str, given: &str, all: &[&str]| {
        if all.contains(&given) {
            return Ok(());
        }
        Err(ManifestError::unknown(
            format!("{field}.{name}"),
            given,
            all,
        ))
    };
    match action {
        TimelineAction::Scale(scale) => {
            let field = format!("{field}.scale");
            objects.check_target(scale.target(&field)?, &field)
        }
        TimelineAction::Roll(roll) => {
            let field = format!("{field}.roll");
            objects.check_target(roll.target(&field)?, &field)
        }
        TimelineAction::Create(create) => known("create.job", &create.job, &objects.job_names()),
        TimelineAction::Edit(edit) => {
            known("edit.nodePool", &edit.node_pool, &objects.pool_names())
        }
        TimelineAction::Delete(delete) => {
            known("delete.nodePool", &delete.node_pool, &objects.pool_names())
        }
        TimelineAction::Shortage(shortage) => {
            let field = format!("{field}.shortage");
            shortage.offerings().check(&field, catalog)
        }
        TimelineAction::Price(price) => {
            let field = format!("{field}.price");
            price.to(&field)?;
            if price.lasts.is_some_and(|lasts| lasts <= GoDuration::ZERO) {
                return Err(ManifestError::new(
                    format!("{field}.for"),
                    "must be more than 0s; leave it out for prices that stay",
                ));
            }
            price.offerings().check(&field, catalog)
        }
        TimelineAction::Image(image) => {
            if image.name.is_empty() {
                let field = format!("{field}.image.name");
                return Err(ManifestError::new(field, "is empty"));
            }
            for (name, percent) in [
                ("bootFailurePercent", image.boot_failure_percent),
                ("podFailurePercent", image.pod_failure_percent),
            ] {
                if percent > 100 {
                    let field = format!("{field}.image.{name}");
                    return Err(ManifestError::new(field, "must be from 0 to 100"));
                }
            }
            let classes = objects.node_classes()?;
            let names: Vec<&str> = classes.iter().map(|class| &*class.name).collect();
            known("image.nodeClass", &image.node_class, &names)
        }
        TimelineAction::Watch(watch) => watched(watch, field).map(drop),
        TimelineAction::Interrupt(_)
        | TimelineAction::Rebalance(_)
        | TimelineAction::Images(_)
        | TimelineAction::Crash => Ok(()),
    }
}

/// The kind whose watch fails.
pub(super) fn watched(watch: &Watch, field: &str) -> Result<ObjectKind, ManifestError> {
    let mut kinds = WATCHED.iter();
    let found = kinds.find(|(name, _)| *name == watch.kind);
    let names = WATCHED.map(|(name, _)| name);
    let unknown = || ManifestError::unknown(format!("{field}.watch.kind"), &watch.kind, &names);
    found.map(|(_, kind)| kind.clone()).ok_or_else(unknown)
}
