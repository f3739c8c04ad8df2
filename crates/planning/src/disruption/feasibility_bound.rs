//! Bounds that reject hopeless simulations without running the solver.
//!
//! In a well-packed cluster nearly every simulation fails for the same reason: the pods exceed the free capacity of every
//! node, and a new node for them costs as much as the old ones. A few numbers per cluster show both.

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, HashMap};

use foldhash::fast::FixedState;

use super::candidate::Candidate;
use super::disruption_view::DisruptionView;
use super::rejection::DisruptionRejection;
use crate::reason::{DisruptionBlocker, Reason};
use mortise_apis::requirements::Requirements;
use mortise_apis::resources::Resources;
use mortise_apis::values::money::MicroUsd;
use mortise_state::snapshot::{NodeKey, Snapshot};

/// Upper bounds of the capacity that pods can find.
pub struct FeasibilityBound {
    /// Per resource, the largest amount that is free on any node that accepts pods.
    most_free: Resources,
    /// Available instance types: lowest price and allocatable resources, cheapest first.
    types: Vec<(MicroUsd, Resources)>,
    /// The same for each NodePool, of those that it allows.
    launchable: OnceCell<Vec<(MicroUsd, Resources)>>,
    /// What is free on each node that accepts relocated pods of consolidation.
    free: OnceCell<Vec<Resources>>,
    /// How many pods with these requests fit there, regardless of all other pods, as far as it was asked.
    places: RefCell<HashMap<Resources, CountedPlaces, FixedState>>,
}

/// Places for pods with the same requests on the first nodes.
#[derive(Clone, Copy, Debug, Default)]
struct CountedPlaces {
    places: i64,
    nodes: usize,
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
        Self {
            most_free,
            types,
            launchable: OnceCell::new(),
            free: OnceCell::new(),
            places: RefCell::default(),
        }
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

    /// Whether removing these nodes is certain to save nothing: some of their pods need a new node, and each that holds them costs
    /// as much.
    ///
    /// # Cost
    /// A look-up for each pod; a pass over the nodes for each kind of requests, once.
    pub fn certainly_refuses(&self, candidates: &[&Candidate], view: &DisruptionView<'_>) -> bool {
        let lacking = self.lacking(candidates, view);
        let old: Option<MicroUsd> = candidates.iter().map(|each| each.price()).sum();
        let (Some(old), false) = (old, lacking.is_zero()) else {
            return false;
        };
        let launchable = self.launchable.get_or_init(|| launchable(view.snapshot()));
        let mut cheaper = launchable.iter().take_while(|(price, _)| *price < old);
        cheaper.all(|(_, capacity)| !lacking.fits_in(capacity))
    }

    /// What of the requests of these nodes' pods is certain to fit on no node that stays. Zero: perhaps all of them fit.
    ///
    /// Sound: of pods with the same requests no more are placed than fit there when no other pod is.
    pub fn lacking(&self, candidates: &[&Candidate], view: &DisruptionView<'_>) -> Resources {
        let mut kinds: HashMap<&Resources, i64, FixedState> = HashMap::default();
        for pod in candidates.iter().flat_map(|each| each.pods.iter()) {
            *kinds.entry(&pod.class.requests).or_default() += 1;
        }
        let nodes = &view.view().nodes;
        let open = candidates
            .iter()
            .filter_map(|each| nodes.get(&**each.key()));
        let own: Vec<Resources> = open
            .filter(|node| view.accepts_relocated(node))
            .map(|node| node.free())
            .collect();
        let mut lacking = Resources::zero();
        for (requests, count) in kinds {
            let on_own: i64 = own.iter().map(|free| fitting(requests, free)).sum();
            let places = self.places(requests, count + on_own, view);
            if places < count + on_own {
                lacking.add_assign(&requests.times(count + on_own - places));
            }
        }
        lacking
    }

    /// How many pods with these requests fit on the nodes that accept some, or at least `enough`: where nodes are loose, a few of
    /// them tell.
    fn places(&self, requests: &Resources, enough: i64, view: &DisruptionView<'_>) -> i64 {
        let free = self.free.get_or_init(|| {
            let nodes = view.view().nodes.values();
            let open = nodes.filter(|node| view.accepts_relocated(node));
            open.map(|node| node.free()).collect()
        });
        let mut known = self.places.borrow_mut();
        let mut counted = known.get(requests).copied().unwrap_or_default();
        for free in free.iter().skip(counted.nodes) {
            if counted.places >= enough {
                break;
            }
            counted.places += fitting(requests, free);
            counted.nodes += 1;
        }
        known.insert(requests.clone(), counted);
        counted.places
    }
}

/// How many pods with these requests fit.
fn fitting(requests: &Resources, free: &Resources) -> i64 {
    let standard = [
        (requests.cpu, free.cpu),
        (requests.memory, free.memory),
        (requests.pods, free.pods),
        (requests.ephemeral_storage, free.ephemeral_storage),
    ];
    let extended = requests.extended.iter();
    let extended = extended.map(|(name, asked)| (*asked, free.extended(name)));
    let each = standard.into_iter().chain(extended);
    each.filter(|(asked, _)| *asked > 0)
        .map(|(asked, free)| (free / asked).max(0))
        .min()
        .unwrap_or(i64::MAX / 1_000_000)
}

/// The instance types that NodePools can launch, with the lowest price of each and what pods can have of it, cheapest first.
fn launchable(snapshot: &Snapshot) -> Vec<(MicroUsd, Resources)> {
    let mut seen: Vec<(u64, Requirements)> = Vec::new();
    let mut types: Vec<(MicroUsd, Resources)> = Vec::new();
    for pool in snapshot.pools.values().filter(|pool| !pool.is_static()) {
        let Some(catalog) = snapshot.catalog_of(pool) else {
            continue;
        };
        let asked = (catalog.version(), pool.requirements());
        if seen.contains(&asked) {
            continue;
        }
        let offers = catalog.offers(&asked.1, &snapshot.well_known);
        types.extend(offers.into_iter().map(|offer| {
            let price = offer.price.unwrap_or_default();
            (price, offer.instance_type.allocatable())
        }));
        seen.push(asked);
    }
    types.sort_by_key(|(price, _)| *price);
    types
}
