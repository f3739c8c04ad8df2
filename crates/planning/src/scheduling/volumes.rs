//! Volume constraints of pods: allowed nodes, and attach limits.
//!
//! # Source
//! Karpenter core 1.14: volumes restrict the node, not the pod, so spread constraints ignore them.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::NodeSelectorTerm;

use mortise_apis::k8s::storage::{PersistentVolume, PersistentVolumeClaim, StorageClass};
use mortise_apis::labels;
use mortise_apis::names::NamespacedName;
use mortise_apis::requirements::{Operator, Requirement, Requirements, expression};
use mortise_state::snapshot::{Pod, PodVolume, Snapshot, StateNode};

/// A volume that a driver attaches: driver, and the claim that identifies the volume.
pub(super) type Attachment = (Arc<str>, NamespacedName);

/// Requirements of volumes on the node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct VolumeNeeds {
    /// Alternatives of which one must be satisfied. Empty: any node.
    pub(super) alternatives: Vec<Requirements>,
    /// Volumes to attach. Sorted, unique.
    pub(super) attach: Vec<Attachment>,
}

/// In-tree drivers, and the CSI drivers that replaced them.
const IN_TREE: [(&str, &str); 7] = [
    ("kubernetes.io/aws-ebs", "ebs.csi.aws.com"),
    ("kubernetes.io/gce-pd", "pd.csi.storage.gke.io"),
    ("kubernetes.io/azure-disk", "disk.csi.azure.com"),
    ("kubernetes.io/azure-file", "file.csi.azure.com"),
    ("kubernetes.io/cinder", "cinder.csi.openstack.org"),
    ("kubernetes.io/vsphere-volume", "csi.vsphere.vmware.com"),
    ("kubernetes.io/portworx-volume", "pxd.portworx.com"),
];

const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";

/// One volume of a pod with the objects behind it.
struct PodVolumeRef<'a> {
    key: NamespacedName,
    claim: Option<&'a PersistentVolumeClaim>,
    class_name: &'a str,
}

impl<'a> PodVolumeRef<'a> {
    fn new(snapshot: &'a Snapshot, pod: &Pod, volume: &'a PodVolume) -> Self {
        let namespace = &pod.key.namespace;
        let (name, template) = match volume {
            PodVolume::Claim(name) => (Arc::clone(name), None),
            PodVolume::Ephemeral {
                volume,
                storage_class,
            } => (
                format!("{}-{volume}", pod.key.name).into(),
                storage_class.as_deref(),
            ),
        };
        let key = NamespacedName::new(Arc::clone(namespace), name);
        let claim = snapshot.volume_claims.get(&key).map(|claim| &**claim);
        let own = match claim {
            Some(claim) => claim.spec.storage_class_name.as_deref(),
            None => template.or_else(|| default_class(snapshot)),
        };
        Self {
            key,
            claim,
            class_name: own.unwrap_or_default(),
        }
    }

