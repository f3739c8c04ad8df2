//! The document of kind `Scenario`.

use std::collections::BTreeMap;

use jiff::Timestamp;
use mortise_apis::values::GoDuration;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde::Deserialize;
use serde_json::Value;
use serde_path_to_error::{Path, Segment};

use super::start_times::{ScenarioBootTaint, ScenarioStartTime};
use super::timeline::TimelineEntry;
use crate::cluster::{AccountLimits, Timing};
use crate::manifest_error::ManifestError;

/// `apiVersion` of a scenario.
pub const SCENARIO_API_VERSION: &str = "mortise.sh/v1alpha1";
/// `kind` of a scenario.
pub const SCENARIO_KIND: &str = "Scenario";
/// Longest simulated time: a year.
const LONGEST_S: i64 = 366 * 24 * 3600;

/// How long a cluster is simulated, and what happens meanwhile.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ScenarioSpec {
    /// Simulated time, for example `6h`
    #[schemars(with = "String")]
    pub duration: GoDuration,
    /// Seed of all random choices: boot times, shortages, interruptions
    #[serde(default = "one")]
    pub seed: u64,
    /// When it begins; budgets with schedules depend on it
    #[serde(default = "default_start")]
    #[schemars(with = "String")]
    pub start: Timestamp,
    /// AWS region whose instance types and prices are used
    #[serde(default = "default_region")]
    pub region: String,
    /// Replicas of mortise; one of them leads
    #[serde(default = "one_replica")]
    #[schemars(range(min = 1, max = 5))]
    pub replicas: usize,
    /// Mean time between interruptions of a spot instance of the cluster; missing: none
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub spot_interruption_every: Option<GoDuration>,
    /// Of these interruptions, from the recommendation to leave the instance to the notice; missing: nothing is recommended
    #[serde(default)]
    pub rebalance_ahead: Option<ScenarioStartTime>,
    /// Share of the launches from a spot capacity pool that find no capacity, in percent
    #[serde(default)]
    #[schemars(range(max = 100))]
    pub spot_shortage_percent: u64,
    /// From the launch of an instance to its Node; missing: 15 to 35 seconds
    #[serde(default)]
    pub boot_time: Option<ScenarioStartTime>,
    /// From the binding of a pod to its running containers; missing: 0.8 to 2.5 seconds
    #[serde(default)]
    pub pod_start_time: Option<ScenarioStartTime>,
    /// What the first pod of a workload on a node needs on top of it for its image; missing: nothing
    #[serde(default)]
    pub image_pull_time: Option<ScenarioStartTime>,
    /// What a pod with claims for volumes needs on top of it; missing: nothing
    #[serde(default)]
    pub volume_attach_time: Option<ScenarioStartTime>,
    /// Most vCPUs that the account may run; missing: no quota
    #[serde(default)]
    pub vcpu_quota: ScenarioQuota,
    /// Share of the launches that the cloud answers with "too many requests", in percent
    #[serde(default)]
    #[schemars(range(max = 99))]
    pub throttled_launch_percent: u64,
    /// From a launch to the first list of instances that has it; missing: at once
    #[serde(default)]
    pub instance_visible_after: Option<ScenarioStartTime>,
    /// A taint that every node joins with and that a component of the node removes; missing: none
    #[serde(default)]
    pub boot_taint: Option<ScenarioBootTaint>,
    /// What happens, in any order
    #[serde(default)]
    pub timeline: Vec<TimelineEntry>,
}

/// Quotas of the account.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ScenarioQuota {
    /// Of spot instances
    #[serde(default)]
    pub spot: Option<u32>,
    /// Of on-demand instances
    #[serde(default)]
    pub on_demand: Option<u32>,
}

const fn one() -> u64 {
    1
}

const fn one_replica() -> usize {
    1
}

fn default_region() -> String {
    "us-east-1".to_owned()
}

