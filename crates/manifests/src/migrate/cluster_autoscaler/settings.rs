//! What the flags of Cluster Autoscaler say, as settings of NodePools, policies and `mortise serve`.

use std::collections::{BTreeMap, BTreeSet};

use mortise_apis::nearest::nearest;
use mortise_apis::values::GoDuration;

use super::command::FlagUse;
use super::flags::{FLAGS, FlagAnswer, FlagConversion, FlagRow, FlagType, find};
use crate::migrate::finding::{Code, FindingLog};

/// Upper ends of `--cores-total` and `--memory-total` by default.
const NO_LIMIT: [u64; 2] = [320_000, 6_400_000];
/// Values of `--expander`, and what answers each.
const EXPANDERS: [(&str, &str); 7] = [
    ("least-waste", ""),
    ("price", ""),
    ("random", ""),
    ("most-pods", ""),
    ("least-nodes", ""),
    ("priority", "weight of the NodePools"),
    ("grpc", "no counterpart"),
];

/// `--nodes=minimum:maximum:name`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SizedGroup {
    pub(super) name: String,
    pub(super) minimum: u64,
    pub(super) maximum: u64,
    pub(super) line: usize,
}

/// The flags, read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct AutoscalerSettings {
    pub(super) cluster: Option<String>,
    pub(super) groups: Vec<SizedGroup>,
    /// Tags of the Auto Scaling groups that it manages; empty: no such flag.
    pub(super) discovery: Vec<(String, Option<String>)>,
    /// Line of the expander `priority`.
    pub(super) by_priority: Option<usize>,
    pub(super) consolidate_after: Option<String>,
    pub(super) keeps_all_nodes: bool,
    /// Percent.
    pub(super) utilization: Option<u32>,
    pub(super) grace_period: Option<String>,
    pub(super) max_nodes: Option<(u64, usize)>,
    pub(super) cores: Option<(u64, usize)>,
    /// GiB.
    pub(super) memory: Option<(u64, usize)>,
    /// Nodes that may go at a time, and of these such with pods.
    pub(super) removals: Option<u64>,
    pub(super) drains: Option<u64>,
    pub(super) startup_taints: Vec<String>,
    pub(super) gates: BTreeSet<&'static str>,
    /// Flags of `mortise serve`, by name.
    pub(super) serve: BTreeMap<&'static str, String>,
}

/// Reads the flags, with an answer to each.
pub(super) fn read(flags: &[FlagUse], log: &mut FindingLog<'_>) -> AutoscalerSettings {
    let mut settings = AutoscalerSettings::default();
    for flag in flags {
        let field = format!("--{}", flag.name);
        let Some(row) = find(&flag.name) else {
            let known = nearest(&flag.name, FLAGS.iter().map(|row| row.name));
            let known =
                known.map_or_else(String::new, |name| format!("; --{name} is meant, perhaps"));
            log.error(
                Code::Unsupported,
                flag.line,
                &field,
                format!("is no flag of Cluster Autoscaler{known}"),
            );
            continue;
        };
        let value = match value_of(row, flag) {
            Ok(value) => value,
            Err(problem) => {
                log.error(Code::Unreadable, flag.line, &field, problem);
                continue;
            }
        };
        match row.answer {
            FlagAnswer::NotNeeded(why) => log.converted(
                Code::Removed,
                flag.line,
                &field,
                format!("is not needed: {why}"),
            ),
            FlagAnswer::NoCounterpart(harmless, _) if value == harmless => log.converted(
                Code::Removed,
                flag.line,
                &field,
                format!("{value} is not needed: it is so here"),
            ),
            FlagAnswer::NoCounterpart(_, why) => log.warning(
                Code::Unsupported,
                flag.line,
                &field,
                format!("has no counterpart: {why}"),
            ),
            FlagAnswer::To(to) => settings.convert(to, &value, flag.line, &field, log),
        }
    }
    settings.protections(flags, log);
    settings
}

