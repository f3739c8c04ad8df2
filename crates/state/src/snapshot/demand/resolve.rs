//! Resolves a buffer to its virtual pods.

use std::sync::Arc;

use jiff::Timestamp;

use super::super::{Pod, Snapshot};
use super::failure::BufferFailure;
use super::learned::LearnedDemand;
use super::size::buffer_size;
use super::template::{BufferTemplate, TemplateKey, TemplateKind};
use mortise_apis::karpenter::capacitybuffer::{ACTIVE_CAPACITY, CapacityBuffer};
use mortise_apis::names::{NamespacedName, PodKey, Uid};
use mortise_apis::nearest::nearest;
use mortise_apis::values::BudgetWindow;

/// A buffer with template and size.
#[derive(Clone, Debug, PartialEq)]
pub struct ResolvedBuffer {
    /// Name of the PodTemplate; `None` with `scalableRef`.
    pub pod_template: Option<Arc<str>>,
    /// The pods that it keeps room for.
    pub template: Arc<BufferTemplate>,
    /// When its schedule keeps room; `None` for always.
    pub window: Option<BudgetWindow>,
    /// How many: none while its schedule keeps no room.
    pub replicas: usize,
    /// When its schedule keeps room next; `None` while it does, and without a schedule.
    pub closed_until: Option<Timestamp>,
}

/// What a buffer asks for.
#[derive(Clone, Debug)]
pub struct BufferDemand {
    /// Number of the resolution, unique in the index; a changed one has another.
    pub revision: u64,
    /// UID of the buffer.
    pub uid: Uid,
    /// Template and size.
    ///
    /// # Errors
    /// Why it could not be resolved.
    pub resolution: Result<ResolvedBuffer, BufferFailure>,
    /// What it has learned of its workload, if it learns.
    pub learned: Option<LearnedDemand>,
    /// Its virtual pods. Empty if it could not be resolved.
    pub pods: Arc<[Arc<Pod>]>,
}

/// The object that a buffer refers to.
///
/// # Errors
/// It refers to none, or to one of a kind that is not served.
pub(crate) fn reference_of(buffer: &CapacityBuffer) -> Result<TemplateKey, BufferFailure> {
    let spec = &buffer.spec;
    let key = |kind, name: &str| TemplateKey {
        kind,
        name: NamespacedName::new(buffer.key().namespace, name),
    };
    match (&spec.pod_template_ref, &spec.scalable_ref) {
        (None, None) => Err(BufferFailure::NoReference),
        (Some(_), Some(_)) => Err(BufferFailure::BothReferences),
        (Some(template), None) => Ok(key(TemplateKind::PodTemplate, &template.name)),
        (None, Some(workload)) => {
            let group = workload.api_group.as_deref().unwrap_or_default();
            let mut kinds = TemplateKind::SCALABLE.into_iter();
            let kind = kinds.find(|kind| kind.as_str() == workload.kind && group == "apps");
            let kind = kind.ok_or_else(|| BufferFailure::UnknownKind {
                group: group.to_owned(),
                kind: workload.kind.clone(),
            })?;
            Ok(key(kind, &workload.name))
        }
    }
}

impl BufferDemand {
    /// When its schedule begins or ends next after a time, or another hour is expected; `None` without either.
    pub(crate) fn changes_after(&self, now: Timestamp) -> Option<Timestamp> {
        let resolved = self.resolution.as_ref().ok()?;
        let window = resolved.window.as_ref();
        let window = window.and_then(|window| window.changes_after(now));
        let learned = self.learned.as_ref().map(|learned| learned.until);
        window.into_iter().chain(learned).min()
    }
}

