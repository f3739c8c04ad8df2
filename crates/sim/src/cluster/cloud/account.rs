//! Limits of the cloud's account and of its API: vCPU quotas, calls that are throttled, instances that are not listed yet.

use jiff::Timestamp;
use mortise_apis::values::{SplitMix64, after};
use mortise_cloudprovider::{CapacityType, CloudError, InstanceType, LaunchError, Retry};

use super::SimInstance;
use crate::cluster::timing::StartTime;

/// What the account allows, and how its API behaves. The default has no limits.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AccountLimits {
    /// Most vCPUs of running spot instances.
    pub(crate) spot_vcpus: Option<i64>,
    /// Most vCPUs of running on-demand instances.
    pub(crate) on_demand_vcpus: Option<i64>,
    /// Share of the launches that are answered with "too many requests", in percent.
    pub(crate) throttled_percent: u64,
    /// From a launch to the first list that has the instance.
    pub(crate) visible_after: Option<StartTime>,
}

impl AccountLimits {
    /// Fails a launch because there were too many calls.
    pub(super) fn throttle(self, random: &mut SplitMix64) -> Result<(), LaunchError> {
        if self.throttled_percent > 0 && random.chance(self.throttled_percent * 10) {
            return Err(LaunchError::Other(CloudError {
                label: "throttled",
                message: "too many requests".to_owned(),
                retry: Retry::Again,
            }));
        }
        Ok(())
    }

    /// Whether one more instance of a type is within the quota.
    pub(super) fn allow<'a>(
        self,
        capacity_type: CapacityType,
        new: &InstanceType,
        running: impl Iterator<Item = &'a SimInstance>,
    ) -> bool {
        let quota = match capacity_type {
            CapacityType::Spot => self.spot_vcpus,
            CapacityType::OnDemand => self.on_demand_vcpus,
            CapacityType::Reserved => None,
        };
        let Some(quota) = quota else { return true };
        let same = running.filter(|each| each.capacity_type == capacity_type);
        let used: i64 = same.map(|each| vcpus(&each.instance_type)).sum();
        used + vcpus(new) <= quota
    }

    /// When the first list has an instance that is launched now.
    pub(super) fn visible_from(self, now: Timestamp, random: &mut SplitMix64) -> Timestamp {
        let delay = self.visible_after.map(|time| time.draw(random));
        delay.map_or(now, |ms| after(now, ms))
    }
}

fn vcpus(instance_type: &InstanceType) -> i64 {
    instance_type.capacity.cpu / 1000
}
