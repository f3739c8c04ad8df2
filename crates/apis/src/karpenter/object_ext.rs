//! What deciders ask of API objects: names, keys and parsed parts.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Taint;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::karpenter::nodeclaim::NodeClaim;
use crate::karpenter::nodepool::NodePool;
use crate::names::{ClaimName, NodeClassKey, PoolName, Uid};
use crate::requirements::{Operator, Requirement, Requirements};
use crate::resources::{NODES, PoolLimits, Resources};
use crate::schema::conditions::{self, ConditionStatus};
use crate::schema::groups::NodeClassRef;
use crate::schema::requirement::RequirementSpec;
use crate::values::{BudgetSet, CompiledBudget, GoDuration, NillableDuration};
use crate::{k8s, labels};

/// The budget of a pool that says nothing.
const DEFAULT_BUDGET: &str = "10%";

impl NodeClassRef {
    /// The reference as a key.
    #[must_use]
    pub fn key(&self) -> NodeClassKey {
        NodeClassKey::new(self.group.as_str(), self.kind.as_str(), self.name.as_str())
    }
}

/// Requirements of a spec list. An entry whose operator the API does not know is refused by the CRD; should one be
/// stored all the same, it matches nothing, so that it can never widen what a claim may launch.
pub fn requirements_of<'a>(specs: impl IntoIterator<Item = &'a RequirementSpec>) -> Requirements {
    let mut all = Requirements::new();
    for spec in specs {
        let requirement = match spec.operator.parse::<Operator>() {
            Ok(operator) => Requirement::new(
                spec.key.as_str(),
                operator,
                spec.values().iter().map(String::as_str),
            )
            .with_min_values(spec.min_values.and_then(|min| u32::try_from(min).ok())),
            Err(_) => Requirement::does_not_exist(spec.key.as_str()),
        };
        all.add(requirement);
    }
    all
}

/// Resource amounts of an object. The API server admits only readable quantities; one that is not readable counts as
/// nothing, which for capacity is the safe side.
#[must_use]
pub fn resources_of(list: &BTreeMap<String, Quantity>) -> Resources {
    Resources::from_api(list).unwrap_or_else(|_| {
        let readable = list.iter().filter_map(|(name, amount)| {
            Resources::from_api(&BTreeMap::from([(name.clone(), amount.clone())])).ok()
        });
        readable.fold(Resources::zero(), |sum, each| sum.add(&each))
    })
}

/// Condition of claims: why their machines are disrupted. While it is True the machine gets no new pods.
pub const DISRUPTION_REASON: &str = "DisruptionReason";
/// Condition of ours on pools: True while launches stop because machines do not register, Unknown with reason
/// [`PROBE_LAUNCH`] while one machine may be tried. It is not there while all is well.
pub const LAUNCHES_PAUSED: &str = "LaunchesPaused";
/// Reason of [`LAUNCHES_PAUSED`] while one machine may be tried.
pub const PROBE_LAUNCH: &str = "ProbeLaunch";

/// Reason of the condition `LaunchedInstance` of a claim that waits until machines of its pool are known to register.
pub const LAUNCH_PAUSED: &str = "LaunchPaused";

