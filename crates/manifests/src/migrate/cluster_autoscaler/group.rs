//! A node group, whatever it was read from.

use mortise_apis::nearest::nearest;
use mortise_apis::taints::{NO_EXECUTE, NO_SCHEDULE, PREFER_NO_SCHEDULE};
use mortise_aws_class::labels::well_known;
use serde_json::Value;

use crate::migrate::finding::{Code, FindingLog};
use crate::yaml::YamlNode;

/// Tag keys before those of node templates.
pub(super) const TEMPLATE_TAG: &str = "k8s.io/cluster-autoscaler/node-template/";
/// Tags of others than the user, which are not copied.
const TAGS_OF_OTHERS: [&str; 8] = [
    "alpha.eksctl.io/",
    "aws:",
    "eks:",
    "eksctl.cluster.k8s.io/",
    "k8s.io/cluster-autoscaler/",
    "karpenter.k8s.aws/",
    "karpenter.sh/",
    "kubernetes.io/cluster/",
];
/// Taint effects, and the words of the EKS API for them.
const EFFECTS: [(&str, &str); 3] = [
    (NO_SCHEDULE, "NO_SCHEDULE"),
    (NO_EXECUTE, "NO_EXECUTE"),
    (PREFER_NO_SCHEDULE, "PREFER_NO_SCHEDULE"),
];

/// One node group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NodeGroup {
    /// Where it stands: index of the source, line, kind and name.
    pub(super) file: usize,
    pub(super) line: usize,
    pub(super) object: String,
    pub(super) name: String,
    /// Names of its Auto Scaling groups, or how they begin: flags and priorities name these.
    pub(super) scaling_groups: Vec<String>,
    pub(super) minimum: u64,
    /// `None`: unknown.
    pub(super) maximum: Option<u64>,
    pub(super) zones: Vec<String>,
    pub(super) subnets: Vec<String>,
    pub(super) pool: PoolTemplate,
    pub(super) class: ClassTemplate,
}

/// What is equal in groups that become one NodePool, as far as the NodePool says it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PoolTemplate {
    /// Key, operator, values.
    pub(super) requirements: Vec<(String, &'static str, Vec<String>)>,
    pub(super) labels: Vec<(String, String)>,
    pub(super) taints: Vec<GroupTaint>,
    pub(super) startup_taints: Vec<GroupTaint>,
    pub(super) weight: Option<u32>,
    /// Instead of the flag's, of all groups.
    pub(super) consolidate_after: Option<String>,
    /// Nodes that may be replaced at a time: a number or a percentage.
    pub(super) replaced_at_once: Option<String>,
    pub(super) expire_after: Option<String>,
    /// Percent of the CPUs that are on-demand at least.
    pub(super) on_demand_percentage: Option<u32>,
}

/// A taint of a group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct GroupTaint {
    pub(super) key: String,
    pub(super) value: String,
    pub(super) effect: &'static str,
}

/// The same of the node class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ClassTemplate {
    pub(super) cluster: Option<String>,
    pub(super) family: Option<&'static str>,
    /// IDs of its images; none: those of the family's alias.
    pub(super) images: Vec<String>,
    pub(super) has_no_alias: bool,
    pub(super) user_data: Option<String>,
    pub(super) role: Option<String>,
    pub(super) instance_profile: Option<String>,
    pub(super) security_groups: Vec<String>,
    /// The security groups above are all.
    pub(super) no_other_groups: bool,
    /// Nodes have no public address; unknown without it.
    pub(super) is_private: Option<bool>,
    pub(super) disks: Vec<GroupDisk>,
    pub(super) tags: Vec<(String, String)>,
    pub(super) kubelet: Option<Value>,
    pub(super) hop_limit: Option<u32>,
    pub(super) detailed_monitoring: bool,
    pub(super) placement_group: Option<String>,
    pub(super) reservations: Vec<String>,
}

/// A disk: its device, and fields of `ebs` in the node class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GroupDisk {
    pub(super) device: String,
    pub(super) ebs: Vec<(&'static str, String)>,
}

impl NodeGroup {
    /// Adds a requirement of one key on some values.
    pub(super) fn require(&mut self, key: &str, values: Vec<String>) {
        self.pool.requirements.push((key.to_owned(), "In", values));
    }

    /// Values of a requirement.
    pub(super) fn values(&self, key: &str) -> &[String] {
        let found = self.pool.requirements.iter().find(|(of, ..)| of == key);
        found.map_or(&[], |(_, _, values)| values)
    }