    fn volume_name(&self) -> Option<&'a str> {
        self.claim?
            .spec
            .volume_name
            .as_deref()
            .filter(|name| !name.is_empty())
    }

    fn volume(&self, snapshot: &'a Snapshot) -> Option<&'a PersistentVolume> {
        snapshot
            .volumes
            .get(self.volume_name()?)
            .map(|volume| &**volume)
    }

    fn class(&self, snapshot: &'a Snapshot) -> Option<&'a StorageClass> {
        snapshot
            .storage_classes
            .get(self.class_name)
            .map(|class| &**class)
    }

    /// Why the volume makes its pod unschedulable.
    fn fault(&self, snapshot: &'a Snapshot, exists: bool) -> Option<String> {
        let key = &self.key;
        if let Some(claim) = self.claim {
            if claim.metadata.deletion_timestamp.is_some() {
                return Some(format!(
                    "persistentvolumeclaim is being deleted (PersistentVolumeClaim={key})"
                ));
            }
            if claim.status.phase == "Lost" {
                return Some(format!(
                    "persistentvolumeclaim is bound to a lost volume (PersistentVolumeClaim={key})"
                ));
            }
            if let Some(name) = self.volume_name() {
                let bound = claim
                    .metadata
                    .annotations
                    .as_ref()
                    .is_some_and(|all| all.contains_key(BIND_COMPLETED));
                if !bound && claim.status.phase != "Bound" {
                    return Some(format!(
                        "persistentvolumeclaim names volume {name:?} but is not bound to it yet (PersistentVolumeClaim={key})"
                    ));
                }
                return match self.volume(snapshot) {
                    None => Some(format!(
                        "failed to validate pvc, persistentvolumes {name:?} not found (PersistentVolumeClaim={key})"
                    )),
                    Some(volume) if volume.metadata.deletion_timestamp.is_some() => Some(format!(
                        "persistentvolume is being deleted (PersistentVolume={name})"
                    )),
                    Some(_) => None,
                };
            }
        } else {
            // A claim of an ephemeral volume is created after the pod; its problems show then.
            let name = &key.name;
            return exists.then(|| format!("getting persistent volume claim, persistentvolumeclaims {name:?} not found (PersistentVolumeClaim={name})"));
        }
        if self.class_name.is_empty() {
            return Some(format!(
                "unbound pvc must define a storage class (PersistentVolumeClaim={key})"
            ));
        }
        let class_name = self.class_name;
        match self.class(snapshot) {
            None => Some(format!(
                "failed to validate pvc, failed to get storage class, storageclasses.storage.k8s.io {class_name:?} not found (PersistentVolumeClaim={key}, StorageClass={class_name})"
            )),
            Some(class) if class.volume_binding_mode.as_deref() != Some("WaitForFirstConsumer") => {
                Some(format!(
                    "unbound pvc has a storage class that binds immediately: its volume is still to come (PersistentVolumeClaim={key}, StorageClass={class_name})"
                ))
            }
            Some(_) => None,
        }
    }

    fn terms(&self, snapshot: &'a Snapshot) -> Vec<Requirements> {
        if let Some(volume) = self.volume(snapshot) {
            let required = volume
                .spec
                .node_affinity
                .as_ref()
                .and_then(|affinity| affinity.required.as_ref());
            let local = volume.spec.local.is_some() || volume.spec.host_path.is_some();
            let terms = required.map_or(&[][..], |required| &required.node_selector_terms);
            return terms.iter().map(|term| volume_term(term, local)).collect();
        }
        let topologies = self
            .class(snapshot)
            .map_or(&[][..], |class| &class.allowed_topologies);
        let term = |term: &k8s_openapi::api::core::v1::TopologySelectorTerm| {
            let all = term.match_label_expressions.iter().flatten();
            all.map(|each| {
                Requirement::new(
                    each.key.as_str(),
                    Operator::In,
                    each.values.iter().map(String::as_str),
                )
            })
            .collect()
        };
        topologies.iter().map(term).collect()
    }

    fn driver(&self, snapshot: &'a Snapshot) -> Option<Arc<str>> {
        if let Some(volume) = self.volume(snapshot) {
            let spec = &volume.spec;
            let in_tree = [
                spec.aws_elastic_block_store.is_some(),
                spec.gce_persistent_disk.is_some(),
                spec.azure_disk.is_some(),
                spec.azure_file.is_some(),
                spec.cinder.is_some(),
                spec.vsphere_volume.is_some(),
                spec.portworx_volume.is_some(),
            ];
            let translated = IN_TREE
                .iter()
                .zip(in_tree)
                .find(|(_, is)| *is)
                .map(|((_, csi), _)| *csi);
            return spec
                .csi
                .as_ref()
                .map(|csi| csi.driver.as_str())
                .or(translated)
                .map(Into::into);
        }
        let provisioner = self.class(snapshot)?.provisioner.as_str();
        Some(
            IN_TREE
                .iter()
                .find(|(old, _)| *old == provisioner)
                .map_or(provisioner, |(_, csi)| csi)
                .into(),
        )
    }
}

/// The class of claims without one: the newest default class, then the first by name.
fn default_class(snapshot: &Snapshot) -> Option<&str> {
    const MARK: &str = "storageclass.kubernetes.io/is-default-class";
    let marked = snapshot.storage_classes.iter().filter(|(_, class)| {
        let annotations = class.metadata.annotations.as_ref();
        annotations.is_some_and(|all| all.get(MARK).is_some_and(|value| value == "true"))
    });
    let newest = marked.min_by_key(|(name, class)| {
        let created = class
            .metadata
            .creation_timestamp
            .as_ref()
            .map(|time| time.0);
        (std::cmp::Reverse(created), Arc::clone(name))
    });
    newest.map(|(name, _)| &**name)
}

/// A term of a volume's node affinity. The hostname of local storage is dropped: the volume is on one node, and no new
/// node has that name.
fn volume_term(term: &NodeSelectorTerm, local: bool) -> Requirements {
    let all = term.match_expressions.iter().flatten();
    let readable = all.filter_map(|from| expression(from).ok());
    readable
        .filter(|each| !(local && each.key() == labels::HOSTNAME))
        .collect()
}

/// The requirements of a pod's volumes on its node.
///
/// # Errors
/// Why the pod cannot be scheduled until its volumes are fixed.
pub(super) fn needs(snapshot: &Snapshot, pod: &Pod) -> Result<VolumeNeeds, String> {
    let mut needs = VolumeNeeds::default();
    let mut alternatives = vec![Requirements::new()];
    for volume in &pod.class.volumes {
        let exists = matches!(volume, PodVolume::Claim(_));
        let volume = PodVolumeRef::new(snapshot, pod, volume);
        if let Some(fault) = volume.fault(snapshot, exists) {
            return Err(fault);
        }
        if let Some(driver) = volume.driver(snapshot) {
            needs.attach.push((driver, volume.key.clone()));
        }
        let terms = volume.terms(snapshot);
        if !terms.is_empty() {
            alternatives = combine(&alternatives, &terms);
        }
    }
    needs.attach.sort_unstable();
    needs.attach.dedup();
    if alternatives.iter().any(|each| !each.is_empty()) {
        needs.alternatives = alternatives;
    }
    Ok(needs)
}

/// Every compatible pair; all pairs when none is, so that the conflict is reported.
fn combine(left: &[Requirements], right: &[Requirements]) -> Vec<Requirements> {
    let pairs = || left.iter().flat_map(|a| right.iter().map(move |b| (a, b)));
    let both = |(a, b): (&Requirements, &Requirements)| {
        let mut all = a.clone();
        all.require_all(b);
        all
    };
    let clean: Vec<Requirements> = pairs()
        .filter(|(a, b)| a.does_intersect(b))
        .map(both)
        .collect();
    if clean.is_empty() {
        pairs().map(both).collect()
    } else {
        clean
    }
}

/// The volumes that the pods of a node have attached. A volume whose objects do not exist is not counted.
pub(super) fn attached(snapshot: &Snapshot, node: &StateNode) -> BTreeSet<Attachment> {
    let of_pod = |pod: &Arc<Pod>| attachments(snapshot, pod);
    node.pods
        .iter()
        .filter(|pod| !pod.class.volumes.is_empty())
        .flat_map(of_pod)
        .collect()
}

/// Whether a node can attach the volumes of `pod` next to those of its own pods and of `others`, which are nominated to
/// it.
#[must_use]
pub fn volumes_fit<'a>(
    snapshot: &Snapshot,
    node: &StateNode,
    others: impl Iterator<Item = &'a Arc<Pod>>,
    pod: &Pod,
) -> bool {
    let more = attachments(snapshot, pod);
    if more.is_empty() {
        return true;
    }
    let mut attached = attached(snapshot, node);
    attached.extend(others.flat_map(|other| attachments(snapshot, other)));
    can_attach(snapshot, node, &attached, &more)
}

