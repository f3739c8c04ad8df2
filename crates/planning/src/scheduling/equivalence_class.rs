//! Equivalence classes of one pass: pods that schedule identically.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::FixedState;

use super::devices::DeviceRequirementsId;
use super::narrowed_template::NarrowedTemplates;
use super::pod_requirements::{PodRequirementsId, PodRequirementsTable, TaintSets};
use super::relax::{PreferencePolicy, RelaxationLevel};
use super::resource_vector::ResourceDimensions;
use super::topology::{
    PodTopology, Topology, TopologyGroupKey, TopologyNodeFilter, TopologyType, toleration_text,
};
use super::topology_counts::statement;
use super::volumes::VolumeNeeds;
use mortise_state::pods::SpreadConstraint;
use mortise_state::snapshot::{Pod, PodClass, Snapshot};

/// A relaxation level of a class with its interned requirements.
#[derive(Debug)]
pub(super) struct RelaxationStep<'a> {
    /// Preferences that are left.
    pub(super) stage: RelaxationLevel<'a>,
    /// Its requirements on a node.
    pub(super) ask: PodRequirementsId,
    /// Groups that it must satisfy.
    pub(super) owned: Vec<usize>,
    /// Those of `owned` that count the pod itself. Sorted.
    selects_itself: Vec<usize>,
}

/// Pods that schedule identically.
#[derive(Debug)]
pub(super) struct EquivalenceClass<'a> {
    /// Their class in the cluster.
    pub(super) class: &'a PodClass,
    labels: &'a [(Arc<str>, Arc<str>)],
    namespace: &'a Arc<str>,
    /// Relaxation steps, from all preferences to none. Never empty.
    pub(super) steps: Vec<RelaxationStep<'a>>,
    /// Groups that count these pods.
    pub(super) counted_in: Vec<usize>,
    /// Groups of other pods' anti-affinity that exclude these pods.
    pub(super) inverse_groups: Vec<usize>,
    /// Groups of these pods' required anti-affinity.
    pub(super) anti_affinity_groups: Vec<usize>,
    /// Whether placements of other pods may make the class schedulable later.
    pub(super) depends_on_batch: bool,
    /// Number of placements at the last failure.
    pub(super) failed_at: Option<usize>,
    /// Whether it failed because other NodeClaims of the pass hold the reserved capacity.
    pub(super) lacks_reservation: bool,
}

impl<'a> EquivalenceClass<'a> {
    /// The topology groups that apply to a pod at a step.
    pub(super) fn asking<'s>(&'s self, step: &'s RelaxationStep<'a>) -> PodTopology<'s> {
        PodTopology {
            owned: &step.owned,
            repelled_by: &self.inverse_groups,
            selects_itself: &step.selects_itself,
            strict: step.stage.strict_requirements(),
        }
    }
}

/// Builds the classes of a pass.
pub(super) struct EquivalenceClasses<'a, 's> {
    /// The cluster.
    pub(super) snapshot: &'a Snapshot,
    /// Whether preferences count.
    pub(super) manner: PreferencePolicy,
    /// Resources that count.
    pub(super) dimensions: &'s ResourceDimensions,
    /// Taints that occur.
    pub(super) profiles: &'s TaintSets,
    all: Vec<EquivalenceClass<'a>>,
    ids: HashMap<(usize, usize, VolumeNeeds, Option<DeviceRequirementsId>), usize, FixedState>,
}

impl<'a, 's> EquivalenceClasses<'a, 's> {
    /// No classes yet.
    pub(super) fn new(
        snapshot: &'a Snapshot,
        manner: PreferencePolicy,
        dimensions: &'s ResourceDimensions,
        profiles: &'s TaintSets,
    ) -> Self {
        Self {
            snapshot,
            manner,
            dimensions,
            profiles,
            all: Vec::new(),
            ids: HashMap::default(),
        }
    }

