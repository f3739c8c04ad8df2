//! What in a KubeSchedulerConfiguration differs from the one that [`crate::render::scheduler_configuration`] writes, and what
//! each difference costs.

mod entry;

use std::fmt;

use serde_json::Value;

use crate::lint::LintLevel;

/// `apiVersion` that kube-scheduler reads.
const API_VERSION: &str = "kubescheduler.config.k8s.io/v1";

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

    fn report(
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
        top.report(
            LintLevel::Error,
            "kind",
            "is not KubeSchedulerConfiguration",
            "use the file of kube-scheduler's --config",
        );
        return top.found;
    }
    if top.text("apiVersion") != API_VERSION {
        top.report(
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
        top.report(
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
    let own: Vec<usize> = extenders
        .iter()
        .enumerate()
        .filter(|(_, entry)| refers_to_mortise(entry))
        .map(|(at, _)| at)
        .collect();
    match own.as_slice() {
        [] => top.report(
            LintLevel::Error,
            "extenders",
            "no entry refers to mortise (a urlPrefix that ends in /extender/v1)",
            "use the entry that `mortise manifests scheduler` writes",
        ),
        [_] => {}
        [_, ..] => top.report(
            LintLevel::Error,
            "extenders",
            "more than one entry refers to mortise, pods are assumed twice",
            "leave one",
        ),
    }
    let mut found = top.found;
    for at in own {
        if let Some(value) = extenders.get(at) {
            let mut entry = EntryCheck {
                value,
                path: format!("extenders[{at}]"),
                found: Vec::new(),
            };
            entry::check_entry(&mut entry);
            found.append(&mut entry.found);
        }
    }
    for (at, other) in extenders
        .iter()
        .enumerate()
        .filter(|(_, entry)| !refers_to_mortise(entry))
    {
        let mut entry = EntryCheck {
            value: other,
            path: format!("extenders[{at}]"),
            found: Vec::new(),
        };
        if entry.get("ignorable") != Some(&Value::Bool(true))
            && entry.get("managedResources").is_none()
        {
            entry.report(
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
        .filter(|(_, entry)| refers_to_mortise(entry))
        .collect()
}

fn refers_to_mortise(entry: &Value) -> bool {
    let prefix = entry
        .get("urlPrefix")
        .and_then(Value::as_str)
        .unwrap_or_default();
    prefix.trim_end_matches('/').ends_with("/extender/v1") || prefix.contains("mortise")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::render::{SchedulerFiles, scheduler_configuration};

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
        let deviations_of = |edit: &dyn Fn(&mut Value)| {
            let mut configuration = recommended();
            edit(&mut configuration);
            let found = deviations(&configuration);
            found
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join("\n")
        };
        assert!(
            deviations_of(&|all| all["extenders"] = json!([]))
                .contains("no entry refers to mortise")
        );
        assert!(
            deviations_of(&|all| all["kind"] = json!("Pod")).starts_with("error: kind: \"Pod\"")
        );
        assert!(
            deviations_of(&|all| all["apiVersion"] = json!("kubescheduler.config.k8s.io/v1beta3"))
                .contains("write kubescheduler.config.k8s.io/v1")
        );
        assert!(
            deviations_of(&|all| all["percentageOfNodesToScore"] = json!(30))
                .contains("small sample")
        );
        assert!(
            deviations_of(&|all| {
                let entry = all["extenders"][0].clone();
                all["extenders"].as_array_mut().unwrap().push(entry);
            })
            .contains("more than one")
        );
        assert!(
            deviations_of(&|all| {
                let other =
                    json!({ "urlPrefix": "http://gpu.example/api", "filterVerb": "filter" });
                all["extenders"].as_array_mut().unwrap().push(other);
            })
            .contains("extenders[1].ignorable: absent")
        );
        assert!(
            deviations_of(&|all| all["extenders"][0]["tlsConfig"] = json!({ "insecure": true }))
                .contains("not authenticated")
        );
        let bare = deviations_of(&|all| {
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
