//! Placement groups that classes select, as EC2 describes them.
//!
//! Invariant: a group that cannot be read is never taken for one that does not exist. What was read within a day is used instead.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aws_sdk_ec2::types::PlacementStrategy as Ec2Strategy;
use mortise_aws_class::spec::PlacementGroupSelector;
use tokio::time::Instant;

use crate::failure::Failure;
use crate::node_class::cache::{PlacementGroup, PlacementStrategy};
use crate::sdk::AwsClients;
use crate::sdk::arguments::filter;

/// How long a group is believed without being read again.
const FRESH: Duration = Duration::from_secs(60);
/// How long a group is believed that cannot be read again.
const STALE: Duration = Duration::from_secs(24 * 3600);

/// How a class names its group.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum GroupKey {
    Id(String),
    Name(String),
}

#[derive(Clone, Debug)]
struct KnownGroup {
    read: Instant,
    /// `None` for one that does not exist.
    group: Option<PlacementGroup>,
}

/// Reads placement groups, and remembers them.
#[derive(Debug)]
pub(crate) struct PlacementGroups {
    clients: Arc<AwsClients>,
    known: Mutex<HashMap<GroupKey, KnownGroup>>,
}

/// The name or id that a selector names.
pub(crate) fn selected(selector: &PlacementGroupSelector) -> &str {
    let named = selector.id.as_deref().or(selector.name.as_deref());
    named.unwrap_or_default()
}

impl PlacementGroups {
    /// Remembers nothing yet, and calls nothing.
    pub(crate) fn new(clients: Arc<AwsClients>) -> Self {
        Self {
            clients,
            known: Mutex::default(),
        }
    }

    /// The group that a selector names; `None` when there is none, or none that is available.
    /// # Errors
    /// It could not be read, now or within the last day.
    pub(crate) async fn get(
        &self,
        selector: &PlacementGroupSelector,
    ) -> Result<Option<PlacementGroup>, Failure> {
        let key = match (&selector.id, &selector.name) {
            (Some(id), _) => GroupKey::Id(id.clone()),
            (None, Some(name)) => GroupKey::Name(name.clone()),
            (None, None) => return Ok(None),
        };
        let known = self.lock().get(&key).cloned();
        if let Some(known) = known.as_ref().filter(|known| known.read.elapsed() < FRESH) {
            return Ok(known.group.clone());
        }
        match (
            self.describe(&key).await,
            known.and_then(|known| known.group),
        ) {
            (Ok(group), _) => {
                let mut all = self.lock();
                all.retain(|_, each| each.read.elapsed() < STALE);
                let known = KnownGroup {
                    read: Instant::now(),
                    group: group.clone(),
                };
                all.insert(key, known);
                Ok(group)
            }
            (Err(error), Some(group)) if self.is_recent(&key) => {
                tracing::warn!(group = group.name, %error, "failed to describe placement group, the previous result stays in use");
                Ok(Some(group))
            }
            (Err(error), _) => Err(error),
        }
    }

    fn is_recent(&self, key: &GroupKey) -> bool {
        let known = self.lock();
        known
            .get(key)
            .is_some_and(|known| known.read.elapsed() < STALE)
    }

    async fn describe(&self, key: &GroupKey) -> Result<Option<PlacementGroup>, Failure> {
        let call = self
            .clients
            .ec2
            .describe_placement_groups()
            .filters(filter("state", ["available"]));
        let call = match key {
            GroupKey::Id(id) => call.group_ids(id),
            GroupKey::Name(name) => call.group_names(name),
        };
        let answer = match call.send().await {
            Ok(answer) => answer,
            Err(error) => match self.clients.failure("ec2:DescribePlacementGroups", error) {
                failure if failure.is_not_found() => return Ok(None),
                failure => return Err(failure),
            },
        };
        Ok(answer
            .placement_groups
            .unwrap_or_default()
            .into_iter()
            .find_map(described))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<GroupKey, KnownGroup>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// EC2's description in our words; `None` for a strategy that is not known.
fn described(group: aws_sdk_ec2::types::PlacementGroup) -> Option<PlacementGroup> {
    let strategy = match &group.strategy {
        Some(Ec2Strategy::Cluster) => PlacementStrategy::Cluster,
        Some(Ec2Strategy::Partition) => PlacementStrategy::Partition,
        Some(Ec2Strategy::Spread) => PlacementStrategy::Spread,
        other => {
            tracing::error!(group = ?group.group_name, strategy = ?other, "placement group has an unknown strategy");
            return None;
        }
    };
    Some(PlacementGroup {
        id: group.group_id?,
        name: group.group_name.unwrap_or_default(),
        strategy,
        partitions: group.partition_count.unwrap_or(0),
    })
}
