//! Fills the topology groups of a pass with the domains and bound pods of the cluster.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use foldhash::fast::FixedState;
use smallvec::SmallVec;

use super::existing_node::ExistingNode;
use super::pool_template::PoolTemplate;
use super::topology::{
    NO_DOMAIN, Topology, TopologyGroup, TopologyGroupKey, TopologyKey, TopologyNodeFilter,
    TopologyType,
};
use mortise_apis::k8s;
use mortise_apis::requirements::{Operator, Requirements};
use mortise_state::catalog::Bits;
use mortise_state::ledger::NominationTarget;
use mortise_state::pods::CompiledAffinityTerm;
use mortise_state::snapshot::{
    NodePodCounts, Pod, PodLabelIndex, PodLabelKey, Snapshot, StateNode,
};

/// The group identity of a pod affinity or anti-affinity term of a pod in namespace `own`.
pub(super) fn statement(
    kind: TopologyType,
    term: &CompiledAffinityTerm,
    own: &Arc<str>,
    snapshot: &Snapshot,
) -> TopologyGroupKey {
    let namespaces = if term.namespaces.is_empty() && term.namespace_selector.is_none() {
        vec![Arc::clone(own)]
    } else {
        let named = term.namespaces.iter().cloned();
        let means = |(name, object): &(&Arc<str>, &Arc<k8s::Namespace>)| {
            term.means_namespace(own, name, object.metadata.labels.as_ref())
        };
        let matching = snapshot.namespaces.iter().filter(means);
        let mut all: Vec<Arc<str>> = named
            .chain(matching.map(|(name, _)| Arc::clone(name)))
            .collect();
        all.sort_unstable();
        all.dedup();
        all
    };
    TopologyGroupKey {
        kind,
        key: Arc::clone(&term.key),
        namespaces,
        selector: term.selector.clone(),
        filter: TopologyNodeFilter::default(),
    }
}

/// Groups of bound pods with required anti-affinity, with their nodes and the number of pods; only those that select pods
/// of the pass.
pub(super) fn inverse_anti_affinity<'a>(
    snapshot: &'a Snapshot,
    topology: &mut Topology,
    leaving: &[&Pod],
    concerns: &dyn Fn(&TopologyGroupKey) -> bool,
) -> Vec<(usize, &'a StateNode, usize)> {
    let mut all = Vec::new();
    for guards in snapshot.pod_labels.anti_affinity_pods() {
        let Some(class) = guards.class() else {
            continue;
        };
        let terms = class.anti_affinity.required.iter();
        let groups: SmallVec<[usize; 2]> = terms
            .map(|term| statement(TopologyType::Repelled, term, &class.namespace, snapshot))
            .filter(|statement| concerns(statement))
            .map(|statement| topology.group(statement))
            .collect();
        if groups.is_empty() {
            continue;
        }
        let goes = |pod: &&&Pod| {
            PodLabelIndex::has_required_anti_affinity(pod) && pod.class.id == class.id
        };
        let leaving: Vec<&Pod> = leaving.iter().filter(goes).copied().collect();
        for (node, count) in staying(snapshot, &guards.places, &leaving) {
            all.extend(groups.iter().map(|group| (*group, node, count)));
        }
    }
    all
}

/// Where a pod is counted: where it is assumed, otherwise where it is bound.
pub(super) fn place_of(snapshot: &Snapshot, pod: &Pod) -> Option<NominationTarget> {
    let bound = || pod.node.clone().map(NominationTarget::Node);
    snapshot.assumed.get(&pod.uid).cloned().or_else(bound)
}

/// The nodes where pods stay, with a count each.
fn staying<'a>(
    snapshot: &'a Snapshot,
    places: &'a NodePodCounts,
    leaving: &[&Pod],
) -> impl Iterator<Item = (&'a StateNode, usize)> {
    let mut left: BTreeMap<NominationTarget, usize> = BTreeMap::new();
    for place in leaving.iter().filter_map(|pod| place_of(snapshot, pod)) {
        *left.entry(place).or_default() += 1;
    }
    places.iter().filter_map(move |(place, count)| {
        let gone = left.get(place).copied().unwrap_or(0);
        let count = usize::try_from(count).unwrap_or(0).checked_sub(gone)?;
        // Of several Nodes with one provider ID only the first counts.
        let is_it = |node: &&Arc<StateNode>| match place {
            NominationTarget::Node(name) => node.names().0 == Some(&**name),
            NominationTarget::Claim(_) => true,
        };
        let node = snapshot.node_at(place).filter(is_it)?;
        (count > 0).then_some((&**node, count))
    })
}

