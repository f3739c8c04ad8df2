//! The NodePools of node groups, and the NodePoolPolicies for what concerns several of them.

use mortise_apis::labels::{OS, OS_LINUX, OS_WINDOWS, TOPOLOGY_ZONE};
use mortise_apis::schema::groups::{GROUP, OWN_GROUP, V1ALPHA1};
use mortise_aws_class::labels::GROUP as AWS_GROUP;

use super::group::{GroupTaint, NodeGroup};
use super::images::is_windows;
use super::merge::unique;
use super::settings::AutoscalerSettings;
use crate::migrate::edit::new_object;
use crate::migrate::finding::{Code, FindingLog};
use crate::yaml::YamlNode;

/// How long a node is unneeded before Cluster Autoscaler removes it, without a flag.
pub(super) const DEFAULT_WAIT: &str = "10m";

/// How many nodes a NodePool has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PoolSize {
    /// As many as pods need, up to a limit.
    UpTo(Option<u64>),
    Exactly(u64),
}

/// A NodePool that is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PlannedPool {
    pub(super) name: String,
    pub(super) class: String,
    pub(super) group: NodeGroup,
    size: PoolSize,
}

/// One NodePool for a group; a second one for the nodes that are always there. `taken` has the names of all others.
pub(super) fn plan(
    name: &str,
    class: &str,
    group: &NodeGroup,
    taken: &mut Vec<String>,
    log: &mut FindingLog<'_>,
) -> Vec<PlannedPool> {
    let pool = |name: String, size| PlannedPool {
        name,
        class: class.to_owned(),
        group: group.clone(),
        size,
    };
    let least = group.minimum;
    if least == 0 {
        return vec![pool(name.to_owned(), PoolSize::UpTo(group.maximum))];
    }
    let keep = "(feature gate StaticCapacity). To pay for nodes only when pods need them, remove it; to keep room for pods, write a CapacityBuffer";
    if group.maximum == Some(least) {
        log.warning(
            Code::Moved,
            group.line,
            "",
            format!("has {least} nodes at all times: NodePool {name} has replicas: {least} {keep}"),
        );
        return vec![pool(name.to_owned(), PoolSize::Exactly(least))];
    }
    let second = unique(&format!("{name}-minimum"), taken);
    taken.push(second.clone());
    log.warning(
        Code::Moved,
        group.line,
        "",
        format!("has at least {least} nodes: NodePool {second} has replicas: {least} {keep}"),
    );
    let rest = group.maximum.map(|most| most.saturating_sub(least));
    vec![
        pool(second, PoolSize::Exactly(least)),
        pool(name.to_owned(), PoolSize::UpTo(rest)),
    ]
}

impl PlannedPool {
    /// Has a fixed number of nodes.
    pub(super) const fn is_static(&self) -> bool {
        matches!(self.size, PoolSize::Exactly(_))
    }

    /// The object.
    pub(super) fn object(&self, settings: &AutoscalerSettings) -> YamlNode {
        let name = YamlNode::string(&self.name);
        let mut object = new_object(&format!("{GROUP}/v1"), "NodePool", name);
        let spec = object.make(&["spec"]);
        if let PoolSize::Exactly(nodes) = self.size {
            spec.set("replicas", YamlNode::plain(&nodes.to_string()));
        } else if let Some(weight) = self.group.pool.weight {
            spec.set("weight", YamlNode::plain(&weight.to_string()));
        }
        self.template(spec.make(&["template"]), settings);
        if let PoolSize::UpTo(most) = self.size {
            let mut limits = YamlNode::map();
            let amounts = [
                ("nodes", most, ""),
                ("cpu", settings.cores.map(|(cores, _)| cores), ""),
                ("memory", settings.memory.map(|(memory, _)| memory), "Gi"),
            ];
            for (name, amount, unit) in amounts {
                if let Some(amount) = amount {
                    limits.set(name, YamlNode::plain(&format!("{amount}{unit}")));
                }
            }
            if !limits.entries().is_empty() {
                spec.set("limits", limits);
            }
        }
        self.disruption(spec.make(&["disruption"]), settings);
        object
    }

    fn template(&self, template: &mut YamlNode, settings: &AutoscalerSettings) {
        let pool = &self.group.pool;
        if !pool.labels.is_empty() {
            let labels = template.make(&["metadata", "labels"]);
            for (key, value) in &pool.labels {
                labels.set(key, YamlNode::string(value));
            }
        }
        let spec = template.make(&["spec"]);
        let reference = spec.make(&["nodeClassRef"]);
        reference.set("group", YamlNode::plain(AWS_GROUP));
        reference.set("kind", YamlNode::plain("EC2NodeClass"));
        reference.set("name", YamlNode::string(&self.class));
        let mut requirements: Vec<YamlNode> = pool
            .requirements
            .iter()
            .map(|(key, operator, values)| requirement(key, operator, values))
            .collect();
        let has = |key: &str| !self.group.values(key).is_empty();
        if !self.group.zones.is_empty() && !has(TOPOLOGY_ZONE) {
            requirements.push(requirement(TOPOLOGY_ZONE, "In", &self.group.zones));
        }
        if !has(OS) {
            let windows = self.group.class.family.is_some_and(is_windows);
            let name = if windows { OS_WINDOWS } else { OS_LINUX };
            requirements.push(requirement(OS, "In", &[name.to_owned()]));
        }
        spec.set("requirements", YamlNode::list(requirements));
        for (field, taints) in [
            ("taints", &pool.taints),
            ("startupTaints", &pool.startup_taints),
        ] {
            if !taints.is_empty() {
                spec.set(field, YamlNode::list(taints.iter().map(taint)));
            }
        }
        let age = pool.expire_after.as_deref().unwrap_or("Never");
        spec.set("expireAfter", YamlNode::plain(age));
        if let Some(grace) = &settings.grace_period {
            spec.set("terminationGracePeriod", YamlNode::plain(grace));
        }
    }

