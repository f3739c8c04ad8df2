//! The port of a node class: everything that admission, lint, conversion, CRDs and RBAC need of it, without its cloud.

use serde_json::Value;

use super::deprecated_field::DeprecatedField;
use super::kind::NodeClassKind;
use super::label_table::LabelTable;
use crate::issues::{IssueCollector, PatternDescription, RuleCheck};
use crate::requirements::Requirements;
use crate::schema::crd_manifest::CrdManifest;
use crate::schema::json_fields::WrongType;

/// A drift hash and the version of its algorithm. Hashes of different versions cannot be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassHash {
    /// Version of the algorithm.
    pub version: &'static str,
    /// The hash.
    pub value: u64,
}

/// A requirement of a NodePool that no node of a class can meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassContradiction {
    /// Label key of the requirement.
    pub key: &'static str,
    /// What the class does instead; the class is the subject of the sentence.
    pub problem: &'static str,
    /// What to write in the class or in the NodePool.
    pub fix: &'static str,
}

/// Conversion of one object; metadata other than annotations is never changed.
pub type ConvertObject = fn(Value) -> Result<Value, WrongType>;

/// The version `v1beta1` of a kind, served next to the present one for clusters that convert.
#[derive(Clone, Copy, Debug)]
pub struct OldVersion {
    /// Edits the schema of the present `spec` to that of the older one.
    pub spec: fn(&mut Value),
    /// From `v1beta1` to the present version.
    pub up: ConvertObject,
    /// From the present version to `v1beta1`.
    pub down: ConvertObject,
}

/// The API of one kind of node class.
pub trait NodeClassApi: Send + Sync + 'static {
    /// Group, version, kind and plural.
    fn kind(&self) -> NodeClassKind;

    /// The definition.
    fn crd(&self) -> CrdManifest;

    /// Label keys with a meaning of their own, and those that users may not set.
    fn labels(&self) -> LabelTable;

    /// What differs in the definitions of other kinds where this class is served: edits the schema of `spec`. By default
    /// nothing.
    fn edit_spec_of(&self, _kind: &str, _spec: &mut Value) {}

    /// Who answers for the CEL rule with this message; `None` for rules of other kinds.
    fn rule_check(&self, _message: &str) -> Option<RuleCheck> {
        None
    }

    /// A pattern of the definition in words; `None` for patterns of other kinds.
    fn pattern(&self, _pattern: &str) -> Option<PatternDescription> {
        None
    }

    /// What to write for a required field, such as `role: nodes`.
    fn example(&self, _field: &str) -> Option<&'static str> {
        None
    }

    /// Adds what is wrong with a spec that no definition can say.
    fn issues(&self, _spec: &Value, _issues: &mut IssueCollector) {}

    /// Why nothing can ever be launched with this object for a NodePool with these requirements, although each is right by itself.
    fn contradictions(&self, _object: &Value, _pool: &Requirements) -> Vec<ClassContradiction> {
        Vec::new()
    }

    /// The hash that tells drift; `None` where the class has none, or the object cannot be read.
    fn hash(&self, _object: &Value) -> Option<ClassHash> {
        None
    }

    /// Whether an edit changes what is selected in the cloud, so that its effect is known only when it is resolved.
    fn changes_selectors(&self, _old: &Value, _new: &Value) -> bool {
        false
    }

    /// The older version, if there was one.
    fn old_version(&self) -> Option<OldVersion> {
        None
    }

    /// What the kind was called in APIs of before `v1beta1`.
    fn former_kinds(&self) -> &'static [&'static str] {
        &[]
    }

    /// Fields that are gone or misplaced, and that this class succeeds.
    fn deprecated_fields(&self) -> &'static [DeprecatedField] {
        &[]
    }
}
