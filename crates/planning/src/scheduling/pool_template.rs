//! NodePools as templates of new NodeClaims.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Taint;

use super::daemon_set_pods::{DaemonSetOverhead, DaemonSetPods};
use super::policy_room::PolicyRoom;
use super::resource_vector::{ResourceDimensions, subtract};
use crate::reason::{PoolBlocker, Reason};
use mortise_apis::karpenter::nodepool::LaunchPause;
use mortise_apis::karpenter::nodepool::NodePool;
use mortise_apis::labels::{self, WellKnown};
use mortise_apis::names::PoolName;
use mortise_apis::requirements::{Requirement, Requirements};
use mortise_apis::resources::{PoolLimits, Resources};
use mortise_apis::schema::conditions::ConditionStatus;
use mortise_apis::values::money::MicroUsd;
use mortise_state::catalog::{Bits, Catalog, InstanceTypeTable};
use mortise_state::snapshot::{PoolUsage, Snapshot};

/// Instance types on which the same DaemonSets run.
#[derive(Clone, Debug)]
pub(super) struct DaemonSetGroup {
    /// The types.
    pub(super) types: Bits,
    /// What the DaemonSets request on each.
    pub(super) overhead: DaemonSetOverhead,
}

/// A NodePool that can launch nodes.
#[derive(Clone, Debug)]
pub(super) struct PoolTemplate {
    /// The pool.
    pub(super) pool: Arc<NodePool>,
    /// Its name.
    pub(super) name: PoolName,
    /// What its node class can launch.
    pub(super) catalog: Arc<Catalog>,
    /// What every node of the NodePool satisfies, once registered and initialized.
    pub(super) requirements: Requirements,
    /// Taints that pods must tolerate.
    pub(super) taints: Vec<Taint>,
    /// Instance types that the NodePool's own requirements allow.
    pub(super) types: Bits,
    /// The same instance types by the DaemonSets that run on them.
    pub(super) groups: Arc<[DaemonSetGroup]>,
    /// Limits.
    pub(super) limits: PoolLimits,
    /// Usage counted against them, in-flight NodeClaims of this pass included.
    pub(super) usage: PoolUsage,
    /// What the NodePoolPolicy of the NodePool still allows, if it limits launches.
    pub(super) policy: Option<PolicyRoom>,
    /// Per resource, the largest amount that any of its instance types has.
    pub(super) largest: Resources,
    /// Capacity of each instance type, net of the DaemonSets that run on it, by index of the type, flat.
    net: Arc<[i64]>,
    width: usize,
}

/// A NodePool that cannot be used, and why.
#[derive(Clone, Debug)]
pub(super) struct UnusablePool {
    /// Its name.
    pub(super) pool: PoolName,
    /// Kind of the reason.
    pub(super) blocker: PoolBlocker,
    /// Why, with Karpenter's text where it has one.
    pub(super) why: String,
    /// The decisive fact; may be empty.
    pub(super) detail: String,
}

impl UnusablePool {
    fn new(pool: &NodePool, blocker: PoolBlocker, why: impl Into<String>) -> Self {
        Self {
            pool: pool.name(),
            blocker,
            why: why.into(),
            detail: String::new(),
        }
    }

    fn because(mut self, detail: String) -> Self {
        self.detail = detail;
        self
    }
}

/// Text of a NodePool whose requirements leave no instance type.
const NO_TYPES: &str = "nodepool requirements filtered out all available instance types";

/// The NodePools whose own requirements leave no instance type.
pub(super) fn typeless(unusable: &[UnusablePool]) -> Vec<(PoolName, Reason)> {
    let of = |each: &UnusablePool| match each.blocker {
        PoolBlocker::NoTypes => Some(Reason::NoInstanceTypes { min_values: false }),
        PoolBlocker::MinValues => Some(Reason::NoInstanceTypes { min_values: true }),
        _ => None,
    };
    unusable
        .iter()
        .filter_map(|each| Some((each.pool.clone(), of(each)?)))
        .collect()
}

/// Text of a NodePool that is being deleted.
pub(super) const DELETED: &str = "nodepool is being deleted";

