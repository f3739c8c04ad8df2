//! The extender's own entry in a KubeSchedulerConfiguration, field by field.

use mortise_apis::nearest::nearest;
use mortise_apis::values::GoDuration;
use serde_json::Value;

use super::EntryCheck;
use crate::lint::LintLevel;

/// A call that takes longer delays every pod behind it.
const LONGEST_TIMEOUT_MS: i64 = 1_000;
/// The shortest that a busy host keeps.
const SHORTEST_TIMEOUT_MS: i64 = 50;
/// Verbs of the recommended entry.
const VERBS: [(&str, &str, &str); 3] = [
    (
        "filterVerb",
        "filter",
        "nominations are not enforced, and terminating nodes get new pods",
    ),
    (
        "prioritizeVerb",
        "prioritize",
        "pods are not scheduled to their nominated nodes",
    ),
    (
        "preemptVerb",
        "preempt",
        "kube-scheduler may preempt pods on a terminating node",
    ),
];
/// Fields of an extender's entry.
const FIELDS: [&str; 12] = [
    "urlPrefix",
    "filterVerb",
    "preemptVerb",
    "prioritizeVerb",
    "weight",
    "bindVerb",
    "enableHTTPS",
    "tlsConfig",
    "httpTimeout",
    "nodeCacheCapable",
    "managedResources",
    "ignorable",
];

/// Checks one entry, in the order of its fields.
pub(super) fn check_entry(entry: &mut EntryCheck<'_>) {
    check_unknown_fields(entry);
    check_url_prefix(entry);
    check_verbs(entry);
    check_weight(entry);
    check_bind_verb(entry);
    check_tls(entry);
    check_timeout(entry);
    check_calls(entry);
}

fn check_unknown_fields(entry: &mut EntryCheck<'_>) {
    let names: Vec<String> = entry
        .value
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, _)| name.clone())
        .collect();
    for name in names.iter().filter(|name| !FIELDS.contains(&name.as_str())) {
        let fix = nearest(name, FIELDS).map_or_else(
            || format!("the fields are {}", FIELDS.join(", ")),
            |meant| format!("did you mean {meant}?"),
        );
        entry.report(
            LintLevel::Error,
            name,
            "is not a field of an extender: kube-scheduler does not start",
            fix,
        );
    }
}

fn check_url_prefix(entry: &mut EntryCheck<'_>) {
    let prefix = entry.text("urlPrefix").to_owned();
    if !prefix.starts_with("https://") {
        entry.report(
            LintLevel::Error,
            "urlPrefix",
            "only HTTPS is served, and enableHTTPS does not change the scheme",
            "begin it with https://",
        );
    }
    if !prefix.trim_end_matches('/').ends_with("/extender/v1") {
        entry.report(
            LintLevel::Error,
            "urlPrefix",
            "the paths are below /extender/v1",
            "end it with /extender/v1",
        );
    }
}

fn check_verbs(entry: &mut EntryCheck<'_>) {
    for (field, verb, cost) in VERBS {
        match entry.text(field) {
            "" => entry.report(
                LintLevel::Warning,
                field,
                format!("without it {cost}"),
                format!("write {verb}"),
            ),
            own if own == verb => {}
            _ => entry.report(
                LintLevel::Error,
                field,
                "there is no such path",
                format!("write {verb}"),
            ),
        }
    }
}

fn check_weight(entry: &mut EntryCheck<'_>) {
    match entry.get("weight").and_then(Value::as_i64) {
        _ if entry.text("prioritizeVerb").is_empty() => {}
        Some(weight) if weight <= 0 => entry.report(
            LintLevel::Error,
            "weight",
            "must be positive when prioritizeVerb is set: kube-scheduler does not start",
            "write 5",
        ),
        Some(1..=2) => entry.report(
            LintLevel::Warning,
            "weight",
            "at most 200 of 1,400 points: scores have little effect",
            "write 5",
        ),
        Some(weight) if weight > 20 => entry.report(
            LintLevel::Warning,
            "weight",
            "outweighs all plugins of kube-scheduler, including topology spread and affinity",
            "write 5",
        ),
        Some(_) => {}
        None => entry.report(
            LintLevel::Error,
            "weight",
            "is required when prioritizeVerb is set: kube-scheduler does not start",
            "write 5",
        ),
    }
}

