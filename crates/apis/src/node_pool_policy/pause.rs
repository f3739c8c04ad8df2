//! A pause of voluntary disruption, as a policy states it.

use std::sync::Arc;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema::fields;
use crate::values::stated_time;

/// A pause of all voluntary disruption: consolidation, drift, expiry, repair, and the evictions of drains that have begun.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["reason"]))]
pub struct PolicyPause {
    /// Why; events and reports show it.
    #[schemars(extend("minLength" = 1, "maxLength" = 256))]
    pub reason: String,
    /// When it ends, such as 2026-11-28T06:00:00Z. Without it the pause holds until it is removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::date_time")]
    pub until: Option<String>,
}

/// A pause of voluntary disruption, whether it holds yet or has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatedPause {
    /// Why.
    pub reason: Arc<str>,
    /// When it ends; `None` when it has to be removed.
    pub until: Option<Timestamp>,
}

impl StatedPause {
    /// Whether it has not ended yet.
    #[must_use]
    pub fn holds(&self, now: Timestamp) -> bool {
        self.until.is_none_or(|until| until > now)
    }
}

impl PolicyPause {
    /// As it is read. An end that cannot be read is none: a typo must not start what was stopped.
    pub(super) fn read(&self) -> StatedPause {
        StatedPause {
            reason: self.reason.as_str().into(),
            until: self.until.as_deref().and_then(stated_time),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::node_pool_policy::NodePoolPolicy;

    #[test]
    fn a_pause_holds_until_its_end_and_one_whose_end_cannot_be_read_until_it_is_removed() {
        let holds = |pause: serde_json::Value, now: &str| {
            let spec = serde_json::json!({ "spec": { "disruption": { "pause": pause } } });
            let policy: NodePoolPolicy = serde_json::from_value(spec).unwrap();
            policy
                .pause()
                .map(|pause| pause.holds(now.parse().unwrap()))
        };
        let (before, end) = ("2026-11-28T05:59:59Z", "2026-11-28T06:00:00Z");
        let until =
            |text: &str| serde_json::json!({ "reason": "release of the shop", "until": text });
        for (pause, at_once, at_the_end) in [
            (until(end), Some(true), Some(false)),
            (until("2026-11-28T07:00:00+01:00"), Some(true), Some(false)),
            (until("tomorrow"), Some(true), Some(true)),
            (
                serde_json::json!({ "reason": "release" }),
                Some(true),
                Some(true),
            ),
            (serde_json::json!({}), Some(true), Some(true)),
            (serde_json::Value::Null, None, None),
        ] {
            let found = (holds(pause.clone(), before), holds(pause.clone(), end));
            assert_eq!(found, (at_once, at_the_end), "{pause}");
        }
    }
}
