//! NodePools: from Provisioners, from `v1beta1`, and from `v1` with field names of another version.

use super::edit::{
    FieldMove, UnexpectedStructure, drop_entry, maps_hold, set_type, strip_server_fields,
};
use super::finding::{Code, FindingLog, MigrationLevel};
use super::{disruption, requirements};
use crate::yaml::{MapEntry, YamlNode};
use mortise_apis::conversion::group_of;
use mortise_apis::schema::groups::GROUP;
use mortise_aws_class::labels::GROUP as AWS_GROUP;

/// Version of a manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ManifestVersion {
    /// Provisioner and AWSNodeTemplate.
    Alpha,
    /// `v1beta1`.
    Beta,
    /// `v1`, possibly with errors.
    Now,
    /// A fragment of a manifest, without a kind.
    Part,
}

/// Path of the NodeClaim spec in a NodePool.
pub(crate) const TEMPLATE: [&str; 3] = ["spec", "template", "spec"];
const SPEC: [&str; 1] = ["spec"];
const METADATA: [&str; 3] = ["spec", "template", "metadata"];
const DISRUPTION: [&str; 2] = ["spec", "disruption"];

/// Fields that were moved, or are often misplaced.
const MOVES: [FieldMove<'static>; 19] = [
    moved(&[], "disruption", &SPEC, "disruption"),
    moved(&[], "template", &SPEC, "template"),
    moved(&[], "limits", &SPEC, "limits"),
    moved(&[], "weight", &SPEC, "weight"),
    moved(&SPEC, "labels", &METADATA, "labels"),
    moved(&SPEC, "annotations", &METADATA, "annotations"),
    moved(&SPEC, "taints", &TEMPLATE, "taints"),
    moved(&SPEC, "startupTaints", &TEMPLATE, "startupTaints"),
    moved(&SPEC, "requirements", &TEMPLATE, "requirements"),
    moved(&SPEC, "nodeClassRef", &TEMPLATE, "nodeClassRef"),
    moved(&SPEC, "providerRef", &TEMPLATE, "nodeClassRef"),
    moved(&SPEC, "kubeletConfiguration", &TEMPLATE, "kubelet"),
    moved(&SPEC, "kubelet", &TEMPLATE, "kubelet"),
    moved(&TEMPLATE, "kubeletConfiguration", &TEMPLATE, "kubelet"),
    moved(&SPEC, "expireAfter", &TEMPLATE, "expireAfter"),
    moved(
        &SPEC,
        "terminationGracePeriod",
        &TEMPLATE,
        "terminationGracePeriod",
    ),
    moved(
        &SPEC,
        "consolidationPolicy",
        &DISRUPTION,
        "consolidationPolicy",
    ),
    moved(&SPEC, "consolidateAfter", &DISRUPTION, "consolidateAfter"),
    moved(&SPEC, "budgets", &DISRUPTION, "budgets"),
];

const fn moved(
    from: &'static [&'static str],
    key: &'static str,
    to: &'static [&'static str],
    name: &'static str,
) -> FieldMove<'static> {
    FieldMove {
        from,
        key,
        to,
        name,
    }
}

