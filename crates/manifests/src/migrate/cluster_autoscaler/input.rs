//! Finds node groups and Cluster Autoscaler among the documents of the input.

use std::collections::BTreeSet;

use mortise_apis::nearest::nearest;
use serde::de::IgnoredAny;

use super::command::{parse, words};
use super::eksctl::ConfigSource;
use super::group::{NodeGroup, text};
use super::priorities::{GroupPriorities, PRIORITIES};
use super::settings::{AutoscalerSettings, read as read_settings};
use super::{eks, eksctl, scaling_group};
use crate::migrate::finding::{Code, FindingLog, MigrationFinding};
use crate::migrate::{SourceFile, label, list_items};
use crate::yaml::{Document, YamlNode, documents, read};

/// What the input holds.
#[derive(Debug, Default)]
pub(super) struct GroupInput {
    pub(super) groups: Vec<NodeGroup>,
    pub(super) settings: AutoscalerSettings,
    /// Where Cluster Autoscaler stands: source, and kind and name.
    pub(super) autoscaler: Option<(usize, String)>,
    pub(super) priorities: Option<GroupPriorities>,
    /// Objects that are neither.
    pub(super) others: usize,
    /// Names of groups, by the format that they were read from: the same group may be in several outputs.
    known: BTreeSet<(String, &'static str)>,
}

/// Reads all sources, in their order, after Cluster Autoscaler: its flags say which groups it manages.
pub(super) fn gather(sources: &[SourceFile], findings: &mut Vec<MigrationFinding>) -> GroupInput {
    let mut input = GroupInput::default();
    let mut objects = Vec::new();
    for (file, source) in sources.iter().enumerate() {
        let place = Place { file, source };
        for document in pieces(&source.text) {
            match read(&document.body, document.line) {
                Ok(found) => found
                    .root
                    .into_iter()
                    .for_each(|root| flatten(root, file, &mut objects)),
                Err((line, error)) => {
                    let is_template = document.body.contains("{{");
                    let why = if is_template {
                        "; it looks like a template: render it first (helm template)"
                    } else {
                        ""
                    };
                    place.log("document", findings).error(
                        Code::Unreadable,
                        line,
                        "",
                        format!("is neither YAML nor JSON: {error}{why}"),
                    );
                }
            }
        }
    }
    let (programs, others): (Vec<_>, Vec<_>) = objects
        .into_iter()
        .map(|(file, root)| (words(&root), file, root))
        .partition(|(words, ..)| words.is_some());
    for (words, file, root) in programs.into_iter().chain(others) {
        let Some(source) = sources.get(file) else {
            continue;
        };
        let place = Place { file, source };
        match words {
            Some(words) => input.autoscaler(&root, &words, &place, findings),
            None => input.object(&root, &place, findings),
        }
    }
    let by_place = |group: &NodeGroup| (group.file, group.line);
    input.groups.sort_by_key(by_place);
    input
}

/// The objects of lists, of any depth.
fn flatten(root: YamlNode, file: usize, objects: &mut Vec<(usize, YamlNode)>) {
    let mut inside = list_items(&root);
    inside.extend(root.items().iter().map(|item| item.value.clone()));
    if inside.is_empty() {
        objects.push((file, root));
    } else {
        inside
            .into_iter()
            .for_each(|item| flatten(item, file, objects));
    }
}

/// The documents of a stream; JSON values may follow one another without a separator, as the AWS CLI prints them in a loop.
fn pieces(text: &str) -> Vec<Document> {
    if !text.trim_start().starts_with(['{', '[']) {
        return documents(text);
    }
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<IgnoredAny>();
    let (mut found, mut from) = (Vec::new(), 0);
    while let Some(value) = values.next() {
        let end = values.byte_offset();
        let before = text.get(..from).unwrap_or_default();
        if value.is_err() {
            // The YAML parser may read it, or says what is wrong.
            return documents(text);
        }
        found.push(Document {
            separator: None,
            body: text.get(from..end).unwrap_or_default().to_owned(),
            line: before.matches('\n').count() + 1,
        });
        from = end;
    }
    found
}

/// Where a document stands.
struct Place<'a> {
    file: usize,
    source: &'a SourceFile,
}

