//! Fills the constraints of a pass with what is there: domains, and pods that run.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use foldhash::fast::FixedState;

use super::fits::labels_of;
use super::host::Host;
use super::template::Template;
use super::topology::{Filter, Kind, NO_DOMAIN, Statement, Topology};
use crate::apis::k8s;
use crate::names::Uid;
use crate::pods::PodTerm;
use crate::requirements::{Operator, Requirements};
use crate::snapshot::{Pod, Snapshot, StateNode};

/// The statement of a pod affinity or anti-affinity term of a pod in `own`.
pub(super) fn statement(
    kind: Kind,
    term: &PodTerm,
    own: &Arc<str>,
    snapshot: &Snapshot,
) -> Statement {
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
    Statement {
        kind,
        key: Arc::clone(&term.key),
        namespaces,
        selector: term.selector.clone(),
        filter: Filter::default(),
    }
}

/// Groups that bound pods with required anti-affinity put around themselves, with the machines they are on; only those
/// that concern pods of the pass.
pub(super) fn repelling<'a>(
    snapshot: &'a Snapshot,
    topology: &mut Topology,
    leaving: &dyn Fn(&Uid) -> bool,
    concerns: &dyn Fn(&Statement) -> bool,
) -> Vec<(usize, &'a StateNode)> {
    let mut all = Vec::new();
    // Classes are shared: their address tells them apart. Only looked up, never iterated.
    let mut known: HashMap<usize, Vec<usize>, FixedState> = HashMap::default();
    let guarded = snapshot.nodes.values().filter(|node| node.guarded);
    for node in guarded.filter(|node| node.node.is_some()) {
        let guards = node
            .pods
            .iter()
            .filter(|pod| !pod.class.anti_affinity.required.is_empty());
        for pod in guards.filter(|pod| !pod.is_terminal() && !leaving(&pod.uid)) {
            let address = Arc::as_ptr(&pod.class).cast::<()>() as usize;
            let groups = known.entry(address).or_insert_with(|| {
                let terms = pod.class.anti_affinity.required.iter();
                let statements = terms
                    .map(|term| statement(Kind::Repelled, term, &pod.class.namespace, snapshot))
                    .filter(|statement| concerns(statement));
                statements
                    .map(|statement| topology.group(statement))
                    .collect()
            });
            all.extend(groups.iter().map(|group| (*group, &**node)));
        }
    }
    all
}

/// Everything that is counted before the first pod is placed.
pub(super) struct Census<'a> {
    /// The cluster.
    pub(super) snapshot: &'a Snapshot,
    /// Pools.
    pub(super) templates: &'a [Template],
    /// Machines that take pods; host names are numbered in this order.
    pub(super) hosts: &'a [Host<'a>],
    /// What [`repelling`] found.
    pub(super) repelling: Vec<(usize, &'a StateNode)>,
}