/// A Monday morning; a moving start would give another history every day.
fn default_start() -> Timestamp {
    Timestamp::constant(1_767_600_000, 0)
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ScenarioDocument {
    api_version: String,
    kind: String,
    /// A name, for people
    #[serde(default)]
    #[schemars(with = "Option<serde_json::Map<String, Value>>")]
    _metadata: Value,
    spec: ScenarioSpec,
}

/// The JSON schema of the document.
#[must_use]
pub fn scenario_schema() -> Schema {
    let mut settings = SchemaSettings::draft2020_12();
    settings.inline_subschemas = true;
    settings
        .into_generator()
        .into_root_schema_for::<ScenarioDocument>()
}

impl ScenarioSpec {
    /// Reads the document.
    ///
    /// # Errors
    /// A field is unknown, missing, of another type or out of range; all names that entries refer to are checked later, by
    /// [`super::play`].
    pub fn from_document(document: &Value) -> Result<Self, ManifestError> {
        let read: Result<ScenarioDocument, _> = serde_path_to_error::deserialize(document);
        let document = read.map_err(|error| {
            let path = error.path().to_string();
            let problem = error.inner().to_string();
            unknown_field(error.path()).unwrap_or_else(|| ManifestError::new(path, problem))
        })?;
        if document.api_version != SCENARIO_API_VERSION {
            return Err(ManifestError::unknown(
                "apiVersion",
                &document.api_version,
                &[SCENARIO_API_VERSION],
            ));
        }
        if document.kind != SCENARIO_KIND {
            return Err(ManifestError::unknown(
                "kind",
                &document.kind,
                &[SCENARIO_KIND],
            ));
        }
        document.spec.checked()
    }

    fn checked(self) -> Result<Self, ManifestError> {
        let range = |field: &str, problem: &str| Err(ManifestError::new(field, problem));
        if !(1..=LONGEST_S).contains(&self.duration.as_secs()) {
            return range("spec.duration", "must be from 1s to 8784h, a year");
        }
        if !(1..=5).contains(&self.replicas) {
            return range("spec.replicas", "must be from 1 to 5");
        }
        if self.spot_shortage_percent > 100 {
            return range("spec.spotShortagePercent", "must be from 0 to 100");
        }
        if self
            .spot_interruption_every
            .is_some_and(|every| every.as_secs() < 1)
        {
            return range("spec.spotInterruptionEvery", "must be 1s or more");
        }
        if self.throttled_launch_percent > 99 {
            return range("spec.throttledLaunchPercent", "must be from 0 to 99");
        }
        self.timing(Timing::default())?;
        self.account()?;
        if let Some(taint) = &self.boot_taint {
            taint.checked()?;
        }
        let mut created: BTreeMap<&str, usize> = BTreeMap::new();
        for (at, entry) in self.timeline.iter().enumerate() {
            let field = format!("spec.timeline[{at}]");
            if entry.at < GoDuration::ZERO || entry.at > self.duration {
                let problem = format!("must be from 0s to the duration, {}", self.duration);
                return range(&format!("{field}.at"), &problem);
            }
            entry.action(&field)?;
            let Some(create) = &entry.create else {
                continue;
            };
            if let Some(first) = created.insert(&create.job, at) {
                let problem = format!("spec.timeline[{first}] creates Job {:?} too", create.job);
                return range(&format!("{field}.create.job"), &problem);
            }
        }
        Ok(self)
    }
}

impl ScenarioSpec {
    /// How long what is outside of the service takes, where the scenario says it.
    ///
    /// # Errors
    /// A time is not valid.
    pub(super) fn timing(&self, mut timing: Timing) -> Result<Timing, ManifestError> {
        let time = |field: &str, given: &Option<ScenarioStartTime>| {
            let field = format!("spec.{field}");
            given.map(|time| time.checked(&field)).transpose()
        };
        if let Some(boot) = time("bootTime", &self.boot_time)? {
            timing.boot = boot;
        }
        if let Some(start) = time("podStartTime", &self.pod_start_time)? {
            timing.pod_start = start;
        }
        timing.image_pull = time("imagePullTime", &self.image_pull_time)?;
        timing.rebalance_ahead = time("rebalanceAhead", &self.rebalance_ahead)?;
        timing.volume_attach = time("volumeAttachTime", &self.volume_attach_time)?;
        Ok(timing)
    }

    /// Limits of the account and of the cloud's API.
    ///
    /// # Errors
    /// A time is not valid.
    pub(super) fn account(&self) -> Result<AccountLimits, ManifestError> {
        let visible = self.instance_visible_after;
        let visible = visible.map(|time| time.checked("spec.instanceVisibleAfter"));
        Ok(AccountLimits {
            spot_vcpus: self.vcpu_quota.spot.map(i64::from),
            on_demand_vcpus: self.vcpu_quota.on_demand.map(i64::from),
            throttled_percent: self.throttled_launch_percent,
            visible_after: visible.transpose()?,
        })
    }
}

/// The error of a path that ends in a field that the schema does not have.
fn unknown_field(path: &Path) -> Option<ManifestError> {
    let mut segments: Vec<&Segment> = path.iter().collect();
    let Some(Segment::Map { key }) = segments.pop() else {
        return None;
    };
    let schema = scenario_schema();
    let mut at = schema.as_value();
    for segment in segments {
        at = match segment {
            Segment::Seq { .. } => at.get("items")?,
            Segment::Map { key } => present(at.get("properties")?.get(key)?),
            Segment::Enum { .. } | Segment::Unknown => return None,
        };
    }
    let known: Vec<&str> = at
        .get("properties")?
        .as_object()?
        .keys()
        .map(String::as_str)
        .collect();
    (!known.contains(&key.as_str())).then(|| ManifestError::unknown(path.to_string(), key, &known))
}

/// The schema of what may be missing, when it is there.
fn present(schema: &Value) -> &Value {
    schema
        .get("anyOf")
        .and_then(|any| any.get(0))
        .unwrap_or(schema)
}
