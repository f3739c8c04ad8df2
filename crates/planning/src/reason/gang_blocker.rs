//! Why the pods of a gang wait.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use super::UnschedulablePod;
use mortise_state::snapshot::GangKey;

/// Why no pod of a gang gets a place.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct GangBlocker {
    /// The gang.
    pub gang: GangKey,
    /// What it lacks.
    pub lacks: GangShortage,
}

/// What a gang lacks.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GangShortage {
    /// Its PodGroup does not exist.
    Group,
    /// Its scheduler has not admitted it.
    Admission,
    /// Pods.
    Pods {
        /// Pods that there are.
        existing: usize,
        /// Pods that run together.
        needed: usize,
    },
    /// Places.
    Places {
        /// Pods that have one, or would get one.
        found: usize,
        /// Pods that run together.
        needed: usize,
        /// The domain of its topology in which the most have one.
        #[serde(skip_serializing_if = "Option::is_none")]
        domain: Option<Arc<GangDomain>>,
        /// The first of the others.
        first: Option<UnschedulablePod>,
    },
    /// A value of the label that its nodes have in common: no node, present or new, has one that is known.
    Domain {
        /// The label.
        key: Arc<str>,
    },
}

/// A domain of a topology: a label of nodes and its value.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct GangDomain {
    /// The label.
    pub key: Arc<str>,
    /// The value.
    pub value: Arc<str>,
}

impl fmt::Display for GangBlocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gang = &self.gang;
        match &self.lacks {
            GangShortage::Group => write!(f, "{gang} does not exist"),
            GangShortage::Admission => write!(f, "{gang} is not admitted by its queue"),
            GangShortage::Pods { existing, needed } => write!(
                f,
                "{gang} needs {needed} pods to run together, and has {existing}"
            ),
            GangShortage::Domain { key } => write!(
                f,
                "{gang} runs in one {key}, and no value of that label is known that new nodes may have"
            ),
            GangShortage::Places {
                found,
                needed,
                domain,
                first,
            } => {
                write!(f, "{gang} runs {needed} pods together or none")?;
                match domain {
                    None => write!(f, ", and only {found} have a place")?,
                    Some(domain) => write!(
                        f,
                        " in one {}, and only {found} have a place where it is {}",
                        domain.key, domain.value
                    )?,
                }
                first.as_ref().map_or(Ok(()), |first| {
                    write!(f, "; pod {}: {}", first.pod, first.why)
                })
            }
        }
    }
}
