//! Instances that exist: finding, listing, terminating and comparing them with their class.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aws_sdk_ec2::types::{
    Filter, Instance as Ec2Instance, InstanceLifecycleType, InstanceStateName, Reservation, Tenancy,
};
use jiff::Timestamp;
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::labels;
use mortise_apis::names::{NodeClassKey, ProviderId};
use mortise_aws_class::hash::HASH_VERSION;
use mortise_cloudprovider::{
    CapacityType, CloudError, DriftReason, Instance, Retry, TerminationStatus, UnavailableOffering,
};
use tokio::time::Instant;

use crate::config::AwsConfig;
use crate::failure::Failure;
use crate::node_class::CachedNodeClass;
use crate::sdk::AwsClients;
use crate::sdk::arguments::filter;
use crate::tags;

/// How long after its launch an instance that cannot be found is taken for "not visible yet" instead of "gone".
const VISIBLE: Duration = Duration::from_secs(60);
/// How long what is known of an instance is believed when it is compared with its class.
const FRESH: Duration = Duration::from_secs(5 * 60);
/// How long instances are remembered at all.
const REMEMBERED: Duration = Duration::from_secs(3600);

/// States in which an instance exists and may run.
const ALIVE: [&str; 4] = ["pending", "running", "stopping", "stopped"];
/// All states but `terminated`.
const EXISTING: [&str; 5] = ["pending", "running", "stopping", "stopped", "shutting-down"];

/// An instance as we need it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InstanceRecord {
    pub(crate) id: String,
    pub(crate) instance_type: String,
    pub(crate) zone: String,
    pub(crate) capacity_type: CapacityType,
    pub(crate) subnet: Option<String>,
    pub(crate) image: Option<String>,
    /// On hardware of one's own.
    pub(crate) dedicated: bool,
    /// Ids of its security groups; empty when not known.
    pub(crate) groups: Vec<String>,
}

#[derive(Clone, Debug)]
struct CachedInstance {
    record: InstanceRecord,
    /// When EC2 last described it; `None` when only its launch is known.
    seen: Option<Instant>,
    launched: Option<Instant>,
    /// Termination was asked for.
    ending: bool,
    touched: Instant,
}

/// What is remembered of instances, by id.
#[derive(Debug, Default)]
struct KnownInstances {
    by_id: Mutex<HashMap<String, CachedInstance>>,
}

impl KnownInstances {
    fn launched(&self, record: &InstanceRecord) {
        let now = Instant::now();
        self.lock().insert(
            record.id.clone(),
            CachedInstance {
                record: record.clone(),
                seen: None,
                launched: Some(now),
                ending: false,
                touched: now,
            },
        );
    }

    fn seen(&self, record: &InstanceRecord) {
        let now = Instant::now();
        let mut all = self.lock();
        all.retain(|_, known| known.touched.elapsed() < REMEMBERED);
        let known = all
            .entry(record.id.clone())
            .or_insert_with(|| CachedInstance {
                record: record.clone(),
                seen: None,
                launched: None,
                ending: false,
                touched: now,
            });
        *known = CachedInstance {
            record: record.clone(),
            seen: Some(now),
            touched: now,
            ..known.clone()
        };
    }

    fn fresh(&self, id: &str) -> Option<InstanceRecord> {
        self.lock()
            .get(id)
            .filter(|known| known.seen.is_some_and(|at| at.elapsed() < FRESH))
            .map(|known| known.record.clone())
    }

    fn just_launched(&self, id: &str) -> bool {
        self.lock()
            .get(id)
            .is_some_and(|known| known.launched.is_some_and(|at| at.elapsed() < VISIBLE))
    }

    fn is_ending(&self, id: &str) -> bool {
        self.lock().get(id).is_some_and(|known| known.ending)
    }

    fn ending(&self, id: &str) {
        if let Some(known) = self.lock().get_mut(id) {
            known.ending = true;
        }
    }

    fn gone(&self, id: &str) {
        self.lock().remove(id);
    }

