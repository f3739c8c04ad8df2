//! Which kinds of gangs the API server serves, and in which versions.

use std::collections::BTreeSet;

use mortise_state::resource_kinds::{ObjectKind, ResourceKind, WatchCondition};
use mortise_state::snapshot::GangKind;

use crate::client::Clients;
use crate::client::clients::connection_error;
use crate::client::permissions::{Permission, in_served_version, is_allowed};
use crate::error::RunError;

/// The kinds of gangs among these that are served and may be read, each in the version that the server prefers of those that list it:
/// Kubernetes has renamed its alpha version with every release.
pub(super) async fn served(
    clients: &Clients,
    kinds: &[ResourceKind],
) -> Result<Vec<ResourceKind>, RunError> {
    let mut found = Vec::new();
    let kinds = kinds.iter();
    for kind in kinds.filter(|kind| kind.condition == WatchCondition::PodGroups) {
        let known = in_served_version(&clients.main, kind).await;
        let Some(kind) = known.map_err(|error| connection_error(clients, &error))? else {
            continue;
        };
        if may_be_read(clients, &kind).await? {
            found.push(kind);
        } else {
            tracing::warn!(
                "{} are served, and this user may not list and watch them: their pods are treated one by one; update the role",
                kind.api.resource()
            );
        }
    }
    Ok(found)
}

/// Kinds of gangs that hold with these watched kinds.
pub(super) fn gang_kinds(kinds: &[ResourceKind]) -> BTreeSet<GangKind> {
    let of = |kind: &ResourceKind| match kind.index {
        ObjectKind::PodGroup => Some(GangKind::Kubernetes),
        ObjectKind::CoschedulingPodGroup => Some(GangKind::Coscheduling),
        ObjectKind::VolcanoPodGroup => Some(GangKind::Volcano),
        _ => None,
    };
    kinds.iter().filter_map(of).collect()
}

async fn may_be_read(clients: &Clients, kind: &ResourceKind) -> Result<bool, RunError> {
    for verb in ["list", "watch"] {
        let right = Permission::on(verb, kind.api.group, kind.api.plural);
        let allowed = is_allowed(&clients.main, &right).await;
        if !allowed.map_err(|error| connection_error(clients, &error))? {
            return Ok(false);
        }
    }
    Ok(true)
}