impl Place<'_> {
    fn log<'b>(&'b self, object: &str, findings: &'b mut Vec<MigrationFinding>) -> FindingLog<'b> {
        FindingLog {
            file: &self.source.name,
            object: object.to_owned(),
            findings,
        }
    }
}

impl GroupInput {
    fn object(&mut self, root: &YamlNode, place: &Place<'_>, findings: &mut Vec<MigrationFinding>) {
        let kind = text(root, &["kind"]).unwrap_or_default();
        let version = text(root, &["apiVersion"]).unwrap_or_default();
        let scaling_groups = root.get("AutoScalingGroups");
        if kind == "ClusterConfig" && version.starts_with("eksctl.io/") {
            self.cluster_config(root, &version, place, findings);
        } else if let Some(group) = root.get("nodegroup") {
            self.managed(group, place, findings);
        } else if let Some(names) = root.get("nodegroups").filter(|_| kind.is_empty()) {
            place.log("nodegroups", findings).error(
                Code::Missing,
                names.line,
                "",
                "has names alone: pass the output of `aws eks describe-nodegroup` for each of them",
            );
        } else if let Some(list) = scaling_groups {
            for item in list.items() {
                self.scaling_group(&item.value, place, findings);
            }
        } else if root.get("AutoScalingGroupName").is_some() {
            self.scaling_group(root, place, findings);
        } else if root.get("nodegroupName").is_some() {
            self.managed(root, place, findings);
        } else if kind == "ConfigMap"
            && text(root, &["metadata", "name"]).as_deref() == Some(PRIORITIES)
        {
            let mut log = place.log(&label(root), findings);
            self.priorities = GroupPriorities::read(root, place.file, &mut log);
        } else if version.starts_with("cluster.x-k8s.io/")
            && ["Deployment", "Pool", "Set"]
                .iter()
                .any(|end| kind.ends_with(end))
        {
            place.log(&label(root), findings).error(Code::Unsupported, root.line, "", "is a node group of Cluster API, and is not converted: mortise has the providers aws and kwok");
        } else {
            self.other(root, &kind, place, findings);
        }
    }

    /// Everything else is passed over; what was meant to be read is reported.
    fn other(
        &mut self,
        root: &YamlNode,
        kind: &str,
        place: &Place<'_>,
        findings: &mut Vec<MigrationFinding>,
    ) {
        self.others += 1;
        let is_values = ["autoDiscovery", "autoscalingGroups", "extraArgs"]
            .iter()
            .any(|name| root.get(name).is_some());
        if kind.is_empty() && is_values {
            place.log("document", findings).error(Code::Unsupported, root.line, "", "looks like values of the chart cluster-autoscaler: render it, and pass the output (helm template)");
        }
    }

    fn autoscaler(
        &mut self,
        root: &YamlNode,
        words: &[(String, usize)],
        place: &Place<'_>,
        findings: &mut Vec<MigrationFinding>,
    ) {
        let name = label(root);
        let mut log = place.log(&name, findings);
        if let Some((_, first)) = &self.autoscaler {
            log.error(Code::Unsupported, root.line, "", format!("{first} is in the input too: convert the node groups of each Cluster Autoscaler on their own"));
            return;
        }
        let flags = parse(words, &mut log);
        if flags.is_empty() {
            log.warning(
                Code::Missing,
                root.line,
                "",
                "runs Cluster Autoscaler without flags",
            );
        }
        self.settings = read_settings(&flags, &mut log);
        self.autoscaler = Some((place.file, name));
    }

