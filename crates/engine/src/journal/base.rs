//! What a file in the middle of a recording begins with: the objects as last shown, what the node classes stood for, and how the
//! watches were. The memory of the deciders is not among it.
//!
//! # Cost
//! The text of each object, about 0.6 to 1 kB: 10 MB at 10,000 pods.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use mortise_apis::names::NodeClassKey;
use mortise_cloudprovider::ResolvedNodeClass;
use mortise_state::resource_kinds::{ObjectKey, ObjectKind};

use super::line::{JournalLine, LineBody, applied_line};
use crate::freshness::WatchState;

/// The state that the lines so far amount to.
#[derive(Debug, Default)]
pub(super) struct Base {
    /// Version and text of each object.
    objects: BTreeMap<ObjectKey, (u64, Box<str>)>,
    catalogs: BTreeMap<NodeClassKey, Arc<ResolvedNodeClass>>,
    watches: BTreeMap<ObjectKind, bool>,
    is_synced: bool,
    is_leading: bool,
    steps: u64,
    requests: u64,
}

impl Base {
    /// Takes an object in, unless a newer version is known.
    pub(super) fn apply(&mut self, key: ObjectKey, version: Option<u64>, text: String) {
        let version = version.unwrap_or_default();
        let known = self.objects.get(&key);
        if known.is_none_or(|(known, _)| *known <= version) {
            self.objects.insert(key, (version, text.into_boxed_str()));
        }
    }

    /// Takes any other line in.
    pub(super) fn note(&mut self, body: &LineBody) {
        match body {
            LineBody::Deleted(key, version) => {
                let known = self.objects.get(key).map(|(known, _)| *known);
                if known.is_some_and(|known| version.is_none_or(|version| known <= version)) {
                    self.objects.remove(key);
                }
            }
            LineBody::Listed {
                kind,
                keys,
                version,
            } => self.objects.retain(|key, (known, _)| {
                key.kind() != *kind
                    || keys.contains(key)
                    || version.is_some_and(|version| *known > version)
            }),
            LineBody::Watch(kind, state) => {
                let is_established = match state {
                    WatchState::Stands | WatchState::Bookmark(_) => true,
                    WatchState::Broke => false,
                };
                self.watches.insert(kind.clone(), is_established);
            }
            LineBody::Synced => self.is_synced = true,
            LineBody::Leading(leading) => self.is_leading = *leading,
            LineBody::Prepared(_) => self.steps += 1,
            LineBody::Committed(step) => self.requests += step.requests.len() as u64,
            _ => {}
        }
    }

    /// What the node class stood for last.
    pub(super) fn catalog(&self, class: &NodeClassKey) -> Option<&Arc<ResolvedNodeClass>> {
        self.catalogs.get(class)
    }

    /// Remembers what a node class stands for.
    pub(super) fn set_catalog(&mut self, class: NodeClassKey, resolved: Arc<ResolvedNodeClass>) {
        self.catalogs.insert(class, resolved);
    }

    /// The lines of the state, as of this time.
    ///
    /// # Errors
    /// A value has no JSON, which is a defect.
    pub(super) fn lines(&self, at: Timestamp) -> Result<Vec<String>, serde_json::Error> {
        let mut lines = Vec::with_capacity(self.objects.len() + 8);
        let line = |body: LineBody| serde_json::to_string(&JournalLine(at, body));
        for (kind, is_established) in &self.watches {
            let state = if *is_established {
                WatchState::Stands
            } else {
                WatchState::Broke
            };
            lines.push(line(LineBody::Watch(kind.clone(), state))?);
        }
        for (key, (_, text)) in &self.objects {
            lines.push(applied_line(at, &key.kind(), false, text)?);
        }
        for (class, resolved) in &self.catalogs {
            lines.push(line(LineBody::Catalog(
                class.clone(),
                Arc::clone(resolved),
            ))?);
        }
        if self.is_synced {
            lines.push(line(LineBody::Synced)?);
        }
        lines.push(line(LineBody::Leading(self.is_leading))?);
        lines.push(line(LineBody::BaseEnds {
            steps: self.steps,
            requests: self.requests,
        })?);
        Ok(lines)
    }
}