/// What a NodePool waits for, by its conditions.
fn not_ready(pool: &NodePool) -> String {
    let conditions = || {
        let all = pool.status.conditions.iter();
        all.filter(|each| each.status != ConditionStatus::True)
    };
    // `Ready` summarizes the others, if there are any.
    let alone = conditions().all(|each| each.type_ == "Ready");
    let missing: Vec<String> = conditions()
        .filter(|each| alone || each.type_ != "Ready")
        .map(|each| {
            let text = format!("{} is {}", each.type_, each.status.as_str());
            let why = [each.reason.as_str(), each.message.as_str()];
            let why: Vec<&str> = why.into_iter().filter(|part| !part.is_empty()).collect();
            if why.is_empty() {
                text
            } else {
                format!("{text} ({})", why.join(": "))
            }
        })
        .collect();
    if missing.is_empty() {
        return String::new();
    }
    format!("the pool is not ready: {}", missing.join(", "))
}

/// The usable NodePools of a snapshot, in the order in which they are tried: by weight, then by name, both descending.
pub(super) fn templates(
    snapshot: &Snapshot,
    daemons: &DaemonSetPods,
    dimensions: &ResourceDimensions,
    best_effort: bool,
) -> (Vec<PoolTemplate>, Vec<UnusablePool>) {
    let usage = PoolUsage::all(snapshot);
    let mut usable = Vec::new();
    let mut unusable = Vec::new();
    let dynamic = snapshot.pools.values().filter(|pool| !pool.is_static());
    for pool in dynamic {
        if pool.metadata.deletion_timestamp.is_some() {
            unusable.push(UnusablePool::new(pool, PoolBlocker::NotReady, DELETED));
            continue;
        }
        let usage = usage.get(&pool.name()).cloned().unwrap_or_default();
        match PoolTemplate::new(pool, snapshot, daemons, dimensions, usage, best_effort) {
            Ok(template) => usable.push(template),
            Err(why) => unusable.push(why),
        }
    }
    usable.sort_by(|a, b| {
        let weights = b.weight().cmp(&a.weight());
        weights.then_with(|| b.name.cmp(&a.name))
    });
    (usable, unusable)
}

impl PoolTemplate {
    /// The template of a NodePool, or why it cannot be used.
    pub(super) fn new(
        pool: &Arc<NodePool>,
        snapshot: &Snapshot,
        daemons: &DaemonSetPods,
        dimensions: &ResourceDimensions,
        usage: PoolUsage,
        best_effort: bool,
    ) -> Result<Self, UnusablePool> {
        if !pool.is_ready() {
            let why = UnusablePool::new(pool, PoolBlocker::NotReady, "nodepool is not ready");
            return Err(why.because(not_ready(pool)));
        }
        let paused = |why: &dyn std::fmt::Display| {
            let why = format!("launches are paused: {why}");
            UnusablePool::new(pool, PoolBlocker::LaunchesPaused, why)
        };
        let mut limits = pool.limits();
        match pool.launch_pause() {
            None => {}
            Some(LaunchPause::All(why)) => return Err(paused(&why)),
            Some(LaunchPause::AllButOne(why)) => {
                if is_trying(snapshot, &pool.name()) {
                    return Err(paused(&why));
                }
                let one_more = usage.nodes + 1;
                limits.nodes = Some(limits.nodes.map_or(one_more, |limit| limit.min(one_more)));
            }
        }
        let catalog = snapshot.catalog_of(pool).ok_or_else(|| {
            let why = "node class has no instance types yet";
            UnusablePool::new(pool, PoolBlocker::NotReady, why)
        })?;
        let requirements = requirements(pool);
        let known = &snapshot.well_known;
        let table = catalog.table();
        let kinds = table.kinds_meeting(&requirements, known);
        let mut types = table.offered(&kinds);
        types.and(&table.meeting(&requirements));
        if types.is_empty() {
            let why = UnusablePool::new(pool, PoolBlocker::NoTypes, NO_TYPES);
            return Err(why.because(super::messages::no_types(catalog, &requirements)));
        }
        if !best_effort && catalog.check_min_values_of(&types, &requirements).is_err() {
            let why = format!("{NO_TYPES} due to minValues incompatibility");
            return Err(UnusablePool::new(pool, PoolBlocker::MinValues, why));
        }
        let taints = pool.spec.template.spec.taints().to_vec();
        let groups = groups(table, &types, daemons, &taints, &requirements, known);
        let net = net(table, &groups, dimensions);
        Ok(Self {
            policy: PolicyRoom::new(pool, &types, snapshot),
            name: pool.name(),
            catalog: Arc::clone(catalog),
            taints,
            types,
            groups: groups.into(),
            limits,
            usage,
            largest: Resources::zero(),
            net: net.into(),
            width: dimensions.len(),
            requirements,
            pool: Arc::clone(pool),
        }
        .measured())
    }

