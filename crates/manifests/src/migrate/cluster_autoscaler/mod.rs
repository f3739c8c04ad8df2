//! Node groups and the flags of Cluster Autoscaler, as NodePools, node classes, policies and flags of `mortise serve`.
//!
//! ```text
//! documents ─► input ─┬─► command ─► settings       (flags: one table, an answer to each)
//!                     ├─► eksctl, eks, scaling_group ─► groups (fields: a table for each format)
//!                     └─► priorities ─► weights
//! groups ─► merge ─► node_class, node_pool ─► objects
//! ```
//!
//! The result launches what the groups launched: defaults of Cluster Autoscaler and eksctl are written out, and everything
//! that changes is a finding.
//!
//! Must never: drop a flag or a field without a finding; guess a value that only the user knows.

mod command;
mod eks;
mod eksctl;
mod fields;
mod flags;
mod group;
mod images;
mod input;
mod merge;
mod node_class;
mod node_pool;
mod priorities;
mod scaling_group;
mod settings;
#[cfg(test)]
mod tests;

use crate::yaml::{Style, YamlNode, yaml};

use super::finding::{Code, FindingLog, MigrationFinding};
use super::{MigrateOptions, Migrated, SourceFile};
use group::NodeGroup;
use input::{GroupInput, gather};
use merge::{MergedGroups, merge};
use node_pool::{DEFAULT_WAIT, PlannedPool};

/// Name of the file with all objects.
const OUTPUT: &str = "nodepools.yaml";
/// Kind and name of findings that concern all NodePools.
const ALL_POOLS: &str = "NodePools";

/// Converts node groups and flags. The objects are in one file, node classes first.
#[must_use]
pub fn from_cluster_autoscaler(sources: &[SourceFile], options: &MigrateOptions) -> Migrated {
    let mut findings = Vec::new();
    let mut input = gather(sources, &mut findings);
    sized_by_flags(&mut input, sources, &mut findings);
    weights(&mut input, sources, &mut findings);
    startup_taints(&mut input);
    let cluster = cluster(&input, options, sources, &mut findings);
    for group in &mut input.groups {
        group.class.cluster = group.class.cluster.take().or_else(|| cluster.clone());
    }
    let mut migrated = Migrated {
        untouched: input.others,
        ..Migrated::default()
    };
    if input.groups.is_empty() {
        nothing(&input, sources, &mut findings);
    }
    let groups = merge(std::mem::take(&mut input.groups));
    let (objects, pools) = objects(
        &groups,
        &input,
        cluster.as_deref(),
        options,
        (sources, &mut findings),
    );
    migrated.changed = objects.len();
    if pools.iter().any(PlannedPool::is_static) {
        input.settings.gates.insert("StaticCapacity");
    }
    if !pools.is_empty() || input.autoscaler.is_some() {
        migrated.flags = serve_flags(&input, cluster.as_deref());
        migrated.files.push(SourceFile {
            name: OUTPUT.to_owned(),
            text: written(&objects, &migrated.flags),
        });
    }
    findings.sort_by_cached_key(|finding| {
        let file = sources
            .iter()
            .position(|source| source.name == finding.file);
        // What a group becomes is said before what is wrong with it; findings without a line are the last.
        (
            file,
            finding.line == 0,
            finding.line,
            finding.code != Code::Version,
        )
    });
    migrated.findings = findings;
    migrated
}

/// A log about an object of a source.
fn log_of<'a>(
    sources: &'a [SourceFile],
    file: usize,
    object: &str,
    findings: &'a mut Vec<MigrationFinding>,
) -> FindingLog<'a> {
    FindingLog {
        file: sources.get(file).map_or("", |source| &source.name),
        object: object.to_owned(),
        findings,
    }
}

/// The log of Cluster Autoscaler, or of the first source.
fn log_of_flags<'a>(
    input: &GroupInput,
    sources: &'a [SourceFile],
    findings: &'a mut Vec<MigrationFinding>,
) -> FindingLog<'a> {
    let (file, object) = input
        .autoscaler
        .clone()
        .unwrap_or_else(|| (0, "input".to_owned()));
    log_of(sources, file, &object, findings)
}

