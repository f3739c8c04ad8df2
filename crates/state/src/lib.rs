//! Cluster state: the index with its single writer, the immutable snapshots that everything else reads, the ledger of what no
//! object shows yet, and the catalog of instance types.
//!
//! ```text
//! watch events ─► index ─► snapshot
//! own writes ───►   ▲
//! ledger changes ───┘
//! ```
//!
//! Pure: time is an argument. It decides nothing.

pub mod catalog;
pub mod costs;
pub mod feasible_pods;
pub mod index;
pub mod ledger;
pub mod overlays;
pub mod pods;
pub mod resource_kinds;
pub mod sharded_map;
pub mod snapshot;
pub mod watch_age;
