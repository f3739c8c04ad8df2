//! Why no node of a NodePool has the requested devices.

use std::collections::BTreeSet;

use super::super::pool_template::PoolTemplate;
use super::super::reasons::PoolRejection;
use super::claims::DeviceRequirements;
use super::search::SearchNode;
use super::{DeviceRequirementsId, Devices};
use crate::reason::PoolBlocker;
use mortise_apis::requirements::Requirements;
use mortise_state::catalog::Bits;

/// Prefix of Karpenter's texts.
const ALLOCATING: &str = "allocating dynamic resources, ";

impl Devices<'_> {
    /// Why no instance type of a NodePool has the devices, or `None` if some do. `types` are those that the pod's other
    /// requirements allow, for nodes with the requirements `node`.
    pub(in crate::scheduling) fn rejection(
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

    /// What all of these instance types lack; `None` if one has everything.
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
        // Instance types with devices give better reasons than those without.
        let kits: BTreeSet<usize> = types
            .iter()
            .map(|at| kits_of.get(at).copied().unwrap_or(0))
            .collect();
        let mut last = String::new();
        for kit in kits {
            let searched = SearchNode::Open {
                requirements: node.clone(),
                known,
            };
            match self.search(&open, asked, kit, None, None, (searched, true)) {
                Ok(_) => return None,
                Err(why) => last = why,
            }
        }
        Some(last)
    }
}
