//! Node groups of a `ClusterConfig` of eksctl.

mod table;

use mortise_apis::labels::INSTANCE_TYPE;
use mortise_aws_class::labels::{INSTANCE_CPU, INSTANCE_GPU_COUNT, INSTANCE_MEMORY};
use serde_json::Value;

use super::fields::report;
use super::group::{GroupDisk, NodeGroup, is_true, name_of_arn, number, pairs, text, texts};
use super::images::{is_windows, set_family};
use crate::migrate::finding::{Code, FindingLog, MigrationFinding};
use crate::yaml::{MapEntry, YamlNode};

/// The version of the format.
pub(super) const API_VERSION: &str = "eksctl.io/v1alpha5";
/// Number of nodes, instance type and disk of a group that names none.
const DEFAULT_NODES: u64 = 2;
const DEFAULT_TYPE: &str = "m5.large";
const DEFAULT_DISK: u64 = 80;

/// Where the groups of a document stand.
pub(super) struct ConfigSource<'a> {
    pub(super) file: usize,
    pub(super) name: &'a str,
}

/// The groups of a document, in their order; managed ones and others.
pub(super) fn read(
    root: &YamlNode,
    source: &ConfigSource<'_>,
    findings: &mut Vec<MigrationFinding>,
) -> Vec<NodeGroup> {
    let mut groups = Vec::new();
    for list in ["managedNodeGroups", "nodeGroups"] {
        let items = root.get(list).map(YamlNode::items).unwrap_or_default();
        for (index, item) in items.iter().enumerate() {
            let node = &item.value;
            let name = text(node, &["name"]).unwrap_or_else(|| format!("group-{index}"));
            let mut log = FindingLog {
                file: source.name,
                object: format!("{list} {name}"),
                findings,
            };
            if name.contains("{{") {
                log.error(
                    Code::Placeholder,
                    node.line,
                    "name",
                    format!("{name:?} looks like a template: render it first"),
                );
            }
            let mut group = NodeGroup {
                file: source.file,
                line: node.line,
                object: log.object.clone(),
                name,
                ..NodeGroup::default()
            };
            report(node, table::FIELDS, true, &mut log);
            let cluster = text(root, &["metadata", "name"]);
            group.scaling_groups = scaling_groups(list, cluster.as_deref(), &group.name);
            group.class.cluster = cluster;
            one(
                root,
                node,
                list == "managedNodeGroups",
                &mut group,
                &mut log,
            );
            groups.push(group);
        }
    }
    groups
}

/// How the names of its Auto Scaling groups begin.
fn scaling_groups(list: &str, cluster: Option<&str>, name: &str) -> Vec<String> {
    match (list, cluster) {
        ("managedNodeGroups", _) => vec![format!("eks-{name}-")],
        (_, Some(cluster)) => vec![format!("eksctl-{cluster}-nodegroup-{name}-NodeGroup-")],
        _ => Vec::new(),
    }
}

fn one(
    root: &YamlNode,
    node: &YamlNode,
    is_managed: bool,
    group: &mut NodeGroup,
    log: &mut FindingLog<'_>,
) {
    instances(node, group, log);
    sizes(node, group, log);
    group.zones = texts(node, &["availabilityZones"]);
    if group.zones.is_empty() {
        group.zones = texts(node, &["localZones"]);
    }
    for (key, value, line) in pairs(node, &["labels"]) {
        group.label(&key, &value, line, log);
    }
    taints(node, group, log);
    let mut tags = pairs(node, &["tags"]);
    tags.extend(pairs(root, &["metadata", "tags"]));
    group.tags(tags, log);
    network(root, node, group, log);
    images(node, group, log);
    disk(node, group, log);
    kubelet(node, group, log);
    if let Some(arn) =
        text(node, &["iam", "instanceRoleARN"]).or_else(|| text(node, &["iam", "instanceRoleName"]))
    {
        group.class.role = Some(name_of_arn(&arn));
    } else if let Some(arn) = text(node, &["iam", "instanceProfileARN"]) {
        group.class.instance_profile = Some(name_of_arn(&arn));
    }
    let no_metadata = is_true(node, &["disablePodIMDS"]) == Some(true);
    group.class.hop_limit = (!no_metadata).then_some(2);
    group.class.detailed_monitoring = is_true(node, &["enableDetailedMonitoring"]) == Some(true);
    group.class.placement_group = text(node, &["placement", "groupName"]);
    let reservation = [
        "capacityReservation",
        "capacityReservationTarget",
        "capacityReservationID",
    ];
    if let Some(id) = text(node, &reservation) {
        group.reserve(id);
    }
    group.lifetime(node, "maxInstanceLifetime", log);
    if is_managed {
        group.pool.replaced_at_once = replaced_at_once(node, log);
    }
}

