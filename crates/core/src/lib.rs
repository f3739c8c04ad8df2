//! The former paths of what is in crates of its own now; it goes with its last user.

pub use mortise_apis::karpenter::{budget_schedule as calendar, object_ext};
pub use mortise_apis::node_class::served as served_node_classes;
pub use mortise_apis::values::{self, money};
pub use mortise_apis::{labels, names, nearest, requirements, resources, taints};
pub use mortise_engine::{
    decider_id, effect, engine, events, lifecycle_step, metric_event, record,
};
pub use mortise_manifests::{file as manifest, migrate};
pub use mortise_planning::{
    consistency, context as planning_context, disruption, drain, drain_blocker, drift, preview,
    reason, replica_counts, scheduling, settings,
};
pub use mortise_state::{
    catalog, feasible_pods as feasible, index, ledger, overlays, pods, resource_kinds, sharded_map,
    snapshot,
};

/// API types.
pub mod apis {
    pub use mortise_apis::karpenter::{capacitybuffer, nodeclaim, nodeoverlay, nodepool};
    pub use mortise_apis::node_class::{ec2nodeclass, ec2nodeclass_status, kwoknodeclass};
    pub use mortise_apis::schema::{
        absent, conditions, duration_text, groups as names, requirement,
    };
    pub use mortise_apis::{
        CapacityBuffer, Condition, CrdSet, DurationText, Ec2NodeClass, KwokNodeClass, NodeClaim,
        NodeClassRef, NodeOverlay, NodePool, RequirementSpec, conversion, crds, deprecated_fields,
        hash, k8s, validation,
    };
}

/// The provider port.
pub mod cloud {
    pub use mortise_apis::node_class::{NodeClassKind, NodeClassObject};
    pub use mortise_cloudprovider::*;
}

/// Deciders.
pub mod deciders {
    pub use mortise_deciders::*;
    pub use mortise_engine::decider::*;
}

/// How old watches are.
pub mod freshness {
    pub use mortise_engine::freshness::*;
    pub use mortise_state::watch_age::*;
}
