//! Auto Scaling groups as `aws autoscaling describe-auto-scaling-groups` prints them.

use mortise_apis::labels::INSTANCE_TYPE;
use mortise_apis::values::GoDuration;
use mortise_aws_class::labels::{INSTANCE_CPU, INSTANCE_MEMORY};

use super::fields::FieldAnswer::{Converted, Description, NoCounterpart, NotNeeded};
use super::fields::{FieldRow, report};
use super::group::{NodeGroup, TEMPLATE_TAG, number, text, texts};
use crate::migrate::finding::{Code, FindingLog};
use crate::yaml::{SequenceItem, YamlNode};

const MIX: &str = "MixedInstancesPolicy";

const FIELDS: &[FieldRow] = &[
    ("AutoScalingGroupName", Converted),
    ("AutoScalingGroupARN", Description),
    ("AvailabilityZones", Converted),
    ("AvailabilityZoneIds", Description),
    (
        "AvailabilityZoneDistribution",
        NotNeeded("topology spread constraints of the pods spread nodes over zones"),
    ),
    (
        "AvailabilityZoneImpairmentPolicy",
        NotNeeded("--enable-zonal-shift follows zonal shifts of the cluster"),
    ),
    ("CapacityRebalance", Description),
    (
        "CapacityReservationSpecification",
        NoCounterpart("select reservations in capacityReservationSelectorTerms of the node class"),
    ),
    ("Context", Description),
    ("CreatedTime", Description),
    ("DefaultCooldown", Description),
    ("DefaultInstanceWarmup", Description),
    ("DeletionProtection", Description),
    ("DesiredCapacity", Description),
    ("DesiredCapacityType", Description),
    ("EnabledMetrics", Description),
    ("HealthCheckGracePeriod", Description),
    ("HealthCheckType", Description),
    ("InstanceLifecyclePolicy", Description),
    (
        "InstanceMaintenancePolicy",
        NotNeeded("budgets of the NodePool limit how many nodes are replaced at a time"),
    ),
    ("Instances", Description),
    ("LaunchConfigurationName", Converted),
    ("LaunchTemplate", Converted),
    (
        "LoadBalancerNames",
        NoCounterpart(
            "the AWS Load Balancer Controller registers targets by pod or node, whoever launched it",
        ),
    ),
    ("MaxInstanceLifetime", Converted),
    ("MaxSize", Converted),
    ("MinSize", Converted),
    ("MixedInstancesPolicy", Converted),
    ("NewInstancesProtectedFromScaleIn", Description),
    ("PlacementGroup", Converted),
    ("PredictedCapacity", Description),
    ("ServiceLinkedRoleARN", Description),
    ("Status", Description),
    ("SuspendedProcesses", Description),
    ("Tags", Converted),
    (
        "TargetGroupARNs",
        NoCounterpart(
            "the AWS Load Balancer Controller registers targets by pod or node, whoever launched it",
        ),
    ),
    ("TerminationPolicies", Description),
    ("TrafficSources", Description),
    ("VPCZoneIdentifier", Converted),
    (
        "WarmPoolConfiguration",
        NoCounterpart("a CapacityBuffer keeps room for pods"),
    ),
    ("WarmPoolSize", Description),
];

/// Words of the last part of tags below `autoscaling-options/`.
const UNNEEDED_TIME: &str = "scaledownunneededtime";

/// The name of the group of EKS or eksctl that an Auto Scaling group belongs to.
pub(super) fn member_of(node: &YamlNode) -> Option<String> {
    ["eks:nodegroup-name", "alpha.eksctl.io/nodegroup-name"]
        .iter()
        .find_map(|key| tag(node, key))
}

/// The name of the cluster, of which several tags may have it.
fn cluster(node: &YamlNode) -> Option<String> {
    let named = [
        "eks:cluster-name",
        "alpha.eksctl.io/cluster-name",
        "KubernetesCluster",
    ];
    let in_value = named.iter().find_map(|key| tag(node, key));
    let of_key = |item: &SequenceItem| {
        let key = text(&item.value, &["Key"])?;
        let name = key
            .strip_prefix("kubernetes.io/cluster/")
            .or_else(|| key.strip_prefix("k8s.io/cluster-autoscaler/"))?;
        (!name.contains('/') && name != "enabled").then(|| name.to_owned())
    };
    in_value.or_else(|| node.get("Tags")?.items().iter().find_map(of_key))
}

/// The value of a tag.
pub(super) fn tag(node: &YamlNode, key: &str) -> Option<String> {
    let found = node
        .get("Tags")?
        .items()
        .iter()
        .find(|item| text(&item.value, &["Key"]).as_deref() == Some(key))?;
    Some(text(&found.value, &["Value"]).unwrap_or_default())
}

/// Converts one group. `group` has its place.
pub(super) fn read(node: &YamlNode, group: &mut NodeGroup, log: &mut FindingLog<'_>) {
    report(node, FIELDS, false, log);
    instances(node, group, log);
    let (low, high) = (
        number(node, &["MinSize"], log),
        number(node, &["MaxSize"], log),
    );
    group.sizes(low, high, node.line, log);
    group.zones = texts(node, &["AvailabilityZones"]);
    let subnets = text(node, &["VPCZoneIdentifier"]).unwrap_or_default();
    group.subnets = subnets
        .split(',')
        .map(str::trim)
        .filter(|id| !id.is_empty())
        .map(str::to_owned)
        .collect();
    group.class.placement_group = text(node, &["PlacementGroup"]);
    group.lifetime(node, "MaxInstanceLifetime", log);
    let mut copied = Vec::new();
    for item in node.get("Tags").map(YamlNode::items).unwrap_or_default() {
        let part = |name| text(&item.value, &[name]).unwrap_or_default();
        let (key, value, line) = (part("Key"), part("Value"), item.value.line);
        if let Some(of_template) = key.strip_prefix(TEMPLATE_TAG) {
            template(of_template, &value, line, group, log);
        } else if item
            .value
            .get("PropagateAtLaunch")
            .is_none_or(|flag| flag.text() != Some("false"))
        {
            copied.push((key, value, line));
        }
    }
    group.tags(copied, log);
    group.class.cluster = cluster(node);
}

