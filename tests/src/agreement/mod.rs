//! Does the real kube-scheduler agree with the solver?
//!
//! ```text
//! seed ─► Scenario (objects, types, pools) ─► API server ─► what it stored ─► solve ─► plan
//!                                                              nodes of the plan, made ◄─┘
//!                                             kube-scheduler binds the pods ─► Outcome
//! ```
//!
//! | noun | file |
//! |---|---|
//! | [`Scenario`]: a small cluster drawn from a seed | `scenario.rs`, `supply.rs`, `workload.rs` |
//! | [`Plan`]: what the production solver makes of it, and the Node objects that follow | `plan.rs` |
//! | [`Arena`]: a control plane on which one scenario after the other is played | `arena.rs`, `objects.rs`, `provisioner.rs` |
//! | [`Advice`]: which extender kube-scheduler calls, if any | `advice.rs` |
//! | [`Outcome`], [`Landing`]: where pods went | `outcome.rs` |
//!
//! Pods wait behind a scheduling gate while the plan is made and its nodes become ready. Then the gates are removed one by
//! one, in the order in which the scheduler's queue would hold the pods: priority, then age.
//!
//! [`arrivals`] is another form: nothing is planned beforehand, pods arrive over time, and mortise itself runs.

mod advice;
mod arena;
pub mod arrivals;
mod objects;
mod outcome;
mod plan;
mod provisioner;
mod scenario;
mod supply;
mod workload;

pub use advice::Advice;
pub use arena::Arena;
pub use outcome::{Landing, Outcome, Stray};
pub use plan::{Plan, PlannedNode};
pub use scenario::{DrawnPod, Feature, Scenario};
