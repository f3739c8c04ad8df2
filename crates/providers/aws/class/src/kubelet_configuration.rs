//! What is wrong with `spec.kubelet`, in the words of the reference implementation: runbooks search conditions for them.
//!
//! [`crate::kubelet`] checks the same for people who write manifests, with advice. This is for the status of a stored class.

use mortise_apis::values::{GoDuration, Quantity};
use serde_json::{Map, Value};

use crate::kubelet::{RESERVABLE, SIGNALS, UNDERSTOOD};
use crate::kubelet_fields::{FieldType, field_type};

/// What a JSON value is called in decoding errors.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Everything that is wrong with the settings, one message each; empty for settings that a kubelet takes.
#[must_use]
pub fn faults(kubelet: &Map<String, Value>) -> Vec<String> {
    if let Some(fault) = kubelet
        .iter()
        .find_map(|(name, value)| undecodable(name, value))
    {
        return vec![format!("spec.kubelet: {fault}")];
    }
    let mut all: Vec<String> = kubelet
        .keys()
        .filter(|name| field_type(name).is_none())
        .map(|name| format!("spec.kubelet: unknown field {name:?}"))
        .collect();
    if kubelet.contains_key("registerWithTaints") {
        all.push("spec.kubelet.registerWithTaints: can't be set, Karpenter sets it from the NodeClaim's taints so the node registers unschedulable until it's ready".to_owned());
    }
    for name in ["evictionHard", "evictionSoft", "evictionMinimumReclaim"] {
        all.extend(entries(kubelet, name).filter_map(|(key, text)| threshold(name, key, text)));
    }
    let periods = entries(kubelet, "evictionSoftGracePeriod");
    all.extend(periods.filter_map(|(key, text)| grace_period(key, text)));
    all.extend(unpaired(kubelet, "evictionSoft", "evictionSoftGracePeriod"));
    all.extend(unpaired(kubelet, "evictionSoftGracePeriod", "evictionSoft"));
    for name in ["kubeReserved", "systemReserved"] {
        all.extend(entries(kubelet, name).filter_map(|(key, text)| reservation(name, key, text)));
    }
    all.extend(numbers(kubelet));
    all
}

/// Why a field does not decode.
fn undecodable(name: &str, value: &Value) -> Option<String> {
    if value.is_null() || (name == "maxPods" && value.is_string()) {
        return None; // a text is an expression
    }
    let field_type = field_type(name)?;
    let wrong = |value: &Value, expected: &str| {
        format!(
            "json: cannot unmarshal {} into Go struct field KubeletConfiguration.{name} of type {expected}",
            kind(value)
        )
    };
    let not_text = |each: &&Value| !matches!(each, Value::String(_) | Value::Null);
    match field_type {
        FieldType::Structure => None,
        FieldType::Duration => match value.as_str() {
            None => Some(format!(
                "json: cannot unmarshal {} into Go value of type string",
                kind(value)
            )),
            Some(text) if GoDuration::parse(text).is_err() => {
                Some(format!("time: invalid duration {text:?}"))
            }
            Some(_) => None,
        },
        FieldType::Int32 | FieldType::Int64 => {
            let (expected, fits) = match field_type {
                FieldType::Int32 => (
                    "int32",
                    value.as_i64().is_some_and(|n| i32::try_from(n).is_ok()),
                ),
                _ => ("int64", value.as_i64().is_some()),
            };
            match value {
                _ if fits => None,
                Value::Number(number) => Some(format!(
                    "json: cannot unmarshal number {number} into Go struct field KubeletConfiguration.{name} of type {expected}"
                )),
                other => Some(wrong(other, expected)),
            }
        }
        FieldType::Bool => (!value.is_boolean()).then(|| wrong(value, "bool")),
        FieldType::Text => (!value.is_string()).then(|| wrong(value, "string")),
        FieldType::Texts => match value {
            Value::Array(items) => items
                .iter()
                .find(not_text)
                .map(|each| wrong(each, "string")),
            other => Some(wrong(other, "[]string")),
        },
        FieldType::TextByName => match value {
            Value::Object(items) => items
                .values()
                .find(not_text)
                .map(|each| wrong(each, "string")),
            other => Some(wrong(other, "map[string]string")),
        },
        FieldType::BoolByName => match value {
            Value::Object(items) => items
                .values()
                .find(|each| !matches!(each, Value::Bool(_) | Value::Null))
                .map(|each| wrong(each, "bool")),
            other => Some(wrong(other, "map[string]bool")),
        },
    }
}

