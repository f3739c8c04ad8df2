//! Explains why a pod is unschedulable: the first blocker of each NodePool, and how much the nearest instance type lacks.

use std::sync::Arc;

use super::instance_type_reasons::InstanceTypeCheck;
use super::messages;
use super::narrowed_template::without_hostname;
use super::pass::Pass;
use super::pod_requirements::PodRequirements;
use super::policy_room::PolicyRoom;
use super::pool_template::{PoolTemplate, UnusablePool};
use super::topology::{NO_DOMAIN, PodTopology, TopologyType};
use crate::reason::{PoolBlocker, Reason};
use mortise_apis::requirements::{Operator, Requirement, Requirements};
use mortise_apis::{labels, taints};
use mortise_state::catalog::Bits;

/// Text for a pod whose compatible reservations are all held by other NodeClaims.
pub(super) const HELD_UP: &str = "one or more instance types with compatible reserved offerings are available, but could not be reserved";

/// Why one NodePool cannot run a pod.
pub(super) struct PoolRejection {
    /// Kind of the blocker.
    pub(super) blocker: PoolBlocker,
    /// Karpenter's text.
    pub(super) constraint: String,
    /// Mortise's text; may be empty.
    pub(super) detail: String,
    /// The instance type that lacks least.
    pub(super) missed: Option<Reason>,
}

