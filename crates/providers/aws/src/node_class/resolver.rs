//! What a node class stands for: the subnets, groups and images that its terms select, its conditions, and the instance types that it
//! can launch. Gathers what AWS says, assembles it, and remembers it for launches.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use mortise_apis::node_class::NodeClassObject;
use mortise_aws_class::spec::Ec2NodeClass;
use mortise_cloudprovider::{CloudError, InstanceType, ResolvedNodeClass, Retry};
use serde_json::Value;

use crate::config::AwsConfig;
use crate::node_class::assembly;
use crate::node_class::cache::{CachedNodeClass, NodeClassCache};
use crate::node_class::lookup::ClassLookup;
use crate::offerings::region_offerings::RegionOfferings;
use crate::offerings::unavailable_offerings::UnavailableOfferings;
use crate::sdk::AwsClients;
use crate::sdk::cluster_info::ClusterInfoCache;
use crate::tags;

/// How soon a class is resolved again while the first prices are on their way: a few pages of a list.
const PRICES_MS: i64 = 5_000;

/// Resolves node classes.
#[derive(Debug)]
pub(crate) struct NodeClassResolver {
    config: Arc<AwsConfig>,
    lookup: ClassLookup,
    offerings: Arc<RegionOfferings>,
    unavailable: Arc<UnavailableOfferings>,
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
    ) -> Self {
        Self {
            config,
            lookup: ClassLookup::new(clients, cluster, Arc::clone(&offerings)),
            offerings,
            unavailable,
            cache: NodeClassCache::default(),
        }
    }

    /// Looks everything up again.
    pub(crate) async fn resolve(
        &self,
        object: Ec2NodeClass,
    ) -> Result<ResolvedNodeClass, CloudError> {
        // Asked before, so that prices that come meanwhile are not missed.
        let waits = self.offerings.awaits_prices();
        let (class, status) = self.find(object).await?;
        Ok(ResolvedNodeClass {
            status,
            annotations: class.hash_annotations(),
            finalizer: Some(tags::CLASS_FINALIZER),
            instance_types: self.offered(&class),
            again_ms: waits.then_some(PRICES_MS),
        })
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

    /// The class's types, with the offerings switched off that were unavailable a moment ago.
    fn offered(&self, class: &CachedNodeClass) -> Vec<InstanceType> {
        let unavailable = class.unavailable(&self.unavailable);
        let mut types = class.types.clone();
        for each in &mut types {
            let allowed: Vec<bool> = each
                .offerings
                .iter()
                .map(|offering| unavailable.allow(each, offering))
                .collect();
            each.offerings
                .iter_mut()
                .zip(allowed)
                .for_each(|(offering, allowed)| offering.available = allowed);
        }
        types
    }
}
