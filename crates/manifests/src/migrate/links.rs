//! References between NodePools and node classes: kubelet settings, expiry, and missing references.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::edit::{drop_entry, instead};
use super::finding::{Code, FindingLog, MigrationFinding};
use super::pool::{ManifestVersion, TEMPLATE};
use super::{ManifestKind, MigrationItem, SourceFile};
use crate::yaml::{MapEntry, YamlNode};
use mortise_apis::conversion::{KUBELET, NODE_CLASS_REFERENCE};
use mortise_apis::values::fnv1a;
use mortise_aws_class::labels::GROUP as AWS_GROUP;

/// An expiry that a class contained.
pub(super) struct Expiry {
    /// Name of the class.
    pub(super) class: String,
    /// Its value.
    pub(super) text: String,
    /// Its line.
    pub(super) line: usize,
}

const KUBELET_FIELD: &str = "spec.template.spec.kubelet";

pub(super) fn resolve(
    works: &mut [MigrationItem],
    sources: &[SourceFile],
    expiries: &[Expiry],
    findings: &mut Vec<MigrationFinding>,
) {
    from_annotations(works, sources, findings);
    references(works, sources, findings);
    for expiry in expiries {
        expire(works, sources, expiry, findings);
    }
    kubelets(works, sources, findings);
}

fn log_of<'a>(
    work: &MigrationItem,
    sources: &'a [SourceFile],
    findings: &'a mut Vec<MigrationFinding>,
) -> FindingLog<'a> {
    FindingLog {
        file: sources.get(work.file).map_or("", |source| &source.name),
        object: work.label.clone(),
        findings,
    }
}

/// Name of the class of a pool.
fn class_of(pool: &YamlNode) -> Option<&str> {
    let reference = pool.at(&TEMPLATE)?.get("nodeClassRef")?;
    let kind = reference.get("kind").and_then(YamlNode::text)?;
    (kind == "EC2NodeClass").then(|| reference.get("name").and_then(YamlNode::text))?
}

const fn is_pool(work: &MigrationItem) -> bool {
    matches!(work.kind, ManifestKind::Pool(_))
}

fn name(root: &YamlNode) -> Option<&str> {
    root.at(&["metadata", "name"]).and_then(YamlNode::text)
}

fn is_class(root: &YamlNode) -> bool {
    root.get("kind").and_then(YamlNode::text) == Some("EC2NodeClass")
        && root
            .get("apiVersion")
            .and_then(YamlNode::text)
            .is_some_and(|version| version.starts_with(AWS_GROUP))
}

/// Annotations of an earlier conversion in NodePools: settings that no version reads any more.
fn from_annotations(
    works: &mut [MigrationItem],
    sources: &[SourceFile],
    findings: &mut Vec<MigrationFinding>,
) {
    for work in works.iter_mut().filter(|work| is_pool(work)) {
        let Some(mut root) = work.roots.first().cloned() else {
            continue;
        };
        let Some(annotations) = root.at_mut(&["metadata", "annotations"]) else {
            continue;
        };
        let kubelet = drop_entry(annotations, KUBELET);
        let reference = drop_entry(annotations, NODE_CLASS_REFERENCE);
        if kubelet.is_none() && reference.is_none() {
            continue;
        }
        if annotations.entries().is_empty()
            && let Some(metadata) = root.get_mut("metadata")
        {
            drop_entry(metadata, "annotations");
        }
        let mut log = log_of(work, sources, findings);
        if let Some(kubelet) = kubelet {
            let line = kubelet.value.line;
            let text = kubelet.value.text().unwrap_or_default();
            match serde_json::from_str::<Value>(text) {
                Ok(value) if value.is_object() => {
                    log.warning(Code::Kubelet, line, "metadata.annotations", format!("{KUBELET} contained kubelet settings that were ignored since 1.1; they apply again"));
                    root.make(&TEMPLATE)
                        .set("kubelet", YamlNode::from_json(&value));
                }
                _ => log.error(
                    Code::Unreadable,
                    line,
                    "metadata.annotations",
                    format!("{KUBELET} is no JSON object: {text}"),
                ),
            }
        }
        work.changed = true;
        if let Some(first) = work.roots.first_mut() {
            *first = root;
        }
    }
}

