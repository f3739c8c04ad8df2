//! The pure core of mortise: an immutable picture of the cluster in, effects and the record of why out.
//!
//! ```text
//! news ─► index ─► snapshot ─► deciders ─► effects, ledger changes, records
//!            ▲                                │
//!            └──────── outcomes, writes ◄─────┘
//! ```
//!
//! Invariant: no input or output, no clock, no chance, no environment, no logging. Time, seeds, settings and the stop
//! signal are arguments; the shell and the simulator drive the same [`engine::Engine`].

pub mod apis;
pub mod calendar;
pub mod catalog;
pub mod cloud;
pub mod consistency;
pub mod decider_id;
pub mod deciders;
pub mod disruption;
pub mod drain;
pub mod drain_blocker;
pub mod drift;
pub mod effect;
pub mod engine;
pub mod events;
pub mod feasible;
pub mod freshness;
pub mod index;
pub mod labels;
pub mod ledger;
pub mod lifecycle_step;
pub mod manifest;
pub mod metric_event;
pub mod migrate;
pub mod money;
pub mod names;
pub mod nearest;
pub mod object_ext;
pub mod overlays;
pub mod planning_context;
pub mod pods;
pub mod preview;
pub mod reason;
pub mod record;
pub mod replica_counts;
pub mod requirements;
pub mod resource_kinds;
pub mod resources;
pub mod scheduling;
pub mod served_node_classes;
pub mod settings;
pub mod sharded_map;
pub mod snapshot;
pub mod taints;
pub mod values;