/// The texts of a map-valued field.
fn entries<'a>(
    kubelet: &'a Map<String, Value>,
    name: &str,
) -> impl Iterator<Item = (&'a str, &'a str)> {
    let map = kubelet.get(name).and_then(Value::as_object);
    map.into_iter()
        .flatten()
        .map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()))
}

fn not_one_of(name: &str, key: &str, what: &str, known: &[&str]) -> String {
    format!(
        "spec.kubelet.{name}: {key:?} isn't {what}, must be one of {}",
        known.join(", ")
    )
}

fn threshold(name: &str, key: &str, text: &str) -> Option<String> {
    if !SIGNALS.contains(&key) {
        return Some(not_one_of(name, key, "an eviction signal", &SIGNALS));
    }
    let at = format!("spec.kubelet.{name}[{key}]: {text:?}");
    let neither = || Some(format!("{at} must be a percentage or a resource quantity"));
    if let Some(percent) = text.strip_suffix('%') {
        let fits = percent
            .parse::<f64>()
            .is_ok_and(|percent| (0.0..=100.0).contains(&percent));
        return if fits { None } else { neither() };
    }
    match Quantity::parse(text) {
        Ok(amount) if amount.signum() < 0 => {
            Some(format!("{at} can't be a negative resource quantity"))
        }
        Ok(_) => None,
        Err(_) => neither(),
    }
}

fn grace_period(key: &str, text: &str) -> Option<String> {
    let name = "evictionSoftGracePeriod";
    if !SIGNALS.contains(&key) {
        return Some(not_one_of(name, key, "an eviction signal", &SIGNALS));
    }
    let at = format!("spec.kubelet.{name}[{key}]: {text:?}");
    match GoDuration::parse(text) {
        Ok(period) if period.as_nanos() < 0 => Some(format!("{at} can't be a negative duration")),
        Ok(_) => None,
        Err(_) => Some(format!("{at} must be a duration")),
    }
}

/// Signals of a field that its counterpart lacks.
fn unpaired(kubelet: &Map<String, Value>, name: &str, other: &str) -> Vec<String> {
    let has = |key: &str| entries(kubelet, other).any(|(each, _)| each == key);
    entries(kubelet, name)
        .filter(|(key, _)| !has(key))
        .map(|(key, _)| format!("spec.kubelet.{name}[{key}]: has no matching {other}"))
        .collect()
}

fn reservation(name: &str, key: &str, text: &str) -> Option<String> {
    if !RESERVABLE.contains(&key) {
        return Some(not_one_of(name, key, "a reservable resource", &RESERVABLE));
    }
    text.starts_with('-').then(|| {
        format!("spec.kubelet.{name}[{key}]: {text:?} can't be a negative resource quantity")
    })
}

fn numbers(kubelet: &Map<String, Value>) -> Vec<String> {
    let number = |name: &str| kubelet.get(name).and_then(Value::as_i64);
    let (low, high) = ("imageGCLowThresholdPercent", "imageGCHighThresholdPercent");
    let mut all: Vec<String> = [high, low]
        .into_iter()
        .filter_map(|name| {
            let value = number(name).filter(|value| !(0..=100).contains(value))?;
            Some(format!(
                "spec.kubelet.{name}: {value} must be between 0 and 100"
            ))
        })
        .collect();
    if let (Some(below), Some(above)) = (number(low), number(high))
        && above <= below
    {
        all.push(format!(
            "spec.kubelet.{high}: {above} must be greater than {low} {below}"
        ));
    }
    all.extend(
        ["evictionMaxPodGracePeriod", "maxPods", "podsPerCore"]
            .into_iter()
            .filter_map(|name| {
                let value = number(name).filter(|value| *value < 0)?;
                Some(format!("spec.kubelet.{name}: {value} can't be negative"))
            }),
    );
    all
}

