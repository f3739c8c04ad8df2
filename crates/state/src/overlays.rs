//! NodeOverlays: other prices and additional resources of instance types.
//!
//! ```text
//! overlays by weight, then by name from the last ─► types and offerings that match, by NodePool ─► conflict? rejected as a whole
//!                                                                                              └─► catalog of the NodePool
//! ```
//!
//! Invariant: pure; the same overlays, NodePools and catalogs give the same catalogs, in any order of input. A field that an
//! overlay of higher weight has set is not changed.
//!
//! # Source
//! As in Karpenter: an overlay is rejected for all NodePools if an overlay of equal weight has set the price of the same
//! offering, or the same resource of the same type.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::catalog::Catalog;
use crate::snapshot::Snapshot;
use mortise_apis::karpenter::nodeoverlay::NodeOverlay;
use mortise_apis::karpenter::nodepool::NodePool;
use mortise_apis::labels;
use mortise_apis::names::{NodeClassKey, PoolName};
use mortise_apis::requirements::{Requirement, Requirements};
use mortise_apis::resources::resources_of;
use mortise_apis::values::PriceChange;
use mortise_apis::values::money::MicroUsd;
use mortise_cloudprovider::InstanceType;

/// Another overlay of equal weight that sets the same prices or resources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConflictingOverlay {
    /// Its name.
    pub name: Arc<str>,
    /// Instance types with an offering whose price both change.
    pub price: usize,
    /// Instance types of which both set the same resource.
    pub capacity: usize,
    /// Those resources, sorted.
    pub resources: Vec<String>,
}

/// Overlays of a snapshot that conflict with this one, by name. The overlay itself is left out, and so are overlays that are
/// being deleted.
///
/// # Cost
/// For each other overlay of equal weight that sets the same fields: one pass over the instance types that both may match, for
/// each NodePool.
#[must_use]
pub fn rivals(snapshot: &Snapshot, overlay: &NodeOverlay) -> Vec<ConflictingOverlay> {
    let (own, resources) = (overlay.requirements(), overlay.resources());
    let name = overlay.name();
    let views = views(snapshot);
    let mut found = Vec::new();
    for (other_name, other) in snapshot.overlays.iter() {
        let same = other.weight() == overlay.weight() && *other_name != name;
        if !same || other.metadata.deletion_timestamp.is_some() {
            continue;
        }
        let both_price = overlay.sets_price() && other.sets_price();
        let both_set: Vec<String> = other
            .resources()
            .intersection(&resources)
            .map(|name| (*name).to_owned())
            .collect();
        if !both_price && both_set.is_empty() {
            continue;
        }
        let theirs = other.requirements();
        let (mut price, mut capacity) = (BTreeSet::new(), BTreeSet::new());
        for (catalog, pool) in &views {
            let covered = catalog.covered(pool, &theirs);
            for (at, offerings) in catalog.covered(pool, &own) {
                let (Some(of_other), Some(each)) = (covered.get(&at), catalog.types().get(at))
                else {
                    continue;
                };
                if both_price && offerings.iter().any(|each| of_other.contains(each)) {
                    price.insert(Arc::clone(&each.name));
                }
                if !both_set.is_empty() {
                    capacity.insert(Arc::clone(&each.name));
                }
            }
        }
        if !price.is_empty() || !capacity.is_empty() {
            found.push(ConflictingOverlay {
                name: Arc::clone(other_name),
                price: price.len(),
                capacity: capacity.len(),
                resources: both_set,
            });
        }
    }
    found
}

