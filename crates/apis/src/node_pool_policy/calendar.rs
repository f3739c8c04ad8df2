//! The calendar of a NodePoolPolicy: which limits hold at which time.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{NodePoolPolicy, PolicyLimits};
use crate::schema::fields;
use crate::values::BudgetWindow;
use crate::values::money::MicroUsd;

/// Limits that hold at some times instead of those of the policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["schedule", "duration", "limits"]))]
pub struct PolicyCalendarEntry {
    /// A name for reports, such as night.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minLength" = 1, "maxLength" = 63))]
    pub name: Option<String>,
    /// When it begins, a cron expression in UTC.
    #[schemars(extend("pattern" = fields::CRON))]
    pub schedule: String,
    /// How long it holds after each beginning, in hours and minutes.
    #[schemars(extend("pattern" = fields::HOURS_AND_MINUTES))]
    pub duration: String,
    /// The limits that hold instead of spec.limits. What is absent here stays as in spec.limits. Where several entries hold, the lowest limit counts.
    pub limits: PolicyLimits,
}

/// Where a limit is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LimitSource {
    /// `spec.limits`.
    Limits,
    /// An entry of `spec.calendar`.
    Calendar {
        /// Its position.
        at: usize,
        /// Its name.
        name: Option<Arc<str>>,
    },
}

impl fmt::Display for LimitSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Limits => f.write_str("limits"),
            Self::Calendar { at, name: None } => write!(f, "calendar[{at}].limits"),
            Self::Calendar {
                at,
                name: Some(name),
            } => write!(f, "calendar[{at}] ({name}).limits"),
        }
    }
}

/// A limit that holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitInForce<T> {
    /// The limit.
    pub most: T,
    /// Where it is written.
    pub source: LimitSource,
}

/// The limits of a policy that hold at a time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitsInForce {
    /// On the number of nodes.
    pub nodes: Option<LimitInForce<i64>>,
    /// On the price per hour.
    pub hourly_price: Option<LimitInForce<MicroUsd>>,
    /// When the next entry of the calendar begins or ends.
    pub until: Option<Timestamp>,
}

/// The lowest limit of the calendar where it states one, or that of the policy.
fn in_force<T: Ord>(
    own: Option<T>,
    calendar: impl Iterator<Item = (T, LimitSource)>,
) -> Option<LimitInForce<T>> {
    let stated = calendar.min_by(|(one, _), (other, _)| one.cmp(other));
    let own = own.map(|most| (most, LimitSource::Limits));
    let (most, source) = stated.or(own)?;
    Some(LimitInForce { most, source })
}

