//! Where a pass asks for devices.

use super::super::existing_node::ExistingNode;
use super::super::narrowed_template::{NarrowedTemplateId, NarrowedTemplates};
use super::super::pass::{Pass, PlacementTarget};
use super::super::pool_template::PoolTemplate;
use super::{DeviceRequirementsId, Devices};

/// Has a machine that is there or coming give the devices that are asked for, if any are.
///
/// # Errors
/// It cannot; the text says what is missing.
pub(in crate::scheduling) fn give(
    devices: &mut Option<Box<Devices<'_>>>,
    ask: Option<DeviceRequirementsId>,
    host: &ExistingNode<'_>,
    at: usize,
) -> Result<(), String> {
    let Some(ask) = ask else {
        return Ok(());
    };
    match devices {
        Some(devices) => devices.on_host(ask, host, at),
        None => Err("devices are not known yet".to_owned()),
    }
}

/// The shape of a new machine narrowed to where the devices can be had that are asked for; `None` if nowhere. `to`: the
/// machine, if it has pods already.
pub(in crate::scheduling) fn narrowed(
    devices: &mut Option<Box<Devices<'_>>>,
    shapes: &mut NarrowedTemplates<'_>,
    templates: &[PoolTemplate],
    ask: &super::super::pod_requirements::PodRequirements,
    to: Option<usize>,
    shape: NarrowedTemplateId,
) -> Option<NarrowedTemplateId> {
    let Some(asked) = ask.devices else {
        return Some(shape);
    };
    let shape = shapes.after(templates, shape, ask.add?)?;
    let of = shapes.get(shape);
    let found = devices
        .as_mut()?
        .on_new(asked, to, of.template, &of.requirements, &of.types);
    let (types, requirements) = found.ok()?;
    shapes.limited(templates, shape, &types, requirements)
}

impl Pass<'_> {
    /// Gives a pod the devices that were found for it.
    pub(in crate::scheduling) fn give_devices(
        &mut self,
        at: usize,
        step: usize,
        to: PlacementTarget,
    ) {
        let item = &self.items[at];
        let ask = self.classes[item.class].steps[step].ask;
        if self.asks.all[ask].devices.is_none() {
            return;
        }
        let uid = &item.pod.uid;
        if let Some(devices) = &mut self.devices {
            devices.commit(uid, to);
        }
    }

    /// Devices for pods that were promised room before and are not part of this pass.
    pub(in crate::scheduling) fn keep_promised_devices(&mut self) {
        let Some(devices) = &mut self.devices else {
            return;
        };
        let snapshot = self.snapshot;
        for (at, host) in self.hosts.iter().enumerate() {
            let (node, claim) = host.node.names();
            for held in snapshot.ledger.nominations_of_node(node, claim) {
                if (self.ground.ours)(&held.uid) {
                    continue;
                }
                let pod = snapshot
                    .pods
                    .get(&held.pod)
                    .filter(|pod| pod.uid == held.uid);
                let Some(pod) = pod.filter(|pod| pod.claims.is_some()) else {
                    continue;
                };
                // A promise that cannot be kept any more takes nothing from others.
                if let Some(ask) = devices.ask(pod)
                    && devices.on_host(ask, host, at).is_ok()
                {
                    devices.commit(&pod.uid, PlacementTarget::Host(at));
                }
            }
        }
    }
}
