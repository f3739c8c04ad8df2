//! What the provider asks the API server of the cluster. Whoever composes the program has a client of it; the provider has none.

use std::collections::BTreeMap;
use std::fmt;

use mortise_cloudprovider::BoxFuture;

/// An answer that did not come, as a text for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ApiServerError(pub String);

/// The API server of the cluster.
pub trait ApiServer: fmt::Debug + Send + Sync {
    /// Its version, such as `1.36`.
    fn version(&self) -> BoxFuture<'_, Result<String, ApiServerError>>;

    /// Address ranges of Services, the primary one first. Empty where the API server has no objects for them.
    fn service_ranges(&self) -> BoxFuture<'_, Result<Vec<String>, ApiServerError>>;

    /// Environment of the container `aws-node` of the DaemonSet `kube-system/aws-node`, by which the VPC CNI is set; `None` where there
    /// is no such DaemonSet.
    fn vpc_cni(&self) -> BoxFuture<'_, Result<Option<BTreeMap<String, String>>, ApiServerError>>;
}