fn attachments(snapshot: &Snapshot, pod: &Pod) -> Vec<Attachment> {
    let volumes = pod
        .class
        .volumes
        .iter()
        .map(|volume| PodVolumeRef::new(snapshot, pod, volume));
    volumes
        .filter_map(|volume| Some((volume.driver(snapshot)?, volume.key)))
        .collect()
}

/// Whether a node can attach more volumes within the limits that its drivers published.
pub(super) fn can_attach(
    snapshot: &Snapshot,
    node: &StateNode,
    attached: &BTreeSet<Attachment>,
    more: &[Attachment],
) -> bool {
    let Some(drivers) = node
        .node_name()
        .and_then(|name| snapshot.csi_nodes.get(&*name))
    else {
        return true;
    };
    drivers.spec.drivers.iter().all(|driver| {
        let Some(limit) = driver
            .allocatable
            .as_ref()
            .and_then(|allocatable| allocatable.count)
        else {
            return true;
        };
        let new = more
            .iter()
            .filter(|each| *each.0 == *driver.name && !attached.contains(*each))
            .count();
        if new == 0 {
            return true;
        }
        let used = attached
            .iter()
            .filter(|each| *each.0 == *driver.name)
            .count();
        usize::try_from(limit).is_ok_and(|limit| used + new <= limit)
    })
}
