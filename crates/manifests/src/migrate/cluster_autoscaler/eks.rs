//! Managed node groups as `aws eks describe-nodegroup` prints them.

use mortise_apis::labels::{CAPACITY_TYPE, CAPACITY_TYPE_RESERVED, INSTANCE_TYPE};

use super::eksctl::{disks, replaced_at_once};
use super::fields::FieldAnswer::{Converted, Description, NotNeeded};
use super::fields::{FieldRow, report};
use super::group::{NodeGroup, name_of_arn, number, pairs, text, texts};
use super::images::set_family;
use crate::migrate::finding::{Code, FindingLog};
use crate::yaml::YamlNode;

const FIELDS: &[FieldRow] = &[
    ("nodegroupName", Converted),
    ("nodegroupArn", Description),
    ("clusterName", Converted),
    ("version", Description),
    ("releaseVersion", Description),
    ("createdAt", Description),
    ("modifiedAt", Description),
    ("status", Description),
    ("health", Description),
    ("capacityType", Converted),
    ("scalingConfig", Converted),
    ("instanceTypes", Converted),
    ("subnets", Converted),
    ("amiType", Converted),
    ("nodeRole", Converted),
    ("labels", Converted),
    ("taints", Converted),
    ("resources", Converted),
    ("diskSize", Converted),
    ("launchTemplate", Converted),
    ("updateConfig.maxUnavailable", Converted),
    ("updateConfig.maxUnavailablePercentage", Converted),
    (
        "updateConfig.updateStrategy",
        NotNeeded("replacements are launched before drifted nodes go"),
    ),
    (
        "nodeRepairConfig.enabled",
        NotNeeded("the feature gate NodeRepair replaces nodes that do not work"),
    ),
    ("nodeRepairConfig", Description),
    (
        "remoteAccess",
        NotNeeded("node classes have no key pairs: use Session Manager, or kubectl debug node"),
    ),
    ("tags", Converted),
];

/// Converts the object below `nodegroup`. `group` has its place.
pub(super) fn read(node: &YamlNode, group: &mut NodeGroup, log: &mut FindingLog<'_>) {
    report(node, FIELDS, false, log);
    group.class.cluster = text(node, &["clusterName"]);
    let types = texts(node, &["instanceTypes"]);
    if !types.is_empty() {
        group.require(INSTANCE_TYPE, types);
    }
    let capacity = node.get("capacityType");
    let line = capacity.map_or(node.line, |capacity| capacity.line);
    match capacity.and_then(YamlNode::text) {
        Some("SPOT") => group.capacity(0, 0, line, log),
        Some("ON_DEMAND") | None => group.capacity(0, 100, line, log),
        Some("CAPACITY_BLOCK") => {
            group.require(CAPACITY_TYPE, vec![CAPACITY_TYPE_RESERVED.to_owned()]);
            log.error(Code::Missing, line, "capacityType", "the capacity block is in its launch template: select its reservation in capacityReservationSelectorTerms of the node class");
        }
        Some(other) => {
            log.error(
                Code::Unreadable,
                line,
                "capacityType",
                format!(
                    "{other:?} is none of ON_DEMAND, SPOT, CAPACITY_BLOCK; interpreted as ON_DEMAND"
                ),
            );
            group.capacity(0, 100, line, log);
        }
    }
    let low = number(node, &["scalingConfig", "minSize"], log);
    let high = number(node, &["scalingConfig", "maxSize"], log);
    let line = node
        .get("scalingConfig")
        .map_or(node.line, |sizes| sizes.line);
    group.sizes(low, high, line, log);
    for (key, value, line) in pairs(node, &["labels"]) {
        if !key.starts_with("alpha.eksctl.io/") && !key.starts_with("eks.amazonaws.com/") {
            group.label(&key, &value, line, log);
        }
    }
    for item in node.get("taints").map(YamlNode::items).unwrap_or_default() {
        group.taint_object(&item.value, log);
    }
    group.tags(pairs(node, &["tags"]), log);
    group.subnets = texts(node, &["subnets"]);
    group.class.role = text(node, &["nodeRole"]).map(|arn| name_of_arn(&arn));
    group.pool.replaced_at_once = replaced_at_once(node, log);
    let own = node
        .at(&["resources", "autoScalingGroups"])
        .map(YamlNode::items)
        .unwrap_or_default();
    group.scaling_groups = own
        .iter()
        .filter_map(|item| text(&item.value, &["name"]))
        .collect();
    images(node, group, log);
}

fn images(node: &YamlNode, group: &mut NodeGroup, log: &mut FindingLog<'_>) {
    if let Some((name, line)) = node
        .get("amiType")
        .and_then(|kind| Some((kind.text()?, kind.line)))
    {
        set_family(group, name, line, "amiType", log);
    }
    let template = node
        .get("launchTemplate")
        .filter(|template| !template.is_nothing());
    match template {
        Some(template) => log.warning(Code::Missing, template.line, "launchTemplate", "is not part of the input: check disks, images, user data and security groups of the node class against it"),
        None => {
            let size = number(node, &["diskSize"], log).unwrap_or(20);
            let ebs = vec![("volumeSize", format!("{size}Gi")), ("volumeType", "gp3".to_owned())];
            group.class.disks = disks(group.class.family, None, ebs);
        }
    }
}
