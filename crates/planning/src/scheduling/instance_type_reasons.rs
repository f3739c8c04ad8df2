//! Why no instance type of a NodePool can run a pod: labels, size, offerings, or the NodePool's limits.

use super::messages;
use super::pod_requirements::PodRequirements;
use super::pool_template::PoolTemplate;
use super::reasons::{HELD_UP, PoolRejection};
use super::resource_vector::{ResourceDimensions, ResourceVector, add, fit};
use crate::reason::{PoolBlocker, Reason};
use mortise_apis::labels::{self, WellKnown};
use mortise_apis::requirements::{Requirement, Requirements};
use mortise_apis::resources::{CPU, Resources};
use mortise_state::catalog::Bits;
use mortise_state::pods::HostPort;

/// CPU requests from this value on are probably a mistyped unit: a million cores, in milli.
const ABSURD_CPU: i64 = 1_000_000_000;

/// Checks the instance types of a NodePool against what a pod requires, and explains which check none of them passes.
pub(super) struct InstanceTypeCheck<'p> {
    /// The NodePool.
    pub(super) template: &'p PoolTemplate,
    /// What the pod requires.
    pub(super) ask: &'p PodRequirements,
    /// The alternative of its node affinity that is explained.
    pub(super) asked: &'p Requirements,
    /// The requirements of a new node for the pod.
    pub(super) node: &'p Requirements,
    /// Instance types within the limits of the NodePool, if it has limits.
    pub(super) mask: Option<&'p Bits>,
    /// Well-known labels.
    pub(super) known: &'p WellKnown,
    /// Resources that count.
    pub(super) dimensions: &'p ResourceDimensions,
    /// The pod waits for reserved capacity that other pods of the pass use.
    pub(super) lacks_reservation: bool,
}

