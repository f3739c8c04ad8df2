//! Narrowed templates: what an in-flight NodeClaim may still become.
//!
//! A narrowed template is a NodePool's template with the requirements that pods have added. Few distinct ones occur in a
//! pass, so each is computed once: the instance types that meet it, and the largest of them, which suffice to check
//! capacity. Adding requirements is a table look-up.

use std::cell::OnceCell;
use std::collections::HashMap;

use foldhash::fast::FixedState;

use super::pool_template::PoolTemplate;
use super::resource_vector::{ResourceDimensions, ResourceVector, maximal, sum_fits};
use mortise_apis::labels::{self, WellKnown};
use mortise_apis::requirements::{Operator, Requirement, Requirements};
use mortise_state::catalog::{Bits, PricedOffering};
use mortise_state::pods::HostPort;

/// Index of a narrowed template.
pub(super) type NarrowedTemplateId = u32;
/// Index of a requirement set that pods add to templates.
pub(super) type RequirementSetId = u32;

const UNKNOWN: u32 = u32::MAX;
const NONE: u32 = u32::MAX - 1;

/// Host ports and the largest instance types of one DaemonSet group.
#[derive(Debug)]
pub(super) struct MaximalCapacities {
    group: usize,
    /// Capacity of the largest instance types, net of DaemonSet pods.
    net: Vec<ResourceVector>,
}

/// A NodePool's template with the requirements that pods added.
#[derive(Debug)]
pub(super) struct NarrowedTemplate {
    /// Index of the template.
    pub(super) template: usize,
    /// Instance types that the limits allowed when the NodeClaim was opened; an index of masks, 0 for all.
    mask: usize,
    /// All requirements except the hostname.
    pub(super) requirements: Requirements,
    /// Available instance types that meet them.
    pub(super) types: Bits,
    /// Kinds of offerings that meet them.
    pub(super) kinds: Bits,
    /// Whether minValues apply.
    pub(super) has_min_values: bool,
    /// Some of the kinds are reserved.
    pub(super) is_reserved: bool,
    fronts: Vec<MaximalCapacities>,
    domains: Vec<Option<Bits>>,
    priced: OnceCell<Vec<(usize, PricedOffering)>>,
}

type Fast<K, V> = HashMap<K, V, FixedState>;

/// All narrowed templates of a pass.
#[derive(Debug)]
pub(super) struct NarrowedTemplates<'a> {
    known: &'a WellKnown,
    dimensions: &'a ResourceDimensions,
    masks: Vec<Bits>,
    all: Vec<NarrowedTemplate>,
    by_content: Fast<(usize, usize, Requirements), NarrowedTemplateId>,
    adds: Vec<Requirements>,
    add_ids: Fast<Requirements, RequirementSetId>,
    after: Vec<Vec<u32>>,
    narrowed: Fast<(NarrowedTemplateId, usize, usize), u32>,
}

impl<'a> NarrowedTemplates<'a> {
    /// An empty table.
    pub(super) fn new(known: &'a WellKnown, dimensions: &'a ResourceDimensions) -> Self {
        Self {
            known,
            dimensions,
            masks: vec![Bits::default()],
            all: Vec::new(),
            by_content: Fast::default(),
            adds: Vec::new(),
            add_ids: Fast::default(),
            after: Vec::new(),
            narrowed: Fast::default(),
        }
    }