impl NodePoolPolicy {
    /// The limits that hold at a time. What cannot be read allows nothing: a limit must not end with a typo. So an entry of the
    /// calendar whose time cannot be read holds always, and allows nothing of what it limits.
    ///
    /// # Cost
    /// Two evaluations of the schedule of each entry.
    #[must_use]
    pub fn limits_in_force(&self, now: Timestamp) -> LimitsInForce {
        let mut until: Option<Timestamp> = None;
        let mut holding: Vec<(LimitSource, Option<i64>, Option<MicroUsd>)> = Vec::new();
        for (at, entry) in self.spec.calendar.iter().enumerate() {
            let name = entry.name.as_deref().map(Arc::from);
            let source = LimitSource::Calendar { at, name };
            let (nodes, price) = (entry.limits.nodes(), entry.limits.hourly_price());
            let Ok(window) = BudgetWindow::recurring(&entry.schedule, &entry.duration) else {
                holding.push((source, nodes.map(|_| 0), price.map(|_| MicroUsd(0))));
                continue;
            };
            until = until.into_iter().chain(window.changes_after(now)).min();
            if window.is_active(now) {
                holding.push((source, nodes, price));
            }
        }
        let own = self.spec.limits.as_ref();
        let nodes = holding
            .iter()
            .filter_map(|(source, nodes, _)| Some(((*nodes)?, source.clone())));
        let prices = holding
            .iter()
            .filter_map(|(source, _, price)| Some(((*price)?, source.clone())));
        LimitsInForce {
            nodes: in_force(own.and_then(PolicyLimits::nodes), nodes),
            hourly_price: in_force(own.and_then(PolicyLimits::hourly_price), prices),
            until,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn policy(limits: &Value, calendar: &Value) -> NodePoolPolicy {
        serde_json::from_value(json!({ "spec": { "limits": limits, "calendar": calendar } }))
            .unwrap()
    }

    fn entry(name: &str, schedule: &str, duration: &str, limits: &Value) -> Value {
        json!({ "name": name, "schedule": schedule, "duration": duration, "limits": limits })
    }

    /// Limit of nodes, where it is written, and when that may change. The 27th of November 2026 is a Friday.
    fn nodes(policy: &NodePoolPolicy, time: &str) -> (Option<i64>, String, String) {
        let found = policy.limits_in_force(format!("2026-11-{time}:00Z").parse().unwrap());
        let source = found.nodes.as_ref().map(|limit| limit.source.to_string());
        let until = found.until.map(|until| until.to_string());
        let most = found.nodes.map(|limit| limit.most);
        (
            most,
            source.unwrap_or_default(),
            until.unwrap_or_default().replace(":00Z", ""),
        )
    }

    #[test]
    fn an_entry_holds_from_its_beginning_for_its_duration_and_takes_the_place_of_the_limit() {
        let day = entry("day", "0 8 * * mon-fri", "10h", &json!({ "nodes": 50 }));
        let peak = entry("", "0 9 * * *", "1h", &json!({ "nodes": 70 }));
        let release = entry("release", "30 9 27 11 *", "2h", &json!({ "nodes": 20 }));
        let of = policy(&json!({ "nodes": 10 }), &json!([day, peak, release]));
        let (own, by_day) = ("limits", "calendar[0] (day).limits");
        let table = [
            ("27T07:59", 10, own, "2026-11-27T08:00"),
            ("27T08:00", 50, by_day, "2026-11-27T09:00"),
            // The lowest of those that hold.
            ("27T09:00", 50, by_day, "2026-11-27T09:30"),
            (
                "27T09:30",
                20,
                "calendar[2] (release).limits",
                "2026-11-27T10:00",
            ),
            ("27T11:30", 50, by_day, "2026-11-27T18:00"),
            ("27T17:59", 50, by_day, "2026-11-27T18:00"),
            ("27T18:00", 10, own, "2026-11-28T09:00"),
            // On a Saturday only the peak, which is higher than the limit of the policy.
            ("28T09:10", 70, "calendar[1] ().limits", "2026-11-28T10:00"),
        ];
        for (time, most, source, until) in table {
            let found = nodes(&of, time);
            assert_eq!(
                found,
                (Some(most), source.to_owned(), until.to_owned()),
                "{time}"
            );
        }
    }

    #[test]
    fn what_an_entry_does_not_limit_stays_as_it_is() {
        let night = entry("night", "0 20 * * *", "10h", &json!({ "nodes": 3 }));
        let of = policy(&json!({ "hourlyPrice": "2" }), &json!([night]));
        let at = |time: &str| of.limits_in_force(time.parse().unwrap());
        let (by_day, by_night) = (at("2026-11-27T12:00:00Z"), at("2026-11-27T23:00:00Z"));
        assert_eq!(by_day.nodes, None);
        assert_eq!(by_night.nodes.map(|limit| limit.most), Some(3));
        for found in [by_day.hourly_price, by_night.hourly_price] {
            let found = found.map(|limit| (limit.most, limit.source));
            assert_eq!(found, Some((MicroUsd(2_000_000), LimitSource::Limits)));
        }
    }

    #[test]
    fn an_entry_whose_time_cannot_be_read_holds_always_and_allows_nothing() {
        let limits = json!({ "nodes": 50, "hourlyPrice": "9" });
        for (schedule, duration) in [
            ("at noon", "10h"),
            ("0 8 * * *", "ten hours"),
            ("0 8 * * *", "0s"),
            ("0 8 30 2 *", "1h"),
            ("@every 2h", "1h"),
            ("", ""),
        ] {
            let odd = entry("odd", schedule, duration, &limits);
            let own = json!({ "nodes": 10, "hourlyPrice": "1" });
            let of = policy(&own, &json!([odd]));
            let found = of.limits_in_force(Timestamp::UNIX_EPOCH);
            let source = LimitSource::Calendar {
                at: 0,
                name: Some("odd".into()),
            };
            let nothing = LimitInForce { most: 0, source };
            let case = format!("{schedule:?} for {duration:?}");
            assert_eq!(found.nodes.as_ref(), Some(&nothing), "{case}");
            let price = found.hourly_price.map(|limit| limit.most);
            assert_eq!(price, Some(MicroUsd(0)), "{case}");
            assert_eq!(found.until, None, "{case}");
        }
    }
}
