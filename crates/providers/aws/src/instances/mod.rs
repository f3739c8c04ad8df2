//! Instances that exist: finding, listing, terminating, tagging and comparing them with their class, with few calls.

mod ask_by_id;
mod cache;
mod calls;
mod drift;
mod known;
mod post_launch_tags;
mod provider_id;
mod record;
#[cfg(test)]
mod tests;

pub(crate) use self::cache::InstanceCache;
pub(crate) use self::post_launch_tags::TAGGED_ANNOTATIONS;
#[cfg(test)]
pub(crate) use self::record::InstanceReservation;
pub(crate) use self::record::{InstanceDescription, InstanceRecord};
