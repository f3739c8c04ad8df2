//! Edits of conditions, and the times that derive from them.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use mortise_apis::Condition;
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::schema::conditions::{self, Conditions, KnownConditions};
use mortise_apis::values::after;

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
