//! NodeClaims.

use serde_json::{Value, json};

use super::shared;
use crate::DurationText;
use crate::node_class::NodeClassRegistry;
use crate::schema::json_fields::{WrongType, filled, object_at};

const SPEC: [&str; 1] = ["spec"];

pub(super) fn up(classes: &NodeClassRegistry, mut object: Value) -> Result<Value, WrongType> {
    shared::up(classes, &mut object, &SPEC)?;
    if let Some(spec) = object_at(&mut object, &SPEC)? {
        // The expiry was stored in the NodePool alone. The default of `v1` would delete a node by force after 30 days although
        // its NodePool says Never, and this function sees only the NodeClaim: drift replaces such a node, nothing deletes it by
        // force.
        filled(spec, "expireAfter", || json!(DurationText::NEVER));
    }
    Ok(object)
}

pub(super) fn down(classes: &NodeClassRegistry, mut object: Value) -> Result<Value, WrongType> {
    shared::down(classes, &mut object, &SPEC)?;
    if let Some(spec) = object_at(&mut object, &SPEC)? {
        spec.remove("expireAfter");
    }
    Ok(object)
}
