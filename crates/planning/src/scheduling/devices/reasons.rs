//! Why no machine of a pool gives the devices.

use std::collections::BTreeSet;

use super::super::pass::Pass;
use super::super::pod_requirements::PodRequirements;
use super::super::pool_template::PoolTemplate;
use super::super::reasons::PoolRejection;
use super::claims::DeviceRequirements;
use super::search::SearchNode;
use super::{DeviceRequirementsId, Devices};
use crate::reason::PoolBlocker;
use mortise_apis::requirements::Requirements;
use mortise_state::catalog::Bits;

/// What begins upstream's texts.
const ALLOCATING: &str = "allocating dynamic resources, ";

impl Devices<'_> {
    /// Why no type of a pool gives the devices, or `None` if some do. `all` are the types of the pool, `types` those that the
    /// pod leaves, of which `node` is required.
    pub(in crate::scheduling) fn refusal(
        &self,
        ask: DeviceRequirementsId,
        (at, template): (usize, &PoolTemplate),
        node: &Requirements,
        types: &Bits,
    ) -> Option<PoolRejection> {
        let asked = self.asks.get(ask)?;
        if let Some(fault) = &asked.fault {
            let text = format!("{ALLOCATING}{fault}");
            return Some(PoolRejection::new(
                PoolBlocker::Devices,
                text,
                fault.clone(),
            ));
        }
        let of_some = self.missing(asked, at, node, types)?;
        let of_all = self.missing(asked, at, &template.requirements, &template.types);
        let (text, detail) = match of_all {
            None => (
                "no instance type satisfies both scheduling and dynamic resource requirements"
                    .to_owned(),
                of_some,
            ),
            Some(of_all) => (
                format!("{ALLOCATING}no instance type can satisfy the allocation"),
                of_all,
            ),
        };
        Some(PoolRejection::new(PoolBlocker::Devices, text, detail))
    }

    /// What is missing on every one of these types; `None` if one has all.
    fn missing(
        &self,
        asked: &DeviceRequirements,
        template: usize,
        node: &Requirements,
        types: &Bits,
    ) -> Option<String> {
        let known = &self.snapshot.well_known;
        let suits = |of: &Requirements| node.is_compatible(of, known);
        let open = match self.open(asked, None, None, &suits) {
            Ok(open) => open,
            Err(why) => return Some(why),
        };
        let kits_of = self.kits_of.get(template)?;
        // Types with devices say more than those without.
        let kits: BTreeSet<usize> = types
            .iter()
            .map(|at| kits_of.get(at).copied().unwrap_or(0))
            .collect();
        let mut last = String::new();
        for kit in kits {
            let machine = SearchNode::Open {
                requirements: node.clone(),
                known,
            };
            match self.search(&open, asked, kit, None, None, (machine, true)) {
                Ok(_) => return None,
                Err(why) => last = why,
            }
        }
        Some(last)
    }
}

impl Pass<'_> {
    /// Why no machine of a pool gives the devices that are asked for; `None` if one does.
    pub(in crate::scheduling) fn devices_refusal(
        &self,
        ask: &PodRequirements,
        template: &PoolTemplate,
        node: &Requirements,
        mask: Option<&Bits>,
    ) -> Option<PoolRejection> {
        let asked = ask.devices?;
        let mut all = self.templates.iter();
        let at = all.position(|of| of.name == template.name)?;
        let mut types = template.catalog.table().meeting(node);
        types.and(mask.unwrap_or(&template.types));
        let devices = self.devices.as_ref()?;
        devices.refusal(asked, (at, template), node, &types)
    }
}
