//! NodeClaims.

use serde_json::{Value, json};

use super::fields::{filled, object_at};
use super::{ConversionError, shared};
use crate::DurationText;

const SPEC: [&str; 1] = ["spec"];

pub(super) fn up(mut object: Value) -> Result<Value, ConversionError> {
    shared::up(&mut object, &SPEC)?;
    if let Some(spec) = object_at(&mut object, &SPEC)? {
        // The expiry was stored in the NodePool alone. The default of `v1` would delete a node by force after 30 days although
        // its NodePool says Never, and this function sees only the NodeClaim: drift replaces such a node, nothing deletes it by
        // force.
        filled(spec, "expireAfter", || json!(DurationText::NEVER));
    }
    Ok(object)
}

pub(super) fn down(mut object: Value) -> Result<Value, ConversionError> {
    shared::down(&mut object, &SPEC)?;
    if let Some(spec) = object_at(&mut object, &SPEC)? {
        spec.remove("expireAfter");
    }
    Ok(object)
}
