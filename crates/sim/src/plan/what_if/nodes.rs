//! Nodes that are removed, and zones that are lost.
//!
//! A removed node is one whose deletion has begun: its pods get other places, as when a user deletes it.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::labels::TOPOLOGY_ZONE;
use mortise_apis::names::{ClaimName, NodeName};
use mortise_apis::{k8s, labels};
use mortise_state::resource_kinds::{Object, ObjectKey};

use crate::manifest_error::ManifestError;
use crate::recorded_cluster::RecordedCluster;

/// Removes a node, by the name of its Node or of its NodeClaim.
///
/// # Errors
/// There is no such node.
pub fn remove_node(cluster: &mut RecordedCluster, name: &str) -> Result<(), ManifestError> {
    let claim = match cluster.objects.get(&ObjectKey::Node(name.into())) {
        Some(Object::Node(node)) => claim_of(cluster, node),
        _ => cluster
            .objects
            .contains_key(&ObjectKey::Claim(name.into()))
            .then(|| name.into()),
    };
    let key = claim.map_or_else(|| ObjectKey::Node(name.into()), ObjectKey::Claim);
    if !cluster.objects.contains_key(&key) {
        let known: Vec<&str> = names(cluster).collect();
        return Err(ManifestError::absent("", "node", name, known));
    }
    delete(cluster, &key);
    Ok(())
}

/// Removes every node of a zone, and all capacity in it.
///
/// # Errors
/// There is no such zone.
pub fn lose_zone(cluster: &mut RecordedCluster, zone: &str) -> Result<(), ManifestError> {
    let mut zones: BTreeSet<Arc<str>> = BTreeSet::new();
    let offerings = cluster.catalogs.values_mut().flatten();
    for offering in offerings.flat_map(|each| &mut each.offerings) {
        zones.insert(Arc::clone(&offering.zone));
        offering.available &= *offering.zone != *zone;
    }
    let mut lost: Vec<ObjectKey> = Vec::new();
    for (key, object) in &cluster.objects {
        let of = match object {
            Object::Node(node) => node.label(TOPOLOGY_ZONE),
            Object::Claim(claim) => claim.label(TOPOLOGY_ZONE),
            _ => None,
        };
        if let Some(of) = of {
            zones.insert(of.into());
            if of == zone {
                lost.push(key.clone());
            }
        }
    }
    if !zones.contains(zone) {
        let known = zones.iter().map(|zone| &**zone);
        return Err(ManifestError::absent("", "zone", zone, known));
    }
    for key in lost {
        // A node of a claim goes with its claim.
        let is_managed = match cluster.objects.get(&key) {
            Some(Object::Node(node)) => claim_of(cluster, node).is_some(),
            _ => false,
        };
        if !is_managed {
            delete(cluster, &key);
        }
    }
    Ok(())
}

/// Names of Nodes, and of NodeClaims without a Node.
fn names(cluster: &RecordedCluster) -> impl Iterator<Item = &str> {
    cluster
        .objects
        .iter()
        .filter_map(|(key, object)| match (key, object) {
            (ObjectKey::Node(name), _) => Some(name.as_str()),
            (ObjectKey::Claim(name), Object::Claim(claim)) if claim.status.node_name.is_none() => {
                Some(name.as_str())
            }
            _ => None,
        })
}

/// The NodeClaim of a Node.
fn claim_of(cluster: &RecordedCluster, node: &k8s::Node) -> Option<ClaimName> {
    let id = node.provider_id();
    let name: NodeName = node.metadata.name.as_deref().unwrap_or_default().into();
    let is_of = |claim: &NodeClaim| {
        (id.is_some() && claim.provider_id() == id)
            || claim.status.node_name.as_deref() == Some(name.as_str())
    };
    cluster.objects.values().find_map(|object| match object {
        Object::Claim(claim) if is_of(claim) => Some(claim.name()),
        _ => None,
    })
}

/// Begins the deletion of a Node or NodeClaim.
fn delete(cluster: &mut RecordedCluster, key: &ObjectKey) {
    let at = cluster.taken_at;
    let Some(object) = cluster.objects.get_mut(key) else {
        return;
    };
    if let Some(metadata) = object.metadata_mut() {
        metadata.deletion_timestamp.get_or_insert(Time(at));
        let finalizers = metadata.finalizers.get_or_insert_default();
        if finalizers.is_empty() {
            finalizers.push(labels::TERMINATION_FINALIZER.to_owned());
        }
    }
}