/// The part of `updateConfig` that is not the default.
pub(super) fn replaced_at_once(node: &YamlNode, log: &mut FindingLog<'_>) -> Option<String> {
    let percent = number(node, &["updateConfig", "maxUnavailablePercentage"], log);
    let nodes = number(node, &["updateConfig", "maxUnavailable"], log).filter(|nodes| *nodes != 1);
    let found = percent
        .map(|percent| format!("{percent}%"))
        .or_else(|| nodes.map(|nodes| nodes.to_string()))?;
    let line = node.get("updateConfig").map_or(0, |config| config.line);
    log.converted(
        Code::Moved,
        line,
        "updateConfig",
        format!("is a budget of {found} for the reason Drifted"),
    );
    Some(found)
}

fn instances(node: &YamlNode, group: &mut NodeGroup, log: &mut FindingLog<'_>) {
    let mut types = texts(node, &["instanceTypes"]);
    types.extend(texts(node, &["instancesDistribution", "instanceTypes"]));
    types.extend(text(node, &["instanceType"]).filter(|name| name != "mixed"));
    types.dedup();
    let selector = node
        .get("instanceSelector")
        .filter(|selector| !selector.entries().is_empty());
    if let Some(selector) = selector.filter(|_| types.is_empty()) {
        selected(selector, group, log);
    } else if !types.is_empty() {
        group.require(INSTANCE_TYPE, types);
    } else if node.get("launchTemplate").is_none() {
        log.converted(
            Code::Added,
            node.line,
            "instanceType",
            format!("{DEFAULT_TYPE}, the default of eksctl"),
        );
        group.require(INSTANCE_TYPE, vec![DEFAULT_TYPE.to_owned()]);
    }
    if let Some(template) = node.get("launchTemplate") {
        log.warning(Code::Missing, template.line, "launchTemplate", "is not read: check disks, images, user data and security groups of the node class against it");
    }
    match node.get("instancesDistribution") {
        Some(mix) => {
            let base = number(mix, &["onDemandBaseCapacity"], log).unwrap_or(0);
            let share = number(mix, &["onDemandPercentageAboveBaseCapacity"], log).unwrap_or(100);
            group.capacity(base, share, mix.line, log);
        }
        None if is_true(node, &["spot"]) == Some(true) => group.capacity(0, 0, node.line, log),
        None => group.capacity(0, 100, node.line, log),
    }
}

/// Requirements from a description of instance types.
fn selected(selector: &YamlNode, group: &mut NodeGroup, log: &mut FindingLog<'_>) {
    let counts = [("vCPUs", INSTANCE_CPU), ("gpus", INSTANCE_GPU_COUNT)];
    for (field, key) in counts {
        if let Some(count) = number(selector, &[field], log) {
            group.require(key, vec![count.to_string()]);
        }
    }
    if let Some(memory) = selector.get("memory").filter(|memory| !memory.is_nothing()) {
        let text = memory.text().unwrap_or_default();
        let number = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
        match number.trim().parse::<u64>() {
            Ok(gib) => group.require(INSTANCE_MEMORY, vec![gib.saturating_mul(1024).to_string()]),
            Err(_) => log.error(
                Code::Unreadable,
                memory.line,
                "instanceSelector.memory",
                format!("{text:?} must be GiB, such as 8"),
            ),
        }
    }
    if let Some(name) = text(selector, &["cpuArchitecture"]) {
        let arch = if name.starts_with("arm64") {
            "arm64"
        } else {
            "amd64"
        };
        group.require(mortise_apis::labels::ARCH, vec![arch.to_owned()]);
    }
}

