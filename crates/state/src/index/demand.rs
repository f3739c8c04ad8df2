//! Keeps what buffers ask for up to date with them and with the templates that they refer to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use super::Index;
use crate::snapshot::demand::{demand_of, reference_of};
use crate::snapshot::{BufferTemplate, TemplateKey, TemplateKind};
use mortise_apis::k8s;
use mortise_apis::karpenter::capacitybuffer::CapacityBuffer;
use mortise_apis::names::NamespacedName;

/// Which buffers must be resolved again, and when.
#[derive(Debug, Default)]
pub(super) struct DemandIndex {
    /// Buffers by the object that they refer to.
    by_template: BTreeMap<TemplateKey, BTreeSet<NamespacedName>>,
    references: BTreeMap<NamespacedName, TemplateKey>,
    /// Buffers that changed, or whose template did.
    outdated: BTreeSet<NamespacedName>,
    /// When the schedules of buffers begin or end next.
    changes_at: BTreeMap<NamespacedName, Timestamp>,
    /// Number of the last resolution.
    revision: u64,
}

impl DemandIndex {
    /// Records what a new or changed buffer refers to.
    pub(super) fn refer(&mut self, key: &NamespacedName, buffer: &CapacityBuffer) {
        self.forget(key);
        if let Ok(template) = reference_of(buffer) {
            let buffers = self.by_template.entry(template.clone()).or_default();
            buffers.insert(key.clone());
            self.references.insert(key.clone(), template);
        }
    }

    /// Forgets the reference of a buffer that changed or was deleted.
    pub(super) fn forget(&mut self, key: &NamespacedName) {
        self.outdated.insert(key.clone());
        let Some(template) = self.references.remove(key) else {
            return;
        };
        if let Some(buffers) = self.by_template.get_mut(&template) {
            buffers.remove(key);
            if buffers.is_empty() {
                self.by_template.remove(&template);
            }
        }
    }

    /// When to call [`expire`] again.
    pub(super) fn next_expiry(&self) -> Option<Timestamp> {
        self.changes_at.values().min().copied()
    }

    /// Marks the buffers that refer to a template.
    fn template_changed(&mut self, template: &TemplateKey) {
        let buffers = self.by_template.get(template).into_iter().flatten();
        self.outdated.extend(buffers.cloned());
    }
}

/// Stores a template. One that is as known, as with every change of a workload's status, is no change.
pub(super) fn store_template(
    index: &mut Index,
    kind: TemplateKind,
    name: NamespacedName,
    template: &k8s::PodTemplate,
    replicas: Option<i32>,
    generation: i64,
) {
    let namespace = Arc::clone(&name.namespace);
    let key = TemplateKey { kind, name };
    let classes = index.pods.classes();
    let template = BufferTemplate::new(&namespace, template, replicas, generation, classes);
    let known = index.state.templates.get(&key);
    if known.is_some_and(|known| **known == template) {
        return;
    }
    index.demand.template_changed(&key);
    index.requests.template_changed(&key, &index.state);
    index.state.templates.insert(key, Arc::new(template));
    index.changes.demand = true;
}

/// Removes a template.
pub(super) fn remove_template(index: &mut Index, key: &TemplateKey) {
    index.demand.template_changed(key);
    index.requests.template_changed(key, &index.state);
    index.state.templates.remove(key);
    index.changes.demand = true;
}

/// Marks the buffers whose schedule has begun or ended.
pub(super) fn expire(index: &mut Index, now: Timestamp) {
    let due = index.demand.changes_at.iter().filter(|(_, at)| **at <= now);
    let due: Vec<NamespacedName> = due.map(|(key, _)| key.clone()).collect();
    if !due.is_empty() {
        index.demand.outdated.extend(due);
        index.changes.demand = true;
        index.stale = true;
    }
}

/// Resolves the buffers again that changed, or whose template did.
pub(super) fn resolve_buffers(index: &mut Index) {
    for key in std::mem::take(&mut index.demand.outdated) {
        let served =
            index.state.buffers.get(&key).filter(|buffer| {
                buffer.metadata.deletion_timestamp.is_none() && !buffer.is_foreign()
            });
        let known = index.state.demand.get(&key);
        let next = index.demand.revision + 1;
        let time = index.now;
        let now = served.map(|buffer| demand_of(buffer, known, &index.state, (next, time)));
        match now.as_ref().and_then(|now| now.changes_after(time)) {
            Some(at) => index.demand.changes_at.insert(key.clone(), at),
            None => index.demand.changes_at.remove(&key),
        };
        match (known, now) {
            (Some(known), Some(now)) if Arc::ptr_eq(known, &now) => {}
            (_, Some(now)) => {
                index.demand.revision = next;
                Arc::make_mut(&mut index.state.demand).insert(key, now);
            }
            (Some(_), None) => {
                Arc::make_mut(&mut index.state.demand).remove(&key);
            }
            (None, None) => {}
        }
    }
}