impl InstanceTypeCheck<'_> {
    /// Why no instance type can be used: requirements, resources, offerings or a combination of them.
    pub(super) fn rejection(&self) -> PoolRejection {
        let Self {
            template,
            ask,
            node,
            mask,
            ..
        } = *self;
        let catalog = &template.catalog;
        let table = catalog.table();
        let candidates = mask.unwrap_or(&template.types);
        let mut meets = table.meeting(node);
        meets.and(candidates);
        let mut offered = table.offered(&table.kinds_meeting(node, self.known));
        offered.and(candidates);
        let mut suiting = meets.clone();
        suiting.and(&offered);
        let sizes = self.sizes(candidates, &suiting);
        let fits = &sizes.fits;
        // The group with the largest overhead decides how much capacity a node may need.
        let overhead = template.groups.iter().map(|group| &group.overhead.requests);
        let most = overhead.fold(Resources::zero(), |most, each| most.max(each));
        let total = ask.resources.add(&most);
        let suffix = format!(", requirements={node}, resources={}", json(&total));
        let mut all = suiting.clone();
        all.and(fits);
        if !all.is_empty()
            && let Err(short) = catalog.check_min_values_of(&all, node)
        {
            let keys: Vec<&str> = short.keys().map(|key| &**key).collect();
            let keys = keys.join(" ");
            let left = short.iter().map(|(key, left)| {
                let wanted = node.get(key).and_then(Requirement::min_values);
                format!(
                    "{key} has {left} values left, minValues is {}",
                    wanted.unwrap_or(0)
                )
            });
            return PoolRejection::new(
                PoolBlocker::MinValues,
                format!(
                    "minValues requirement is not met for label(s) (label(s)=[{keys}]){suffix}"
                ),
                left.collect::<Vec<_>>().join("; "),
            );
        }
        if self.lacks_reservation && !all.is_empty() {
            let detail = "the compatible reserved capacity is reserved for other pods of this pass";
            return PoolRejection::new(PoolBlocker::Reserved, HELD_UP, detail);
        }
        let free_of_ports = all.iter().any(|at| {
            let group = template.groups.iter().find(|group| group.types.has(at));
            group.is_none_or(|group| {
                HostPort::conflict(&ask.ports, &group.overhead.host_ports).is_none()
            })
        });
        if !all.is_empty() && !free_of_ports {
            let taken = template.groups.iter().find_map(|group| {
                HostPort::conflict(&ask.ports, &group.overhead.host_ports)
                    .map(|(asked, _)| asked.to_string())
            });
            let port = taken.unwrap_or_default();
            return PoolRejection::new(
                PoolBlocker::HostPorts,
                format!("host port {port} is taken by a DaemonSet{suffix}"),
                format!("a DaemonSet uses host port {port} on every compatible instance type"),
            );
        }
        let text = which_filter(&meets, fits, &offered, ask.resources.get(CPU));
        let (blocker, detail) = if meets.is_empty() {
            self.no_type()
        } else if suiting.is_empty() {
            let concerns = |at: usize| meets.has(at);
            messages::sold_out(catalog, node, concerns).map_or_else(
                || {
                    let blame = catalog.eliminating_requirement(node);
                    let asked = |key: &str| node.get_or_exists(key).to_string();
                    let (zone, way) = (asked(labels::TOPOLOGY_ZONE), asked(labels::CAPACITY_TYPE));
                    let text = || {
                        format!(
                            "none of {} types is offered with {zone} and {way}",
                            meets.len()
                        )
                    };
                    let text = blame.map_or_else(text, |blame| messages::types(&blame, "the pod"));
                    (PoolBlocker::Offerings, text)
                },
                |text| (PoolBlocker::SoldOut, text),
            )
        } else if all.is_empty() {
            self.too_small(&sizes, &suiting)
        } else {
            let text = "there is no blocker now, it will be retried";
            (PoolBlocker::Types, text.to_owned())
        };
        PoolRejection {
            missed: sizes.missed(),
            ..PoolRejection::new(blocker, format!("{text}{suffix}"), detail)
        }
    }

    /// Which instance types are large enough, and which of the compatible ones lacks least.
    fn sizes(&self, candidates: &Bits, suiting: &Bits) -> CapacityFit {
        let Self {
            template,
            ask,
            dimensions,
            ..
        } = *self;
        let table = template.catalog.table();
        let mut sizes = CapacityFit {
            fits: Bits::none(table.type_count()),
            fits_alone: false,
            nearest: None,
        };
        for group in template.groups.iter() {
            let daemons = dimensions.flat(&group.overhead.requests);
            let mut total: ResourceVector = ask.requests.clone();
            add(&mut total, &daemons);
            for at in candidates.iter().filter(|at| group.types.has(*at)) {
                let free = dimensions.flat(&table.allocatable()[at]);
                if fit(&total, &free) {
                    sizes.fits.insert(at);
                } else if suiting.has(at) {
                    sizes.fits_alone |= fit(&ask.requests, &free);
                    let (share, dimension, by) = shortfall(&total, &free);
                    if sizes
                        .nearest
                        .as_ref()
                        .is_none_or(|known| share < known.share)
                    {
                        sizes.nearest = Some(NearestType {
                            share,
                            instance_type: template.catalog.types()[at].name.to_string(),
                            resource: dimensions.name(dimension).to_owned(),
                            asked: total[dimension],
                            daemons: daemons[dimension],
                            has: free[dimension],
                            by,
                        });
                    }
                }
            }
        }
        sizes
    }

    /// No instance type meets the requirements: by its labels, or by the limits.
    fn no_type(&self) -> (PoolBlocker, String) {
        let Self {
            template,
            asked,
            node,
            mask,
            ..
        } = *self;
        let Some(blame) = template.catalog.eliminating_requirement(node) else {
            // Instance types exist, but the NodePool may not use them: they are unavailable, or exceed its limits.
            let of_pool = |at: usize| template.types.has(at);
            let limited = mask
                .is_some()
                .then(|| template.excluding_limit(&template.types));
            return limited.filter(|text| !text.is_empty()).map_or_else(
                || {
                    let text = messages::sold_out(&template.catalog, node, |at| !of_pool(at));
                    (PoolBlocker::SoldOut, text.unwrap_or_default())
                },
                |text| (PoolBlocker::Limit, text),
            );
        };
        let key = blame.requirement.key();
        let whose = match (asked.has_key(key), template.requirements.has_key(key)) {
            (true, true) => "the pod, within its pool,",
            (true, false) => "the pod",
            (false, true) => "the pool",
            (false, false) => "where its volumes or other pods are",
        };
        let blocker = if blame.only_together {
            PoolBlocker::Offerings
        } else {
            PoolBlocker::Types
        };
        (blocker, messages::types(&blame, whose))
    }

    fn too_small(&self, sizes: &CapacityFit, suiting: &Bits) -> (PoolBlocker, String) {
        let Self {
            template,
            ask,
            dimensions,
            ..
        } = *self;
        if self.mask.is_some() {
            let types = template.types.iter();
            let large_enough: Bits = types
                .filter(|at| fit(&ask.requests, template.net(*at)))
                .collect();
            let limit = template.excluding_limit(&large_enough);
            if !limit.is_empty() {
                return (PoolBlocker::Limit, limit);
            }
        }
        // A resource that no instance type has explains more than what the nearest one lacks.
        let table = template.catalog.table();
        let absent = (0..dimensions.len()).find(|at| {
            ask.requests[*at] > 0
                && suiting
                    .iter()
                    .all(|of| dimensions.flat(&table.allocatable()[of])[*at] == 0)
        });
        if let Some(absent) = absent {
            let name = dimensions.name(absent);
            return (
                PoolBlocker::Resources,
                messages::too_small("", name, ask.requests[absent], 0, 0),
            );
        }
        let blocker = if sizes.fits_alone {
            PoolBlocker::DaemonSets
        } else {
            PoolBlocker::Resources
        };
        let detail = sizes.nearest.as_ref().map_or_else(String::new, |nearest| {
            let NearestType {
                instance_type,
                resource,
                asked,
                daemons,
                has,
                ..
            } = nearest;
            messages::too_small(instance_type, resource, *asked, *daemons, *has)
        });
        (blocker, detail)
    }
}

/// Which instance types are large enough.
struct CapacityFit {
    fits: Bits,
    /// Some compatible instance type would be large enough without the DaemonSets.
    fits_alone: bool,
    nearest: Option<NearestType>,
}

/// The instance type that lacks least, and by how much.
struct NearestType {
    share: i64,
    instance_type: String,
    resource: String,
    /// DaemonSet requests included.
    asked: i64,
    daemons: i64,
    has: i64,
    by: i64,
}

impl CapacityFit {
    fn missed(&self) -> Option<Reason> {
        self.nearest
            .as_ref()
            .map(|nearest| Reason::NearestTypeShortfall {
                instance_type: nearest.instance_type.clone(),
                resource: nearest.resource.clone(),
                by: nearest.by,
            })
    }
}

/// The largest relative shortfall of an instance type in thousandths, its dimension, and the missing amount.
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

/// Amounts as a JSON object with canonical quantities, as Karpenter prints them.
fn json(of: &Resources) -> String {
    let all = of.to_quantities();
    let entries: Vec<String> = all
        .iter()
        .map(|(name, amount)| format!("\"{name}\":\"{amount}\""))
        .collect();
    format!("{{{}}}", entries.join(","))
}
