//! The node classes of all providers, and the sets of definitions that are made with them.

#![allow(dead_code, reason = "test support: each test uses a part of it")]

use std::sync::LazyLock;

use mortise_apis::CrdSet;
use mortise_apis::node_class::{NodeClassKind, NodeClassRegistry};
use mortise_aws_class::Ec2NodeClassApi;
use mortise_kwok_class::KwokNodeClassApi;

pub(crate) const EC2: NodeClassKind = mortise_aws_class::spec::KIND;
pub(crate) const KWOK: NodeClassKind = mortise_kwok_class::object::KIND;

/// Definitions where these kinds are served.
pub(crate) fn crds(kinds: &[NodeClassKind]) -> CrdSet {
    let known = NodeClassRegistry::new([&Ec2NodeClassApi, &KwokNodeClassApi]);
    CrdSet::for_classes(&known, kinds)
}

/// The definitions of a cluster with one provider, or with none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DefinitionSet {
    Core,
    Kwok,
    Aws,
}

impl DefinitionSet {
    pub(crate) const ALL: [Self; 3] = [Self::Core, Self::Kwok, Self::Aws];

    /// Name of the folder of the manifests.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Core => "core",
            Self::Kwok => "kwok",
            Self::Aws => "aws",
        }
    }

    pub(crate) fn crds(self) -> &'static CrdSet {
        static ALL: LazyLock<[CrdSet; 3]> =
            LazyLock::new(|| [crds(&[]), crds(&[KWOK]), crds(&[EC2])]);
        match self {
            Self::Core => &ALL[0],
            Self::Kwok => &ALL[1],
            Self::Aws => &ALL[2],
        }
    }
}
