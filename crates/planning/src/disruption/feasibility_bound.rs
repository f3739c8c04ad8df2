//! A bound that rejects hopeless simulations without running the solver.
//!
//! In a well-packed cluster nearly every simulation fails for the same reason: the pods exceed the free capacity of every
//! node, and a new node for them costs as much as the old ones. A few numbers per cluster show both.

use std::collections::BTreeMap;

use super::candidate::Candidate;
use super::rejection::DisruptionRejection;
use crate::reason::{DisruptionBlocker, Reason};
use mortise_apis::resources::Resources;
use mortise_apis::values::money::MicroUsd;
use mortise_state::snapshot::{NodeKey, Snapshot};

/// Upper bounds of the capacity that pods can find.
pub struct FeasibilityBound {
    /// Per resource, the largest amount that is free on any node that accepts pods.
    most_free: Resources,
    /// Available instance types: lowest price and allocatable resources, cheapest first.
    types: Vec<(MicroUsd, Resources)>,
}

impl FeasibilityBound {
    /// Computes the bounds from every node and every instance type. `closed` nodes accept no pods.
    pub fn new(snapshot: &Snapshot, closed: impl Fn(&NodeKey) -> bool) -> Self {
        let mut most_free = Resources::zero();
        // Uninitialized nodes accept no relocated pods.
        let open = |key: &NodeKey| !closed(key);
        for node in snapshot.nodes.values().filter(|node| node.initialized) {
            if !node.deleting && open(&node.key) {
                most_free = most_free.max(&node.free());
            }
        }
        let mut catalogs: BTreeMap<u64, _> = BTreeMap::new();
        for pool in snapshot.pools.values().filter(|pool| !pool.is_static()) {
            if let Some(catalog) = snapshot.catalog_of(pool) {
                catalogs.insert(catalog.version(), catalog);
            }
        }
        let mut types: Vec<(MicroUsd, Resources)> = Vec::new();
        for each in catalogs.values().flat_map(|catalog| catalog.types()) {
            let prices = each.offerings.iter().filter(|offering| offering.available);
            if let Some(least) = prices.filter_map(|offering| offering.price).min() {
                types.push((least, each.allocatable()));
            }
        }
        types.sort_by_key(|(price, _)| *price);
        Self { most_free, types }
    }

    /// Why removing these nodes cannot save anything; `Ok` when only the solver knows.
    ///
    /// Sound: pods that exceed the free capacity of every node need a new node. One node for all of them is at least as
    /// expensive as the cheapest instance type that holds their sum; several new nodes are rejected anyway.
    pub fn check(&self, candidates: &[&Candidate]) -> Result<(), DisruptionRejection> {
        let old: Option<MicroUsd> = candidates.iter().map(|each| each.price()).sum();
        let Some(old) = old else { return Ok(()) };
        let mut unplaced = Resources::zero();
        for pod in candidates.iter().flat_map(|each| each.pods.iter()) {
            if !pod.class.requests.fits_in(&self.most_free) {
                unplaced.add_assign(&pod.class.requests);
            }
        }
        if unplaced.is_zero() {
            return Ok(());
        }
        let least = self
            .types
            .iter()
            .find(|(_, capacity)| unplaced.fits_in(capacity));
        let reason = match least {
            Some((new, _)) if *new < old => return Ok(()),
            Some((new, _)) => Reason::NotCheaper { old, new: *new },
            None => DisruptionBlocker::NoSingleInstanceType.into(),
        };
        Err(DisruptionRejection::from_reason(reason))
    }
}
