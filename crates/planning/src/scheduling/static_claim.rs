//! Plans NodeClaims of static NodePools, which have a fixed number of nodes.

use std::sync::Arc;

use super::daemon_set_pods::DaemonSetPods;
use super::plan::{PlannedClaim, PlannedOffering, SolveOptions};
use super::policy_room::PolicyRoom;
use super::pool_template::PoolTemplate;
use super::resource_vector::ResourceDimensions;
use mortise_apis::karpenter::nodepool::NodePool;
use mortise_apis::labels;
use mortise_cloudprovider::CapacityType;
use mortise_state::catalog::{Bits, InstanceTypeTable};
use mortise_state::snapshot::{PoolUsage, Snapshot};

/// Text of a NodePool whose instance types are too small for the DaemonSet pods.
const TOO_SMALL: &str = "no instance type of the NodePool has enough capacity for its DaemonSets";

/// Plans one NodeClaim from the NodePool's template alone: every compatible instance type with capacity for the
/// DaemonSets and that its NodePoolPolicy allows, cheapest first. The limits of the NodePool are ignored.
///
/// # Errors
/// Why the NodePool cannot launch a node now: it is not ready, its instance types are unknown, or none is left.
///
/// # Source
/// karpenter-core 7.2. Karpenter lists no instance types and leaves the choice to the provider.
pub fn plan_static_claim(
    pool: &Arc<NodePool>,
    snapshot: &Snapshot,
    options: &SolveOptions,
) -> Result<PlannedClaim, String> {
    let daemons = DaemonSetPods::from_snapshot(snapshot);
    let dimensions = ResourceDimensions::new(daemons.all().iter().map(|each| &each.class.requests));
    let best_effort = options.min_values_best_effort;
    let usage = PoolUsage::default();
    let template = PoolTemplate::new(pool, snapshot, &daemons, &dimensions, usage, best_effort)
        .map_err(|unusable| unusable.why)?;
    if let Some(why) = template.policy.as_ref().and_then(PolicyRoom::closed) {
        return Err(why.to_string());
    }
    let mut within_policy = template.types.clone();
    if let Some(policy) = &template.policy {
        policy.narrow(&mut within_policy);
        if within_policy.is_empty() {
            return Err(policy.excluding(&template.types));
        }
    }
    let (catalog, table) = (&template.catalog, template.catalog.table());
    let kinds = table.kinds_meeting(&template.requirements, &snapshot.well_known);
    let mut types = Bits::none(table.type_count());
    let mut overhead = None;
    for group in template.groups.iter() {
        let mut roomy = group.types.clone();
        roomy.and(&within_policy);
        let has_capacity = |at: usize| template.net(at).iter().all(|left| *left >= 0);
        group
            .types
            .iter()
            .filter(|at| !has_capacity(*at))
            .for_each(|at| roomy.remove(at));
        if roomy.is_empty() {
            continue;
        }
        types.or(&roomy);
        let own = &group.overhead.requests;
        overhead = Some(overhead.map_or_else(
            || own.clone(),
            |least: mortise_apis::resources::Resources| least.min(own),
        ));
    }
    let most = match options.max_instance_types {
        0 => usize::MAX,
        most => most,
    };
    let offers: Vec<_> = table
        .by_price(&types, &kinds)
        .into_iter()
        .filter(|(at, _)| types.has(*at))
        .take(most)
        .collect();
    let mut kept = Bits::none(table.type_count());
    offers.iter().for_each(|(at, _)| kept.insert(*at));
    if kept.is_empty() {
        return Err(TOO_SMALL.to_owned());
    }
    let mut requirements = template.requirements.clone();
    for simulated in [labels::REGISTERED, labels::INITIALIZED] {
        requirements.remove(simulated);
    }
    let name = |at: usize| catalog.types().get(at).map(|each| Arc::clone(&each.name));
    Ok(PlannedClaim {
        pool: template.name.clone(),
        node_class: pool.node_class_key(),
        requirements,
        requests: overhead.unwrap_or_default(),
        instance_types: offers.iter().filter_map(|(at, _)| name(*at)).collect(),
        cheapest: offers.first().and_then(|(at, offer)| {
            let kind = table.kinds().get(offer.kind)?;
            Some(PlannedOffering {
                instance_type: name(*at)?,
                zone: Arc::clone(&kind.zone),
                capacity_type: kind.capacity_type,
                price: offer.price,
            })
        }),
        paid_by: None,
        most: template.most(&kept),
        pods: Vec::new(),
        device_drivers: Vec::new(),
        min_values_relaxed: false,
        capacity_types: capacity_types(table, &kinds, &kept),
        well_known: Arc::new(snapshot.well_known.clone()),
    })
}

/// Capacity types in which some of the types are offered. Sorted by their label values.
pub(super) fn capacity_types(
    table: &InstanceTypeTable,
    kinds: &Bits,
    types: &Bits,
) -> Vec<CapacityType> {
    let kinds = kinds.iter().filter_map(|kind| table.kinds().get(kind));
    let mut all: Vec<_> = kinds
        .filter(|kind| kind.types.meets(types))
        .map(|kind| kind.capacity_type)
        .collect();
    all.sort_unstable_by_key(|each| each.as_str());
    all.dedup();
    all
}
