//! What the NodePoolPolicy of a NodePool still allows within a pass.
//!
//! NodePools share the limits of their policy, so each NodeClaim of the pass is charged to all of them.

use std::sync::Arc;

use super::pool_template::PoolTemplate;
use mortise_apis::karpenter::nodepool::NodePool;
use mortise_apis::values::money::MicroUsd;
use mortise_state::catalog::{Bits, HighestPrices, UNKNOWN_PRICE};
use mortise_state::snapshot::{PolicyExceeded, PolicyUse, Snapshot};

/// A policy as one NodePool sees it.
#[derive(Clone, Debug)]
pub(super) struct PolicyRoom {
    /// Its limits, and what is used of them, NodeClaims of the pass included.
    policy: PolicyUse,
    /// What each instance type of the catalog can cost at most; only with a limit on the price.
    highest_prices: Option<HighestPrices>,
    /// The most that an instance type of the NodePool costs.
    most: MicroUsd,
}

impl PolicyRoom {
    /// The policy in force for a NodePool, if it limits launches.
    pub(super) fn new(pool: &NodePool, types: &Bits, snapshot: &Snapshot) -> Option<Self> {
        let name = pool.name();
        let policy = snapshot.policy_of(&name)?;
        let policy = Some(policy).filter(|policy| policy.limits_launches())?;
        let mut this = Self {
            highest_prices: policy.highest_prices(&name).cloned(),
            policy: PolicyUse::clone(policy),
            most: MicroUsd(0),
        };
        this.most = this.price(types);
        Some(this)
    }

    /// The most that a NodeClaim of these instance types can cost; nothing without a limit on the price.
    pub(super) fn price(&self, types: &Bits) -> MicroUsd {
        self.prices(types).max().unwrap_or_default()
    }

    fn prices<'a>(&'a self, types: &'a Bits) -> impl Iterator<Item = MicroUsd> + 'a {
        let known = self.highest_prices.iter();
        known.flat_map(|prices| {
            let types = types.iter();
            types.map(|at| prices.of(at).unwrap_or(UNKNOWN_PRICE))
        })
    }

    /// Why no NodeClaim at all is allowed: the number of nodes, or of new ones, or an unknown price.
    pub(super) fn closed(&self) -> Option<PolicyExceeded> {
        let why = self.policy.admits(MicroUsd(0)).err()?;
        match why {
            PolicyExceeded::Price { .. } => None,
            PolicyExceeded::Nodes { .. }
            | PolicyExceeded::Rate { .. }
            | PolicyExceeded::UnknownPrice { .. } => Some(why),
        }
    }

    /// Whether the price leaves every instance type of the NodePool.
    pub(super) fn allows_all(&self) -> bool {
        self.policy.price.is_none() || self.policy.admits(self.most).is_ok()
    }

    /// Removes the instance types that may cost more than is left.
    pub(super) fn narrow(&self, types: &mut Bits) {
        let (Some(price), Some(highest_prices)) = (&self.policy.price, &self.highest_prices) else {
            return;
        };
        let limit = price.limit().most();
        let beyond = |at: &usize| {
            highest_prices
                .of(*at)
                .is_none_or(|own| own == UNKNOWN_PRICE || price.used + own > limit)
        };
        let beyond: Vec<usize> = types.iter().filter(beyond).collect();
        beyond.into_iter().for_each(|at| types.remove(at));
    }

    /// Why the price excludes all of these instance types; empty when it does not.
    pub(super) fn excluding(&self, types: &Bits) -> String {
        let least = self.prices(types).min();
        let why = least.and_then(|least| self.policy.admits(least).err());
        match why {
            Some(PolicyExceeded::Price {
                policy,
                limit,
                used,
                more,
            }) => format!(
                "{}, {used} are in use, the cheapest type that would do may cost {more}",
                limit.of_policy(&policy)
            ),
            Some(why) => why.to_string(),
            None => String::new(),
        }
    }

    /// Whether these NodeClaims are allowed in place of others of the pass: the change of their price, and of their number.
    pub(super) fn admits_change(&self, price: i64, nodes: i64) -> bool {
        let is_within =
            |used: i64, more: i64, limit: i64| more <= 0 || used.saturating_add(more) <= limit;
        let of_price = self.policy.price.as_ref();
        let of_nodes = self.policy.nodes.as_ref();
        let of_rate = self.policy.rate.as_ref();
        of_nodes.is_none_or(|own| is_within(own.used, nodes, own.limit))
            && of_price.is_none_or(|own| is_within(own.used.0, price, own.limit().most().0))
            && of_rate.is_none_or(|own| is_within(own.recent, nodes, own.limit.nodes))
    }

    fn name(&self) -> &str {
        &self.policy.name
    }
}

/// Charges a new NodeClaim of one NodePool to all that share its policy.
pub(super) fn charge(templates: &mut [PoolTemplate], at: usize, price: MicroUsd) {
    let policy = templates.get(at).and_then(|of| of.policy.as_ref());
    let Some(name) = policy.map(|policy| policy.name().to_owned()) else {
        return;
    };
    let sharing = templates.iter_mut().filter_map(|of| of.policy.as_mut());
    for each in sharing.filter(|each| each.name() == name) {
        each.policy.count(price);
    }
}

/// The changes of price and number of NodeClaims by policy, for NodeClaims that take the place of others.
#[derive(Debug, Default)]
pub(super) struct PolicyChanges(std::collections::BTreeMap<Arc<str>, (i64, i64)>);

impl PolicyChanges {
    /// Adds a NodeClaim of the NodePool (`1`), or takes one away (`-1`).
    pub(super) fn add(&mut self, template: &PoolTemplate, price: MicroUsd, sign: i64) {
        if let Some(room) = &template.policy {
            let change = self.0.entry(Arc::clone(&room.policy.name)).or_default();
            change.0 = change.0.saturating_add(price.0.saturating_mul(sign));
            change.1 += sign;
        }
    }

    /// Whether the policies of all NodePools allow it.
    pub(super) fn are_allowed(&self, templates: &[PoolTemplate]) -> bool {
        let mut rooms = templates.iter().filter_map(|of| of.policy.as_ref());
        rooms.all(|room| {
            let change = self.0.get(room.name());
            change.is_none_or(|(price, nodes)| room.admits_change(*price, *nodes))
        })
    }
}
