//! A small cluster drawn from a seed, as objects that a real API server takes.

use std::collections::BTreeSet;

use mortise_apis::values::SplitMix64;
use mortise_cloudprovider::InstanceType;
use serde::Serialize;
use serde_json::{Value, json};

use super::{supply, workload};

/// Label on every object of a scenario; its value is the scenario's number.
pub(crate) const LABEL: &str = "mortise.test/scenario";
/// The gate behind which pods wait for their nodes.
pub(crate) const GATE: &str = "mortise.test/hold";
/// Namespaces of pods, with a label `team` each. They outlive scenarios.
pub(crate) const NAMESPACES: [(&str, &str); 2] = [("agree-a", "red"), ("agree-b", "blue")];
/// Priority classes, none of which evicts pods: this is about room, not about who gets it.
pub(crate) const PRIORITIES: [(&str, i32); 2] = [("agree-high", 1_000), ("agree-low", -10)];
/// CSI driver of all volumes.
pub(crate) const DRIVER: &str = "disk.mortise.test";
/// Zones.
pub(crate) const ZONES: [&str; 3] = ["zone-a", "zone-b", "zone-c"];
/// Label of types that is a number.
pub(crate) const CPUS: &str = "mortise.test/cpus";
/// An extended resource that few types have.
pub(crate) const DEVICE: &str = "mortise.test/device";

/// Scheduling constraints of a pod in addition to CPU, memory and pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Feature {
    /// Nothing but resources.
    Resources,
    /// Sidecars, init containers, pod-level requests.
    Containers,
    /// An extended resource.
    ExtendedResource,
    /// `nodeSelector`.
    NodeSelector,
    /// Required node affinity.
    NodeAffinity,
    /// Preferred node affinity.
    PreferredNode,
    /// Tolerations.
    Tolerations,
    /// Spread that must hold.
    Spread,
    /// Spread that should hold.
    SoftSpread,
    /// Required pod affinity.
    Affinity,
    /// Required pod anti-affinity.
    AntiAffinity,
    /// Preferred pod affinity or anti-affinity.
    PreferredPods,
    /// Host ports.
    HostPorts,
    /// Volumes that are there already.
    BoundVolumes,
    /// Volumes that are made where the pod goes.
    NewVolumes,
    /// A priority class.
    Priority,
}

impl Feature {
    /// All of them, in the order of tables.
    pub const ALL: [Self; 16] = [
        Self::Resources,
        Self::Containers,
        Self::ExtendedResource,
        Self::NodeSelector,
        Self::NodeAffinity,
        Self::PreferredNode,
        Self::Tolerations,
        Self::Spread,
        Self::SoftSpread,
        Self::Affinity,
        Self::AntiAffinity,
        Self::PreferredPods,
        Self::HostPorts,
        Self::BoundVolumes,
        Self::NewVolumes,
        Self::Priority,
    ];

    /// Its name in tables.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Resources => "resources only",
            Self::Containers => "sidecars, pod-level requests",
            Self::ExtendedResource => "extended resource",
            Self::NodeSelector => "node selector",
            Self::NodeAffinity => "required node affinity",
            Self::PreferredNode => "preferred node affinity",
            Self::Tolerations => "tolerations",
            Self::Spread => "spread, DoNotSchedule",
            Self::SoftSpread => "spread, ScheduleAnyway",
            Self::Affinity => "required pod affinity",
            Self::AntiAffinity => "required pod anti-affinity",
            Self::PreferredPods => "preferred pod (anti-)affinity",
            Self::HostPorts => "host ports",
            Self::BoundVolumes => "bound volumes",
            Self::NewVolumes => "volumes to be made",
            Self::Priority => "priority class",
        }
    }
}

/// A pod to be placed.
#[derive(Clone, Debug)]
pub struct DrawnPod {
    /// The object, with its scheduling gate.
    pub object: Value,
    /// What it uses.
    pub features: BTreeSet<Feature>,
}

