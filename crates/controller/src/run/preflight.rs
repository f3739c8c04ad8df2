//! Checks at start, so that a missing CRD or permission is one clear line instead of repeated warnings.

use std::time::Duration;

use futures::StreamExt as _;
use futures::stream;
use mortise_state::resource_kinds::{ObjectKind, ResourceKind};

use crate::client::Clients;
use crate::client::clients::connection_error;
use crate::client::permissions::{Permission, is_allowed, is_served, user_name};
use crate::error::RunError;

/// A healthy server responds to all these requests within a second.
const PATIENCE: Duration = Duration::from_secs(30);

/// Permissions needed in addition to those for the watched kinds.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequiredPermissions {
    /// Name and namespace of the Lease, with leader election.
    pub(crate) lease: Option<(String, String)>,
    /// Name and namespace of the certificate Secret, if any.
    pub(crate) secret: Option<(String, String)>,
    /// Deletion costs are written to pods.
    pub(crate) pod_deletion_costs: bool,
    /// Deployments are restarted.
    pub(crate) hand_over: bool,
}

/// Checks that the API server responds, serves every kind, and grants the needed permissions.
pub(crate) async fn check(
    clients: &Clients,
    kinds: &[ResourceKind],
    needs: &RequiredPermissions,
) -> Result<(), RunError> {
    let asked = async {
        check_reachable(clients).await?;
        check_crds(clients, kinds).await?;
        check_permissions(clients, kinds, needs).await
    };
    with_timeout(clients, asked).await
}

/// Whether the API server serves all these kinds.
pub(crate) async fn are_served(
    clients: &Clients,
    kinds: &[&ResourceKind],
) -> Result<bool, RunError> {
    let asked = async {
        for kind in kinds {
            if !is_crd_served(clients, kind).await? {
                return Ok(false);
            }
        }
        Ok(true)
    };
    with_timeout(clients, asked).await
}

async fn with_timeout<T>(
    clients: &Clients,
    asked: impl Future<Output = Result<T, RunError>>,
) -> Result<T, RunError> {
    tokio::time::timeout(PATIENCE, asked)
        .await
        .unwrap_or_else(|_| {
            Err(RunError::Unreachable {
                server: clients.server.clone(),
                message: format!("no response within {} s", PATIENCE.as_secs()),
            })
        })
}

async fn check_reachable(clients: &Clients) -> Result<(), RunError> {
    match clients.main.apiserver_version().await {
        Ok(version) => {
            tracing::info!(
                server = clients.server,
                version = version.git_version,
                "connected to API server"
            );
            Ok(())
        }
        Err(error) => Err(connection_error(clients, &error)),
    }
}

async fn is_crd_served(clients: &Clients, kind: &ResourceKind) -> Result<bool, RunError> {
    let known = is_served(&clients.main, kind).await;
    known.map_err(|error| connection_error(clients, &error))
}

async fn check_crds(clients: &Clients, kinds: &[ResourceKind]) -> Result<(), RunError> {
    let mut missing = Vec::new();
    for kind in kinds.iter().filter(|kind| kind.api.is_custom()) {
        if !is_crd_served(clients, kind).await? {
            missing.push(kind.api.resource());
        }
    }
    if missing.is_empty() {
        Ok(())
    } else {
        Err(RunError::CrdsMissing { names: missing })
    }
}

/// The permission to write deletion costs.
fn deletion_costs() -> Permission {
    Permission::on("patch", "", "pods")
}

/// The permission to restart Deployments.
fn restarts() -> Permission {
    Permission::on("patch", "apps", "deployments")
}

