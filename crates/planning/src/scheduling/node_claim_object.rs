//! From a planned claim to the NodeClaim object.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube_core::Resource as _;

use super::plan::PlannedClaim;
use mortise_apis::karpenter::nodeclaim::{
    ClaimResources, NodeClaim, NodeClaimSpec, NodeClaimStatus,
};
use mortise_apis::karpenter::nodepool::NodePool;
use mortise_apis::labels;
use mortise_apis::requirements::{Operator, Requirement, Requirements};

impl PlannedClaim {
    /// The NodeClaim object to create for this plan: template labels and annotations, every requirement with the list of
    /// instance types and capacity types, requests, taints, and the NodePool as owner.
    ///
    /// `name` is the object's name; its `generateName` is derived from the NodePool. `now` is not written to the object,
    /// because the API server sets its timestamps.
    #[must_use]
    pub fn to_claim(&self, name: &str, pool: &NodePool, _now: Timestamp) -> NodeClaim {
        let template = &pool.spec.template;
        let requirements = self.requirements_of_claim();
        let pool_name = pool.name();
        let class_ref = &template.spec.node_class_ref;
        let mut all_labels: BTreeMap<String, String> =
            template.labels().cloned().unwrap_or_default();
        // A custom key that allows several values must have one of them on the node: any will do, chosen by the object's
        // name.
        let seed = name.bytes().fold(0_u64, |sum, byte| {
            sum.wrapping_mul(31).wrapping_add(byte.into())
        });
        for (key, value) in requirements.labels_seeded(&self.well_known, seed) {
            all_labels.entry(key).or_insert(value);
        }
        all_labels.insert(labels::NODEPOOL.to_owned(), pool_name.to_string());
        all_labels.insert(
            labels::node_class_key(&class_ref.group, &class_ref.kind),
            class_ref.name.clone(),
        );
        let mut annotations = template.annotations().cloned().unwrap_or_default();
        annotations.retain(|key, _| !labels::is_own_state(key));
        for key in [labels::NODEPOOL_HASH, labels::NODEPOOL_HASH_VERSION] {
            if let Some(value) = pool
                .metadata
                .annotations
                .as_ref()
                .and_then(|all| all.get(key))
            {
                annotations.insert(key.to_owned(), value.clone());
            }
        }
        annotations.insert(
            labels::MIN_VALUES_RELAXED.to_owned(),
            self.min_values_relaxed.to_string(),
        );
        if !self.device_drivers.is_empty() {
            annotations.insert(
                labels::REQUESTED_DRA_DRIVERS.to_owned(),
                self.device_drivers.join(","),
            );
        }
        NodeClaim {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                generate_name: Some(format!("{pool_name}-")),
                labels: Some(all_labels),
                annotations: Some(annotations),
                finalizers: Some(vec![labels::TERMINATION_FINALIZER.to_owned()]),
                owner_references: Some(vec![OwnerReference {
                    api_version: NodePool::api_version(&()).into_owned(),
                    kind: NodePool::kind(&()).into_owned(),
                    name: pool_name.to_string(),
                    uid: pool.metadata.uid.clone().unwrap_or_default(),
                    block_owner_deletion: Some(true),
                    controller: None,
                }]),
                ..ObjectMeta::default()
            },
            spec: NodeClaimSpec {
                taints: template.spec.taints.clone(),
                startup_taints: template.spec.startup_taints.clone(),
                requirements: requirements.to_specs(),
                resources: Some(ClaimResources {
                    requests: Some(self.requests.to_api()),
                }),
                node_class_ref: class_ref.clone(),
                termination_grace_period: template.spec.termination_grace_period.clone(),
                expire_after: template.spec.expire_after.clone(),
            },
            status: NodeClaimStatus::default(),
        }
    }

    /// The requirements of the NodeClaim: those of the plan, its instance types and its capacity types, without those that
    /// exist only in the simulation.
    fn requirements_of_claim(&self) -> Requirements {
        let mut all = self.requirements.clone();
        for simulated in [labels::REGISTERED, labels::INITIALIZED, labels::HOSTNAME] {
            all.remove(simulated);
        }
        let of = |key: &str, values: Vec<Arc<str>>| {
            let known = self.requirements.get(key).and_then(Requirement::min_values);
            Requirement::new(key, Operator::In, values).with_min_values(known)
        };
        all.replace(of(labels::INSTANCE_TYPE, self.instance_types.clone()));
        all.replace(of(
            labels::CAPACITY_TYPE,
            self.capacity_types
                .iter()
                .map(|each| each.as_str().into())
                .collect(),
        ));
        all
    }
}
