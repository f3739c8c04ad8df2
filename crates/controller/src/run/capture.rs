//! Reads once what a service would watch, and what it would ask its clouds: for commands that plan without a service.
//!
//! Must never write: it lists objects and resolves node classes, and nothing else. It asks for no access review either, which is a
//! write to the API server.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::labels::WellKnown;
use mortise_apis::names::NodeClassKey;
use mortise_apis::node_class::{NodeClassKind, NodeClassObject};
use mortise_cloudprovider::{
    CloudError, CloudProvider, InstanceType, ResolveRequest, ResolvedNodeClass,
};
use mortise_planning::settings::Settings;
use mortise_state::resource_kinds::{Object, ResourceKind, WatchCondition};
use serde_json::Value;
use tokio::task::JoinSet;

use super::{watched_kinds, well_known};
use crate::client::Clients;
use crate::client::clients::connection_error;
use crate::client::error_class::{self, ErrorClass};
use crate::effects::cloud::CloudProviders;
use crate::error::RunError;
use crate::watch::list_once;

/// A provider may take this long for a node class.
const RESOLVE: Duration = Duration::from_secs(60);
/// A provider that will soon know more prices is asked again this many times.
const REPEATS: usize = 5;
/// Longest pause before it is asked again, in milliseconds.
const MAX_PAUSE_MS: i64 = 10_000;

/// What decisions about a cluster depend on.
#[derive(Debug)]
pub struct CapturedCluster {
    /// Settings, without devices if the API server serves none.
    pub settings: Settings,
    /// Label keys of the providers.
    pub well_known: WellKnown,
    /// Node classes that the providers serve.
    pub served: Vec<NodeClassKind>,
    /// Objects of every watched kind. Of a node class that was resolved the last one has the status that a service would write.
    pub objects: Vec<Object>,
    /// Instance types of the node classes.
    pub catalogs: BTreeMap<NodeClassKey, Vec<InstanceType>>,
    /// Node classes that could not be resolved, and why.
    pub unresolved: Vec<(NodeClassKey, String)>,
    /// Objects that could not be parsed, as `resource/name`.
    pub unreadable: Vec<String>,
}

/// Reads everything once. `progress` gets what was read and how many there are.
///
/// # Errors
/// The API server is out of reach, definitions are missing, or a list is forbidden. A node class that cannot be resolved is no error.
pub async fn capture(
    mut settings: Settings,
    clients: &Clients,
    providers: Vec<Arc<dyn CloudProvider>>,
    progress: &(dyn Fn(&str, usize) + Sync),
) -> Result<CapturedCluster, RunError> {
    let mut reading = JoinSet::new();
    for worker in providers
        .iter()
        .flat_map(|provider| provider.reading_workers())
    {
        reading.spawn(worker.run);
    }
    let clouds = CloudProviders::new(providers);
    let served = clouds.node_class_kinds();
    let kinds = watched_kinds(&mut settings, clients, &served).await?;
    let reader = clients.reader();
    let (mut objects, mut unreadable) = (Vec::new(), Vec::new());
    for kind in &kinds {
        let listed = list_once(&reader, kind).await;
        let listed = listed.map_err(|error| list_error(clients, kind, &error))?;
        progress(&kind.api.resource(), listed.objects.len());
        objects.extend(listed.objects);
        let names = listed.unreadable.into_iter();
        unreadable.extend(names.map(|name| format!("{}/{name}", kind.api.resource())));
    }
    let (mut catalogs, mut unresolved) = (BTreeMap::new(), Vec::new());
    for class in classes(&objects) {
        let key = class.key.clone();
        match resolve(&clouds, &request(class.clone(), &objects)).await {
            Ok(resolved) => {
                let count = resolved.instance_types.len();
                progress(&format!("instance types of {key}"), count);
                objects.push(Object::NodeClass(Box::new(with_status(&class, &resolved))));
                catalogs.insert(key, resolved.instance_types);
            }
            Err(error) => unresolved.push((key, error.to_string())),
        }
    }
    Ok(CapturedCluster {
        settings,
        well_known: well_known(&clouds),
        served,
        objects,
        catalogs,
        unresolved,
        unreadable,
    })
}

/// Node classes that are not being deleted.
fn classes(objects: &[Object]) -> Vec<NodeClassObject> {
    let all = objects.iter().filter_map(|object| match object {
        Object::NodeClass(class) if !class.is_being_deleted() => Some((**class).clone()),
        _ => None,
    });
    all.collect()
}

/// The class as it is after a service has written what its provider said.
fn with_status(class: &NodeClassObject, resolved: &ResolvedNodeClass) -> NodeClassObject {
    let mut object = (*class.object).clone();
    if let Some(status) = &resolved.status {
        json_patch::merge(&mut object["status"], status);
    }
    for (key, value) in &resolved.annotations {
        object["metadata"]["annotations"][key] = Value::from(value.as_str());
    }
    NodeClassObject::new(class.key.clone(), object)
}

/// The class with what refers to it, as the service asks for it.
fn request(class: NodeClassObject, objects: &[Object]) -> ResolveRequest {
    let mut request = ResolveRequest::from(class);
    let mut claims: BTreeMap<&str, &NodeClaim> = BTreeMap::new();
    for object in objects {
        match object {
            Object::Pool(pool) if pool.node_class_key() == request.class.key => {
                request.node_pools.push(Arc::new((**pool).clone()));
            }
            Object::Claim(claim) if claim.node_class_key() == request.class.key => {
                request.claims.push(Arc::new((**claim).clone()));
                claims.extend(claim.provider_id().map(|id| (id, &**claim)));
            }
            _ => {}
        }
    }
    for object in objects {
        if let Object::Node(node) = object
            && node.provider_id().is_some_and(|id| claims.contains_key(id))
            && node.label(mortise_apis::labels::REGISTERED) == Some("true")
        {
            request.nodes.push(Arc::new((**node).clone()));
        }
    }
    request
}

async fn resolve(
    clouds: &CloudProviders,
    request: &ResolveRequest,
) -> Result<ResolvedNodeClass, CloudError> {
    let mut repeats = REPEATS;
    loop {
        let resolved = clouds.resolve_once(request, RESOLVE).await?;
        match resolved.again_ms.filter(|ms| *ms <= MAX_PAUSE_MS) {
            Some(ms) if repeats > 0 => {
                repeats -= 1;
                let pause = u64::try_from(ms.max(100)).unwrap_or(100);
                tokio::time::sleep(Duration::from_millis(pause)).await;
            }
            _ => return Ok(resolved),
        }
    }
}

fn list_error(clients: &Clients, kind: &ResourceKind, error: &kube::Error) -> RunError {
    match (error_class::classify(error), error) {
        (ErrorClass::NotFound, _)
            if kind.api.is_custom() || kind.condition == WatchCondition::Devices =>
        {
            RunError::CrdsMissing {
                names: vec![kind.api.resource()],
            }
        }
        (_, kube::Error::Api(status)) if status.code == 403 => RunError::Forbidden {
            who: "this user".to_owned(),
            rights: vec![format!("list {}", kind.api.resource())],
            option: "",
        },
        _ => connection_error(clients, error),
    }
}