    /// Whether a flag or a priority that names Auto Scaling groups means this one.
    pub(super) fn is_called(&self, name: &str) -> bool {
        let fits =
            |own: &String| own == name || own.ends_with('-') && name.starts_with(own.as_str());
        self.name == name || self.scaling_groups.iter().any(fits)
    }

    /// A label of its nodes: a requirement, if instance types decide on its value.
    pub(super) fn label(&mut self, key: &str, value: &str, line: usize, log: &mut FindingLog<'_>) {
        let known = well_known();
        let name = mortise_apis::labels::normalize(key);
        if known.contains(name) {
            if self.values(name).is_empty() {
                self.require(name, vec![value.to_owned()]);
            }
            return;
        }
        let of_others = TAGS_OF_OTHERS.iter().any(|start| key.starts_with(start));
        if known.is_restricted(key) || of_others || key.starts_with("eks.amazonaws.com/") {
            log.warning(Code::Removed, line, "labels", format!("{key} is left out: others set it. Pods that select it need another label, such as karpenter.sh/nodepool or karpenter.sh/capacity-type"));
            return;
        }
        self.pool.labels.push((key.to_owned(), value.to_owned()));
    }

    /// A taint of its nodes, as an object with key, value and effect.
    pub(super) fn taint_object(&mut self, taint: &YamlNode, log: &mut FindingLog<'_>) {
        let part = |name| text(taint, &[name]).unwrap_or_default();
        let (key, value, effect) = (part("key"), part("value"), part("effect"));
        self.taint(&key, &value, &effect, taint.line, log);
    }

    /// A taint of its nodes. Of an effect that is mistyped the nearest one is meant.
    pub(super) fn taint(
        &mut self,
        key: &str,
        value: &str,
        effect: &str,
        line: usize,
        log: &mut FindingLog<'_>,
    ) {
        if key.is_empty() {
            log.error(
                Code::Missing,
                line,
                "taints",
                "has a taint without a key, which is left out",
            );
            return;
        }
        let known = EFFECTS
            .iter()
            .find(|(name, word)| *name == effect || *word == effect);
        let meant = || {
            let name = nearest(&effect.replace('_', ""), EFFECTS.map(|(name, _)| name))?;
            EFFECTS.iter().find(|(known, _)| *known == name)
        };
        let names = EFFECTS.map(|(name, _)| name).join(", ");
        let found = match (known, meant()) {
            (Some(known), _) => known.0,
            (None, Some(meant)) => {
                log.warning(
                    Code::Renamed,
                    line,
                    "taints",
                    format!(
                        "{key}: effect {effect:?} is none of {names}; interpreted as {}",
                        meant.0
                    ),
                );
                meant.0
            }
            (None, None) => {
                log.error(
                    Code::Unreadable,
                    line,
                    "taints",
                    format!("{key}: effect {effect:?} is none of {names}; the taint is left out"),
                );
                return;
            }
        };
        self.pool.taints.push(GroupTaint {
            key: key.to_owned(),
            value: value.to_owned(),
            effect: found,
        });
    }

    /// Tags of its instances, without those that others write.
    pub(super) fn tags(&mut self, tags: Vec<(String, String, usize)>, log: &mut FindingLog<'_>) {
        let (mut dropped, mut first) = (Vec::new(), 0);
        for (key, value, line) in tags {
            let of_others = TAGS_OF_OTHERS.iter().any(|start| key.starts_with(start));
            if of_others || key == "Name" || key == "KubernetesCluster" {
                if dropped.is_empty() {
                    first = line;
                }
                dropped.push(key);
            } else if !self.class.tags.iter().any(|(known, _)| *known == key) {
                self.class.tags.push((key, value));
            }
        }
        if !dropped.is_empty() {
            log.converted(
                Code::Removed,
                first,
                "tags",
                format!(
                    "{} {} left out: mortise and AWS write their own",
                    dropped.join(", "),
                    if dropped.len() == 1 { "is" } else { "are" }
                ),
            );
        }
    }

    /// Its sizes. A minimum above the maximum is reported, and neither is used.
    pub(super) fn sizes(
        &mut self,
        minimum: Option<u64>,
        maximum: Option<u64>,
        line: usize,
        log: &mut FindingLog<'_>,
    ) {
        self.minimum = minimum.unwrap_or(0);
        self.maximum = maximum;
        if let Some(most) = maximum.filter(|most| *most < self.minimum) {
            log.error(
                Code::Unreadable,
                line,
                "",
                format!(
                    "its minimum size {} is above its maximum size {most}: neither is converted",
                    self.minimum
                ),
            );
            self.minimum = 0;
            self.maximum = None;
        }
    }