/// Sizes that flags say instead of the groups; a flag whose group is not in the input is reported.
fn sized_by_flags(
    input: &mut GroupInput,
    sources: &[SourceFile],
    findings: &mut Vec<MigrationFinding>,
) {
    let sized = std::mem::take(&mut input.settings.groups);
    let mut log = log_of_flags(input, sources, findings);
    for flag in sized {
        let Some(group) = input
            .groups
            .iter_mut()
            .find(|group| group.is_called(&flag.name))
        else {
            log.error(Code::Missing, flag.line, "--nodes", format!("{} is not in the input: pass the output of `aws autoscaling describe-auto-scaling-groups` too", flag.name));
            continue;
        };
        log.converted(
            Code::Moved,
            flag.line,
            "--nodes",
            format!(
                "{} to {} nodes: sizes of {}",
                flag.minimum, flag.maximum, group.object
            ),
        );
        group.minimum = flag.minimum;
        group.maximum = Some(flag.maximum);
    }
}

fn weights(input: &mut GroupInput, sources: &[SourceFile], findings: &mut Vec<MigrationFinding>) {
    match (input.settings.by_priority, &input.priorities) {
        (Some(line), None) => log_of_flags(input, sources, findings).warning(Code::Missing, line, "--expander", format!("the ConfigMap {} is not in the input, or holds nothing: write weight into the NodePools", priorities::PRIORITIES)),
        (None, Some(found)) if input.autoscaler.is_some() => log_of(sources, found.file, &found.object, findings).converted(Code::Removed, found.line, "", "is not needed: --expander is not priority"),
        (_, Some(found)) => found.weigh(&mut input.groups, &mut log_of(sources, found.file, &found.object, findings)),
        (None, None) => {}
    }
}

fn startup_taints(input: &mut GroupInput) {
    let names = &input.settings.startup_taints;
    for group in &mut input.groups {
        let (startup, others) = group
            .pool
            .taints
            .drain(..)
            .partition(|taint| names.contains(&taint.key));
        group.pool.startup_taints = startup;
        group.pool.taints = others;
    }
}

/// The name of the cluster: as specified, or as the flags or the groups say. Groups of two clusters are reported.
fn cluster(
    input: &GroupInput,
    options: &MigrateOptions,
    sources: &[SourceFile],
    findings: &mut Vec<MigrationFinding>,
) -> Option<String> {
    let known = options
        .cluster_name
        .clone()
        .or_else(|| input.settings.cluster.clone());
    let of = |group: &NodeGroup| group.class.cluster.clone();
    let first = known.or_else(|| input.groups.iter().find_map(of));
    for group in &input.groups {
        if let (Some(own), Some(first)) = (&group.class.cluster, &first)
            && own != first
        {
            log_of(sources, group.file, &group.object, findings).error(Code::Unsupported, group.line, "", format!("is of cluster {own}, and the others of {first}: convert each cluster on its own"));
        }
    }
    first
}

/// There is no node group.
fn nothing(input: &GroupInput, sources: &[SourceFile], findings: &mut Vec<MigrationFinding>) {
    let how = "pass a ClusterConfig of eksctl, or the output of `aws eks describe-nodegroup` or `aws autoscaling describe-auto-scaling-groups`";
    if findings
        .iter()
        .any(|finding| finding.level == super::MigrationLevel::Error)
    {
        return;
    }
    log_of_flags(input, sources, findings).error(
        Code::Missing,
        0,
        "",
        format!("has no node groups: {how}"),
    );
}

