//! Whether an in-flight NodeClaim accepts one more pod, and which narrowed template it then has.

use std::sync::Arc;

use smallvec::SmallVec;

use super::narrowed_template::{NarrowedTemplateId, NarrowedTemplates};
use super::pod_requirements::PodRequirements;
use super::pool_template::PoolTemplate;
use super::reservations::{ReservationId, Reservations};
use super::resource_vector::{ResourceVector, add, fit};
use super::topology::{AllowedDomains, Topology};
use mortise_apis::requirements::{Operator, Requirement};
use mortise_state::catalog::UNKNOWN_PRICE;
use mortise_state::pods::HostPort;

/// Why an in-flight NodeClaim does not accept a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AddError {
    /// It will not accept the pod during this pass.
    Final,
    /// It does not accept the pod with the current topology counts.
    Now,
    /// The pod needs reserved capacity that other NodeClaims of the pass hold.
    Reserved,
}

/// The part of an in-flight NodeClaim that decides whether one more pod fits.
pub(super) struct ClaimState<'c> {
    /// Its narrowed template now.
    pub(super) shape: NarrowedTemplateId,
    /// Sum of its pods' requests.
    pub(super) taken: &'c [i64],
    /// Host ports of its pods.
    pub(super) ports: &'c [HostPort],
    /// minValues may be lowered.
    pub(super) relax: bool,
    /// Reserved capacity.
    pub(super) reservations: &'c Reservations,
    /// The reservations that the NodeClaim holds.
    pub(super) held: &'c [ReservationId],
}

impl ClaimState<'_> {
    /// Whether a reservation is left for the NodeClaim, if it would be launched from reserved capacity.
    fn is_covered(
        &self,
        shapes: &NarrowedTemplates<'_>,
        templates: &[PoolTemplate],
        ask: &PodRequirements,
        ports: &[HostPort],
        id: NarrowedTemplateId,
    ) -> bool {
        let shape = shapes.get(id);
        if self.reservations.is_empty() || (!shape.is_reserved && self.held.is_empty()) {
            return true;
        }
        let template = &templates[shape.template];
        let total = total_with(self, ask);
        let types = shape.types_with_capacity(template, &total, ports);
        let holds = self
            .reservations
            .claimable(shape, template, &types, self.held);
        holds.is_ok()
    }
}

/// Whether an in-flight NodeClaim can still be in an allowed domain of every key.
pub(super) fn meets(
    shapes: &mut NarrowedTemplates<'_>,
    templates: &[PoolTemplate],
    topology: &Topology,
    shape: NarrowedTemplateId,
    allow: &[AllowedDomains],
) -> bool {
    allow.iter().all(|each| {
        let key = &topology.keys[each.key];
        if is_without(shapes, templates, shape, each, &key.name) {
            return true;
        }
        shapes
            .domains(shape, each.key, &key.name, &key.domains)
            .meets(&each.domains)
    })
}

/// Whether the node will not have the label, and the pod allows that.
fn is_without(
    shapes: &NarrowedTemplates<'_>,
    templates: &[PoolTemplate],
    shape: NarrowedTemplateId,
    each: &AllowedDomains,
    key: &str,
) -> bool {
    each.absent && templates[shapes.get(shape).template].never_has(key)
}

/// The narrowed template of an in-flight NodeClaim with one more pod, and whether minValues were lowered for it.
pub(super) fn can_add(
    shapes: &mut NarrowedTemplates<'_>,
    templates: &[PoolTemplate],
    topology: &Topology,
    candidate: &ClaimState<'_>,
    ask: &PodRequirements,
    allow: &[AllowedDomains],
) -> Result<(NarrowedTemplateId, bool), AddError> {
    if !ask.ports.is_empty() && HostPort::conflict(&ask.ports, candidate.ports).is_some() {
        return Err(AddError::Final);
    }
    let shape = ask
        .add
        .and_then(|add| shapes.after(templates, candidate.shape, add))
        .ok_or(AddError::Final)?;
    let mut error = AddError::Final;
    let through_volumes: SmallVec<[NarrowedTemplateId; 2]> = if ask.volumes.is_empty() {
        std::iter::once(shape).collect()
    } else {
        ask.volume_adds
            .iter()
            .filter_map(|add| shapes.after(templates, shape, *add))
            .collect()
    };
    let ports: SmallVec<[HostPort; 2]> =
        candidate.ports.iter().chain(&ask.ports).cloned().collect();
    for shape in through_volumes {
        match fit_with_min_values(shapes, templates, candidate, ask, &ports, shape) {
            Ok(fits) if allow.is_empty() => {
                if candidate.is_covered(shapes, templates, ask, &ports, fits.0) {
                    return Ok(fits);
                }
                error = AddError::Reserved;
                continue;
            }
            Ok(_) if error == AddError::Final => error = AddError::Now,
            Ok(_) => {}
            Err(()) => continue,
        }
        match in_domains(
            shapes, templates, topology, candidate, ask, &ports, shape, allow,
        ) {
            Ok(found) => return Ok(found),
            Err(AddError::Reserved) => error = AddError::Reserved,
            Err(_) => {}
        }
    }
    Err(error)
}

