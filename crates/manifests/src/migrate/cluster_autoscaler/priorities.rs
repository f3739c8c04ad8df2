//! The ConfigMap of the expander `priority`, as weights of NodePools.

use regex_lite::Regex;

use super::group::NodeGroup;
use crate::migrate::finding::{Code, FindingLog};
use crate::yaml::{YamlNode, read};

/// Its name.
pub(super) const PRIORITIES: &str = "cluster-autoscaler-priority-expander";
/// Weights of NodePools.
const WEIGHTS: std::ops::RangeInclusive<i64> = 1..=100;

/// Patterns of names of groups, by priority.
#[derive(Debug)]
pub(super) struct GroupPriorities {
    pub(super) file: usize,
    pub(super) line: usize,
    pub(super) object: String,
    /// In the order of the text.
    patterns: Vec<(i64, Regex)>,
}

impl GroupPriorities {
    /// Reads the ConfigMap; what is wrong with it is reported, and left out.
    pub(super) fn read(root: &YamlNode, file: usize, log: &mut FindingLog<'_>) -> Option<Self> {
        let field = "data.priorities";
        let Some(node) = root.at(&["data", "priorities"]) else {
            log.error(
                Code::Missing,
                root.line,
                field,
                "is missing: priorities, each with a list of patterns",
            );
            return None;
        };
        let mut found = Self {
            file,
            line: node.line,
            object: log.object.clone(),
            patterns: Vec::new(),
        };
        let inner = match read(node.text().unwrap_or_default(), 1) {
            Ok(inner) => inner.root?,
            Err((line, error)) => {
                log.error(
                    Code::Unreadable,
                    node.line,
                    field,
                    format!("line {line} of it is not YAML: {error}"),
                );
                return None;
            }
        };
        if inner.entries().is_empty() {
            log.error(
                Code::Unreadable,
                node.line,
                field,
                "must be a map of priorities to lists of patterns",
            );
        }
        for entry in inner.entries() {
            let Ok(priority) = entry.key.text.parse::<i64>() else {
                log.error(
                    Code::Unreadable,
                    node.line,
                    field,
                    format!("{:?} must be an integer", entry.key.text),
                );
                continue;
            };
            for item in entry.value.items() {
                let pattern = item.value.text().unwrap_or_default();
                match Regex::new(pattern) {
                    Ok(regex) => found.patterns.push((priority, regex)),
                    Err(error) => log.error(
                        Code::Unreadable,
                        node.line,
                        field,
                        format!("{priority}: {pattern:?} is no regular expression: {error}"),
                    ),
                }
            }
        }
        Some(found)
    }

    /// The highest priority of a group.
    fn of(&self, group: &NodeGroup) -> Option<i64> {
        let names = || std::iter::once(&group.name).chain(&group.scaling_groups);
        let fits = |(_, pattern): &&(i64, Regex)| names().any(|name| pattern.is_match(name));
        self.patterns
            .iter()
            .filter(fits)
            .map(|(priority, _)| *priority)
            .max()
    }

    /// Sets the weights of groups: their priorities, or the ranks of these if they are no weights.
    pub(super) fn weigh(&self, groups: &mut [NodeGroup], log: &mut FindingLog<'_>) {
        let found: Vec<Option<i64>> = groups.iter().map(|group| self.of(group)).collect();
        let mut ranks: Vec<i64> = found.iter().flatten().copied().collect();
        ranks.sort_unstable();
        ranks.dedup();
        let are_weights = ranks.iter().all(|priority| WEIGHTS.contains(priority));
        let mut without = Vec::new();
        for (group, priority) in groups.iter_mut().zip(&found) {
            let Some(priority) = priority else {
                without.push(group.name.as_str());
                continue;
            };
            let rank = ranks.partition_point(|other| other < priority) + 1;
            let weight = if are_weights {
                u32::try_from(*priority).ok()
            } else {
                u32::try_from(rank.min(100)).ok()
            };
            group.pool.weight = weight;
        }
        let how = if are_weights {
            "are weights of the NodePools"
        } else {
            "are no weights (1 to 100): the NodePools have their ranks as weight"
        };
        log.converted(
            Code::Moved,
            self.line,
            "data.priorities",
            format!("{how}; the highest is tried first"),
        );
        if !without.is_empty() {
            log.warning(Code::Behaviour, self.line, "data.priorities", format!("no pattern fits {}: Cluster Autoscaler adds no nodes there, mortise after all others", without.join(", ")));
        }
    }
}
