//! Objects that are not converted: reports what will not work any more.

use std::collections::BTreeSet;

use super::finding::{Code, FindingLog};
use crate::yaml::{NodeContent, YamlNode};

/// Keys that were renamed.
const RENAMED: [(&str, &str); 5] = [
    ("karpenter.sh/provisioner-name", "karpenter.sh/nodepool"),
    ("karpenter.sh/do-not-evict", "karpenter.sh/do-not-disrupt"),
    (
        "karpenter.sh/do-not-consolidate",
        "karpenter.sh/do-not-disrupt",
    ),
    ("node.k8s.aws/capacity-type", "karpenter.sh/capacity-type"),
    (
        "karpenter.sh/disruption",
        "karpenter.sh/disrupted (the taint of nodes that are going)",
    ),
];

/// Settings of the former ConfigMap and their present names.
const SETTINGS: [(&str, &str); 11] = [
    ("batchMaxDuration", "BATCH_MAX_DURATION"),
    ("batchIdleDuration", "BATCH_IDLE_DURATION"),
    ("featureGates.driftEnabled", "nothing: drift is always on"),
    ("aws.clusterName", "CLUSTER_NAME"),
    ("aws.clusterEndpoint", "CLUSTER_ENDPOINT"),
    ("aws.interruptionQueueName", "INTERRUPTION_QUEUE"),
    ("aws.vmMemoryOverheadPercent", "VM_MEMORY_OVERHEAD_PERCENT"),
    ("aws.reservedENIs", "RESERVED_ENIS"),
    (
        "aws.defaultInstanceProfile",
        "instanceProfile of each EC2NodeClass",
    ),
    ("aws.tags", "tags of each EC2NodeClass"),
    (
        "aws.enablePodENI",
        "nothing: pod ENIs are found by themselves",
    ),
];

/// Reports old names in an object that is passed through.
pub(crate) fn report(root: &YamlNode, log: &mut FindingLog<'_>) {
    let mut seen = BTreeSet::new();
    walk(root, &mut |text, line| {
        for (old, new) in RENAMED {
            if text == old && seen.insert(old) {
                log.warning(
                    Code::Renamed,
                    line,
                    "",
                    format!("passed through, but {old} is {new} now"),
                );
            }
        }
    });
    let is_settings = root.at(&["metadata", "name"]).and_then(YamlNode::text)
        == Some("karpenter-global-settings");
    if is_settings {
        for entry in root.get("data").map(YamlNode::entries).unwrap_or_default() {
            let now = SETTINGS
                .iter()
                .find(|(old, _)| *old == entry.key.text)
                .map_or("not known", |(_, new)| *new);
            log.warning(
                Code::Moved,
                entry.value.line,
                &format!("data.{}", entry.key.text),
                format!("nothing reads this ConfigMap any more; the setting is {now} now"),
            );
        }
    }
}

/// Reports texts that look like placeholders.
pub(crate) fn placeholders(root: &YamlNode, log: &mut FindingLog<'_>) {
    let mut seen = BTreeSet::new();
    walk(root, &mut |text, line| {
        if let Some(found) = placeholder(text)
            && seen.insert(found.clone())
        {
            log.warning(
                Code::Placeholder,
                line,
                "",
                format!(
                    "{found} looks like a placeholder that was not filled in; it is used literally"
                ),
            );
        }
    });
}

/// `${NAME}`, `$NAME`, `<NAME>`, `REPLACE_ME`; not in user data, which is a script.
fn placeholder(text: &str) -> Option<String> {
    if text.contains('\n') {
        return None;
    }
    let upper = |name: &str| {
        name.len() > 1
            && name.chars().all(|letter| {
                letter.is_ascii_uppercase()
                    || letter.is_ascii_digit()
                    || matches!(letter, '_' | '-')
            })
            && name.starts_with(|first: char| first.is_ascii_uppercase())
    };
    for (open, close) in [("${", "}"), ("<", ">"), ("{{", "}}")] {
        if let Some((_, rest)) = text.split_once(open)
            && let Some((name, _)) = rest.split_once(close)
            && !name.is_empty()
            && (open != "<" || upper(&name.replace(' ', "_").to_uppercase()))
        {
            return Some(format!("{open}{name}{close}"));
        }
    }
    if let Some((_, rest)) = text.split_once('$') {
        let name: String = rest
            .chars()
            .take_while(|letter| letter.is_ascii_alphanumeric() || *letter == '_')
            .collect();
        if upper(&name) {
            return Some(format!("${name}"));
        }
    }
    let lower = text.to_lowercase();
    [
        "replace_me",
        "replace-me",
        "changeme",
        "change-me",
        "your-cluster-name",
    ]
    .into_iter()
    .find(|word| lower.contains(word))
    .map(|_| text.to_owned())
}

fn walk(node: &YamlNode, see: &mut impl FnMut(&str, usize)) {
    match &node.content {
        NodeContent::Scalar(scalar) => see(&scalar.text, node.line),
        NodeContent::Map { entries, .. } => {
            for entry in entries {
                see(&entry.key.text, entry.value.line);
                walk(&entry.value, see);
            }
        }
        NodeContent::List { items, .. } => {
            for item in items {
                walk(&item.value, see);
            }
        }
    }
}
