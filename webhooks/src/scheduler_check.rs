//! What in a KubeSchedulerConfiguration differs from the one that [`crate::manifests::scheduler_configuration`] writes, and what
//! each difference costs.

use std::fmt;

use mortise_core::nearest::nearest;
use mortise_core::values::GoDuration;
use serde_json::Value;

use crate::lint::LintLevel;

/// `apiVersion` that kube-scheduler reads.
const API_VERSION: &str = "kubescheduler.config.k8s.io/v1";
/// A call that takes longer delays every pod behind it.
const LONGEST_TIMEOUT_MS: i64 = 1_000;
/// The shortest that a busy machine keeps.
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

/// One difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deviation {
    /// A warning works and costs something; with an error kube-scheduler does not start, or the extender is not asked or not
    /// trusted.
    pub level: LintLevel,
    /// The field, such as `extenders[0].ignorable`.
    pub field: String,
    /// What stands there, as JSON; `absent` when nothing does.
    pub value: String,
    /// What that means.
    pub problem: String,
    /// What to write instead.
    pub fix: String,
}

impl fmt::Display for Deviation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            level,
            field,
            value,
            problem,
            fix,
        } = self;
        write!(f, "{}: {field}: {value}: {problem}; {fix}", level.label())
    }
}

/// Collects what is said about one entry.
struct EntryCheck<'a> {
    value: &'a Value,
    path: String,
    found: Vec<Deviation>,
}

impl EntryCheck<'_> {
    fn get(&self, field: &str) -> Option<&Value> {
        let pointer = format!("/{}", field.replace('.', "/"));
        self.value
            .pointer(&pointer)
            .filter(|value| !value.is_null())
    }

    fn text(&self, field: &str) -> &str {
        self.get(field).and_then(Value::as_str).unwrap_or_default()
    }

    fn say(
        &mut self,
        level: LintLevel,
        field: &str,
        problem: impl Into<String>,
        fix: impl Into<String>,
    ) {
        let value = self
            .get(field)
            .map_or_else(|| "absent".to_owned(), Value::to_string);
        let field = if self.path.is_empty() {
            field.to_owned()
        } else {
            format!("{}.{field}", self.path)
        };
        self.found.push(Deviation {
            level,
            field,
            value,
            problem: problem.into(),
            fix: fix.into(),
        });
    }
}

/// Everything in a configuration that differs from the recommended one, in the order of its fields.
#[must_use]
pub fn deviations(configuration: &Value) -> Vec<Deviation> {
    let mut top = EntryCheck {
        value: configuration,
        path: String::new(),
        found: Vec::new(),
    };
    if top.text("kind") != "KubeSchedulerConfiguration" {
        top.say(
            LintLevel::Error,
            "kind",
            "is not KubeSchedulerConfiguration",
            "use the file of kube-scheduler's --config",
        );
        return top.found;
    }
    if top.text("apiVersion") != API_VERSION {
        top.say(
            LintLevel::Error,
            "apiVersion",
            "is no longer supported by kube-scheduler, or is misspelled",
            format!("write {API_VERSION}"),
        );
    }
    let percentage = configuration
        .get("percentageOfNodesToScore")
        .and_then(Value::as_i64);
    if percentage.is_some_and(|percentage| (1..50).contains(&percentage)) {
        top.say(
            LintLevel::Warning,
            "percentageOfNodesToScore",
            "kube-scheduler sends only a small sample of the nodes to the extender; it rarely contains the nominated node",
            "omit it, or set it to 100",
        );
    }
    let none = Vec::new();
    let extenders = configuration
        .get("extenders")
        .and_then(Value::as_array)
        .unwrap_or(&none);
    let ours: Vec<usize> = extenders
        .iter()
        .enumerate()
        .filter(|(_, entry)| is_ours(entry))
        .map(|(at, _)| at)
        .collect();
    match ours.as_slice() {
        [] => top.say(
            LintLevel::Error,
            "extenders",
            "no entry refers to mortise (a urlPrefix that ends in /extender/v1)",
            "use the entry that `mortise manifests scheduler` writes",
        ),
        [_] => {}
        [_, ..] => top.say(
            LintLevel::Error,
            "extenders",
            "more than one entry refers to mortise, pods are assumed twice",
            "leave one",
        ),
    }
    let mut found = top.found;
    for at in ours {
        if let Some(value) = extenders.get(at) {
            let mut entry = EntryCheck {
                value,
                path: format!("extenders[{at}]"),
                found: Vec::new(),
            };
            judge(&mut entry);
            found.append(&mut entry.found);
        }
    }
    for (at, other) in extenders
        .iter()
        .enumerate()
        .filter(|(_, entry)| !is_ours(entry))
    {
        let mut entry = EntryCheck {
            value: other,
            path: format!("extenders[{at}]"),
            found: Vec::new(),
        };
        if entry.get("ignorable") != Some(&Value::Bool(true))
            && entry.get("managedResources").is_none()
        {
            entry.say(
                LintLevel::Warning,
                "ignorable",
                "while this other extender is unavailable no pod is marked as unschedulable, and no autoscaler launches nodes",
                "set it to true, if its owner agrees",
            );
        }
        found.append(&mut entry.found);
    }
    found
}