/// The sizes, with the defaults of eksctl: of two nodes, or as the other sizes say.
fn sizes(node: &YamlNode, group: &mut NodeGroup, log: &mut FindingLog<'_>) {
    let mut read = |field| number(node, &[field], log);
    let (wanted, low, high) = (read("desiredCapacity"), read("minSize"), read("maxSize"));
    if wanted.or(low).or(high).is_none() {
        log.converted(
            Code::Added,
            node.line,
            "",
            format!("{DEFAULT_NODES} nodes, the default of eksctl"),
        );
    }
    let wanted = wanted.or(low).or(high).unwrap_or(DEFAULT_NODES);
    group.sizes(
        Some(low.unwrap_or(wanted)),
        Some(high.unwrap_or(wanted)),
        node.line,
        log,
    );
}

/// Both forms: a list of taints, and a map of keys to `value:effect`.
fn taints(node: &YamlNode, group: &mut NodeGroup, log: &mut FindingLog<'_>) {
    let Some(taints) = node.get("taints") else {
        return;
    };
    for item in taints.items() {
        group.taint_object(&item.value, log);
    }
    for MapEntry {
        key, value, line, ..
    } in taints.entries()
    {
        let both = value.text().unwrap_or_default();
        let (value, effect) = both.rsplit_once(':').unwrap_or(("", both));
        group.taint(&key.text, value, effect, *line, log);
    }
}

fn network(root: &YamlNode, node: &YamlNode, group: &mut NodeGroup, log: &mut FindingLog<'_>) {
    let is_private = is_true(node, &["privateNetworking"]) == Some(true);
    group.class.is_private = Some(is_private);
    let kind = if is_private { "private" } else { "public" };
    let known = root
        .at(&["vpc", "subnets", kind])
        .map(YamlNode::entries)
        .unwrap_or_default();
    let in_zones = |entry: &&MapEntry| {
        let zone = text(&entry.value, &["az"]).unwrap_or_else(|| entry.key.text.clone());
        group.zones.is_empty() || group.zones.contains(&zone)
    };
    let named = texts(node, &["subnets"]);
    for name in &named {
        let entry = ["private", "public"]
            .iter()
            .find_map(|kind| root.at(&["vpc", "subnets", kind])?.get(name));
        match entry.and_then(|entry| text(entry, &["id"])) {
            Some(id) => group.subnets.push(id),
            None if name.starts_with("subnet-") => group.subnets.push(name.clone()),
            None => log.warning(
                Code::Missing,
                node.line,
                "subnets",
                format!("{name:?} has no id in vpc.subnets and is left out"),
            ),
        }
    }
    if named.is_empty() {
        group.subnets = known
            .iter()
            .filter(in_zones)
            .filter_map(|entry| text(&entry.value, &["id"]))
            .collect();
    }
    group.class.security_groups = texts(node, &["securityGroups", "attachIDs"]);
    group.class.no_other_groups = is_true(node, &["securityGroups", "withShared"]) == Some(false);
    if let Some(shared) = text(root, &["vpc", "sharedNodeSecurityGroup"]) {
        if !group.class.no_other_groups {
            group.class.security_groups.push(shared);
        }
        group.class.no_other_groups = true;
    }
}

