//! YAML as people write it: order, comments, quotes and blank lines are part of it.
//!
//! Invariant: what is written from a tree reads back as the same values; comments stay with the field they stood at.

mod documents;
mod read;
mod tree;
mod write;

#[cfg(test)]
mod tests;

pub(crate) use documents::{Document, documents};
pub(crate) use read::{Style, read};
pub(crate) use tree::{MapEntry, Node, NodeContent, Notes, Scalar, SequenceItem, scalar_value};
pub(crate) use write::{json, yaml};
