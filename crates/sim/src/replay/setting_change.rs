//! Changes of settings: `NAME=VALUE`, by the name of the flag of `mortise serve`.

use std::fmt;
use std::str::FromStr;

use mortise_apis::nearest::nearest;
use mortise_apis::values::GoDuration;
use mortise_planning::settings::Settings;
use serde_json::{Map, Value};

/// Flags whose name is not that of the setting.
const FLAGS: [(&str, &str); 4] = [
    ("batch-idle-duration", "batch_idle_ms"),
    ("batch-max-duration", "batch_max_ms"),
    ("ignore-dra-requests", "ignore_devices"),
    ("rebalance-recommendation", "rebalance"),
];

/// Another value of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingChange {
    name: String,
    value: String,
}

/// Why a setting cannot be changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingChangeError {
    /// There is no `=`.
    #[error("{0:?}: a change is NAME=VALUE, such as batch-idle-duration=5s")]
    Form(String),
    /// There is no such setting.
    #[error("there is no setting {name:?}{hint}; there are {all}")]
    Unknown {
        /// Its name.
        name: String,
        /// The nearest one.
        hint: String,
        /// All of them.
        all: String,
    },
    /// The value is not one of the setting.
    #[error("{name}={value:?}: {problem}")]
    Value {
        /// The setting.
        name: String,
        /// The value.
        value: String,
        /// What is wrong with it.
        problem: String,
    },
}

impl fmt::Display for SettingChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.value)
    }
}

impl FromStr for SettingChange {
    type Err = SettingChangeError;

    fn from_str(text: &str) -> Result<Self, SettingChangeError> {
        let (name, value) = text
            .split_once('=')
            .ok_or_else(|| SettingChangeError::Form(text.to_owned()))?;
        let change = Self {
            name: name.trim().trim_start_matches("--").to_owned(),
            value: value.trim().to_owned(),
        };
        // A name or value that is wrong for any settings is wrong before a file is read.
        change.apply(Settings::default())?;
        Ok(change)
    }
}

impl SettingChange {
    /// The settings with the change.
    ///
    /// # Errors
    /// There is no such setting, or the value is not one of it.
    pub fn apply(&self, settings: Settings) -> Result<Settings, SettingChangeError> {
        let invalid = |problem: String| SettingChangeError::Value {
            name: self.name.clone(),
            value: self.value.clone(),
            problem,
        };
        let mut fields =
            object(serde_json::to_value(&settings).map_err(|e| invalid(e.to_string()))?);
        let gates = object(fields.get("gates").cloned().unwrap_or_default());
        if gates.contains_key(&self.name) {
            let value = self.value.parse::<bool>();
            let value = value.map_err(|_| invalid("allowed are true and false".to_owned()))?;
            if let Some(Value::Object(gates)) = fields.get_mut("gates") {
                gates.insert(self.name.clone(), Value::Bool(value));
            }
        } else {
            fields.remove("gates");
            let field = self.field(&fields, &gates)?;
            let before = fields.get(&field).cloned().unwrap_or_default();
            let value = self.typed(&field, &before).map_err(&invalid)?;
            fields.insert(field, value);
            fields.insert("gates".to_owned(), Value::Object(gates));
        }
        let read: Settings = serde_json::from_value(Value::Object(fields))
            .map_err(|error| invalid(error.to_string()))?;
        Ok(Settings {
            spread_defaults: settings.spread_defaults,
            repair: settings.repair,
            tagging: settings.tagging,
            launch_batching: settings.launch_batching,
            ..read
        })
    }

