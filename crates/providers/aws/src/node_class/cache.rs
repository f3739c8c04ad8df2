//! Classes that were looked up a moment ago.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mortise_apis::schema::conditions::{ConditionStatus, READY, find, status_of};
use mortise_aws_class::hash::HASH_VERSION;
use mortise_aws_class::spec::Ec2NodeClass;
use mortise_aws_class::status::{Ami, CapacityReservation, SecurityGroup};
use mortise_cloudprovider::InstanceType;
use tokio::time::Instant;

use crate::node_class::conditions::VALIDATION;
use crate::node_class::networks::FoundSubnet;
use crate::offerings::unavailable_offerings::{UnavailableOfferings, UnavailableView};
use crate::tags;
use mortise_aws_catalog::launch_zones;
use mortise_aws_catalog::node_settings::NodeSettings;

/// How long a launch may use what was found before; the class is resolved every few minutes anyway.
const FRESH: Duration = Duration::from_secs(10 * 60);

/// How a placement group places its instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlacementStrategy {
    Cluster,
    Partition,
    Spread,
}

/// A placement group as EC2 describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlacementGroup {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) strategy: PlacementStrategy,
    /// Partitions are numbered from 1 to this; 0 unless the strategy is `Partition`.
    pub(crate) partitions: i32,
}

impl PlacementGroup {
    /// What instance types need to know of it.
    pub(crate) fn shape(&self) -> launch_zones::PlacementGroup {
        let (strategy, partitions) = match self.strategy {
            PlacementStrategy::Cluster => ("cluster", 0),
            PlacementStrategy::Partition => ("partition", self.partitions),
            PlacementStrategy::Spread => ("spread", 0),
        };
        launch_zones::PlacementGroup {
            id: Arc::from(&*self.id),
            strategy,
            partition_count: u32::try_from(partitions).unwrap_or(0),
        }
    }
}

/// A class with everything found for it.
#[derive(Clone, Debug)]
pub(crate) struct CachedNodeClass {
    /// The object.
    pub(crate) object: Ec2NodeClass,
    /// What it says about the inside of nodes.
    pub(crate) settings: NodeSettings,
    /// Its subnets, those with the most free addresses first.
    pub(crate) subnets: Vec<FoundSubnet>,
    /// Its security groups.
    pub(crate) groups: Vec<SecurityGroup>,
    /// Its images, newest first.
    pub(crate) amis: Vec<Ami>,
    /// Its capacity reservations, by id, as they were when the class was looked up. Empty while reserved capacity is switched off.
    pub(crate) reservations: Vec<CapacityReservation>,
    /// Its placement group, if it selects one.
    pub(crate) placement_group: Option<PlacementGroup>,
    /// Its instance profile.
    pub(crate) profile: Option<String>,
    /// Types with offerings in its zones, as if every offering were available. Sorted by name.
    pub(crate) types: Vec<InstanceType>,
    /// For each of `types` the position in `amis` of the image that it boots.
    pub(crate) images: Vec<Option<usize>>,
    /// Hash of what drifts nodes; `None` while the cluster's facts are not known.
    pub(crate) hash: Option<String>,
    /// Why nothing can be launched with it; `None` when it is ready.
    pub(crate) not_ready: Option<String>,
    /// When it was looked up.
    pub(crate) found: Instant,
}

impl CachedNodeClass {
    /// Name of the object.
    pub(crate) fn name(&self) -> &str {
        self.object.metadata.name.as_deref().unwrap_or_default()
    }

    /// A type by its name.
    pub(crate) fn instance_type(&self, name: &str) -> Option<&InstanceType> {
        self.types
            .binary_search_by(|each| (*each.name).cmp(name))
            .ok()
            .and_then(|at| self.types.get(at))
    }

    /// The image that a type boots; `None` for one that no image suits.
    pub(crate) fn image(&self, name: &str) -> Option<&Ami> {
        let at = self
            .types
            .binary_search_by(|each| (*each.name).cmp(name))
            .ok()?;
        self.images
            .get(at)
            .copied()
            .flatten()
            .and_then(|image| self.amis.get(image))
    }

    /// Annotations that say which class this is, for the class itself and for the claims launched with it.
    pub(crate) fn hash_annotations(&self) -> BTreeMap<String, String> {
        let Some(hash) = &self.hash else {
            return BTreeMap::new();
        };
        BTreeMap::from([
            (tags::CLASS_HASH.to_owned(), hash.clone()),
            (tags::CLASS_HASH_VERSION.to_owned(), HASH_VERSION.to_owned()),
        ])
    }

