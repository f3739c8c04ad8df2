//! What an `EC2NodeClass` stands for: lookup (calls), instance profiles, conditions and assembly (pure), and a cache for launches.

pub(crate) mod amis;
pub(crate) mod cache;
pub(crate) mod capacity_reservations;
pub(crate) mod instance_profiles;
pub(crate) mod launch_trial;
pub(crate) mod networks;
pub(crate) mod placement_groups;

mod ami_alias;
mod assembly;
mod conditions;
mod lookup;
mod resolver;
mod validation;

pub(crate) use self::cache::{CachedNodeClass, PlacementStrategy};
pub(crate) use self::lookup::UnmetCondition;
pub(crate) use self::resolver::{NodeClassResolver, ResolverParts};

#[cfg(test)]
pub(crate) use self::cache::PlacementGroup;
#[cfg(test)]
pub(crate) use self::conditions::{PRICES_UNCERTAIN, Validity};
pub(crate) use self::networks::FoundSubnet;
#[cfg(test)]
pub(crate) use self::validation::{Validation, ValidationInput};
