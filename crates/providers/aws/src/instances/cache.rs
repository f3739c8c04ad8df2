//! Instances of this cluster: what is asked of EC2 about them, what is remembered, and what both mean.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use aws_sdk_ec2::types::{Instance as Ec2Instance, InstanceStateName};
use futures::future::join_all;
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::names::ProviderId;
use mortise_cloudprovider::{
    CloudError, DriftReason, Instance, Retry, TerminationStatus, UnavailableOffering,
};

use crate::config::AwsConfig;
use crate::failure::Failure;
use crate::instances::calls::{InstanceCalls, NewTags};
use crate::instances::known::{EndingView, KnownInstances};
use crate::instances::provider_id::instance_id;
use crate::instances::record::InstanceRecord;
use crate::instances::{drift, post_launch_tags};
use crate::node_class::CachedNodeClass;
use crate::offerings::reservation_counts::ReservationCounts;
use crate::offerings::shifted_zones::ShiftedZones;
use crate::sdk::AwsClients;
use crate::sdk::call_budget::Urgency;
use crate::tags;

/// Instances of this cluster: the calls about them, and what is remembered of them.
#[derive(Debug)]
pub(crate) struct InstanceCache {
    config: Arc<AwsConfig>,
    calls: InstanceCalls,
    known: KnownInstances,
    reservations: Arc<ReservationCounts>,
    shifted: Arc<ShiftedZones>,
}

fn not_visible(id: &str) -> CloudError {
    CloudError {
        label: "unsettled",
        message: format!("instance {id} was launched recently and is not visible yet"),
        retry: Retry::Again,
    }
}

/// Nothing is done in a shifted zone: its API calls may fail, and its instances may be needed when it returns.
fn shifted(instance: &InstanceRecord, skipped: &str) -> CloudError {
    let InstanceRecord {
        id,
        zone,
        described,
        ..
    } = instance;
    let zone_id = described.zone_id.as_deref().unwrap_or_default();
    CloudError {
        label: "zonal_shift",
        message: format!(
            "instance {id} is in zonally shifted availability zone {zone} ({zone_id}), skipping {skipped}"
        ),
        retry: Retry::Again,
    }
}

