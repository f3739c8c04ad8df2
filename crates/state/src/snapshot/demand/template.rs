//! Pod templates that buffers may refer to.

use std::fmt;
use std::sync::Arc;

use super::super::{Pod, PodClass, PodClasses, PodLabels, PodPhase};
use mortise_apis::k8s;
use mortise_apis::names::{NamespacedName, PodKey};

/// Kinds of objects with a pod template that a buffer may refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TemplateKind {
    /// `v1` PodTemplate.
    PodTemplate,
    /// `apps/v1` Deployment.
    Deployment,
    /// `apps/v1` ReplicaSet.
    ReplicaSet,
    /// `apps/v1` StatefulSet.
    StatefulSet,
}

impl TemplateKind {
    /// The kinds that `scalableRef` may name.
    pub const SCALABLE: [Self; 3] = [Self::Deployment, Self::ReplicaSet, Self::StatefulSet];

    /// The kind, as the API spells it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PodTemplate => "PodTemplate",
            Self::Deployment => "Deployment",
            Self::ReplicaSet => "ReplicaSet",
            Self::StatefulSet => "StatefulSet",
        }
    }
}

impl fmt::Display for TemplateKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Key of an object with a pod template.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TemplateKey {
    /// Its kind.
    pub kind: TemplateKind,
    /// Namespace and name.
    pub name: NamespacedName,
}

/// The pods of an object with a pod template, as far as room for them depends on it.
///
/// # Cost
/// Class and labels are shared with equal templates and pods: the revisions of a Deployment cost some hundred bytes each.
#[derive(Clone, Debug, PartialEq)]
pub struct BufferTemplate {
    /// A virtual pod without name and UID.
    pod: Pod,
    /// The template as given; `None` for those of workloads, which no ProvisioningRequest names.
    pub given: Option<Arc<k8s::PodTemplate>>,
    /// Number of replicas; `None` for a PodTemplate.
    pub replicas: Option<i32>,
    /// `metadata.generation` of a PodTemplate; 0 for other kinds, whose generation changes with anything else.
    pub generation: i64,
}

impl BufferTemplate {
    /// Reads a template. Volumes that a claim stands behind are left out: there is no claim for a pod that does not exist. So
    /// is the priority: room is for pods of any priority, and all of them come first.
    pub(crate) fn new(
        namespace: &str,
        template: &k8s::PodTemplate,
        replicas: Option<i32>,
        generation: i64,
        classes: &mut PodClasses,
    ) -> Self {
        let given = replicas.is_none().then(|| Arc::new(template.clone()));
        let mut template = template.clone();
        let spec = &mut template.spec;
        spec.volumes.clear();
        spec.priority = Some(i32::MIN);
        spec.priority_class_name = None;
        spec.preemption_policy = Some("Never".to_owned());
        let class = PodClass::from_template(namespace, &template);
        let pod = k8s::Pod {
            metadata: template.metadata,
            spec: template.spec,
            ..k8s::Pod::default()
        };
        let class = classes.share(class);
        let pod = Pod {
            class: Arc::clone(&class),
            key: PodKey::new(Arc::clone(&class.namespace), ""),
            phase: PodPhase::Pending,
            unschedulable: true,
            node: None,
            nominated: None,
            owner: None,
            deleted: None,
            finalizers: None,
            started: None,
            gated: false,
            do_not_disrupt: None,
            is_unsafe_to_evict: false,
            launch_hold: None,
            gang: None,
            ..Pod::from_api(&pod, classes)
        };
        Self {
            pod,
            given,
            replicas,
            generation,
        }
    }

    /// A virtual pod without name and UID.
    #[must_use]
    pub const fn pod(&self) -> &Pod {
        &self.pod
    }

    /// What scheduling reads of its pods.
    #[must_use]
    pub fn class(&self) -> &PodClass {
        &self.pod.class
    }

    /// Labels of its pods.
    #[must_use]
    pub const fn labels(&self) -> &PodLabels {
        &self.pod.labels
    }
}
