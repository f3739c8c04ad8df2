//! Why the pods of a gang wait.

use std::fmt;

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
        /// The first of the others.
        first: Option<UnschedulablePod>,
    },
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
            GangShortage::Places {
                found,
                needed,
                first,
            } => {
                write!(
                    f,
                    "{gang} runs {needed} pods together or none, and only {found} have a place"
                )?;
                first.as_ref().map_or(Ok(()), |first| {
                    write!(f, "; pod {}: {}", first.pod, first.why)
                })
            }
        }
    }
}
