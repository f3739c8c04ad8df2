//! Asked once at start, so that a missing definition or right is one clear line and not a loop of warnings.

use std::time::Duration;

use futures::StreamExt as _;
use futures::stream;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::api::{Api, PostParams};
use serde::Deserialize;

use crate::clients::Clients;
use crate::effects::retry::{self, ErrorClass};
use crate::error::RunError;
use crate::objects::ResourceKind;

/// All questions together are answered in a second by a server that is well.
const PATIENCE: Duration = Duration::from_secs(30);

/// A right that this service needs.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Permission {
    verb: &'static str,
    group: &'static str,
    /// `nodeclaims`, or with a subresource `nodeclaims/status`.
    resource: String,
    namespace: Option<String>,
    /// The one object; `None`: any.
    name: Option<String>,
}

impl Permission {
    fn with_verbs(&self, verbs: &str) -> String {
        let group = if self.group.is_empty() {
            String::new()
        } else {
            format!(".{}", self.group)
        };
        let within = self
            .namespace
            .as_ref()
            .map(|namespace| format!(" in namespace {namespace}"))
            .unwrap_or_default();
        let named = self
            .name
            .as_ref()
            .map(|name| format!(" {name}"))
            .unwrap_or_default();
        format!("{verbs} {}{group}{named}{within}", self.resource)
    }
}

/// What besides the watched kinds must be allowed.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequiredPermissions {
    /// Name and namespace of the Lease, when there is an election.
    pub(crate) lease: Option<(String, String)>,
    /// Name and namespace of the certificate Secret, when there is one.
    pub(crate) secret: Option<(String, String)>,
}

/// Checks that the API server answers, knows every kind, and lets us do what we must.
pub(crate) async fn check(
    clients: &Clients,
    kinds: &[ResourceKind],
    needs: &RequiredPermissions,
) -> Result<(), RunError> {
    let asked = async {
        reachable(clients).await?;
        definitions(clients, kinds).await?;
        rights(clients, kinds, needs).await
    };
    in_time(clients, asked).await
}

/// Whether the API server knows all these kinds.
pub(crate) async fn serves(clients: &Clients, kinds: &[ResourceKind]) -> Result<bool, RunError> {
    let asked = async {
        for kind in kinds {
            if !is_served(clients, kind).await? {
                return Ok(false);
            }
        }
        Ok(true)
    };
    in_time(clients, asked).await
}