/// Input of the counts before the first placement.
pub(super) struct TopologyCounts<'a> {
    /// The cluster.
    pub(super) snapshot: &'a Snapshot,
    /// Pools.
    pub(super) templates: &'a [PoolTemplate],
    /// Existing nodes; hostnames are numbered in this order.
    pub(super) hosts: &'a [ExistingNode<'a>],
    /// What [`inverse_anti_affinity`] found.
    pub(super) repelling: Vec<(usize, &'a StateNode, usize)>,
    /// Bound pods that the pass places again, which do not count on their nodes.
    pub(super) leaving: &'a [&'a Pod],
}

impl TopologyCounts<'_> {
    /// Registers domains and counts bound pods.
    pub(super) fn count_into(&self, topology: &mut Topology) {
        if topology.groups.is_empty() {
            return;
        }
        let of_nodes = self.name_domains(topology);
        self.register(topology, &of_nodes);
        self.count(topology);
    }

    fn nodes(&self) -> impl Iterator<Item = &StateNode> {
        self.snapshot
            .ordered_nodes
            .iter()
            .filter(|node| node.node.is_some())
            .map(|node| &**node)
    }

    /// Names the domains of every key; returns which of them have a node, by key.
    fn name_domains(&self, topology: &mut Topology) -> Vec<Bits> {
        let name = |key: &mut TopologyKey| {
            if key.is_host {
                return Bits::default();
            }
            let of_nodes = || {
                let values = self.snapshot.label_values.get(&*key.name);
                values.into_iter().flat_map(|values| values.keys())
            };
            let mut values: BTreeSet<Arc<str>> = BTreeSet::new();
            for template in self.templates {
                values.extend(template_domains(template, &key.name));
            }
            values.extend(of_nodes().cloned());
            let coming = self.hosts.iter().filter(|host| host.node.node.is_none());
            let coming = coming.filter_map(|host| host.value(&key.name));
            values.extend(coming.map(Arc::from));
            let domains: Vec<Arc<str>> = values.into_iter().collect();
            let mut bits = Bits::none(domains.len());
            of_nodes()
                .filter_map(|value| domains.binary_search(value).ok())
                .for_each(|domain| bits.insert(domain));
            key.domains = domains;
            bits
        };
        topology.keys.iter_mut().map(name).collect()
    }

    /// A domain exists for a group if a NodePool can launch a node there, or a node that counts is there.
    fn register(&self, topology: &mut Topology, of_nodes: &[Bits]) {
        let Topology { keys, groups, .. } = topology;
        let of_templates: Vec<Vec<Vec<usize>>> = keys
            .iter()
            .map(|key| {
                let of = |template| {
                    let values = template_domains(template, &key.name);
                    let known = values.iter().filter_map(|value| key.domain(value));
                    known.collect()
                };
                if key.is_host {
                    return Vec::new();
                }
                self.templates.iter().map(of).collect()
            })
            .collect();
        for group in groups.iter_mut() {
            let key = &keys[group.key];
            if key.is_host {
                continue;
            }
            group.counts = vec![NO_DOMAIN; key.domains.len()];
            let filter = &group.statement.filter;
            let tolerated = TopologyNodeFilter {
                labels: Vec::new(),
                tolerations: filter.tolerations.clone(),
            };
            for (template, domains) in self.templates.iter().zip(&of_templates[group.key]) {
                if tolerated.is_open() || tolerated.admits(&template.taints, &Requirements::new()) {
                    domains.iter().for_each(|domain| group.counts[*domain] = 0);
                }
            }
            let mut missing = of_nodes[group.key]
                .iter()
                .filter(|domain| group.counts[*domain] == NO_DOMAIN)
                .count();
            if filter.is_open() {
                let domains = of_nodes[group.key].iter();
                domains.for_each(|domain| group.counts[domain] = 0);
                continue;
            }
            for node in self.nodes() {
                if missing == 0 {
                    break;
                }
                if let Some(domain) = node.label(&key.name).and_then(|value| key.domain(value))
                    && group.counts[domain] == NO_DOMAIN
                    && counts_on(filter, node)
                {
                    group.counts[domain] = 0;
                    missing -= 1;
                }
            }
        }
    }

    fn count(&self, topology: &mut Topology) {
        let of_hosts = |group: &TopologyGroup, keys: &[TopologyKey]| keys[group.key].is_host;
        let by_host = topology
            .groups
            .iter()
            .any(|group| of_hosts(group, &topology.keys));
        let hosts = if by_host { self.hosts } else { &[] };
        let host_of: HashMap<&str, usize, FixedState> = hosts
            .iter()
            .enumerate()
            .map(|(at, host)| (&*host.node.key, at))
            .collect();
        for (group, node, count) in &self.repelling {
            let host = host_of.get(&*node.key).copied();
            record(topology, *group, node, host, *count);
        }
        let counts_pods = |group: &TopologyGroup| group.statement.kind != TopologyType::Repelled;
        if !topology.groups.iter().any(counts_pods) {
            return;
        }
        let mut leaving: HashMap<(&str, &[_]), Vec<&Pod>, FixedState> = HashMap::default();
        for pod in self.leaving.iter().filter(|pod| PodLabelIndex::counts(pod)) {
            let of_labels = leaving.entry((&*pod.key.namespace, &pod.labels[..]));
            of_labels.or_default().push(pod);
        }
        for (key, nodes) in self.snapshot.pod_labels.by_labels() {
            let counted = counting(topology, key);
            if counted.is_empty() {
                continue;
            }
            let gone = leaving.get(&(&*key.namespace, &key.labels[..]));
            let gone = gone.map_or(&[][..], Vec::as_slice);
            for (node, count) in staying(self.snapshot, nodes, gone) {
                let host = host_of.get(&*node.key).copied();
                for group in &counted {
                    let filter = &topology.groups[*group].statement.filter;
                    if counts_on(filter, node) {
                        record(topology, *group, node, host, count);
                    }
                }
            }
        }
    }
}

