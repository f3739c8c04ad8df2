//! CapacityBuffers that are stored and keep no room, or not when their author thinks.

use serde_json::Value;

use super::text;
use crate::issues::{IssueCollector, meant};
use crate::karpenter::capacitybuffer::{
    ACTIVE_CAPACITY, BufferLearningError, BufferScheduleError, LearningMode, buffer_learning,
    buffer_window, is_foreign_strategy,
};
use crate::labels;
use crate::values::RecurrenceError;

/// The annotations that say when a buffer keeps room.
pub(super) fn schedule(object: &Value, sink: &mut IssueCollector) {
    let annotations = object.pointer("/metadata/annotations");
    let text = |key: &str| annotations?.get(key)?.as_str();
    let keys = [labels::BUFFER_SCHEDULE, labels::BUFFER_DURATION];
    let [schedule, duration] = keys.map(text);
    let Err(error) = buffer_window(schedule, duration) else {
        return;
    };
    let key = error.annotation();
    let field = format!("metadata.annotations[{key:?}]");
    let value = Value::from(text(key));
    let in_utc = "write minute, hour, day of month, month and day of week in UTC, such as \"0 7 * * mon-fri\"";
    let (problem, fix) = match error {
        BufferScheduleError::Unusable(RecurrenceError::Schedule(error)) => (
            format!("cannot be read: {}", error.reason),
            in_utc.to_owned(),
        ),
        BufferScheduleError::Unusable(RecurrenceError::NoTimes(_)) => {
            ("has no times of its own".to_owned(), in_utc.to_owned())
        }
        BufferScheduleError::Unusable(RecurrenceError::Duration(_)) => (
            "is not a duration above zero".to_owned(),
            "write how long the room is kept, such as 11h".to_owned(),
        ),
        BufferScheduleError::Alone { missing, .. } => (
            format!("keeps no room without {missing}"),
            format!("add {missing}"),
        ),
    };
    sink.unusable(field, &value, problem, fix);
}

/// The annotations that say what a buffer learns from its workload. Returns whether its size follows from that.
pub(super) fn learning(object: &Value, sink: &mut IssueCollector) -> bool {
    let annotations = object.pointer("/metadata/annotations");
    let text = |key: &str| annotations?.get(key)?.as_str();
    let workload = object.pointer("/spec/scalableRef");
    let [mode, percentile] = [labels::BUFFER_LEARNING, labels::BUFFER_PERCENTILE].map(text);
    let has_workload = workload.is_some_and(|value| !value.is_null());
    let error = match buffer_learning(mode, percentile, has_workload) {
        Err(error) => error,
        Ok(learning) => {
            return learning.is_some_and(|learning| learning.mode == LearningMode::Apply);
        }
    };
    let modes = LearningMode::ALL.map(LearningMode::as_str);
    let (problem, fix) = match &error {
        BufferLearningError::UnknownMode(mode) => (
            "is neither observe nor apply".to_owned(),
            meant(mode, modes, || {
                "write observe to see what would be kept free".to_owned()
            }),
        ),
        BufferLearningError::BadPercentile(_) => (
            "is not a whole number from 1 to 100".to_owned(),
            "write 90".to_owned(),
        ),
        BufferLearningError::NoMode => (
            format!("has no effect without {}", labels::BUFFER_LEARNING),
            format!("add {}: observe", labels::BUFFER_LEARNING),
        ),
        BufferLearningError::NoWorkload => (
            "has no replicas to learn from: a PodTemplate has none".to_owned(),
            "use scalableRef, or remove the annotation".to_owned(),
        ),
    };
    let key = error.annotation();
    let field = format!("metadata.annotations[{key:?}]");
    sink.unusable(field, &Value::from(text(key)), problem, fix);
    false
}

/// What is wrong with the spec of a buffer. `learns`: its size follows from what it learned.
pub(super) fn spec(spec: &Value, learns: bool, sink: &mut IssueCollector) {
    let has = |name: &str| spec.get(name).is_some_and(|value| !value.is_null());
    if !has("podTemplateRef") && !has("scalableRef") {
        sink.unusable(
            "spec.scalableRef".to_owned(),
            &Value::Null,
            "but one of podTemplateRef and scalableRef is required",
            "add scalableRef: {apiGroup: apps, kind: Deployment, name: <name>}",
        );
    }
    if let Some(reference) = spec.get("scalableRef").filter(|value| value.is_object()) {
        let kinds = ["Deployment", "StatefulSet", "ReplicaSet"];
        let (kind, group) = (text(reference, "kind"), text(reference, "apiGroup"));
        if !kind.is_empty() && !kinds.contains(&kind) {
            sink.unusable(
                "spec.scalableRef.kind".to_owned(),
                &Value::from(kind),
                format!("is not one of {}", kinds.join(", ")),
                meant(kind, kinds, || {
                    "use podTemplateRef for other kinds".to_owned()
                }),
            );
        } else if !kind.is_empty() && group != "apps" {
            sink.unusable(
                "spec.scalableRef.apiGroup".to_owned(),
                reference.get("apiGroup").unwrap_or(&Value::Null),
                format!("is not the group of {kind}; apps is allowed"),
                "write apiGroup: apps (without a version)",
            );
        }
        if !learns && !has("replicas") && !has("percentage") && !has("limits") {
            sink.suspicious(
                "spec.replicas".to_owned(),
                &Value::Null,
                "and so are percentage and limits: the size of the buffer is undefined",
                "add percentage: 20, or replicas: 3",
            );
        }
    }
    if has("percentage") && !has("scalableRef") {
        sink.suspicious(
            "spec.percentage".to_owned(),
            spec.get("percentage").unwrap_or(&Value::Null),
            "has no effect: it is a percentage of the replicas of scalableRef, which is absent",
            "write replicas instead",
        );
    }
    let strategy = text(spec, "provisioningStrategy");
    let known = [ACTIVE_CAPACITY];
    if !strategy.is_empty() && !known.contains(&strategy) {
        let consequence = if is_foreign_strategy(strategy) {
            format!("is left to its own controller; mortise serves {ACTIVE_CAPACITY}")
        } else {
            format!("is not served, and the buffer gets no room; {ACTIVE_CAPACITY} is")
        };
        sink.suspicious(
            "spec.provisioningStrategy".to_owned(),
            &Value::from(strategy),
            consequence,
            meant(strategy, known, || "take it out".to_owned()),
        );
    }
}