/// A tag that describes nodes of the group.
fn template(of: &str, value: &str, line: usize, group: &mut NodeGroup, log: &mut FindingLog<'_>) {
    let (kind, key) = of.split_once('/').unwrap_or((of, ""));
    let field = format!("{TEMPLATE_TAG}{of}");
    match kind {
        "label" => group.label(key, value, line, log),
        "taint" => {
            let (value, effect) = value.rsplit_once(':').unwrap_or(("", value));
            group.taint(key, value, effect, line, log);
        }
        "resources" => log.converted(Code::Removed, line, &field, "is not needed: instance types say it"),
        "autoscaling-options" if key == UNNEEDED_TIME && GoDuration::parse(value).is_ok() => {
            log.converted(Code::Moved, line, &field, format!("is consolidateAfter: {value}"));
            group.pool.consolidate_after = Some(value.to_owned());
        }
        "autoscaling-options" => log.warning(Code::Unsupported, line, &field, format!("{value} is not converted: a NodePoolPolicy for this NodePool may have minimumUtilization")),
        _ => log.warning(Code::Unsupported, line, &field, "is not known here, and is not converted"),
    }
}

fn instances(node: &YamlNode, group: &mut NodeGroup, log: &mut FindingLog<'_>) {
    let overrides = node
        .at(&[MIX, "LaunchTemplate", "Overrides"])
        .map(YamlNode::items)
        .unwrap_or_default();
    let (mut types, mut is_weighted) = (Vec::new(), false);
    for item in overrides {
        types.extend(text(&item.value, &["InstanceType"]));
        is_weighted |= text(&item.value, &["WeightedCapacity"]).is_some_and(|weight| weight != "1");
        if let Some(wanted) = item.value.get("InstanceRequirements") {
            described(wanted, group, log);
        }
    }
    types.dedup();
    if !types.is_empty() {
        group.require(INSTANCE_TYPE, types);
    }
    if is_weighted {
        log.warning(
            Code::Behaviour,
            node.line,
            MIX,
            "its sizes count weights, and limits.nodes counts nodes: check the limit",
        );
    }
    let mix = node.at(&[MIX, "InstancesDistribution"]);
    let (mut base, mut share, mut line) = (0, 100, node.line);
    if let Some(mix) = mix {
        base = number(mix, &["OnDemandBaseCapacity"], log).unwrap_or(0);
        share = number(mix, &["OnDemandPercentageAboveBaseCapacity"], log).unwrap_or(100);
        line = mix.line;
        if let Some(price) = text(mix, &["SpotMaxPrice"]) {
            log.warning(Code::Unsupported, mix.line, "SpotMaxPrice", format!("{price} has no counterpart: hourlyPrice of a NodePoolPolicy limits all spot instances"));
        }
    }
    group.capacity(base, share, line, log);
    let templates: [&[&str]; 3] = [
        &["LaunchTemplate"],
        &["LaunchConfigurationName"],
        &[MIX, "LaunchTemplate", "LaunchTemplateSpecification"],
    ];
    if let Some(template) = templates.iter().find_map(|path| node.at(path)) {
        let name =
            text(template, &["LaunchTemplateName"]).or_else(|| template.text().map(str::to_owned));
        let name = name.map_or_else(String::new, |name| format!("{name} "));
        log.warning(Code::Missing, template.line, "LaunchTemplate", format!("{name}is not part of the input: check images, user data, disks and security groups of the node class against it"));
    }
}

/// Requirements from attributes of instance types: a range of CPUs and of memory.
fn described(wanted: &YamlNode, group: &mut NodeGroup, log: &mut FindingLog<'_>) {
    let ranges = [("VCpuCount", INSTANCE_CPU), ("MemoryMiB", INSTANCE_MEMORY)];
    for (field, key) in ranges {
        if let Some(low) = number(wanted, &[field, "Min"], log).filter(|low| *low > 0) {
            let requirement = (key.to_owned(), "Gt", vec![(low - 1).to_string()]);
            group.pool.requirements.push(requirement);
        }
        if let Some(high) = number(wanted, &[field, "Max"], log) {
            let requirement = (
                key.to_owned(),
                "Lt",
                vec![high.saturating_add(1).to_string()],
            );
            group.pool.requirements.push(requirement);
        }
    }
    let others: Vec<&str> = wanted
        .entries()
        .iter()
        .map(|entry| entry.key.text.as_str())
        .filter(|name| ranges.iter().all(|(known, _)| known != name))
        .collect();
    if !others.is_empty() {
        log.warning(
            Code::Unsupported,
            wanted.line,
            "InstanceRequirements",
            format!(
                "{} not converted: write requirements into the NodePool",
                if others.len() == 1 {
                    format!("{} is", others.join(""))
                } else {
                    format!("{} are", others.join(", "))
                }
            ),
        );
    }
}
