//! What no definition can say about a single object: objects with such faults are stored, and then nothing is ever done
//! with them (`UnusablePool`), or something else than their author thinks (`Suspicious`).

mod capacity_buffer;
mod node_pool_policy;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use super::syntax::{is_label_key, is_label_value};
use crate::issues::{Found, IssueCollector, either, meant};
use crate::labels::{self, WellKnown};
use crate::nearest::nearest;
use crate::node_class::NodeClassRegistry;
use crate::requirements::Operator;
use crate::values::{CronSchedule, GoDuration, Quantity, stated_time};

/// Most items of a list that are checked. No list of a definition may be as long, where there is a limit; a node has no
/// use for as many taints.
const MOST_ITEMS: usize = 1_000;

/// What is wrong with an object beyond its definition.
pub(super) fn faults(
    classes: &NodeClassRegistry,
    kind: &str,
    object: &Value,
    well_known: &WellKnown,
) -> Found {
    let mut sink = IssueCollector::default();
    let spec = object.get("spec").unwrap_or(&Value::Null);
    match kind {
        "NodePool" => {
            pause(object, &mut sink);
            pool(spec, well_known, &mut sink);
        }
        "NodeClaim" => {
            pause(object, &mut sink);
            taints(spec, "spec", &mut sink);
            requirements(spec, "spec", well_known, true, &mut sink);
        }
        "NodeOverlay" => overlay(spec, well_known, &mut sink),
        "CapacityBuffer" => {
            capacity_buffer::schedule(object, &mut sink);
            let learns = capacity_buffer::learning(object, &mut sink);
            capacity_buffer::spec(spec, learns, &mut sink);
        }
        "NodePoolPolicy" => node_pool_policy::spec(spec, well_known, &mut sink),
        _ => {
            if let Some(class) = classes.of_kind(kind) {
                class.issues(spec, &mut sink);
            }
        }
    }
    sink.into_found()
}