/// How far launches of a pool are held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaunchPause<'a> {
    /// None is made; why.
    All(&'a str),
    /// One machine may be tried; why.
    AllButOne(&'a str),
}

/// The object has this finalizer.
#[must_use]
pub fn has_finalizer(meta: &ObjectMeta, finalizer: &str) -> bool {
    meta.finalizers
        .as_ref()
        .is_some_and(|all| all.iter().any(|each| each == finalizer))
}

impl NodeClaim {
    /// When the claim's pods are deleted without eviction. A time that cannot be read is no deadline.
    #[must_use]
    pub fn termination_deadline(&self) -> Option<jiff::Timestamp> {
        self.annotation(labels::TERMINATION_TIMESTAMP)?.parse().ok()
    }

    /// Name of the object.
    #[must_use]
    pub fn name(&self) -> ClaimName {
        self.metadata.name.as_deref().unwrap_or_default().into()
    }

    /// UID of the object.
    #[must_use]
    pub fn uid(&self) -> Option<Uid> {
        self.metadata.uid.as_deref().map(Uid::from)
    }

    /// The cloud's id of its machine, once launched.
    #[must_use]
    pub fn provider_id(&self) -> Option<&str> {
        self.status
            .provider_id
            .as_deref()
            .filter(|id| !id.is_empty())
    }

    /// The most that its machine can have, as planned; `None` where nobody wrote it, or wrote what is no amount.
    #[must_use]
    pub fn planned_capacity(&self) -> Option<Resources> {
        let text = self.annotation(labels::PLANNED_CAPACITY)?;
        let list: BTreeMap<String, Quantity> = serde_json::from_str(text).ok()?;
        let planned = Resources::from_api(&list).ok()?;
        (!planned.is_zero() && !planned.any_negative()).then_some(planned)
    }

    /// Both come from the same decision: one is what became of the other.
    #[must_use]
    pub fn is_same_intent(&self, other: &Self) -> bool {
        let own = self.annotation(labels::INTENT);
        own.is_some() && own == other.annotation(labels::INTENT) && self.pool() == other.pool()
    }

    /// What its machine has is known: status names the machine and says how large it is, or its Node has registered.
    #[must_use]
    pub fn is_measured(&self) -> bool {
        let sized = self.status.capacity.as_ref();
        self.provider_id().is_some()
            && (sized.is_some_and(|sized| !sized.is_empty()) || self.is_true("Registered"))
    }

    /// Pool it belongs to; `None` for a claim that a user made.
    #[must_use]
    pub fn pool(&self) -> Option<PoolName> {
        self.metadata
            .labels
            .as_ref()?
            .get(labels::NODEPOOL)
            .map(|name| name.as_str().into())
    }

    /// Its node class.
    #[must_use]
    pub fn node_class_key(&self) -> NodeClassKey {
        self.spec.node_class_ref.key()
    }

    /// A label's value.
    #[must_use]
    pub fn label(&self, key: &str) -> Option<&str> {
        self.metadata.labels.as_ref()?.get(key).map(String::as_str)
    }

    /// Provider id of its machine: what status says, or what is known already and status does not say yet.
    #[must_use]
    pub fn machine_id(&self) -> Option<&str> {
        self.provider_id()
            .or_else(|| self.annotation(labels::PROVIDER_ID))
    }

    /// An annotation's value.
    #[must_use]
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata
            .annotations
            .as_ref()?
            .get(key)
            .map(String::as_str)
    }

    /// A condition is `True`.
    #[must_use]
    pub fn is_true(&self, condition: &str) -> bool {
        conditions::is_true(&self.status.conditions, condition)
    }

    /// When it expires; `None` for never, or when its `expireAfter` cannot be read.
    #[must_use]
    pub fn expires_at(&self) -> Option<jiff::Timestamp> {
        let text = self.spec.expire_after.as_ref()?;
        let span = NillableDuration::parse(text.as_str()).ok()?.duration()?;
        let created = self.metadata.creation_timestamp.as_ref()?.0;
        Some(
            created
                .checked_add(jiff::SignedDuration::from(span))
                .unwrap_or(jiff::Timestamp::MAX),
        )
    }

    /// Its machine is going away.
    #[must_use]
    pub fn is_instance_terminating(&self) -> bool {
        self.is_true("InstanceTerminating")
    }

    /// What its machine must satisfy.
    #[must_use]
    pub fn requirements(&self) -> Requirements {
        requirements_of(&self.spec.requirements)
    }

    /// Labels that its machine will have, as far as they are known: its own, and every requirement with a single value.
    #[must_use]
    pub fn labels_of_machine(&self) -> BTreeMap<String, String> {
        let mut all = BTreeMap::new();
        for spec in &self.spec.requirements {
            if spec.operator == Operator::In.as_str()
                && let [only] = spec.values()
            {
                all.insert(spec.key.clone(), only.clone());
            }
        }
        all.extend(self.metadata.labels.clone().unwrap_or_default());
        all
    }
}

impl NodePool {
    /// Name of the object.
    #[must_use]
    pub fn name(&self) -> PoolName {
        self.metadata.name.as_deref().unwrap_or_default().into()
    }

    /// Its node class.
    #[must_use]
    pub fn node_class_key(&self) -> NodeClassKey {
        self.spec.template.spec.node_class_ref.key()
    }

