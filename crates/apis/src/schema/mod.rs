//! Field types that several kinds share: metadata, conditions, requirements, durations, references, and parts of OpenAPI
//! schema.

pub mod absent;
pub mod api_kind;
pub mod conditions;
pub mod crd_manifest;
pub mod duration_text;
pub mod fields;
pub mod finalizers;
pub mod groups;
pub mod json_fields;
pub mod object;
pub mod requirement;
pub mod structural;
