//! Reading and writing the Lease object.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddr;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::{Api, PostParams};
use mortise_apis::labels;

use crate::client::error_class::{self, ErrorClass};

/// What a Lease object says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LeaseRecord {
    /// Which replica holds it; empty = none.
    pub(crate) holder: String,
    pub(crate) duration_seconds: i32,
    pub(crate) acquired: Option<Timestamp>,
    pub(crate) renewed: Option<Timestamp>,
    pub(crate) transitions: i32,
    /// Where the holder answers calls of other replicas; `None`: it does not say. A holder that knows no such field leaves the address
    /// of the one before, which refuses the calls.
    pub(crate) address: Option<SocketAddr>,
    /// `metadata.resourceVersion`; empty before it exists.
    pub(crate) version: String,
}

/// Why the Lease could not be read or written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum StoreError {
    /// Another replica wrote in between.
    #[error("the lease was changed concurrently")]
    Conflict,
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

/// Where the Lease is kept.
pub(crate) trait LeaseStore: Send + Sync {
    /// The Lease, if there is one.
    fn get(&self) -> impl Future<Output = Result<Option<LeaseRecord>, StoreError>> + Send;
    /// Creates it; a creation by another replica is a conflict.
    fn create(
        &self,
        record: &LeaseRecord,
    ) -> impl Future<Output = Result<LeaseRecord, StoreError>> + Send;
    /// Replaces the version that the record names.
    fn update(
        &self,
        record: &LeaseRecord,
    ) -> impl Future<Output = Result<LeaseRecord, StoreError>> + Send;
}

/// A Lease in a cluster. Its client is not the one that everything else shares: a flood must not cost the leadership.
#[derive(Clone, Debug)]
pub(crate) struct ClusterLease {
    api: Api<Lease>,
    namespace: String,
    name: String,
}

impl ClusterLease {
    pub(crate) fn new(client: kube::Client, namespace: &str, name: &str) -> Self {
        Self {
            api: Api::namespaced(client, namespace),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    fn object(&self, record: &LeaseRecord) -> Lease {
        let metadata = ObjectMeta {
            name: Some(self.name.clone()),
            namespace: Some(self.namespace.clone()),
            annotations: record.address.map(|address| {
                BTreeMap::from([(labels::LEADER_ADDRESS.to_owned(), address.to_string())])
            }),
            resource_version: Some(record.version.clone()).filter(|version| !version.is_empty()),
            ..ObjectMeta::default()
        };
        let spec = LeaseSpec {
            holder_identity: Some(record.holder.clone()),
            lease_duration_seconds: Some(record.duration_seconds),
            acquire_time: record.acquired.map(MicroTime),
            renew_time: record.renewed.map(MicroTime),
            lease_transitions: Some(record.transitions),
            ..LeaseSpec::default()
        };
        Lease {
            metadata,
            spec: Some(spec),
        }
    }
}

fn read(lease: Lease) -> LeaseRecord {
    let spec = lease.spec.unwrap_or_default();
    let annotations = lease.metadata.annotations.unwrap_or_default();
    let address = annotations.get(labels::LEADER_ADDRESS);
    LeaseRecord {
        holder: spec.holder_identity.unwrap_or_default(),
        duration_seconds: spec.lease_duration_seconds.unwrap_or_default(),
        acquired: spec.acquire_time.map(|time| time.0),
        renewed: spec.renew_time.map(|time| time.0),
        transitions: spec.lease_transitions.unwrap_or_default(),
        address: address.and_then(|address| address.parse().ok()),
        version: lease.metadata.resource_version.unwrap_or_default(),
    }
}

fn failed(error: &kube::Error) -> StoreError {
    match error_class::classify(error) {
        ErrorClass::Conflict | ErrorClass::AlreadyExists => StoreError::Conflict,
        _ => StoreError::Other(error_class::message(error)),
    }
}

/// The API server says that there is such an object, which may not be written without the version that was read.
fn demands_version(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else {
        return false;
    };
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let mut fields = causes.map(|cause| &*cause.field);
    fields.any(|field| field == "metadata.resourceVersion")
}

impl LeaseStore for ClusterLease {
    async fn get(&self) -> Result<Option<LeaseRecord>, StoreError> {
        self.api
            .get_opt(&self.name)
            .await
            .map(|lease| lease.map(read))
            .map_err(|error| failed(&error))
    }

    async fn create(&self, record: &LeaseRecord) -> Result<LeaseRecord, StoreError> {
        // Written to its own path, because permission to create can be restricted to a name only this way. The API server
        // creates a missing object, and requires the version of an existing one, so no other process's Lease is overwritten.
        self.api
            .replace(&self.name, &PostParams::default(), &self.object(record))
            .await
            .map(read)
            .map_err(|error| {
                if demands_version(&error) {
                    StoreError::Conflict
                } else {
                    failed(&error)
                }
            })
    }

    async fn update(&self, record: &LeaseRecord) -> Result<LeaseRecord, StoreError> {
        self.api
            .replace(&self.name, &PostParams::default(), &self.object(record))
            .await
            .map(read)
            .map_err(|error| failed(&error))
    }
}
