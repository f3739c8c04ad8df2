//! Deciders as stories, as laws over random clusters, and against recorded decisions.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod automatic_cluster;
mod brake;
mod buffers;
mod buffers_learned;
mod churn;
mod cluster_autoscaler;
mod commands_of_many_nodes;
mod consolidated_together;
mod disruption;
mod disruption_fair;
mod disruption_laws;
mod disruption_protection;
mod gangs;
mod interruption;
mod neighborhoods;
mod nominations;
mod pauses;
mod planned_use;
mod policy_disruption;
mod policy_drift_waves;
mod policy_launches;
mod provisioning;
mod provisioning_requests;
mod recorded_orphans;
mod scattered;
mod search_memory;
mod static_policies;
mod terms;
mod upgrade_drift;