/// Narrows a template, key by key, to allowed domains in which some instance type still has enough capacity.
#[expect(
    clippy::too_many_arguments,
    reason = "a step of `take`, which splits the borrowed state of a pass"
)]
fn in_domains(
    shapes: &mut NarrowedTemplates<'_>,
    templates: &[PoolTemplate],
    topology: &Topology,
    candidate: &ClaimState<'_>,
    ask: &PodRequirements,
    ports: &[HostPort],
    shape: NarrowedTemplateId,
    allow: &[AllowedDomains],
) -> Result<(NarrowedTemplateId, bool), AddError> {
    let mut error = AddError::Now;
    let Some((first, rest)) = allow.split_first() else {
        return Err(error);
    };
    let key = &topology.keys[first.key];
    if is_without(shapes, templates, shape, first, &key.name) {
        if !rest.is_empty() {
            return in_domains(
                shapes, templates, topology, candidate, ask, ports, shape, rest,
            );
        }
        let fits = fit_with_min_values(shapes, templates, candidate, ask, ports, shape);
        let fits = fits.map_err(|()| AddError::Final)?;
        return if candidate.is_covered(shapes, templates, ask, ports, fits.0) {
            Ok(fits)
        } else {
            Err(AddError::Reserved)
        };
    }
    let possible = shapes.domains(shape, first.key, &key.name, &key.domains);
    let domains = topology.in_order(first, possible);
    let choices: SmallVec<[Option<NarrowedTemplateId>; 4]> = if first.one || domains.len() == 1 {
        let one = |domain: usize| {
            shapes.in_domain(
                templates,
                shape,
                (first.key, &key.name),
                (domain, &key.domains[domain]),
            )
        };
        let counts: SmallVec<[i32; 4]> = domains
            .iter()
            .map(|domain| topology.count_of(first, *domain))
            .collect();
        let mut choices: SmallVec<[Option<NarrowedTemplateId>; 4]> =
            domains.into_iter().map(one).collect();
        cheaper_first(
            shapes,
            templates,
            &total_with(candidate, ask),
            &counts,
            &mut choices,
        );
        choices
    } else if domains.is_empty() {
        return Err(error);
    } else {
        let values = domains
            .iter()
            .map(|domain| Arc::clone(&key.domains[*domain]));
        let several = Requirement::new(Arc::clone(&key.name), Operator::In, values);
        std::iter::once(shapes.with(templates, shape, several)).collect()
    };
    for narrow in choices.into_iter().flatten() {
        let Ok(fits) = fit_with_min_values(shapes, templates, candidate, ask, ports, narrow) else {
            continue;
        };
        let found = if !rest.is_empty() {
            in_domains(
                shapes, templates, topology, candidate, ask, ports, narrow, rest,
            )
        } else if candidate.is_covered(shapes, templates, ask, ports, fits.0) {
            Ok(fits)
        } else {
            Err(AddError::Reserved)
        };
        match found {
            Ok(found) => return Ok(found),
            Err(AddError::Reserved) => error = AddError::Reserved,
            Err(_) => {}
        }
    }
    Err(error)
}

/// Sum of the requests of the NodeClaim's pods and one more.
fn total_with(candidate: &ClaimState<'_>, ask: &PodRequirements) -> ResourceVector {
    let mut total = ResourceVector::from_slice(candidate.taken);
    add(&mut total, &ask.requests);
    total
}

/// Sorts domains of equal counts by the price of the cheapest instance type that holds `total`.
fn cheaper_first(
    shapes: &NarrowedTemplates<'_>,
    templates: &[PoolTemplate],
    total: &[i64],
    counts: &[i32],
    choices: &mut [Option<NarrowedTemplateId>],
) {
    let mut from = 0;
    while from < choices.len() {
        let equal = counts[from..]
            .iter()
            .take_while(|count| **count == counts[from]);
        let to = from + equal.count();
        if to - from > 1 {
            choices[from..to].sort_by_key(|choice| {
                let shape = choice.map(|id| shapes.get(id));
                let least = shape.and_then(|shape| {
                    let template = &templates[shape.template];
                    let mut offers = shape.by_price(template).iter();
                    offers
                        .find(|(at, _)| fit(total, template.net(*at)))?
                        .1
                        .price
                });
                least.unwrap_or(UNKNOWN_PRICE)
            });
        }
        from = to;
    }
}

/// Whether some instance type of the template has enough capacity, and enough values are left for minValues.
fn fit_with_min_values(
    shapes: &mut NarrowedTemplates<'_>,
    templates: &[PoolTemplate],
    candidate: &ClaimState<'_>,
    ask: &PodRequirements,
    ports: &[HostPort],
    id: NarrowedTemplateId,
) -> Result<(NarrowedTemplateId, bool), ()> {
    let shape = shapes.get(id);
    let template = &templates[shape.template];
    if !shape.has_capacity(template, candidate.taken, &ask.requests, ports) {
        return Err(());
    }
    if !shape.has_min_values {
        return Ok((id, false));
    }
    let total = total_with(candidate, ask);
    let types = shape.types_with_capacity(template, &total, ports);
    match template
        .catalog
        .check_min_values_of(&types, &shape.requirements)
    {
        Ok(()) => Ok((id, false)),
        Err(short) if candidate.relax => {
            Ok((shapes.with_possible_min_values(templates, id, &short), true))
        }
        Err(_) => Err(()),
    }
}
