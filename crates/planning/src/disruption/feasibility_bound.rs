//! A quick "no" to what-ifs that cannot work, without asking the solver.
//!
//! In a well-packed cluster nearly every what-if fails for the same reason: its pods are larger than any gap, and a new
//! machine for them costs as much as the old ones. Both are seen from a few numbers per cluster.

use std::collections::BTreeMap;

use super::candidate::Candidate;
use super::simulation::DisruptionRejection;
use crate::reason::Reason;
use mortise_apis::resources::Resources;
use mortise_apis::values::money::MicroUsd;
use mortise_state::snapshot::{NodeKey, Snapshot};

/// What pods could at best find.
pub struct FeasibilityBound {
    /// Of each resource the most that is free on any one machine that takes pods.
    most_free: Resources,
    /// Types that can be bought: least price and what pods can use, cheapest first.
    types: Vec<(MicroUsd, Resources)>,
}

impl FeasibilityBound {
    /// Looks at every machine and every type once. `closed` machines take no pods.
    pub fn of(snapshot: &Snapshot, closed: impl Fn(&NodeKey) -> bool) -> Self {
        let mut most_free = Resources::zero();
        // Machines that are not initialized take no moved pods.
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

    /// Why removing these machines cannot save anything; `Ok` when only the solver knows.
    ///
    /// Sound: pods larger than every gap need a new machine. One machine for all of them is at least as dear as the cheapest
    /// type that holds their sum; several are refused anyway.
    pub fn check(&self, candidates: &[&Candidate]) -> Result<(), DisruptionRejection> {
        let old: Option<MicroUsd> = candidates.iter().map(|each| each.price()).sum();
        let Some(old) = old else { return Ok(()) };
        let mut homeless = Resources::zero();
        for pod in candidates.iter().flat_map(|each| &each.pods) {
            if !pod.class.requests.fits_in(&self.most_free) {
                homeless.add_assign(&pod.class.requests);
            }
        }
        if homeless.is_zero() {
            return Ok(());
        }
        let least = self.types.iter().find(|(_, room)| homeless.fits_in(room));
        let reason = match least {
            Some((new, _)) if *new < old => return Ok(()),
            Some((new, _)) => Reason::NotCheaper { old, new: *new },
            None => Reason::Note {
                text: "its pods fit on no other node, and on no single instance type".to_owned(),
            },
        };
        Err(DisruptionRejection::new(
            "Can't replace with a cheaper node",
            vec![reason],
        ))
    }
}