/// The entries of a configuration that lead to this service, with their places in `extenders`.
#[must_use]
pub fn own_entries(configuration: &Value) -> Vec<(usize, &Value)> {
    let extenders = configuration.get("extenders").and_then(Value::as_array);
    extenders
        .into_iter()
        .flatten()
        .enumerate()
        .filter(|(_, entry)| is_ours(entry))
        .collect()
}

fn is_ours(entry: &Value) -> bool {
    let prefix = entry
        .get("urlPrefix")
        .and_then(Value::as_str)
        .unwrap_or_default();
    prefix.trim_end_matches('/').ends_with("/extender/v1") || prefix.contains("mortise")
}

fn judge(entry: &mut EntryCheck<'_>) {
    use LintLevel::{Error, Warning};
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
        entry.say(
            Error,
            name,
            "is not a field of an extender: kube-scheduler does not start",
            fix,
        );
    }
    let prefix = entry.text("urlPrefix").to_owned();
    if !prefix.starts_with("https://") {
        entry.say(
            Error,
            "urlPrefix",
            "only HTTPS is served, and enableHTTPS does not change the scheme",
            "begin it with https://",
        );
    }
    if !prefix.trim_end_matches('/').ends_with("/extender/v1") {
        entry.say(
            Error,
            "urlPrefix",
            "the paths are below /extender/v1",
            "end it with /extender/v1",
        );
    }
    for (field, verb, cost) in VERBS {
        match entry.text(field) {
            "" => entry.say(
                Warning,
                field,
                format!("without it {cost}"),
                format!("write {verb}"),
            ),
            own if own == verb => {}
            _ => entry.say(
                Error,
                field,
                "there is no such path",
                format!("write {verb}"),
            ),
        }
    }
    match entry.get("weight").and_then(Value::as_i64) {
        _ if entry.text("prioritizeVerb").is_empty() => {}
        Some(weight) if weight <= 0 => entry.say(
            Error,
            "weight",
            "must be positive when prioritizeVerb is set: kube-scheduler does not start",
            "write 5",
        ),
        Some(1..=2) => entry.say(
            Warning,
            "weight",
            "at most 200 of 1,400 points: scores have little effect",
            "write 5",
        ),
        Some(weight) if weight > 20 => entry.say(
            Warning,
            "weight",
            "outweighs all plugins of kube-scheduler, including topology spread and affinity",
            "write 5",
        ),
        Some(_) => {}
        None => entry.say(
            Error,
            "weight",
            "is required when prioritizeVerb is set: kube-scheduler does not start",
            "write 5",
        ),
    }
    if entry.get("bindVerb").is_some_and(|verb| verb != "") {
        entry.say(Error, "bindVerb", "mortise does not bind", "leave it out");
    }
    if entry.get("enableHTTPS") != Some(&Value::Bool(true)) {
        entry.say(
            Error,
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
        entry.say(
            Error,
            "tlsConfig.insecure",
            "connections are not authenticated",
            "remove it, and set caFile",
        );
    } else if !has(entry, ["caFile", "caData"]) {
        entry.say(
            Error,
            "tlsConfig.caFile",
            "without a CA kube-scheduler does not verify the server",
            "set the CA of the service's certificate",
        );
    }
    for names in [["certFile", "certData"], ["keyFile", "keyData"]] {
        if !has(entry, names) {
            let [file, _] = names;
            entry.say(
                Error,
                &format!("tlsConfig.{file}"),
                "callers without a client certificate get 403, and every call fails",
                "use the extender's client certificate and key",
            );
        }
    }
    timeout(entry);
    if entry.get("nodeCacheCapable") != Some(&Value::Bool(true)) {
        entry.say(Warning, "nodeCacheCapable", "every call contains full Node objects: megabytes instead of kilobytes, and kube-scheduler's scores ignore their pods", "write true");
    }
    if entry
        .get("managedResources")
        .and_then(Value::as_array)
        .is_some_and(|list| !list.is_empty())
    {
        entry.say(Warning, "managedResources", "the extender is called only for pods with these resources; nominations are not enforced for other pods", "leave it out");
    }
    if entry.get("ignorable") != Some(&Value::Bool(true)) {
        entry.say(
            Warning,
            "ignorable",
            "while mortise is unavailable no pod is scheduled, and no autoscaler launches nodes",
            "write true",
        );
    }
}

