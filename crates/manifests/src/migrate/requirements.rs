//! Requirements of a NodePool: defaults of the former webhook, and removed keys.

use super::finding::{Code, FindingLog};
use super::pool::{ManifestVersion, TEMPLATE};
use crate::yaml::{NodeContent, Notes, Scalar, SequenceItem, YamlNode, scalar_value};

/// Defaults of a Provisioner.
const ALPHA_DEFAULTS: [(&str, &str, &str); 3] = [
    ("kubernetes.io/os", "In", "linux"),
    ("kubernetes.io/arch", "In", "amd64"),
    ("karpenter.sh/capacity-type", "In", "on-demand"),
];
/// Keys with which a Provisioner selected types itself.
const TYPE_KEYS: [&str; 6] = [
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
    "karpenter.k8s.aws/instance-family",
    "karpenter.k8s.aws/instance-category",
    "karpenter.k8s.aws/instance-generation",
    "karpenter.k8s.aws/instance-size",
];
const FIELD: &str = "spec.template.spec.requirements";

/// Adds a requirement.
pub(crate) fn add(
    root: &mut YamlNode,
    key: &str,
    operator: &str,
    values: &[String],
    comments: Vec<String>,
) {
    let mut requirement = YamlNode::map();
    requirement.set("key", YamlNode::string(key));
    requirement.set("operator", YamlNode::plain(operator));
    requirement.set("values", YamlNode::texts(values));
    let list = list(root);
    if let Some(items) = list.items_mut() {
        items.push(SequenceItem {
            value: requirement,
            notes: Notes {
                before: comments,
                ..Notes::default()
            },
        });
    }
}

fn list(root: &mut YamlNode) -> &mut YamlNode {
    let template = root.make(&TEMPLATE);
    if template
        .get("requirements")
        .is_none_or(YamlNode::is_nothing)
    {
        template.set("requirements", YamlNode::list([]));
    }
    let list = template.make(&["requirements"]);
    if let NodeContent::List { flow, items } = &mut list.content
        && items.is_empty()
    {
        *flow = false;
    }
    list
}

pub(crate) fn convert(root: &mut YamlNode, age: ManifestVersion, log: &mut FindingLog<'_>) {
    if let Some(list) = root.at_mut(&[TEMPLATE.as_slice(), &["requirements"]].concat()) {
        if !list.is_nothing() && !matches!(list.content, NodeContent::List { .. }) {
            log.error(
                Code::Unreadable,
                list.line,
                FIELD,
                format!("{} is no list", list.value()),
            );
            return;
        }
        if let Some(items) = list.items_mut() {
            old_keys(items, log);
            for item in items {
                for value in item
                    .value
                    .get_mut("values")
                    .and_then(YamlNode::items_mut)
                    .into_iter()
                    .flatten()
                {
                    as_text(&mut value.value);
                }
            }
        }
    }
    let keys: Vec<String> = root
        .at(&[TEMPLATE.as_slice(), &["requirements"]].concat())
        .into_iter()
        .flat_map(YamlNode::items)
        .filter_map(|item| item.value.get("key")?.text().map(str::to_owned))
        .collect();
    let has = |key: &str| keys.iter().any(|known| known == key);
    match age {
        ManifestVersion::Alpha => {
            for (key, operator, value) in ALPHA_DEFAULTS {
                // A key of the same meaning with its former name counts.
                let alias = key.replace("kubernetes.io", "beta.kubernetes.io");
                if has(key) || has(&alias) {
                    continue;
                }
                add(root, key, operator, &[value.to_owned()], Vec::new());
                log.converted(
                    Code::Added,
                    0,
                    FIELD,
                    format!("{key} {operator} {value}: the default of a Provisioner"),
                );
            }
            if !TYPE_KEYS.iter().any(|key| has(key)) {
                let (category, generation) = (
                    "karpenter.k8s.aws/instance-category",
                    "karpenter.k8s.aws/instance-generation",
                );
                add(
                    root,
                    category,
                    "In",
                    &["c", "m", "r"].map(str::to_owned),
                    Vec::new(),
                );
                add(root, generation, "Gt", &["2".to_owned()], Vec::new());
                log.converted(Code::Added, 0, FIELD, format!("{category} In c, m, r and {generation} Gt 2: a Provisioner meant it where no type was chosen"));
            }
        }
        ManifestVersion::Beta | ManifestVersion::Now => {
            let absent = root
                .at(&[TEMPLATE.as_slice(), &["requirements"]].concat())
                .is_none_or(YamlNode::is_nothing);
            if absent {
                root.make(&TEMPLATE).set("requirements", YamlNode::list([]));
                log.warning(
                    Code::Added,
                    0,
                    FIELD,
                    "required, but missing: an empty list takes every type, of every architecture",
                );
            }
        }
        ManifestVersion::Part => {}
    }
}

/// Keys that were renamed, and keys that never were node labels.
fn old_keys(items: &mut Vec<SequenceItem>, log: &mut FindingLog<'_>) {
    for item in items.iter_mut() {
        let Some(key) = item.value.get_mut("key") else {
            continue;
        };
        let line = key.line;
        if key.text() == Some("node.k8s.aws/capacity-type") {
            *key = YamlNode::plain("karpenter.sh/capacity-type");
            log.converted(
                Code::Renamed,
                line,
                FIELD,
                "node.k8s.aws/capacity-type is karpenter.sh/capacity-type now",
            );
        }
    }
    let mut orphans = Vec::new();
    let mut index = 0;
    while let Some(item) = items.get(index) {
        let key = item
            .value
            .get("key")
            .and_then(YamlNode::text)
            .unwrap_or_default()
            .to_owned();
        let why = match key.as_str() {
            "karpenter.sh/do-not-consolidate" | "karpenter.sh/do-not-evict" => {
                "is not a node label and is rejected: use the annotation karpenter.sh/do-not-disrupt on pods or nodes instead"
            }
            "karpenter.sh/provisioner-name" | "karpenter.sh/nodepool" => {
                "every node of a pool has the pool's name: the requirement is refused"
            }
            _ => {
                index += 1;
                continue;
            }
        };
        let SequenceItem { value, notes } = items.remove(index);
        log.warning(Code::Removed, value.line, FIELD, format!("{key}: {why}"));
        orphans.extend(notes.all(value.comments()));
        if let Some(next) = items.get_mut(index) {
            next.notes.before.splice(0..0, std::mem::take(&mut orphans));
        }
    }
    if let Some(last) = items.last_mut() {
        last.notes.after.extend(orphans);
    }
}

/// Values of labels and requirements are strings, even if they look like numbers or booleans.
pub(crate) fn as_text(node: &mut YamlNode) {
    if let NodeContent::Scalar(scalar) = &mut node.content
        && !scalar.quoted
        && !scalar_value(scalar).is_string()
        && !scalar.text.is_empty()
    {
        *scalar = Scalar::string(&scalar.text.clone());
    }
}
