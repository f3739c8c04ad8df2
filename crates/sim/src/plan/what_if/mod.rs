//! What if: changes of a recorded cluster before it is planned.
//!
//! | change | where |
//! |---|---|
//! | nodes are removed, a zone is lost | `nodes.rs` |
//! | prices change | `price_change.rs` |
//! | manifests are applied; workloads among them, as pods | `manifests.rs`, `workload.rs` |
//!
//! A change that names something that the cluster does not have is an error which names the nearest: a question about nothing would be
//! answered by the plan of the unchanged cluster.

mod manifests;
mod nodes;
mod price_change;
mod workload;

pub use manifests::{apply, open_budgets};
pub use nodes::{lose_zone, remove_node};
pub use price_change::PriceChange;
