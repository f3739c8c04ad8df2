//! What happens in a scenario.

use std::fmt;

use mortise_apis::values::GoDuration;
use mortise_apis::values::money::MicroUsd;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::offerings::Offerings;
use crate::cluster::NewPrice;
use crate::manifest_error::ManifestError;

/// One thing that happens at a time: exactly one field next to `at`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TimelineEntry {
    /// When, from the start, for example `1h30m`
    #[schemars(with = "String")]
    pub at: GoDuration,
    /// Sets the replicas of a Deployment or StatefulSet
    pub scale: Option<Scale>,
    /// Replaces all pods of a Deployment or StatefulSet by a rolling update
    pub roll: Option<Roll>,
    /// Creates a Job, which is not there before
    pub create: Option<Create>,
    /// Changes a NodePool by a merge patch
    pub edit: Option<Edit>,
    /// Deletes Nodes, as `kubectl delete node` does
    pub delete: Option<Delete>,
    /// Interrupts spot instances, with two minutes' notice
    pub interrupt: Option<Interrupt>,
    /// Recommends to leave spot instances, which are not interrupted for that
    pub rebalance: Option<Interrupt>,
    /// No capacity for some offerings, for a time
    pub shortage: Option<Shortage>,
    /// Other prices for some offerings, from now on or for a time
    pub price: Option<Price>,
    /// Another image for a node class: the nodes that started from the one before drift
    pub image: Option<Image>,
    /// From now on, whether instances that start never join
    pub images: Option<Images>,
    /// The leading process is killed and starts again
    pub crash: Option<Crash>,
    /// The watch of a kind fails for a time
    pub watch: Option<Watch>,
}

/// New size of a Deployment or StatefulSet: one of both.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Scale {
    /// Name of the Deployment
    pub deployment: Option<String>,
    /// Name of the StatefulSet
    pub stateful_set: Option<String>,
    /// Its pods
    pub replicas: u32,
}

/// The rolling update of a Deployment or StatefulSet: one of both.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Roll {
    /// Name of the Deployment
    pub deployment: Option<String>,
    /// Name of the StatefulSet
    pub stateful_set: Option<String>,
}

/// The workload that an entry means.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target<'a> {
    Deployment(&'a str),
    StatefulSet(&'a str),
}

impl<'a> Target<'a> {
    fn of(
        deployment: Option<&'a str>,
        stateful_set: Option<&'a str>,
        field: &str,
    ) -> Result<Self, ManifestError> {
        match (deployment, stateful_set) {
            (Some(name), None) => Ok(Self::Deployment(name)),
            (None, Some(name)) => Ok(Self::StatefulSet(name)),
            (None, None) => Err(ManifestError::new(
                field,
                "of what: add deployment or statefulSet",
            )),
            (Some(_), Some(_)) => Err(ManifestError::new(
                field,
                "two workloads: keep deployment or statefulSet, and write an entry for each",
            )),
        }
    }

    pub(super) const fn name(self) -> &'a str {
        match self {
            Self::Deployment(name) | Self::StatefulSet(name) => name,
        }
    }
}

impl Scale {
    /// What is scaled; `field` is the path of the entry.
    ///
    /// # Errors
    /// It names no workload, or two.
    pub(super) fn target(&self, field: &str) -> Result<Target<'_>, ManifestError> {
        let (deployment, set) = (self.deployment.as_deref(), self.stateful_set.as_deref());
        Target::of(deployment, set, field)
    }
}

impl Roll {
    /// What is replaced; `field` is the path of the entry.
    ///
    /// # Errors
    /// It names no workload, or two.
    pub(super) fn target(&self, field: &str) -> Result<Target<'_>, ManifestError> {
        let (deployment, set) = (self.deployment.as_deref(), self.stateful_set.as_deref());
        Target::of(deployment, set, field)
    }
}

/// A workload that is created during the scenario.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Create {
    /// Name of the Job
    pub job: String,
}

