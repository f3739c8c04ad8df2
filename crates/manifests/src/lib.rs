//! Manifests as files: YAML with its comments, objects and their lines, and the migration of older APIs to v1.
//!
//! It never connects to a cluster.

pub mod file;
pub mod migrate;
mod yaml;