/// Annotations of a NodeClaim with these possible instance types: whether an overlay changes a price, or a resource, of any.
#[must_use]
pub fn annotations(snapshot: &Snapshot, pool: &NodePool, types: &[Arc<str>]) -> Vec<&'static str> {
    let name = pool.metadata.name.as_deref().unwrap_or_default();
    let (Some(with), Some(without)) = (
        snapshot.overlaid_catalogs.get(name),
        snapshot.catalogs.get(&pool.node_class_key()),
    ) else {
        return Vec::new();
    };
    let pairs = || {
        types
            .iter()
            .filter_map(|name| with.get(name).zip(without.get(name)))
    };
    let price = pairs().any(|(with, without)| with.offerings != without.offerings);
    let capacity = pairs().any(|(with, without)| with.capacity != without.capacity);
    [
        (price, labels::PRICE_OVERLAY_APPLIED),
        (capacity, labels::CAPACITY_OVERLAY_APPLIED),
    ]
    .into_iter()
    .filter_map(|(applied, key)| applied.then_some(key))
    .collect()
}

/// Each catalog with the labels that a NodePool adds to its types. Without NodePools, the catalogs alone.
fn views(snapshot: &Snapshot) -> Vec<(&Arc<Catalog>, Requirements)> {
    let mut views: Vec<(&Arc<Catalog>, Requirements)> = snapshot
        .pools
        .values()
        .filter_map(|pool| {
            let catalog = snapshot.catalogs.get(&pool.node_class_key())?;
            Some((catalog, labels_of(pool)))
        })
        .collect();
    if views.is_empty() {
        let mut seen = BTreeSet::new();
        for catalog in snapshot.catalogs.values() {
            if seen.insert(catalog.version()) {
                views.push((catalog, Requirements::new()));
            }
        }
    }
    views
}

/// Labels that a NodePool adds to its types.
fn labels_of(pool: &NodePool) -> Requirements {
    let mut all = Requirements::new();
    for (key, value) in pool.spec.template.labels().into_iter().flatten() {
        all.add(Requirement::is(key.as_str(), value.as_str()));
    }
    all.add(Requirement::is(labels::NODEPOOL, &*pool.name()));
    all
}

/// Instance type of a NodePool while overlays are applied to it.
struct OverlaidType {
    of: InstanceType,
    /// Weight of the overlay that has set the price of each offering.
    priced: BTreeMap<usize, i32>,
    /// Weight of the overlay that has set each resource.
    sized: BTreeMap<String, i32>,
}

/// Catalogs of NodePools with instance types that an overlay changes, and the overlays that were rejected because of a
/// conflict.
///
/// # Cost
/// For each overlay and NodePool one pass over the types that it may match, and a new catalog for each affected NodePool.
/// NodePools with equal catalogs share one.
#[must_use]
pub(crate) fn overlaid_catalogs(
    overlays: &BTreeMap<Arc<str>, Arc<NodeOverlay>>,
    pools: &BTreeMap<PoolName, Arc<NodePool>>,
    catalogs: &BTreeMap<NodeClassKey, Arc<Catalog>>,
) -> (BTreeMap<PoolName, Arc<Catalog>>, BTreeSet<Arc<str>>) {
    let mut rejected = BTreeSet::new();
    let mut ordered: Vec<&Arc<NodeOverlay>> = overlays
        .values()
        .filter(|overlay| overlay.metadata.deletion_timestamp.is_none())
        .collect();
    ordered.sort_by_key(|overlay| Reverse((overlay.weight(), overlay.name())));
    let views: Vec<(&PoolName, &Arc<Catalog>, Requirements)> = pools
        .iter()
        .filter_map(|(name, pool)| {
            let catalog = catalogs.get(&pool.node_class_key())?;
            Some((name, catalog, labels_of(pool)))
        })
        .collect();
    let mut changing: BTreeMap<(usize, usize), OverlaidType> = BTreeMap::new();
    for overlay in ordered {
        let Some(change) = overlay.price_change() else {
            continue; // the definition refuses it; stored all the same, it does nothing
        };
        let asked = overlay.requirements();
        let covered: Vec<(usize, BTreeMap<usize, Vec<usize>>)> = views
            .iter()
            .enumerate()
            .map(|(view, (_, catalog, pool))| (view, catalog.covered(pool, &asked)))
            .collect();
        let places = || {
            covered.iter().flat_map(|(view, types)| {
                types
                    .iter()
                    .map(|(at, offerings)| ((*view, *at), offerings))
            })
        };
        if places().any(|(place, offerings)| contradicts(changing.get(&place), overlay, offerings))
        {
            rejected.insert(overlay.name());
            continue;
        }
        for ((view, at), offerings) in places() {
            let Some(each) = views
                .get(view)
                .and_then(|(_, catalog, _)| catalog.types().get(at))
            else {
                continue;
            };
            let changing = changing.entry((view, at)).or_insert_with(|| OverlaidType {
                of: InstanceType::clone(each),
                priced: BTreeMap::new(),
                sized: BTreeMap::new(),
            });
            apply(overlay, change, offerings, changing);
        }
    }
    let mut by_view: BTreeMap<usize, BTreeMap<usize, InstanceType>> = BTreeMap::new();
    for ((view, at), changed) in changing {
        by_view.entry(view).or_default().insert(at, changed.of);
    }
    let mut built: BTreeMap<u64, Arc<Catalog>> = BTreeMap::new();
    let catalogs = by_view
        .into_iter()
        .filter_map(|(view, changed)| {
            let (name, catalog, _) = views.get(view)?;
            let catalog = catalog.with_types(changed);
            let shared = built
                .entry(catalog.version())
                .or_insert_with(|| Arc::new(catalog));
            Some(((*name).clone(), Arc::clone(shared)))
        })
        .collect();
    (catalogs, rejected)
}