/// NodePools that refer to no class.
fn references(
    works: &mut [MigrationItem],
    sources: &[SourceFile],
    findings: &mut Vec<MigrationFinding>,
) {
    let classes: BTreeSet<String> = works
        .iter()
        .flat_map(|work| &work.roots)
        .filter(|root| is_class(root))
        .filter_map(|root| name(root).map(str::to_owned))
        .collect();
    for work in works.iter_mut() {
        if !matches!(work.kind, ManifestKind::Pool(age) if age != ManifestVersion::Part) {
            continue;
        }
        let Some(root) = work.roots.first() else {
            continue;
        };
        let (template, reference) = (
            root.at(&TEMPLATE),
            root.at(&TEMPLATE).and_then(|spec| spec.get("nodeClassRef")),
        );
        let whole = template.is_none_or(|spec| spec.entries().is_empty() && !spec.is_nothing());
        let named = reference
            .and_then(|reference| reference.get("name"))
            .is_some();
        if named || (whole && template.is_some()) {
            continue;
        }
        let mut only = classes.iter();
        let (class, why) = match (only.next(), only.next()) {
            (Some(class), None) => (class.clone(), "the only class here"),
            _ => ("default".to_owned(), "a guess"),
        };
        let mut log = log_of(work, sources, findings);
        log.warning(
            Code::Missing,
            root.line,
            "spec.template.spec.nodeClassRef",
            format!("required, but missing: EC2NodeClass {class:?}, {why}"),
        );
        if let Some(root) = work.roots.first_mut() {
            let mut path = TEMPLATE.to_vec();
            path.push("nodeClassRef");
            let reference = root.make(&path);
            reference.set("group", YamlNode::plain(AWS_GROUP));
            reference.set("kind", YamlNode::plain("EC2NodeClass"));
            reference.set("name", YamlNode::string(&class));
            work.changed = true;
        }
    }
}

/// Moves the expiry of a class to its NodePools that have none.
fn expire(
    works: &mut [MigrationItem],
    sources: &[SourceFile],
    expiry: &Expiry,
    findings: &mut Vec<MigrationFinding>,
) {
    for work in works.iter_mut().filter(|work| is_pool(work)) {
        let Some(root) = work.roots.first() else {
            continue;
        };
        if class_of(root) != Some(expiry.class.as_str()) {
            continue;
        }
        let own = root
            .at(&TEMPLATE)
            .and_then(|spec| spec.get("expireAfter"))
            .and_then(YamlNode::text);
        if own.is_some() {
            continue;
        }
        let mut log = log_of(work, sources, findings);
        log.warning(
            Code::Moved,
            0,
            "spec.template.spec.expireAfter",
            format!(
                "{}, from line {} of EC2NodeClass {:?}, where it was ignored",
                expiry.text, expiry.line, expiry.class
            ),
        );
        if let Some(root) = work.roots.first_mut() {
            root.make(&TEMPLATE)
                .set("expireAfter", YamlNode::plain(&expiry.text));
            work.changed = true;
        }
    }
}

/// Eight hexadecimal digits derived from the settings.
fn suffix(settings: &str) -> String {
    format!("{:08x}", fnv1a(settings.bytes()) >> 32)
}

