//! The virtual cloud: instances, prices, shortages, interruptions.

mod account;
mod images;
mod node_classes;
mod prices;

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use jiff::Timestamp;
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::labels;
use mortise_apis::names::{NodeClassKey, ProviderId, Uid};
use mortise_apis::requirements::Requirement;
use mortise_apis::values::money::MicroUsd;
use mortise_apis::values::{SplitMix64, after};
use mortise_cloudprovider::{
    CapacityType, Instance, InstanceDetails, InstanceType, InterruptionKind, InterruptionNotice,
    LaunchBatch, LaunchError, LaunchRequest, LaunchedInstance, Offering, TerminationStatus,
    UnavailableOffering,
};

use crate::clock::{Action, Clock};

pub(crate) use account::AccountLimits;
pub(crate) use node_classes::NodeClassTypes;
pub use prices::NewPrice;
use prices::PriceChanges;

pub(crate) use images::{FIRST_IMAGE, image_of};

/// Duration of a shortage in a capacity pool.
const SHORTAGE_MS: i64 = 3 * 60_000;
/// An instance is reclaimed this long after its notice.
const NOTICE_MS: i64 = 120_000;

/// Label of objects whose instance runs in a capacity reservation.
pub const RESERVATION_ID: &str = "sim.example.com/reservation-id";
/// Annotation of claims whose instance has all tags.
pub const TAGGED: &str = "sim.example.com/tagged";

/// A simulated instance.
#[derive(Clone, Debug)]
pub struct SimInstance {
    /// Claim that it was launched for.
    pub claim: String,
    /// UID of that claim: a repeated launch of the same claim returns this instance.
    pub claim_uid: String,
    /// Token of the batch that it was launched in. The cloud does not know which claim of it has the instance until it is tagged.
    pub batch: Option<String>,
    /// Labels of its Node.
    pub labels: BTreeMap<String, String>,
    /// Instance type.
    pub instance_type: Arc<InstanceType>,
    /// Image that it started from.
    pub image: Arc<str>,
    /// Spot instances can be interrupted.
    pub capacity_type: CapacityType,
    /// Price.
    pub price: MicroUsd,
    /// Launch time.
    pub launched: Timestamp,
    /// Since when lists have it.
    pub visible_from: Timestamp,
    /// When it is removed; set when termination is requested.
    pub terminates_at: Option<Timestamp>,
    /// The Node that its tags name.
    pub tagged_node: Option<String>,
}

/// How the launch of one claim ended.
type BatchResult = Result<LaunchedInstance, LaunchError>;

/// The simulated cloud.
#[derive(Debug, Default)]
pub struct Cloud {
    /// With the prices of now.
    types: Vec<Arc<InstanceType>>,
    price_changes: PriceChanges,
    instances: BTreeMap<ProviderId, SimInstance>,
    /// How often instances may have changed.
    instance_changes: u64,
    empty_until: BTreeMap<UnavailableOffering, Timestamp>,
    count: u64,
    calls: u64,
    shortage_per_mille: u64,
    node_classes: NodeClassTypes,
    account: AccountLimits,
    is_named_by_claims: bool,
    /// What the service's process knows of the batches that it asked for; a request after its restart is another one.
    batches: Vec<(Weak<LaunchBatch>, BTreeMap<Uid, BatchResult>)>,
    /// Interruption notices that the service has not acknowledged, by id.
    notices: BTreeMap<Arc<str>, InterruptionNotice>,
}

impl Cloud {
    /// A cloud with these instance types.
    #[must_use]
    pub fn new(types: Vec<InstanceType>, shortage_per_mille: u64) -> Self {
        Self {
            types: types.into_iter().map(Arc::new).collect(),
            shortage_per_mille,
            ..Self::default()
        }
    }

    /// These node classes have other instance types.
    pub(crate) fn set_node_classes(&mut self, node_classes: NodeClassTypes) {
        self.node_classes = node_classes;
    }

    /// The account and its API have these limits.
    pub(crate) const fn set_account(&mut self, account: AccountLimits) {
        self.account = account;
    }

