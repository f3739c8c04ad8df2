//! YAML as written by users: order, comments, quotes and blank lines are preserved.
//!
//! Invariant: a tree that is written parses to the same values; comments stay with their field.

mod documents;
mod read;
mod tree;
mod write;

#[cfg(test)]
mod tests;

pub(crate) use documents::{Document, documents};
pub(crate) use read::{Style, read};
pub(crate) use tree::{MapEntry, NodeContent, Notes, Scalar, SequenceItem, YamlNode, scalar_value};
pub(crate) use write::{json, yaml};
