//! What an `EC2NodeClass` stands for: lookup (calls), conditions and assembly (pure), and a cache for launches.

pub(crate) mod amis;

mod ami_alias;
mod assembly;
mod cache;
mod conditions;
mod lookup;
mod networks;
mod resolver;

pub(crate) use self::cache::CachedNodeClass;
#[cfg(test)]
pub(crate) use self::cache::{PlacementGroup, PlacementStrategy};
#[cfg(test)]
pub(crate) use self::networks::FoundSubnet;
pub(crate) use self::resolver::{NodeClassResolver, parse};
