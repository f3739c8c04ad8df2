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
mod nodeclaim;
mod nodepool;
mod preserved_fields;
mod shared;

use serde_json::Value;
use thiserror::Error;

use crate::karpenter::nodeclaim::NodeClaim;
use crate::karpenter::nodepool::NodePool;
use crate::nearest::nearest;
use crate::node_class::{NodeClassRegistry, OldVersion};
use crate::schema::api_kind::{ApiKind, ApiObject as _};
use crate::schema::groups::{GROUP, V1, V1BETA1};
use crate::schema::json_fields::{self, WrongType};

pub use annotations::{KUBELET, NODE_CLASS_REFERENCE, V1_FIELDS, V1BETA1_FIELDS};
pub use shared::group_of;

/// A kind that has both versions.
#[derive(Clone, Copy)]
enum ConvertedKind {
    NodePool,
    NodeClaim,
    Class(OldVersion),
}

/// The kinds that have both versions: group, kind and what converts them.
fn kinds_with_conversion(
    classes: &NodeClassRegistry,
) -> Vec<(&'static str, &'static str, ConvertedKind)> {
    let mut all = vec![
        (GROUP, "NodePool", ConvertedKind::NodePool),
        (GROUP, "NodeClaim", ConvertedKind::NodeClaim),
    ];
    all.extend(classes.iter().filter_map(|class| {
        let kind = class.kind();
        let old = ConvertedKind::Class(class.old_version()?);
        Some((kind.group, kind.kind, old))
    }));
    all
}

/// The kinds that have both versions: group and kind.
#[must_use]
pub fn converted_kinds(classes: &NodeClassRegistry) -> Vec<(&'static str, &'static str)> {
    let all = kinds_with_conversion(classes).into_iter();
    all.map(|(group, kind, _)| (group, kind)).collect()
}

/// Names of the definitions of these kinds, sorted.
#[must_use]
pub fn converted_definitions(classes: &NodeClassRegistry) -> Vec<String> {
    let of_classes = classes.iter().filter(|class| class.old_version().is_some());
    let of_classes = of_classes.map(|class| ApiKind::from(class.kind()));
    let mut all: Vec<String> = [NodeClaim::KIND, NodePool::KIND]
        .into_iter()
        .chain(of_classes)
        .map(|kind| kind.resource())
        .collect();
    all.sort_unstable();
    all
}

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
    #[error(transparent)]
    WrongType(#[from] WrongType),
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
    #[error("kind: {value:?} is not converted; {allowed} are{hint}")]
    UnknownKind {
        /// The value.
        value: String,
        /// The kinds that are.
        allowed: String,
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
pub fn convert(
    classes: &NodeClassRegistry,
    object: Value,
    desired: &str,
) -> Result<Value, ConversionError> {
    let text = |key: &'static str| match object.get(key) {
        Some(Value::String(text)) => Ok(text.clone()),
        other => Err(json_fields::wrong(key, other, "a text")),
    };
    if !object.is_object() {
        return Err(json_fields::wrong("object", Some(&object), "an object").into());
    }
    let (kind, version) = (text("kind")?, text("apiVersion")?);
    let all = kinds_with_conversion(classes);
    let Some((group, _, converted_kind)) = all.iter().find(|(_, known, _)| *known == kind) else {
        let names: Vec<&str> = all.iter().map(|(_, known, _)| *known).collect();
        return Err(ConversionError::UnknownKind {
            hint: did_you_mean(&kind, &names),
            value: kind,
            allowed: enumeration(&names),
        });
    };
    let of = |field, value: &str| match value.split_once('/') {
        Some((of, V1)) if of == *group => Ok(V1),
        Some((of, V1BETA1)) if of == *group => Ok(V1BETA1),
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
    let mut converted = map(classes, *converted_kind, way, object.clone())?;
    preserved_fields::apply(&mut converted, kept);
    let back = map(classes, *converted_kind, way.back(), converted.clone())?;
    let lost = preserved_fields::differences(&back, &object);
    preserved_fields::annotate_with(&mut converted, way.back().read(), &lost);
    json_fields::set(&mut converted, "apiVersion", Value::from(desired));
    Ok(converted)
}

fn map(
    classes: &NodeClassRegistry,
    kind: ConvertedKind,
    way: ConversionDirection,
    object: Value,
) -> Result<Value, WrongType> {
    match (kind, way) {
        (ConvertedKind::NodePool, ConversionDirection::Up) => nodepool::up(classes, object),
        (ConvertedKind::NodePool, ConversionDirection::Down) => nodepool::down(classes, object),
        (ConvertedKind::NodeClaim, ConversionDirection::Up) => nodeclaim::up(classes, object),
        (ConvertedKind::NodeClaim, ConversionDirection::Down) => nodeclaim::down(classes, object),
        (ConvertedKind::Class(old), ConversionDirection::Up) => (old.up)(object),
        (ConvertedKind::Class(old), ConversionDirection::Down) => (old.down)(object),
    }
}

/// `a, b and c`.
fn enumeration(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [only] => (*only).to_owned(),
        [most @ .., last] => format!("{} and {last}", most.join(", ")),
    }
}

fn did_you_mean<S: AsRef<str>>(word: &str, candidates: impl IntoIterator<Item = S>) -> String {
    nearest(word, candidates)
        .map(|found| format!("; did you mean {found}?"))
        .unwrap_or_default()
}