/// Converts a NodePool in place. Kubelet settings stay in the template and a missing class reference stays missing: both depend
/// on other objects. Returns the inline settings of a provider, if there are any.
pub(crate) fn convert(
    root: &mut YamlNode,
    age: ManifestVersion,
    log: &mut FindingLog<'_>,
) -> Result<Option<MapEntry>, UnexpectedStructure> {
    let maps: [&[&str]; 8] = [
        &SPEC,
        &["spec", "template"],
        &TEMPLATE,
        &METADATA,
        &DISRUPTION,
        &["disruption"],
        &["spec", "limits"],
        &["spec", "consolidation"],
    ];
    maps_hold(root, &maps, log)?;
    if age != ManifestVersion::Part {
        set_type(root, &format!("{GROUP}/v1"), "NodePool", log);
        if age != ManifestVersion::Now {
            strip_server_fields(root, log);
        }
    }
    let had_template = root.at(&["spec", "template"]).is_some();
    for each in &MOVES {
        let own = match age {
            ManifestVersion::Alpha => each.from == SPEC,
            ManifestVersion::Part => each.from.is_empty(),
            ManifestVersion::Beta | ManifestVersion::Now => false,
        };
        if own {
            each.run(root, MigrationLevel::Converted, "", log);
        } else {
            each.run(
                root,
                MigrationLevel::Warning,
                "; its old path is ignored",
                log,
            );
        }
    }
    limits(root, log);
    let inline = provider(root, log);
    ancient(root, log);
    disruption::convert(root, age, log);
    if let Some(reference) = root.at_mut(&[TEMPLATE.as_slice(), &["nodeClassRef"]].concat()) {
        class_reference(reference, "spec.template.spec.nodeClassRef", log);
    }
    requirements::convert(root, age, log);
    template_keys(root, log);
    if let Some(kubelet) = root.at_mut(&[TEMPLATE.as_slice(), &["kubelet"]].concat())
        && let Some(runtime) = drop_entry(kubelet, "containerRuntime")
    {
        let line = runtime.value.line;
        log.converted(
            Code::Removed,
            line,
            "kubelet.containerRuntime",
            "the image decides on the container runtime",
        );
    }
    if !had_template
        && let Some(spec) = root.get_mut("spec")
        && let Some(template) = spec.remove("template")
        && let Some(entries) = spec.entries_mut()
    {
        // Frequent wrong location.
        entries.insert(0, template);
    }
    Ok(inline)
}

/// `limits.resources` was renamed to `limits`.
fn limits(root: &mut YamlNode, log: &mut FindingLog<'_>) {
    let Some(limits) = root.at_mut(&["spec", "limits"]) else {
        return;
    };
    let Some(resources) = limits.remove("resources") else {
        return;
    };
    let line = resources.value.line;
    let notes = resources.notes;
    if let crate::yaml::NodeContent::Map { entries, .. } = resources.value.content {
        for (index, mut entry) in entries.into_iter().enumerate() {
            if index == 0 {
                entry
                    .notes
                    .before
                    .splice(0..0, notes.clone().all(Vec::new()));
            }
            limits.push(entry);
        }
    }
    log.converted(
        Code::Moved,
        line,
        "spec.limits.resources",
        "is spec.limits now",
    );
}

/// Provider settings in the NodePool become a class of their own.
fn provider(root: &mut YamlNode, log: &mut FindingLog<'_>) -> Option<MapEntry> {
    let spec = root.get_mut("spec")?;
    let mut entry = spec.remove("provider")?;
    if entry.value.is_nothing() {
        return None;
    }
    if entry.value.entries().is_empty() {
        log.error(
            Code::Unreadable,
            entry.value.line,
            "spec.provider",
            format!("{} is no map of fields", entry.value.value()),
        );
        spec.push(entry);
        return None;
    }
    // It was a nested object.
    for name in ["apiVersion", "kind"] {
        drop_entry(&mut entry.value, name);
    }
    let name = root
        .at(&["metadata", "name"])
        .and_then(YamlNode::text)
        .unwrap_or("default")
        .to_owned();
    log.converted(
        Code::Moved,
        entry.value.line,
        "spec.provider",
        format!("is an EC2NodeClass {name:?} of its own now"),
    );
    let reference = root.make(&[TEMPLATE.as_slice(), &["nodeClassRef"]].concat());
    reference.set("group", YamlNode::plain(AWS_GROUP));
    reference.set("kind", YamlNode::plain("EC2NodeClass"));
    reference.set("name", YamlNode::string(&name));
    Some(entry)
}