/// The objects in the order of the output, and the NodePools among them.
fn objects(
    groups: &[MergedGroups],
    input: &GroupInput,
    cluster: Option<&str>,
    options: &MigrateOptions,
    report: (&[SourceFile], &mut Vec<MigrationFinding>),
) -> (Vec<YamlNode>, Vec<PlannedPool>) {
    let (sources, findings) = report;
    let settings = &input.settings;
    let (of_pools, classes) = node_class::plan(groups, cluster);
    let (mut objects, mut pools) = (Vec::new(), Vec::new());
    for class in &classes {
        let Some(first) = groups.get(class.first) else {
            continue;
        };
        let mut log = log_of(
            sources,
            first.group.file,
            &format!("EC2NodeClass {}", class.name),
            findings,
        );
        objects.push(class.object(options, first.group.line, &mut log));
    }
    let mut taken: Vec<String> = groups.iter().map(|merged| merged.name.clone()).collect();
    for (merged, class) in groups.iter().zip(of_pools) {
        merged.report(sources, findings);
        let group = &merged.group;
        let class = classes.get(class).map_or("", |class| &class.name);
        let mut log = log_of(sources, group.file, &group.object, findings);
        if group.values(mortise_apis::labels::INSTANCE_TYPE).is_empty()
            && group
                .pool
                .requirements
                .iter()
                .all(|(key, ..)| !key.contains("/instance-"))
        {
            log.error(Code::Missing, group.line, "", format!("has no instance types that are known: write a requirement on node.kubernetes.io/instance-type into NodePool {}, or it launches any", merged.name));
        }
        pools.extend(node_pool::plan(
            &merged.name,
            class,
            group,
            &mut taken,
            &mut log,
        ));
    }
    objects.extend(pools.iter().map(|pool| pool.object(settings)));
    if !pools.is_empty() {
        of_all(&pools, input, sources, findings);
        let mut log = log_of_flags(input, sources, findings);
        objects.extend(node_pool::policies(&pools, settings, &mut log));
    }
    (objects, pools)
}

/// Findings that concern every NodePool.
fn of_all(
    pools: &[PlannedPool],
    input: &GroupInput,
    sources: &[SourceFile],
    findings: &mut Vec<MigrationFinding>,
) {
    let Some(first) = pools.first() else {
        return;
    };
    let settings = &input.settings;
    let limited: Vec<&str> = pools
        .iter()
        .filter(|pool| !pool.is_static())
        .map(|pool| pool.name.as_str())
        .collect();
    let text = match (limited.as_slice(), pools.len()) {
        (_, 1) => "",
        ([], _) => "NodePools with replicas cannot have it",
        ([_], _) => "NodePools with replicas cannot have it, and do not count",
        _ => {
            "each NodePool has all of it: together they may have more. Lower it, or limit nodes or dollars of all by a NodePoolPolicy"
        }
    };
    let totals = [
        ("--cores-total", settings.cores),
        ("--memory-total", settings.memory),
    ];
    for (flag, limit) in totals {
        if let Some((_, line)) = limit.filter(|_| !text.is_empty()) {
            log_of_flags(input, sources, findings).warning(Code::Behaviour, line, flag, text);
        }
    }
    let mut log = log_of(sources, first.group.file, ALL_POOLS, findings);
    for names in node_pool::rivals(pools) {
        log.warning(Code::Behaviour, 0, "spec.weight", format!("{} take the same pods at equal weight: the last by name is used. Write weight into them, or make them one NodePool with all instance types: the cheapest is launched then", names.join(", ")));
    }
    if settings.consolidate_after.is_none() {
        log.converted(
            Code::Added,
            0,
            "spec.disruption.consolidateAfter",
            format!("{DEFAULT_WAIT}, the default of --scale-down-unneeded-time; less saves more"),
        );
    }
    log.converted(
        Code::Added,
        0,
        "spec.template.spec.expireAfter",
        "Never, as before; the default is 720h",
    );
}

/// Flags of `mortise serve`, in the order of their names.
fn serve_flags(input: &GroupInput, cluster: Option<&str>) -> Vec<String> {
    let mut flags = input.settings.serve.clone();
    flags.insert("provider", "aws".to_owned());
    flags.insert("respect-cluster-autoscaler-annotations", "true".to_owned());
    if let Some(name) = cluster {
        flags.insert("cluster-name", name.to_owned());
    }
    if !input.settings.gates.is_empty() {
        let gates: Vec<String> = input
            .settings
            .gates
            .iter()
            .map(|gate| format!("{gate}=true"))
            .collect();
        flags.insert("feature-gates", gates.join(","));
    }
    flags
        .into_iter()
        .map(|(name, value)| format!("--{name}={value}"))
        .collect()
}

/// The objects after a comment with the flags.
fn written(objects: &[YamlNode], flags: &[String]) -> String {
    let mut text = String::from("# Flags of `mortise serve` that belong to these objects:\n");
    for flag in flags {
        text.push_str(&format!("#   {flag}\n"));
    }
    let all: Vec<String> = objects
        .iter()
        .map(|object| yaml(object, Style::default()))
        .collect();
    text.push_str(&all.join("---\n"));
    text
}
