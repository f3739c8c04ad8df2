//! The partition of a placement group that an instance is in: the one that its NodeClaim asks for, else the one that EC2 chose.
//!
//! Problem: EC2 says only in a description of the instance which partition it chose, and pods may ask for partitions by the label of nodes.

use std::time::Duration;

use mortise_apis::requirements::{Operator, Requirements};
use mortise_aws_class::labels::PLACEMENT_GROUP_PARTITION;
use mortise_cloudprovider::LaunchedInstance;

use crate::instances::InstanceCache;
use crate::node_class::{CachedNodeClass, PlacementStrategy};

/// How often EC2 is asked which partition it chose: an instance is usually visible within a second or two.
const TRIES: usize = 5;
/// How long after each other.
const APART: Duration = Duration::from_secs(1);

/// The partition of the class's placement group that the instance goes to, if the claim asks for some: the first one, as texts.
/// # Source
/// The reference implementation's choice; EC2 allows seven partitions, for which texts and numbers have the same order.
pub(crate) fn asked_for(class: &CachedNodeClass, asked: &Requirements) -> Option<i32> {
    class.placement_group.as_ref()?;
    let wanted = asked.get(PLACEMENT_GROUP_PARTITION)?;
    if wanted.operator() != Operator::In {
        return None;
    }
    wanted.values().first()?.parse().ok()
}

/// Adds the label of the partition that EC2 chose where the claim left it open. A node without it is better than none: EC2 that does not
/// say it holds up no launch for long.
pub(crate) async fn complete(
    launched: &mut LaunchedInstance,
    class: &CachedNodeClass,
    instances: &InstanceCache,
) {
    let group = class.placement_group.as_ref();
    let has_partitions = group.is_some_and(|group| group.strategy == PlacementStrategy::Partition);
    if !has_partitions || launched.labels.contains_key(PLACEMENT_GROUP_PARTITION) {
        return;
    }
    let instance = &launched.provider_id;
    for left in (0..TRIES).rev() {
        match instances.partition(instance).await {
            Ok(Some(partition)) => {
                let key = PLACEMENT_GROUP_PARTITION.to_owned();
                launched.labels.insert(key, partition.to_string());
                return;
            }
            Ok(None) => tracing::debug!(%instance, left, "partition of instance is not known yet"),
            Err(error) => {
                tracing::debug!(%instance, left, %error, "failed to read partition of instance");
            }
        }
        if left > 0 {
            tokio::time::sleep(APART).await;
        }
    }
    tracing::warn!(%instance, "partition of instance is not known, its node has no label for it");
}
