//! Why a pod found no place: per pool, the first thing in the way, and by how much the nearest type misses.

use std::sync::Arc;

use super::amounts::{Amounts, add, fit};
use super::pass::Pass;
use super::shape::without_hostname;
use super::template::{NO_TYPES, Template, Unusable};
use super::topology::{Kind, NO_DOMAIN};
use crate::catalog::Bits;
use crate::labels;
use crate::record::Reason;
use crate::requirements::{Operator, Requirement, Requirements};
use crate::resources::{CPU, Resources};
use crate::taints;

/// Reasons with the text of the event.
pub(super) struct Explained {
    /// One or more per pool.
    pub(super) reasons: Vec<Reason>,
    /// All pools in one text.
    pub(super) message: String,
}

/// CPU requests from here on are probably a mistyped unit: a million cores, in milli.
const ABSURD_CPU: i64 = 1_000_000_000;

/// What a pod waits for when every place of the reservations that suit it is held.
const HELD_UP: &str = "one or more instance types with compatible reserved offerings are available, but could not be reserved";

impl Pass<'_> {
    /// Why the class has no place as things are at the end.
    pub(super) fn explain(&self, class: usize, unusable: &[Unusable]) -> Explained {
        let mut reasons = Vec::new();
        let mut texts = Vec::new();
        if self.classes[class].class.claims_devices {
            let text = "not supported yet: device claims (spec.resourceClaims)".to_owned();
            return Explained {
                reasons: vec![Reason::Note { text: text.clone() }],
                message: text,
            };
        }
        for template in &self.templates {
            let (text, missed) = self.refusal(class, template);
            let is_last = text == HELD_UP;
            reasons.push(Reason::PoolRefused {
                pool: template.name.clone(),
                constraint: text.clone(),
            });
            reasons.extend(missed);
            texts.push(text);
            if is_last {
                break;
            }
        }
        for each in unusable {
            reasons.push(Reason::PoolRefused {
                pool: each.pool.clone(),
                constraint: each.why.clone(),
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
        Explained {
            reasons,
            message: texts.join("; "),
        }
    }

    fn refusal(&self, class: usize, template: &Template) -> (String, Option<Reason>) {
        let this = &self.classes[class];
        let Some(step) = this.steps.last() else {
            return (String::new(), None);
        };
        let ask = &self.asks.all[step.ask];
        let name = &template.name;
        if template.is_full() {
            return (
                format!("node limits have been exhausted for nodepool (NodePool={name})"),
                None,
            );
        }
        let mask = template.within_limits();
        if mask.as_ref().is_some_and(Bits::is_empty) {
            return (
                format!(
                    "all available instance types exceed limits for nodepool (NodePool={name})"
                ),
                None,
            );
        }
        let hard = template.taints.iter().filter(|taint| {
            !(step.stage.tolerates_prefer && taint.effect == taints::PREFER_NO_SCHEDULE)
        });
        if let Some(taint) = taints::untolerated(hard, &this.class.tolerations).next() {
            return (
                format!("did not tolerate taint (taint={})", taints::text(taint)),
                None,
            );
        }
        let known = &self.snapshot.well_known;
        let mut node = template.requirements.clone();
        let hostname = format!("hostname-placeholder-{:04}", self.claims.len());
        node.add(Requirement::is(labels::HOSTNAME, hostname.as_str()));
        if let Err(clash) = node.compatible(&ask.requirements, known) {
            return (format!("incompatible requirements, {clash}"), None);
        }
        node.add_all(&ask.requirements);
        if !ask.volumes.is_empty() {
            let suits = ask
                .volumes
                .iter()
                .find(|asked| node.is_compatible(asked, known));
            match (suits, ask.volumes.first()) {
                (Some(asked), _) => node.add_all(asked),
                (None, Some(first)) => {
                    let clash = node
                        .compatible(first, known)
                        .err()
                        .map(|clash| clash.to_string())
                        .unwrap_or_default();
                    return (format!("incompatible volume requirements, {clash}"), None);
                }
                (None, None) => {}
            }
        }
        match self.narrowed(class, &node) {
            Ok(narrowed) => node = narrowed,
            Err(group) => return (self.topology_text(group, class, &node), None),
        }
        let node = without_hostname_key(&node);
        let held_up = this.held_up;
        self.types_refusal(template, &node, &ask.resources, mask, held_up)
    }

    /// The requirements of a new machine, narrowed to the domains that suit the class; or the group that leaves none.
    fn narrowed(&self, class: usize, node: &Requirements) -> Result<Requirements, usize> {
        let this = &self.classes[class];
        let mut all = node.clone();
        let Some(step) = this.steps.last() else {
            return Ok(all);
        };
        let asking = this.asking(step);
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
                let on_key = |at: &&usize| self.topology.groups[**at].key == each.key;
                let group = step.owned.iter().chain(&this.repelled_by).find(on_key);
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
            Kind::Spread { .. } => "topology spread",
            Kind::Near => "pod affinity",
            Kind::Apart | Kind::Repelled => "pod anti-affinity",
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

    fn host_name(&self, host: usize) -> String {
        match self.hosts.get(host) {
            Some(host) => host.hostname().to_owned(),
            None => format!("hostname-placeholder-{:04}", host - self.hosts.len() + 1),
        }
    }

    /// The types do not suffice: which of requirements, resources and offerings took the last one.
    fn types_refusal(
        &self,
        template: &Template,
        node: &Requirements,
        asked: &Resources,
        mask: Option<Bits>,
        held_up: bool,
    ) -> (String, Option<Reason>) {
        let table = template.catalog.table();
        let candidates = mask.unwrap_or_else(|| template.types.clone());
        let dimensions = self.shapes.dimensions();
        let pods = dimensions.flat(asked);
        let mut meets = table.meeting(node);
        meets.and(&candidates);
        let mut offered = table.offered(&table.kinds_meeting(node, &self.snapshot.well_known));
        offered.and(&candidates);
        let mut fits = Bits::none(table.len());
        let mut nearest: Option<(i64, String, &str, i64)> = None;
        for group in &template.groups {
            let mut total: Amounts = pods.clone();
            add(&mut total, &dimensions.flat(&group.overhead.requests));
            for at in candidates.iter().filter(|at| group.types.has(*at)) {
                let free = dimensions.flat(&table.allocatable()[at]);
                if fit(&total, &free) {
                    fits.insert(at);
                } else if meets.has(at) && offered.has(at) {
                    let (share, dimension, by) = shortfall(&total, &free);
                    let name = || template.catalog.types()[at].name.to_string();
                    if nearest.as_ref().is_none_or(|known| share < known.0) {
                        nearest = Some((share, name(), dimensions.name(dimension), by));
                    }
                }
            }
        }
        // Of the groups of types the one that takes most: that is what a machine may have to have room for.
        let overhead = template.groups.iter().map(|group| &group.overhead.requests);
        let total = asked.add(&overhead.fold(Resources::zero(), |most, each| most.max(each)));
        let suffix = format!(", requirements={node}, resources={}", json(&total));
        let missed = nearest.map(|(_, instance_type, resource, by)| Reason::Missed {
            instance_type,
            resource: resource.to_owned(),
            by,
        });
        let mut all = meets.clone();
        all.and(&fits);
        all.and(&offered);
        if !all.is_empty()
            && let Err(short) = template.catalog.check_min_values_of(&all, node)
        {
            let keys: Vec<&str> = short.keys().map(|key| &**key).collect();
            let keys = keys.join(" ");
            return (
                format!(
                    "minValues requirement is not met for label(s) (label(s)=[{keys}]){suffix}"
                ),
                None,
            );
        }
        if held_up && !all.is_empty() {
            return (HELD_UP.to_owned(), None);
        }
        let text = which_filter(&meets, &fits, &offered, asked.get(CPU));
        (format!("{text}{suffix}"), missed)
    }
}

/// How far a type is off: its largest relative shortfall in thousandths, the dimension, and by how much.
fn shortfall(asked: &[i64], free: &[i64]) -> (i64, usize, i64) {
    let of = |(at, (asked, free)): (usize, (&i64, &i64))| {
        let by = asked.saturating_sub(*free);
        let share = i128::from(by) * 1000 / i128::from((*asked).max(1));
        (i64::try_from(share).unwrap_or(i64::MAX), at, by)
    };
    asked
        .iter()
        .zip(free)
        .enumerate()
        .map(of)
        .max()
        .unwrap_or((0, 0, 0))
}

fn which_filter(meets: &Bits, fits: &Bits, offered: &Bits, cpu: i64) -> String {
    let pair = |a: &Bits, b: &Bits| a.meets(b);
    let text = match (meets.is_empty(), fits.is_empty(), offered.is_empty()) {
        (true, true, true) => {
            "no instance type met the scheduling requirements or had enough resources or had a required offering"
        }
        (true, true, false) => {
            "no instance type met the scheduling requirements or had enough resources"
        }
        (true, false, true) => {
            "no instance type met the scheduling requirements or had a required offering"
        }
        (false, true, true) => "no instance type had enough resources or had a required offering",
        (true, false, false) => "no instance type met all requirements",
        (false, true, false) => {
            let hint = if cpu >= ABSURD_CPU {
                " (CPU request >= 1 Million, m vs M typo?)"
            } else {
                ""
            };
            return format!("no instance type has enough resources{hint}");
        }
        (false, false, true) => "no instance type has the required offering",
        (false, false, false) if pair(meets, fits) && !pair(fits, offered) => {
            "no instance type which met the scheduling requirements and had enough resources, had a required offering"
        }
        (false, false, false) if pair(fits, offered) && !pair(meets, fits) => {
            "no instance type which had enough resources and the required offering met the scheduling requirements"
        }
        (false, false, false) if pair(meets, offered) && !pair(fits, offered) => {
            "no instance type which met the scheduling requirements and the required offering had the required resources"
        }
        (false, false, false) => "no instance type met the requirements/resources/offering tuple",
    };
    text.to_owned()
}

/// Amounts as a JSON object with canonical quantities, as upstream prints them.
fn json(of: &Resources) -> String {
    let all = of.to_quantities();
    let entries: Vec<String> = all
        .iter()
        .map(|(name, amount)| format!("\"{name}\":\"{amount}\""))
        .collect();
    format!("{{{}}}", entries.join(","))
}

fn without_hostname_key(of: &Requirements) -> Requirements {
    without_hostname(of).unwrap_or_else(|| {
        let mut rest = of.clone();
        rest.remove(labels::HOSTNAME);
        rest
    })
}