fn check_bind_verb(entry: &mut EntryCheck<'_>) {
    if entry.get("bindVerb").is_some_and(|verb| verb != "") {
        entry.report(
            LintLevel::Error,
            "bindVerb",
            "mortise does not bind",
            "leave it out",
        );
    }
}

/// HTTPS, the CA of the service and the certificate of kube-scheduler.
fn check_tls(entry: &mut EntryCheck<'_>) {
    if entry.get("enableHTTPS") != Some(&Value::Bool(true)) {
        entry.report(
            LintLevel::Error,
            "enableHTTPS",
            "without it tlsConfig has no effect",
            "write true",
        );
    }
    let has = |entry: &EntryCheck<'_>, names: [&str; 2]| {
        names.iter().any(|name| {
            entry
                .get(&format!("tlsConfig.{name}"))
                .is_some_and(|value| value != "")
        })
    };
    if entry.get("tlsConfig.insecure") == Some(&Value::Bool(true)) {
        entry.report(
            LintLevel::Error,
            "tlsConfig.insecure",
            "connections are not authenticated",
            "remove it, and set caFile",
        );
    } else if !has(entry, ["caFile", "caData"]) {
        entry.report(
            LintLevel::Error,
            "tlsConfig.caFile",
            "without a CA kube-scheduler does not verify the server",
            "set the CA of the service's certificate",
        );
    }
    for names in [["certFile", "certData"], ["keyFile", "keyData"]] {
        if !has(entry, names) {
            let [file, _] = names;
            entry.report(
                LintLevel::Error,
                &format!("tlsConfig.{file}"),
                "callers without a client certificate get 403, and every call fails",
                "use the extender's client certificate and key",
            );
        }
    }
}

/// What a call carries, which pods are asked about, and what happens to them while the service is down.
fn check_calls(entry: &mut EntryCheck<'_>) {
    if entry.get("nodeCacheCapable") != Some(&Value::Bool(true)) {
        entry.report(LintLevel::Warning, "nodeCacheCapable", "every call contains full Node objects: megabytes instead of kilobytes, and kube-scheduler's scores ignore their pods", "write true");
    }
    if entry
        .get("managedResources")
        .and_then(Value::as_array)
        .is_some_and(|list| !list.is_empty())
    {
        entry.report(LintLevel::Warning, "managedResources", "the extender is called only for pods with these resources; nominations are not enforced for other pods", "leave it out");
    }
    if entry.get("ignorable") != Some(&Value::Bool(true)) {
        entry.report(
            LintLevel::Warning,
            "ignorable",
            "while mortise is unavailable no pod is scheduled, and no autoscaler launches nodes",
            "write true",
        );
    }
}

fn check_timeout(entry: &mut EntryCheck<'_>) {
    let text = entry.text("httpTimeout").to_owned();
    if entry.get("httpTimeout").is_none() {
        entry.report(
            LintLevel::Warning,
            "httpTimeout",
            "defaults to 5s: a hanging service delays every pod by this time",
            "write 300ms",
        );
        return;
    }
    let Ok(duration) = GoDuration::parse(&text) else {
        entry.report(
            LintLevel::Error,
            "httpTimeout",
            "is not a duration: kube-scheduler does not start",
            "write 300ms",
        );
        return;
    };
    let millis = duration.as_nanos() / 1_000_000;
    if millis > LONGEST_TIMEOUT_MS {
        entry.report(
            LintLevel::Warning,
            "httpTimeout",
            "a hanging service delays every pod by this time, at each call",
            "write 300ms",
        );
    } else if millis < SHORTEST_TIMEOUT_MS {
        entry.report(
            LintLevel::Warning,
            "httpTimeout",
            "a busy host does not respond in that time, and failed calls are ignored",
            "write 300ms",
        );
    }
}