impl InstanceCache {
    /// Knows nothing yet, and calls nothing.
    pub(crate) fn new(
        clients: &Arc<AwsClients>,
        config: Arc<AwsConfig>,
        reservations: Arc<ReservationCounts>,
        shifted: Arc<ShiftedZones>,
    ) -> Self {
        Self {
            calls: InstanceCalls::new(clients),
            config,
            known: KnownInstances::default(),
            reservations,
            shifted,
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

    /// EC2 described an instance just now.
    #[cfg(test)]
    pub(crate) fn seen(&self, record: InstanceRecord) {
        self.known.seen(record);
    }

    /// What is remembered of an instance, however old.
    #[cfg(test)]
    pub(crate) fn known(&self, id: &str) -> Option<InstanceRecord> {
        self.known.get(id)
    }

    /// The living instance that was launched for a claim UID.
    pub(crate) async fn of_claim(&self, uid: &str) -> Result<Option<InstanceRecord>, Failure> {
        let found = self.calls.of_claim(uid).await?;
        let mut found = found
            .iter()
            .filter_map(|each| InstanceRecord::read(each, self.config.reserved_capacity));
        let first = found.next();
        if let Some(second) = found.next() {
            tracing::error!(
                uid,
                instance = second.id,
                "more than one instance has the same NodeClaim, the first is used, garbage collection terminates the others"
            );
        }
        if let Some(record) = &first {
            self.known.seen(record.clone());
        }
        Ok(first)
    }

    /// The living instances that were launched by a batch.
    pub(crate) async fn of_batch(&self, token: &str) -> Result<Vec<InstanceRecord>, Failure> {
        let found = self.calls.of_batch(token).await?;
        let read = |each| InstanceRecord::read(each, self.config.reserved_capacity);
        let all: Vec<InstanceRecord> = found.iter().filter_map(read).collect();
        for record in &all {
            self.known.seen(record.clone());
        }
        Ok(all)
    }

    /// An instance as EC2 describes it now; in a shifted zone as it was described last. `None` when it is gone: EC2 does not find it, or
    /// has terminated it.
    async fn described(
        &self,
        id: &str,
        urgency: Urgency,
    ) -> Result<Option<InstanceRecord>, CloudError> {
        let known = self.known.get(id);
        let of_zone =
            |each: &InstanceRecord| self.shifted.covers(each.described.zone_id.as_deref());
        if known.as_ref().is_some_and(of_zone) {
            return Ok(known);
        }
        self.read(id, self.calls.describe(id, urgency).await)
    }

    /// Takes a description in; `None` when it says that the instance is gone.
    fn read(
        &self,
        id: &str,
        described: Result<Option<Ec2Instance>, Failure>,
    ) -> Result<Option<InstanceRecord>, CloudError> {
        let found = match described {
            Ok(found) => found,
            // EC2 does not know the id (yet). An answer without it is something else: EC2 knows the instance, which has ended.
            Err(failure) if failure.is_not_found() && self.known.just_launched(id) => {
                return Err(not_visible(id));
            }
            Err(failure) if failure.is_not_found() => None,
            Err(failure) => return Err(failure.into()),
        };
        let found = found.filter(|each| {
            let state = each.state().and_then(|state| state.name());
            state != Some(&InstanceStateName::Terminated)
        });
        let Some(found) = found else {
            self.gone(id);
            return Ok(None);
        };
        let record = InstanceRecord::read(&found, self.config.reserved_capacity);
        let record = record.ok_or_else(|| CloudError {
            label: "unreadable",
            message: format!("EC2 describes instance {id} without type or zone"),
            retry: Retry::Again,
        })?;
        self.known.seen(record.clone());
        Ok(Some(record))
    }

    /// EC2 has no such instance: its place in a reservation is free again.
    fn gone(&self, id: &str) {
        let reservation = self.known.gone(id).and_then(|record| record.reservation);
        if let Some(reservation) = reservation {
            self.reservations.terminated(&reservation.id);
        }
    }

    /// An instance; `None` when it is gone.
    pub(crate) async fn get(
        &self,
        provider_id: &ProviderId,
    ) -> Result<Option<Instance>, CloudError> {
        let id = instance_id(provider_id).map_err(in_getting_id)?;
        let found = self.described(id, Urgency::Background).await?;
        Ok(found.map(|found| found.to_instance(provider_id.clone())))
    }

    /// The partition of its placement group that an instance is in, if it is in one.
    pub(crate) async fn partition(
        &self,
        provider_id: &ProviderId,
    ) -> Result<Option<i32>, CloudError> {
        let id = instance_id(provider_id).map_err(in_getting_id)?;
        let found = self.described(id, Urgency::Launch).await?;
        Ok(found.and_then(|found| found.described.partition))
    }

    /// Terminates an instance, or says how far that is: it is asked for again and again, EC2 is not. One that was described a moment ago is
    /// ended without another look; those that are ending are described together.
    pub(crate) async fn terminate(
        &self,
        provider_id: &ProviderId,
    ) -> Result<TerminationStatus, CloudError> {
        let id = instance_id(provider_id).map_err(in_getting_id)?;
        match self.known.end_of(id) {
            EndingView::Gone => return Ok(TerminationStatus::Gone),
            EndingView::Recent => return Ok(TerminationStatus::Started),
            EndingView::Due(ending) => {
                let looks = ending.iter().map(|other| async move {
                    let looked = self.read(other, self.calls.look(other).await);
                    (other, looked)
                });
                // What the look at another says is for whoever asks for that one.
                let looked = join_all(looks).await;
                if let Some((_, Err(error))) = looked.into_iter().find(|(other, _)| *other == id) {
                    return Err(error);
                }
                match self.known.end_of(id) {
                    EndingView::Gone => return Ok(TerminationStatus::Gone),
                    EndingView::Recent => return Ok(TerminationStatus::Started),
                    EndingView::NotAsked | EndingView::Due(_) => {}
                }
            }
            EndingView::NotAsked => {}
        }
        let known = match self.known.fresh(id) {
            Some(known) => Some(known),
            None => self.described(id, Urgency::Terminate).await?,
        };
        let Some(found) = known else {
            return Ok(TerminationStatus::Gone);
        };
        if found.is_shutting_down() {
            self.known.ending(id);
            return Ok(TerminationStatus::Started);
        }
        if self.shifted.covers(found.described.zone_id.as_deref()) {
            return Err(shifted(&found, "termination"));
        }
        self.ask_to_terminate(id).await
    }

    async fn ask_to_terminate(&self, id: &str) -> Result<TerminationStatus, CloudError> {
        match self.calls.terminate(id).await {
            Ok(Some(state)) => {
                if state == InstanceStateName::Terminated {
                    self.gone(id);
                    return Ok(TerminationStatus::Gone);
                }
                self.known.ending(id);
                tracing::info!(instance = id, "requested termination of instance");
                Ok(TerminationStatus::Started)
            }
            Ok(None) => Err(CloudError {
                label: "unreadable",
                message: format!(
                    "EC2 accepted the termination of instance {id} but does not report that it is shutting down"
                ),
                retry: Retry::Again,
            }),
            Err(failure) if failure.is_not_found() && self.known.just_launched(id) => {
                Err(not_visible(id))
            }
            Err(failure) if failure.is_not_found() => {
                self.gone(id);
                Ok(TerminationStatus::Gone)
            }
            Err(failure) => Err(failure.into()),
        }
    }

    /// All instances of the cluster that were launched for a NodePool. Sorted by id.
    pub(crate) async fn list(&self) -> Result<Vec<Instance>, CloudError> {
        let mut all = Vec::new();
        let mut there = BTreeSet::new();
        for found in self.calls.list(&self.config.cluster_name).await? {
            let Some(record) = InstanceRecord::read(&found, self.config.reserved_capacity) else {
                tracing::warn!(
                    instance = found.instance_id().unwrap_or_default(),
                    "EC2 describes an instance without type or zone, leaving it out"
                );
                continue;
            };
            let id = tags::provider_id(&record.zone, &record.id).into();
            all.push(record.to_instance(id));
            there.insert(record.id.clone());
            self.known.seen(record);
        }
        let is_shifted =
            |each: &InstanceRecord| self.shifted.covers(each.described.zone_id.as_deref());
        self.known.listed(&there, is_shifted);
        all.sort_by(|a, b| a.provider_id.cmp(&b.provider_id));
        Ok(all)
    }

    /// Adds what its tags lack once the node of a claim is known. Returns the annotations by which the claim remembers that nothing is
    /// lacking; none while the node is not known, and for an instance that is gone.
    pub(crate) async fn tag(
        &self,
        claim: &NodeClaim,
    ) -> Result<BTreeMap<String, String>, CloudError> {
        let id = claim.provider_id().and_then(|id| instance_id(id).ok());
        let Some(id) = id.filter(|_| post_launch_tags::is_due(claim)) else {
            return Ok(BTreeMap::new());
        };
        let known = match self.known.fresh(id) {
            Some(known) => Some(known),
            // Tags are in no hurry: the next list says what it has.
            None if self.known.awaits_list(id) => None,
            None => self.described(id, Urgency::Background).await?,
        };
        let Some(instance) = known else {
            return Ok(BTreeMap::new());
        };
        let missing = post_launch_tags::missing(claim, &self.config.cluster_name, &instance);
        let has_all = missing.is_empty() || self.add_tags(&instance, missing).await?;
        Ok(if has_all {
            post_launch_tags::annotations()
        } else {
            BTreeMap::new()
        })
    }

    /// Adds tags to an instance; `false` if it is gone.
    pub(crate) async fn add_tags(
        &self,
        instance: &InstanceRecord,
        tags: NewTags,
    ) -> Result<bool, CloudError> {
        if self.shifted.covers(instance.described.zone_id.as_deref()) {
            return Err(shifted(instance, "tag creation"));
        }
        match self.calls.tag(&instance.id, tags.clone()).await {
            Ok(()) => {
                self.known.tagged(&instance.id, &tags);
                Ok(true)
            }
            Err(failure) if failure.is_not_found() => Ok(false),
            Err(failure) => Err(failure.into()),
        }
    }

    /// The first difference between a claim's instance and its class, in the reference implementation's order and words; none from a
    /// class that is being deleted.
    pub(crate) async fn drift(
        &self,
        claim: &NodeClaim,
        class: &CachedNodeClass,
    ) -> Result<Option<DriftReason>, CloudError> {
        if class.object.metadata.deletion_timestamp.is_some() {
            return Ok(None);
        }
        if let Some(reason) = drift::of_claim(claim, class)? {
            return Ok(Some(reason));
        }
        let id = instance_id(claim.provider_id().unwrap_or_default())?;
        // Until a list describes it, an instance is what it was launched as.
        let launched = || self.known.get(id).filter(|_| self.known.awaits_list(id));
        let known = match self.known.fresh(id).or_else(launched) {
            Some(known) => known,
            None => self.described_for_drift(id).await?,
        };
        match drift::of_instance(claim, class, &known)? {
            // The instance may have left its reservation since: it is never replaced for that without another look.
            Some(reason) if reason == drift::CAPACITY_RESERVATION => {}
            other => return Ok(other),
        }
        let found = self.described_for_drift(id).await?;
        drift::of_instance(claim, class, &found)
    }

    async fn described_for_drift(&self, id: &str) -> Result<InstanceRecord, CloudError> {
        let found = self.described(id, Urgency::Background).await?;
        found.ok_or_else(|| CloudError {
            label: "not_found",
            message: "getting instance, getting instances from output, nodeclaim not found, instance not found".to_owned(),
            retry: Retry::Never,
        })
    }
}

fn in_getting_id(error: CloudError) -> CloudError {
    CloudError {
        message: format!("getting instance ID, {}", error.message),
        ..error
    }
}
