//! Label sets. Values come from closed enums, from NodePool names or from zones; families are bounded in addition.

use prometheus_client::encoding::EncodeLabelSet;

use super::series::LabelNames;

macro_rules! labels {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $ty:ty),* $(,)? })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
            pub(crate) struct $name {
                $(pub(crate) $field: $ty,)*
            }

            impl LabelNames for $name {
                const NAMES: &'static [&'static str] = &[$(stringify!($field)),*];
            }
        )*
    };
}

labels! {
    Created { reason: &'static str, nodepool: String, min_values_relaxed: &'static str }
    Terminated { nodepool: String, capacity_type: String, zone: String }
    Disrupted { reason: &'static str, nodepool: String, capacity_type: String, consolidation_policy: String, termination_mode: &'static str }
    Unhealthy { condition: String, nodepool: String, capacity_type: String, image_id: String }
    PoolZone { nodepool: String, zone: String }
    Pool { nodepool: String }
    Namespace { namespace: String }
    CostLabel { value: String }
    Policy { policy: String }
    Commitment { policy: String, commitment: String, unit: &'static str }
    PoolResource { resource_type: String, nodepool: String }
    PoolReason { nodepool: String, reason: &'static str }
    Transition { r#type: String, status: &'static str, reason: String }
    TransitionOfKind { r#type: String, status: &'static str, reason: String, group: &'static str, kind: &'static str }
    Duration { r#type: String, status: &'static str, group: &'static str, kind: &'static str }
    GroupKind { group: &'static str, kind: &'static str }
    Code { code: &'static str }
    Decision { decision: &'static str, reason: &'static str, consolidation_type: &'static str }
    Method { controller: &'static str, method: &'static str, provider: String }
    MethodError { controller: &'static str, method: &'static str, provider: String, error: &'static str }
    Message { message_type: &'static str }
    StatusCategory { category: &'static str }
    NoticeSource { provider: &'static str, source: &'static str }
    NoticeFailure { provider: &'static str, source: &'static str, error: &'static str }
    Controller { controller: &'static str }
    Build { version: String, goversion: String, goarch: &'static str, commit: String }
    Lease { name: String }
    Program { name: &'static str }
    RequestPhase { phase: &'static str }
    EffectResult { effect: &'static str, result: &'static str }
    EffectName { effect: &'static str }
    Lane { lane: &'static str }
    Decider { decider: &'static str }
    DeciderVerdict { decider: &'static str, verdict: &'static str }
    Kind { kind: String }
    OldWatch { kind: String, how: &'static str }
    ApiWrite { verb: &'static str, resource: &'static str, subresource: &'static str }
    Request { path: &'static str, status: &'static str }
    Path { path: &'static str }
    Outcome { outcome: &'static str }
    Cause { cause: &'static str }
    PortCause { port: &'static str, cause: &'static str }
    DecisionOfPool { nodepool: String, decision: &'static str, reason: &'static str, consolidation_type: &'static str }
    Evaluation { reason: &'static str, consolidation_type: &'static str }
    Consolidation { consolidation_type: &'static str }
    ReasonOnly { reason: &'static str }
    ResultOnly { result: &'static str }
    PauseScopeOnly { scope: &'static str }
    Scored { decision: &'static str, nodepool: String, policy: String }
    ResourceOnly { resource_type: &'static str }
    ControllerZone { controller: &'static str, zone: String }
    TypeStatus { r#type: String, status: &'static str }
    LaunchFailure { zone: String, zone_id: String, capacity_type: &'static str, reason: &'static str }
    ZoneOnly { zone: String, zone_id: String }
    Call { call: &'static str }
    StalledState { state: &'static str }
}
