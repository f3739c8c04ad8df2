//! NodePoolPolicies that can be read and say nothing, or not what their author thinks.

use serde_json::Value;

use super::{list, no_time, requirements, schedule, text};
use crate::issues::IssueCollector;
use crate::labels::{self, WellKnown};
use crate::values::GoDuration;

fn calendar(spec: &Value, sink: &mut IssueCollector) {
    for (n, entry) in list(spec, "calendar") {
        let at = format!("spec.calendar[{n}]");
        schedule(
            entry,
            &at,
            "an entry that never begins would allow nothing",
            sink,
        );
        no_time(entry, &at, sink, |field, value, sink| {
            sink.unusable(
                field,
                value,
                "ends as soon as it begins; a duration of at least 1m is allowed",
                "write how long it holds, such as 8h",
            );
        });
        let limits = entry.get("limits").filter(|limits| limits.is_object());
        let is_empty = |limits: &Value| {
            let set = |name: &str| limits.get(name).is_some_and(|value| !value.is_null());
            !set("nodes") && !set("hourlyPrice")
        };
        if let Some(limits) = limits.filter(|limits| is_empty(limits)) {
            sink.suspicious(
                format!("{at}.limits"),
                limits,
                "limits nothing, so that the entry changes nothing",
                "add nodes: 10 or hourlyPrice: \"12.50\"",
            );
        }
    }
}

fn commitments(spec: &Value, well_known: &WellKnown, sink: &mut IssueCollector) {
    for (n, commitment) in list(spec, "commitments") {
        let at = format!("spec.commitments[{n}]");
        requirements(commitment, &at, well_known, true, sink);
        if commitment.get("instances").is_some_and(Value::is_number)
            && let Some(discount) = commitment.get("discount").filter(|of| of.is_string())
        {
            sink.suspicious(
                format!("{at}.discount"),
                discount,
                "changes nothing: instances are paid for whatever they cost on-demand",
                "take it out",
            );
        }
        let on_demand = Value::from("on-demand");
        for (n, requirement) in list(commitment, "requirements") {
            let listed = requirement.get("values").and_then(Value::as_array);
            let has = listed.is_some_and(|values| values.contains(&on_demand));
            let excludes = match text(requirement, "operator") {
                "In" => !has,
                "NotIn" => has,
                operator => operator == "DoesNotExist",
            };
            if text(requirement, "key") == labels::CAPACITY_TYPE && excludes {
                sink.suspicious(
                    format!("{at}.requirements[{n}]"),
                    requirement,
                    "excludes on-demand nodes, and a commitment pays for no others",
                    "take it out",
                );
            }
        }
    }
}

/// What is wrong with the spec of a policy.
pub(super) fn spec(spec: &Value, well_known: &WellKnown, sink: &mut IssueCollector) {
    calendar(spec, sink);
    commitments(spec, well_known, sink);
    let spans = [
        (
            "/scaling/maxNewNodesPerWindow/window",
            "is no time at all, so that any number of nodes may be created; a duration of at least 1s is allowed",
            "write for example 10m",
        ),
        (
            "/disruption/drift/readyFor",
            "is no time at all, so that new nodes count before their pods have started; a duration of at least 1s is allowed",
            "write for example 2m",
        ),
    ];
    for (pointer, problem, fix) in spans {
        if let Some(text) = spec.pointer(pointer).and_then(Value::as_str)
            && GoDuration::parse(text).is_ok_and(|span| span.as_nanos() == 0)
        {
            let field = format!("spec{}", pointer.replace('/', "."));
            sink.unusable(field, &Value::from(text), problem, fix);
        }
    }
    if let Some(asked) = spec
        .pointer("/scaling/onDemand")
        .filter(|asked| asked.is_object())
    {
        let is_zero = |name: &str| asked.get(name).and_then(Value::as_i64).unwrap_or(0) == 0;
        if is_zero("baseCPU") && is_zero("percentageAboveBase") {
            sink.suspicious(
                "spec.scaling.onDemand".to_owned(),
                asked,
                "asks for no on-demand capacity",
                "add baseCPU: 8, or percentageAboveBase: 30",
            );
        }
    }
    let demands = [
        "/limits/hourlyPrice",
        "/limits/nodes",
        "/calendar/0",
        "/spending",
        "/commitments/0",
        "/scaling/maxNewNodesPerWindow",
        "/scaling/onDemand",
        "/scaling/zoneBalance",
        "/disruption/minimumUtilization",
        "/disruption/minimumSavingsPerMove",
        "/disruption/evictionCost",
        "/disruption/maxMovesPerDay",
        "/disruption/drift",
        "/disruption/expiration",
        "/disruption/pause",
    ];
    let set = |pointer: &&str| spec.pointer(pointer).is_some_and(|value| !value.is_null());
    if spec.is_object() && !demands.iter().any(set) {
        sink.suspicious(
            "spec.limits".to_owned(),
            spec.get("limits").unwrap_or(&Value::Null),
            "and nothing else of the policy asks anything of its NodePools",
            "add limits.hourlyPrice, limits.nodes, calendar, spending.perMonth, commitments, scaling.maxNewNodesPerWindow, scaling.onDemand, scaling.zoneBalance, disruption.minimumUtilization, disruption.minimumSavingsPerMove, disruption.evictionCost, disruption.maxMovesPerDay, disruption.drift, disruption.expiration or disruption.pause",
        );
    }
}
