//! The virtual cloud: instances, prices, shortages, interruptions.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::labels;
use mortise_apis::names::ProviderId;
use mortise_apis::requirements::Requirement;
use mortise_apis::values::money::MicroUsd;
use mortise_apis::values::{SplitMix64, after};
use mortise_cloudprovider::{
    CapacityType, Instance, InstanceType, InterruptionKind, InterruptionNotice, LaunchError,
    LaunchedInstance, Offering, TerminationStatus, UnavailableOffering,
};

use crate::clock::{Action, Clock};

/// An empty capacity pool stays empty this long.
const SHORTAGE_MS: i64 = 3 * 60_000;
/// An instance is reclaimed this long after its notice.
const NOTICE_MS: i64 = 120_000;

/// One machine.
#[derive(Clone, Debug)]
pub struct SimInstance {
    /// Claim it was made for.
    pub claim: String,
    /// UID of that claim: launching the same claim again finds this machine.
    pub claim_uid: String,
    /// Labels of its node.
    pub labels: BTreeMap<String, String>,
    /// Its type.
    pub instance_type: Arc<InstanceType>,
    /// Spot machines can be taken back.
    pub capacity_type: CapacityType,
    /// Price.
    pub price: MicroUsd,
    /// Launch time.
    pub launched: Timestamp,
    /// When it goes, once termination was asked for or the cloud takes it back.
    pub ends: Option<Timestamp>,
}

/// Machines and capacity.
#[derive(Debug, Default)]
pub struct Cloud {
    types: Vec<Arc<InstanceType>>,
    machines: BTreeMap<ProviderId, SimInstance>,
    empty_until: BTreeMap<UnavailableOffering, Timestamp>,
    count: u64,
    shortage_per_mille: u64,
    /// Messages that the service has not acknowledged, by id.
    notices: BTreeMap<Arc<str>, InterruptionNotice>,
}

impl Cloud {
    /// A cloud that sells these types.
    #[must_use]
    pub fn new(types: Vec<InstanceType>, shortage_per_mille: u64) -> Self {
        Self {
            types: types.into_iter().map(Arc::new).collect(),
            shortage_per_mille,
            ..Self::default()
        }
    }

    /// Machines that are there.
    pub fn machines(&self) -> impl Iterator<Item = (&ProviderId, &SimInstance)> {
        self.machines.iter()
    }

    /// A machine.
    #[must_use]
    pub fn machine(&self, id: &ProviderId) -> Option<&SimInstance> {
        self.machines.get(id)
    }

    /// Sum of the prices.
    #[must_use]
    pub fn price(&self) -> MicroUsd {
        self.machines.values().map(|machine| machine.price).sum()
    }

    /// Makes the machine of a claim, or finds the one made before. Second value: it is new.
    pub(crate) fn launch(
        &mut self,
        claim: &NodeClaim,
        now: Timestamp,
        random: &mut SplitMix64,
    ) -> Result<(LaunchedInstance, bool), LaunchError> {
        let uid = claim.metadata.uid.clone().unwrap_or_default();
        if let Some((id, machine)) = self
            .machines
            .iter()
            .find(|(_, machine)| machine.claim_uid == uid)
        {
            return Ok((launched(id, machine), false));
        }
        let wanted = claim.requirements();
        let has = |key: &str, value: &str| {
            wanted
                .get(key)
                .is_none_or(|requirement| requirement.has(value))
        };
        let mut offers: Vec<(i64, &Arc<InstanceType>, &Offering)> = Vec::new();
        for each in self
            .types
            .iter()
            .filter(|each| has(labels::INSTANCE_TYPE, &each.name))
        {
            let suited = each.offerings.iter().filter(|o| {
                o.available
                    && has(labels::TOPOLOGY_ZONE, &o.zone)
                    && has(labels::CAPACITY_TYPE, o.capacity_type.as_str())
            });
            offers.extend(suited.filter_map(|offering| Some((offering.price?.0, each, offering))));
        }
        offers.sort_by(|a, b| (a.0, &a.1.name, &a.2.zone).cmp(&(b.0, &b.1.name, &b.2.zone)));
        let mut empty = Vec::new();
        let mut chosen = None;
        for (_, each, offering) in offers {
            let pool = UnavailableOffering {
                instance_type: Arc::clone(&each.name),
                zone: Arc::clone(&offering.zone),
                capacity_type: offering.capacity_type,
            };
            let known_empty = self
                .empty_until
                .get(&pool)
                .is_some_and(|until| *until > now);
            if known_empty
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
            chosen = Some((Arc::clone(each), offering.clone()));
            break;
        }
        let Some((instance_type, offering)) = chosen else {
            return Err(LaunchError::InsufficientCapacity {
                message: format!("{} capacity pools are empty", empty.len()),
                unavailable: empty,
            });
        };
        self.count += 1;
        let id = ProviderId::from(format!("sim:///{}/i-{:08x}", offering.zone, self.count));
        let machine = SimInstance {
            claim: claim.name().to_string(),
            claim_uid: uid,
            labels: node_labels(claim, &instance_type, &offering),
            capacity_type: offering.capacity_type,
            price: offering.price.unwrap_or_default(),
            instance_type,
            launched: now,
            ends: None,
        };
        let answer = launched(&id, &machine);
        self.machines.insert(id, machine);
        Ok((answer, true))
    }

