//! The cloud of a scenario.

use std::collections::BTreeMap;

use mortise_apis::labels::WellKnown;
use mortise_apis::names::NodeClassKey;
use mortise_cloudprovider::InstanceType;

/// What a scenario's nodes are launched from.
#[derive(Clone, Debug)]
pub struct SimulatedCloud {
    /// Instance types, sorted by name.
    pub instance_types: Vec<InstanceType>,
    /// Label keys.
    pub well_known: WellKnown,
    /// Those of each node class; one that is missing here has all.
    pub node_classes: BTreeMap<NodeClassKey, Vec<InstanceType>>,
}

impl From<(Vec<InstanceType>, WellKnown)> for SimulatedCloud {
    fn from((instance_types, well_known): (Vec<InstanceType>, WellKnown)) -> Self {
        Self {
            instance_types,
            well_known,
            node_classes: BTreeMap::new(),
        }
    }
}
