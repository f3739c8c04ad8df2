//! The clouds: one row each. What admission, conversion, CRDs, RBAC and files need of a cloud is derived from it.

use mortise_apis::CrdSet;
use mortise_apis::node_class::{NodeClassApi, NodeClassRegistry};
use mortise_aws_class::Ec2NodeClassApi;
use mortise_kwok_class::KwokNodeClassApi;
use mortise_manifests::render::ProviderPermissions;

/// A cloud.
pub(crate) struct Provider {
    /// Value of `--provider`.
    pub(crate) name: &'static str,
    /// Its node class.
    class: &'static dyn NodeClassApi,
    /// Whether it creates Node objects; instances of a cloud register themselves.
    creates_nodes: bool,
}

/// All clouds. The first one's node class is the default: what objects of older versions mean that name no kind of class.
pub(crate) const PROVIDERS: [Provider; 2] = [AWS, KWOK];

/// Amazon EC2.
pub(crate) const AWS: Provider = Provider {
    name: "aws",
    class: &Ec2NodeClassApi,
    creates_nodes: false,
};

/// Node objects kept alive by the kwok program.
pub(crate) const KWOK: Provider = Provider {
    name: "kwok",
    class: &KwokNodeClassApi,
    creates_nodes: true,
};

impl Provider {
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
        }
    }
}

/// Node classes of all providers.
pub(crate) fn node_classes() -> NodeClassRegistry {
    PROVIDERS.iter().map(|each| each.class).collect()
}