    /// Instances and their Nodes are named as their claims are, so that tests can tell which is whose.
    pub(crate) const fn name_by_claims(&mut self) {
        self.is_named_by_claims = true;
    }

    /// The capacity pools that match have no capacity until a time.
    pub(crate) fn empty(
        &mut self,
        until: Timestamp,
        is_empty: impl Fn(&UnavailableOffering) -> bool,
    ) {
        for each in &self.types {
            let pools = each.offerings.iter();
            let pools = pools.map(|offering| each.capacity_pool(offering));
            let empty = pools.filter(|pool| is_empty(pool));
            self.empty_until.extend(empty.map(|pool| (pool, until)));
        }
    }

    /// Running and terminating instances.
    pub fn instances(&self) -> impl Iterator<Item = (&ProviderId, &SimInstance)> {
        self.instances.iter()
    }

    /// How often instances may have changed: as long as this is the same, so are they.
    pub(crate) const fn instance_changes(&self) -> u64 {
        self.instance_changes
    }

    fn instances_mut(&mut self) -> &mut BTreeMap<ProviderId, SimInstance> {
        self.instance_changes += 1;
        &mut self.instances
    }

    /// The instance with an id.
    #[must_use]
    pub fn instance(&self, id: &ProviderId) -> Option<&SimInstance> {
        self.instances.get(id)
    }

    /// Calls that launched instances, or were to.
    #[must_use]
    pub const fn launch_calls(&self) -> u64 {
        self.calls
    }

    /// Sum of the prices of all instances.
    #[must_use]
    pub fn price(&self) -> MicroUsd {
        self.instances.values().map(|instance| instance.price).sum()
    }

    /// Launches the instance of a request, or returns the one launched before. Second value: instances that are new.
    pub(crate) fn launch(
        &mut self,
        request: &LaunchRequest,
        now: Timestamp,
        random: &mut SplitMix64,
    ) -> (BatchResult, Vec<ProviderId>) {
        let claim = &request.claim;
        let class = request.node_class.as_ref();
        let image = class.map_or(FIRST_IMAGE, |class| image_of(&class.object));
        let Some(batch) = &request.batch else {
            return self.launch_alone(claim, image, now, random);
        };
        self.batches.retain(|(known, _)| known.strong_count() > 0);
        let is_it = |known: &Weak<LaunchBatch>| std::ptr::eq(known.as_ptr(), Arc::as_ptr(batch));
        let mut new = Vec::new();
        if !self.batches.iter().any(|(known, _)| is_it(known)) {
            self.calls += 1;
            let results = self.launch_batch(batch, image, now, random, &mut new);
            self.batches.push((Arc::downgrade(batch), results));
        }
        let mut batches = self.batches.iter();
        let results = batches.find(|(known, _)| is_it(known));
        let own = results.and_then(|(_, results)| results.get(&claim.uid()?).cloned());
        let none = || {
            Err(LaunchError::NodeClassNotReady {
                message: "the NodeClaim is not of its batch".to_owned(),
            })
        };
        (own.unwrap_or_else(none), new)
    }

    /// Launches the instance of one claim, or returns the one launched before. Second value: instances that are new.
    pub(crate) fn launch_alone(
        &mut self,
        claim: &NodeClaim,
        image: &str,
        now: Timestamp,
        random: &mut SplitMix64,
    ) -> (BatchResult, Vec<ProviderId>) {
        let uid = claim.metadata.uid.clone().unwrap_or_default();
        let mut known = self.instances.iter();
        if let Some((id, instance)) = known.find(|(_, each)| each.claim_uid == uid) {
            return (Ok(launched(id, instance)), Vec::new());
        }
        self.calls += 1;
        let result = self.launch_new(claim, None, image, now, random);
        let new = result.iter().map(|each| each.provider_id.clone()).collect();
        (result, new)
    }

