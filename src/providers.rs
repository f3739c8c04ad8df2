//! The clouds: one file and one row each. What admission, conversion, CRDs, RBAC and files need of a cloud is derived from it.

mod aws;
mod kwok;

use std::sync::Arc;

use mortise_apis::CrdSet;
use mortise_apis::node_class::{NodeClassApi, NodeClassRegistry};
use mortise_cloudprovider::{BoxFuture, CloudProvider};
use mortise_controller::{Clients, RunError};
use mortise_manifests::render::ProviderPermissions;

use crate::args::{ProviderName, ServeArgs};

pub(crate) use aws::AWS;
pub(crate) use kwok::KWOK;

/// Connects a provider with its cloud, as the flags say.
type Connect = for<'a> fn(
    &'a ServeArgs,
    &'a Clients,
) -> BoxFuture<'a, Result<Arc<dyn CloudProvider>, RunError>>;

/// A cloud.
pub(crate) struct Provider {
    /// Value of `--provider`.
    pub(crate) name: &'static str,
    /// Its node class.
    class: &'static dyn NodeClassApi,
    /// Whether it creates Node objects; instances of a cloud register themselves.
    creates_nodes: bool,
    /// Whether it tells nodes the range of Services.
    reads_service_ranges: bool,
    /// Makes the provider itself.
    pub(crate) connect: Connect,
}

/// All clouds. The first one's node class is the default: what objects of older versions mean that name no kind of class.
pub(crate) const PROVIDERS: [Provider; 2] = [AWS, KWOK];

impl Provider {
    /// The provider that a flag means.
    pub(crate) const fn of(name: ProviderName) -> Self {
        match name {
            ProviderName::Aws => AWS,
            ProviderName::Kwok => KWOK,
        }
    }

    /// The provider of this name.
    pub(crate) fn of_name(name: &str) -> Option<Self> {
        PROVIDERS.into_iter().find(|each| each.name == name)
    }

    /// The definitions of a cluster with this provider.
    pub(crate) fn crds(&self) -> CrdSet {
        CrdSet::for_classes(&node_classes(), &[self.class.kind()])
    }

    /// What its permissions depend on.
    pub(crate) fn permissions(&self) -> ProviderPermissions {
        ProviderPermissions {
            name: self.name,
            node_class: self.class.kind(),
            creates_nodes: self.creates_nodes,
            reads_service_ranges: self.reads_service_ranges,
        }
    }
}

/// Node classes of all providers.
pub(crate) fn node_classes() -> NodeClassRegistry {
    PROVIDERS.iter().map(|each| each.class).collect()
}

/// Why a provider cannot start, with all causes.
fn connect_error(provider: &str, error: &dyn std::error::Error) -> RunError {
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        message = format!("{message}: {inner}");
        cause = inner.source();
    }
    RunError::Provider {
        provider: provider.to_owned(),
        message,
    }
}
