//! Pods that arrive over time: does every one of them run in the end?
//!
//! ```text
//! seed ─► Timetable ─► Deployments of 0 ─► grown by a pod at a time ─► kube-scheduler, mortise ─► Played
//! ```
//!
//! | noun | file |
//! |---|---|
//! | [`Timetable`]: pools, Deployments, and when each gets its next pod; drawn from a seed or [`Known`] | `timetable.rs` |
//! | [`Kind`]: what the pods of a Deployment ask of each other | `kind.rs` |
//! | [`Field`]: a control plane with kube-scheduler and mortise itself on it | `field.rs` |
//! | [`Played`], [`Waiting`]: what became of a timetable, and what is said about a pod that waits | `played.rs` |
//!
//! Timetables share a control plane, several at a time: each has a namespace, NodePools and nodes of its own, so that its
//! pods meet no others. Each pod can be scheduled in any order of arrival: a pod that is pending at the end is an error.

mod field;
mod kind;
mod played;
mod timetable;

pub use field::Field;
pub use kind::Kind;
pub use played::{Played, Waiting};
pub use timetable::{App, Known, NodeGroup, Step, Timetable};
