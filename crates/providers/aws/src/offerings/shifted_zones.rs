//! Zones that the operator, or AWS, has shifted away from the cluster (ARC zonal shift): nothing is launched into them.
//!
//! Problem: a shift says "something is wrong there", often before EC2 fails. Invariant: each poll replaces all shifts by those that
//! the service names, and each ends at its own time even if no poll succeeds any more.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aws_sdk_arczonalshift::types::AppliedStatus;
use jiff::Timestamp;
use mortise_aws_class::labels::ZONE_ID;
use mortise_aws_class::spec::Ec2NodeClass;
use mortise_cloudprovider::{GaugeName, ProviderGauge, ShiftedZone, UnavailableCapacity};
use tokio::time::Instant;

use crate::failure::Failure;
use crate::sdk::AwsClients;

/// How often the shifts are read.
/// # Source
/// The reference implementation's number.
const EVERY: Duration = Duration::from_secs(30);

/// Ids of the zones that are shifted away, until when.
#[derive(Debug, Default)]
pub(crate) struct ShiftedZones {
    until: Mutex<BTreeMap<Arc<str>, Instant>>,
}

impl ShiftedZones {
    /// Whether a zone is shifted away now.
    pub(crate) fn has(&self, zone_id: &str) -> bool {
        self.lock()
            .get(zone_id)
            .is_some_and(|until| *until > Instant::now())
    }

    /// Whether an instance in the zone is to be left as it is; one whose zone id is not known is not.
    pub(crate) fn covers(&self, zone_id: Option<&str>) -> bool {
        zone_id.is_some_and(|id| self.has(id))
    }

    /// Ids of all zones that are shifted away now.
    pub(crate) fn now(&self) -> BTreeSet<Arc<str>> {
        self.ongoing().into_iter().map(|(zone, _)| zone).collect()
    }

    /// The shifts that go on `now`, as capacity that is not asked for.
    pub(crate) fn snapshot(&self, now: Timestamp) -> Vec<UnavailableCapacity> {
        let shifted = self.ongoing().into_iter();
        let all = shifted.map(|(zone, left)| UnavailableCapacity {
            instance_type: None,
            zone: None,
            capacity_type: None,
            scope: Some(format!("zone-id/{zone}")),
            cause: "ZonalShift".to_owned(),
            until: now.saturating_add(left).unwrap_or(now),
        });
        all.collect()
    }

    /// The shifts that go on `now`, with the names that a class's subnets give the zones.
    pub(crate) fn seen_by(&self, class: &Ec2NodeClass, now: Timestamp) -> Vec<ShiftedZone> {
        let shifted = self.ongoing().into_iter();
        let all = shifted.map(|(id, left)| {
            let mut subnets = class.status.subnets.iter();
            let there = subnets.find(|subnet| subnet.zone_id.as_deref() == Some(&*id));
            ShiftedZone {
                id_label: ZONE_ID,
                name: there.map(|subnet| Arc::from(&*subnet.zone)),
                until: now.saturating_add(left).unwrap_or(now),
                id,
            }
        });
        all.collect()
    }

    /// Zones that are shifted away now, and how long each still is.
    fn ongoing(&self) -> Vec<(Arc<str>, Duration)> {
        let now = Instant::now();
        let until = self.lock();
        let left = until.iter().map(|(zone, until)| {
            let left = until.saturating_duration_since(now);
            (Arc::clone(zone), left)
        });
        left.filter(|(_, left)| !left.is_zero()).collect()
    }

    /// How many zones are shifted away, if any is.
    pub(crate) fn gauge(&self) -> Option<ProviderGauge> {
        let count = u32::try_from(self.now().len()).unwrap_or(u32::MAX);
        (count > 0).then(|| ProviderGauge {
            name: GaugeName::UnavailableCapacity,
            labels: vec![("capacity_type", "any"), ("cause", "zonal_shift")],
            value: f64::from(count),
        })
    }

    /// Takes over the shifts of now: zone ids, and how long each still lasts.
    pub(crate) fn replace(&self, shifts: impl IntoIterator<Item = (Arc<str>, Duration)>) {
        let now = Instant::now();
        let shifts = shifts.into_iter().map(|(zone, left)| (zone, now + left));
        let shifts: BTreeMap<Arc<str>, Instant> = shifts.collect();
        let mut until = self.lock();
        for zone in shifts.keys().filter(|zone| !until.contains_key(*zone)) {
            tracing::warn!(
                zone_id = &**zone,
                "zone is shifted away, its offerings are not used"
            );
        }
        for zone in until.keys().filter(|zone| !shifts.contains_key(*zone)) {
            tracing::info!(zone_id = &**zone, "zonal shift has ended");
        }
        *until = shifts;
    }