/// The value of a flag, checked. A switch without one is true; a duration is as it was written.
fn value_of(row: &FlagRow, flag: &FlagUse) -> Result<String, String> {
    let text = match (&flag.value, row.value) {
        (Some(text), _) => text.clone(),
        (None, FlagType::Bool) => "true".to_owned(),
        (None, _) => return Err("needs a value".to_owned()),
    };
    if text.contains("$(") || text.contains("{{") {
        return Err(format!(
            "{text:?} is filled in elsewhere: write the value, or render the chart first (helm template)"
        ));
    }
    let wrong = |want: &str| Err(format!("{text:?} must be {want}"));
    match row.value {
        FlagType::Bool => match text.as_str() {
            "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok("true".to_owned()),
            "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok("false".to_owned()),
            _ => wrong("true or false"),
        },
        FlagType::Integer if text.parse::<i64>().is_err() => wrong("an integer"),
        FlagType::Number if !text.parse::<f64>().is_ok_and(f64::is_finite) => wrong("a number"),
        FlagType::Duration if GoDuration::parse(&text).is_err() => {
            wrong("a duration such as 10m or 1h30m")
        }
        FlagType::Range if range(&text).is_none() => {
            wrong("minimum:maximum, two integers, and the second one not smaller")
        }
        _ => Ok(text),
    }
}

/// `minimum:maximum`.
fn range(text: &str) -> Option<(u64, u64)> {
    let (low, high) = text.split_once(':')?;
    let (low, high) = (low.parse().ok()?, high.parse().ok()?);
    (low <= high).then_some((low, high))
}

impl AutoscalerSettings {
    fn convert(
        &mut self,
        to: FlagConversion,
        value: &str,
        line: usize,
        field: &str,
        log: &mut FindingLog<'_>,
    ) {
        let mut is = |text: String| log.converted(Code::Moved, line, field, format!("is {text}"));
        match to {
            FlagConversion::ConsolidateAfter => {
                is(format!("consolidateAfter: {value} of each NodePool"));
                self.consolidate_after = Some(value.to_owned());
            }
            FlagConversion::ScaleDown if value == "false" => {
                is(
                    "a budget of 0 nodes in each NodePool: nothing is disrupted voluntarily"
                        .to_owned(),
                );
                self.keeps_all_nodes = true;
            }
            FlagConversion::ScaleDown => is("what mortise does without a flag".to_owned()),
            FlagConversion::SameValue(name) => {
                is(format!("--{name}={value}"));
                self.serve.insert(name, value.to_owned());
            }
            FlagConversion::FeatureGate(gate) if value == "true" => {
                is(format!("--feature-gates={gate}=true"));
                self.gates.insert(gate);
            }
            FlagConversion::Switch(name, on) if value == "true" => {
                is(format!("--{name}={on}"));
                self.serve.insert(name, on.to_owned());
            }
            FlagConversion::DisableLeaderElection if value == "false" => {
                is("--disable-leader-election=true: safe with a single replica only".to_owned());
                self.serve
                    .insert("disable-leader-election", "true".to_owned());
            }
            FlagConversion::FeatureGate(_)
            | FlagConversion::Switch(..)
            | FlagConversion::DisableLeaderElection => {
                is("what mortise does without a flag".to_owned())
            }
            FlagConversion::Removals => {
                is(format!(
                    "a budget of {value} nodes in each NodePool; Cluster Autoscaler counts all groups together"
                ));
                self.removals = value.parse().ok();
            }
            FlagConversion::Drains => {
                is(format!(
                    "a budget of {value} nodes for the reasons Underutilized and Drifted in each NodePool; Cluster Autoscaler counts all groups together"
                ));
                self.drains = value.parse().ok();
            }
            FlagConversion::StartupTaint => {
                is("startupTaints of the NodePools whose groups have this taint; others are learned (--learn-boot-taints)".to_owned());
                self.startup_taints.push(value.to_owned());
            }
            FlagConversion::ClusterName => {
                is(format!("--cluster-name={value}"));
                self.cluster = Some(value.to_owned());
            }
            FlagConversion::GracePeriod => self.grace(value, line, field, log),
            FlagConversion::Utilization => self.utilization(value, line, field, log),
            FlagConversion::MaxNodes => match value.parse().unwrap_or(0) {
                0 => is("no limit, as here".to_owned()),
                most => {
                    is(format!(
                        "limits.nodes: {most} of the NodePoolPolicy for all NodePools together"
                    ));
                    self.max_nodes = Some((most, line));
                }
            },
            FlagConversion::CoresTotal | FlagConversion::MemoryTotal => {
                self.total(to, value, line, field, log);
            }
            FlagConversion::CloudProvider => cloud_provider(value, line, field, log),
            FlagConversion::Expander => self.expander(value, line, field, log),
            FlagConversion::NodeGroup => self.group(value, line, field, log),
            FlagConversion::Discovery => self.discovery(value, line, field, log),
            // All of them together, at the end.
            FlagConversion::Protection(_) => {}
        }
    }

