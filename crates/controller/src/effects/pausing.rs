//! Writes and reads the annotations of pauses, for the commands `mortise pause` and `mortise resume`. The service obeys the
//! annotations, whoever writes them. The pause of a NodePoolPolicy is only read: it is a part of a manifest, and a command that
//! removed it would be undone when the manifest is applied again.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, ApiResource, DynamicObject, ListParams, Patch, PatchParams};
use mortise_apis::k8s;
use mortise_apis::karpenter::nodepool::NodePool;
use mortise_apis::labels;
use mortise_apis::names::PoolName;
use mortise_apis::nearest::nearest;
use mortise_apis::node_pool_policy::NodePoolPolicy;
use mortise_apis::schema::api_kind::ApiObject as _;
use mortise_planning::pause::{self, Pause, PauseScope};
use mortise_state::snapshot::policies_by_pool;
use serde_json::json;

use crate::client::Clients;
use crate::client::clients::connection_error;
use crate::client::error_class::message;
use crate::client::resource_kinds::api_resource;
use crate::error::RunError;

/// An object that can be paused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PauseTarget {
    /// The namespace that the service runs in, for the whole cluster.
    Cluster {
        /// Its name.
        namespace: String,
    },
    /// A NodePoolPolicy, for all its NodePools.
    Policy(String),
    /// A NodePool.
    NodePool(String),
    /// A Node.
    Node(String),
}

impl fmt::Display for PauseTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster { namespace } => write!(f, "the cluster (namespace {namespace})"),
            Self::Policy(name) => write!(f, "NodePoolPolicy {name}"),
            Self::NodePool(name) => write!(f, "NodePool {name}"),
            Self::Node(name) => write!(f, "node {name}"),
        }
    }
}

impl PauseTarget {
    fn name(&self) -> &str {
        match self {
            Self::Cluster { namespace: name }
            | Self::Policy(name)
            | Self::NodePool(name)
            | Self::Node(name) => name,
        }
    }

    fn resource(&self) -> ApiResource {
        let kind = match self {
            Self::Cluster { .. } => k8s::Namespace::KIND,
            Self::Policy(_) => NodePoolPolicy::KIND,
            Self::NodePool(_) => NodePool::KIND,
            Self::Node(_) => k8s::Node::KIND,
        };
        api_resource(&kind)
    }

    fn scope(&self) -> PauseScope {
        match self {
            Self::Cluster { .. } => PauseScope::Cluster,
            Self::Policy(name) => PauseScope::Policy(name.clone()),
            Self::NodePool(name) => PauseScope::NodePool(PoolName::from(name.as_str())),
            Self::Node(_) => PauseScope::Node,
        }
    }
}

/// The namespace of the service: the one with the Lease of this name.
///
/// # Errors
/// There is none or more than one, or Leases cannot be listed: then the namespace has to be given.
pub async fn service_namespace(clients: &Clients, lease: &str) -> Result<String, RunError> {
    let leases: Api<Lease> = Api::all(clients.main.clone());
    let params = ListParams::default().fields(&format!("metadata.name={lease}"));
    let found = leases.list(&params).await;
    let found = found.map_err(|error| failed(clients, &error, "list leases", "leases"))?;
    let mut names = found
        .items
        .into_iter()
        .filter_map(|lease| lease.metadata.namespace);
    match (names.next(), names.next()) {
        (Some(name), None) => Ok(name),
        (None, _) => Err(RunError::Usage(format!(
            "no namespace has the Lease {lease}, so it is not known where mortise runs; give its namespace with --namespace"
        ))),
        (Some(one), Some(other)) => Err(RunError::Usage(format!(
            "the Lease {lease} is in the namespaces {one} and {other}; say which one with --namespace"
        ))),
    }
}

/// Pauses an object, or ends its pause. Returns the pause that it had, if one held.
///
/// # Errors
/// It does not exist, it is a NodePoolPolicy, or the API server refuses.
pub async fn set_pause(
    clients: &Clients,
    target: &PauseTarget,
    wanted: Option<(&str, Option<Timestamp>)>,
    now: Timestamp,
) -> Result<Option<Pause>, RunError> {
    if matches!(target, PauseTarget::Policy(_)) {
        return Err(RunError::Usage(format!(
            "the pause of {target} is a part of its manifest: add or remove spec.disruption.pause there"
        )));
    }
    let resource = target.resource();
    let api: Api<DynamicObject> = Api::all_with(clients.main.clone(), &resource);
    let right = format!("patch {}", resource.plural);
    let object = match api.get(target.name()).await {
        Ok(object) => object,
        Err(kube::Error::Api(status)) if status.code == 404 => {
            return Err(missing(&api, target).await);
        }
        Err(error) => return Err(failed(clients, &error, &right, &resource.plural)),
    };
    let before = pause::stated(object.metadata.annotations.as_ref(), || target.scope(), now);
    let annotations = json!({
        labels::PAUSE: wanted.map(|(reason, _)| reason),
        labels::PAUSE_UNTIL: wanted.and_then(|(_, until)| until).map(|until| until.to_string()),
    });
    let patch = Patch::Merge(json!({ "metadata": { "annotations": annotations } }));
    api.patch(target.name(), &PatchParams::default(), &patch)
        .await
        .map_err(|error| failed(clients, &error, &right, &resource.plural))?;
    Ok(before)
}