/// Nodes that a user deletes, the oldest first.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Delete {
    /// The NodePool that they are of
    pub node_pool: String,
    /// How many
    pub nodes: usize,
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

/// Spot instances that the cloud reclaims, or recommends to leave.
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
    /// Instance types; `m5.*` means all that begin with `m5.`
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

impl Shortage {
    pub(super) fn offerings(&self) -> Offerings<'_> {
        Offerings {
            instance_types: &self.instance_types,
            zones: &self.zones,
            capacity_type: self.capacity_type.as_deref(),
        }
    }
}

/// Prices of offerings; what is missing means all. One of `factor` and `dollarsPerHour`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Price {
    /// Instance types; `m5.*` means all that begin with `m5.`
    #[serde(default)]
    pub instance_types: Vec<String>,
    /// Zones
    #[serde(default)]
    pub zones: Vec<String>,
    /// `spot` or `on-demand`
    pub capacity_type: Option<String>,
    /// What the prices are multiplied by, from 0.000001 to 1000
    pub factor: Option<f64>,
    /// The price of each, from 0.000001 to 10000
    pub dollars_per_hour: Option<f64>,
    /// How long; missing: until the end
    #[serde(rename = "for")]
    #[schemars(with = "Option<String>")]
    pub lasts: Option<GoDuration>,
}

/// Most that an instance costs, in dollars an hour.
const HIGHEST_PRICE: f64 = 10_000.0;

impl Price {
    pub(super) fn offerings(&self) -> Offerings<'_> {
        Offerings {
            instance_types: &self.instance_types,
            zones: &self.zones,
            capacity_type: self.capacity_type.as_deref(),
        }
    }

    /// What becomes of the prices; `field` is the path of the entry.
    ///
    /// # Errors
    /// There is neither a factor nor a price, or both, or it is out of range.
    pub(super) fn to(&self, field: &str) -> Result<NewPrice, ManifestError> {
        match (self.factor, self.dollars_per_hour) {
            (Some(factor), None) => NewPrice::times(factor).ok_or_else(|| {
                let problem = format!("{factor} must be from 0.000001 to 1000");
                ManifestError::new(format!("{field}.factor"), problem)
            }),
            (None, Some(dollars)) => {
                let price = MicroUsd::from_dollars(dollars);
                let price = price.filter(|price| price.0 > 0 && dollars <= HIGHEST_PRICE);
                price.map(NewPrice::is).ok_or_else(|| {
                    let problem = format!("{dollars} must be from 0.000001 to 10000");
                    ManifestError::new(format!("{field}.dollarsPerHour"), problem)
                })
            }
            (None, None) => Err(ManifestError::new(
                field,
                "no price: add factor or dollarsPerHour",
            )),
            (Some(_), Some(_)) => Err(ManifestError::new(
                field,
                "two prices: keep factor or dollarsPerHour",
            )),
        }
    }
}

/// `spot price of m5.* in any zone`.
impl fmt::Display for Price {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(capacity_type) = &self.capacity_type {
            write!(f, "{capacity_type} ")?;
        }
        write!(f, "price {}", self.offerings())
    }
}

