//! Watched kinds, and the input of the index: events of watched objects. The table of kinds is in `table.rs`.

mod object;
mod object_event;
mod reduction;
mod resource_kind;
pub(crate) mod table;

pub use object::{Object, ObjectKey, ObjectKind, Watched};
pub use object_event::{EventSource, ObjectEvent};
pub use reduction::{reduced, reduced_with_status};
pub use resource_kind::{ResourceKind, WatchCondition};
