//! What validation asks of launches: whether one would be allowed. Launches know how; they stand on node classes, so that node classes
//! name them only by this.

use std::fmt;
use std::sync::Arc;

use mortise_apis::karpenter::nodepool::NodePool;
use mortise_aws_catalog::instance_type_info::InstanceTypeInfo;
use mortise_cloudprovider::BoxFuture;

use crate::failure::Failure;
use crate::node_class::cache::CachedNodeClass;
use crate::node_class::lookup::UnmetCondition;
use crate::sdk::cluster_info::ClusterInfo;

/// What AWS thinks of a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Passed,
    /// It refuses until a user changes something.
    Refused(UnmetCondition),
    /// It refuses, and may change its mind by itself.
    RefusedForNow(UnmetCondition),
    /// It did not say, for this reason if it is one that does not go away by itself.
    Unknown(Option<Failure>),
}

/// Tries a launch without launching.
pub(crate) trait LaunchTrial: fmt::Debug + Send + Sync {
    /// Whether a type that the pools are likely to launch can be launched with the class. `known` is what EC2 says of types.
    fn run<'a>(
        &'a self,
        class: &'a CachedNodeClass,
        cluster: &'a ClusterInfo,
        known: &'a [InstanceTypeInfo],
        pools: &'a [Arc<NodePool>],
    ) -> BoxFuture<'a, Verdict>;
}
