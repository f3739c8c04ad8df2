//! Which kinds of node classes this process serves. Claims and pools of other kinds belong to another autoscaler.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::labels;
use crate::names::NodeClassKey;
use crate::node_class::NodeClassKind;

/// Kinds of node classes that some provider of this process serves.
///
/// # Source
/// karpenter-core 1.9: a NodePool or NodeClaim is managed if its `nodeClassRef` has group and kind of a supported class,
/// a Node without a claim if it carries the label of one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ServedNodeClasses {
    /// Every kind: a cluster in which no other controller launches instances, such as a simulated one.
    #[default]
    All,
    /// Only these.
    Only(Arc<[NodeClassKind]>),
}

impl ServedNodeClasses {
    /// Only these kinds.
    pub fn only(kinds: impl Into<Arc<[NodeClassKind]>>) -> Self {
        Self::Only(kinds.into())
    }

    /// Whether objects that refer to this class are ours.
    #[must_use]
    pub fn covers(&self, class: &NodeClassKey) -> bool {
        match self {
            Self::All => true,
            Self::Only(kinds) => kinds
                .iter()
                .any(|kind| kind.group == &*class.group && kind.kind == &*class.kind),
        }
    }

    /// Label keys by which a Node says that it was made from a class of a served kind; `None` when every kind is served.
    #[must_use]
    pub fn node_labels(&self) -> Option<Vec<String>> {
        match self {
            Self::All => None,
            Self::Only(kinds) => Some(
                kinds
                    .iter()
                    .map(|kind| labels::node_class_key(kind.group, kind.kind))
                    .collect(),
            ),
        }
    }
}

impl fmt::Display for ServedNodeClasses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("every kind"),
            Self::Only(kinds) if kinds.is_empty() => f.write_str("none"),
            Self::Only(kinds) => {
                for (position, kind) in kinds.iter().enumerate() {
                    let comma = if position == 0 { "" } else { ", " };
                    write!(f, "{comma}{}.{}", kind.kind, kind.group)?;
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_its_group_and_its_name() {
        let kind = NodeClassKind {
            group: "a.sh",
            version: "v1",
            kind: "AClass",
            plural: "aclasses",
        };
        let served = ServedNodeClasses::only([kind]);
        let key = |group: &str, kind: &str| NodeClassKey {
            group: group.into(),
            kind: kind.into(),
            name: "default".into(),
        };
        assert!(served.covers(&key("a.sh", "AClass")));
        assert!(!served.covers(&key("b.sh", "AClass")));
        assert!(!served.covers(&key("a.sh", "BClass")));
        assert!(ServedNodeClasses::default().covers(&key("b.sh", "BClass")));
        assert!(!ServedNodeClasses::only([]).covers(&key("a.sh", "AClass")));
        assert_eq!(served.to_string(), "AClass.a.sh");
        assert_eq!(served.node_labels().unwrap(), ["a.sh/aclass"]);
    }
}
