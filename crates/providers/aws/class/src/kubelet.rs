//! `spec.kubelet` of EC2NodeClass: an open object in the definition, so that nothing but this checks it before an
//! instance is launched.

use mortise_apis::issues::{IssueCollector, meant, quoted};
use mortise_apis::values::{GoDuration, Quantity};
use serde_json::{Map, Value};

use crate::hash::resolved_ami_family;
use crate::kubelet_fields::{FieldType, field_type, names};
use crate::spec::Ec2NodeClassSpec;

/// What can be short on a node.
pub(crate) const SIGNALS: [&str; 6] = [
    "memory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "pid.available",
];
pub(crate) const RESERVABLE: [&str; 4] = ["cpu", "memory", "ephemeral-storage", "pid"];

/// Fields that every image family understands.
pub(crate) const UNDERSTOOD: [&str; 12] = [
    "clusterDNS",
    "cpuCFSQuota",
    "evictionHard",
    "evictionMaxPodGracePeriod",
    "evictionSoft",
    "evictionSoftGracePeriod",
    "imageGCHighThresholdPercent",
    "imageGCLowThresholdPercent",
    "kubeReserved",
    "maxPods",
    "podsPerCore",
    "systemReserved",
];

/// Adds what is wrong with the kubelet's settings of a class.
pub(crate) fn faults(spec: &Value, sink: &mut IssueCollector) {
    let Some(kubelet) = spec.get("kubelet").and_then(Value::as_object) else {
        return;
    };
    let at = |name: &str| format!("spec.kubelet.{name}");
    for (name, value) in kubelet {
        if sink.is_full() {
            return;
        }
        field(name, value, &at(name), sink);
    }
    for (soft, other) in [
        ("evictionSoft", "evictionSoftGracePeriod"),
        ("evictionSoftGracePeriod", "evictionSoft"),
    ] {
        let signals = |name: &str| kubelet.get(name).and_then(Value::as_object);
        for (signal, value) in signals(soft).into_iter().flatten() {
            if sink.is_full() {
                return;
            }
            if signals(other).is_none_or(|all| !all.contains_key(signal)) {
                sink.unusable(
                    format!("{}[{signal:?}]", at(soft)),
                    value,
                    format!("has no entry of the same signal in {other}; both are needed"),
                    format!(
                        "add {other}: {{{signal}: {}}}",
                        if other.ends_with("Period") {
                            "1m0s"
                        } else {
                            "10%"
                        }
                    ),
                );
            }
        }
    }
    let percent = |name: &str| kubelet.get(name).and_then(Value::as_i64);
    let (low, high) = ("imageGCLowThresholdPercent", "imageGCHighThresholdPercent");
    if let (Some(below), Some(above)) = (percent(low), percent(high))
        && below >= above
    {
        sink.unusable(
            at(high),
            &Value::from(above),
            format!("is not above {low} ({below}); anything above it is allowed"),
            format!("raise {high}, or lower {low}"),
        );
    }
    family_limits(spec, kubelet, sink);
}

fn field(name: &str, value: &Value, at: &str, sink: &mut IssueCollector) {
    match name {
        "registerWithTaints" => sink.unusable(
            at.to_owned(),
            value,
            "is set from the taints of the NodeClaim; no value is allowed here",
            "write the taints into the NodePool: spec.template.spec.taints",
        ),
        "evictionHard" | "evictionSoft" | "evictionMinimumReclaim" => thresholds(value, at, sink),
        "evictionSoftGracePeriod" => grace(value, at, sink),
        "kubeReserved" | "systemReserved" => reserved(value, at, sink),
        "imageGCHighThresholdPercent" | "imageGCLowThresholdPercent" => {
            if !value
                .as_i64()
                .is_some_and(|percent| (0..=100).contains(&percent))
            {
                sink.unusable(
                    at.to_owned(),
                    value,
                    "is not a percentage from 0 to 100",
                    "write for example 80",
                );
            }
        }
        // A text is an expression; null counts as nothing.
        "maxPods" if value.is_string() || value.is_null() => {}
        "maxPods" | "podsPerCore" | "evictionMaxPodGracePeriod" => {
            if !value
                .as_i64()
                .is_some_and(|count| (0..=i64::from(i32::MAX)).contains(&count))
            {
                sink.unusable(
                    at.to_owned(),
                    value,
                    "is not a whole number from 0 to 2147483647",
                    "write for example 110",
                );
            }
        }
        _ if field_type(name) == Some(FieldType::Duration) => {
            if value
                .as_str()
                .is_none_or(|text| GoDuration::parse(text).is_err())
            {
                sink.unusable(
                    at.to_owned(),
                    value,
                    "is not a duration with units h, m, s",
                    "write for example 30s",
                );
            }
        }
        _ if field_type(name).is_some() => {}
        _ => {
            sink.suspicious(
                at.to_owned(),
                value,
                format!(
                    "is not a supported kubelet field; all AMI families support {}",
                    UNDERSTOOD.join(", ")
                ),
                meant(name, names(), || "take it out".to_owned()),
            );
        }
    }
}