    /// Capacity reservations that its nodes use.
    pub(super) fn reserve(&mut self, id: String) {
        use mortise_apis::labels::{CAPACITY_TYPE, CAPACITY_TYPE_RESERVED};
        let types = self
            .pool
            .requirements
            .iter_mut()
            .find(|(key, ..)| key == CAPACITY_TYPE);
        if let Some((_, _, values)) = types {
            values.insert(0, CAPACITY_TYPE_RESERVED.to_owned());
        }
        self.class.reservations.push(id);
    }

    /// The age at which its nodes are replaced, in seconds; 0 is none.
    pub(super) fn lifetime(&mut self, node: &YamlNode, field: &str, log: &mut FindingLog<'_>) {
        let Some(seconds) = number(node, &[field], log).filter(|seconds| *seconds > 0) else {
            return;
        };
        let line = node.get(field).map_or(0, |found| found.line);
        log.warning(
            Code::Moved,
            line,
            field,
            format!(
                "is expireAfter: {seconds}s, which deletes a node of this age regardless of budgets"
            ),
        );
        self.pool.expire_after = Some(format!("{seconds}s"));
    }

    /// On-demand nodes, spot nodes or both.
    pub(super) fn capacity(
        &mut self,
        base: u64,
        percentage: u64,
        line: usize,
        log: &mut FindingLog<'_>,
    ) {
        use mortise_apis::labels::{CAPACITY_TYPE, CAPACITY_TYPE_ON_DEMAND, CAPACITY_TYPE_SPOT};
        if percentage >= 100 {
            self.require(CAPACITY_TYPE, vec![CAPACITY_TYPE_ON_DEMAND.to_owned()]);
            return;
        }
        if base == 0 && percentage == 0 {
            self.require(CAPACITY_TYPE, vec![CAPACITY_TYPE_SPOT.to_owned()]);
            return;
        }
        self.require(
            CAPACITY_TYPE,
            vec![
                CAPACITY_TYPE_SPOT.to_owned(),
                CAPACITY_TYPE_ON_DEMAND.to_owned(),
            ],
        );
        if base > 0 {
            log.warning(Code::Missing, line, "instancesDistribution", format!("its first {base} nodes were on-demand: write their CPUs into scaling.onDemand.baseCPU of a NodePoolPolicy"));
        }
        if percentage > 0 {
            log.converted(Code::Moved, line, "instancesDistribution", format!("is scaling.onDemand.percentageAboveBase: {percentage} of a NodePoolPolicy, which counts CPUs instead of nodes"));
            self.pool.on_demand_percentage = u32::try_from(percentage).ok();
        }
    }
}

/// The number in a field; anything else is reported.
pub(super) fn number(node: &YamlNode, path: &[&str], log: &mut FindingLog<'_>) -> Option<u64> {
    let found = node.at(path).filter(|found| !found.is_nothing())?;
    let number = found.text().and_then(|text| text.parse().ok());
    if number.is_none() {
        log.error(
            Code::Unreadable,
            found.line,
            &path.join("."),
            format!("{} must be an integer of at least 0", found.value()),
        );
    }
    number
}

/// The text in a field.
pub(super) fn text(node: &YamlNode, path: &[&str]) -> Option<String> {
    node.at(path).and_then(YamlNode::text).map(str::to_owned)
}

/// Whether a field is true.
pub(super) fn is_true(node: &YamlNode, path: &[&str]) -> Option<bool> {
    node.at(path).and_then(|found| found.value().as_bool())
}

/// The texts in a list.
pub(super) fn texts(node: &YamlNode, path: &[&str]) -> Vec<String> {
    let items = node.at(path).map(YamlNode::items).unwrap_or_default();
    items
        .iter()
        .filter_map(|item| item.value.text().map(str::to_owned))
        .collect()
}

/// The texts of a map, with their lines.
pub(super) fn pairs(node: &YamlNode, path: &[&str]) -> Vec<(String, String, usize)> {
    let entries = node.at(path).map(YamlNode::entries).unwrap_or_default();
    entries
        .iter()
        .map(|entry| {
            let value = entry.value.text().unwrap_or_default().to_owned();
            (entry.key.text.clone(), value, entry.line)
        })
        .collect()
}

/// The name at the end of an ARN, or the text itself.
pub(super) fn name_of_arn(text: &str) -> String {
    text.rsplit('/').next().unwrap_or(text).to_owned()
}