    /// Gives the claims of a batch its instances that no claim has, in order of id, and launches what lacks.
    fn launch_batch(
        &mut self,
        batch: &LaunchBatch,
        image: &str,
        now: Timestamp,
        random: &mut SplitMix64,
        new: &mut Vec<ProviderId>,
    ) -> BTreeMap<Uid, BatchResult> {
        let is_free = |(id, each): &(&ProviderId, &SimInstance)| {
            each.batch.as_deref() == Some(&*batch.token)
                && each.tagged_node.is_none()
                && each.terminates_at.is_none()
                && !batch.taken.contains(id)
        };
        let free = self.instances.iter().filter(is_free);
        let mut free = free
            .map(|(id, _)| id.clone())
            .collect::<Vec<_>>()
            .into_iter();
        let mut results = BTreeMap::new();
        for claim in &batch.claims {
            let Some(uid) = claim.uid() else { continue };
            let result = match free.next() {
                Some(id) => self.give(&id, claim),
                None => {
                    let result = self.launch_new(claim, Some(&batch.token), image, now, random);
                    new.extend(result.iter().map(|each| each.provider_id.clone()));
                    result
                }
            };
            results.insert(uid, result);
        }
        results
    }

    /// From now on the instance is the claim's.
    fn give(&mut self, id: &ProviderId, claim: &NodeClaim) -> BatchResult {
        let instance = self.instances_mut().get_mut(id);
        let instance = instance.ok_or_else(|| LaunchError::NodeClassNotReady {
            message: format!("{id} is gone"),
        })?;
        instance.claim = claim.name().to_string();
        instance.claim_uid = claim.metadata.uid.clone().unwrap_or_default();
        Ok(launched(id, instance))
    }

    fn launch_new(
        &mut self,
        claim: &NodeClaim,
        batch: Option<&str>,
        image: &str,
        now: Timestamp,
        random: &mut SplitMix64,
    ) -> BatchResult {
        self.account.throttle(random)?;
        let uid = claim.metadata.uid.clone().unwrap_or_default();
        let requirements = claim.requirements();
        let has = |key: &str, value: &str| {
            requirements
                .get(key)
                .is_none_or(|requirement| requirement.has(value))
        };
        let class = claim.node_class_key();
        let mut offers: Vec<(i64, &Arc<InstanceType>, &Offering)> = Vec::new();
        for each in self
            .types
            .iter()
            .filter(|each| has(labels::INSTANCE_TYPE, &each.name))
        {
            let compatible = each.offerings.iter().filter(|o| {
                o.available
                    && has(labels::TOPOLOGY_ZONE, &o.zone)
                    && has(labels::CAPACITY_TYPE, o.capacity_type.as_str())
                    && self.node_classes.has(&class, &each.name, o)
            });
            offers.extend(
                compatible.filter_map(|offering| Some((offering.price?.0, each, offering))),
            );
        }
        offers.sort_by(|a, b| (a.0, &a.1.name, &a.2.zone).cmp(&(b.0, &b.1.name, &b.2.zone)));
        let mut empty = Vec::new();
        let mut chosen = None;
        for (_, each, offering) in offers {
            let pool = each.capacity_pool(offering);
            let known_empty = self
                .empty_until
                .get(&pool)
                .is_some_and(|until| *until > now);
            let running = self.instances.values();
            if known_empty
                || !self.account.allow(offering.capacity_type, each, running)
                || (offering.capacity_type == CapacityType::Spot
                    && random.chance(self.shortage_per_mille))
            {
                if !known_empty {
                    self.empty_until
                        .insert(pool.clone(), after(now, SHORTAGE_MS));
                }
                empty.push(pool);
                continue;
            }
            let own = self.node_classes.own(&class, Arc::clone(each));
            chosen = Some((own, offering.clone()));
            break;
        }
        let Some((instance_type, offering)) = chosen else {
            return Err(LaunchError::InsufficientCapacity {
                message: format!("{} capacity pools are empty", empty.len()),
                unavailable: empty,
                again_ms: None,
                missing: None,
            });
        };
        self.count += 1;
        let instance_id = if self.is_named_by_claims {
            claim.name().to_string()
        } else {
            format!("i-{:08x}", self.count)
        };
        let id = ProviderId::from(format!("sim:///{}/{instance_id}", offering.zone));
        let instance = SimInstance {
            claim: claim.name().to_string(),
            claim_uid: uid,
            batch: batch.map(str::to_owned),
            labels: node_labels(claim, &instance_type, &offering),
            capacity_type: offering.capacity_type,
            price: offering.price.unwrap_or_default(),
            instance_type,
            image: image.into(),
            launched: now,
            visible_from: self.account.visible_from(now, random),
            terminates_at: None,
            tagged_node: None,
        };
        let launched_instance = launched(&id, &instance);
        self.instances_mut().insert(id, instance);
        Ok(launched_instance)
    }