    fn spot_offering(&self, id: &str) -> Option<UnavailableOffering> {
        let record = self
            .lock()
            .get(id)
            .map(|known| known.record.clone())
            .filter(|record| record.capacity_type == CapacityType::Spot)?;
        Some(UnavailableOffering {
            instance_type: record.instance_type.into(),
            zone: record.zone.into(),
            capacity_type: CapacityType::Spot,
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, CachedInstance>> {
        self.by_id.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// EC2's description in our words; `None` when it lacks what an instance always has.
fn record(found: &Ec2Instance) -> Option<InstanceRecord> {
    let spot = found.instance_lifecycle() == Some(&InstanceLifecycleType::Spot)
        || found
            .spot_instance_request_id()
            .is_some_and(|id| !id.is_empty());
    Some(InstanceRecord {
        id: found.instance_id()?.to_owned(),
        instance_type: found.instance_type()?.as_str().to_owned(),
        zone: found.placement()?.availability_zone()?.to_owned(),
        capacity_type: if spot {
            CapacityType::Spot
        } else {
            CapacityType::OnDemand
        },
        subnet: found.subnet_id().map(str::to_owned),
        image: found.image_id().map(str::to_owned),
        dedicated: found.placement().and_then(|placement| placement.tenancy())
            == Some(&Tenancy::Dedicated),
        groups: found
            .security_groups()
            .iter()
            .filter_map(|group| group.group_id().map(str::to_owned))
            .collect(),
    })
}

fn state(found: &Ec2Instance) -> Option<&InstanceStateName> {
    found.state().and_then(|state| state.name())
}

fn tag<'a>(found: &'a Ec2Instance, key: &str) -> Option<&'a str> {
    found
        .tags()
        .iter()
        .find(|tag| tag.key() == Some(key))
        .and_then(|tag| tag.value())
}

fn is_shutting_down(found: &Ec2Instance) -> bool {
    state(found) == Some(&InstanceStateName::ShuttingDown)
}

/// EC2's description as the port has it.
fn instance(provider_id: ProviderId, found: &Ec2Instance) -> Instance {
    Instance {
        provider_id,
        claim: tag(found, tags::NODECLAIM).map(str::to_owned),
        created: found
            .launch_time()
            .and_then(|time| Timestamp::from_second(time.secs()).ok()),
        terminating: is_shutting_down(found),
    }
}

/// The part of a provider id that EC2 knows.
fn id_of(provider_id: &ProviderId) -> Result<&str, CloudError> {
    tags::instance_id(provider_id).ok_or_else(|| CloudError {
        label: "invalid_id",
        message: format!(
            "provider id {provider_id:?} is not an EC2 instance; expected aws:///<zone>/i-..."
        ),
        retry: Retry::Never,
    })
}

fn not_visible(id: &str) -> CloudError {
    CloudError {
        label: "unsettled",
        message: format!("instance {id} was launched recently and is not visible yet"),
        retry: Retry::Again,
    }
}

/// Instances of this cluster: the calls about them, and what is remembered of them.
#[derive(Debug)]
pub(crate) struct InstanceCache {
    clients: Arc<AwsClients>,
    config: Arc<AwsConfig>,
    known: KnownInstances,
}

impl InstanceCache {
    /// Knows nothing yet, and calls nothing.
    pub(crate) fn new(clients: Arc<AwsClients>, config: Arc<AwsConfig>) -> Self {
        Self {
            clients,
            config,
            known: KnownInstances::default(),
        }
    }

    /// An instance was launched by us just now.
    pub(crate) fn launched(&self, record: &InstanceRecord) {
        self.known.launched(record);
    }

    /// The spot offering that an instance was launched as, if the instance is known and spot.
    pub(crate) fn spot_offering(&self, id: &str) -> Option<UnavailableOffering> {
        self.known.spot_offering(id)
    }

    async fn describe(&self, filters: Vec<Filter>) -> Result<Vec<Ec2Instance>, Failure> {
        let mut pages = self
            .clients
            .ec2
            .describe_instances()
            .set_filters(Some(filters))
            .max_results(1000)
            .into_paginator()
            .send();
        let mut found = Vec::new();
        while let Some(page) = pages.next().await {
            let page =
                page.map_err(|error| self.clients.failure("ec2:DescribeInstances", error))?;
            found.extend(instances(page.reservations));
        }
        Ok(found)
    }

    /// The living instance that was launched for a claim UID.
    pub(crate) async fn of_claim(&self, uid: &str) -> Result<Option<InstanceRecord>, Failure> {
        let filters = vec![
            filter(format!("tag:{}", tags::NODECLAIM_UID), [uid]),
            filter("instance-state-name", ALIVE),
        ];
        let found = self.describe(filters).await?;
        let mut found: Vec<InstanceRecord> = found.iter().filter_map(record).collect();
        found.sort_by(|a, b| a.id.cmp(&b.id));
        if let [_, second, ..] = found.as_slice() {
            tracing::error!(
                uid,
                instance = second.id,
                "more than one instance has the same NodeClaim, the first is used, garbage collection terminates the others"
            );
        }
        let first = found.into_iter().next();
        first.iter().for_each(|record| self.known.seen(record));
        Ok(first)
    }

    /// An instance as EC2 describes it when it is asked for that id and nothing else: no filter can leave it out. `None`
    /// when it is gone, which is that EC2 does not find it, or has terminated it.
    async fn described(&self, id: &str) -> Result<Option<Ec2Instance>, CloudError> {
        let call = self.clients.ec2.describe_instances().instance_ids(id);
        let answer = match call.send().await {
            Ok(answer) => answer,
            Err(error) => {
                return match self.clients.failure("ec2:DescribeInstances", error) {
                    failure if failure.is_not_found() && self.known.just_launched(id) => {
                        Err(not_visible(id))
                    }
                    failure if failure.is_not_found() => Ok(None),
                    failure => Err(failure.into()),
                };
            }
        };
        let found = instances(answer.reservations)
            .find(|each| each.instance_id() == Some(id))
            .ok_or_else(|| CloudError {
                label: "unreadable",
                message: format!("EC2 neither described instance {id} nor reported it as missing"),
                retry: Retry::Again,
            })?;
        record(&found)
            .iter()
            .for_each(|record| self.known.seen(record));
        let gone = state(&found) == Some(&InstanceStateName::Terminated);
        Ok((!gone).then_some(found))
    }

    /// An instance; `None` when it is gone.
    pub(crate) async fn get(
        &self,
        provider_id: &ProviderId,
    ) -> Result<Option<Instance>, CloudError> {
        let found = self.described(id_of(provider_id)?).await?;
        Ok(found.map(|found| instance(provider_id.clone(), &found)))
    }

    /// Terminates an instance, or says how far that is.
    pub(crate) async fn terminate(
        &self,
        provider_id: &ProviderId,
    ) -> Result<TerminationStatus, CloudError> {
        let id = id_of(provider_id)?;
        if self.known.is_ending(id) {
            // Asked before: a description is cheaper than asking again.
            return match self.described(id).await? {
                Some(found) if is_shutting_down(&found) => Ok(TerminationStatus::Started),
                Some(_) => self.ask_to_terminate(id).await,
                None => {
                    self.known.gone(id);
                    Ok(TerminationStatus::Gone)
                }
            };
        }
        self.ask_to_terminate(id).await
    }

    async fn ask_to_terminate(&self, id: &str) -> Result<TerminationStatus, CloudError> {
        let call = self.clients.ec2.terminate_instances().instance_ids(id);
        match call.send().await {
            Ok(answer) => {
                let state = answer
                    .terminating_instances()
                    .iter()
                    .find(|each| each.instance_id() == Some(id))
                    .and_then(|each| each.current_state())
                    .and_then(|state| state.name());
                if state == Some(&InstanceStateName::Terminated) {
                    self.known.gone(id);
                    return Ok(TerminationStatus::Gone);
                }
                self.known.ending(id);
                tracing::info!(instance = id, "requested termination of instance");
                Ok(TerminationStatus::Started)
            }
            Err(error) => match self.clients.failure("ec2:TerminateInstances", error) {
                failure if failure.is_not_found() && self.known.just_launched(id) => {
                    Err(not_visible(id))
                }
                failure if failure.is_not_found() => Ok(TerminationStatus::Gone),
                failure => Err(failure.into()),
            },
        }
    }

    /// All instances of the cluster that were launched for a NodePool. Sorted by id.
    pub(crate) async fn list(&self) -> Result<Vec<Instance>, CloudError> {
        let filters = vec![
            filter(
                format!("tag:{}", tags::cluster_tag(&self.config.cluster_name)),
                [tags::OWNED],
            ),
            filter("tag-key", [tags::NODEPOOL]),
            filter("tag-key", [tags::NODE_CLASS]),
            filter("instance-state-name", EXISTING),
        ];
        let mut all = Vec::new();
        for found in self.describe(filters).await? {
            let Some(record) = record(&found) else {
                continue;
            };
            self.known.seen(&record);
            let id = tags::provider_id(&record.zone, &record.id).into();
            all.push(instance(id, &found));
        }
        all.sort_by(|a, b| a.provider_id.cmp(&b.provider_id));
        Ok(all)
    }

    /// The first difference between a claim's instance and its class, in the reference implementation's order and words.
    pub(crate) async fn drift(
        &self,
        claim: &NodeClaim,
        key: &NodeClassKey,
        class: &CachedNodeClass,
    ) -> Result<Option<DriftReason>, CloudError> {
        if has_other_hash(claim, class) {
            return Ok(Some(DriftReason::new("NodeClassDrift")));
        }
        let Some(id) = claim.provider_id().and_then(tags::instance_id) else {
            return Ok(None);
        };
        if let Some(part) = unresolved_part(class) {
            return Err(CloudError {
                label: "unresolved",
                message: format!(
                    "{part} of {key} are not resolved, so {} cannot be compared with it",
                    claim.name()
                ),
                retry: Retry::Again,
            });
        }
        if has_other_image(claim, class) {
            return Ok(Some(DriftReason::new("AMIDrift")));
        }
        let instance = match self.known.fresh(id) {
            Some(instance) => Some(instance),
            None => self.described(id).await?.as_ref().and_then(record),
        };
        Ok(instance.and_then(|instance| network_drift(&instance, class)))
    }
}

fn instances(reservations: Option<Vec<Reservation>>) -> impl Iterator<Item = Ec2Instance> {
    reservations
        .unwrap_or_default()
        .into_iter()
        .flat_map(|reservation| reservation.instances.unwrap_or_default())
}

/// The claim was launched with another version of the class. Hashes of different versions cannot be compared.
fn has_other_hash(claim: &NodeClaim, class: &CachedNodeClass) -> bool {
    let version = claim.annotation(tags::CLASS_HASH_VERSION);
    let hashes = class
        .hash
        .as_deref()
        .zip(claim.annotation(tags::CLASS_HASH));
    version == Some(HASH_VERSION) && hashes.is_some_and(|(ours, theirs)| ours != theirs)
}

/// The part of the class that is not known, without which nothing can be compared.
fn unresolved_part(class: &CachedNodeClass) -> Option<&'static str> {
    if class.amis.is_empty() {
        Some("images")
    } else if class.groups.is_empty() {
        Some("security groups")
    } else if class.subnets.is_empty() {
        Some("subnets")
    } else {
        None
    }
}

/// The claim runs another image than its type would get now. A type that is not in the list just now says nothing about the image:
/// a gap in EC2's list must not replace a fleet.
fn has_other_image(claim: &NodeClaim, class: &CachedNodeClass) -> bool {
    let (Some(image), Some(name)) = (
        claim.status.image_id.as_deref(),
        claim.label(labels::INSTANCE_TYPE),
    ) else {
        return false;
    };
    class.instance_type(name).is_some() && class.image(name).is_none_or(|ami| ami.id != image)
}

/// The instance has other security groups than the class, or is in none of its subnets.
fn network_drift(instance: &InstanceRecord, class: &CachedNodeClass) -> Option<DriftReason> {
    let wanted: BTreeSet<&str> = class.groups.iter().map(|group| &*group.id).collect();
    if wanted != instance.groups.iter().map(|id| &**id).collect() {
        return Some(DriftReason::new("SecurityGroupDrift"));
    }
    let in_subnets = instance
        .subnet
        .as_ref()
        .is_none_or(|subnet| class.subnets.iter().any(|each| each.subnet.id == *subnet));
    (!in_subnets).then_some(DriftReason::new("SubnetDrift"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_was_just_launched_is_not_gone() {
        let instances = KnownInstances::default();
        let record = InstanceRecord {
            id: "i-1".to_owned(),
            instance_type: "m5.large".to_owned(),
            zone: "us-east-1a".to_owned(),
            capacity_type: CapacityType::Spot,
            subnet: None,
            image: None,
            dedicated: false,
            groups: Vec::new(),
        };
        instances.launched(&record);
        assert!(instances.just_launched("i-1") && !instances.just_launched("i-2"));
        assert_eq!(instances.fresh("i-1"), None, "EC2 has not described it");
        assert_eq!(
            instances
                .spot_offering("i-1")
                .map(|each| each.zone.to_string()),
            Some("us-east-1a".to_owned())
        );
        instances.seen(&record);
        assert_eq!(instances.fresh("i-1"), Some(record));
        tokio::time::advance(FRESH).await;
        assert_eq!(instances.fresh("i-1"), None);
        assert!(!instances.just_launched("i-1"));
    }
}
