//! Why a pod found no place: per pool, the first thing in the way, and by how much the nearest type misses.

use std::sync::Arc;

use super::messages;
use super::narrowed_template::without_hostname;
use super::pass::Pass;
use super::pool_template::{NO_TYPES, PoolTemplate, UnusablePool};
use super::topology::{NO_DOMAIN, PodTopology, TopologyType};
use crate::reason::{PoolBlocker, Reason};
use mortise_apis::requirements::{Operator, Requirement, Requirements};
use mortise_apis::{labels, taints};
use mortise_state::catalog::Bits;

/// Reasons with the text of the event.
pub(super) struct UnschedulableExplanation {
    /// One or more per pool.
    pub(super) reasons: Vec<Reason>,
    /// All pools in one text.
    pub(super) message: String,
}

/// What a pod waits for when every place of the reservations that suit it is held.
pub(super) const HELD_UP: &str = "one or more instance types with compatible reserved offerings are available, but could not be reserved";

/// What is said of pods with device claims while these are ignored.
pub(super) const IGNORED: &str = "device claims (spec.resourceClaims) are ignored; --ignore-dra-requests=false takes them into account";

/// Why one pool refuses.
pub(super) struct PoolRejection {
    /// What kind of thing is in the way.
    pub(super) blocker: PoolBlocker,
    /// In upstream's words.
    pub(super) constraint: String,
    /// In ours; may be empty.
    pub(super) detail: String,
    /// The type that misses least.
    pub(super) missed: Option<Reason>,
}

impl PoolRejection {
    /// A refusal in both words.
    pub(super) fn new(
        blocker: PoolBlocker,
        constraint: impl Into<String>,
        detail: impl Into<String>,
    ) -> Self {
        Self {
            blocker,
            constraint: constraint.into(),
            detail: detail.into(),
            missed: None,
        }
    }
}

