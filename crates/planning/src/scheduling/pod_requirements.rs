//! What a pod asks of one machine, whatever other pods do: resources, labels, taints, ports, volumes, devices.
//!
//! Pods that ask the same share an ask, and an ask remembers the machines that refused it: a refusal is final, because
//! machines only fill up and their requirements only narrow during a pass.

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

/// Index of an ask.
pub(super) type PodRequirementsId = usize;

/// What is asked of a machine.
#[derive(Debug)]
pub(super) struct PodRequirements {
    /// Requests.
    pub(super) resources: Resources,
    /// The same, flat.
    pub(super) requests: ResourceVector,
    /// Requirements on labels.
    pub(super) requirements: Requirements,
    /// The same as an addition to new machines; `None` when they name a host.
    pub(super) add: Option<RequirementSetId>,
    /// Alternatives that volumes leave. Empty: anything goes.
    pub(super) volumes: Vec<Requirements>,
    /// The same as additions to new machines.
    pub(super) volume_adds: Vec<RequirementSetId>,
    /// Volumes to attach.
    pub(super) attach: Vec<Attachment>,
    /// Devices; `None` of almost all pods.
    pub(super) devices: Option<DeviceRequirementsId>,
    /// Host ports.
    pub(super) ports: Vec<HostPort>,
    /// By taint profile: whether its taints are tolerated.
    pub(super) tolerates: Vec<bool>,
    /// Existing machines that were looked at and fit by all that does not change.
    pub(super) suitable_hosts: Bits,
    /// Existing machines that refused.
    pub(super) refused_hosts: Bits,
    /// All existing machines before this one refused.
    pub(super) first_host: usize,
    /// New machines that refused.
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

/// All asks of a pass.
#[derive(Debug, Default)]
pub(super) struct PodRequirementsTable {
    pub(super) all: Vec<PodRequirements>,
    by_content: HashMap<RequirementsKey, PodRequirementsId, FixedState>,
}

/// The different sets of taints of a pass.
#[derive(Debug, Default)]
pub(super) struct TaintSets {
    all: Vec<Vec<Taint>>,
}

impl TaintSets {
    /// The index of a set of taints.
    pub(super) fn of(&mut self, taints: &[Taint]) -> usize {
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
    /// The ask of a class at one stage of giving up wishes.
    pub(super) fn of(
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
    /// Remembers that an existing machine refused.
    pub(super) fn refuse_host(&mut self, host: usize) {
        self.refused_hosts.insert_growing(host);
        while self.refused_hosts.has(self.first_host) {
            self.first_host += 1;
        }
    }

    /// Whether volumes tie the pod to labels that no new machine can have.
    pub(super) fn volumes_exclude_new(&self) -> bool {
        !self.volumes.is_empty() && self.volume_adds.is_empty()
    }
}
