//! Objects of `v1beta1` from `v1` and back, without loss either way.
//!
//! A version is mapped to the other by the rules of its kind. What the other version cannot hold, and what those rules
//! would not bring back as it was, is kept in an annotation of the result: each entry says what the plain way back would
//! give at a place, and what really stood there. On the way back an entry counts only where its premise still holds, so an
//! edit made in the other version wins over what was kept.
//!
//! Must never: look at anything but the object (an API server asks for any stored object, at any time, and one that cannot
//! be converted takes lists and watches of its whole kind down); change metadata other than annotations; fail because an
//! annotation cannot be read (it is carried along as text).
//!
//! # Source
//! Karpenter 0.37 and 1.0, the releases that served `v1beta1`, and its annotations `compatibility.karpenter.sh/...`.

mod annotations;
mod fields;
mod node_class;
mod nodeclaim;
mod nodepool;
mod preserved_fields;
mod shared;

use serde_json::Value;
use thiserror::Error;

use crate::nearest::nearest;
use crate::schema::groups::{AWS_GROUP, GROUP, V1, V1BETA1};

pub use annotations::{
    ALIAS_VERSION, KUBELET, NODE_CLASS_REFERENCE, UBUNTU, V1_FIELDS, V1BETA1_FIELDS,
};

pub use node_class::{LATER as LATER_CLASS_FIELDS, OLD_HOPS, alias, ubuntu_disks};
pub use shared::group_of;

/// The kinds that have both versions: group and kind.
pub const CONVERTED: [(&str, &str); 3] = [
    (GROUP, "NodePool"),
    (GROUP, "NodeClaim"),
    (AWS_GROUP, "EC2NodeClass"),
];

/// Which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConversionDirection {
    /// `v1beta1` to `v1`.
    Up,
    /// `v1` to `v1beta1`.
    Down,
}

impl ConversionDirection {
    const fn back(self) -> Self {
        match self {
            Self::Up => Self::Down,
            Self::Down => Self::Up,
        }
    }

    /// The annotation that the given version has, with fields of the requested one.
    const fn read(self) -> &'static str {
        match self {
            Self::Up => V1_FIELDS,
            Self::Down => V1BETA1_FIELDS,
        }
    }
}

/// Why an object cannot be converted.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConversionError {
    /// A field has another type than its rule can convert.
    #[error("{field}: {value} is not {wanted}")]
    WrongType {
        /// Place in the object, dots between names.
        field: String,
        /// Its value, shortened.
        value: String,
        /// Types that are allowed.
        wanted: &'static str,
    },
    /// There is no such version of the kind.
    #[error("{field}: {value:?} is not a version of {kind}; there are {allowed}{hint}")]
    UnknownVersion {
        /// `apiVersion` or `desiredAPIVersion`.
        field: &'static str,
        /// The value.
        value: String,
        /// Kind of the object.
        kind: String,
        /// The versions that there are.
        allowed: String,
        /// The nearest version.
        hint: String,
    },
    /// The kind has one version only, or is not converted.
    #[error("kind: {value:?} is not converted; NodePool, NodeClaim and EC2NodeClass are{hint}")]
    UnknownKind {
        /// The value.
        value: String,
        /// The nearest kind.
        hint: String,
    },
}

/// Converts an object to the requested version (`karpenter.sh/v1`, for example). An object of that version is returned
/// unchanged.
///
/// # Errors
/// The value is no object, its kind is not converted, one of the versions does not exist, or a field that must be moved has an
/// unexpected type.
///
/// # Cost
/// A few copies of the object.
pub fn convert(object: Value, desired: &str) -> Result<Value, ConversionError> {
    let text = |key: &'static str| match object.get(key) {
        Some(Value::String(text)) => Ok(text.clone()),
        other => Err(fields::wrong(key, other, "a text")),
    };
    if !object.is_object() {
        return Err(fields::wrong("object", Some(&object), "an object"));
    }
    let (kind, version) = (text("kind")?, text("apiVersion")?);
    let Some((group, _)) = CONVERTED.into_iter().find(|(_, known)| *known == kind) else {
        let hint = did_you_mean(&kind, CONVERTED.iter().map(|(_, known)| *known));
        return Err(ConversionError::UnknownKind { value: kind, hint });
    };
    let of = |field, value: &str| match value.split_once('/') {
        Some((of, V1)) if of == group => Ok(V1),
        Some((of, V1BETA1)) if of == group => Ok(V1BETA1),
        _ => {
            let versions = [format!("{group}/{V1BETA1}"), format!("{group}/{V1}")];
            Err(ConversionError::UnknownVersion {
                field,
                value: value.to_owned(),
                kind: kind.clone(),
                allowed: versions.join(" and "),
                hint: did_you_mean(value, &versions),
            })
        }
    };
    let (from, to) = (
        of("apiVersion", &version)?,
        of("desiredAPIVersion", desired)?,
    );
    if from == to {
        return Ok(object);
    }
    let way = if to == V1 {
        ConversionDirection::Up
    } else {
        ConversionDirection::Down
    };
    let mut object = object;
    let kept = preserved_fields::extract(&mut object, way.read());
    let mut converted = map(&kind, way, object.clone())?;
    preserved_fields::apply(&mut converted, kept);
    let back = map(&kind, way.back(), converted.clone())?;
    let lost = preserved_fields::differences(&back, &object);
    preserved_fields::annotate_with(&mut converted, way.back().read(), &lost);
    fields::set(&mut converted, "apiVersion", Value::from(desired));
    Ok(converted)
}

fn map(kind: &str, way: ConversionDirection, object: Value) -> Result<Value, ConversionError> {
    match (kind, way) {
        ("NodePool", ConversionDirection::Up) => nodepool::up(object),
        ("NodePool", ConversionDirection::Down) => nodepool::down(object),
        ("NodeClaim", ConversionDirection::Up) => nodeclaim::up(object),
        ("NodeClaim", ConversionDirection::Down) => nodeclaim::down(object),
        (_, ConversionDirection::Up) => node_class::up(object),
        (_, ConversionDirection::Down) => node_class::down(object),
    }
}

fn did_you_mean<S: AsRef<str>>(word: &str, candidates: impl IntoIterator<Item = S>) -> String {
    nearest(word, candidates)
        .map(|found| format!("; did you mean {found}?"))
        .unwrap_or_default()
}
