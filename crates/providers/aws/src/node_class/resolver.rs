//! What a node class stands for: the subnets, groups and images that its terms select, its conditions, and the instance types that it
//! can launch. Gathers what AWS says, assembles it, and remembers it for launches.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use mortise_apis::node_class::NodeClassObject;
use mortise_aws_class::spec::Ec2NodeClass;
use mortise_cloudprovider::{CloudError, InstanceType, ResolveRequest, ResolvedNodeClass, Retry};
use serde_json::Value;

use crate::config::AwsConfig;
use crate::node_class::assembly;
use crate::node_class::cache::{CachedNodeClass, NodeClassCache};
use crate::node_class::lookup::ClassLookup;
use crate::offerings::availability::{Availability, Moment};
use crate::offerings::region_offerings::RegionOfferings;
use crate::offerings::unavailable_offerings::UnavailableOfferings;
use crate::sdk::AwsClients;
use crate::sdk::cluster_info::ClusterInfoCache;
use crate::tags;

/// How soon a class is resolved again while the first spot prices are on their way: a few pages of a list.
const PRICES_MS: i64 = 5_000;

/// How soon zonal shifts are to be seen in a class's types.
const SHIFTS_MS: i64 = 30_000;
/// How soon the counts of a class's capacity reservations are read again.
/// # Source
/// The reference implementation's number.
const RESERVATIONS_MS: i64 = 60_000;

/// Resolves node classes.
#[derive(Debug)]
pub(crate) struct NodeClassResolver {
    config: Arc<AwsConfig>,
    lookup: ClassLookup,
    offerings: Arc<RegionOfferings>,
    unavailable: Arc<UnavailableOfferings>,
    moment: Moment,
    cache: NodeClassCache,
}

/// Reads the object of a class.
/// # Errors
/// It is not an `EC2NodeClass`; the text names the field.
pub(crate) fn parse(object: &NodeClassObject) -> Result<Ec2NodeClass, CloudError> {
    let read = serde_json::from_value::<Ec2NodeClass>((*object.object).clone());
    read.map_err(|error| CloudError {
        label: "invalid_class",
        message: format!("{} cannot be read: {error}", object.key),
        retry: Retry::Never,
    })
}

impl NodeClassResolver {
    /// Calls nothing yet.
    pub(crate) fn new(
        clients: Arc<AwsClients>,
        config: Arc<AwsConfig>,
        cluster: Arc<ClusterInfoCache>,
        offerings: Arc<RegionOfferings>,
        unavailable: Arc<UnavailableOfferings>,
        moment: Moment,
    ) -> Self {
        Self {
            config,
            lookup: ClassLookup::new(clients, cluster, Arc::clone(&offerings)),
            offerings,
            unavailable,
            moment,
            cache: NodeClassCache::default(),
        }
    }

    /// Looks everything up again.
    pub(crate) async fn resolve(
        &self,
        object: Ec2NodeClass,
        request: &ResolveRequest,
    ) -> Result<ResolvedNodeClass, CloudError> {
        // Asked before, so that prices that come meanwhile are not missed.
        let waits = self.offerings.awaits_spot_prices();
        let (class, status) = self.find(object).await?;
        let images = |instance_type: &str| class.image(instance_type).map(|image| &*image.id);
        self.moment
            .memory
            .learn(&request.claims, &request.nodes, images);
        Ok(ResolvedNodeClass {
            status,
            annotations: class.hash_annotations(),
            finalizer: Some(tags::CLASS_FINALIZER),
            instance_types: self.offered(&class),
            again_ms: self.again_ms(&class, waits),
        })
    }

    /// When to resolve again, if something is known to change sooner than a class does: the first prices, zonal shifts, and what is
    /// left in reservations.
    fn again_ms(&self, class: &CachedNodeClass, awaits_prices: bool) -> Option<i64> {
        let prices = awaits_prices.then_some(PRICES_MS);
        let shifts = self.config.zonal_shift.then_some(SHIFTS_MS);
        let reservations = (!class.reservations.is_empty()).then_some(RESERVATIONS_MS);
        [prices, shifts, reservations].into_iter().flatten().min()
    }

    /// Forgets a class that is being deleted. Returns the answer for it: nothing is launched with it any more.
    pub(crate) fn release(&self, name: &str) -> ResolvedNodeClass {
        self.cache.remove(name);
        ResolvedNodeClass {
            status: None,
            annotations: BTreeMap::new(),
            finalizer: Some(tags::CLASS_FINALIZER),
            instance_types: Vec::new(),
            again_ms: None,
        }
    }

    /// The class as it was found a moment ago, or found now.
    pub(crate) async fn get(
        &self,
        object: &NodeClassObject,
    ) -> Result<Arc<CachedNodeClass>, CloudError> {
        let object = parse(object)?;
        match self.cache.get(&object) {
            Some(class) => Ok(class),
            None => Ok(self.find(object).await?.0),
        }
    }

    async fn find(
        &self,
        object: Ec2NodeClass,
    ) -> Result<(Arc<CachedNodeClass>, Option<Value>), CloudError> {
        let now = Timestamp::now();
        let found = self.lookup.find(&object.spec, now).await?;
        let (class, patch) =
            assembly::assemble(object, found, &self.offerings, self.config.shape, now);
        let class = Arc::new(class);
        self.cache.insert(Arc::clone(&class));
        Ok((class, patch))
    }

    /// What of the class can be bought now.
    pub(crate) fn availability(&self, class: &CachedNodeClass) -> Availability {
        self.moment
            .availability(class.unavailable(&self.unavailable))
    }

    /// The class's types as they are now.
    pub(crate) fn offered(&self, class: &CachedNodeClass) -> Vec<InstanceType> {
        let image = |each: &InstanceType| class.image(&each.name).map(|image| &*image.id);
        let availability = self.availability(class);
        self.moment.applied_to(&class.types, &availability, image)
    }
}