impl PoolRejection {
    /// A rejection with both texts.
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

/// Explains, at the end of a pass, why pods are unschedulable.
pub(super) struct PassExplainer<'p, 'a> {
    /// The finished pass.
    pub(super) pass: &'p Pass<'a>,
    /// NodePools that the pass does not use.
    pub(super) unusable: &'p [UnusablePool],
}

impl PassExplainer<'_, '_> {
    /// Why the pods of a class are unschedulable: one reason or more per NodePool.
    pub(super) fn explain(&self, class: usize) -> Vec<Reason> {
        let unusable = self.unusable;
        let mut reasons = Vec::new();
        if self.pass.options.ignore_devices && self.pass.classes[class].class.claims_devices {
            return vec![Reason::DeviceClaimsIgnored];
        }
        for template in &self.pass.templates {
            let rejection = self.rejection(class, template);
            let is_last = rejection.constraint == HELD_UP;
            reasons.push(Reason::PoolRefused {
                pool: template.name.clone(),
                blocker: rejection.blocker,
                constraint: rejection.constraint,
                detail: rejection.detail,
                is_tried: true,
            });
            reasons.extend(rejection.missed);
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
                is_tried: false,
            });
        }
        if reasons.is_empty() {
            reasons.push(Reason::NoPools);
        }
        reasons
    }

    fn rejection(&self, class: usize, template: &PoolTemplate) -> PoolRejection {
        let this = &self.pass.classes[class];
        let name = &template.name;
        if let Some(why) = template.policy.as_ref().and_then(PolicyRoom::closed) {
            let constraint = format!("{why} (NodePool={name})");
            return PoolRejection::new(PoolBlocker::Policy, constraint, why.to_string());
        }
        if template.has_all_nodes() {
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
                template.excluding_limit(&template.types),
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
        let ask = &self.pass.asks.all[step.ask];
        let mut last =
            self.rejection_of_alternative(class, template, &ask.requirements, mask.as_ref());
        let alternatives = &this.class.strict;
        if alternatives.len() > 1 {
            let each = alternatives.iter().enumerate().map(|(at, asked)| {
                let rejection =
                    self.rejection_of_alternative(class, template, asked, mask.as_ref());
                format!("alternative {}: {}", at + 1, rejection.detail)
            });
            last.detail = each.collect::<Vec<_>>().join("; ");
        }
        last
    }

    /// The same for one alternative of the pod's node affinity.
    fn rejection_of_alternative(
        &self,
        class: usize,
        template: &PoolTemplate,
        asked: &Requirements,
        mask: Option<&Bits>,
    ) -> PoolRejection {
        let this = &self.pass.classes[class];
        let Some(step) = this.steps.last() else {
            return PoolRejection::new(PoolBlocker::Types, String::new(), String::new());
        };
        let ask = &self.pass.asks.all[step.ask];
        let known = &self.pass.ground.snapshot.well_known;
        let mut node = template.requirements.clone();
        let hostname = format!("hostname-placeholder-{:04}", self.pass.claims.len());
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
        if let Some(rejection) = self.device_rejection(ask, template, &node, mask) {
            return rejection;
        }
        if ask.volumes.is_empty() {
            return self.rejection_with_labels_met(class, template, asked, node, mask);
        }
        // Of the alternatives that volumes allow, the one that passes most checks.
        let suiting = ask
            .volumes
            .iter()
            .filter(|of| node.is_compatible(of, known));
        let rejections = suiting.map(|of| {
            let mut node = node.clone();
            node.add_all(of);
            self.rejection_with_labels_met(class, template, asked, node, mask)
        });
        let furthest = rejections.reduce(|a, b| if b.blocker > a.blocker { b } else { a });
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

    /// Checks topology, instance types and offerings, once labels are compatible.
    fn rejection_with_labels_met(
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
                let Some(step) = self.pass.classes[class].steps.last() else {
                    return PoolRejection::new(PoolBlocker::Types, String::new(), String::new());
                };
                let check = InstanceTypeCheck {
                    template,
                    ask: &self.pass.asks.all[step.ask],
                    asked,
                    node: &node,
                    mask,
                    known: &self.pass.ground.snapshot.well_known,
                    dimensions: self.pass.shapes.dimensions(),
                    lacks_reservation: self.pass.classes[class].lacks_reservation,
                };
                check.rejection()
            }
            Err(group) => {
                let text = self.topology_text(group, class, &node);
                let (blocker, detail) = self.topology_detail(group, class, asked, &node);
                PoolRejection::new(blocker, text, detail)
            }
        }
    }

    /// The requirements of a new node, narrowed to the domains allowed for the class; or the group that leaves none.
    fn narrowed(
        &self,
        class: usize,
        asked: &Requirements,
        node: &Requirements,
    ) -> Result<Requirements, usize> {
        let this = &self.pass.classes[class];
        let mut all = node.clone();
        let Some(step) = this.steps.last() else {
            return Ok(all);
        };
        let asking = PodTopology {
            strict: asked,
            ..this.asking(step)
        };
        let new_host = self.pass.hosts.len() + self.pass.claims.len();
        let rules = self.pass.topology.host_rules(&asking);
        if let Some(rule) = rules.iter().find(|rule| rule.refuses(new_host)) {
            return Err(rule.group);
        }
        for each in self.pass.topology.allow(&asking)? {
            let key = &self.pass.topology.keys[each.key];
            let own = node.get(&key.name);
            let left = each.domains.iter().map(|domain| &key.domains[domain]);
            let left: Vec<_> = left
                .filter(|value| own.is_none_or(|own| own.has(value)))
                .cloned()
                .collect();
            if left.is_empty() {
                let groups = step.owned.iter().chain(&this.inverse_groups).copied();
                let on_key: Vec<usize> = groups
                    .filter(|at| self.pass.topology.groups[*at].key == each.key)
                    .collect();
                // The group that leaves nothing by itself, if there is one.
                let alone = on_key.iter().find(|at| {
                    let left = self.pass.topology.domains_of(**at, &asking).0;
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
        let group = &self.pass.topology.groups[group];
        let key = &self.pass.topology.keys[group.key];
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
        let strict = self.pass.classes[class]
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
        let group = &self.pass.topology.groups[at];
        let key = &self.pass.topology.keys[group.key];
        let name = &key.name;
        let selector = &group.statement.selector;
        let pods = selector.as_ref().map_or_else(
            || "no pods".to_owned(),
            |selector| match selector.to_string() {
                text if text.is_empty() => "pods".to_owned(),
                text => format!("pods with {text}"),
            },
        );
        let this = &self.pass.classes[class];
        let left = this.steps.last().map(|step| {
            let asking = PodTopology {
                strict: asked,
                ..this.asking(step)
            };
            let left = self.pass.topology.domains_of(at, &asking).0;
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

    /// Why no node of a pool has the devices that the pod claims; `None` if one does.
    fn device_rejection(
        &self,
        ask: &PodRequirements,
        template: &PoolTemplate,
        node: &Requirements,
        mask: Option<&Bits>,
    ) -> Option<PoolRejection> {
        let asked = ask.devices?;
        let mut all = self.pass.templates.iter();
        let at = all.position(|of| of.name == template.name)?;
        let mut types = template.catalog.table().meeting(node);
        types.and(mask.unwrap_or(&template.types));
        let devices = self.pass.devices.as_ref()?;
        devices.rejection(asked, (at, template), node, &types)
    }

    fn host_name(&self, host: usize) -> String {
        match self.pass.hosts.get(host) {
            Some(host) => host.hostname().to_owned(),
            None => format!(
                "hostname-placeholder-{:04}",
                host - self.pass.hosts.len() + 1
            ),
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
