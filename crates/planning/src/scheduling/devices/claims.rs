//! ResourceClaims of pods: their specifications, allocations, and the pods with equal ones.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::NodeSelector;

use super::claim_spec::CompiledClaimSpec;
use super::{DeviceRequirementsId, Devices, TargetKey};
use mortise_apis::k8s::ResourceClaim;
use mortise_apis::k8s::devices::ResourceClaimSpec;
use mortise_apis::names::{NamespacedName, Uid};
use mortise_apis::requirements::{Requirements, expression};
use mortise_state::snapshot::{ClaimSource, Pod};

/// A ResourceClaim in a pass.
#[derive(Debug)]
pub(super) struct PassResourceClaim {
    /// Its allocation.
    pub(super) standing: ResourceClaimAllocation,
}

/// Allocation of a ResourceClaim.
#[derive(Debug)]
pub(super) enum ResourceClaimAllocation {
    /// It has no devices yet.
    Open,
    /// It was allocated before the pass; its devices can be used on nodes like one of these. None: on all.
    Allocated(Vec<NodeSet>),
    /// It was allocated in this pass.
    Given {
        /// The only node that can use them; `None` when several can.
        at: Option<TargetKey>,
        /// Requirements on nodes that can use them.
        requirements: Requirements,
    },
}

/// Some nodes.
#[derive(Debug)]
pub(super) struct NodeSet {
    names: Option<Vec<String>>,
    labels: Requirements,
}

/// ResourceClaims of a pod.
#[derive(Debug)]
pub(super) struct DeviceRequirements {
    /// One for each claim.
    pub(super) parts: Vec<ResourceClaimRequirement>,
    /// Why they cannot be satisfied.
    pub(super) fault: Option<String>,
}

/// One of these ResourceClaims.
#[derive(Debug)]
pub(super) struct ResourceClaimRequirement {
    /// Name of the ResourceClaim, for users; of a generated one, its name within the pod.
    pub(super) name: Arc<str>,
    /// Index of its specification.
    pub(super) wanted: usize,
    /// The ResourceClaim, if other pods may use it or it is allocated already.
    pub(super) shared: Option<usize>,
}

/// Identity of a ResourceClaim requirement.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PartKey {
    /// This claim.
    Shared(usize),
    /// Any generated ResourceClaim with this specification, or one of this name for a single pod.
    Own(usize, Option<Arc<str>>),
    /// A problem that makes the pod unschedulable.
    Fault(String),
}

/// The names of the existing ResourceClaims of a pod.
pub(super) fn names(pod: &Pod) -> impl Iterator<Item = &Arc<str>> {
    pod.claims
        .iter()
        .flat_map(|all| all.iter())
        .filter_map(|claim| match &claim.source {
            ClaimSource::Claim { name, .. } => Some(name),
            ClaimSource::Template(_) | ClaimSource::Nothing => None,
        })
}

/// Whether only pods of the pass use the ResourceClaim: it is deallocated, and gets other devices.
pub(super) fn is_moving(claim: &ResourceClaim, moving: &BTreeSet<Uid>) -> bool {
    let users = &claim.status.reserved_for;
    !users.is_empty() && users.iter().all(|user| moving.contains(user.uid.as_str()))
}

/// The nodes that a selector matches: one of these. None: all.
fn nodes_of(selector: Option<&NodeSelector>) -> Vec<NodeSet> {
    let terms = selector.map_or(&[][..], |selector| &selector.node_selector_terms);
    let nodes = terms.iter().map(|term| {
        let fields = term.match_fields.iter().flatten();
        let names = fields.filter(|field| field.key == "metadata.name");
        let names: Vec<String> = names
            .flat_map(|field| field.values.clone().unwrap_or_default())
            .collect();
        let mut labels = Requirements::new();
        for asked in term
            .match_expressions
            .iter()
            .flatten()
            .filter_map(|asked| expression(asked).ok())
        {
            labels.require(asked);
        }
        NodeSet {
            names: (!names.is_empty()).then_some(names),
            labels,
        }
    });
    nodes.collect()
}