    /// The NodePool's weight; of the NodePools that can run a pod, those of the highest weight are used.
    pub(super) fn weight(&self) -> i32 {
        self.pool.spec.weight.unwrap_or(0)
    }

    /// Whether the limits allow a node of any instance type.
    pub(super) fn admits_any_type(&self) -> bool {
        !self.is_full() && self.within_limits().is_none()
    }

    /// Whether no further node is allowed: the limit on the number of nodes is reached, or that of its policy on new ones.
    pub(super) fn is_full(&self) -> bool {
        self.has_all_nodes() || self.policy.as_ref().is_some_and(|of| of.closed().is_some())
    }

    /// Whether the limit on the number of nodes is reached.
    pub(super) fn has_all_nodes(&self) -> bool {
        self.limits
            .nodes
            .is_some_and(|limit| self.usage.nodes >= limit)
    }

    /// Whether the limits depend on the instance type.
    pub(super) fn limits_types(&self) -> bool {
        !self.limits.resources.is_empty() || self.policy.is_some()
    }

    /// The most that a NodeClaim of these instance types can cost, for the limit of its policy; nothing without one.
    pub(super) fn policy_price(&self, types: &Bits) -> MicroUsd {
        let policy = self.policy.as_ref();
        policy.map_or(MicroUsd(0), |policy| policy.price(types))
    }

    /// Whether no node of the NodePool has the label: neither the NodePool nor any instance type mentions it.
    pub(super) fn never_has(&self, key: &str) -> bool {
        self.requirements
            .get(key)
            .is_none_or(|own| own.is_empty() && own.allows_absence())
            && self.catalog.table().values(key).next().is_none()
    }

    /// The instance types that the limits still allow; `None` when they allow all.
    pub(super) fn within_limits(&self) -> Option<Bits> {
        let headroom = |name: &str, limit: i64| limit.saturating_sub(self.usage.capacity.get(name));
        let tight: Vec<(&str, i64)> = self
            .limits
            .resources
            .iter()
            .map(|(name, limit)| (name.as_str(), headroom(name, *limit)))
            .filter(|(name, headroom)| self.largest.get(name) > *headroom)
            .collect();
        let policy = self.policy.as_ref().filter(|policy| !policy.allows_all());
        if tight.is_empty() && policy.is_none() {
            return None;
        }
        let mut left = self.types.clone();
        if let Some(policy) = policy {
            policy.narrow(&mut left);
        }
        if tight.is_empty() {
            return Some(left);
        }
        for (at, each) in self.catalog.types().iter().enumerate() {
            if tight
                .iter()
                .any(|(name, headroom)| each.capacity.get(name) > *headroom)
            {
                left.remove(at);
            }
        }
        Some(left)
    }

    /// Which limit excludes the smallest of these instance types; empty when none does.
    pub(super) fn excluding_limit(&self, types: &Bits) -> String {
        let smallest = |name: &str| {
            let of = types.iter().filter_map(|at| self.catalog.types().get(at));
            of.map(|each| each.capacity.get(name)).min()
        };
        let own = super::messages::limit(&self.limits.resources, &self.usage.capacity, smallest);
        let of_policy = self.policy.as_ref().map(|policy| policy.excluding(types));
        let texts = [own, of_policy.unwrap_or_default()];
        let texts: Vec<String> = texts.into_iter().filter(|text| !text.is_empty()).collect();
        texts.join("; ")
    }

    fn measured(mut self) -> Self {
        self.largest = self.most(&self.types);
        self
    }