    /// It was found a moment ago, for the object as it is: one that was not judged then and says by now that it is ready has been since.
    fn is_current(&self, object: &Ec2NodeClass) -> bool {
        let (own, other) = (&self.object, object);
        let is_same = own.metadata.uid == other.metadata.uid
            && own.metadata.generation == other.metadata.generation
            && own.spec == other.spec;
        is_same && self.found.elapsed() < FRESH && (self.is_judged() || !says_ready(object))
    }

    /// Whether it is valid has been found out.
    fn is_judged(&self) -> bool {
        status_of(&self.object.status.conditions, VALIDATION) != ConditionStatus::Unknown
    }

    /// What of the class is unavailable now; a zone needs a subnet with free addresses.
    pub(crate) fn unavailable(&self, offerings: &UnavailableOfferings) -> UnavailableView {
        let usable = self
            .subnets
            .iter()
            .filter(|each| !offerings.is_subnet_full(&each.subnet.id));
        let zones = usable.map(|each| Arc::from(&*each.subnet.zone)).collect();
        offerings.view(zones, self.placement_group.as_ref().map(|group| &*group.id))
    }
}

/// The status says that the class is ready as it is now.
fn says_ready(object: &Ec2NodeClass) -> bool {
    find(&object.status.conditions, READY).is_some_and(|ready| {
        ready.status == ConditionStatus::True
            && ready.observed_generation == object.metadata.generation
    })
}

/// Classes that were looked up, by name.
#[derive(Debug, Default)]
pub(crate) struct NodeClassCache {
    known: Mutex<HashMap<String, Arc<CachedNodeClass>>>,
}

impl NodeClassCache {
    /// What was found for the object a moment ago, if the object is still the same.
    pub(crate) fn get(&self, object: &Ec2NodeClass) -> Option<Arc<CachedNodeClass>> {
        let known = self.lock();
        let class = known.get(object.metadata.name.as_deref()?)?;
        class.is_current(object).then(|| Arc::clone(class))
    }

    /// What was found before for the same object, however old and whatever its spec said.
    pub(crate) fn previous(&self, object: &Ec2NodeClass) -> Option<Arc<CachedNodeClass>> {
        let known = self.lock();
        let class = known.get(object.metadata.name.as_deref()?)?;
        (class.object.metadata.uid == object.metadata.uid).then(|| Arc::clone(class))
    }

    /// Takes what was found for a use in, unless more has been found meanwhile: a use does not judge whether the class is valid. Returns
    /// what is known from then on.
    pub(crate) fn insert_if_unknown(&self, class: Arc<CachedNodeClass>) -> Arc<CachedNodeClass> {
        let mut known = self.lock();
        match known.get(class.name()) {
            Some(there) if there.is_current(&class.object) => Arc::clone(there),
            _ => {
                known.insert(class.name().to_owned(), Arc::clone(&class));
                class
            }
        }
    }

    /// Takes what was found in.
    pub(crate) fn insert(&self, class: Arc<CachedNodeClass>) {
        self.lock().insert(class.name().to_owned(), class);
    }

    /// Forgets a class.
    pub(crate) fn remove(&self, name: &str) {
        self.lock().remove(name);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<CachedNodeClass>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A class that was found with this word about its readiness.
    fn found(ready: &str) -> Arc<CachedNodeClass> {
        let mut class = crate::launch::tests::class();
        let object = json!({
            "metadata": { "name": "c", "uid": "u", "generation": 2 }, "spec": {},
            "status": { "conditions": [
                { "type": "Ready", "status": ready, "reason": "x", "message": "", "observedGeneration": 2 },
                { "type": VALIDATION, "status": ready, "reason": "x", "message": "", "observedGeneration": 2 },
            ] },
        });
        class.object = serde_json::from_value(object).unwrap();
        Arc::new(class)
    }

    #[tokio::test(start_paused = true)]
    async fn a_use_hides_no_judgement_and_a_judgement_ends_what_a_use_found() {
        let cache = NodeClassCache::default();
        let (used, judged) = (found("Unknown"), found("True"));
        cache.insert(Arc::clone(&judged));
        let known = cache.insert_if_unknown(Arc::clone(&used));
        assert!(
            Arc::ptr_eq(&known, &judged),
            "the use began before, and ended after"
        );
        cache.remove("c");
        cache.insert_if_unknown(Arc::clone(&used));
        assert!(cache.get(&used.object).is_some());
        assert!(cache.get(&judged.object).is_none(), "the object says more");
    }
}