/// The image of a node class.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Image {
    /// The class that gets it
    pub node_class: String,
    /// Its name; all classes begin with `image-1`
    pub name: String,
    /// Share of the instances that start from it from now on and never join, in percent
    #[serde(default)]
    #[schemars(range(max = 100))]
    pub boot_failure_percent: u64,
    /// Share of the pods that start on its instances from now on and never become ready, in percent
    #[serde(default)]
    #[schemars(range(max = 100))]
    pub pod_failure_percent: u64,
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
    /// Of a workload.
    Scale(&'a Scale),
    /// Of a workload's pods.
    Roll(&'a Roll),
    /// Of a Job.
    Create(&'a Create),
    /// Of a NodePool.
    Edit(&'a Edit),
    /// Of Nodes.
    Delete(&'a Delete),
    /// Of spot instances.
    Interrupt(&'a Interrupt),
    /// Of spot instances.
    Rebalance(&'a Interrupt),
    /// Of capacity.
    Shortage(&'a Shortage),
    /// Of prices.
    Price(&'a Price),
    /// Of a node class.
    Image(&'a Image),
    /// Of all images.
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
            self.create.as_ref().map(TimelineAction::Create),
            self.edit.as_ref().map(TimelineAction::Edit),
            self.delete.as_ref().map(TimelineAction::Delete),
            self.interrupt.as_ref().map(TimelineAction::Interrupt),
            self.rebalance.as_ref().map(TimelineAction::Rebalance),
            self.shortage.as_ref().map(TimelineAction::Shortage),
            self.price.as_ref().map(TimelineAction::Price),
            self.image.as_ref().map(TimelineAction::Image),
            self.images.as_ref().map(TimelineAction::Images),
            self.crash.as_ref().map(|Crash {}| TimelineAction::Crash),
            self.watch.as_ref().map(TimelineAction::Watch),
        ];
        let mut there = all.into_iter().flatten();
        match (there.next(), there.next()) {
            (Some(action), None) => Ok(action),
            (None, _) => Err(ManifestError::new(
                field,
                "nothing happens: add one of scale, roll, create, edit, delete, interrupt, rebalance, shortage, price, image, images, crash, watch",
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
            Self::Scale(scale) => {
                let name = scale.deployment.as_ref().or(scale.stateful_set.as_ref());
                let name = name.map_or("", String::as_str);
                write!(f, "scale {name} to {}", scale.replicas)
            }
            Self::Roll(roll) => {
                let name = roll.deployment.as_ref().or(roll.stateful_set.as_ref());
                write!(f, "roll {}", name.map_or("", String::as_str))
            }
            Self::Create(Create { job }) => write!(f, "create Job {job}"),
            Self::Edit(edit) => write!(f, "edit NodePool {}: {}", edit.node_pool, edit.patch),
            Self::Delete(Delete { node_pool, nodes }) => {
                write!(f, "delete {nodes} nodes of NodePool {node_pool}")
            }
            Self::Interrupt(interrupt) => write!(f, "interrupt {} spot instances", interrupt.count),
            Self::Rebalance(of) => write!(f, "recommend to leave {} spot instances", of.count),
            Self::Shortage(shortage) => {
                let capacity_type = shortage.capacity_type.as_deref();
                let capacity_type = capacity_type.unwrap_or("spot or on-demand");
                let offerings = shortage.offerings();
                write!(
                    f,
                    "no {capacity_type} capacity {offerings} for {}",
                    shortage.lasts
                )
            }
            Self::Price(price) => {
                write!(f, "{price}")?;
                if let Some(factor) = price.factor {
                    write!(f, " times {factor}")?;
                }
                if let Some(dollars) = price.dollars_per_hour {
                    write!(f, " is ${dollars} an hour")?;
                }
                price
                    .lasts
                    .map_or(Ok(()), |lasts| write!(f, " for {lasts}"))
            }
            Self::Image(image) => {
                write!(f, "node class {} gets {}", image.node_class, image.name)?;
                if image.boot_failure_percent > 0 {
                    write!(f, ", with which {}% never join", image.boot_failure_percent)?;
                }
                if image.pod_failure_percent > 0 {
                    let percent = image.pod_failure_percent;
                    write!(f, ", on which {percent}% of the pods never become ready")?;
                }
                Ok(())
            }
            Self::Images(Images { broken: true }) => f.write_str("instances no longer join"),
            Self::Images(Images { broken: false }) => f.write_str("instances join again"),
            Self::Crash => f.write_str("the leader crashes"),
            Self::Watch(watch) => write!(f, "watch of {} fails for {}", watch.kind, watch.lasts),
        }
    }
}