impl<'a> Devices<'a> {
    /// Interns the device requirements of a pod; `None` without any.
    pub(in crate::scheduling) fn intern_requirements(
        &mut self,
        pod: &'a Pod,
    ) -> Option<DeviceRequirementsId> {
        let all = pod.claims.as_deref().filter(|all| !all.is_empty())?;
        let objects = &self.snapshot.devices;
        let mut parts = Vec::new();
        let mut keys = Vec::new();
        let mut claims = Vec::new();
        let mut fault = None;
        for claim in all {
            let (name, key, spec, known) = match &claim.source {
                ClaimSource::Claim { name, .. } => {
                    let key = NamespacedName::new(Arc::clone(&pod.key.namespace), Arc::clone(name));
                    let known = objects.claims.get(&key);
                    let key = (Arc::clone(&pod.key.namespace), Arc::clone(name));
                    (Arc::clone(name), key, known.map(|known| &known.spec), known)
                }
                ClaimSource::Template(name) => {
                    let of = NamespacedName::new(Arc::clone(&pod.key.namespace), Arc::clone(name));
                    let template = objects.templates.get(&of);
                    let key = (pod.uid.shared(), Arc::clone(&claim.name));
                    (
                        Arc::clone(&claim.name),
                        key,
                        template.map(|of| &of.spec.spec),
                        None,
                    )
                }
                ClaimSource::Nothing => {
                    let why = format!(
                        "claim {:?} of the pod names neither a claim nor a template",
                        claim.name
                    );
                    fault = Some(why);
                    continue;
                }
            };
            let Some(spec) = spec else {
                let what = match &claim.source {
                    ClaimSource::Template(name) => {
                        format!("resourceclaimtemplate \"{}/{name}\"", pod.key.namespace)
                    }
                    _ => format!("resourceclaim \"{}/{name}\"", pod.key.namespace),
                };
                fault = Some(format!("{what} not found"));
                continue;
            };
            let own = matches!(
                &claim.source,
                ClaimSource::Claim { own: true, .. } | ClaimSource::Template(_)
            );
            let is_sole = own || self.users.get(&key).copied().unwrap_or(0) < 2;
            let at = self.claim(&key, known.map(|known| &**known));
            let wanted = self.wanted(&name, spec);
            let is_open = self
                .claims
                .get(at)
                .is_some_and(|claim| matches!(claim.standing, ResourceClaimAllocation::Open));
            let shared = (!is_sole || !is_open).then_some(at);
            // Generated ResourceClaims differ only in their names, which mean nothing to users.
            let label = if own { Arc::clone(&claim.name) } else { name };
            let named = (!own).then(|| Arc::clone(&label));
            keys.push(shared.map_or_else(|| PartKey::Own(wanted, named), PartKey::Shared));
            claims.push(at);
            if let (Some(Err(why)), true) = (self.wanted.get(wanted), is_open) {
                fault = Some(why.clone());
            }
            parts.push(ResourceClaimRequirement {
                name: label,
                wanted,
                shared,
            });
        }
        if let Some(fault) = &fault {
            keys.push(PartKey::Fault(fault.clone()));
        }
        self.claims_of.insert(pod.uid.clone(), claims);
        if let Some(known) = self.ask_ids.get(&keys) {
            return Some(*known);
        }
        self.asks.push(DeviceRequirements { parts, fault });
        self.ask_ids.insert(keys, self.asks.len() - 1);
        Some(self.asks.len() - 1)
    }

    fn claim(&mut self, key: &(Arc<str>, Arc<str>), known: Option<&ResourceClaim>) -> usize {
        if let Some(known) = self.claim_ids.get(key) {
            return *known;
        }
        let allocation = known.filter(|known| !is_moving(known, &self.moving));
        let allocation = allocation.and_then(|known| known.status.allocation.as_ref());
        self.claims.push(PassResourceClaim {
            standing: allocation.map_or(ResourceClaimAllocation::Open, |allocation| {
                ResourceClaimAllocation::Allocated(nodes_of(allocation.node_selector.as_ref()))
            }),
        });
        self.claim_ids.insert(key.clone(), self.claims.len() - 1);
        self.claims.len() - 1
    }

    fn wanted(&mut self, name: &str, spec: &ResourceClaimSpec) -> usize {
        // A problem names the ResourceClaim, so only valid ones are shared by other names.
        let text = serde_json::to_string(spec).unwrap_or_default();
        if let Some(known) = self.wanted_ids.get(&text)
            && matches!(self.wanted.get(*known), Some(Ok(_)))
        {
            return *known;
        }
        let read =
            CompiledClaimSpec::compile(name, spec, &self.snapshot.devices, &mut self.programs);
        self.wanted.push(read);
        self.wanted_ids.insert(text, self.wanted.len() - 1);
        self.wanted.len() - 1
    }

    /// The ResourceClaims that need devices on this node.
    ///
    /// # Errors
    /// A ResourceClaim has its devices elsewhere.
    pub(super) fn open(
        &self,
        ask: &DeviceRequirements,
        target: Option<TargetKey>,
        node: Option<&str>,
        suits: &dyn Fn(&Requirements) -> bool,
    ) -> Result<Vec<usize>, String> {
        let mut open = Vec::new();
        for (at, part) in ask.parts.iter().enumerate() {
            let claim = part.shared.and_then(|claim| self.claims.get(claim));
            let name = &part.name;
            match claim.map(|claim| &claim.standing) {
                None | Some(ResourceClaimAllocation::Open) => open.push(at),
                Some(ResourceClaimAllocation::Allocated(nodes)) => {
                    let is_among = |nodes: &NodeSet| {
                        let named = nodes.names.as_ref().is_none_or(|names| {
                            node.is_some_and(|node| names.iter().any(|name| name == node))
                        });
                        named && suits(&nodes.labels)
                    };
                    if !nodes.is_empty() && !nodes.iter().any(is_among) {
                        return Err(format!("claim {name:?} has devices on another node"));
                    }
                }
                Some(ResourceClaimAllocation::Given {
                    at: place,
                    requirements,
                }) => {
                    if place.is_some() && *place != target {
                        return Err(format!(
                            "ResourceClaim {name:?} is allocated on another node"
                        ));
                    }
                    if !suits(requirements) {
                        return Err(format!(
                            "claim {name:?} is allocated devices on another node"
                        ));
                    }
                }
            }
        }
        Ok(open)
    }

    /// What allocated ResourceClaims require of a new node.
    pub(super) fn required(&self, ask: &DeviceRequirements) -> Requirements {
        let mut all = Requirements::new();
        let shared = ask
            .parts
            .iter()
            .filter_map(|part| self.claims.get(part.shared?));
        for claim in shared {
            match &claim.standing {
                ResourceClaimAllocation::Open => {}
                // Several alternatives are rare; a node that satisfies the first one suffices.
                ResourceClaimAllocation::Allocated(nodes) => {
                    if let Some(first) = nodes.iter().find(|nodes| nodes.names.is_none()) {
                        all.require_all(&first.labels);
                    }
                }
                ResourceClaimAllocation::Given { requirements, .. } => {
                    all.require_all(requirements)
                }
            }
        }
        all
    }
}
