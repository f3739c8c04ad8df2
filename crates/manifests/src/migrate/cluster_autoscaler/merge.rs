//! Groups that differ only in size or zone become one NodePool.

use super::group::NodeGroup;
use crate::migrate::SourceFile;
use crate::migrate::finding::{Code, FindingLog, MigrationFinding};

/// Longest name: names of NodePools are values of a label.
const LONGEST: usize = 63;

/// Groups that become one NodePool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MergedGroups {
    /// Name of the NodePool.
    pub(super) name: String,
    /// The first group, with the sizes, zones and subnets of all.
    pub(super) group: NodeGroup,
    /// Places of the groups, in the order of the input.
    members: Vec<NodeGroup>,
}

/// Merges groups, in the order of the first one of each, and names the NodePools.
pub(super) fn merge(groups: Vec<NodeGroup>) -> Vec<MergedGroups> {
    let mut merged: Vec<(NodeGroup, MergedGroups)> = Vec::new();
    for group in groups {
        let key = key(&group);
        match merged.iter_mut().find(|(known, _)| *known == key) {
            Some((_, found)) => found.add(group),
            None => {
                let found = MergedGroups {
                    name: String::new(),
                    group: group.clone(),
                    members: vec![group],
                };
                merged.push((key, found));
            }
        }
    }
    let mut taken: Vec<String> = Vec::new();
    let mut all: Vec<MergedGroups> = merged.into_iter().map(|(_, found)| found).collect();
    for found in &mut all {
        found.name = unique(&found.common_name(), &taken);
        taken.push(found.name.clone());
    }
    all
}

/// The group without what may differ, lists sorted.
fn key(group: &NodeGroup) -> NodeGroup {
    let mut key = NodeGroup {
        pool: group.pool.clone(),
        class: group.class.clone(),
        // Named subnets and subnets by tag are two things.
        subnets: vec![String::new(); usize::from(!group.subnets.is_empty())],
        ..NodeGroup::default()
    };
    for (_, _, values) in &mut key.pool.requirements {
        values.sort_unstable();
    }
    key.pool.requirements.sort_unstable();
    key.pool.labels.sort_unstable();
    key.pool.taints.sort_unstable();
    key.pool.startup_taints.sort_unstable();
    key.class.tags.sort_unstable();
    key.class.security_groups.sort_unstable();
    key
}

/// Adds those of the second that the first does not have.
pub(super) fn union(all: &mut Vec<String>, more: &[String]) {
    for each in more {
        if !all.contains(each) {
            all.push(each.clone());
        }
    }
}

impl MergedGroups {
    fn add(&mut self, group: NodeGroup) {
        let all = &mut self.group;
        all.minimum = all.minimum.saturating_add(group.minimum);
        all.maximum = all
            .maximum
            .zip(group.maximum)
            .map(|(one, other)| one.saturating_add(other));
        if all.zones.is_empty() || group.zones.is_empty() {
            all.zones.clear();
        } else {
            union(&mut all.zones, &group.zones);
        }
        union(&mut all.subnets, &group.subnets);
        self.members.push(group);
    }

    /// What the names of its groups begin with, or the first one.
    fn common_name(&self) -> String {
        let first = self.group.name.as_str();
        let mut common = first.to_owned();
        for member in &self.members {
            let alike = common
                .chars()
                .zip(member.name.chars())
                .take_while(|(one, other)| one == other)
                .count();
            common = common.chars().take(alike).collect();
        }
        let common = valid_name(&common);
        if common.chars().count() < 3 {
            valid_name(first)
        } else {
            common
        }
    }

    /// Says which NodePool each group became.
    pub(super) fn report(&self, sources: &[SourceFile], findings: &mut Vec<MigrationFinding>) {
        for (index, member) in self.members.iter().enumerate() {
            let mut log = FindingLog {
                file: sources.get(member.file).map_or("", |source| &source.name),
                object: member.object.clone(),
                findings,
            };
            let sizes = match member.maximum {
                Some(most) if most == member.minimum => format!("; {most} nodes"),
                Some(most) => format!("; {} to {most} nodes", member.minimum),
                None => String::new(),
            };
            let also = if index == 0 {
                String::new()
            } else {
                format!(
                    ", as {}: they differ only in size or zone",
                    self.group.object
                )
            };
            let text = format!("is NodePool {}{also}{sizes}", self.name);
            log.converted(Code::Version, member.line, "", text);
            if member.maximum.is_none() {
                log.warning(
                    Code::Missing,
                    member.line,
                    "",
                    "has no maximum size that is known: write limits into the NodePool",
                );
            }
        }
    }
}

/// A text as the name of an object: lower case letters, digits and dashes.
pub(super) fn valid_name(text: &str) -> String {
    let letters = text
        .to_lowercase()
        .chars()
        .map(|letter| {
            if letter.is_ascii_alphanumeric() {
                letter
            } else {
                '-'
            }
        })
        .take(LONGEST)
        .collect::<String>();
    letters.trim_matches('-').to_owned()
}

/// The name, or with a number if it is taken.
pub(super) fn unique(name: &str, taken: &[String]) -> String {
    let name = if name.is_empty() { "node-group" } else { name };
    let is_free = |name: &String| !taken.contains(name);
    let short: String = name.chars().take(LONGEST - 4).collect();
    std::iter::once(name.to_owned())
        .chain((2..).map(|count| format!("{short}-{count}")))
        .find(is_free)
        .unwrap_or_default()
}
