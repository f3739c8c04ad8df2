//! EC2NodeClasses: from AWSNodeTemplates, from inline settings of a Provisioner, from `v1beta1`, and from `v1` with field names
//! of another version.

use super::edit::{UnexpectedStructure, drop_entry, maps_hold, set_type, strip_server_fields};
use super::finding::{Code, FindingLog};
use super::pool::ManifestVersion;
use super::{MigrateOptions, selectors};
use crate::yaml::{NodeContent, YamlNode};
use mortise_apis::nearest::nearest;
use mortise_aws_class::conversion::{ALIAS_VERSION, OLD_HOPS, UBUNTU, alias, ubuntu_disks};
use mortise_aws_class::labels::GROUP as AWS_GROUP;
use mortise_aws_class::spec::AMI_FAMILIES;

const FAMILY: &str = "spec.amiFamily";
/// Tags that the controller sets itself.
const RESTRICTED_TAGS: [&str; 4] = [
    "eks:eks-cluster-name",
    "karpenter.sh/nodepool",
    "karpenter.sh/nodeclaim",
    "karpenter.k8s.aws/ec2nodeclass",
];
/// Fields of a NodePool that are often misplaced in the class.
const FIELDS_OF_POOLS: [&str; 6] = [
    "consolidateAfter",
    "consolidationPolicy",
    "limits",
    "requirements",
    "taints",
    "weight",
];

/// Converts a class in place. Returns the expiry that it contained, which belongs to its NodePools: the text and its line.
pub(crate) fn convert(
    root: &mut YamlNode,
    age: ManifestVersion,
    options: &MigrateOptions,
    log: &mut FindingLog<'_>,
) -> Result<Option<(String, usize)>, UnexpectedStructure> {
    let maps: [&[&str]; 6] = [
        &["spec"],
        &["spec", "subnetSelector"],
        &["spec", "securityGroupSelector"],
        &["spec", "amiSelector"],
        &["spec", "metadataOptions"],
        &["spec", "tags"],
    ];
    maps_hold(root, &maps, log)?;
    set_type(root, &format!("{AWS_GROUP}/v1"), "EC2NodeClass", log);
    if age != ManifestVersion::Now {
        strip_server_fields(root, log);
    }
    let version = root
        .at(&["metadata", "annotations", ALIAS_VERSION])
        .and_then(YamlNode::text)
        .map(str::to_owned);
    let spec = root.make(&["spec"]);
    selectors::convert(spec, log);
    family(spec, age, version.as_deref(), log);
    identity(spec, options, log);
    if age != ManifestVersion::Now {
        let hops = spec.at(&["metadataOptions", "httpPutResponseHopLimit"]);
        if hops.is_none_or(YamlNode::is_nothing) {
            spec.make(&["metadataOptions"]).set(
                "httpPutResponseHopLimit",
                YamlNode::plain(&OLD_HOPS.to_string()),
            );
            log.converted(
                Code::Added,
                0,
                "spec.metadataOptions.httpPutResponseHopLimit",
                "2, the previous default: pods reach the metadata service. The default is 1 now",
            );
        }
    }
    for name in ["launchTemplate", "launchTemplateName"] {
        if let Some(found) = spec.get(name) {
            log.error(Code::Unsupported, found.line, &format!("spec.{name}"), "launch templates of one's own are not supported any more: write images, user data, disks and security groups out");
        }
    }
    if let Some(kubelet) = spec.get_mut("kubelet") {
        drop_entry(kubelet, "containerRuntime");
    }
    tags(spec, log);
    let expiry = drop_entry(spec, "expireAfter").map(|entry| {
        let text = entry.value.text().unwrap_or_default().to_owned();
        log.warning(Code::Moved, entry.value.line, "spec.expireAfter", format!("{text}: a class does not expire; it belongs to the pools of the class, and is written there where they have none"));
        (text, entry.value.line)
    });
    for name in FIELDS_OF_POOLS {
        if let Some(found) = spec.get(name) {
            log.error(
                Code::Unsupported,
                found.line,
                &format!("spec.{name}"),
                "is a field of NodePools; a class ignores it",
            );
        }
    }
    drop_annotations(root);
    Ok(expiry)
}