    /// Its limits, parsed.
    #[must_use]
    pub fn limits(&self) -> PoolLimits {
        let Some(list) = &self.spec.limits else {
            return PoolLimits::default();
        };
        // Limits are parsed one by one because a limit of zero is a limit, while an amount of zero is none.
        let amount = |name: &str, quantity: &Quantity| {
            resources_of(&BTreeMap::from([(name.to_owned(), quantity.clone())])).get(name)
        };
        PoolLimits {
            nodes: list.get(NODES).map(|quantity| amount(NODES, quantity)),
            resources: list
                .iter()
                .filter(|(name, _)| *name != NODES)
                .map(|(name, quantity)| (name.clone(), amount(name, quantity)))
                .collect(),
        }
    }

    /// What every node of the pool satisfies: requirements, template labels, and the pool's name.
    #[must_use]
    pub fn requirements(&self) -> Requirements {
        let template = &self.spec.template;
        let mut all = requirements_of(&template.spec.requirements);
        for (key, value) in template.labels().into_iter().flatten() {
            all.add(Requirement::is(key.as_str(), value.as_str()));
        }
        all.add(Requirement::is(
            labels::NODEPOOL,
            self.metadata.name.as_deref().unwrap_or_default(),
        ));
        all
    }

    /// Its disruption budgets, in their order; the default where it has none.
    #[must_use]
    pub fn budgets(&self) -> BudgetSet {
        let written = self
            .spec
            .disruption
            .as_ref()
            .and_then(|disruption| disruption.budgets.as_ref());
        let Some(written) = written else {
            let only = CompiledBudget::new(DEFAULT_BUDGET, None, None, None::<[&str; 0]>);
            return std::iter::once(only).collect();
        };
        written
            .iter()
            .map(|budget| {
                let reasons = budget
                    .reasons
                    .as_ref()
                    .map(|reasons| reasons.iter().map(String::as_str));
                let duration = budget
                    .duration
                    .as_ref()
                    .map(|text| GoDuration::parse(text.as_str()));
                match duration.transpose() {
                    Ok(duration) => CompiledBudget::new(
                        &budget.nodes,
                        budget.schedule.as_deref(),
                        duration,
                        reasons,
                    ),
                    // The CRD refuses such a text; should one be stored, nothing is allowed until it is mended.
                    Err(_) => CompiledBudget::new("0", None, None, None::<[&str; 0]>),
                }
            })
            .collect()
    }

    /// Keeps a fixed number of nodes.
    #[must_use]
    pub const fn is_static(&self) -> bool {
        self.spec.replicas.is_some()
    }

    /// Whether launches are paused, as the condition [`LAUNCHES_PAUSED`] says.
    #[must_use]
    pub fn launch_pause(&self) -> Option<LaunchPause<'_>> {
        let condition = conditions::find(&self.status.conditions, LAUNCHES_PAUSED)?;
        match condition.status {
            ConditionStatus::True => Some(LaunchPause::All(&condition.message)),
            ConditionStatus::Unknown => Some(LaunchPause::AllButOne(&condition.message)),
            ConditionStatus::False => None,
        }
    }

    /// Root condition `Ready` is `True`.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        conditions::is_true(&self.status.conditions, "Ready")
    }
}

impl k8s::Node {
    /// The cloud's id of the machine.
    #[must_use]
    pub fn provider_id(&self) -> Option<&str> {
        self.spec.provider_id.as_deref().filter(|id| !id.is_empty())
    }

    /// A condition by type.
    #[must_use]
    pub fn condition(&self, type_: &str) -> Option<&k8s::ObjectCondition> {
        k8s::find_condition(&self.status.conditions, type_)
    }

    /// It carries a taint with this key and effect.
    #[must_use]
    pub fn has_taint(&self, key: &str, effect: &str) -> bool {
        self.spec
            .taints
            .iter()
            .any(|taint: &Taint| taint.key == key && taint.effect == effect)
    }

    /// A label's value.
    #[must_use]
    pub fn label(&self, key: &str) -> Option<&str> {
        self.metadata.labels.as_ref()?.get(key).map(String::as_str)
    }
}
