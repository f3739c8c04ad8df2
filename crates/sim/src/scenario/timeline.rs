//! What happens in a scenario.

use std::fmt;

use mortise_apis::values::GoDuration;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::manifest_error::ManifestError;

/// One thing that happens at a time: exactly one field next to `at`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TimelineEntry {
    /// When, from the start, for example `1h30m`
    #[schemars(with = "String")]
    pub at: GoDuration,
    /// Sets the replicas of a Deployment
    pub scale: Option<Scale>,
    /// Replaces all pods of a Deployment by a rolling update
    pub roll: Option<Roll>,
    /// Changes a NodePool by a merge patch
    pub edit: Option<Edit>,
    /// Interrupts spot instances, with two minutes' notice
    pub interrupt: Option<Interrupt>,
    /// No capacity for some offerings, for a time
    pub shortage: Option<Shortage>,
    /// From now on, whether instances that start never join
    pub images: Option<Images>,
    /// The leading process is killed and starts again
    pub crash: Option<Crash>,
    /// The watch of a kind fails for a time
    pub watch: Option<Watch>,
}

/// New size of a Deployment.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Scale {
    /// Its name
    pub deployment: String,
    /// Its pods
    pub replicas: u32,
}

/// The rolling update of a Deployment.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Roll {
    /// Its name
    pub deployment: String,
}

/// A user's change of a NodePool.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Edit {
    /// Its name
    pub node_pool: String,
    /// JSON merge patch
    #[schemars(with = "serde_json::Map<String, Value>")]
    pub patch: Value,
}

/// Spot instances that the cloud reclaims.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Interrupt {
    /// How many, or all if there are fewer
    pub count: u32,
}

/// Offerings without capacity; what is missing means all.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Shortage {
    /// Instance types
    #[serde(default)]
    pub instance_types: Vec<String>,
    /// Zones
    #[serde(default)]
    pub zones: Vec<String>,
    /// `spot` or `on-demand`
    pub capacity_type: Option<String>,
    /// How long
    #[serde(rename = "for")]
    #[schemars(with = "String")]
    pub lasts: GoDuration,
}

/// State of the images that instances start from.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Images {
    /// Instances start and never join
    pub broken: bool,
}

/// A process that dies.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Crash {}

/// How a watch fails.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum WatchFailure {
    /// Connected, and delivers nothing
    Silent,
    /// Expires whenever it starts; lists succeed
    Expired,
}

/// The watch of a kind that fails.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Watch {
    /// `Pod`, `Node`, `NodeClaim` or `NodePool`
    pub kind: String,
    /// How
    pub fault: WatchFailure,
    /// How long
    #[serde(rename = "for")]
    #[schemars(with = "String")]
    pub lasts: GoDuration,
}

/// What an entry does.
#[derive(Clone, Copy, Debug)]
pub enum TimelineAction<'a> {
    /// Of a Deployment.
    Scale(&'a Scale),
    /// Of a Deployment's pods.
    Roll(&'a Roll),
    /// Of a NodePool.
    Edit(&'a Edit),
    /// Of spot instances.
    Interrupt(&'a Interrupt),
    /// Of capacity.
    Shortage(&'a Shortage),
    /// Of the image.
    Images(&'a Images),
    /// Of the leader.
    Crash,
    /// Of a watch.
    Watch(&'a Watch),
}

impl TimelineEntry {
    /// The one thing that it does; `field` is its path.
    ///
    /// # Errors
    /// It does nothing, or more than one thing.
    pub fn action(&self, field: &str) -> Result<TimelineAction<'_>, ManifestError> {
        let all = [
            self.scale.as_ref().map(TimelineAction::Scale),
            self.roll.as_ref().map(TimelineAction::Roll),
            self.edit.as_ref().map(TimelineAction::Edit),
            self.interrupt.as_ref().map(TimelineAction::Interrupt),
            self.shortage.as_ref().map(TimelineAction::Shortage),
            self.images.as_ref().map(TimelineAction::Images),
            self.crash.as_ref().map(|Crash {}| TimelineAction::Crash),
            self.watch.as_ref().map(TimelineAction::Watch),
        ];
        let mut there = all.into_iter().flatten();
        match (there.next(), there.next()) {
            (Some(action), None) => Ok(action),
            (None, _) => Err(ManifestError::new(
                field,
                "nothing happens: add one of scale, roll, edit, interrupt, shortage, images, crash, watch",
            )),
            (Some(_), Some(_)) => Err(ManifestError::new(
                field,
                "two things happen: write an entry for each, with the same `at`",
            )),
        }
    }
}

impl fmt::Display for TimelineAction<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scale(scale) => write!(f, "scale {} to {}", scale.deployment, scale.replicas),
            Self::Roll(roll) => write!(f, "roll {}", roll.deployment),
            Self::Edit(edit) => write!(f, "edit NodePool {}: {}", edit.node_pool, edit.patch),
            Self::Interrupt(interrupt) => write!(f, "interrupt {} spot instances", interrupt.count),
            Self::Shortage(shortage) => {
                let or_all = |names: &[String], all: &str| match names {
                    [] => all.to_owned(),
                    _ => names.join(", "),
                };
                write!(
                    f,
                    "no {} capacity of {} in {} for {}",
                    shortage
                        .capacity_type
                        .as_deref()
                        .unwrap_or("spot or on-demand"),
                    or_all(&shortage.instance_types, "any type"),
                    or_all(&shortage.zones, "any zone"),
                    shortage.lasts
                )
            }
            Self::Images(Images { broken: true }) => f.write_str("instances no longer join"),
            Self::Images(Images { broken: false }) => f.write_str("instances join again"),
            Self::Crash => f.write_str("the leader crashes"),
            Self::Watch(watch) => write!(f, "watch of {} fails for {}", watch.kind, watch.lasts),
        }
    }
}