/// Moves kubelet settings to the class. NodePools of one class with different settings get a class each.
fn kubelets(
    works: &mut [MigrationItem],
    sources: &[SourceFile],
    findings: &mut Vec<MigrationFinding>,
) {
    // Class -> settings of its NodePools (as canonical JSON, empty for none) -> the NodePools.
    let mut wanted: BTreeMap<String, BTreeMap<String, Vec<usize>>> = BTreeMap::new();
    for (index, work) in works.iter().enumerate().filter(|(_, work)| is_pool(work)) {
        let Some(root) = work.roots.first() else {
            continue;
        };
        let kubelet = root.at(&TEMPLATE).and_then(|spec| spec.get("kubelet"));
        let settings = kubelet.map_or_else(String::new, |kubelet| kubelet.value().to_string());
        let empty = settings == "{}" || settings == "null";
        let class = class_of(root).unwrap_or_default().to_owned();
        let key = if empty { String::new() } else { settings };
        wanted
            .entry(class)
            .or_default()
            .entry(key)
            .or_default()
            .push(index);
    }
    for (class, by_settings) in wanted {
        if by_settings.keys().all(String::is_empty) {
            drop_empty(works, by_settings.values().flatten());
            continue;
        }
        let home = works.iter().enumerate().find_map(|(index, work)| {
            let place = work
                .roots
                .iter()
                .position(|root| is_class(root) && name(root) == Some(class.as_str()))?;
            Some((index, place))
        });
        let alone = by_settings.len() == 1;
        for (settings, pools) in &by_settings {
            if settings.is_empty() {
                drop_empty(works, pools.iter());
                continue;
            }
            let Some((home, place)) = home else {
                for index in pools {
                    orphan(works, *index, &class, sources, findings);
                }
                continue;
            };
            let own = works[home].roots[place]
                .at(&["spec", "kubelet"])
                .map(|kubelet| kubelet.value().to_string());
            let in_place = alone && own.as_ref().is_none_or(|own| own == settings);
            let goal = if in_place {
                class.clone()
            } else {
                format!("{class}-{}", suffix(settings))
            };
            let mut moved: Option<MapEntry> = None;
            for index in pools {
                let Some(root) = works[*index].roots.first() else {
                    continue;
                };
                let line = root
                    .at(&TEMPLATE)
                    .and_then(|spec| spec.get("kubelet"))
                    .map_or(0, |node| node.line);
                let mut log = log_of(&works[*index], sources, findings);
                if in_place {
                    log.converted(Code::Kubelet, line, KUBELET_FIELD, format!("is spec.kubelet of EC2NodeClass {class:?} now: all pools here that use it say the same"));
                } else {
                    log.converted(Code::Kubelet, line, KUBELET_FIELD, format!("is in EC2NodeClass {goal:?} now, a copy of {class:?} that this pool uses: other pools of {class:?} have other settings"));
                }
                works[*index].changed = true;
                if let Some(spec) = works[*index]
                    .roots
                    .first_mut()
                    .and_then(|root| root.at_mut(&TEMPLATE))
                {
                    let entry = spec.remove("kubelet");
                    moved = moved.or(entry);
                    if let Some(reference) = spec.get_mut("nodeClassRef").filter(|_| !in_place) {
                        reference.set("name", YamlNode::string(&goal));
                    }
                }
            }
            let Some(entry) = moved else {
                continue;
            };
            let work = &mut works[home];
            work.changed = true;
            if in_place {
                work.roots[place].make(&["spec"]).push(entry);
            } else {
                let mut copy = work.roots[place].clone();
                copy.make(&["metadata"])
                    .set("name", YamlNode::string(&goal));
                copy.make(&["spec"]).remove("kubelet");
                copy.make(&["spec"])
                    .push(instead("kubelet", entry.value, Vec::new()));
                work.roots.push(copy);
            }
        }
    }
}

/// Empty settings are removed without a finding.
fn drop_empty<'a>(works: &mut [MigrationItem], pools: impl Iterator<Item = &'a usize>) {
    for index in pools {
        if let Some(spec) = works[*index]
            .roots
            .first_mut()
            .and_then(|root| root.at_mut(&TEMPLATE))
            && drop_entry(spec, "kubelet").is_some()
        {
            works[*index].changed = true;
        }
    }
}

/// The class is in none of the sources: the settings are not moved, so that applying the NodePool fails instead of losing them.
fn orphan(
    works: &[MigrationItem],
    index: usize,
    class: &str,
    sources: &[SourceFile],
    findings: &mut Vec<MigrationFinding>,
) {
    let Some(root) = works[index].roots.first() else {
        return;
    };
    let line = root
        .at(&TEMPLATE)
        .and_then(|spec| spec.get("kubelet"))
        .map_or(0, |node| node.line);
    let mut log = log_of(&works[index], sources, findings);
    let place = if class.is_empty() {
        "the pool's node class, which has a form of its own: move the settings yourself".to_owned()
    } else {
        format!(
            "EC2NodeClass {class:?}, which is not among the inputs: give its manifest too, or move the settings yourself"
        )
    };
    log.error(
        Code::Kubelet,
        line,
        KUBELET_FIELD,
        format!("belongs into {place}"),
    );
}