fn entries<'a>(
    value: &'a Value,
    at: &'a str,
    keys: &'static [&'static str],
    sink: &mut IssueCollector,
) -> Vec<(&'a String, &'a str)> {
    let Some(map) = value.as_object() else {
        sink.unusable(
            at.to_owned(),
            value,
            "is not a set of fields with texts",
            format!("write {}: \"...\"", keys.first().unwrap_or(&"")),
        );
        return Vec::new();
    };
    let mut texts = Vec::new();
    for (key, value) in map {
        if sink.is_full() {
            break;
        }
        if !keys.contains(&key.as_str()) {
            sink.unusable(
                format!("{at}[{key:?}]"),
                value,
                format!("has a name that is not one of {}", keys.join(", ")),
                meant(key, keys, || "take it out".to_owned()),
            );
        } else if let Some(text) = value.as_str() {
            texts.push((key, text));
        } else {
            sink.unusable(
                format!("{at}[{key:?}]"),
                value,
                "is not a text",
                format!(
                    "write it in quotes: \"{}\"",
                    quoted(value).trim_matches('"')
                ),
            );
        }
    }
    texts
}

fn thresholds(value: &Value, at: &str, sink: &mut IssueCollector) {
    for (signal, text) in entries(value, at, &SIGNALS, sink) {
        let percent = text.strip_suffix('%').map(|number| {
            number
                .parse::<f64>()
                .is_ok_and(|percent| (0.0..=100.0).contains(&percent))
        });
        let fits = percent
            .unwrap_or_else(|| Quantity::parse(text).is_ok_and(|amount| amount.signum() >= 0));
        if !fits {
            sink.unusable(
                format!("{at}[{signal:?}]"),
                &Value::from(text),
                "is neither a percentage from 0% to 100% nor a quantity of 0 or more",
                "write for example \"5%\" or \"500Mi\"",
            );
        }
    }
}

fn grace(value: &Value, at: &str, sink: &mut IssueCollector) {
    for (signal, text) in entries(value, at, &SIGNALS, sink) {
        if !GoDuration::parse(text).is_ok_and(|grace| grace.as_nanos() >= 0) {
            sink.unusable(
                format!("{at}[{signal:?}]"),
                &Value::from(text),
                "is not a duration of 0 or more with units h, m, s",
                "write for example \"1m30s\"",
            );
        }
    }
}

fn reserved(value: &Value, at: &str, sink: &mut IssueCollector) {
    for (resource, text) in entries(value, at, &RESERVABLE, sink) {
        // What is no quantity is an expression over the instance's size.
        if text.starts_with('-') {
            sink.unusable(
                format!("{at}[{resource:?}]"),
                &Value::from(text),
                "is negative; quantities of 0 or more are allowed",
                "write for example \"100m\"",
            );
        }
    }
}

/// Only AL2023 hands every field on.
fn family_limits(spec: &Value, kubelet: &Map<String, Value>, sink: &mut IssueCollector) {
    let Ok(typed) = serde_json::from_value::<Ec2NodeClassSpec>(spec.clone()) else {
        return;
    };
    let family = resolved_ami_family(&typed);
    if matches!(family, "AL2023" | "Custom") {
        return;
    }
    for (name, value) in kubelet {
        if sink.is_full() {
            return;
        }
        let passed = UNDERSTOOD.contains(&name.as_str())
            && !(family == "Bottlerocket" && name == "podsPerCore");
        if !passed && name != "registerWithTaints" {
            sink.unusable(
                format!("spec.kubelet.{name}"),
                value,
                format!("is not supported by AMI family {family}; AL2023 supports every field, {family} supports {}", UNDERSTOOD.join(", ")),
                "take it out, set it in userData, or use AL2023",
            );
        }
    }
    let dns = kubelet.get("clusterDNS");
    if dns
        .and_then(Value::as_array)
        .is_some_and(|all| all.len() > 1)
    {
        sink.unusable(
            "spec.kubelet.clusterDNS".to_owned(),
            dns.unwrap_or(&Value::Null),
            format!("must have one entry with AMI family {family}"),
            "keep one address",
        );
    }
}