fn timeout(entry: &mut EntryCheck<'_>) {
    let text = entry.text("httpTimeout").to_owned();
    if entry.get("httpTimeout").is_none() {
        entry.say(
            LintLevel::Warning,
            "httpTimeout",
            "defaults to 5s: a hanging service delays every pod by this time",
            "write 300ms",
        );
        return;
    }
    let Ok(duration) = GoDuration::parse(&text) else {
        entry.say(
            LintLevel::Error,
            "httpTimeout",
            "is not a duration: kube-scheduler does not start",
            "write 300ms",
        );
        return;
    };
    let millis = duration.as_nanos() / 1_000_000;
    if millis > LONGEST_TIMEOUT_MS {
        entry.say(
            LintLevel::Warning,
            "httpTimeout",
            "a hanging service delays every pod by this time, at each call",
            "write 300ms",
        );
    } else if millis < SHORTEST_TIMEOUT_MS {
        entry.say(
            LintLevel::Warning,
            "httpTimeout",
            "a busy host does not respond in that time, and failed calls are ignored",
            "write 300ms",
        );
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::manifests::{SchedulerFiles, scheduler_configuration};

    fn recommended() -> Value {
        let file = |name: &str| format!("/etc/kubernetes/mortise/{name}");
        let files = SchedulerFiles {
            ca: file("ca.crt"),
            cert: file("client.crt"),
            key: file("client.key"),
            server_name: None,
            kubeconfig: "/etc/kubernetes/scheduler.conf".to_owned(),
        };
        scheduler_configuration("https://127.0.0.1:8443", &files)
    }

    #[test]
    fn what_is_written_is_what_is_recommended() {
        assert_eq!(deviations(&recommended()), []);
    }

    /// Each edit of the entry, and the field and words of what is then said.
    #[test]
    fn each_deviation_is_told_with_its_cost() {
        let cases: [(&str, Value, LintLevel, &str); 18] = [
            (
                "urlPrefix",
                json!("http://127.0.0.1:8443/extender/v1"),
                LintLevel::Error,
                "https",
            ),
            (
                "urlPrefix",
                json!("https://mortise.kube-system.svc:8443"),
                LintLevel::Error,
                "/extender/v1",
            ),
            (
                "filterVerb",
                Value::Null,
                LintLevel::Warning,
                "nominations are not enforced",
            ),
            (
                "prioritizeVerb",
                json!("score"),
                LintLevel::Error,
                "write prioritize",
            ),
            (
                "preemptVerb",
                Value::Null,
                LintLevel::Warning,
                "may preempt",
            ),
            ("weight", json!(0), LintLevel::Error, "does not start"),
            ("weight", json!(1), LintLevel::Warning, "little effect"),
            ("weight", json!(100), LintLevel::Warning, "outweighs"),
            ("bindVerb", json!("bind"), LintLevel::Error, "does not bind"),
            ("enableHTTPS", json!(false), LintLevel::Error, "write true"),
            ("httpTimeout", Value::Null, LintLevel::Warning, "5s"),
            ("httpTimeout", json!("30s"), LintLevel::Warning, "300ms"),
            ("httpTimeout", json!("1ms"), LintLevel::Warning, "300ms"),
            (
                "httpTimeout",
                json!("soon"),
                LintLevel::Error,
                "not a duration",
            ),
            (
                "nodeCacheCapable",
                json!(false),
                LintLevel::Warning,
                "megabytes",
            ),
            (
                "managedResources",
                json!([{ "name": "example.com/a" }]),
                LintLevel::Warning,
                "leave it out",
            ),
            ("ignorable", Value::Null, LintLevel::Warning, "write true"),
            (
                "ignorabel",
                json!(true),
                LintLevel::Error,
                "did you mean ignorable?",
            ),
        ];
        for (field, value, level, words) in cases {
            let mut configuration = recommended();
            let entry = &mut configuration["extenders"][0];
            if value.is_null() {
                entry.as_object_mut().unwrap().remove(field);
            } else {
                entry[field] = value.clone();
            }
            let found = deviations(&configuration);
            let [only] = found.as_slice() else {
                panic!("{field} {value}: {found:?}");
            };
            assert_eq!(
                (only.level, &*only.field),
                (level, &*format!("extenders[0].{field}"))
            );
            assert!(only.to_string().contains(words), "{only}");
        }
    }

    #[test]
    fn what_stands_around_the_entry_counts_too() {
        let said = |edit: &dyn Fn(&mut Value)| {
            let mut configuration = recommended();
            edit(&mut configuration);
            let found = deviations(&configuration);
            found
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join("\n")
        };
        assert!(said(&|all| all["extenders"] = json!([])).contains("no entry refers to mortise"));
        assert!(said(&|all| all["kind"] = json!("Pod")).starts_with("error: kind: \"Pod\""));
        assert!(
            said(&|all| all["apiVersion"] = json!("kubescheduler.config.k8s.io/v1beta3"))
                .contains("write kubescheduler.config.k8s.io/v1")
        );
        assert!(said(&|all| all["percentageOfNodesToScore"] = json!(30)).contains("small sample"));
        assert!(
            said(&|all| {
                let entry = all["extenders"][0].clone();
                all["extenders"].as_array_mut().unwrap().push(entry);
            })
            .contains("more than one")
        );
        assert!(
            said(&|all| {
                let other =
                    json!({ "urlPrefix": "http://gpu.example/api", "filterVerb": "filter" });
                all["extenders"].as_array_mut().unwrap().push(other);
            })
            .contains("extenders[1].ignorable: absent")
        );
        assert!(
            said(&|all| all["extenders"][0]["tlsConfig"] = json!({ "insecure": true }))
                .contains("not authenticated")
        );
        let bare = said(&|all| {
            drop(
                all["extenders"][0]
                    .as_object_mut()
                    .unwrap()
                    .remove("tlsConfig"),
            )
        });
        assert_eq!(bare.lines().count(), 3, "{bare}");
    }
}