    /// The class of a pod with its volume and device requirements. Equal classes and label sets of the snapshot share one
    /// allocation, so addresses identify them.
    pub(super) fn intern(
        &mut self,
        pod: &'a Pod,
        (volumes, devices): (VolumeNeeds, Option<DeviceRequirementsId>),
        asks: &mut PodRequirementsTable,
        shapes: &mut NarrowedTemplates<'_>,
        topology: &mut Topology,
    ) -> usize {
        let address = (
            Arc::as_ptr(&pod.class).cast::<()>() as usize,
            Arc::as_ptr(&pod.labels).cast::<()>() as usize,
        );
        let key = (address.0, address.1, volumes, devices);
        if let Some(known) = self.ids.get(&key) {
            return *known;
        }
        let class = &*pod.class;
        let steps = RelaxationLevel::all(class, self.manner)
            .into_iter()
            .map(|stage| RelaxationStep {
                ask: asks.intern(
                    class,
                    &stage,
                    (&key.2, key.3),
                    self.dimensions,
                    self.profiles,
                    shapes,
                ),
                owned: self.groups(class, &stage, topology),
                selects_itself: Vec::new(),
                stage,
            });
        let steps = steps.collect();
        let repels = class.anti_affinity.required.iter();
        let repels = repels.map(|term| {
            topology.group(statement(
                TopologyType::Repelled,
                term,
                &class.namespace,
                self.snapshot,
            ))
        });
        self.all.push(EquivalenceClass {
            class,
            labels: &pod.labels,
            namespace: &pod.key.namespace,
            steps,
            counted_in: Vec::new(),
            inverse_groups: Vec::new(),
            anti_affinity_groups: repels.collect(),
            depends_on_batch: false,
            failed_at: None,
            lacks_reservation: false,
        });
        self.ids.insert(key, self.all.len() - 1);
        self.all.len() - 1
    }

    /// Whether a topology group selects pods of some class.
    pub(super) fn concerns(&self, statement: &TopologyGroupKey) -> bool {
        let means = |class: &EquivalenceClass<'_>| statement.selects(class.namespace, class.labels);
        self.all.iter().any(means)
    }

    fn groups(
        &self,
        class: &PodClass,
        stage: &RelaxationLevel<'_>,
        topology: &mut Topology,
    ) -> Vec<usize> {
        let mut owned = Vec::new();
        for spread in &stage.spread {
            owned.push(topology.group(spread_statement(class, stage, spread)));
        }
        for term in &stage.near {
            owned.push(topology.group(statement(
                TopologyType::Near,
                term,
                &class.namespace,
                self.snapshot,
            )));
        }
        for term in &stage.apart {
            owned.push(topology.group(statement(
                TopologyType::Apart,
                term,
                &class.namespace,
                self.snapshot,
            )));
        }
        owned
    }

    /// Assigns each class the groups that concern it, once all groups are known.
    pub(super) fn finish(mut self, topology: &Topology) -> Vec<EquivalenceClass<'a>> {
        for class in &mut self.all {
            let selected = topology
                .groups
                .iter()
                .enumerate()
                .filter(|(_, group)| group.statement.selects(class.namespace, class.labels));
            for (at, group) in selected {
                match group.statement.kind {
                    TopologyType::Repelled => class.inverse_groups.push(at),
                    TopologyType::Spread { .. } | TopologyType::Near | TopologyType::Apart => {
                        class.counted_in.push(at)
                    }
                }
            }
            for step in &mut class.steps {
                let own = step
                    .owned
                    .iter()
                    .copied()
                    .filter(|at| class.counted_in.contains(at));
                step.selects_itself = own.collect();
                step.selects_itself.sort_unstable();
            }
            class.depends_on_batch = class.steps.iter().flat_map(|step| &step.owned).any(|at| {
                match topology.groups[*at].statement.kind {
                    TopologyType::Near => true,
                    TopologyType::Spread { .. } => !topology.is_host(*at),
                    TopologyType::Apart | TopologyType::Repelled => false,
                }
            });
        }
        self.all
    }
}

fn spread_statement(
    class: &PodClass,
    stage: &RelaxationLevel<'_>,
    spread: &SpreadConstraint,
) -> TopologyGroupKey {
    let labels = if spread.honor_affinity {
        stage.strict.to_vec()
    } else {
        Vec::new()
    };
    let open = labels
        .iter()
        .any(mortise_apis::requirements::Requirements::is_empty);
    TopologyGroupKey {
        kind: TopologyType::Spread {
            max_skew: spread.max_skew,
            min_domains: spread.min_domains,
        },
        key: Arc::clone(&spread.key),
        namespaces: vec![Arc::clone(&class.namespace)],
        selector: spread.selector.clone(),
        filter: TopologyNodeFilter {
            labels: if open { Vec::new() } else { labels },
            tolerations: spread
                .honor_taints
                .then(|| class.tolerations.iter().map(toleration_text).collect()),
        },
    }
}