    /// Ends an instance soon, if it is there and does not end already.
    pub(crate) fn terminate(&mut self, id: &ProviderId, clock: &mut Clock) -> TerminationStatus {
        let Some(machine) = self.machines.get_mut(id) else {
            return TerminationStatus::Gone;
        };
        if machine.ends.is_none() {
            let ms = clock.random.between(5_000, 20_000);
            let at = after(clock.now(), ms);
            machine.ends = Some(at);
            clock.at(at, Action::InstanceGone(id.clone()));
        }
        TerminationStatus::Started
    }

    /// Announces that a spot instance is reclaimed, and plans that. The message stays until it is acknowledged. `None`: there
    /// is no spot instance.
    pub(crate) fn interrupt(&mut self, clock: &mut Clock) -> Option<InterruptionNotice> {
        let spot: Vec<&ProviderId> = self
            .machines
            .iter()
            .filter(|(_, machine)| {
                machine.capacity_type == CapacityType::Spot && machine.ends.is_none()
            })
            .map(|(id, _)| id)
            .collect();
        let pick = usize::try_from(clock.random.below(spot.len() as u64)).unwrap_or(0);
        let id = (*spot.get(pick)?).clone();
        let now = clock.now();
        let instance = id.rsplit('/').next().unwrap_or_default();
        let notice = InterruptionNotice {
            id: format!("notice-{}-{instance}", now.as_millisecond()).into(),
            kind: InterruptionKind::SpotInterruption,
            instances: vec![instance.into()],
            sent: Some(now),
        };
        clock.at(after(now, NOTICE_MS), Action::InstanceGone(id));
        self.notices.insert(Arc::clone(&notice.id), notice.clone());
        Some(notice)
    }

    /// Messages that the service has not acknowledged.
    pub(crate) fn notices(&self) -> impl Iterator<Item = &InterruptionNotice> {
        self.notices.values()
    }

    /// The service has dealt with a message.
    pub(crate) fn acknowledge(&mut self, notice: &str) {
        self.notices.remove(notice);
    }

    /// Takes a machine away.
    pub(crate) fn remove(&mut self, id: &ProviderId) -> Option<SimInstance> {
        self.machines.remove(id)
    }

    /// The machines as a provider lists them.
    pub(crate) fn instances(&self) -> Vec<Instance> {
        self.machines.iter().map(instance).collect()
    }

    /// One machine, asked for by its id.
    pub(crate) fn instance(&self, id: &ProviderId) -> Option<Instance> {
        self.machines.get_key_value(id).map(instance)
    }

    /// What is sold now.
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

fn instance((id, machine): (&ProviderId, &SimInstance)) -> Instance {
    Instance {
        provider_id: id.clone(),
        claim: Some(machine.claim.clone()),
        created: Some(machine.launched),
        terminating: machine.ends.is_some(),
    }
}

fn launched(id: &ProviderId, machine: &SimInstance) -> LaunchedInstance {
    LaunchedInstance {
        provider_id: id.clone(),
        image_id: Some("image-1".to_owned()),
        labels: machine.labels.clone(),
        annotations: BTreeMap::new(),
        capacity: machine.instance_type.capacity.to_api(),
        allocatable: machine.instance_type.allocatable().to_api(),
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