fn needed_permissions(kinds: &[ResourceKind], needs: &RequiredPermissions) -> Vec<Permission> {
    let right = Permission::on;
    let mut all = Vec::new();
    for kind in kinds {
        all.extend(["list", "watch"].map(|verb| right(verb, kind.api.group, kind.api.plural)));
        if kind.is_written() {
            all.push(right("patch", kind.api.group, kind.api.plural));
        }
        if kind.is_written() || matches!(kind.index, ObjectKind::Request) {
            let status = format!("{}/status", kind.api.plural);
            all.push(right("patch", kind.api.group, &status));
        }
    }
    all.extend(["create", "get", "delete"].map(|verb| right(verb, "karpenter.sh", "nodeclaims")));
    all.extend([
        right("patch", "", "nodes"),
        right("delete", "", "nodes"),
        right("delete", "", "pods"),
    ]);
    if needs.pod_deletion_costs {
        all.push(deletion_costs());
    }
    if needs.hand_over {
        all.push(restarts());
    }
    all.extend([
        right("create", "", "pods/eviction"),
        right("create", "", "events"),
    ]);
    let own = |object: &Option<(String, String)>, verbs: &[&'static str], group, resource: &str| {
        let rights = object.iter().flat_map(|(name, namespace)| {
            verbs.iter().map(|verb| Permission {
                namespace: Some(namespace.clone()),
                name: Some(name.clone()),
                ..right(verb, group, resource)
            })
        });
        rights.collect::<Vec<_>>()
    };
    let lease = ["get", "create", "update"];
    all.extend(own(&needs.lease, &lease, "coordination.k8s.io", "leases"));
    let secret = ["get", "create", "update", "patch"];
    all.extend(own(&needs.secret, &secret, "", "secrets"));
    all
}

async fn check_permissions(
    clients: &Clients,
    kinds: &[ResourceKind],
    needs: &RequiredPermissions,
) -> Result<(), RunError> {
    let asked = stream::iter(needed_permissions(kinds, needs)).map(|right| {
        let client = clients.main.clone();
        async move { (is_allowed(&client, &right).await, right) }
    });
    let answers: Vec<_> = asked.buffered(16).collect().await;
    let mut missing: Vec<Permission> = Vec::new();
    for (answer, right) in answers {
        match answer {
            Ok(true) => {}
            Ok(false) => missing.push(right),
            Err(error) => return Err(connection_error(clients, &error)),
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    Err(RunError::Forbidden {
        who: user_name(&clients.main)
            .await
            .unwrap_or_else(|| "this user".to_owned()),
        rights: group_by_resource(&missing),
        option: match (
            missing.contains(&deletion_costs()),
            missing.contains(&restarts()),
        ) {
            (true, true) => " --pod-deletion-costs --hand-over",
            (true, false) => " --pod-deletion-costs",
            (false, true) => " --hand-over",
            (false, false) => "",
        },
    })
}

/// One text per resource, with all its verbs.
fn group_by_resource(rights: &[Permission]) -> Vec<String> {
    let mut verbs: Vec<(&Permission, Vec<&str>)> = Vec::new();
    for right in rights {
        let same = |other: &Permission| {
            (&other.resource, other.group, &other.namespace, &other.name)
                == (&right.resource, right.group, &right.namespace, &right.name)
        };
        match verbs.iter_mut().find(|(first, _)| same(first)) {
            Some((_, verbs)) => verbs.push(right.verb),
            None => verbs.push((right, vec![right.verb])),
        }
    }
    verbs
        .iter()
        .map(|(right, verbs)| right.with_verbs(&verbs.join("/")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_are_named_as_in_kubectl() {
        let kinds = ResourceKind::all(&[]);
        let needs = RequiredPermissions {
            lease: Some(("election".to_owned(), "kube-system".to_owned())),
            secret: None,
            pod_deletion_costs: false,
            hand_over: false,
        };
        let all = group_by_resource(&needed_permissions(&kinds, &needs));
        for want in [
            "list/watch/patch/create/get/delete nodeclaims.karpenter.sh",
            "patch nodeclaims/status.karpenter.sh",
            "list/watch/delete pods",
            "create pods/eviction",
            "get/create/update leases.coordination.k8s.io election in namespace kube-system",
        ] {
            assert!(all.iter().any(|right| right == want), "{want} in {all:?}");
        }
        assert!(!all.iter().any(|right| right.contains("secrets")));
        let needs = RequiredPermissions {
            pod_deletion_costs: true,
            hand_over: true,
            ..needs
        };
        let all = group_by_resource(&needed_permissions(&kinds, &needs));
        for want in [
            "list/watch/delete/patch pods",
            "list/watch/patch deployments.apps",
        ] {
            assert!(all.iter().any(|right| right == want), "{want} in {all:?}");
        }
    }
}
