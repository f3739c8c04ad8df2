//! Node classes that do not have all instance types of the cloud, or have them with other capacities.

use std::collections::BTreeMap;
use std::sync::Arc;

use mortise_apis::names::NodeClassKey;
use mortise_cloudprovider::{InstanceType, Offering};

/// The instance types of node classes by name; a class that is missing here has those of the cloud.
#[derive(Debug, Default)]
pub(crate) struct NodeClassTypes(BTreeMap<NodeClassKey, BTreeMap<Arc<str>, Arc<InstanceType>>>);

impl NodeClassTypes {
    pub(crate) fn new(classes: BTreeMap<NodeClassKey, Vec<InstanceType>>) -> Self {
        let classes = classes.into_iter().map(|(class, types)| {
            let types = types.into_iter();
            let by_name = types.map(|each| (Arc::clone(&each.name), Arc::new(each)));
            (class, by_name.collect())
        });
        Self(classes.collect())
    }

    /// Whether a node class has an offering.
    pub(super) fn has(
        &self,
        class: &NodeClassKey,
        instance_type: &str,
        offering: &Offering,
    ) -> bool {
        self.0.get(class).is_none_or(|types| {
            let own = types.get(instance_type);
            let mut own = own.into_iter().flat_map(|own| &own.offerings);
            own.any(|each| is_same(each, offering))
        })
    }

    /// An instance type of the cloud as a node class has it.
    pub(super) fn own(
        &self,
        class: &NodeClassKey,
        of_cloud: Arc<InstanceType>,
    ) -> Arc<InstanceType> {
        let own = self
            .0
            .get(class)
            .and_then(|types| types.get(&of_cloud.name));
        own.map_or(of_cloud, Arc::clone)
    }

    /// The instance types of a node class, with prices and availability of the cloud.
    pub(super) fn all(&self, class: &NodeClassKey, cloud: Vec<InstanceType>) -> Vec<InstanceType> {
        let Some(types) = self.0.get(class) else {
            return cloud;
        };
        let own = cloud.into_iter().filter_map(|of_cloud| {
            let mut own = InstanceType::clone(types.get(&of_cloud.name)?);
            for offering in &mut own.offerings {
                let mut known = of_cloud.offerings.iter();
                if let Some(known) = known.find(|each| is_same(each, offering)) {
                    offering.price = known.price;
                    offering.available = known.available;
                }
            }
            Some(own)
        });
        own.collect()
    }
}

/// Whether two offerings of one type are in the same zone, with the same capacity type.
fn is_same(one: &Offering, other: &Offering) -> bool {
    one.zone == other.zone && one.capacity_type == other.capacity_type
}