fn resolve(
    buffer: &CapacityBuffer,
    state: &Snapshot,
    now: Timestamp,
) -> Result<(ResolvedBuffer, Option<LearnedDemand>), BufferFailure> {
    let strategy = buffer.strategy();
    if strategy != ACTIVE_CAPACITY {
        return Err(BufferFailure::UnknownStrategy(strategy.to_owned()));
    }
    let key = reference_of(buffer)?;
    let Some(template) = state.templates.get(&key) else {
        return Err(not_found(&key, state));
    };
    if let Some(fault) = &template.class().malformed {
        return Err(BufferFailure::InvalidTemplate(fault.to_string()));
    }
    let learning = buffer.learning().map_err(BufferFailure::Learning)?;
    let replicas = template.replicas.unwrap_or_default();
    let replicas = u32::try_from(replicas).unwrap_or_default();
    let learned = learning.map(|learning| LearnedDemand::of(buffer, learning, replicas, now));
    let of_learned = learned.as_ref().and_then(LearnedDemand::size);
    let requests = &template.class().requests;
    let size = buffer_size(&buffer.spec, template.replicas, of_learned, requests)?;
    let window = buffer.window().map_err(BufferFailure::Schedule)?;
    let closed = window.as_ref().filter(|window| !window.is_active(now));
    let closed_until = closed.and_then(|window| window.schedule.next(now));
    let resolved = ResolvedBuffer {
        pod_template: (key.kind == TemplateKind::PodTemplate).then_some(key.name.name),
        template: Arc::clone(template),
        window,
        replicas: match closed_until {
            None => usize::try_from(size).unwrap_or_default(),
            Some(_) => 0,
        },
        closed_until,
    };
    Ok((resolved, learned))
}

fn not_found(key: &TemplateKey, state: &Snapshot) -> BufferFailure {
    BufferFailure::NotFound {
        kind: key.kind,
        name: key.name.name.to_string(),
        namespace: key.name.namespace.to_string(),
        nearest: nearest_template(key, state),
    }
}

/// The template of the same kind and namespace whose name is most similar to one that does not exist.
pub(crate) fn nearest_template(key: &TemplateKey, state: &Snapshot) -> Option<String> {
    let known = state.templates.iter().map(|(known, _)| known);
    let known =
        known.filter(|known| known.kind == key.kind && known.name.namespace == key.name.namespace);
    nearest(&key.name.name, known.map(|known| &known.name.name))
}

/// What a buffer asks for now; the known demand, if that is the same.
pub(crate) fn demand_of(
    buffer: &CapacityBuffer,
    known: Option<&Arc<BufferDemand>>,
    state: &Snapshot,
    (revision, now): (u64, Timestamp),
) -> Arc<BufferDemand> {
    let uid: Uid = buffer.metadata.uid.as_deref().unwrap_or_default().into();
    let (resolution, learned) = match resolve(buffer, state, now) {
        Ok((resolved, learned)) => (Ok(resolved), learned),
        Err(failure) => (Err(failure), None),
    };
    if let Some(known) = known.filter(|known| known.uid == uid && known.resolution == resolution) {
        if known.learned == learned {
            return Arc::clone(known);
        }
        // The same room: what was found for it still counts.
        return Arc::new(BufferDemand {
            learned,
            ..BufferDemand::clone(known)
        });
    }
    let pods = match &resolution {
        Ok(resolved) => virtual_pods(buffer, &uid, resolved),
        Err(_) => Arc::default(),
    };
    Arc::new(BufferDemand {
        revision,
        uid,
        resolution,
        learned,
        pods,
    })
}

fn virtual_pods(buffer: &CapacityBuffer, uid: &Uid, resolved: &ResolvedBuffer) -> Arc<[Arc<Pod>]> {
    let key = Arc::new(buffer.key());
    let created = buffer.metadata.creation_timestamp.as_ref();
    let created = created.map_or(Timestamp::UNIX_EPOCH, |time| time.0);
    let of = resolved.template.pod();
    let numbers = 1..=resolved.replicas;
    let pods = numbers.map(|number| {
        let name = format!("capacity-buffer-{}-{number}", key.name);
        Arc::new(Pod {
            key: PodKey::new(Arc::clone(&key.namespace), name),
            uid: format!("{uid}-{number}").as_str().into(),
            buffer: Some(Arc::clone(&key)),
            created,
            ..of.clone()
        })
    });
    pods.collect()
}