    /// Capacity of an instance type for pods, flat.
    pub(super) fn net(&self, at: usize) -> &[i64] {
        self.net
            .get(at * self.width..(at + 1) * self.width)
            .unwrap_or_default()
    }

    /// Per resource, the largest amount among these instance types.
    pub(super) fn most(&self, types: &Bits) -> Resources {
        let mut most = Resources::zero();
        for each in types.iter().filter_map(|at| self.catalog.types().get(at)) {
            let own = &each.capacity;
            most.cpu = most.cpu.max(own.cpu);
            most.memory = most.memory.max(own.memory);
            most.pods = most.pods.max(own.pods);
            most.ephemeral_storage = most.ephemeral_storage.max(own.ephemeral_storage);
            if !own.extended.is_empty() {
                most = most.max(own);
            }
        }
        most
    }
}

/// Whether a NodeClaim of the NodePool is not registered yet.
fn is_trying(snapshot: &Snapshot, pool: &PoolName) -> bool {
    let comes = |node: &Arc<mortise_state::snapshot::StateNode>| {
        node.is_managed() && !node.registered && !node.deleting
    };
    snapshot
        .ledger
        .expected_claims()
        .values()
        .any(|coming| coming.pool == *pool)
        || snapshot.nodes_of_pool(pool).any(comes)
}

/// Capacity of the groups' instance types, flat; a NodePool that uses a few types of a large catalog pays only for these.
fn net(
    table: &InstanceTypeTable,
    groups: &[DaemonSetGroup],
    dimensions: &ResourceDimensions,
) -> Vec<i64> {
    let width = dimensions.len();
    let mut net = vec![0; table.type_count() * width];
    for group in groups {
        let taken = dimensions.flat(&group.overhead.requests);
        for at in group.types.iter() {
            let (Some(own), Some(left)) = (
                table.allocatable().get(at),
                net.get_mut(at * width..(at + 1) * width),
            ) else {
                continue;
            };
            left.copy_from_slice(&dimensions.flat(own));
            subtract(left, &taken);
        }
    }
    net
}

fn requirements(pool: &NodePool) -> Requirements {
    let mut all = pool.requirements();
    let class = &pool.spec.template.spec.node_class_ref;
    all.add(Requirement::is(
        labels::node_class_key(&class.group, &class.kind),
        class.name.as_str(),
    ));
    // DaemonSets may select labels that every node gets eventually.
    for label in [labels::REGISTERED, labels::INITIALIZED] {
        all.add(Requirement::is(label, "true"));
    }
    all
}

fn groups(
    table: &InstanceTypeTable,
    types: &Bits,
    daemons: &DaemonSetPods,
    taints: &[Taint],
    requirements: &Requirements,
    known: &WellKnown,
) -> Vec<DaemonSetGroup> {
    let mut runs: Vec<(usize, Bits)> = Vec::new();
    for at in daemons.running_on(taints, requirements, known) {
        let Some(daemon) = daemons.all().get(at) else {
            continue;
        };
        let mut on = Bits::none(table.type_count());
        for asked in &daemon.class.strict {
            if requirements.is_compatible(asked, known) {
                on.or(&table.meeting(asked));
            }
        }
        runs.push((at, on));
    }
    let mut by_daemons: BTreeMap<Vec<usize>, Bits> = BTreeMap::new();
    for at in types.iter() {
        let on = runs
            .iter()
            .filter(|(_, on)| on.has(at))
            .map(|(daemon, _)| *daemon)
            .collect();
        by_daemons
            .entry(on)
            .or_insert_with(|| Bits::none(table.type_count()))
            .insert(at);
    }
    let overhead = |daemons_on: Vec<usize>| {
        let mut overhead = DaemonSetOverhead::default();
        for daemon in daemons_on
            .into_iter()
            .filter_map(|at| daemons.all().get(at))
        {
            overhead.requests.add_assign(&daemon.class.requests);
            overhead
                .host_ports
                .extend(daemon.class.host_ports.iter().cloned());
        }
        overhead.host_ports.sort_unstable();
        overhead
    };
    by_daemons
        .into_iter()
        .map(|(on, types)| DaemonSetGroup {
            types,
            overhead: overhead(on),
        })
        .collect()
}