fn images(node: &YamlNode, group: &mut NodeGroup, log: &mut FindingLog<'_>) {
    let image = text(node, &["ami"]).filter(|image| image.starts_with("ami-"));
    group.class.images.extend(image);
    match node
        .get("amiFamily")
        .and_then(|family| Some((family.text()?, family.line)))
    {
        Some((name, line)) => set_family(group, name, line, "amiFamily", log),
        None => {
            group.class.family = Some("AL2023");
            log.converted(
                Code::Added,
                node.line,
                "amiFamily",
                "AL2023, the default of eksctl",
            );
        }
    }
    let release = node
        .get("releaseVersion")
        .and_then(|release| Some((release.text()?, release.line)));
    if let Some((release, line)) = release {
        log.warning(Code::Behaviour, line, "releaseVersion", format!("{release} is not kept: the alias has the newest images; write a version instead of latest to keep one"));
    }
    let commands = texts(node, &["preBootstrapCommands"]);
    if commands.is_empty() {
        return;
    }
    let line = node
        .get("preBootstrapCommands")
        .map_or(0, |commands| commands.line);
    if matches!(group.class.family, Some("AL2" | "AL2023")) {
        group.class.user_data = Some(format!("#!/bin/bash\n{}\n", commands.join("\n")));
        log.converted(
            Code::Moved,
            line,
            "preBootstrapCommands",
            "is userData of the node class, which runs before the node joins",
        );
    } else {
        log.error(Code::Unsupported, line, "preBootstrapCommands", "is not converted for images that do not run shell scripts: write userData into the node class");
    }
}

fn disk(node: &YamlNode, group: &mut NodeGroup, log: &mut FindingLog<'_>) {
    if node.get("launchTemplate").is_some() {
        return;
    }
    let size = number(node, &["volumeSize"], log);
    if size.is_none() {
        log.converted(
            Code::Added,
            node.line,
            "volumeSize",
            format!("{DEFAULT_DISK} GiB, the default of eksctl"),
        );
    }
    let mut ebs = vec![
        ("volumeSize", format!("{}Gi", size.unwrap_or(DEFAULT_DISK))),
        (
            "volumeType",
            text(node, &["volumeType"]).unwrap_or_else(|| "gp3".to_owned()),
        ),
    ];
    let others = [
        ("volumeEncrypted", "encrypted"),
        ("volumeKmsKeyID", "kmsKeyID"),
        ("volumeIOPS", "iops"),
        ("volumeThroughput", "throughput"),
    ];
    for (field, name) in others {
        ebs.extend(text(node, &[field]).map(|value| (name, value)));
    }
    let of_image = group.class.has_no_alias.then(|| "/dev/sda1".to_owned());
    let device = text(node, &["volumeName"]).or(of_image);
    group.class.disks = disks(group.class.family, device, ebs);
}

/// The disk with a node's data, of a family, and the one of its system if that is another.
pub(super) fn disks(
    family: Option<&str>,
    device: Option<String>,
    ebs: Vec<(&'static str, String)>,
) -> Vec<GroupDisk> {
    let disk = |device: &str, ebs| GroupDisk {
        device: device.to_owned(),
        ebs,
    };
    let system = vec![
        ("volumeSize", "4Gi".to_owned()),
        ("volumeType", "gp3".to_owned()),
    ];
    match (family, device) {
        (_, Some(device)) => vec![disk(&device, ebs)],
        (Some("Bottlerocket"), None) => vec![disk("/dev/xvda", system), disk("/dev/xvdb", ebs)],
        (Some(family), None) if is_windows(family) => vec![disk("/dev/sda1", ebs)],
        _ => vec![disk("/dev/xvda", ebs)],
    }
}

fn kubelet(node: &YamlNode, group: &mut NodeGroup, log: &mut FindingLog<'_>) {
    let mut fields = match node.get("kubeletExtraConfig").map(YamlNode::value) {
        Some(Value::Object(fields)) => fields,
        Some(Value::Null) | None => serde_json::Map::new(),
        Some(other) => {
            log.error(
                Code::Unreadable,
                node.line,
                "kubeletExtraConfig",
                format!("{other} must be a map of fields"),
            );
            serde_json::Map::new()
        }
    };
    if let Some(most) = number(node, &["maxPodsPerNode"], log) {
        fields.insert("maxPods".to_owned(), most.into());
    }
    if let Some(address) = text(node, &["clusterDNS"]) {
        fields.insert("clusterDNS".to_owned(), vec![address].into());
    }
    group.class.kubelet = (!fields.is_empty()).then_some(Value::Object(fields));
}