impl Pass<'_> {
    /// Why the class has no place as things are at the end.
    pub(super) fn explain(
        &self,
        class: usize,
        unusable: &[UnusablePool],
    ) -> UnschedulableExplanation {
        let mut reasons = Vec::new();
        let mut texts = Vec::new();
        if self.options.ignore_devices && self.classes[class].class.claims_devices {
            let text = IGNORED.to_owned();
            return UnschedulableExplanation {
                reasons: vec![Reason::Note { text: text.clone() }],
                message: text,
            };
        }
        for template in &self.templates {
            let refusal = self.refusal(class, template);
            let is_last = refusal.constraint == HELD_UP;
            texts.push(refusal.constraint.clone());
            reasons.push(Reason::PoolRefused {
                pool: template.name.clone(),
                blocker: refusal.blocker,
                constraint: refusal.constraint,
                detail: refusal.detail,
            });
            reasons.extend(refusal.missed);
            if is_last {
                break;
            }
        }
        for each in unusable {
            reasons.push(Reason::PoolRefused {
                pool: each.pool.clone(),
                blocker: each.blocker,
                constraint: each.why.clone(),
                detail: each.detail.clone(),
            });
        }
        if self.templates.is_empty() {
            if unusable.is_empty() {
                reasons.push(Reason::NoPools);
                texts.push("no dynamic nodepools found".to_owned());
            } else {
                let all_filtered = unusable.iter().all(|each| each.why.starts_with(NO_TYPES));
                match unusable.first() {
                    Some(_) if all_filtered => texts.push(NO_TYPES.to_owned()),
                    _ => texts.extend(
                        unusable
                            .iter()
                            .map(|each| format!("{} (NodePool={})", each.why, each.pool)),
                    ),
                }
            }
        }
        UnschedulableExplanation {
            reasons,
            message: texts.join("; "),
        }
    }

    fn refusal(&self, class: usize, template: &PoolTemplate) -> PoolRejection {
        let this = &self.classes[class];
        let name = &template.name;
        if template.is_full() {
            return PoolRejection::new(
                PoolBlocker::NodeLimit,
                format!("node limits have been exhausted for nodepool (NodePool={name})"),
                format!(
                    "limit nodes is {}, all in use",
                    template.limits.nodes.unwrap_or_default()
                ),
            );
        }
        let mask = template.within_limits();
        if mask.as_ref().is_some_and(Bits::is_empty) {
            return PoolRejection::new(
                PoolBlocker::Limit,
                format!(
                    "all available instance types exceed limits for nodepool (NodePool={name})"
                ),
                template.limit_in_the_way(&template.types),
            );
        }
        let Some(step) = this.steps.last() else {
            return PoolRejection::new(PoolBlocker::Types, String::new(), String::new());
        };
        let hard = template.taints.iter().filter(|taint| {
            !(step.stage.tolerates_prefer && taint.effect == taints::PREFER_NO_SCHEDULE)
        });
        if let Some(taint) = taints::untolerated(hard, &this.class.tolerations).next() {
            let text = taints::text(taint);
            return PoolRejection::new(
                PoolBlocker::Taint,
                format!("did not tolerate taint (taint={text})"),
                format!("taint {text} is not tolerated"),
            );
        }
        // The last step has one alternative of the pod's node affinity left; each may fail for its own reason.
        let ask = &self.asks.all[step.ask];
        let mut last = self.refusal_of(class, template, &ask.requirements, mask.as_ref());
        let alternatives = &this.class.strict;
        if alternatives.len() > 1 {
            let each = alternatives.iter().enumerate().map(|(at, asked)| {
                let refusal = self.refusal_of(class, template, asked, mask.as_ref());
                format!("alternative {}: {}", at + 1, refusal.detail)
            });
            last.detail = each.collect::<Vec<_>>().join("; ");
        }
        last
    }

    /// The same for one alternative of what the pod asks of labels.
    fn refusal_of(
        &self,
        class: usize,
        template: &PoolTemplate,
        asked: &Requirements,
        mask: Option<&Bits>,
    ) -> PoolRejection {
        let this = &self.classes[class];
        let Some(step) = this.steps.last() else {
            return PoolRejection::new(PoolBlocker::Types, String::new(), String::new());
        };
        let ask = &self.asks.all[step.ask];
        let known = &self.snapshot.well_known;
        let mut node = template.requirements.clone();
        let hostname = format!("hostname-placeholder-{:04}", self.claims.len());
        node.add(Requirement::is(labels::HOSTNAME, hostname.as_str()));
        if let Err(clash) = node.compatible(asked, known) {
            let (blocker, detail) = messages::clash(&clash, "the pod");
            return PoolRejection::new(
                blocker,
                format!("incompatible requirements, {clash}"),
                detail,
            );
        }
        node.add_all(asked);
        if let Some(refusal) = self.devices_refusal(ask, template, &node, mask) {
            return refusal;
        }
        if ask.volumes.is_empty() {
            return self.refusal_beside(class, template, asked, node, mask);
        }
        // Of the alternatives that volumes leave, the one that comes furthest.
        let suiting = ask
            .volumes
            .iter()
            .filter(|of| node.is_compatible(of, known));
        let refusals = suiting.map(|of| {
            let mut node = node.clone();
            node.add_all(of);
            self.refusal_beside(class, template, asked, node, mask)
        });
        let furthest = refusals.reduce(|a, b| if b.blocker > a.blocker { b } else { a });
        furthest.unwrap_or_else(|| {
            let clash = ask.volumes.first();
            let clash = clash.and_then(|first| node.compatible(first, known).err());
            let (text, detail) = clash.map_or_else(Default::default, |clash| {
                let whose = "of the pod's volumes one";
                (clash.to_string(), messages::clash(&clash, whose).1)
            });
            let text = format!("incompatible volume requirements, {text}");
            PoolRejection::new(PoolBlocker::Volumes, text, detail)
        })
    }

    /// What other pods, types and offerings say once labels agree.
    fn refusal_beside(
        &self,
        class: usize,
        template: &PoolTemplate,
        asked: &Requirements,
        node: Requirements,
        mask: Option<&Bits>,
    ) -> PoolRejection {
        match self.narrowed(class, asked, &node) {
            Ok(node) => {
                let node = without_hostname_key(&node);
                self.types_refusal(class, template, asked, &node, mask)
            }
            Err(group) => {
                let text = self.topology_text(group, class, &node);
                let (blocker, detail) = self.topology_detail(group, class, asked, &node);
                PoolRejection::new(blocker, text, detail)
            }
        }
    }

    /// The requirements of a new machine, narrowed to the domains that suit the class; or the group that leaves none.
    fn narrowed(
        &self,
        class: usize,
        asked: &Requirements,
        node: &Requirements,
    ) -> Result<Requirements, usize> {
        let this = &self.classes[class];
        let mut all = node.clone();
        let Some(step) = this.steps.last() else {
            return Ok(all);
        };
        let asking = PodTopology {
            strict: asked,
            ..this.asking(step)
        };
        let new_host = self.hosts.len() + self.claims.len();
        let rules = self.topology.host_rules(&asking);
        if let Some(rule) = rules.iter().find(|rule| rule.refuses(new_host)) {
            return Err(rule.group);
        }
        for each in self.topology.allow(&asking)? {
            let key = &self.topology.keys[each.key];
            let own = node.get(&key.name);
            let left = each.domains.iter().map(|domain| &key.domains[domain]);
            let left: Vec<_> = left
                .filter(|value| own.is_none_or(|own| own.has(value)))
                .cloned()
                .collect();
            if left.is_empty() {
                let groups = step.owned.iter().chain(&this.inverse_groups).copied();
                let on_key: Vec<usize> = groups
                    .filter(|at| self.topology.groups[*at].key == each.key)
                    .collect();
                // The one that leaves nothing by itself, if there is one.
                let alone = on_key.iter().find(|at| {
                    let left = self.topology.domains_of(**at, &asking).0;
                    let mut left = left.iter().map(|domain| &key.domains[domain]);
                    !left.any(|value| own.is_none_or(|own| own.has(value)))
                });
                let group = alone.or_else(|| on_key.first());
                return Err(group.copied().unwrap_or_default());
            }
            all.add(Requirement::new(Arc::clone(&key.name), Operator::In, left));
        }
        Ok(all)
    }

    fn topology_text(&self, group: usize, class: usize, node: &Requirements) -> String {
        let group = &self.topology.groups[group];
        let key = &self.topology.keys[group.key];
        let kind = match group.statement.kind {
            TopologyType::Spread { .. } => "topology spread",
            TopologyType::Near => "pod affinity",
            TopologyType::Apart | TopologyType::Repelled => "pod anti-affinity",
        };
        let counts: Vec<String> = if key.is_host {
            let counted = group
                .counts
                .iter()
                .enumerate()
                .filter(|(_, count)| **count > 0);
            counted
                .map(|(host, count)| format!("{}: {count}", self.host_name(host)))
                .collect()
        } else {
            let domains = key
                .domains
                .iter()
                .enumerate()
                .filter(|(at, _)| group.count(*at) != NO_DOMAIN);
            domains
                .map(|(at, domain)| format!("{domain}: {}", group.count(at)))
                .collect()
        };
        let strict = self.classes[class]
            .steps
            .last()
            .map(|step| step.stage.strict_requirements());
        let pod = strict.map_or_else(
            || Requirement::exists(&*key.name),
            |strict| strict.get_or_exists(&key.name),
        );
        format!(
            "unsatisfiable topology constraint for {kind}, key={} (counts = {}, podDomains = {pod}, nodeDomains = {}",
            key.name,
            counts.join(", "),
            node.get_or_exists(&key.name)
        )
    }

    fn topology_detail(
        &self,
        at: usize,
        class: usize,
        asked: &Requirements,
        node: &Requirements,
    ) -> (PoolBlocker, String) {
        let group = &self.topology.groups[at];
        let key = &self.topology.keys[group.key];
        let name = &key.name;
        let selector = &group.statement.selector;
        let pods = selector.as_ref().map_or_else(
            || "no pods".to_owned(),
            |selector| match selector.to_string() {
                text if text.is_empty() => "pods".to_owned(),
                text => format!("pods with {text}"),
            },
        );
        let this = &self.classes[class];
        let left = this.steps.last().map(|step| {
            let asking = PodTopology {
                strict: asked,
                ..this.asking(step)
            };
            let left = self.topology.domains_of(at, &asking).0;
            let left: Vec<&str> = left.iter().map(|domain| &*key.domains[domain]).collect();
            left.join(", ")
        });
        let left = left.filter(|left| !key.is_host && !left.is_empty());
        let left = left.map_or_else(String::new, |left| {
            let own = node.get_or_exists(name);
            format!(" (it leaves {left}; the node has {own})")
        });
        match group.statement.kind {
            TopologyType::Spread { max_skew, .. } => (
                PoolBlocker::Spread,
                format!(
                    "spread of {pods} over {name} with maxSkew {max_skew} leaves no domain{left}"
                ),
            ),
            TopologyType::Near if group.occupied == 0 => (
                PoolBlocker::PodAffinity,
                format!("affinity by {name} to {pods}: there are none that run or are placed"),
            ),
            TopologyType::Near if key.is_host => (
                PoolBlocker::PodAffinity,
                format!(
                    "affinity by {name} to {pods}: their nodes have no free capacity, and a new node has none of them"
                ),
            ),
            TopologyType::Near => (
                PoolBlocker::PodAffinity,
                format!("affinity by {name} to {pods}: no node can come where they are{left}"),
            ),
            TopologyType::Apart => (
                PoolBlocker::PodAntiAffinity,
                format!("anti-affinity by {name} to {pods}: they are in every domain{left}"),
            ),
            TopologyType::Repelled => (
                PoolBlocker::PodAntiAffinity,
                format!(
                    "pods with anti-affinity by {name} to {pods}, of which this is one, are in every domain{left}"
                ),
            ),
        }
    }

    fn host_name(&self, host: usize) -> String {
        match self.hosts.get(host) {
            Some(host) => host.hostname().to_owned(),
            None => format!("hostname-placeholder-{:04}", host - self.hosts.len() + 1),
        }
    }
}

fn without_hostname_key(of: &Requirements) -> Requirements {
    without_hostname(of).unwrap_or_else(|| {
        let mut rest = of.clone();
        rest.remove(labels::HOSTNAME);
        rest
    })
}
