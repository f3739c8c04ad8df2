//! What a pod requires of a node, other pods ignored: resources, labels, taints, ports, volumes, devices.
//!
//! Pods with equal requirements share one entry, and an entry remembers the nodes that rejected it: a rejection is final,
//! because nodes only fill up and templates only narrow during a pass.

use std::collections::HashMap;

use foldhash::fast::FixedState;
use k8s_openapi::api::core::v1::{Taint, Toleration};

use super::devices::DeviceRequirementsId;
use super::narrowed_template::{NarrowedTemplates, RequirementSetId, without_hostname};
use super::relax::RelaxationLevel;
use super::resource_vector::{ResourceDimensions, ResourceVector};
use super::topology::{TolerationText, toleration_text};
use super::volumes::{Attachment, VolumeNeeds};
use mortise_apis::requirements::Requirements;
use mortise_apis::resources::Resources;
use mortise_apis::taints;
use mortise_state::catalog::Bits;
use mortise_state::pods::HostPort;
use mortise_state::snapshot::PodClass;

/// Index of an entry.
pub(super) type PodRequirementsId = usize;

/// The requirements of a pod on a node.
#[derive(Debug)]
pub(super) struct PodRequirements {
    /// Requests.
    pub(super) resources: Resources,
    /// The same, flat.
    pub(super) requests: ResourceVector,
    /// Requirements on labels.
    pub(super) requirements: Requirements,
    /// The same, to be added to a template; `None` when they require a hostname.
    pub(super) add: Option<RequirementSetId>,
    /// Alternatives that volumes allow. Empty: any node.
    pub(super) volumes: Vec<Requirements>,
    /// The same, to be added to a template.
    pub(super) volume_adds: Vec<RequirementSetId>,
    /// Volumes to attach.
    pub(super) attach: Vec<Attachment>,
    /// Devices; `None` for almost all pods.
    pub(super) devices: Option<DeviceRequirementsId>,
    /// Host ports.
    pub(super) ports: Vec<HostPort>,
    /// By taint set: whether the taints are tolerated.
    pub(super) tolerates: Vec<bool>,
    /// Existing nodes that satisfy every requirement that does not change during a pass.
    pub(super) suitable_hosts: Bits,
    /// Existing nodes that rejected the pod.
    pub(super) refused_hosts: Bits,
    /// All existing nodes before this one rejected the pod.
    pub(super) first_host: usize,
    /// In-flight NodeClaims that rejected the pod.
    pub(super) refused_claims: Bits,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct RequirementsKey {
    resources: Resources,
    requirements: Requirements,
    volumes: VolumeNeeds,
    devices: Option<DeviceRequirementsId>,
    ports: Vec<HostPort>,
    tolerations: Vec<TolerationText>,
    tolerates_prefer: bool,
}

/// All entries of a pass.
#[derive(Debug, Default)]
pub(super) struct PodRequirementsTable {
    pub(super) all: Vec<PodRequirements>,
    by_content: HashMap<RequirementsKey, PodRequirementsId, FixedState>,
}

/// The distinct taint sets of a pass.
#[derive(Debug, Default)]
pub(super) struct TaintSets {
    all: Vec<Vec<Taint>>,
}

impl TaintSets {
    /// The index of a set of taints.
    pub(super) fn intern(&mut self, taints: &[Taint]) -> usize {
        self.all
            .iter()
            .position(|each| each == taints)
            .unwrap_or_else(|| {
                self.all.push(taints.to_vec());
                self.all.len() - 1
            })
    }

    fn tolerated(&self, tolerations: &[Toleration], prefer: bool) -> Vec<bool> {
        let counts = |taint: &&Taint| !(prefer && taint.effect == taints::PREFER_NO_SCHEDULE);
        let of = |profile: &Vec<Taint>| {
            taints::untolerated(profile.iter().filter(counts), tolerations)
                .next()
                .is_none()
        };
        self.all.iter().map(of).collect()
    }
}

impl PodRequirementsTable {
    /// The requirements of a class at one relaxation level.
    pub(super) fn intern(
        &mut self,
        class: &PodClass,
        stage: &RelaxationLevel<'_>,
        (volumes, devices): (&VolumeNeeds, Option<DeviceRequirementsId>),
        dimensions: &ResourceDimensions,
        profiles: &TaintSets,
        shapes: &mut NarrowedTemplates<'_>,
    ) -> PodRequirementsId {
        let content = RequirementsKey {
            resources: class.requests.clone(),
            requirements: stage.requirements(),
            volumes: volumes.clone(),
            devices,
            ports: class.host_ports.clone(),
            tolerations: class.tolerations.iter().map(toleration_text).collect(),
            tolerates_prefer: stage.tolerates_prefer,
        };
        if let Some(known) = self.by_content.get(&content) {
            return *known;
        }
        let add = without_hostname(&content.requirements).map(|asked| shapes.add_id(&asked));
        let volume_adds = volumes
            .alternatives
            .iter()
            .filter_map(without_hostname)
            .map(|asked| shapes.add_id(&asked))
            .collect();
        self.all.push(PodRequirements {
            resources: class.requests.clone(),
            requests: dimensions.flat(&class.requests),
            requirements: content.requirements.clone(),
            add,
            volumes: volumes.alternatives.clone(),
            volume_adds,
            attach: volumes.attach.clone(),
            devices,
            ports: class.host_ports.clone(),
            tolerates: profiles.tolerated(&class.tolerations, stage.tolerates_prefer),
            suitable_hosts: Bits::default(),
            refused_hosts: Bits::default(),
            first_host: 0,
            refused_claims: Bits::default(),
        });
        self.by_content.insert(content, self.all.len() - 1);
        self.all.len() - 1
    }
}

impl PodRequirements {
    /// Remembers that an existing node rejected the pod.
    pub(super) fn refuse_host(&mut self, host: usize) {
        self.refused_hosts.insert_growing(host);
        while self.refused_hosts.has(self.first_host) {
            self.first_host += 1;
        }
    }

    /// Whether volumes require labels that no new node can have.
    pub(super) fn volumes_exclude_new(&self) -> bool {
        !self.volumes.is_empty() && self.volume_adds.is_empty()
    }
}