fn drop_annotations(root: &mut YamlNode) {
    let Some(annotations) = root.at_mut(&["metadata", "annotations"]) else {
        return;
    };
    for name in [ALIAS_VERSION, UBUNTU] {
        drop_entry(annotations, name);
    }
    if annotations.entries().is_empty()
        && let Some(metadata) = root.get_mut("metadata")
    {
        drop_entry(metadata, "annotations");
    }
}

fn is_empty(spec: &YamlNode, key: &str) -> bool {
    spec.get(key).is_none_or(|list| {
        list.is_nothing()
            || list.items().is_empty() && matches!(list.content, NodeContent::List { .. })
    })
}

/// The AMI family, and AMI aliases if none are selected.
fn family(
    spec: &mut YamlNode,
    age: ManifestVersion,
    version: Option<&str>,
    log: &mut FindingLog<'_>,
) {
    let chosen = !is_empty(spec, "amiSelectorTerms");
    let line = spec.get("amiFamily").map_or(0, |family| family.line);
    let mut family = spec
        .get("amiFamily")
        .and_then(YamlNode::text)
        .map(str::to_owned);
    if let Some(known) = &family
        && !AMI_FAMILIES.contains(&known.as_str())
        && known != "Ubuntu"
        && let Some(meant) = nearest(known, AMI_FAMILIES)
    {
        log.warning(
            Code::Renamed,
            line,
            FAMILY,
            format!(
                "{known:?} is none of {}; interpreted as {meant}",
                AMI_FAMILIES.join(", ")
            ),
        );
        spec.set("amiFamily", YamlNode::plain(&meant));
        family = Some(meant);
    }
    if family.is_none() && age == ManifestVersion::Alpha {
        family = Some("AL2".to_owned());
        if chosen {
            spec.set("amiFamily", YamlNode::plain("AL2"));
            log.converted(Code::Added, 0, FAMILY, "AL2, the previous default");
        }
    }
    let aliased = spec.get("amiSelectorTerms").is_some_and(|terms| {
        terms
            .items()
            .iter()
            .any(|term| term.value.get("alias").is_some())
    });
    match family.as_deref() {
        Some("Ubuntu") => ubuntu(spec, chosen, line, log),
        Some("Custom") => {
            if !chosen {
                log.error(Code::Missing, line, "spec.amiSelectorTerms", "images of the family Custom have no alias: write the terms that select them");
            }
            let registers = spec.get("userData").and_then(YamlNode::text).is_some_and(|data| data.contains("karpenter.sh/unregistered"));
            if age != ManifestVersion::Now && !registers {
                log.warning(Code::Behaviour, line, FAMILY, "since v1 the user data of Custom images has to register the node with the taint karpenter.sh/unregistered:NoExecute");
            }
        }
        Some(known) if !chosen => match alias(known, version.unwrap_or("latest")) {
            Some(text) => {
                let mut term = YamlNode::map();
                term.set("alias", YamlNode::string(&text));
                let comments = spec.remove("amiFamily").map_or_else(Vec::new, crate::yaml::MapEntry::comments);
                drop_entry(spec, "amiSelectorTerms");
                let mut entry = super::edit::instead("amiSelectorTerms", YamlNode::list([term]), Vec::new());
                entry.notes.before = comments;
                if let Some(entries) = spec.entries_mut() {
                    entries.insert(0, entry);
                }
                let from = if line == 0 { format!("{known}, the previous default,") } else { known.to_owned() };
                log.converted(Code::Renamed, line, FAMILY, format!("{from} is the image alias {text} now"));
            }
            None => log.error(Code::Missing, line, "spec.amiSelectorTerms", format!("there is no alias for images of the family {known:?}: write the terms that select them")),
        },
        None if !chosen => log.error(Code::Missing, 0, "spec.amiSelectorTerms", "which images to boot: an alias like al2023@latest, or terms that select them"),
        None if !aliased => log.error(Code::Missing, 0, FAMILY, "needed with images that are not chosen by alias: it decides on the format of the user data"),
        _ => {}
    }
    let old_images = family.as_deref() == Some("AL2")
        || spec.get("amiSelectorTerms").is_some_and(|terms| {
            terms.items().iter().any(|term| {
                term.value
                    .get("alias")
                    .and_then(YamlNode::text)
                    .is_some_and(|alias| alias.starts_with("al2@"))
            })
        });
    if old_images {
        log.warning(Code::Unsupported, line, FAMILY, "there are no AL2 images for Kubernetes 1.33 and later: AL2023 (alias al2023@latest) takes user data in another form");
    }
}