    /// The resources that count.
    pub(super) const fn dimensions(&self) -> &'a ResourceDimensions {
        self.dimensions
    }

    /// A narrowed template.
    pub(super) fn get(&self, id: NarrowedTemplateId) -> &NarrowedTemplate {
        &self.all[id as usize]
    }

    /// The id of a requirement set to add.
    pub(super) fn add_id(&mut self, asked: &Requirements) -> RequirementSetId {
        if let Some(id) = self.add_ids.get(asked) {
            return *id;
        }
        let id = u32::try_from(self.adds.len()).unwrap_or(UNKNOWN);
        self.adds.push(asked.clone());
        self.after.push(Vec::new());
        self.add_ids.insert(asked.clone(), id);
        id
    }

    /// The narrowed template of an empty NodeClaim, limited to some instance types.
    pub(super) fn start(
        &mut self,
        templates: &[PoolTemplate],
        template: usize,
        mask: Option<Bits>,
    ) -> NarrowedTemplateId {
        let mask = match mask {
            None => 0,
            Some(mask) => self.mask(mask),
        };
        let requirements = templates[template].requirements.clone();
        self.intern(templates, template, mask, requirements)
    }

    fn intern(
        &mut self,
        templates: &[PoolTemplate],
        template: usize,
        mask: usize,
        requirements: Requirements,
    ) -> NarrowedTemplateId {
        let key = (template, mask, requirements);
        if let Some(id) = self.by_content.get(&key) {
            return *id;
        }
        let shape = self.work_out(&templates[template], &key);
        let id = u32::try_from(self.all.len()).unwrap_or(UNKNOWN);
        self.all.push(shape);
        self.by_content.insert(key, id);
        id
    }

    fn work_out(
        &self,
        of: &PoolTemplate,
        (template, mask, requirements): &(usize, usize, Requirements),
    ) -> NarrowedTemplate {
        let table = of.catalog.table();
        let kinds = table.kinds_meeting(requirements, self.known);
        let mut types = table.offered(&kinds);
        types.and(&of.types);
        types.and(&table.meeting(requirements));
        if *mask > 0 {
            types.and(&self.masks[*mask]);
        }
        let front = |(group, each): (usize, &super::pool_template::DaemonSetGroup)| {
            let mut types = types.clone();
            types.and(&each.types);
            let net = types
                .iter()
                .map(|at| ResourceVector::from_slice(of.net(at)));
            MaximalCapacities {
                group,
                net: maximal(net.collect()),
            }
        };
        let fronts = of
            .groups
            .iter()
            .enumerate()
            .map(front)
            .filter(|front| !front.net.is_empty())
            .collect();
        let is_reserved = kinds
            .iter()
            .filter_map(|at| table.kinds().get(at))
            .any(|kind| kind.reservation.is_some());
        NarrowedTemplate {
            template: *template,
            mask: *mask,
            has_min_values: requirements.has_min_values(),
            is_reserved,
            requirements: requirements.clone(),
            fronts,
            kinds,
            types,
            domains: Vec::new(),
            priced: OnceCell::new(),
        }
    }

    /// The narrowed template with added requirements; `None` when they conflict.
    pub(super) fn after(
        &mut self,
        templates: &[PoolTemplate],
        shape: NarrowedTemplateId,
        add: RequirementSetId,
    ) -> Option<NarrowedTemplateId> {
        let slots = &mut self.after[add as usize];
        let at = shape as usize;
        if slots.len() <= at {
            slots.resize(at + 1, UNKNOWN);
        }
        match slots[at] {
            NONE => return None,
            UNKNOWN => {}
            id => return Some(id),
        }
        let asked = &self.adds[add as usize];
        let now = &self.all[at];
        let mut next = None;
        if now.requirements.is_compatible(asked, self.known) {
            let (template, mask) = (now.template, now.mask);
            let mut all = now.requirements.clone();
            all.require_all(asked);
            next = Some(self.intern(templates, template, mask, all));
        }
        self.after[add as usize][at] = next.unwrap_or(NONE);
        next
    }

    /// The narrowed template with one more requirement; `None` when it conflicts.
    pub(super) fn with(
        &mut self,
        templates: &[PoolTemplate],
        shape: NarrowedTemplateId,
        more: Requirement,
    ) -> Option<NarrowedTemplateId> {
        let now = self.get(shape);
        let one: Requirements = [more].into_iter().collect();
        if !now.requirements.is_compatible(&one, self.known) {
            return None;
        }
        let mut all = now.requirements.clone();
        all.require_all(&one);
        let (template, mask) = (now.template, now.mask);
        Some(self.intern(templates, template, mask, all))
    }

    /// The template limited to some instance types and further requirements; `None` when these conflict.
    pub(super) fn limited(
        &mut self,
        templates: &[PoolTemplate],
        shape: NarrowedTemplateId,
        types: &Bits,
        requirements: Requirements,
    ) -> Option<NarrowedTemplateId> {
        let now = self.get(shape);
        let mut left = now.types.clone();
        left.and(types);
        if left.is_empty() {
            return None;
        }
        let (template, mut mask) = (now.template, now.mask);
        if left != now.types {
            mask = self.mask(left);
        }
        Some(self.intern(templates, template, mask, requirements))
    }

    fn mask(&mut self, mask: Bits) -> usize {
        let known = self.masks.iter().position(|each| *each == mask);
        known.unwrap_or_else(|| {
            self.masks.push(mask);
            self.masks.len() - 1
        })
    }

    /// The template in one domain of a key; `None` when it cannot be there.
    pub(super) fn in_domain(
        &mut self,
        templates: &[PoolTemplate],
        shape: NarrowedTemplateId,
        (key, name): (usize, &str),
        (domain, value): (usize, &std::sync::Arc<str>),
    ) -> Option<NarrowedTemplateId> {
        if let Some(known) = self.narrowed.get(&(shape, key, domain)) {
            return (*known != NONE).then_some(*known);
        }
        let next = self.with(
            templates,
            shape,
            Requirement::is(name, std::sync::Arc::clone(value)),
        );
        self.narrowed
            .insert((shape, key, domain), next.unwrap_or(NONE));
        next
    }

    /// The same template with minValues lowered to what is possible.
    pub(super) fn with_possible_min_values(
        &mut self,
        templates: &[PoolTemplate],
        shape: NarrowedTemplateId,
        short: &mortise_state::catalog::MinValuesShortfall,
    ) -> NarrowedTemplateId {
        let now = self.get(shape);
        let (template, mask) = (now.template, now.mask);
        let mut all = now.requirements.clone();
        for (key, left) in short {
            if let Some(own) = all.get(key).cloned() {
                all.replace(own.with_min_values(u32::try_from(*left).ok()));
            }
        }
        self.intern(templates, template, mask, all)
    }

    /// The domains of a key, out of `names`, in which a node of the template may be.
    pub(super) fn domains(
        &mut self,
        shape: NarrowedTemplateId,
        key: usize,
        name: &str,
        names: &[std::sync::Arc<str>],
    ) -> &Bits {
        let shape = &mut self.all[shape as usize];
        if shape.domains.len() <= key {
            shape.domains.resize(key + 1, None);
        }
        let requirements = &shape.requirements;
        shape.domains[key].get_or_insert_with(|| {
            let own = requirements.get(name);
            let mut bits = Bits::none(names.len());
            let allowed = names
                .iter()
                .enumerate()
                .filter(|(_, value)| own.is_none_or(|own| own.has(value)));
            allowed.for_each(|(at, _)| bits.insert(at));
            bits
        })
    }
}

