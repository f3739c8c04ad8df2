//! Plans NodeClaims of static NodePools, which have a fixed number of nodes.

use std::sync::Arc;

use super::daemon_set_pods::DaemonSetPods;
use super::narrowed_offerings::TemplateOfferings;
use super::narrowed_template::NarrowedTemplateId;
use super::plan::{PlannedClaim, PlannedOffering, SolveOptions};
use super::policy_demands::{AllowedOfferings, PolicyDemands};
use super::policy_room::PolicyRoom;
use super::pool_template::PoolTemplate;
use super::resource_vector::ResourceDimensions;
use mortise_apis::karpenter::nodepool::NodePool;
use mortise_apis::labels;
use mortise_apis::requirements::Requirements;
use mortise_apis::resources::Resources;
use mortise_cloudprovider::CapacityType;
use mortise_state::catalog::{Bits, InstanceTypeTable, PricedOffering};
use mortise_state::snapshot::{PoolUsage, Snapshot};

/// Text of a NodePool whose instance types are too small for the DaemonSet pods.
const TOO_SMALL: &str = "no instance type of the NodePool has enough capacity for its DaemonSets";

/// Plans NodeClaims of static NodePools. Those of one planner are planned next to each other: each counts for what
/// the policies ask of the next.
#[derive(Debug)]
pub struct StaticClaimPlanner<'a> {
    snapshot: &'a Snapshot,
    options: &'a SolveOptions,
    daemons: DaemonSetPods,
    dimensions: ResourceDimensions,
    demands: PolicyDemands,
    /// How many templates it has made.
    templates: NarrowedTemplateId,
}

/// What every NodeClaim of a static NodePool may be launched as.
#[derive(Debug)]
pub struct StaticClaimTemplate {
    id: NarrowedTemplateId,
    template: PoolTemplate,
    /// The least of what DaemonSets request.
    overhead: Resources,
    requirements: Requirements,
    kinds: Bits,
    /// The types that have capacity for the DaemonSets and that the policy allows.
    types: Bits,
    /// These types by price.
    by_price: Vec<(usize, PricedOffering)>,
}

impl<'a> StaticClaimPlanner<'a> {
    /// A planner for this snapshot; the nodes that `options` are without count for nothing.
    pub fn new(snapshot: &'a Snapshot, options: &'a SolveOptions) -> Self {
        let daemons = DaemonSetPods::from_snapshot(snapshot);
        let requests = daemons.all().iter().map(|each| &each.class.requests);
        Self {
            dimensions: ResourceDimensions::new(requests),
            demands: PolicyDemands::new(snapshot, options),
            snapshot,
            options,
            daemons,
            templates: 0,
        }
    }

    /// What a NodeClaim of this NodePool may be, from its template alone: every compatible instance type with capacity for the DaemonSets
    /// and that its NodePoolPolicy allows. The limits of the NodePool are ignored.
    ///
    /// # Errors
    /// Why the NodePool cannot launch a node now: it is not ready, its instance types are unknown, or none is left.
    ///
    /// # Source
    /// karpenter-core 7.2. Karpenter lists no instance types and leaves the choice to the provider.
    pub fn template(&mut self, pool: &Arc<NodePool>) -> Result<StaticClaimTemplate, String> {
        let (snapshot, best_effort) = (self.snapshot, self.options.min_values_best_effort);
        let usage = PoolUsage::default();
        let (daemons, dimensions) = (&self.daemons, &self.dimensions);
        let template = PoolTemplate::new(pool, snapshot, daemons, dimensions, usage, best_effort)
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
        let table = template.catalog.table();
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
            overhead =
                Some(overhead.map_or_else(|| own.clone(), |least: Resources| least.min(own)));
        }
        let by_price = table.by_price(&types, &kinds);
        if by_price.is_empty() {
            return Err(TOO_SMALL.to_owned());
        }
        let mut requirements = template.requirements.clone();
        for simulated in [labels::REGISTERED, labels::INITIALIZED] {
            requirements.remove(simulated);
        }
        self.templates += 1;
        Ok(StaticClaimTemplate {
            id: self.templates,
            template,
            overhead: overhead.unwrap_or_default(),
            requirements,
            kinds,
            types,
            by_price,
        })
    }

    /// The next NodeClaim: the instance types of the template, the cheapest first, as far as its NodePoolPolicy allows them.
    pub fn plan(&mut self, of: &StaticClaimTemplate) -> PlannedClaim {
        let template = &of.template;
        let (catalog, table) = (&template.catalog, template.catalog.table());
        let mut requirements = of.requirements.clone();
        let options = self.options;
        let offered = TemplateOfferings {
            id: of.id,
            template,
            requirements: &of.requirements,
            kinds: &of.kinds,
            types: &of.types,
            by_price: &of.by_price,
        };
        let context = (self.snapshot, options);
        let is_enough =
            |left: &Bits, pinned: (&Requirements, &str)| options.is_enough(catalog, left, pinned);
        let types = of.types.clone();
        let AllowedOfferings {
            kinds,
            by_price: offers,
            paid_by,
            ..
        } = self
            .demands
            .narrow(context, offered, types, &mut requirements, is_enough);
        let mut kept = Bits::none(table.type_count());
        offers.iter().for_each(|(at, _)| kept.insert(*at));
        let name = |at: usize| catalog.types().get(at).map(|each| Arc::clone(&each.name));
        PlannedClaim {
            pool: template.name.clone(),
            node_class: template.pool.node_class_key(),
            requirements,
            requests: of.overhead.clone(),
            instance_types: offers.iter().filter_map(|(at, _)| name(*at)).collect(),
            cheapest: offers
                .first()
                .and_then(|offer| PlannedOffering::new(catalog, offer)),
            paid_by,
            most: template.most(&kept),
            pods: Vec::new(),
            device_drivers: Vec::new(),
            min_values_relaxed: false,
            capacity_types: capacity_types(table, &kinds, &kept),
            well_known: Arc::new(self.snapshot.well_known.clone()),
        }
    }
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