    /// Reads the shifts of a cluster; `now` is the wall clock, which their ends are times of.
    /// # Errors
    /// The service did not answer; the shifts stay as they were.
    pub(crate) async fn read(
        &self,
        clients: &AwsClients,
        cluster_arn: &str,
        now: Timestamp,
    ) -> Result<(), Failure> {
        let call = clients.zonal_shift.get_managed_resource();
        let answer = call.resource_identifier(cluster_arn).send().await;
        let answer =
            answer.map_err(|error| clients.failure("arc-zonal-shift:GetManagedResource", error))?;
        let shifts = answer.zonal_shifts().iter();
        let applied = shifts.filter(|shift| *shift.applied_status() == AppliedStatus::Applied);
        self.replace(applied.filter_map(|shift| {
            let ends = Timestamp::from_second(shift.expiry_time().secs()).ok()?;
            let left = Duration::try_from(ends.duration_since(now)).ok()?;
            Some((Arc::from(shift.away_from()), left))
        }));
        Ok(())
    }

    /// Reads the shifts of a cluster again and again. Never ends.
    pub(crate) async fn watch(self: Arc<Self>, clients: Arc<AwsClients>, cluster: String) {
        let mut arn: Option<String> = None;
        loop {
            if arn.is_none() {
                arn = match cluster_arn(&clients, &cluster).await {
                    Ok(found) => found,
                    Err(error) => {
                        tracing::warn!(%error, "failed to describe cluster, its zonal shifts are not known");
                        None
                    }
                };
            }
            if let Some(arn) = &arn
                && let Err(error) = self.read(&clients, arn, Timestamp::now()).await
            {
                tracing::warn!(%error, "failed to read zonal shifts, the previous ones stay in use until they end");
            }
            tokio::time::sleep(EVERY).await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Instant>> {
        self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The name under which a cluster is registered for zonal shifts; `None` if EKS does not say.
async fn cluster_arn(clients: &AwsClients, cluster: &str) -> Result<Option<String>, Failure> {
    let call = clients.eks.describe_cluster().name(cluster);
    let answer = call.send().await;
    let answer = answer.map_err(|error| clients.failure("eks:DescribeCluster", error))?;
    Ok(answer.cluster.and_then(|cluster| cluster.arn))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_shift_ends_by_itself() {
        let shifted = ShiftedZones::default();
        let zone = |name: &str, seconds| (Arc::from(name), Duration::from_secs(seconds));
        shifted.replace([zone("use1-az1", 60), zone("use1-az2", 600)]);
        assert!(shifted.has("use1-az1") && !shifted.has("use1-az3"));
        let told = |shifted: &ShiftedZones| {
            let all = shifted.snapshot(Timestamp::UNIX_EPOCH);
            let all = all
                .into_iter()
                .map(|each| (each.scope.unwrap(), each.until.as_second()));
            (
                all.collect::<Vec<_>>(),
                shifted.gauge().map(|gauge| gauge.value),
            )
        };
        let zones = [("use1-az1", 60), ("use1-az2", 600)];
        let zones = zones.map(|(zone, ends)| (format!("zone-id/{zone}"), ends));
        assert_eq!(told(&shifted), (zones.to_vec(), Some(2.0)));
        assert_eq!(told(&ShiftedZones::default()), (Vec::new(), None));
        tokio::time::advance(Duration::from_secs(61)).await;
        assert_eq!(shifted.now().len(), 1, "no poll is needed for the end");
        assert!(!shifted.has("use1-az1") && shifted.has("use1-az2"));
        shifted.replace([zone("use1-az3", 60)]);
        let class = serde_json::json!({ "metadata": {}, "spec": {}, "status": { "subnets": [
            { "id": "subnet-1", "zone": "us-east-1c", "zoneID": "use1-az3" },
        ] } });
        let class: Ec2NodeClass = serde_json::from_value(class).unwrap();
        shifted.replace([zone("use1-az3", 60), zone("use1-az9", 60)]);
        let named: Vec<_> = shifted
            .seen_by(&class, Timestamp::UNIX_EPOCH)
            .into_iter()
            .map(|zone| (zone.id.to_string(), zone.name, zone.until.as_second()))
            .collect();
        let expected = [
            ("use1-az3".to_owned(), Some(Arc::from("us-east-1c")), 60),
            ("use1-az9".to_owned(), None, 60),
        ];
        assert_eq!(named, expected, "with the names of the class's zones");
        assert!(
            !shifted.has("use1-az2"),
            "a cleared shift ends although another one goes on"
        );
    }
}
