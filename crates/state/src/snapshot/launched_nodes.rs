//! What the launched nodes of each NodePool have together.
//!
//! # Problem
//! Limits of a policy hold over all NodeClaims of its NodePools, and each pass asks what is used of them. The nodes that changed are
//! counted, not all of them.
//!
//! # Invariant
//! Each NodeClaim counts in the sums or is [unknown](LaunchedNodes::unknown), never both: until it is launched, what it costs and where
//! it goes depends on its node class and on what may be launched now.
//!
//! # Cost
//! A few look-ups of labels for each node that changed. A copy shares the times of creation of all hours but the present one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use super::{NodeCpu, StateNode};
use mortise_apis::labels;
use mortise_apis::names::{ClaimName, PoolName};
use mortise_apis::values::money::MicroUsd;

/// Sums over the nodes of a NodePool that are launched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LaunchedNodes {
    /// Their number, also of those that are being deleted.
    pub count: i64,
    /// Millionths of a dollar per hour; exact, also beyond what a price can be.
    price: i128,
    zones: BTreeMap<Arc<str>, ZoneCpus>,
    created: CreationTimes,
    unknown: BTreeSet<ClaimName>,
}

/// CPUs in a zone, in thousandths, without those of nodes that are being deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ZoneCpus {
    /// Those that are on-demand.
    pub on_demand: i64,
    /// All of them.
    pub all: i64,
}

/// What nodes of all NodePools have, without those that have no NodeClaim.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LaunchedByPool(Arc<BTreeMap<PoolName, Arc<LaunchedNodes>>>);

/// How many were created when, by the hour.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct CreationTimes(BTreeMap<i64, Arc<BTreeMap<Timestamp, i64>>>);

/// What one node adds to its NodePool.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Summand<'a> {
    Known {
        price: MicroUsd,
        created: Timestamp,
        cpus: Option<(&'a str, NodeCpu)>,
    },
    Unknown(&'a str),
}

impl LaunchedNodes {
    /// What they cost together per hour.
    #[must_use]
    pub fn price(&self) -> MicroUsd {
        MicroUsd(i64::try_from(self.price).unwrap_or(i64::MAX))
    }

    /// What is in each zone.
    pub fn zones(&self) -> impl Iterator<Item = (&str, ZoneCpus)> {
        self.zones.iter().map(|(zone, cpus)| (&**zone, *cpus))
    }

    /// When nodes were created after a time, and how many, the first ones first.
    pub fn created_after(&self, start: Timestamp) -> impl Iterator<Item = (Timestamp, i64)> {
        let hours = self.created.0.range(hour_of(start)..);
        let times = hours.flat_map(|(_, times)| &**times);
        let times = times.filter(move |(time, _)| **time > start);
        times.map(|(time, count)| (*time, *count))
    }

    /// NodeClaims that are in no sum.
    pub fn unknown(&self) -> impl Iterator<Item = &ClaimName> {
        self.unknown.iter()
    }

    fn is_empty(&self) -> bool {
        self.count == 0 && self.unknown.is_empty()
    }

    fn count(&mut self, node: Summand<'_>, sign: i64) {
        match node {
            Summand::Unknown(claim) if sign > 0 => drop(self.unknown.insert(claim.into())),
            Summand::Unknown(claim) => drop(self.unknown.remove(claim)),
            Summand::Known {
                price,
                created,
                cpus,
            } => {
                self.count += sign;
                self.price += i128::from(price.0) * i128::from(sign);
                self.created.count(created, sign);
                if let Some((zone, cpus)) = cpus {
                    self.count_cpus(zone, cpus, sign);
                }
            }
        }
    }

    fn count_cpus(&mut self, zone: &str, cpus: NodeCpu, sign: i64) {
        let of_zone = match self.zones.get_mut(zone) {
            Some(known) => known,
            None => self.zones.entry(zone.into()).or_default(),
        };
        of_zone.all += cpus.cpu * sign;
        if cpus.is_on_demand {
            of_zone.on_demand += cpus.cpu * sign;
        }
        if *of_zone == ZoneCpus::default() {
            self.zones.remove(zone);
        }
    }
}

impl LaunchedByPool {
    /// Sums over these nodes.
    #[must_use]
    pub fn of<'a>(nodes: impl Iterator<Item = &'a Arc<StateNode>>) -> Self {
        let mut all = Self::default();
        nodes.for_each(|node| all.update(None, Some(node)));
        all
    }

    /// What the nodes of a NodePool have.
    #[must_use]
    pub fn get(&self, pool: &str) -> Option<&LaunchedNodes> {
        self.0.get(pool).map(|of_pool| &**of_pool)
    }

    /// One node changed.
    pub(super) fn update(&mut self, old: Option<&StateNode>, new: Option<&StateNode>) {
        let (was, is) = (old.and_then(summand), new.and_then(summand));
        if was == is {
            return;
        }
        for (of, sign) in [(was, -1), (is, 1)] {
            if let Some((pool, node)) = of {
                self.count(pool, node, sign);
            }
        }
    }

    fn count(&mut self, pool: &str, node: Summand<'_>, sign: i64) {
        let all = Arc::make_mut(&mut self.0);
        let of_pool = match all.get_mut(pool) {
            Some(known) => known,
            None => all.entry(pool.into()).or_default(),
        };
        let of_pool = Arc::make_mut(of_pool);
        of_pool.count(node, sign);
        if of_pool.is_empty() {
            all.remove(pool);
        }
    }
}

impl CreationTimes {
    fn count(&mut self, created: Timestamp, sign: i64) {
        let hour = hour_of(created);
        let times = Arc::make_mut(self.0.entry(hour).or_default());
        let count = times.entry(created).or_default();
        *count += sign;
        if *count == 0 {
            times.remove(&created);
        }
        if times.is_empty() {
            self.0.remove(&hour);
        }
    }
}

fn hour_of(time: Timestamp) -> i64 {
    time.as_second().div_euclid(3_600)
}

/// What a node adds, and to which NodePool; `None` without a NodeClaim of one.
fn summand(node: &StateNode) -> Option<(&str, Summand<'_>)> {
    let claim = node.claim.as_ref()?;
    let claim_labels = claim.metadata.labels.as_ref()?;
    let pool = claim_labels.get(labels::NODEPOOL)?;
    let created = claim.metadata.creation_timestamp.as_ref();
    let cpus = match (NodeCpu::of_node(node), node.zone()) {
        _ if node.deleting => Some(None),
        (Some(cpus), Some(zone)) => Some(Some((zone, cpus))),
        _ => None,
    };
    let known = match (node.price, created, cpus) {
        (Some(price), Some(created), Some(cpus)) => Summand::Known {
            price,
            created: created.0,
            cpus,
        },
        _ => Summand::Unknown(claim.metadata.name.as_deref()?),
    };
    Some((pool, known))
}
