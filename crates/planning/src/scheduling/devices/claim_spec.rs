//! Compiled specifications of ResourceClaims.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Taint, Toleration};

use super::cel::Program;
use super::inventory::{Nanos, amount};
use mortise_apis::k8s::devices::{
    Device, DeviceConstraint, DeviceSelector, ExactDeviceRequest, ResourceClaimSpec,
};
use mortise_apis::taints;
use mortise_state::snapshot::DeviceObjects;

/// Most devices of a ResourceClaim.
///
/// # Source
/// The API server admits no longer list of results.
pub(super) const MOST_DEVICES: usize = 32;

/// The specification of a ResourceClaim.
#[derive(Debug)]
pub(super) struct CompiledClaimSpec {
    /// Its requests, in order.
    pub(super) requests: Vec<RequestSpec>,
    /// What the devices must have in common.
    pub(super) constraints: Vec<DeviceConstraint>,
}

/// A request of a claim.
#[derive(Debug)]
pub(super) struct RequestSpec {
    /// Name within the claim.
    pub(super) name: String,
    /// Alternatives, of which the first available one is used.
    pub(super) alternatives: Vec<Alternative>,
}

/// One way to satisfy a request.
#[derive(Debug)]
pub(super) struct Alternative {
    /// Name within the request; of the request itself where there is only one way.
    pub(super) name: String,
    /// Class of the devices.
    pub(super) class: String,
    /// Selectors that they match.
    programs: Vec<(Arc<Program>, String)>,
    /// All devices of the kind; otherwise `count` of them.
    pub(super) all: bool,
    /// How many.
    pub(super) count: usize,
    /// For administration.
    pub(super) admin: bool,
    tolerations: Vec<Toleration>,
    /// How much of each capacity.
    pub(super) capacity: Vec<(String, Nanos)>,
}

impl Alternative {
    /// Whether a device of a driver matches.
    ///
    /// # Errors
    /// An expression cannot be evaluated for this device.
    pub(super) fn selects(&self, driver: &str, device: &Device) -> Result<bool, String> {
        for (program, text) in &self.programs {
            match program.matches(driver, device) {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err(why) => {
                    let name = &device.name;
                    return Err(format!(
                        "selector {text:?} cannot be answered for device {driver}/{name}: {why}"
                    ));
                }
            }
        }
        Ok(true)
    }

    /// Whether it tolerates the taints of a device.
    pub(super) fn tolerates(&self, device: &Device) -> bool {
        let hard = device.taints.iter().filter(|taint| taint.effect != "None");
        hard.into_iter().all(|own| {
            let taint = Taint {
                key: own.key.clone(),
                value: Some(own.value.clone()),
                effect: own.effect.clone(),
                time_added: None,
            };
            self.tolerations
                .iter()
                .any(|toleration| taints::tolerates(toleration, &taint))
        })
    }
}

/// Parsed expressions.
#[derive(Debug, Default)]
pub(super) struct Programs {
    known: BTreeMap<String, Result<Arc<Program>, String>>,
}

impl Programs {
    fn compile(&mut self, selector: &DeviceSelector) -> Result<(Arc<Program>, String), String> {
        let Some(cel) = &selector.cel else {
            return Err("unsupported selector type (only CEL is supported)".to_owned());
        };
        let text = &cel.expression;
        let known = self.known.entry(text.clone()).or_insert_with(|| {
            let program = Program::parse(text).map(Arc::new);
            program.map_err(|why| format!("expression {text:?} failed to compile: {why}"))
        });
        known.clone().map(|program| (program, text.clone()))
    }
}

impl CompiledClaimSpec {
    /// Compiles the specification of a ResourceClaim with this name.
    ///
    /// # Errors
    /// A device class does not exist, or the specification cannot be interpreted; with Karpenter's text where it has one.
    pub(super) fn compile(
        name: &str,
        spec: &ResourceClaimSpec,
        objects: &DeviceObjects,
        programs: &mut Programs,
    ) -> Result<Self, String> {
        let fault = |request: &str, why: String| {
            format!("validating claim {name:?}: claim {name:?} request {request:?}: {why}")
        };
        let mut requests = Vec::new();
        let mut least = 0;
        for request in &spec.devices.requests {
            let mut alternatives = Vec::new();
            let only = request
                .exactly
                .iter()
                .map(|exactly| (&request.name, exactly));
            let some = request.first_available.iter();
            for (sub, exactly) in only.chain(some.map(|sub| (&sub.name, &sub.exactly))) {
                let read = Alternative::compile(sub, exactly, objects, programs);
                alternatives.push(read.map_err(|why| fault(&request.name, why))?);
            }
            if alternatives.is_empty() {
                let why = "has no supported request (exactly, firstAvailable)";
                return Err(fault(&request.name, why.to_owned()));
            }
            least += alternatives
                .iter()
                .map(|each| each.count)
                .min()
                .unwrap_or(0);
            requests.push(RequestSpec {
                name: request.name.clone(),
                alternatives,
            });
        }
        if least > MOST_DEVICES {
            return Err(format!(
                "validating claim {name:?}: claim {name:?} asks for {least} devices, exceeding maximum of {MOST_DEVICES}"
            ));
        }
        for constraint in &spec.devices.constraints {
            if constraint.match_attribute.is_none() && constraint.distinct_attribute.is_none() {
                return Err(format!(
                    "validating claim {name:?}: unsupported constraint type"
                ));
            }
        }
        Ok(Self {
            requests,
            constraints: spec.devices.constraints.clone(),
        })
    }
}

impl Alternative {
    fn compile(
        name: &str,
        of: &ExactDeviceRequest,
        objects: &DeviceObjects,
        programs: &mut Programs,
    ) -> Result<Self, String> {
        let class = &of.device_class_name;
        let Some(known) = objects.classes.get(class.as_str()) else {
            return Err(format!(
                "DeviceClass {class:?} not found: deviceclasses.resource.k8s.io {class:?} not found"
            ));
        };
        let all = match of.allocation_mode.as_str() {
            "" | "ExactCount" => false,
            "All" => true,
            other => {
                return Err(format!(
                    "allocation mode {other:?} is not known (ExactCount, All)"
                ));
            }
        };
        let selectors = known.spec.selectors.iter().chain(&of.selectors);
        let programs: Result<_, _> = selectors.map(|each| programs.compile(each)).collect();
        let capacity = of.capacity.iter().flat_map(|capacity| &capacity.requests);
        Ok(Self {
            name: name.to_owned(),
            class: class.clone(),
            programs: programs?,
            all,
            count: if all {
                1
            } else {
                usize::try_from(of.count).unwrap_or(0).max(1)
            },
            admin: of.admin_access == Some(true),
            tolerations: of.tolerations.clone(),
            capacity: capacity
                .map(|(name, own)| (name.clone(), amount(own)))
                .collect(),
        })
    }
}
