//! What repacking uses of a pass: it moves pods between in-flight NodeClaims and changes nothing else.

use crate::scheduling::devices::Devices;
use crate::scheduling::equivalence_class::EquivalenceClass;
use crate::scheduling::in_flight_node_claim::InFlightNodeClaim;
use crate::scheduling::narrowed_template::NarrowedTemplates;
use crate::scheduling::pass::{Pass, QueuedPod};
use crate::scheduling::placements::Placements;
use crate::scheduling::plan::SolveOptions;
use crate::scheduling::pod_requirements::PodRequirementsTable;
use crate::scheduling::pool_template::PoolTemplate;
use crate::scheduling::reservations::Reservations;
use crate::scheduling::topology::Topology;

/// The parts of a pass that repacking reads, and those that it changes.
pub(super) struct RepackView<'p, 'a> {
    pub(super) options: &'a SolveOptions,
    pub(super) templates: &'p [PoolTemplate],
    /// Taint set of each template.
    pub(super) template_taints: &'p [usize],
    pub(super) topology: &'p Topology,
    pub(super) asks: &'p PodRequirementsTable,
    pub(super) classes: &'p [EquivalenceClass<'a>],
    pub(super) items: &'p [QueuedPod<'a>],
    pub(super) reservations: &'p Reservations,
    pub(super) devices: Option<&'p Devices<'a>>,
    pub(super) shapes: &'p mut NarrowedTemplates<'a>,
    pub(super) claims: &'p mut Vec<InFlightNodeClaim>,
    pub(super) placements: &'p mut Placements,
}

impl<'p, 'a> RepackView<'p, 'a> {
    /// A view of a pass in which every pod was tried.
    pub(super) fn new(pass: &'p mut Pass<'a>) -> Self {
        Self {
            options: pass.options,
            templates: &pass.templates,
            template_taints: &pass.template_taints,
            topology: &pass.topology,
            asks: &pass.asks,
            classes: &pass.classes,
            items: &pass.items,
            reservations: &pass.reservations,
            devices: pass.devices.as_deref(),
            shapes: &mut pass.shapes,
            claims: &mut pass.claims,
            placements: &mut pass.placements,
        }
    }

    /// Whether the instance types of a NodeClaim depend on amounts only, not on ports, devices, minValues or reservations.
    pub(super) fn is_unconstrained(&self, claim: usize) -> bool {
        if self.devices.is_some_and(|devices| devices.concerns(claim)) {
            return false;
        }
        let claim = &self.claims[claim];
        let shape = self.shapes.get(claim.shape);
        claim.ports.is_empty()
            && claim.reservations.is_empty()
            && !shape.has_min_values
            && (!shape.is_reserved || self.reservations.is_empty())
    }

    /// Class and relaxation step of a placed pod.
    pub(super) fn class_and_step(&self, pod: usize) -> (usize, usize) {
        (self.items[pod].class, self.placements.step(pod))
    }

    /// What a placed pod requests.
    pub(super) fn amounts(&self, pod: usize) -> &'p [i64] {
        let (class, step) = self.class_and_step(pod);
        &self.asks.all[self.classes[class].steps[step].ask].requests
    }
}