    /// The field of the settings.
    fn field(
        &self,
        fields: &Map<String, Value>,
        gates: &Map<String, Value>,
    ) -> Result<String, SettingChangeError> {
        let by_flag = FLAGS.iter().find(|(flag, _)| *flag == self.name);
        if let Some((_, field)) = by_flag {
            return Ok((*field).to_owned());
        }
        if let Some(field) = fields.keys().find(|field| flag_of(field) == self.name) {
            return Ok(field.clone());
        }
        let mut all: Vec<String> = fields.keys().map(|field| flag_of(field)).collect();
        all.extend(gates.keys().cloned());
        all.sort_unstable();
        let hint = nearest(&self.name, &all);
        Err(SettingChangeError::Unknown {
            name: self.name.clone(),
            hint: hint.map_or_else(String::new, |name| format!("; did you mean {name}?")),
            all: all.join(", "),
        })
    }

    /// The value, of the type that the field has.
    fn typed(&self, field: &str, before: &Value) -> Result<Value, String> {
        if field.ends_with("_ms") {
            let duration = GoDuration::parse(&self.value)
                .map_err(|error| format!("{error}; a duration such as 30s or 5m is allowed"))?;
            let ms = duration.as_nanos() / 1_000_000;
            return if ms < 0 {
                Err("a duration of 0s or more is allowed".to_owned())
            } else {
                Ok(Value::from(ms))
            };
        }
        match before {
            Value::Bool(_) => match self.value.parse::<bool>() {
                Ok(value) => Ok(Value::Bool(value)),
                Err(_) => Err("allowed are true and false".to_owned()),
            },
            Value::Number(_) => match self.value.parse::<u64>() {
                Ok(value) => Ok(Value::from(value)),
                Err(_) => Err("a whole number of 0 or more is allowed".to_owned()),
            },
            _ => Ok(Value::from(self.value.as_str())),
        }
    }
}

/// The flag of a field, where [`FLAGS`] does not say otherwise.
fn flag_of(field: &str) -> String {
    let known = FLAGS.iter().find(|(_, each)| *each == field);
    known.map_or_else(
        || field.trim_end_matches("_ms").replace('_', "-"),
        |(flag, _)| (*flag).to_owned(),
    )
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    fn changed(text: &str) -> Result<Settings, SettingChangeError> {
        text.parse::<SettingChange>()?.apply(Settings::default())
    }

    #[test]
    fn every_setting_has_a_name_and_keeps_its_type() {
        assert_eq!(
            changed("batch-idle-duration=5s").unwrap().batch_idle_ms,
            5_000
        );
        assert_eq!(
            changed("--launch-timeout=90s").unwrap().launch_timeout_ms,
            90_000
        );
        assert!(
            changed("SpotToSpotConsolidation=true")
                .unwrap()
                .gates
                .spot_to_spot_consolidation
        );
        assert!(!changed("ignore-dra-requests=false").unwrap().ignore_devices);
        assert_eq!(
            changed("max-unproven-launches=3")
                .unwrap()
                .max_unproven_launches,
            3
        );
        let rebalance = changed("rebalance-recommendation=cordon")
            .unwrap()
            .rebalance;
        assert_eq!(
            rebalance,
            mortise_planning::settings::RebalancePolicy::Cordon
        );
        let mut settings = Settings::default();
        settings.gates.node_repair = true;
        let change: SettingChange = "StaticCapacity=true".parse().unwrap();
        let gates = change.apply(settings).unwrap().gates;
        assert!(gates.node_repair && gates.static_capacity);
    }

    #[test]
    fn a_wrong_change_says_what_is_allowed() {
        let error = |text| changed(text).unwrap_err().to_string();
        assert!(error("batch-idle-duration").contains("NAME=VALUE"));
        assert!(error("batch-idle-durration=5s").contains("did you mean batch-idle-duration?"));
        assert!(error("SpotToSpot=true").contains("there is no setting"));
        assert!(error("launch-timeout=5").contains("30s or 5m"));
        assert!(error("NodeRepair=yes").contains("true and false"));
        assert!(error("rebalance-recommendation=never").contains("replace-first"));
        assert!(error("expiration-jitter-percent=-3").contains("whole number"));
    }
}