/// The groups that count such pods.
fn counting(topology: &Topology, pods: &PodLabelKey) -> SmallVec<[usize; 4]> {
    let all = topology.groups.iter().enumerate();
    let counted = all.filter(|(_, group)| {
        group.statement.kind != TopologyType::Repelled
            && group.statement.selects(&pods.namespace, &pods.labels)
    });
    counted.map(|(at, _)| at).collect()
}

fn record(
    topology: &mut Topology,
    group: usize,
    node: &StateNode,
    host: Option<usize>,
    count: usize,
) {
    let key = &topology.keys[topology.groups[group].key];
    if key.is_host {
        match host {
            Some(domain) => (0..count).for_each(|_| topology.groups[group].record(domain)),
            // Nodes outside the pass have no hostname index; their pods count nevertheless.
            None => topology.groups[group].occupied += count,
        }
        return;
    }
    let domains = match node.label(&key.name) {
        Some(value) => key.domain(value).into_iter().collect(),
        None if is_unlaunched(node) => {
            let asked = node.claim.as_ref().map(|claim| claim.requirements());
            key.possible(asked.as_ref().and_then(|asked| asked.get(&key.name)))
        }
        None => SmallVec::new(),
    };
    topology.groups[group].record_possible(&domains, count);
}

/// Whether no instance is launched, so that its labels may still become any that its NodeClaim allows.
fn is_unlaunched(node: &StateNode) -> bool {
    node.node.is_none() && node.provider_id().is_none()
}

fn counts_on(filter: &TopologyNodeFilter, node: &StateNode) -> bool {
    if filter.is_open() {
        return true;
    }
    let spec = node.node.as_ref().map(|node| &node.spec);
    let taints = spec.map_or(&node.taints[..], |spec| &spec.taints);
    match &node.claim {
        Some(claim) if is_unlaunched(node) => filter.admits(taints, &claim.requirements()),
        _ => filter.admits_node(taints, node),
    }
}

/// The values of a label that nodes of a pool can have.
fn template_domains(template: &PoolTemplate, key: &str) -> BTreeSet<Arc<str>> {
    let own = template.requirements.get(key);
    let mut values: BTreeSet<Arc<str>> = template.catalog.table().values(key).cloned().collect();
    values.retain(|value| own.is_none_or(|own| own.has(value)));
    if let Some(own) = own.filter(|own| own.operator() == Operator::In) {
        values.extend(own.values().iter().cloned());
    }
    values
}
