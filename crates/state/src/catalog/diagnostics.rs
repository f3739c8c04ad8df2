//! Diagnostics of a catalog: the values of a label, and why no type satisfies a set of requirements.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Bits, Catalog};
use mortise_apis::labels::{self, WellKnown};
use mortise_apis::requirements::{Requirement, Requirements};
use mortise_cloudprovider::{InstanceType, Offering};

/// Maximum number of alternative values that are named.
const WAYS_BACK: usize = 3;

/// The requirement that excluded the last types.
#[derive(Clone, Debug, PartialEq)]
pub struct EliminatingRequirement {
    /// The requirement.
    pub requirement: Requirement,
    /// Number of types that the weaker requirements had left.
    pub before: usize,
    /// Number of types in the catalog.
    pub total: usize,
    /// Every remaining type is offered, but not in this zone as this capacity type.
    pub only_together: bool,
    /// Values of the same label that would leave types, with their number, the most types first. At most three.
    pub back: Vec<(Arc<str>, usize)>,
}

impl Catalog {
    /// Positions of the types that satisfy the requirements, together with the labels that a NodePool adds; each with the
    /// positions of its offerings that have the requested labels. A key that neither the type nor the NodePool has is not
    /// satisfied; unavailable offerings count.
    #[must_use]
    pub fn covered(
        &self,
        pool: &Requirements,
        asked: &Requirements,
    ) -> BTreeMap<usize, Vec<usize>> {
        let about = |each: &InstanceType| {
            let mut labels = each.requirements.clone();
            labels.add_all(pool);
            labels.is_compatible(asked, &WellKnown::none())
        };
        // Bit sets first: most types are excluded by name or family.
        self.table()
            .meeting(asked)
            .iter()
            .filter_map(|at| Some((at, self.types().get(at)?)))
            .filter(|(_, each)| about(each))
            .map(|(at, each)| {
                let offerings = each.offerings.iter().enumerate();
                let fitting = offerings.filter(|(_, offering)| has_labels(each, offering, asked));
                (
                    at,
                    fitting.map(|(position, _)| position).collect::<Vec<_>>(),
                )
            })
            .filter(|(_, offerings)| !offerings.is_empty())
            .collect()
    }

    /// Values of the label among the types, sorted. Empty if no type has the label.
    pub fn values_of(&self, key: &str) -> impl Iterator<Item = &Arc<str>> {
        self.table().values(key)
    }

    /// Number of types that satisfy the requirements by their labels; unavailable types count.
    #[must_use]
    pub fn count_meeting(&self, asked: &Requirements) -> usize {
        self.table().meeting(&relevant(asked)).len()
    }

    /// Number of distinct values of the label among the types that satisfy the requirements; `None` if no type has the label.
    #[must_use]
    pub fn values_left(&self, key: &str, asked: &Requirements) -> Option<usize> {
        self.values_of(key).next()?;
        let types = self.table().meeting(&relevant(asked));
        Some(self.table().count_values(key, &types))
    }

    /// Whether any type satisfies both sets of requirements.
    #[must_use]
    pub fn share_a_type(&self, one: &Requirements, other: &Requirements) -> bool {
        let types = self.table().meeting(&relevant(one));
        types.meets(&self.table().meeting(&relevant(other)))
    }

    /// The requirement that excludes the last type; `None` while types are left. Requirements are applied by the number of
    /// types that each leaves on its own, the weakest first, so that the most restrictive one is reported.
    ///
    /// # Cost
    /// A few bit sets per requirement; if nothing is left, one pass over the offerings.
    #[must_use]
    pub fn eliminating_requirement(&self, asked: &Requirements) -> Option<EliminatingRequirement> {
        let asked = relevant(asked);
        let mut each: Vec<(Bits, &Requirement)> = asked
            .iter()
            .map(|requirement| {
                let alone = std::iter::once(requirement.clone()).collect();
                (self.table().meeting(&alone), requirement)
            })
            .collect();
        each.sort_by_key(|(alone, requirement)| {
            (std::cmp::Reverse(alone.len()), requirement.key().to_owned())
        });
        let mut left = Bits::all(self.types().len());
        for (alone, requirement) in each {
            let before = left.clone();
            left.and(&alone);
            if left.is_empty() && !before.is_empty() {
                return Some(self.blamed(requirement, &before, false));
            }
        }
        // Each label may occur on some offering while no offering has them all.
        let sold = left
            .iter()
            .filter_map(|at| self.types().get(at))
            .any(|each| is_sold(each, &asked));
        if sold || left.is_empty() {
            return None;
        }
        let of_offerings = [labels::TOPOLOGY_ZONE, labels::CAPACITY_TYPE];
        let requirement = of_offerings.iter().find_map(|key| asked.get(key))?;
        Some(self.blamed(requirement, &left, true))
    }

    fn blamed(
        &self,
        requirement: &Requirement,
        before: &Bits,
        only_together: bool,
    ) -> EliminatingRequirement {
        let mut back: Vec<(Arc<str>, usize)> = self
            .table()
            .values(requirement.key())
            .filter(|value| !requirement.has(value))
            .map(|value| {
                let with = Requirement::is(Arc::clone(requirement.shared_key()), Arc::clone(value));
                let mut types = self.table().overlapping(&with);
                types.and(before);
                (Arc::clone(value), types.len())
            })
            .filter(|(_, types)| *types > 0)
            .collect();
        back.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        back.truncate(WAYS_BACK);
        EliminatingRequirement {
            requirement: requirement.clone(),
            before: before.len(),
            total: self.types().len(),
            only_together,
            back,
        }
    }
}

/// The name of the NodePool is no label of types.
fn relevant(asked: &Requirements) -> Requirements {
    let mut asked = asked.clone();
    asked.remove(labels::NODEPOOL);
    asked
}

fn is_sold(each: &InstanceType, asked: &Requirements) -> bool {
    each.offerings
        .iter()
        .any(|offering| has_labels(each, offering, asked))
}

/// Whether zone, capacity type and further labels of an offering satisfy the requirements. A label that only other offerings of the
/// type have is absent here.
fn has_labels(of: &InstanceType, offering: &Offering, asked: &Requirements) -> bool {
    let allows = |key: &str, value: &str| asked.get(key).is_none_or(|asked| asked.has(value));
    let has = |offering: &Offering, key: &str| offering.labels.iter().any(|(own, _)| **own == *key);
    let lacks_none = asked.iter().all(|each| {
        let key = each.key();
        each.allows_absence()
            || has(offering, key)
            || !of.offerings.iter().any(|other| has(other, key))
    });
    lacks_none
        && allows(labels::TOPOLOGY_ZONE, &offering.zone)
        && allows(labels::CAPACITY_TYPE, offering.capacity_type.as_str())
        && offering
            .labels
            .iter()
            .all(|(key, value)| allows(key, value))
}
