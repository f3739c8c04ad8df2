//! Accounts, and how the price of a node is divided among them.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::snapshot::{Pod, Snapshot, StateNode};
use mortise_apis::names::PoolName;
use mortise_apis::resources::Resources;
use mortise_apis::values::money::MicroUsd;

/// Who is charged.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CostAccount {
    /// The nodes of a NodePool.
    NodePool(PoolName),
    /// The pods of a namespace.
    Namespace(Arc<str>),
    /// The pods with this value of the label; `None` for those without it.
    Label(Option<Arc<str>>),
    /// What no pod requests.
    Unrequested,
}

impl CostAccount {
    /// What kind it is.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::NodePool(_) => "nodepool",
            Self::Namespace(_) => "namespace",
            Self::Label(_) => "label",
            Self::Unrequested => "unrequested",
        }
    }

    /// Its name; empty where there is none.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::NodePool(name) => name.as_str(),
            Self::Namespace(name) | Self::Label(Some(name)) => name,
            Self::Label(None) | Self::Unrequested => "",
        }
    }
}

/// Dollars per hour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rate {
    /// What is paid.
    pub price: MicroUsd,
    /// What the same instance types cost on-demand.
    pub on_demand: MicroUsd,
}

impl Rate {
    /// This share of it, rounded down.
    fn part(self, share: i128, of: i128) -> Self {
        let part = |price: MicroUsd| {
            let part = i128::from(price.0) * share / of;
            MicroUsd(i64::try_from(part).unwrap_or(i64::MAX))
        };
        Self {
            price: part(self.price),
            on_demand: part(self.on_demand),
        }
    }
}

impl std::ops::AddAssign for Rate {
    fn add_assign(&mut self, other: Self) {
        self.price += other.price;
        self.on_demand += other.on_demand;
    }
}

impl std::ops::Sub for Rate {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self {
            price: self.price - other.price,
            on_demand: self.on_demand - other.on_demand,
        }
    }
}

/// A whole node in parts. A node of 1,000 pods has parts of a thousandth.
const WHOLE: i128 = 1_000_000_000;

/// The largest share that a pod requests of any resource of its node, in billionths. What a node does not have has no share.
fn largest_share(pod: &Resources, node: &Resources) -> i128 {
    let extended = pod.extended.iter();
    let extended = extended.map(|(name, amount)| (*amount, node.extended(name)));
    let all = [(pod.cpu, node.cpu), (pod.memory, node.memory)];
    let shares = all.into_iter().chain(extended).filter(|(_, all)| *all > 0);
    shares
        .map(|(own, all)| i128::from(own.max(0)) * WHOLE / i128::from(all))
        .max()
        .unwrap_or_default()
}

/// What a node costs; `None` without a NodePool or a known price.
pub(super) fn rate_of(node: &StateNode, snapshot: &Snapshot) -> Option<(PoolName, Rate)> {
    let (pool, price) = (node.pool()?, node.price?);
    let on_demand = on_demand_price(node, &pool, snapshot).unwrap_or(price);
    Some((pool, Rate { price, on_demand }))
}

/// Price of the on-demand offering of the node's instance type in its zone.
fn on_demand_price(node: &StateNode, pool: &PoolName, snapshot: &Snapshot) -> Option<MicroUsd> {
    let catalog = snapshot.catalog_of(snapshot.pools.get(pool)?)?;
    let zone = node.label(mortise_apis::labels::TOPOLOGY_ZONE)?;
    catalog.get(node.instance_type()?)?.on_demand_price(zone)
}

/// The parts of a node's price by account: those of namespaces and of what is not requested come to the whole, and so do
/// those of the label's values and of what is not requested.
pub(super) fn divide(
    node: &StateNode,
    (pool, rate): (PoolName, Rate),
    label: Option<&Arc<str>>,
) -> Vec<(CostAccount, Rate)> {
    let share = |pod: &Pod| largest_share(&pod.class.requests, &node.allocatable);
    let all: i128 = node.pods.iter().map(|pod| share(pod)).sum();
    let whole = all.max(WHOLE);
    let mut parts: BTreeMap<CostAccount, Rate> = BTreeMap::new();
    let mut left = rate;
    for pod in &node.pods {
        let part = rate.part(share(pod), whole);
        left = left - part;
        let namespace = CostAccount::Namespace(Arc::clone(&pod.class.namespace));
        *parts.entry(namespace).or_default() += part;
        if let Some(key) = label {
            let own = pod.labels.iter().find(|(name, _)| name == key);
            let value = own.map(|(_, value)| Arc::clone(value));
            *parts.entry(CostAccount::Label(value)).or_default() += part;
        }
    }
    parts.insert(CostAccount::Unrequested, left);
    parts.insert(CostAccount::NodePool(pool), rate);
    parts.into_iter().collect()
}