    /// Terminates an instance soon, unless it does not exist or is already terminating.
    pub(crate) fn terminate(
        &mut self,
        id: &ProviderId,
        termination_ms: (i64, i64),
        clock: &mut Clock,
    ) -> TerminationStatus {
        let Some(instance) = self.instances_mut().get_mut(id) else {
            return TerminationStatus::Gone;
        };
        if instance.terminates_at.is_none() {
            let ms = clock.random.between(termination_ms.0, termination_ms.1);
            if ms == 0 {
                self.instances_mut().remove(id);
                return TerminationStatus::Gone;
            }
            let at = after(clock.now(), ms);
            instance.terminates_at = Some(at);
            clock.at(at, Action::RemoveInstance(id.clone()));
        }
        TerminationStatus::Started
    }

    /// A running spot instance; `None`: there is none.
    pub(crate) fn any_spot_instance(&self, random: &mut SplitMix64) -> Option<ProviderId> {
        let all = self.instances.iter();
        let spot = all.filter(|(_, instance)| {
            instance.capacity_type == CapacityType::Spot && instance.terminates_at.is_none()
        });
        let spot: Vec<&ProviderId> = spot.map(|(id, _)| id).collect();
        let pick = usize::try_from(random.below(spot.len() as u64)).unwrap_or(0);
        spot.get(pick).map(|id| (*id).clone())
    }

    /// Announces and plans the interruption of an instance. The notice stays until it is acknowledged. `None`: the instance ends
    /// anyway.
    pub(crate) fn interrupt(
        &mut self,
        id: &ProviderId,
        clock: &mut Clock,
    ) -> Option<InterruptionNotice> {
        let notice = self.announce(id, InterruptionKind::SpotInterruption, clock.now())?;
        clock.at(
            after(clock.now(), NOTICE_MS),
            Action::RemoveInstance(id.clone()),
        );
        Some(notice)
    }

    /// Announces that an instance is more likely to be interrupted soon. `None`: the instance ends anyway.
    pub(crate) fn recommend_rebalance(
        &mut self,
        id: &ProviderId,
        now: Timestamp,
    ) -> Option<InterruptionNotice> {
        self.announce(id, InterruptionKind::RebalanceRecommendation, now)
    }

    fn announce(
        &mut self,
        id: &ProviderId,
        kind: InterruptionKind,
        now: Timestamp,
    ) -> Option<InterruptionNotice> {
        let ends = self.instances.get(id)?.terminates_at;
        if ends.is_some() {
            return None;
        }
        let instance = id.rsplit('/').next().unwrap_or_default();
        let word = match kind {
            InterruptionKind::RebalanceRecommendation => "rebalance",
            _ => "notice",
        };
        let handle: Arc<str> = format!("{word}-{}-{instance}", now.as_millisecond()).into();
        let notice = InterruptionNotice {
            id: Some(Arc::clone(&handle)),
            kind,
            instances: vec![instance.into()],
            sent: Some(now),
            starts: None,
        };
        self.notices.insert(handle, notice.clone());
        Some(notice)
    }

    /// Interruption notices that the service has not acknowledged.
    pub(crate) fn notices(&self) -> impl Iterator<Item = &InterruptionNotice> {
        self.notices.values()
    }

    /// Removes a notice that the service has processed.
    pub(crate) fn acknowledge(&mut self, notice: &str) {
        self.notices.remove(notice);
    }

    /// Removes an instance.
    pub(crate) fn remove(&mut self, id: &ProviderId) -> Option<SimInstance> {
        self.instances_mut().remove(id)
    }

    /// Every instance is paid for on demand by now.
    pub(crate) fn pay_on_demand(&mut self) {
        let all = self.instances_mut().values_mut();
        all.for_each(|instance| instance.capacity_type = CapacityType::OnDemand);
    }