/// Names of the first releases.
fn ancient(root: &mut YamlNode, log: &mut FindingLog<'_>) {
    for (word, key) in [
        ("instanceTypes", "node.kubernetes.io/instance-type"),
        ("zones", "topology.kubernetes.io/zone"),
        ("architecture", "kubernetes.io/arch"),
        ("architectures", "kubernetes.io/arch"),
        ("operatingSystem", "kubernetes.io/os"),
        ("operatingSystems", "kubernetes.io/os"),
    ] {
        let Some(entry) = root.get_mut("spec").and_then(|spec| spec.remove(word)) else {
            continue;
        };
        let line = entry.value.line;
        let single = entry.value.text().map(str::to_owned);
        let values: Vec<String> = single
            .into_iter()
            .chain(
                entry
                    .value
                    .items()
                    .iter()
                    .filter_map(|item| item.value.text().map(str::to_owned)),
            )
            .collect();
        let comments = entry.comments();
        requirements::add(root, key, "In", &values, comments);
        log.converted(
            Code::Moved,
            line,
            &format!("spec.{word}"),
            format!("is a requirement on {key} now"),
        );
    }
    let cluster = root
        .get_mut("spec")
        .and_then(|spec| drop_entry(spec, "cluster"));
    if let Some(cluster) = cluster {
        log.warning(
            Code::Removed,
            cluster.value.line,
            "spec.cluster",
            "name and endpoint of the cluster are settings of the service (CLUSTER_NAME, CLUSTER_ENDPOINT)",
        );
    }
}

/// The parts of group, kind and name that are present.
pub(crate) fn class_reference(reference: &mut YamlNode, field: &str, log: &mut FindingLog<'_>) {
    if let Some(name) = reference.text().map(str::to_owned) {
        log.warning(
            Code::Renamed,
            reference.line,
            field,
            "is a group, a kind and a name",
        );
        *reference = YamlNode::map();
        reference.set("name", YamlNode::string(&name));
    }
    let line = reference.line;
    let version = reference.remove("apiVersion");
    let old_group = version
        .as_ref()
        .and_then(|version| group_of(version.value.text()?))
        .map(str::to_owned);
    if reference.get("group").is_none_or(YamlNode::is_nothing) {
        let group = old_group.clone().unwrap_or_else(|| AWS_GROUP.to_owned());
        match version {
            Some(mut version) => {
                version.key = crate::yaml::Scalar::plain("group");
                version.value = YamlNode::plain(&group);
                reference.push(version);
                log.converted(
                    Code::Renamed,
                    line,
                    &format!("{field}.apiVersion"),
                    format!("is group {group} now"),
                );
            }
            None => {
                reference.set("group", YamlNode::plain(&group));
                log.converted(
                    Code::Added,
                    line,
                    &format!("{field}.group"),
                    format!("{group}, the previous default"),
                );
            }
        }
    }
    match reference.get("kind").and_then(YamlNode::text) {
        Some("AWSNodeTemplate") => {
            reference.set("kind", YamlNode::plain("EC2NodeClass"));
            log.converted(
                Code::Renamed,
                line,
                &format!("{field}.kind"),
                "AWSNodeTemplate is EC2NodeClass now",
            );
        }
        Some(_) => {}
        None => {
            reference.set("kind", YamlNode::plain("EC2NodeClass"));
            log.converted(
                Code::Added,
                line,
                &format!("{field}.kind"),
                "EC2NodeClass, the previous default",
            );
        }
    }
}

/// Labels and annotations of the template that were renamed.
fn template_keys(root: &mut YamlNode, log: &mut FindingLog<'_>) {
    let Some(metadata) = root.at_mut(&METADATA) else {
        return;
    };
    for map in ["labels", "annotations"] {
        let Some(map_node) = metadata.get_mut(map) else {
            continue;
        };
        let field = format!("spec.template.metadata.{map}");
        if let Some(entry) = drop_entry(map_node, "karpenter.sh/provisioner-name") {
            log.converted(
                Code::Removed,
                entry.value.line,
                &field,
                "karpenter.sh/provisioner-name is karpenter.sh/nodepool now, which every node has",
            );
        }
        for old in [
            "karpenter.sh/do-not-consolidate",
            "karpenter.sh/do-not-evict",
        ] {
            if let Some(entry) = map_node.remove(old) {
                log.converted(
                    Code::Renamed,
                    entry.value.line,
                    &field,
                    format!("{old} is karpenter.sh/do-not-disrupt now"),
                );
                let comments = entry.comments();
                map_node.push(super::edit::instead(
                    "karpenter.sh/do-not-disrupt",
                    YamlNode::string("true"),
                    comments,
                ));
            }
        }
        for entry in map_node.entries_mut().into_iter().flatten() {
            super::requirements::as_text(&mut entry.value);
        }
    }
}
