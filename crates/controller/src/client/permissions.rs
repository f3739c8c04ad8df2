//! Requests about what the API server serves and what this process may do.

use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::Client;
use kube::api::{Api, PostParams};
use mortise_state::resource_kinds::ResourceKind;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::error_class::{self, ErrorClass};

/// A permission that this service needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Permission {
    pub(crate) verb: &'static str,
    pub(crate) group: &'static str,
    /// `nodeclaims`, or with a subresource `nodeclaims/status`.
    pub(crate) resource: String,
    pub(crate) namespace: Option<String>,
    /// The single object; `None`: any.
    pub(crate) name: Option<String>,
}

impl Permission {
    /// The permission for all objects of a resource.
    pub(crate) fn on(verb: &'static str, group: &'static str, resource: &str) -> Self {
        Self {
            verb,
            group,
            resource: resource.to_owned(),
            namespace: None,
            name: None,
        }
    }

    /// The permission as `kubectl` names it, with these verbs.
    pub(crate) fn with_verbs(&self, verbs: &str) -> String {
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

/// Whether the API server serves a kind.
pub(crate) async fn is_served(client: &Client, kind: &ResourceKind) -> Result<bool, kube::Error> {
    #[derive(Deserialize)]
    struct ResourceList {
        #[serde(default)]
        resources: Vec<ApiResource>,
    }
    #[derive(Deserialize)]
    struct ApiResource {
        name: String,
    }
    let path = format!("/apis/{}", kind.api.api_version());
    let list: Option<ResourceList> = discovered(client, path).await?;
    let mut resources = list.into_iter().flat_map(|list| list.resources);
    Ok(resources.any(|each| each.name == kind.api.plural))
}

/// What the server says of a group or a version of one; `None` if it has none of this path.
async fn discovered<T: DeserializeOwned>(
    client: &Client,
    path: String,
) -> Result<Option<T>, kube::Error> {
    let request = http::Request::get(path)
        .body(Vec::new())
        .map_err(kube::Error::HttpError)?;
    match client.request::<T>(request).await {
        Ok(found) => Ok(Some(found)),
        Err(error) if error_class::classify(&error) == ErrorClass::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The kind in the first version of its group that lists it, in the order of the server; `None` if none does.
pub(crate) async fn in_served_version(
    client: &Client,
    kind: &ResourceKind,
) -> Result<Option<ResourceKind>, kube::Error> {
    #[derive(Deserialize)]
    struct ApiGroup {
        #[serde(default)]
        versions: Vec<GroupVersion>,
    }
    #[derive(Deserialize)]
    struct GroupVersion {
        version: String,
    }
    let group: Option<ApiGroup> = discovered(client, format!("/apis/{}", kind.api.group)).await?;
    for GroupVersion { version } in group.into_iter().flat_map(|group| group.versions) {
        let mut kind = kind.clone();
        if version != kind.api.version {
            // Once per start and kind at most: kinds live as long as the process.
            kind.api.version = Box::leak(version.into_boxed_str());
        }
        if is_served(client, &kind).await? {
            return Ok(Some(kind));
        }
    }
    Ok(None)
}

/// User name of this process in the API server; `None` if it does not report one.
pub(crate) async fn user_name(client: &Client) -> Option<String> {
    let api: Api<SelfSubjectReview> = Api::all(client.clone());
    let review = api
        .create(&PostParams::default(), &SelfSubjectReview::default())
        .await;
    review
        .ok()
        .and_then(|review| review.status?.user_info?.username)
}

/// Whether this process has a permission.
pub(crate) async fn is_allowed(client: &Client, right: &Permission) -> Result<bool, kube::Error> {
    let api: Api<SelfSubjectAccessReview> = Api::all(client.clone());
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