/// Every pause that holds, the widest first.
///
/// # Errors
/// The objects cannot be read.
pub async fn pauses(
    clients: &Clients,
    namespace: &str,
    now: Timestamp,
) -> Result<Vec<(PauseTarget, Pause)>, RunError> {
    let cluster = |namespace| PauseTarget::Cluster { namespace };
    let mut found = annotated(clients, cluster, now).await?;
    found.retain(|(target, _)| target.name() == namespace);
    let policies: BTreeMap<String, Pause> =
        policy_pauses(clients, now).await?.into_values().collect();
    let policies = policies.into_iter();
    found.extend(policies.map(|(name, pause)| (PauseTarget::Policy(name), pause)));
    found.extend(annotated(clients, PauseTarget::NodePool, now).await?);
    found.extend(annotated(clients, PauseTarget::Node, now).await?);
    Ok(found)
}

/// The objects of a kind with the annotations of a pause that holds, by name.
async fn annotated(
    clients: &Clients,
    of: impl Fn(String) -> PauseTarget,
    now: Timestamp,
) -> Result<Vec<(PauseTarget, Pause)>, RunError> {
    let resource = of(String::new()).resource();
    let api: Api<DynamicObject> = Api::all_with(clients.main.clone(), &resource);
    let right = format!("list {}", resource.plural);
    let listed = api.list_metadata(&ListParams::default()).await;
    let listed = listed.map_err(|error| failed(clients, &error, &right, &resource.plural))?;
    let named: BTreeMap<String, _> = listed
        .items
        .into_iter()
        .filter_map(|object| Some((object.metadata.name?, object.metadata.annotations)))
        .collect();
    let paused = named.into_iter().filter_map(|(name, annotations)| {
        let target = of(name);
        let pause = pause::stated(annotations.as_ref(), || target.scope(), now)?;
        Some((target, pause))
    });
    Ok(paused.collect())
}

/// The pause of a NodePoolPolicy that covers a NodePool or a Node, with the name of the policy. None if it cannot be read.
pub async fn covering_pause(
    clients: &Clients,
    target: &PauseTarget,
    now: Timestamp,
) -> Option<Pause> {
    let pool = match target {
        PauseTarget::Cluster { .. } | PauseTarget::Policy(_) => return None,
        PauseTarget::NodePool(name) => name.clone(),
        PauseTarget::Node(name) => {
            let nodes: Api<DynamicObject> = Api::all_with(clients.main.clone(), &target.resource());
            let labels = nodes.get_metadata(name).await.ok()?.metadata.labels?;
            labels.get(labels::NODEPOOL)?.clone()
        }
    };
    let mut paused = policy_pauses(clients, now).await.ok()?;
    paused.remove(pool.as_str()).map(|(_, pause)| pause)
}

/// The pauses of NodePoolPolicies that hold, by NodePool, with the name of the policy. None without the CRD.
async fn policy_pauses(
    clients: &Clients,
    now: Timestamp,
) -> Result<BTreeMap<PoolName, (String, Pause)>, RunError> {
    let api: Api<NodePoolPolicy> = Api::all(clients.main.clone());
    let policies: Vec<Arc<NodePoolPolicy>> = match api.list(&ListParams::default()).await {
        Ok(list) => list.items.into_iter().map(Arc::new).collect(),
        Err(kube::Error::Api(status)) if status.code == 404 => return Ok(BTreeMap::new()),
        Err(error) => {
            let plural = NodePoolPolicy::KIND.plural;
            return Err(failed(clients, &error, &format!("list {plural}"), plural));
        }
    };
    let by_pool = policies_by_pool(policies.iter()).into_iter();
    let paused = by_pool.filter_map(|(pool, policy)| {
        let name = policy.name().to_string();
        let pause = pause::by_policy(&name, policy.pause().as_ref(), now)?;
        Some((pool, (name, pause)))
    });
    Ok(paused.collect())
}

/// The error about an object that does not exist, with the name that was meant, if one is near.
async fn missing(api: &Api<DynamicObject>, target: &PauseTarget) -> RunError {
    let listed = api.list_metadata(&ListParams::default()).await;
    let names: Vec<String> = listed
        .map(|list| {
            let objects = list.items.into_iter();
            objects.filter_map(|object| object.metadata.name).collect()
        })
        .unwrap_or_default();
    let meant = nearest(target.name(), names.iter().map(String::as_str));
    let meant = meant.map_or_else(String::new, |name| format!("; did you mean {name}?"));
    RunError::Usage(format!("{target} does not exist{meant}"))
}

fn failed(clients: &Clients, error: &kube::Error, right: &str, resource: &str) -> RunError {
    match error {
        kube::Error::Api(status) if status.code == 403 => RunError::Forbidden {
            who: "this user".to_owned(),
            rights: vec![right.to_owned()],
            option: "",
        },
        kube::Error::Api(status) if status.code == 404 => RunError::CrdsMissing {
            names: vec![format!("{resource}.{}", NodePool::KIND.group)],
        },
        kube::Error::Api(_) => RunError::Usage(format!("cannot {right}: {}", message(error))),
        _ => connection_error(clients, error),
    }
}
