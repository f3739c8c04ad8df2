//! What people ask of a catalogue: which values a label can have, and why a set of requirements leaves no type.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Bits, Catalog};
use mortise_apis::labels::{self, WellKnown};
use mortise_apis::requirements::{Requirement, Requirements};
use mortise_cloudprovider::{InstanceType, Offering};

/// Most values that are named as a way back.
const WAYS_BACK: usize = 3;

/// Which requirement removed the last types.
#[derive(Clone, Debug, PartialEq)]
pub struct EliminatingRequirement {
    /// The requirement.
    pub requirement: Requirement,
    /// Types that the milder requirements had left.
    pub before: usize,
    /// Types in the catalogue.
    pub total: usize,
    /// Every type that is left is sold, but not in this zone as this capacity type.
    pub only_together: bool,
    /// Values of the same label that would leave types, with their number, the most types first. At most three.
    pub back: Vec<(Arc<str>, usize)>,
}

impl Catalog {
    /// Positions of the types that the requirements are about with the labels that a pool adds, each with the positions of its
    /// offerings that have what is asked for. A key that neither the type nor the pool has is not met; what is sold out counts.
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
        // Bits first: most types are out by their name or family.
        self.table()
            .meeting(asked)
            .iter()
            .filter_map(|at| Some((at, self.types().get(at)?)))
            .filter(|(_, each)| about(each))
            .map(|(at, each)| {
                let offerings = each.offerings.iter().enumerate();
                let fitting = offerings.filter(|(_, offering)| has_labels(offering, asked));
                (
                    at,
                    fitting.map(|(position, _)| position).collect::<Vec<_>>(),
                )
            })
            .filter(|(_, offerings)| !offerings.is_empty())
            .collect()
    }

    /// The values that some type lists for the label, sorted. None when no type has the label.
    pub fn values_of(&self, key: &str) -> impl Iterator<Item = &Arc<str>> {
        self.table().values(key)
    }

    /// How many types the requirements leave, by the labels of the types; what is sold out today counts.
    #[must_use]
    pub fn count_meeting(&self, asked: &Requirements) -> usize {
        self.table().meeting(&relevant(asked)).len()
    }

    /// How many different values of the label the types have that the requirements leave; `None` when no type has the label.
    #[must_use]
    pub fn values_left(&self, key: &str, asked: &Requirements) -> Option<usize> {
        self.values_of(key).next()?;
        let types = self.table().meeting(&relevant(asked));
        Some(self.table().count_values(key, &types))
    }

    /// Whether two sets of requirements leave a type in common.
    #[must_use]
    pub fn share_a_type(&self, one: &Requirements, other: &Requirements) -> bool {
        let types = self.table().meeting(&relevant(one));
        types.meets(&self.table().meeting(&relevant(other)))
    }

    /// Which requirement removes the last type; `None` while types are left. Requirements are applied by the number of
    /// types that each leaves on its own, the mildest first, so that the one to blame is the one named.
    ///
    /// # Cost
    /// A few bit sets per requirement; when nothing is left, one pass over the offerings.
    #[must_use]
    pub fn blame(&self, asked: &Requirements) -> Option<EliminatingRequirement> {
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
        // Each label may be there on some offering, and yet no offering have them all.
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

/// The pool's own name is no label of types.
fn relevant(asked: &Requirements) -> Requirements {
    let mut asked = asked.clone();
    asked.remove(labels::NODEPOOL);
    asked
}

fn is_sold(each: &InstanceType, asked: &Requirements) -> bool {
    each.offerings
        .iter()
        .any(|offering| has_labels(offering, asked))
}

/// Zone, capacity type and further labels of an offering are as asked.
fn has_labels(offering: &Offering, asked: &Requirements) -> bool {
    let allows = |key: &str, value: &str| asked.get(key).is_none_or(|asked| asked.has(value));
    allows(labels::TOPOLOGY_ZONE, &offering.zone)
        && allows(labels::CAPACITY_TYPE, offering.capacity_type.as_str())
        && offering
            .labels
            .iter()
            .all(|(key, value)| allows(key, value))
}
