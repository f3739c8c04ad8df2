//! Manifests as files and as output: YAML with its comments, objects and their lines, the migration of older APIs to v1, what
//! admission says of files (`lint`), deviations of kube-scheduler's configuration (`check`), and what a cluster needs (`render`).
//!
//! It never connects to a cluster.

pub mod check;
pub mod file;
pub mod lint;
pub mod migrate;
pub mod render;
mod yaml;
