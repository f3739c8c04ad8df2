//! Device searches of a pass.

use super::super::existing_node::ExistingNode;
use super::super::narrowed_template::{NarrowedTemplateId, NarrowedTemplates};
use super::super::pool_template::PoolTemplate;
use super::{DeviceRequirementsId, Devices};

/// Finds the requested devices on an existing node, if any are requested.
///
/// # Errors
/// The node does not have them; the text states what is missing.
pub(in crate::scheduling) fn find_on_node(
    devices: &mut Option<Box<Devices<'_>>>,
    ask: Option<DeviceRequirementsId>,
    host: &ExistingNode<'_>,
    at: usize,
) -> Result<(), String> {
    let Some(ask) = ask else {
        return Ok(());
    };
    match devices {
        Some(devices) => devices.find_on_node(ask, host, at),
        None => Err("devices are not known yet".to_owned()),
    }
}

/// The narrowed template of a NodeClaim, limited to where the requested devices are available; `None` if nowhere. `to`:
/// the NodeClaim, if it has pods already.
pub(in crate::scheduling) fn narrow_to_devices(
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
    let found =
        devices
            .as_mut()?
            .find_on_template(asked, to, of.template, &of.requirements, &of.types);
    let (types, requirements) = found.ok()?;
    shapes.limited(templates, shape, &types, requirements)
}