async fn in_time<T>(
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

async fn reachable(clients: &Clients) -> Result<(), RunError> {
    match clients.main.apiserver_version().await {
        Ok(version) => {
            tracing::info!(
                server = clients.server,
                version = version.git_version,
                "connected to API server"
            );
            Ok(())
        }
        Err(error) => Err(unreachable(clients, &error)),
    }
}

fn unreachable(clients: &Clients, error: &kube::Error) -> RunError {
    let server = clients.server.clone();
    let message = match error {
        // The layers around a failed connection say nothing of their own.
        kube::Error::Service(cause) => crate::clients::with_causes(&**cause),
        other => crate::clients::with_causes(other),
    };
    match error {
        kube::Error::Api(status) if status.code == 401 => RunError::Unauthenticated {
            server,
            message: retry::message(error),
        },
        _ => RunError::Unreachable { server, message },
    }
}

async fn definitions(clients: &Clients, kinds: &[ResourceKind]) -> Result<(), RunError> {
    let mut missing = Vec::new();
    for kind in kinds.iter().filter(|kind| kind.is_custom()) {
        if !is_served(clients, kind).await? {
            missing.push(kind.resource());
        }
    }
    if missing.is_empty() {
        Ok(())
    } else {
        Err(RunError::CrdsMissing { names: missing })
    }
}

async fn is_served(clients: &Clients, kind: &ResourceKind) -> Result<bool, RunError> {
    #[derive(Deserialize)]
    struct ResourceList {
        #[serde(default)]
        resources: Vec<ApiResource>,
    }
    #[derive(Deserialize)]
    struct ApiResource {
        name: String,
    }
    let path = format!("/apis/{}/{}", kind.group, kind.version);
    let request = http::Request::get(path)
        .body(Vec::new())
        .map_err(|error| RunError::Usage(error.to_string()))?;
    match clients.main.request::<ResourceList>(request).await {
        Ok(list) => Ok(list.resources.iter().any(|each| each.name == kind.plural)),
        Err(error) if retry::classify(&error) == ErrorClass::NotFound => Ok(false),
        Err(error) => Err(unreachable(clients, &error)),
    }
}

fn needed(kinds: &[ResourceKind], needs: &RequiredPermissions) -> Vec<Permission> {
    let right = |verb, group, resource: &str| Permission {
        verb,
        group,
        resource: resource.to_owned(),
        namespace: None,
        name: None,
    };
    let mut all = Vec::new();
    for kind in kinds {
        all.extend(["list", "watch"].map(|verb| right(verb, kind.group, kind.plural)));
        if kind.is_written() {
            all.push(right("patch", kind.group, kind.plural));
            all.push(right(
                "patch",
                kind.group,
                &format!("{}/status", kind.plural),
            ));
        }
    }
    all.extend(["create", "get", "delete"].map(|verb| right(verb, "karpenter.sh", "nodeclaims")));
    all.extend([
        right("patch", "", "nodes"),
        right("delete", "", "nodes"),
        right("delete", "", "pods"),
    ]);
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

async fn rights(
    clients: &Clients,
    kinds: &[ResourceKind],
    needs: &RequiredPermissions,
) -> Result<(), RunError> {
    let api: Api<SelfSubjectAccessReview> = Api::all(clients.main.clone());
    let asked = stream::iter(needed(kinds, needs)).map(|right| {
        let api = api.clone();
        async move { (allowed(&api, &right).await, right) }
    });
    let answers: Vec<_> = asked.buffered(16).collect().await;
    let mut missing: Vec<Permission> = Vec::new();
    for (answer, right) in answers {
        match answer {
            Ok(true) => {}
            Ok(false) => missing.push(right),
            Err(error) => return Err(unreachable(clients, &error)),
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    Err(RunError::Forbidden {
        who: user(clients).await,
        rights: grouped(&missing),
    })
}

/// Our name, as the API server knows it.
async fn user(clients: &Clients) -> String {
    let api: Api<SelfSubjectReview> = Api::all(clients.main.clone());
    let review = api
        .create(&PostParams::default(), &SelfSubjectReview::default())
        .await;
    let name = review
        .ok()
        .and_then(|review| review.status?.user_info?.username);
    name.unwrap_or_else(|| "this user".to_owned())
}

/// One text per resource, with all its verbs.
fn grouped(rights: &[Permission]) -> Vec<String> {
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

async fn allowed(
    api: &Api<SelfSubjectAccessReview>,
    right: &Permission,
) -> Result<bool, kube::Error> {
    let (resource, subresource) = match right.resource.split_once('/') {
        Some((resource, subresource)) => (resource, Some(subresource.to_owned())),
        None => (right.resource.as_str(), None),
    };
    let attributes = ResourceAttributes {
        verb: Some(right.verb.to_owned()),
        group: Some(right.group.to_owned()),
        resource: Some(resource.to_owned()),
        subresource,
        namespace: right.namespace.clone(),
        name: right.name.clone(),
        ..ResourceAttributes::default()
    };
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(attributes),
            non_resource_attributes: None,
        },
        ..SelfSubjectAccessReview::default()
    };
    let answer = api.create(&PostParams::default(), &review).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_are_named_as_kubectl_names_them() {
        let kinds = ResourceKind::watched(&[]);
        let needs = RequiredPermissions {
            lease: Some(("election".to_owned(), "kube-system".to_owned())),
            secret: None,
        };
        let all = grouped(&needed(&kinds, &needs));
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
    }
}
