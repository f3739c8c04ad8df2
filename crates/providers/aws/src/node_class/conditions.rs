//! Conditions of a class, from what was found for it. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use mortise_apis::schema::conditions::{
    Condition, ConditionStatus, Conditions, READY, find, is_true,
};
use mortise_aws_class::spec::{Ec2NodeClass, Ec2NodeClassSpec};
use mortise_aws_class::status::CONDITIONS;

use crate::node_class::lookup::{ClassResult, FoundParts, UnmetCondition};
use crate::sdk::cluster_info::ClusterInfo;
use crate::tags;
use mortise_aws_catalog::ami_family::AmiFamily;
use mortise_aws_catalog::node_settings::{self, NodeSettings};

/// Tag keys that a class may not set, because they are ours.
const RESTRICTED_TAGS: [&str; 4] = [
    tags::EKS_CLUSTER,
    tags::NODEPOOL,
    tags::NODECLAIM,
    tags::NODE_CLASS,
];

/// The stored conditions, brought up to date.
pub(crate) fn assess(
    object: &Ec2NodeClass,
    found: &FoundParts,
    has_profile: bool,
    settings: &ClassResult<NodeSettings>,
    now: Timestamp,
) -> Vec<Condition> {
    let spec = &object.spec;
    let mut conditions = object.status.conditions.clone();
    let mut set = Conditions::new(CONDITIONS, &object.metadata, &mut conditions, now);
    put(&mut set, "SubnetsReady", found.subnets.as_ref().err());
    put(&mut set, "SecurityGroupsReady", found.groups.as_ref().err());
    put(&mut set, "AMIsReady", found.amis.as_ref().err());
    // A profile that could not be made says nothing about the one that the status names.
    if has_profile {
        set.set_true("InstanceProfileReady");
    }
    put_capacity(&mut set, spec);
    let is_waiting = found.subnets.is_err()
        || found.groups.is_err()
        || found.amis.is_err()
        || !is_true(set.list(), "InstanceProfileReady");
    let valid = validate(spec)
        .and_then(|()| settings.as_ref().map(|_| ()).map_err(Clone::clone))
        .and_then(|()| validate_cluster(&found.cluster, AmiFamily::of(spec)));
    match valid {
        Ok(()) if is_waiting => {
            set.set_false(
                "ValidationSucceeded",
                "DependenciesNotReady",
                "Awaiting AMI, Instance Profile, Security Group, and Subnet resolution",
            );
        }
        valid => put(&mut set, "ValidationSucceeded", valid.as_ref().err()),
    }
    conditions
}

fn put(set: &mut Conditions<'_>, type_: &str, problem: Option<&UnmetCondition>) {
    match problem {
        Some(problem) => {
            set.set_false(type_, problem.reason, &problem.message);
        }
        None => {
            set.set_true(type_);
        }
    }
}

/// Placement groups and capacity reservations, neither of which is used.
fn put_capacity(set: &mut Conditions<'_>, spec: &Ec2NodeClassSpec) {
    match &spec.placement_group_selector {
        Some(_) => {
            set.set_false(
                "PlacementGroupReady",
                "PlacementGroupResolutionFailed",
                "placement groups are not supported yet",
            );
        }
        None => {
            set.set_true("PlacementGroupReady");
        }
    }
    match spec.capacity_reservation_selector_terms.as_deref() {
        Some([_, ..]) => {
            set.set_true_with_reason("CapacityReservationsReady", "CapacityReservationsReady", "capacity reservations are not used yet: only on-demand and spot capacity is launched");
        }
        _ => {
            set.set_true("CapacityReservationsReady");
        }
    }
}

/// Rules that are in the CRD too, for objects that were stored before the rule was.
fn validate(spec: &Ec2NodeClassSpec) -> ClassResult<()> {
    let restricted = |key: &&String| {
        RESTRICTED_TAGS.contains(&key.as_str()) || key.starts_with("kubernetes.io/cluster/")
    };
    if let Some(key) = spec.tags.iter().flat_map(BTreeMap::keys).find(restricted) {
        return Err(UnmetCondition::new(
            "TagValidationFailed",
            format!("spec.tags: the key {key:?} is set by mortise and may not be set here"),
        ));
    }
    match node_settings::expressions(spec).first() {
        Some(field) => Err(UnmetCondition::new(
            "KubeletExpressionsDisabled",
            format!(
                "spec.{field} is neither a number nor a quantity; expressions are not supported"
            ),
        )),
        None => Ok(()),
    }
}

/// Whether enough is known of the cluster for nodes of the family to join it.
fn validate_cluster(cluster: &ClassResult<Arc<ClusterInfo>>, family: AmiFamily) -> ClassResult<()> {
    match cluster {
        Err(problem) => Err(UnmetCondition::new(
            "ClusterResolutionFailed",
            problem.message.clone(),
        )),
        Ok(cluster) if family == AmiFamily::Al2023 && cluster.service_cidr.is_none() => {
            Err(UnmetCondition::new(
                "ClusterCIDRResolutionFailed",
                "Failed to detect the cluster CIDR",
            ))
        }
        Ok(cluster) if cluster.endpoint.is_empty() && family != AmiFamily::Custom => {
            Err(UnmetCondition::new(
                "ClusterEndpointResolutionFailed",
                "the API server address is unknown; set --cluster-endpoint or CLUSTER_ENDPOINT",
            ))
        }
        Ok(_) => Ok(()),
    }
}

/// Why the class cannot be used, in the words of its conditions.
pub(crate) fn not_ready(conditions: &[Condition]) -> Option<String> {
    match find(conditions, READY) {
        Some(ready) if ready.status == ConditionStatus::True => None,
        _ => {
            let unmet = conditions
                .iter()
                .filter(|each| each.type_ != READY && each.status != ConditionStatus::True);
            Some(
                unmet
                    .map(|each| format!("{}: {}", each.type_, each.message))
                    .collect::<Vec<_>>()
                    .join("; "),
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_tags_are_refused() {
        for key in ["kubernetes.io/cluster/x", "karpenter.sh/nodeclaim"] {
            let spec = Ec2NodeClassSpec {
                tags: Some(BTreeMap::from([(key.to_owned(), String::new())])),
                ..Ec2NodeClassSpec::default()
            };
            assert_eq!(
                validate(&spec).unwrap_err().reason,
                "TagValidationFailed",
                "{key}"
            );
        }
    }
}
