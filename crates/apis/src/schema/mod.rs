//! Field types that several kinds share: metadata, conditions, requirements, durations, references, and parts of OpenAPI
//! schema.

pub mod absent;
pub mod api_kind;
pub mod conditions;
pub mod duration_text;
pub(crate) mod fields;
pub mod finalizers;
pub mod groups;
pub(crate) mod object;
pub mod requirement;
