//! Node classes: the API of a kind that a cloud provider serves, the registry of all of them, and objects as stored.
//!
//! Nothing outside the providers names a node class: admission, lint, conversion, CRDs and RBAC ask [`NodeClassApi`].

mod api;
mod deprecated_field;
mod kind;
mod label_table;
mod object;
mod registry;
pub mod served;

pub use api::{ClassContradiction, ClassHash, ConvertObject, NodeClassApi, OldVersion};
pub use deprecated_field::{DeprecatedField, DeprecationCondition};
pub use kind::NodeClassKind;
pub use label_table::{KeyLocation, LabelTable};
pub use object::NodeClassObject;
pub use registry::NodeClassRegistry;