    /// Tags the instance of a claim with its Node. Returns the annotations by which the claim remembers it.
    pub(crate) fn tag(&mut self, claim: &NodeClaim) -> BTreeMap<String, String> {
        let id = claim.provider_id().map(ProviderId::from);
        let instance = id.and_then(|id| self.instances_mut().get_mut(&id));
        let tagged = instance.map(|instance| {
            instance.tagged_node.clone_from(&claim.status.node_name);
            (TAGGED.to_owned(), "true".to_owned())
        });
        tagged.into_iter().collect()
    }

    /// All instances, as a provider lists them.
    pub(crate) fn list(&self, now: Timestamp) -> Vec<Instance> {
        let all = self.instances.iter();
        let visible = all.filter(|(_, instance)| instance.visible_from <= now);
        visible.map(listed).collect()
    }

    /// One instance, as a provider returns it.
    pub(crate) fn find(&self, id: &ProviderId, now: Timestamp) -> Option<Instance> {
        let found = self.instances.get_key_value(id);
        found
            .filter(|(_, instance)| instance.visible_from <= now)
            .map(listed)
    }

    /// Instance types of a node class with their current availability.
    pub(crate) fn catalog_of(&self, class: &NodeClassKey, now: Timestamp) -> Vec<InstanceType> {
        self.node_classes.all(class, self.catalog(now))
    }

    /// Instance types with their current availability.
    pub(crate) fn catalog(&self, now: Timestamp) -> Vec<InstanceType> {
        let mut types: Vec<InstanceType> = self.types.iter().map(|each| (**each).clone()).collect();
        for (pool, _) in self.empty_until.iter().filter(|(_, until)| **until > now) {
            let Ok(at) = types.binary_search_by(|each| each.name.cmp(&pool.instance_type)) else {
                continue;
            };
            for offering in types
                .get_mut(at)
                .into_iter()
                .flat_map(|each| &mut each.offerings)
            {
                if offering.zone == pool.zone && offering.capacity_type == pool.capacity_type {
                    offering.available = false;
                }
            }
        }
        types
    }
}

fn listed((id, instance): (&ProviderId, &SimInstance)) -> Instance {
    Instance {
        provider_id: id.clone(),
        claim: (instance.batch.is_none() || instance.tagged_node.is_some())
            .then(|| instance.claim.clone()),
        batch: instance.batch.clone(),
        created: Some(instance.launched),
        terminating: instance.terminates_at.is_some(),
        details: InstanceDetails {
            instance_type: Some(instance.instance_type.name.to_string()),
            zone: instance.labels.get(labels::TOPOLOGY_ZONE).cloned(),
            capacity_type: Some(instance.capacity_type),
            reservation: None,
            image: None,
        },
    }
}

fn launched(id: &ProviderId, instance: &SimInstance) -> LaunchedInstance {
    LaunchedInstance {
        provider_id: id.clone(),
        image_id: Some(instance.image.to_string()),
        labels: instance.labels.clone(),
        annotations: BTreeMap::new(),
        capacity: instance.instance_type.capacity.to_api(),
        allocatable: instance.instance_type.allocatable().to_api(),
    }
}

fn node_labels(
    claim: &NodeClaim,
    chosen: &InstanceType,
    offering: &Offering,
) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for requirement in chosen
        .requirements
        .iter()
        .chain(claim.requirements().iter())
        .filter(|each| !Requirement::is_complement(each))
    {
        if let [only] = requirement.values() {
            all.insert(requirement.key().to_owned(), only.to_string());
        }
    }
    all.insert(labels::INSTANCE_TYPE.to_owned(), chosen.name.to_string());
    all.insert(labels::TOPOLOGY_ZONE.to_owned(), offering.zone.to_string());
    all.insert(
        labels::CAPACITY_TYPE.to_owned(),
        offering.capacity_type.as_str().to_owned(),
    );
    all.extend(
        offering
            .labels
            .iter()
            .map(|(key, value)| (key.to_string(), value.to_string())),
    );
    all.extend(claim.metadata.labels.clone().unwrap_or_default());
    all
}

#[cfg(test)]
mod tests;