/// A small cluster.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Its number, part of every name.
    pub number: u64,
    /// What the cloud sells.
    pub types: Vec<InstanceType>,
    /// NodePools. The API server never sees them: they exist for the solver only.
    pub pools: Vec<Value>,
    /// Storage classes, volumes, claims, DaemonSets, nodes and what runs on them, in the order in which they are made.
    pub before: Vec<Value>,
    /// Pods to place, in the order in which they are made.
    pub pods: Vec<DrawnPod>,
}

/// What is being drawn.
pub(crate) struct Drawing {
    pub(crate) rng: SplitMix64,
    pub(crate) number: u64,
    pub(crate) types: Vec<InstanceType>,
    pub(crate) before: Vec<Value>,
    pub(crate) pods: Vec<DrawnPod>,
    /// Feature that this scenario has more of than others.
    pub(crate) theme: Feature,
    /// Kinds of pods by their label `app`, known before the first is drawn.
    pub(crate) apps: Vec<String>,
}

impl Drawing {
    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.rng.below(end as u64)).unwrap_or(0)
    }

    pub(crate) fn one_in(&mut self, chance: usize) -> bool {
        self.below(chance) == 0
    }

    pub(crate) fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        let at = self.below(from.len());
        from.get(at).copied().unwrap_or_default()
    }

    /// Whether the next kind of pods has a feature: in one of `chance` cases, in half of them when it is the theme.
    pub(crate) fn wants(&mut self, feature: Feature, chance: usize) -> bool {
        let chance = if self.theme == feature { 2 } else { chance };
        self.one_in(chance)
    }

    /// A name that no other scenario uses.
    pub(crate) fn name(&self, rest: &str) -> String {
        format!("s{}-{rest}", self.number)
    }

    /// Metadata with the scenario's label.
    pub(crate) fn meta(&self, rest: &str) -> Value {
        json!({"name": self.name(rest), "labels": {LABEL: self.number.to_string()}})
    }
}

impl Scenario {
    /// Draws scenario `number` of a seed.
    #[must_use]
    pub fn draw(seed: u64, number: u64) -> Self {
        let mut rng = SplitMix64::new(seed.wrapping_mul(0x2545_F491_4F6C_DD1D) ^ number);
        let themes = Feature::ALL.len() as u64;
        let theme = usize::try_from(rng.below(themes)).unwrap_or(0);
        let mut drawing = Drawing {
            rng,
            number,
            types: Vec::new(),
            before: Vec::new(),
            pods: Vec::new(),
            theme: Feature::ALL
                .get(theme)
                .copied()
                .unwrap_or(Feature::Resources),
            apps: Vec::new(),
        };
        supply::types(&mut drawing);
        let pools = supply::pools(&mut drawing);
        supply::storage_classes(&mut drawing);
        supply::daemon_sets(&mut drawing);
        let kinds = 3 + drawing.below(4);
        drawing.apps = (0..kinds).map(|at| format!("app-{at}")).collect();
        supply::nodes(&mut drawing);
        workload::draw(&mut drawing);
        let Drawing {
            types,
            before,
            pods,
            ..
        } = drawing;
        Self {
            number,
            types,
            pools,
            before,
            pods,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_one_scenario() {
        let text = |number| {
            let Scenario {
                types,
                pools,
                before,
                pods,
                ..
            } = Scenario::draw(7, number);
            format!("{types:?} {pools:?} {before:?} {pods:?}")
        };
        assert_eq!(text(3), text(3));
        assert_ne!(text(3), text(4));
    }

    #[test]
    fn scenarios_use_every_feature() {
        let mut used: BTreeSet<Feature> = BTreeSet::new();
        for number in 0..60 {
            let pods = Scenario::draw(1, number).pods;
            assert!(!pods.is_empty());
            used.extend(pods.iter().flat_map(|pod| pod.features.iter().copied()));
        }
        assert_eq!(used.len(), Feature::ALL.len(), "{used:?}");
    }
}