    fn disruption(&self, disruption: &mut YamlNode, settings: &AutoscalerSettings) {
        let of_group = self.group.pool.consolidate_after.as_deref();
        let wait = of_group
            .or(settings.consolidate_after.as_deref())
            .unwrap_or(DEFAULT_WAIT);
        disruption.set(
            "consolidationPolicy",
            YamlNode::plain("WhenEmptyOrUnderutilized"),
        );
        disruption.set("consolidateAfter", YamlNode::plain(wait));
        let replaced = self.group.pool.replaced_at_once.as_deref();
        let mut budgets = Vec::new();
        if settings.keeps_all_nodes {
            budgets.push(budget("0", &[]));
        } else {
            budgets.extend(
                settings
                    .removals
                    .map(|nodes| budget(&nodes.to_string(), &[])),
            );
            budgets.extend(
                settings
                    .drains
                    .map(|nodes| budget(&nodes.to_string(), &["Underutilized", "Drifted"])),
            );
            budgets.extend(replaced.map(|nodes| budget(nodes, &["Drifted"])));
            if !budgets.is_empty() && settings.removals.is_none() {
                // The default, which holds only as long as no budget is written.
                budgets.insert(0, budget("10%", &[]));
            }
        }
        if !budgets.is_empty() {
            disruption.set("budgets", YamlNode::list(budgets));
        }
    }
}

/// NodePools among which nothing decides: without replicas, of equal weight and with the same taints.
pub(super) fn rivals(pools: &[PlannedPool]) -> Vec<Vec<&str>> {
    let mut all: Vec<(&PlannedPool, Vec<&str>)> = Vec::new();
    for pool in pools.iter().filter(|pool| !pool.is_static()) {
        let own = &pool.group.pool;
        let is_rival = |(known, _): &&mut (&PlannedPool, Vec<&str>)| {
            let other = &known.group.pool;
            own.weight == other.weight && own.taints == other.taints
        };
        match all.iter_mut().find(is_rival) {
            Some((_, names)) => names.push(&pool.name),
            None => all.push((pool, vec![&pool.name])),
        }
    }
    let several = all.into_iter().map(|(_, names)| names);
    several.filter(|names| names.len() > 1).collect()
}

fn requirement(key: &str, operator: &str, values: &[String]) -> YamlNode {
    let mut all = YamlNode::map();
    all.set("key", YamlNode::string(key));
    all.set("operator", YamlNode::plain(operator));
    all.set("values", YamlNode::texts(values));
    all
}

fn taint(taint: &GroupTaint) -> YamlNode {
    let mut all = YamlNode::map();
    all.set("key", YamlNode::string(&taint.key));
    if !taint.value.is_empty() {
        all.set("value", YamlNode::string(&taint.value));
    }
    all.set("effect", YamlNode::plain(taint.effect));
    all
}

fn budget(nodes: &str, reasons: &[&str]) -> YamlNode {
    let mut budget = YamlNode::map();
    budget.set("nodes", YamlNode::string(nodes));
    if !reasons.is_empty() {
        budget.set("reasons", YamlNode::texts(reasons));
    }
    budget
}

/// What holds for several NodePools: one policy for those with the same share of on-demand capacity. None if there is nothing.
pub(super) fn policies(
    pools: &[PlannedPool],
    settings: &AutoscalerSettings,
    log: &mut FindingLog<'_>,
) -> Vec<YamlNode> {
    let mut shares: Vec<(Option<u32>, Vec<&str>)> = Vec::new();
    for pool in pools {
        let share = pool.group.pool.on_demand_percentage;
        match shares.iter_mut().find(|(known, _)| *known == share) {
            Some((_, names)) => names.push(&pool.name),
            None => shares.push((share, vec![&pool.name])),
        }
    }
    let is_single = shares.len() == 1;
    if let (Some((most, line)), false) = (settings.max_nodes, is_single) {
        log.warning(Code::Behaviour, line, "--max-nodes-total", format!("each of {} NodePoolPolicies has limits.nodes: {most}: together their NodePools may have more", shares.len()));
    }
    let nothing = settings.max_nodes.is_none() && settings.utilization.is_none();
    let mut policies = Vec::new();
    for (share, names) in shares {
        if nothing && share.is_none() {
            continue;
        }
        let of = names.first().copied().unwrap_or_default();
        let name = if is_single {
            "cluster-autoscaler".to_owned()
        } else {
            format!("cluster-autoscaler-{of}")
        };
        let version = format!("{OWN_GROUP}/{V1ALPHA1}");
        let mut object = new_object(&version, "NodePoolPolicy", YamlNode::string(&name));
        let spec = object.make(&["spec"]);
        spec.set("nodePools", YamlNode::texts(&names));
        if let Some((most, _)) = settings.max_nodes {
            spec.make(&["limits"])
                .set("nodes", YamlNode::plain(&most.to_string()));
        }
        if let Some(percent) = share {
            let on_demand = spec.make(&["scaling", "onDemand"]);
            on_demand.set("baseCPU", YamlNode::plain("0"));
            on_demand.set("percentageAboveBase", YamlNode::plain(&percent.to_string()));
        }
        if let Some(percent) = settings.utilization {
            spec.make(&["disruption"]).set(
                "minimumUtilization",
                YamlNode::plain(&format!("{percent}%")),
            );
        }
        policies.push(object);
    }
    policies
}