impl Census<'_> {
    /// Registers domains and counts bound pods; those for which `leaving` holds are placed anew and do not count.
    pub(super) fn take(&self, topology: &mut Topology, leaving: &dyn Fn(&Uid) -> bool) {
        if topology.groups.is_empty() {
            return;
        }
        self.name_domains(topology);
        self.register(topology);
        self.count(topology, leaving);
    }

    fn nodes(&self) -> impl Iterator<Item = &StateNode> {
        self.snapshot
            .nodes
            .values()
            .filter(|node| node.node.is_some())
            .map(|node| &**node)
    }

    fn name_domains(&self, topology: &mut Topology) {
        for key in topology.keys.iter_mut().filter(|key| !key.is_host) {
            let mut values: BTreeSet<Arc<str>> = BTreeSet::new();
            for template in self.templates {
                values.extend(template_domains(template, &key.name));
            }
            for node in self.nodes() {
                values.extend(node.label(&key.name).map(Arc::from));
            }
            values.extend(
                self.hosts
                    .iter()
                    .filter_map(|host| host.value(&key.name))
                    .map(Arc::from),
            );
            key.domains = values.into_iter().collect();
        }
    }

    /// A domain exists for a group when a pool can make a node there, or a node that counts is there.
    fn register(&self, topology: &mut Topology) {
        let Topology { keys, groups, .. } = topology;
        for group in groups.iter_mut() {
            let key = &keys[group.key];
            if key.is_host {
                continue;
            }
            group.counts = vec![NO_DOMAIN; key.domains.len()];
            let filter = &group.statement.filter;
            for template in self.templates {
                let tolerated = Filter {
                    labels: Vec::new(),
                    tolerations: filter.tolerations.clone(),
                };
                if !tolerated.admits(&template.taints, &Requirements::new()) {
                    continue;
                }
                let values = template_domains(template, &key.name);
                values
                    .iter()
                    .filter_map(|value| key.domain(value))
                    .for_each(|domain| group.counts[domain] = 0);
            }
            for node in self.nodes() {
                if let Some(domain) = node.label(&key.name).and_then(|value| key.domain(value))
                    && group.counts[domain] == NO_DOMAIN
                    && counts_on(filter, node)
                {
                    group.counts[domain] = 0;
                }
            }
        }
    }

    fn count(&self, topology: &mut Topology, leaving: &dyn Fn(&Uid) -> bool) {
        let host_of: HashMap<&str, usize, FixedState> = self
            .hosts
            .iter()
            .enumerate()
            .map(|(at, host)| (&*host.node.key, at))
            .collect();
        for (group, node) in &self.repelling {
            record(topology, *group, node, host_of.get(&*node.key).copied());
        }
        let counts_pods = |group: &super::topology::Group| group.statement.kind != Kind::Repelled;
        if !topology.groups.iter().any(counts_pods) {
            return;
        }
        let mut members: Members<'_> = HashMap::default();
        for node in self.nodes() {
            let host = host_of.get(&*node.key).copied();
            for pod in &node.pods {
                if pod.is_terminal() || pod.deleted.is_some() {
                    continue;
                }
                let counted = members.entry((
                    Arc::as_ptr(&pod.labels).cast::<()>() as usize,
                    &pod.key.namespace,
                ));
                let counted = counted.or_insert_with(|| counting(topology, pod));
                if counted.is_empty() || leaving(&pod.uid) {
                    continue;
                }
                for group in counted.iter() {
                    let filter = &topology.groups[*group].statement.filter;
                    if filter.is_open() || counts_on(filter, node) {
                        record(topology, *group, node, host);
                    }
                }
            }
        }
    }
}

/// Groups by label set (by address: equal sets are shared) and namespace. Only looked up, never iterated.
type Members<'a> = HashMap<(usize, &'a Arc<str>), Vec<usize>, FixedState>;

/// The groups that count a pod.
fn counting(topology: &Topology, pod: &Pod) -> Vec<usize> {
    let all = topology.groups.iter().enumerate();
    let counted = all.filter(|(_, group)| {
        group.statement.kind != Kind::Repelled
            && group.statement.selects(&pod.key.namespace, &pod.labels)
    });
    counted.map(|(at, _)| at).collect()
}

fn record(topology: &mut Topology, group: usize, node: &StateNode, host: Option<usize>) {
    let key = &topology.keys[topology.groups[group].key];
    let domain = if key.is_host {
        host
    } else {
        node.label(&key.name).and_then(|value| key.domain(value))
    };
    match domain {
        Some(domain) => topology.groups[group].record(domain),
        // A machine that takes no pods has no number, but who is there is there.
        None if key.is_host => topology.groups[group].occupied += 1,
        None => {}
    }
}

fn counts_on(filter: &Filter, node: &StateNode) -> bool {
    if filter.is_open() {
        return true;
    }
    let spec = node.node.as_ref().map(|node| &node.spec);
    let taints = spec.map_or(&[][..], |spec| &spec.taints);
    filter.admits(taints, &labels_of(node))
}

/// The values of a label that nodes of a pool can have.
fn template_domains(template: &Template, key: &str) -> BTreeSet<Arc<str>> {
    let own = template.requirements.get(key);
    let mut values: BTreeSet<Arc<str>> = template.catalog.table().values(key).cloned().collect();
    values.retain(|value| own.is_none_or(|own| own.has(value)));
    if let Some(own) = own.filter(|own| own.operator() == Operator::In) {
        values.extend(own.values().iter().cloned());
    }
    values
}
