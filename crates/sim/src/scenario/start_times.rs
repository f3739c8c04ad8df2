//! How long instances and pods of a scenario take to start.

use mortise_apis::values::GoDuration;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::cluster::StartTime;
use crate::manifest_error::ManifestError;

/// Longest start.
const LONGEST_S: i64 = 24 * 3600;

/// A distribution of durations: uniform from `from` to `to`, except for a share that takes from `to` to `slowTo`.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ScenarioStartTime {
    /// The shortest, for example `30s`
    #[schemars(with = "String")]
    pub from: GoDuration,
    /// The longest of those that are not slow
    #[schemars(with = "String")]
    pub to: GoDuration,
    /// Share of the slow ones, in percent
    #[serde(default)]
    #[schemars(range(max = 100))]
    pub slow_percent: u64,
    /// The longest of the slow ones
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub slow_to: Option<GoDuration>,
}

/// A taint that every node joins with. Whether the NodePool declares it in `startupTaints` is the scenario's choice.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ScenarioBootTaint {
    /// Its key, for example `example.com/agent-not-ready`
    pub key: String,
    /// `NoSchedule` or `NoExecute`
    #[serde(default = "no_schedule")]
    pub effect: String,
    /// From the Node's creation to the removal of the taint
    pub stays: ScenarioStartTime,
}

fn no_schedule() -> String {
    "NoSchedule".to_owned()
}

impl ScenarioBootTaint {
    /// The taint, and how long it stays.
    ///
    /// # Errors
    /// The key is empty, the effect unknown, or the time not valid.
    pub(super) fn checked(&self) -> Result<(Value, StartTime), ManifestError> {
        if self.key.is_empty() {
            return Err(ManifestError::new(
                "spec.bootTaint.key",
                "must not be empty",
            ));
        }
        let effects = ["NoSchedule", "NoExecute"];
        if !effects.contains(&&*self.effect) {
            let field = "spec.bootTaint.effect";
            return Err(ManifestError::unknown(field, &self.effect, &effects));
        }
        let stays = self.stays.checked("spec.bootTaint.stays")?;
        Ok((json!({ "key": self.key, "effect": self.effect }), stays))
    }
}

impl ScenarioStartTime {
    /// As the simulation needs it. `field`: its path.
    ///
    /// # Errors
    /// The durations are not in order, or longer than a day, or slow ones have no length.
    pub(super) fn checked(&self, field: &str) -> Result<StartTime, ManifestError> {
        let wrong = |name: &str, problem: String| {
            Err(ManifestError::new(format!("{field}.{name}"), problem))
        };
        let Self { from, to, .. } = *self;
        if from < GoDuration::ZERO || from.as_secs() > LONGEST_S {
            return wrong("from", "must be from 0s to 24h".to_owned());
        }
        if to < from || to.as_secs() > LONGEST_S {
            return wrong("to", format!("must be from {from}, as in from, to 24h"));
        }
        if self.slow_percent > 100 {
            return wrong("slowPercent", "must be from 0 to 100".to_owned());
        }
        let slow_to = match (self.slow_percent, self.slow_to) {
            (0, None) => to,
            (0, Some(_)) => {
                let problem = "how many are slow: set it to 1 or more";
                return wrong("slowPercent", problem.to_owned());
            }
            (_, None) => return wrong("slowTo", "missing: how slow they are".to_owned()),
            (_, Some(slow)) if slow < to || slow.as_secs() > LONGEST_S => {
                return wrong("slowTo", format!("must be from {to}, as in to, to 24h"));
            }
            (_, Some(slow)) => slow,
        };
        let ms = |duration: GoDuration| duration.as_nanos() / 1_000_000;
        Ok(StartTime {
            from_ms: ms(from),
            to_ms: ms(to),
            slow_percent: self.slow_percent,
            slow_to_ms: ms(slow_to),
        })
    }
}