/// Settings of the class that user data of an image family cannot carry; `None` when it carries all.
#[must_use]
pub fn unsupported(family: &str, kubelet: &Map<String, Value>) -> Option<String> {
    if matches!(family, "AL2023" | "Custom") {
        return None;
    }
    let dropped: Vec<&str> = kubelet
        .keys()
        .map(String::as_str)
        .filter(|name| {
            !UNDERSTOOD.contains(name) || (family == "Bottlerocket" && *name == "podsPerCore")
        })
        .collect();
    if !dropped.is_empty() {
        return Some(format!(
            "spec.kubelet has fields not applied by the {family} AMI family that would be silently dropped: {}",
            dropped.join(", ")
        ));
    }
    let addresses = kubelet.get("clusterDNS").and_then(Value::as_array)?.len();
    (addresses > 1).then(|| {
        format!("spec.kubelet.clusterDNS: the {family} AMI family doesn't accept multiple entries, only one, but {addresses} were set")
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(kubelet: &Value) -> Vec<String> {
        faults(kubelet.as_object().unwrap())
    }

    #[test]
    fn faults_are_named_as_users_know_them() {
        for (kubelet, fault) in [
            (
                json!({ "maxPods": 2_147_483_648_i64 }),
                "spec.kubelet: json: cannot unmarshal number 2147483648 into Go struct field KubeletConfiguration.maxPods of type int32",
            ),
            (
                json!({ "systemReserved": { "cpu": 100 } }),
                "spec.kubelet: json: cannot unmarshal number into Go struct field KubeletConfiguration.systemReserved of type string",
            ),
            (
                json!({ "systemReserved": { "gpu": "1" } }),
                "spec.kubelet.systemReserved: \"gpu\" isn't a reservable resource, must be one of cpu, memory, ephemeral-storage, pid",
            ),
            (
                json!({ "evictionHard": { "memory.available": "-500Mi" } }),
                "spec.kubelet.evictionHard[memory.available]: \"-500Mi\" can't be a negative resource quantity",
            ),
            (
                json!({ "evictionHard": { "memory.available": "105%" } }),
                "spec.kubelet.evictionHard[memory.available]: \"105%\" must be a percentage or a resource quantity",
            ),
            (
                json!({ "evictionSoft": { "memory.available": "5%" } }),
                "spec.kubelet.evictionSoft[memory.available]: has no matching evictionSoftGracePeriod",
            ),
            (
                json!({ "shutdownGracePeriod": "abc" }),
                "spec.kubelet: time: invalid duration \"abc\"",
            ),
            (
                json!({ "MaxPods": 10 }),
                "spec.kubelet: unknown field \"MaxPods\"",
            ),
            (
                json!({ "imageGCLowThresholdPercent": -1 }),
                "spec.kubelet.imageGCLowThresholdPercent: -1 must be between 0 and 100",
            ),
        ] {
            assert_eq!(found(&kubelet), [fault], "{kubelet}");
        }
    }

    #[test]
    fn valid_settings_have_no_fault() {
        for kubelet in [
            json!({ "maxPods": "vcpus * 10", "podsPerCore": null }),
            json!({ "kubeReserved": { "pid": "x y" }, "registryPullQPS": 10 }),
            json!({ "evictionHard": { "memory.available": "5%" }, "topologyManagerPolicy": "single-numa-node" }),
        ] {
            assert_eq!(found(&kubelet), [""; 0], "{kubelet}");
        }
    }

    #[test]
    fn families_say_what_they_drop() {
        let dropped =
            |family: &str, kubelet: Value| unsupported(family, kubelet.as_object().unwrap());
        assert_eq!(dropped("AL2023", json!({ "registryPullQPS": 1 })), None);
        assert_eq!(
            dropped("Bottlerocket", json!({ "podsPerCore": 1, "maxPods": 2 })).unwrap(),
            "spec.kubelet has fields not applied by the Bottlerocket AMI family that would be silently dropped: podsPerCore"
        );
        assert_eq!(
            dropped(
                "Windows2022",
                json!({ "clusterDNS": ["1.1.1.1", "2.2.2.2"] })
            )
            .unwrap(),
            "spec.kubelet.clusterDNS: the Windows2022 AMI family doesn't accept multiple entries, only one, but 2 were set"
        );
    }
}