/// The family was removed: its nodes are those of AL2 with another disk.
fn ubuntu(spec: &mut YamlNode, chosen: bool, line: usize, log: &mut FindingLog<'_>) {
    if !chosen {
        log.error(Code::Unsupported, line, FAMILY, "Ubuntu images are not found by themselves any more: write amiSelectorTerms that select them");
        return;
    }
    spec.set("amiFamily", YamlNode::plain("AL2"));
    log.warning(
        Code::Renamed,
        line,
        FAMILY,
        "Ubuntu is AL2 with images that are chosen by terms: the user data has the same form",
    );
    if is_empty(spec, "blockDeviceMappings") {
        spec.set("blockDeviceMappings", YamlNode::from_json(&ubuntu_disks()));
        log.converted(
            Code::Added,
            0,
            "spec.blockDeviceMappings",
            "the previous default disk of Ubuntu nodes: /dev/sda1, 20Gi, gp3, encrypted",
        );
    }
}

/// Exactly one of role and instance profile.
fn identity(spec: &mut YamlNode, options: &MigrateOptions, log: &mut FindingLog<'_>) {
    let there = |spec: &YamlNode, key: &str| spec.get(key).is_some_and(|node| !node.is_nothing());
    let (role, profile) = (there(spec, "role"), there(spec, "instanceProfile"));
    match (role, profile, &options.role, &options.instance_profile) {
        (true, true, ..) => log.error(
            Code::Unsupported,
            spec.get("role").map_or(0, |node| node.line),
            "spec.role",
            "role and instanceProfile exclude each other: leave one out",
        ),
        (false, true, Some(role), _) => {
            let comments = spec
                .remove("instanceProfile")
                .map_or_else(Vec::new, crate::yaml::MapEntry::comments);
            spec.push(super::edit::instead(
                "role",
                YamlNode::string(role),
                comments,
            ));
            log.converted(
                Code::Renamed,
                0,
                "spec.role",
                format!("{role}, as specified, instead of the instance profile"),
            );
        }
        (false, false, Some(role), _) => {
            spec.set("role", YamlNode::string(role));
            log.converted(Code::Added, 0, "spec.role", format!("{role}, as specified"));
        }
        (false, false, None, Some(profile)) => {
            spec.set("instanceProfile", YamlNode::string(profile));
            log.converted(
                Code::Added,
                0,
                "spec.instanceProfile",
                format!("{profile}, as specified"),
            );
        }
        (false, false, None, None) => log.error(
            Code::Missing,
            0,
            "spec.role",
            "the IAM role was a setting of the cluster: set it with --role or --instance-profile",
        ),
        _ => {}
    }
}

fn tags(spec: &mut YamlNode, log: &mut FindingLog<'_>) {
    for entry in spec
        .get_mut("tags")
        .and_then(YamlNode::entries_mut)
        .into_iter()
        .flatten()
    {
        super::requirements::as_text(&mut entry.value);
        let key = &entry.key.text;
        if RESTRICTED_TAGS.contains(&key.as_str()) || key.starts_with("kubernetes.io/cluster/") {
            log.error(
                Code::Unsupported,
                entry.value.line,
                "spec.tags",
                format!("{key} is written by the service itself and refused here: leave it out"),
            );
        }
    }
}