    fn cluster_config(
        &mut self,
        root: &YamlNode,
        version: &str,
        place: &Place<'_>,
        findings: &mut Vec<MigrationFinding>,
    ) {
        if version != eksctl::API_VERSION {
            let meant =
                nearest(version, [eksctl::API_VERSION]).map_or("", |_| "; interpreted as it");
            let text = format!("{version:?} is not {}{meant}", eksctl::API_VERSION);
            let mut log = place.log(&label(root), findings);
            if meant.is_empty() {
                log.error(Code::Version, root.line, "apiVersion", text);
                return;
            }
            log.warning(Code::Version, root.line, "apiVersion", text);
        }
        let source = ConfigSource {
            file: place.file,
            name: &place.source.name,
        };
        let groups = eksctl::read(root, &source, findings);
        if groups.is_empty() {
            place.log(&label(root), findings).warning(
                Code::Missing,
                root.line,
                "",
                "has no managedNodeGroups and no nodeGroups",
            );
        }
        for group in groups {
            self.add(group, "eksctl", place, findings);
        }
    }

    fn managed(
        &mut self,
        node: &YamlNode,
        place: &Place<'_>,
        findings: &mut Vec<MigrationFinding>,
    ) {
        let name = text(node, &["nodegroupName"]).unwrap_or_else(|| "node-group".to_owned());
        let mut group = new_group("nodegroup", name, node, place);
        if self.is_double(&group, "eks", findings, place) {
            return;
        }
        let object = group.object.clone();
        eks::read(node, &mut group, &mut place.log(&object, findings));
        self.add(group, "eks", place, findings);
    }

    fn scaling_group(
        &mut self,
        node: &YamlNode,
        place: &Place<'_>,
        findings: &mut Vec<MigrationFinding>,
    ) {
        let name = text(node, &["AutoScalingGroupName"]).unwrap_or_else(|| "group".to_owned());
        let mut group = new_group("AutoScalingGroup", name.clone(), node, place);
        let is_wanted = |(key, value): &(String, Option<String>)| {
            scaling_group::tag(node, key)
                .is_some_and(|found| value.as_ref().is_none_or(|value| *value == found))
        };
        if !self.settings.discovery.is_empty()
            && !self.settings.discovery.iter().all(is_wanted)
            && !self.settings.groups.iter().any(|sized| sized.name == name)
        {
            place.log(&group.object, findings).converted(
                Code::Removed,
                node.line,
                "",
                "is left out: it has not the tags of --node-group-auto-discovery",
            );
            return;
        }
        if let Some(of) = scaling_group::member_of(node) {
            // Its own name is random; the one that the user gave is in the tag.
            group.name = of;
        }
        group.scaling_groups.push(name.clone());
        if self.is_double(&group, "autoscaling", findings, place) {
            if let Some(first) = self
                .groups
                .iter_mut()
                .find(|known| known.name == group.name)
            {
                first.scaling_groups.push(name);
            }
            return;
        }
        let object = group.object.clone();
        scaling_group::read(node, &mut group, &mut place.log(&object, findings));
        self.add(group, "autoscaling", place, findings);
    }

    /// Whether the group is in the input in another format.
    fn is_double(
        &self,
        group: &NodeGroup,
        format: &'static str,
        findings: &mut Vec<MigrationFinding>,
        place: &Place<'_>,
    ) -> bool {
        let name = &group.name;
        let Some(first) = self
            .groups
            .iter()
            .find(|known| known.name == *name && !self.known.contains(&(name.clone(), format)))
        else {
            return false;
        };
        place.log(&group.object, findings).converted(
            Code::Removed,
            group.line,
            "",
            format!("is {}, which is converted", first.object),
        );
        true
    }

    fn add(
        &mut self,
        group: NodeGroup,
        format: &'static str,
        place: &Place<'_>,
        findings: &mut Vec<MigrationFinding>,
    ) {
        if format == "eksctl" && self.is_double(&group, format, findings, place) {
            return;
        }
        self.known.insert((group.name.clone(), format));
        self.groups.push(group);
    }
}

fn new_group(kind: &str, name: String, node: &YamlNode, place: &Place<'_>) -> NodeGroup {
    NodeGroup {
        file: place.file,
        line: node.line,
        object: format!("{kind} {name}"),
        name,
        ..NodeGroup::default()
    }
}