impl NarrowedTemplate {
    /// The values that a key is limited to, when it is limited to a list.
    pub(super) fn values(&self, key: &str) -> &[std::sync::Arc<str>] {
        let own = self
            .requirements
            .get(key)
            .filter(|own| own.operator() == Operator::In);
        own.map_or(&[], Requirement::values)
    }

    /// Whether some instance type has capacity for pods that request `taken` and `more`, next to the DaemonSets that run
    /// on it, and none of these uses one of the `ports`.
    #[inline]
    pub(super) fn has_capacity(
        &self,
        of: &PoolTemplate,
        taken: &[i64],
        more: &[i64],
        ports: &[HostPort],
    ) -> bool {
        self.fronts.iter().any(|front| {
            front.net.iter().any(|net| sum_fits(taken, more, net))
                && (ports.is_empty() || !conflicts(of, front.group, ports))
        })
    }

    /// The instance types that have capacity for `total`.
    pub(super) fn types_with_capacity(
        &self,
        of: &PoolTemplate,
        total: &[i64],
        ports: &[HostPort],
    ) -> Bits {
        let mut left = Bits::none(of.catalog.types().len());
        for at in self
            .types
            .iter()
            .filter(|at| super::resource_vector::fit(total, of.net(*at)))
        {
            left.insert(at);
        }
        if !ports.is_empty() {
            for (_, group) in of
                .groups
                .iter()
                .enumerate()
                .filter(|(at, _)| conflicts(of, *at, ports))
            {
                group.types.iter().for_each(|of| left.remove(of));
            }
        }
        left
    }

    /// The instance types with their cheapest offering, cheapest first, ties by name, unknown prices last.
    pub(super) fn by_price(&self, of: &PoolTemplate) -> &[(usize, PricedOffering)] {
        self.priced
            .get_or_init(|| of.catalog.table().by_price(&self.types, &self.kinds))
    }
}

fn conflicts(of: &PoolTemplate, group: usize, ports: &[HostPort]) -> bool {
    !ports.is_empty() && HostPort::conflict(ports, &of.groups[group].overhead.host_ports).is_some()
}

/// The requirements that pods may add to a node without a hostname yet, or `None` when they require another hostname.
pub(super) fn without_hostname(asked: &Requirements) -> Option<Requirements> {
    let Some(name) = asked.get(labels::HOSTNAME) else {
        return Some(asked.clone());
    };
    if !name.is_complement() {
        return None;
    }
    let mut rest = asked.clone();
    rest.remove(labels::HOSTNAME);
    Some(rest)
}
