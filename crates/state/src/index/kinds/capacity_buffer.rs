//! CapacityBuffers, and PodTemplates, which nothing else refers to.

use std::sync::Arc;

use super::Ingested;
use crate::index::{Index, demand};
use crate::resource_kinds::Watched;
use crate::snapshot::{TemplateKey, TemplateKind};
use mortise_apis::k8s;
use mortise_apis::karpenter::capacitybuffer::CapacityBuffer;
use mortise_apis::names::NamespacedName;

impl Ingested for CapacityBuffer {
    fn applied(index: &mut Index, buffer: Self) {
        let key = buffer.key();
        index.demand.refer(&key, &buffer);
        Arc::make_mut(&mut index.state.buffers).insert(key, Arc::new(buffer));
        index.changes.demand = true;
    }

    fn deleted(index: &mut Index, key: &NamespacedName) {
        index.demand.forget(key);
        Arc::make_mut(&mut index.state.buffers).remove(key);
        index.changes.demand = true;
    }
}

impl Ingested for k8s::StoredPodTemplate {
    fn applied(index: &mut Index, object: Self) {
        let name = Watched::key(&object);
        let generation = object.metadata.generation.unwrap_or_default();
        demand::store_template(
            index,
            TemplateKind::PodTemplate,
            name,
            &object.template,
            None,
            generation,
        );
    }

    fn deleted(index: &mut Index, name: &NamespacedName) {
        demand::remove_template(
            index,
            &TemplateKey {
                kind: TemplateKind::PodTemplate,
                name: name.clone(),
            },
        );
    }
}