/// Whether an overlay of equal weight has set the same field already.
fn contradicts(
    changing: Option<&OverlaidType>,
    overlay: &NodeOverlay,
    offerings: &[usize],
) -> bool {
    let Some(changing) = changing else {
        return false;
    };
    let weight = overlay.weight();
    let price = overlay.sets_price()
        && offerings
            .iter()
            .any(|offering| changing.priced.get(offering) == Some(&weight));
    let mut resources = overlay.resources().into_iter();
    price || resources.any(|name| changing.sized.get(name) == Some(&weight))
}

/// Sets fields that no overlay of higher weight has set.
fn apply(overlay: &NodeOverlay, change: PriceChange, offerings: &[usize], to: &mut OverlaidType) {
    let weight = overlay.weight();
    if overlay.sets_price() {
        for position in offerings {
            let Some(offering) = to.of.offerings.get_mut(*position) else {
                continue;
            };
            if to.priced.contains_key(position) {
                continue;
            }
            to.priced.insert(*position, weight);
            // An adjustment of an unknown price is unknown.
            let known = offering.price.map(|price| price.0);
            offering.price = match change {
                PriceChange::Set(_) => Some(MicroUsd(change.apply(0))),
                _ => known.map(|micros| MicroUsd(change.apply(micros))),
            };
        }
    }
    let Some(capacity) = &overlay.spec.capacity else {
        return;
    };
    let amounts = resources_of(capacity);
    for name in capacity.keys() {
        if !to.sized.contains_key(name) {
            to.sized.insert(name.clone(), weight);
            to.of.capacity.set(name, amounts.get(name));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mortise_apis::requirements::Operator;
    use mortise_apis::resources::Resources;
    use mortise_cloudprovider::{CapacityType, Offering};
    use serde_json::{Value, json};

    fn class() -> NodeClassKey {
        NodeClassKey::new("g", "K", "n")
    }

    fn of_type(name: &str) -> InstanceType {
        let offerings = ["a", "b"].map(|zone| Offering {
            zone: zone.into(),
            capacity_type: CapacityType::OnDemand,
            price: (zone == "a").then_some(MicroUsd(1_000_000)),
            available: true,
            reservation: None,
            labels: Vec::new(),
        });
        let mut requirements = Requirements::new();
        requirements.add(Requirement::is(labels::INSTANCE_TYPE, name));
        requirements.add(Requirement::new(
            labels::TOPOLOGY_ZONE,
            Operator::In,
            ["a", "b"],
        ));
        requirements.add(Requirement::is(labels::CAPACITY_TYPE, "on-demand"));
        InstanceType {
            name: name.into(),
            requirements,
            capacity: Resources::new(1000, 1 << 30),
            overhead: Resources::default(),
            offerings: offerings.to_vec(),
            devices: Arc::default(),
        }
    }

    /// Price in zone a, price in zone b, devices: of each NodePool and type that an overlay changed.
    fn run(pools: &[(&str, Value)], overlays: &[(&str, Value)]) -> Vec<String> {
        let pools = pools.iter().map(|(name, labels)| {
            let object = json!({ "metadata": { "name": name }, "spec": { "template": {
                "metadata": { "labels": labels }, "spec": { "nodeClassRef": { "group": "g", "kind": "K", "name": "n" } } } } });
            (PoolName::from(*name), Arc::new(serde_json::from_value(object).unwrap()))
        });
        let overlays = overlays.iter().map(|(name, spec)| {
            let object = json!({ "metadata": { "name": name }, "spec": spec });
            (
                Arc::from(*name),
                Arc::new(serde_json::from_value(object).unwrap()),
            )
        });
        let catalog = Arc::new(Catalog::build(vec![of_type("small"), of_type("large")]));
        let before = Arc::clone(&catalog);
        let (found, _) = overlaid_catalogs(
            &overlays.collect(),
            &pools.collect(),
            &[(class(), catalog)].into(),
        );
        let mut lines = Vec::new();
        for (pool, catalog) in &found {
            for each in catalog.types() {
                if before.get(&each.name) == Some(each) {
                    continue;
                }
                let prices: Vec<String> = each
                    .offerings
                    .iter()
                    .map(|offering| {
                        offering
                            .price
                            .map_or_else(|| "?".to_owned(), |price| (price.0 / 10_000).to_string())
                    })
                    .collect();
                lines.push(format!(
                    "{pool} {} {} {}",
                    each.name,
                    prices.join(" "),
                    each.capacity.get("x.y/d")
                ));
            }
        }
        lines
    }

    fn only(key: &str, value: &str) -> Value {
        json!([{ "key": key, "operator": "In", "values": [value] }])
    }

    /// Names of the types on offer to the NodePool `p`, in order of price.
    fn offered(types: Vec<InstanceType>, overlays: &[(&str, Value)]) -> Vec<String> {
        let pool = json!({ "metadata": { "name": "p" }, "spec": { "template": {
            "spec": { "nodeClassRef": { "group": "g", "kind": "K", "name": "n" } } } } });
        let pool: NodePool = serde_json::from_value(pool).unwrap();
        let overlays = overlays.iter().map(|(name, spec)| {
            let object = json!({ "metadata": { "name": name }, "spec": spec });
            let overlay: NodeOverlay = serde_json::from_value(object).unwrap();
            (Arc::from(*name), Arc::new(overlay))
        });
        let catalog = Arc::new(Catalog::build(types));
        let pools = [(PoolName::from("p"), Arc::new(pool))].into();
        let overlays = overlays.collect();
        let (found, _) =
            overlaid_catalogs(&overlays, &pools, &[(class(), Arc::clone(&catalog))].into());
        let catalog = found.get("p").unwrap_or(&catalog);
        let known = mortise_apis::labels::WellKnown::core();
        let offers = catalog.offers(&Requirements::new(), &known);
        offers
            .iter()
            .map(|offer| offer.instance_type.name.to_string())
            .collect()
    }

    #[test]
    fn types_without_a_price_come_last_until_an_overlay_gives_them_one() {
        let types = || {
            let mut preview = of_type("a-preview");
            for offering in &mut preview.offerings {
                offering.price = None;
            }
            vec![preview, of_type("large"), of_type("small")]
        };
        assert_eq!(offered(types(), &[]), ["large", "small", "a-preview"]);
        let preview = only(labels::INSTANCE_TYPE, "a-preview");
        let absolute = json!({ "requirements": preview, "price": "0.5" });
        assert_eq!(
            offered(types(), &[("o", absolute)]),
            ["a-preview", "large", "small"]
        );
        let relative = json!({ "requirements": preview, "priceAdjustment": "-50%" });
        assert_eq!(
            offered(types(), &[("o", relative)]),
            ["large", "small", "a-preview"],
            "half of an unknown price is unknown"
        );
    }

    #[test]
    fn prices_and_resources_of_what_is_asked_for() {
        let all = [("p", json!({ "team": "a" })), ("q", json!({}))];
        let small = only(labels::INSTANCE_TYPE, "small");
        assert_eq!(
            run(
                &all,
                &[("o", json!({ "requirements": small, "price": "0.5" }))]
            ),
            ["p small 50 50 0", "q small 50 50 0"]
        );
        // An adjustment of an unknown price stays unknown.
        assert_eq!(
            run(
                &all,
                &[(
                    "o",
                    json!({ "requirements": only("team", "a"), "priceAdjustment": "+10%", "capacity": { "x.y/d": "2" } })
                )]
            ),
            ["p large 110 ? 2", "p small 110 ? 2"]
        );
        // One zone: its price; but the resource belongs to the type.
        assert_eq!(
            run(
                &all[1..],
                &[(
                    "o",
                    json!({ "requirements": only(labels::TOPOLOGY_ZONE, "b"), "price": "3", "capacity": { "x.y/d": "1" } })
                )]
            ),
            ["q large 100 300 1", "q small 100 300 1"]
        );
        assert_eq!(
            run(
                &all,
                &[(
                    "o",
                    json!({ "requirements": only("team", "b"), "price": "3" })
                )]
            ),
            Vec::<String>::new()
        );
        assert_eq!(
            run(
                &all,
                &[("o", json!({ "requirements": [], "price": "cheap" }))]
            ),
            Vec::<String>::new()
        );
        assert_eq!(
            run(
                &all[1..],
                &[(
                    "o",
                    json!({ "requirements": only(labels::NODEPOOL, "q"), "priceAdjustment": "-2" })
                )]
            ),
            ["q large 0 ? 0", "q small 0 ? 0"]
        );
    }

    #[test]
    fn heavier_ones_win_and_equal_ones_are_rejected_as_a_whole() {
        let pool = [("p", json!({}))];
        let (small, every) = (only(labels::INSTANCE_TYPE, "small"), json!([]));
        assert_eq!(
            run(
                &pool,
                &[
                    (
                        "heavy",
                        json!({ "weight": 9, "requirements": small, "price": "5" })
                    ),
                    (
                        "light",
                        json!({ "weight": 1, "requirements": every, "price": "7", "capacity": { "x.y/d": "4" } })
                    ),
                ]
            ),
            ["p large 700 700 4", "p small 500 500 4"]
        );
        // The last by name is applied first; the other is rejected as a whole, also where nothing conflicts.
        assert_eq!(
            run(
                &pool,
                &[
                    (
                        "a",
                        json!({ "requirements": every, "price": "7", "capacity": { "x.y/d": "4" } })
                    ),
                    ("b", json!({ "requirements": small, "price": "5" })),
                ]
            ),
            ["p small 500 500 0"]
        );
        // Equal weight, different fields.
        assert_eq!(
            run(
                &pool,
                &[
                    (
                        "a",
                        json!({ "requirements": every, "capacity": { "x.y/d": "4" } })
                    ),
                    ("b", json!({ "requirements": small, "price": "5" })),
                ]
            ),
            ["p large 100 ? 4", "p small 500 500 4"]
        );
    }
}