fn list<'a>(value: &'a Value, name: &str) -> impl Iterator<Item = (usize, &'a Value)> {
    value
        .get(name)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .take(MOST_ITEMS)
        .enumerate()
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// The end of a pause that cannot be read, or of none.
fn pause(object: &Value, sink: &mut IssueCollector) {
    let Some(annotations) = object.pointer("/metadata/annotations") else {
        return;
    };
    let (Some(until), start) = (
        annotations.get(labels::PAUSE_UNTIL),
        annotations.get(labels::PAUSE),
    ) else {
        return;
    };
    let field = format!("metadata.annotations[{:?}]", labels::PAUSE_UNTIL);
    let is_time = |text: &str| stated_time(text).is_some();
    if start.is_none() {
        let fix = format!("add {} with the reason", labels::PAUSE);
        let problem = format!("pauses nothing without {}", labels::PAUSE);
        sink.suspicious(field, until, problem, fix);
    } else if !until.as_str().is_some_and(is_time) {
        let problem = "is not a time, so that the pause does not end";
        sink.suspicious(
            field,
            until,
            problem,
            "write for example 2026-11-28T06:00:00Z",
        );
    }
}

fn pool(spec: &Value, well_known: &WellKnown, sink: &mut IssueCollector) {
    let template = spec.get("template").unwrap_or(&Value::Null);
    let given = template
        .pointer("/metadata/labels")
        .and_then(Value::as_object);
    for (key, value) in given.into_iter().flatten().take(MOST_ITEMS) {
        let field = format!("spec.template.metadata.labels[{key:?}]");
        label_key(&field, key, well_known, false, sink);
        if value.as_str().is_some_and(|text| !is_label_value(text)) {
            sink.unusable(field, value, NO_LABEL_VALUE, "write for example team-a");
        }
    }
    let annotations = template.pointer("/metadata/annotations");
    let given = annotations.and_then(Value::as_object);
    for (key, value) in given.into_iter().flatten() {
        if labels::is_own_state(key) {
            let field = format!("spec.template.metadata.annotations[{key:?}]");
            let allowed = labels::REGISTRATION_HOOKS;
            let problem = format!(
                "is written by the service on single nodes and claims, and must not be the same on all of a pool; of the annotations in {} only {allowed} is allowed in a template",
                labels::OWN
            );
            sink.unusable(field, value, problem, "remove it");
        }
    }
    let inner = template.get("spec").unwrap_or(&Value::Null);
    taints(inner, "spec.template.spec", sink);
    requirements(inner, "spec.template.spec", well_known, false, sink);
    for (n, budget) in list(spec.get("disruption").unwrap_or(&Value::Null), "budgets") {
        let at = format!("spec.disruption.budgets[{n}]");
        schedule(
            budget,
            &at,
            "a budget that never starts would block indefinitely",
            sink,
        );
        no_time(budget, &at, sink, |field, value, sink| {
            sink.suspicious(
                field,
                value,
                "ends as soon as it begins, so that the budget never holds",
                "write how long it holds, such as 8h",
            );
        });
    }
    let limits = spec.get("limits").and_then(Value::as_object);
    for (name, limit) in limits.into_iter().flatten().take(MOST_ITEMS) {
        if limit
            .as_str()
            .and_then(|text| Quantity::parse(text).ok())
            .is_some_and(|limit| limit.signum() < 0)
        {
            sink.unusable(
                format!("spec.limits.{name}"),
                limit,
                "is negative, so that no node is ever allowed; quantities of 0 or more are allowed",
                "write 0 to stop launches, or take the limit out for no limit",
            );
        }
    }
}

const NO_LABEL_VALUE: &str = "is not a label value: at most 63 letters, digits, '-', '_' and '.', letters or digits at both ends";

fn label_key(
    field: &str,
    key: &str,
    well_known: &WellKnown,
    of_claim: bool,
    sink: &mut IssueCollector,
) {
    let value = Value::from(key);
    if key == labels::NODEPOOL && !of_claim {
        sink.unusable(
            field.to_owned(),
            &value,
            "is set for each node; any other label is allowed",
            "take it out: each node gets it with the name of its pool",
        );
    } else if !is_label_key(key) {
        sink.unusable(
            field.to_owned(),
            &value,
            "is not a qualified name: at most 63 letters, digits, '-', '_' and '.', with a lower-case domain and '/' before it or not",
            "write for example example.com/team",
        );
    } else if well_known.is_restricted(labels::normalize(key)) {
        let allowed: Vec<&str> = well_known.keys().map(|known| &**known).collect();
        let domain = labels::domain(key);
        let of_domain: Vec<&str> = allowed
            .iter()
            .copied()
            .filter(|known| labels::domain(known) == domain)
            .collect();
        sink.unusable(
            field.to_owned(),
            &value,
            format!(
                "is in a domain that is not yours; allowed in it: {}",
                if of_domain.is_empty() {
                    "nothing".to_owned()
                } else {
                    of_domain.join(", ")
                }
            ),
            meant(key, allowed, || {
                format!(
                    "use a domain of your own, such as example.com/{}",
                    key.rsplit('/').next().unwrap_or_default()
                )
            }),
        );
    }
}

fn taints(spec: &Value, at: &str, sink: &mut IssueCollector) {
    let mut seen: BTreeMap<(String, String), String> = BTreeMap::new();
    for name in ["taints", "startupTaints"] {
        for (n, taint) in list(spec, name) {
            let field = format!("{at}.{name}[{n}]");
            let key = text(taint, "key");
            if !key.is_empty() && !is_label_key(key) {
                sink.unusable(
                    format!("{field}.key"),
                    &Value::from(key),
                    "is not a qualified name: at most 63 letters, digits, '-', '_' and '.', with a lower-case domain and '/' before it or not",
                    "write for example example.com/dedicated",
                );
            }
            let value = text(taint, "value");
            if !is_label_value(value) {
                sink.unusable(
                    format!("{field}.value"),
                    &Value::from(value),
                    NO_LABEL_VALUE,
                    "write for example team-a",
                );
            }
            let id = (key.to_owned(), text(taint, "effect").to_owned());
            if let Some(first) = seen.get(&id) {
                sink.unusable(
                    field,
                    &Value::from(format!("{}:{}", id.0, id.1)),
                    format!("is there already ({first}): each key and effect is allowed once in taints and startupTaints together"),
                    "take one of the two out, or give it another effect",
                );
            } else {
                seen.insert(id, field);
            }
        }
    }
}

fn requirements(
    spec: &Value,
    at: &str,
    well_known: &WellKnown,
    of_claim: bool,
    sink: &mut IssueCollector,
) {
    for (n, requirement) in list(spec, "requirements") {
        let field = format!("{at}.requirements[{n}]");
        let key = text(requirement, "key");
        label_key(&format!("{field}.key"), key, well_known, of_claim, sink);
        let values: Vec<&str> = requirement
            .get("values")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let operator = text(requirement, "operator").parse::<Operator>().ok();
        for value in values.iter().filter(|value| !is_label_value(value)) {
            if sink.is_full() {
                break;
            }
            sink.unusable(
                format!("{field}.values"),
                &Value::from(*value),
                NO_LABEL_VALUE,
                format!("write a value that a node's label {key} can have"),
            );
        }
        if let Some(operator @ (Operator::Exists | Operator::DoesNotExist)) = operator
            && !values.is_empty()
        {
            sink.suspicious(
                format!("{field}.values"),
                &Value::from(values.clone()),
                format!(
                    "are ignored: operator {} on {key} takes none",
                    operator.as_str()
                ),
                "take values out, or use operator In (or NotIn)",
            );
        }
        if let Some(known) = well_known.known_values(labels::normalize(key))
            && operator == Some(Operator::In)
            && !values.is_empty()
        {
            closed_values(requirement, &field, &values, known, sink);
        }
    }
}

/// Values of a label that can have no others than the `known` ones. Others do no harm next to enough of these.
fn closed_values(
    requirement: &Value,
    field: &str,
    values: &[&str],
    known: &[Arc<str>],
    sink: &mut IssueCollector,
) {
    let known: Vec<&str> = known.iter().map(|each| &**each).collect();
    let (usable, unknown): (Vec<&str>, Vec<&str>) =
        values.iter().partition(|value| known.contains(value));
    let near = unknown.iter().find_map(|value| nearest(value, &known));
    let meant = near.map(|near| format!("did you mean \"{near}\"?"));
    if usable.is_empty() {
        sink.unusable(
            format!("{field}.values"),
            &Value::from(values.to_vec()),
            format!("has none of {}", known.join(", ")),
            meant.unwrap_or_else(|| format!("write {}", either(&known))),
        );
        return;
    }
    let least = requirement.get("minValues").and_then(Value::as_u64);
    // Fewer values than minValues are what the definition refuses.
    if least.is_some_and(|least| (usable.len() as u64) < least) && !unknown.is_empty() {
        let count = usable.len();
        sink.unusable(
            format!("{field}.minValues"),
            requirement.get("minValues").unwrap_or(&Value::Null),
            format!(
                "is more than the values that exist: of {}, {count} {} one of {}",
                values.join(", "),
                if count == 1 { "is" } else { "are" },
                known.join(", ")
            ),
            meant.unwrap_or_else(|| format!("lower minValues to {count}")),
        );
    }
}

/// The beginning of a budget or of an entry of a calendar; `never` says what follows if there is none.
fn schedule(of: &Value, at: &str, never: &str, sink: &mut IssueCollector) {
    let Some(cron) = of.get("schedule").and_then(Value::as_str) else {
        return;
    };
    let field = format!("{at}.schedule");
    match CronSchedule::parse(cron) {
        Err(_) if cron.starts_with("TZ=") || cron.starts_with("CRON_TZ=") => sink.unusable(
            field,
            &Value::from(cron),
            "names a time zone, but schedules are in UTC only",
            "take the time zone out and move the hours to UTC",
        ),
        Err(error) => sink.unusable(
            field,
            &Value::from(cron),
            format!("cannot be read: {}", error.reason),
            "write minute, hour, day of month, month and day of week in UTC, such as \"0 9 * * 1-5\"",
        ),
        // From a fixed day on, so that the answer never depends on when it is asked.
        Ok(schedule) if schedule.next(Timestamp::UNIX_EPOCH).is_none() => sink.unusable(
            field,
            &Value::from(cron),
            format!("never occurs: there is no such day; {never}"),
            "use a day that the month has, such as \"0 0 28 2 *\"",
        ),
        Ok(_) => {}
    }
}

/// Says what follows if the `duration` of a budget or of an entry of a calendar is no time at all.
fn no_time(
    of: &Value,
    at: &str,
    sink: &mut IssueCollector,
    say: impl FnOnce(String, &Value, &mut IssueCollector),
) {
    let duration = text(of, "duration");
    if GoDuration::parse(duration).is_ok_and(|duration| duration.as_nanos() == 0) {
        say(format!("{at}.duration"), &Value::from(duration), sink);
    }
}

fn overlay(spec: &Value, well_known: &WellKnown, sink: &mut IssueCollector) {
    requirements(spec, "spec", well_known, true, sink);
    let changes = ["price", "priceAdjustment", "capacity"];
    let set = |name: &&str| spec.get(*name).is_some_and(|value| !value.is_null());
    if spec.is_object() && !changes.iter().any(set) {
        sink.suspicious(
            "spec.price".to_owned(),
            &Value::Null,
            format!(
                "and so are the others of {}: the overlay changes nothing",
                changes.join(", ")
            ),
            "add priceAdjustment: -10%, price or capacity",
        );
    }
}
