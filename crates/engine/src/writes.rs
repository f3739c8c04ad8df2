//! Writes that several deciders make, each in the one form that is safe to repeat: lists (conditions, finalizers, taints)
//! with the resource version they were decided on, maps without, deletions by UID.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Map, Value, json};

use crate::decider::Step;
use crate::decider_id::DeciderId;
use crate::effect::{Effect, Event, Patch};
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::names::{ObjectRef, Uid};
use mortise_apis::schema::conditions::{self, Conditions, KnownConditions};
use mortise_apis::values::after;
use mortise_apis::{Condition, k8s, labels};
use mortise_planning::reason::Reason;

/// A patch of a list or of a list's neighbours: fails with a conflict when the object is not the one that was looked at.
pub fn versioned(target: ObjectRef, meta: &ObjectMeta, merge: Value) -> Effect {
    Effect::Patch(Patch {
        target,
        status: false,
        resource_version: meta.resource_version.clone(),
        merge,
    })
}

/// A patch of maps and single values, which cannot overwrite what somebody else wrote to other keys.
pub const fn unversioned(target: ObjectRef, merge: Value) -> Effect {
    Effect::Patch(Patch {
        target,
        status: false,
        resource_version: None,
        merge,
    })
}

/// Adds a finalizer.
pub fn with_finalizer(target: ObjectRef, meta: &ObjectMeta, finalizer: &str) -> Effect {
    let mut all = meta.finalizers.clone().unwrap_or_default();
    all.push(finalizer.to_owned());
    versioned(target, meta, json!({ "metadata": { "finalizers": all } }))
}

/// Removes a finalizer.
pub fn without_finalizer(target: ObjectRef, meta: &ObjectMeta, finalizer: &str) -> Effect {
    let left: Vec<&String> = meta
        .finalizers
        .iter()
        .flatten()
        .filter(|each| *each != finalizer)
        .collect();
    versioned(target, meta, json!({ "metadata": { "finalizers": left } }))
}

/// Writes fields and the conditions of a claim's status.
pub fn claim_status(
    claim: &NodeClaim,
    mut fields: Map<String, Value>,
    conditions: &[Condition],
) -> Effect {
    fields.insert("conditions".to_owned(), json!(conditions));
    let resource_version = claim.metadata.resource_version.clone();
    Effect::Patch(Patch {
        target: ObjectRef::Claim(claim.name()),
        status: true,
        resource_version,
        merge: json!({ "status": fields }),
    })
}

/// Gives a claim a hash of the present version, which is worked out only then. `None` when it has that version, or
/// goes. A claim that drifted keeps its hash: with a new one it would look as if it had not.
pub fn stamped(
    claim: &NodeClaim,
    (version_key, version): (&str, &str),
    hash_key: &str,
    hash: impl FnOnce() -> String,
) -> Option<Effect> {
    if claim.annotation(version_key) == Some(version) || claim.metadata.deletion_timestamp.is_some()
    {
        return None;
    }
    let mut annotations = Map::new();
    annotations.insert(version_key.to_owned(), json!(version));
    if !claim.is_true("Drifted") {
        annotations.insert(hash_key.to_owned(), json!(hash()));
    }
    let merge = json!({ "metadata": { "annotations": annotations } });
    Some(unversioned(ObjectRef::Claim(claim.name()), merge))
}

/// Deletes a claim, and no other of the same name.
pub fn delete_claim(claim: &NodeClaim) -> Effect {
    Effect::Delete {
        target: ObjectRef::Claim(claim.name()),
        uid: claim.uid(),
        grace_seconds: None,
    }
}

/// Writes on a claim that is about to be deleted by force who ends it and why, for those who are told when its pods leave.
/// `None` when it says so.
pub fn deletion_reason(claim: &NodeClaim, who: DeciderId, why: &Reason) -> Option<Effect> {
    let text = format!("{who}: {why}");
    if claim.annotation(labels::DELETION_REASON) == Some(&text) {
        return None;
    }
    let merge = json!({ "metadata": { "annotations": { labels::DELETION_REASON: text } } });
    Some(unversioned(ObjectRef::Claim(claim.name()), merge))
}

/// Deletes a node, and no other of the same name.
pub fn delete_node(node: &k8s::Node) -> Effect {
    let uid = node.metadata.uid.as_deref().map(Uid::from);
    Effect::Delete {
        target: node_ref(node),
        uid,
        grace_seconds: None,
    }
}

/// A node as effects name it.
pub fn node_ref(node: &k8s::Node) -> ObjectRef {
    ObjectRef::Node(node.metadata.name.as_deref().unwrap_or_default().into())
}

/// The conditions of an object after an edit; `None` when the edit changed nothing.
pub fn edited(
    known: KnownConditions,
    meta: &ObjectMeta,
    list: &[Condition],
    now: Timestamp,
    edit: impl FnOnce(&mut Conditions<'_>),
) -> Option<Vec<Condition>> {
    let mut list = list.to_vec();
    let mut conditions = Conditions::new(known, meta, &mut list, now);
    edit(&mut conditions);
    let changed = conditions.changed();
    changed.then_some(list)
}

/// The conditions of a claim after an edit; `None` when the edit changed nothing.
pub fn edited_claim(
    claim: &NodeClaim,
    now: Timestamp,
    edit: impl FnOnce(&mut Conditions<'_>),
) -> Option<Vec<Condition>> {
    edited(
        conditions::NODE_CLAIM,
        &claim.metadata,
        &claim.status.conditions,
        now,
        edit,
    )
}

/// When a condition took its present status; the object's creation when it has none yet.
pub fn since_transition(meta: &ObjectMeta, list: &[Condition], type_: &str) -> Option<Timestamp> {
    let transition =
        conditions::find(list, type_).and_then(|each| each.last_transition_time.as_ref());
    transition
        .or(meta.creation_timestamp.as_ref())
        .map(|time| time.0)
}

/// A span that is measured from a time in an object: such times are whole seconds, rounded down, so that up to a second
/// must be added for the span to have really passed.
pub fn passed_from_object_time(from: Timestamp, span_ms: i64) -> Timestamp {
    after(
        from,
        if span_ms == 0 {
            0
        } else {
            span_ms.saturating_add(999)
        },
    )
}

/// The event of a condition that became what it is.
pub fn transition_event(
    step: &mut Step,
    target: ObjectRef,
    type_: &'static str,
    from: &str,
    to: &str,
    reason: &str,
) {
    let message = format!(
        "Status condition transitioned, Type: {type_}, Status: {from} -> {to}, Reason: {reason}"
    );
    step.event(Event::normal(target, type_, message));
}
