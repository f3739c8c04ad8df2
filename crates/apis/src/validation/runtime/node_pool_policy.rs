//! NodePoolPolicies that can be read and say nothing, or not what their author thinks.

use serde_json::Value;

use super::{list, no_time, schedule};
use crate::issues::IssueCollector;
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

/// What is wrong with the spec of a policy.
pub(super) fn spec(spec: &Value, sink: &mut IssueCollector) {
    calendar(spec, sink);
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
        "/scaling/maxNewNodesPerWindow",
        "/scaling/onDemand",
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
            "add limits.hourlyPrice, limits.nodes, calendar, spending.perMonth, scaling.maxNewNodesPerWindow, scaling.onDemand, disruption.minimumUtilization, disruption.minimumSavingsPerMove, disruption.evictionCost, disruption.maxMovesPerDay, disruption.drift, disruption.expiration or disruption.pause",
        );
    }
}