    fn grace(&mut self, value: &str, line: usize, field: &str, log: &mut FindingLog<'_>) {
        match value.parse::<u64>() {
            Ok(seconds) if seconds > 0 => {
                log.warning(Code::Moved, line, field, format!("is terminationGracePeriod: {seconds}s of each NodePool; unlike before, it also ends what a PodDisruptionBudget delays: leave it out if drains may wait"));
                self.grace_period = Some(format!("{seconds}s"));
            }
            _ => log.error(
                Code::Unreadable,
                line,
                field,
                format!("{value:?} must be a number of seconds above 0"),
            ),
        }
    }

    fn utilization(&mut self, value: &str, line: usize, field: &str, log: &mut FindingLog<'_>) {
        let percent = value.parse::<f64>().map_or(-1.0, |share| share * 100.0);
        if !(0.0..=100.0).contains(&percent) {
            log.error(
                Code::Unreadable,
                line,
                field,
                format!("{value:?} must be a share from 0 to 1"),
            );
            return;
        }
        // Within 0 to 100.
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "0 to 100"
        )]
        let whole = percent.round() as u32;
        if whole == 0 {
            log.converted(
                Code::Moved,
                line,
                field,
                "is a budget of 0 nodes in each NodePool: no node was used that little",
            );
            self.keeps_all_nodes = true;
            return;
        }
        log.converted(Code::Moved, line, field, format!("is minimumUtilization: {whole}% of the NodePoolPolicy; without it nodes go whenever their pods fit elsewhere for less money"));
        self.utilization = Some(whole);
    }

    fn total(
        &mut self,
        of: FlagConversion,
        value: &str,
        line: usize,
        field: &str,
        log: &mut FindingLog<'_>,
    ) {
        let Some((low, high)) = range(value) else {
            return;
        };
        if low > 0 {
            log.warning(Code::Unsupported, line, field, format!("{low}: a minimum has no counterpart: a NodePool with replicas, or a CapacityBuffer, keeps nodes"));
        }
        let cores = of == FlagConversion::CoresTotal;
        if NO_LIMIT.contains(&high) {
            log.converted(Code::Removed, line, field, format!("{high} is no limit"));
            return;
        }
        let (name, unit) = if cores { ("cpu", "") } else { ("memory", "Gi") };
        log.converted(
            Code::Moved,
            line,
            field,
            format!("is limits.{name}: {high}{unit} of the NodePools"),
        );
        if cores {
            self.cores = Some((high, line));
        } else {
            self.memory = Some((high, line));
        }
    }

    fn expander(&mut self, value: &str, line: usize, field: &str, log: &mut FindingLog<'_>) {
        for name in value.split(',').map(str::trim) {
            match EXPANDERS.iter().find(|(known, _)| *known == name) {
                Some((_, "")) => log.converted(Code::Removed, line, field, format!("{name} is not needed: the cheapest nodes for all pending pods together are launched")),
                Some(("priority", to)) => {
                    log.converted(Code::Moved, line, field, format!("priority is {to}"));
                    self.by_priority = Some(line);
                }
                Some((_, without)) => log.warning(Code::Unsupported, line, field, format!("{name} has {without}: nothing outside of mortise chooses instance types")),
                None => {
                    let names = EXPANDERS.map(|(name, _)| name);
                    let meant = nearest(name, names).map_or_else(String::new, |name| format!("; {name} is meant, perhaps"));
                    log.error(Code::Unreadable, line, field, format!("{name:?} is none of {}{meant}", names.join(", ")));
                }
            }
        }
    }

    fn group(&mut self, value: &str, line: usize, field: &str, log: &mut FindingLog<'_>) {
        let mut parts = value.splitn(3, ':');
        let mut next = || parts.next().unwrap_or_default();
        let (low, high, name) = (next().parse::<u64>(), next().parse::<u64>(), next());
        match (low, high) {
            (Ok(minimum), Ok(maximum)) if minimum <= maximum && !name.is_empty() => {
                self.groups.push(SizedGroup {
                    name: name.to_owned(),
                    minimum,
                    maximum,
                    line,
                });
            }
            (Ok(minimum), Ok(maximum)) if minimum > maximum => log.error(
                Code::Unreadable,
                line,
                field,
                format!("{value:?}: the minimum {minimum} must not be above the maximum {maximum}"),
            ),
            _ => log.error(
                Code::Unreadable,
                line,
                field,
                format!("{value:?} must be minimum:maximum:name of an Auto Scaling group"),
            ),
        }
    }

    fn discovery(&mut self, value: &str, line: usize, field: &str, log: &mut FindingLog<'_>) {
        let Some(tags) = value.strip_prefix("asg:tag=") else {
            log.error(Code::Unreadable, line, field, format!("{value:?} must be asg:tag= and tags of Auto Scaling groups, separated by commas"));
            return;
        };
        for tag in tags.split(',').map(str::trim) {
            let (key, wanted) = match tag.split_once('=') {
                Some((key, wanted)) => (key, Some(wanted.to_owned())),
                None => (tag, None),
            };
            let name = key.strip_prefix("k8s.io/cluster-autoscaler/");
            let own =
                name.filter(|name| !matches!(*name, "enabled" | "disabled") && !name.contains('/'));
            if own.is_some_and(|name| name.contains(['<', '>', '{', '}', ' '])) {
                log.warning(Code::Placeholder, line, field, format!("{key:?} looks like a placeholder and is left out: write the name of the cluster"));
                continue;
            }
            if let Some(name) = own {
                self.cluster.get_or_insert_with(|| name.to_owned());
            }
            self.discovery.push((key.to_owned(), wanted));
        }
        let of = self
            .cluster
            .as_ref()
            .map_or_else(String::new, |name| format!(", and --cluster-name={name}"));
        log.converted(
            Code::Moved,
            line,
            field,
            format!("says which Auto Scaling groups of the input become NodePools{of}"),
        );
    }

    /// What Cluster Autoscaler keeps by default, and mortise does not.
    fn protections(&self, flags: &[FlagUse], log: &mut FindingLog<'_>) {
        let (mut kept, mut place) = (Vec::new(), None);
        for row in FLAGS {
            let FlagAnswer::To(FlagConversion::Protection(what)) = row.answer else {
                continue;
            };
            let written = flags.iter().rev().find(|flag| flag.name == row.name);
            let off = written.is_some_and(|flag| value_of(row, flag).as_deref() == Ok("false"));
            match written {
                Some(flag) if off => log.converted(
                    Code::Removed,
                    flag.line,
                    &format!("--{}", row.name),
                    format!("false is not needed: {what} do not keep their nodes here"),
                ),
                _ => {
                    kept.push(what);
                    place = place.or_else(|| written.map(|flag| (flag.line, row.name)));
                }
            }
        }
        if kept.is_empty() {
            return;
        }
        // Without a flag that says so, it is a default.
        let (line, field, by) = match place {
            Some((line, name)) => (line, format!("--{name}"), ""),
            None => (
                flags.first().map_or(0, |flag| flag.line),
                String::new(),
                "by default ",
            ),
        };
        log.warning(Code::Behaviour, line, &field, format!("{by}{} kept their nodes, and do not here: give those that must stay a PodDisruptionBudget or karpenter.sh/do-not-disrupt: \"true\"", kept.join(", ")));
    }
}

fn cloud_provider(value: &str, line: usize, field: &str, log: &mut FindingLog<'_>) {
    if value == "aws" {
        log.converted(Code::Moved, line, field, "is --provider=aws");
    } else {
        log.error(Code::Unsupported, line, field, format!("{value:?}: only node groups of aws are converted; mortise has the providers aws and kwok"));
    }
}
