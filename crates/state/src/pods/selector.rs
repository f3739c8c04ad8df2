//! Label selectors, compiled.

use std::fmt;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

/// Test of one label.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Test {
    /// Present, with one of the values.
    In(Vec<Arc<str>>),
    /// Absent, or with none of the values.
    NotIn(Vec<Arc<str>>),
    /// Present.
    Exists,
    /// Absent.
    DoesNotExist,
    /// An operator that Kubernetes does not know: matches nothing.
    Unknown,
}

/// A label selector; all its tests must pass, so that one without tests matches everything.
///
/// # Shape
/// Sorted and unique, so that equivalent selectors in another order are equal. An absent selector is not this type: the API
/// treats it as "nothing" in most places.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Selector {
    tests: Vec<(Arc<str>, Test)>,
}

impl Selector {
    /// Compiles a selector of the API.
    #[must_use]
    pub fn new(selector: &LabelSelector) -> Self {
        let mut this = Self::default();
        for (key, value) in selector.match_labels.iter().flatten() {
            this.tests
                .push((key.as_str().into(), Test::In(vec![value.as_str().into()])));
        }
        for expression in selector.match_expressions.iter().flatten() {
            let values = || {
                let mut values: Vec<Arc<str>> = expression
                    .values
                    .iter()
                    .flatten()
                    .map(|value| value.as_str().into())
                    .collect();
                values.sort_unstable();
                values.dedup();
                values
            };
            let test = match expression.operator.as_str() {
                "In" => Test::In(values()),
                "NotIn" => Test::NotIn(values()),
                "Exists" => Test::Exists,
                "DoesNotExist" => Test::DoesNotExist,
                _ => Test::Unknown,
            };
            this.tests.push((expression.key.as_str().into(), test));
        }
        this.normalize();
        this
    }

    /// Adds the test that the label has this value.
    #[must_use]
    pub fn and_label(mut self, key: &Arc<str>, value: &Arc<str>) -> Self {
        self.tests
            .push((Arc::clone(key), Test::In(vec![Arc::clone(value)])));
        self.normalize();
        self
    }

    /// A label that everything has that it matches, if it has one with a single value: what to index selectors by.
    #[must_use]
    pub fn required_label(&self) -> Option<(&Arc<str>, &Arc<str>)> {
        self.tests.iter().find_map(|(key, test)| match test {
            Test::In(values) => match values.as_slice() {
                [value] => Some((key, value)),
                _ => None,
            },
            _ => None,
        })
    }

    fn normalize(&mut self) {
        self.tests.sort_unstable();
        self.tests.dedup();
    }

    /// Whether the selector matches, with label values given by `label`.
    pub fn matches<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.tests.iter().all(|(key, test)| {
            let value = label(key);
            let listed = |values: &[Arc<str>]| {
                value.is_some_and(|value| values.iter().any(|v| **v == *value))
            };
            match test {
                Test::In(values) => listed(values),
                Test::NotIn(values) => !listed(values),
                Test::Exists => value.is_some(),
                Test::DoesNotExist => value.is_none(),
                Test::Unknown => false,
            }
        })
    }

    /// Whether the selector matches these labels, which must be sorted by key.
    #[must_use]
    pub fn matches_labels(&self, labels: &[(Arc<str>, Arc<str>)]) -> bool {
        self.matches(|key| {
            let at = labels.binary_search_by(|(own, _)| (**own).cmp(key)).ok()?;
            labels.get(at).map(|(_, value)| &**value)
        })
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (key, test)) in self.tests.iter().enumerate() {
            let gap = if at == 0 { "" } else { "," };
            match test {
                Test::In(values) => write!(f, "{gap}{key} in ({})", values.join(","))?,
                Test::NotIn(values) => write!(f, "{gap}{key} notin ({})", values.join(","))?,
                Test::Exists => write!(f, "{gap}{key}")?,
                Test::DoesNotExist => write!(f, "{gap}!{key}")?,
                Test::Unknown => write!(f, "{gap}{key} has an unknown operator")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(selector: serde_json::Value, labels: &[(&str, &str)], want: bool) {
        let selector: LabelSelector = serde_json::from_value(selector).unwrap();
        let mut labels: Vec<(Arc<str>, Arc<str>)> = labels
            .iter()
            .map(|(k, v)| ((*k).into(), (*v).into()))
            .collect();
        labels.sort();
        assert_eq!(
            Selector::new(&selector).matches_labels(&labels),
            want,
            "{}",
            Selector::new(&selector)
        );
        let compiled = Selector::new(&selector);
        if let (true, Some((key, value))) = (want, compiled.required_label()) {
            let has = labels
                .iter()
                .any(|label| (&label.0, &label.1) == (key, value));
            assert!(has, "{compiled} matches without {key}={value}");
        }
    }

    #[test]
    fn tests_all_labels() {
        let of = |key: &str, operator: &str, values: &[&str]| serde_json::json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
        check(serde_json::json!({}), &[], true);
        check(
            serde_json::json!({"matchLabels": {"a": "1"}}),
            &[("a", "1"), ("b", "2")],
            true,
        );
        check(
            serde_json::json!({"matchLabels": {"a": "1"}}),
            &[("a", "2")],
            false,
        );
        check(of("a", "In", &["1", "2"]), &[("a", "2")], true);
        check(of("a", "In", &["2"]), &[("a", "2")], true);
        check(of("a", "NotIn", &["1"]), &[], true);
        check(of("a", "NotIn", &["1"]), &[("a", "1")], false);
        check(of("a", "Exists", &[]), &[("b", "")], false);
        check(of("a", "DoesNotExist", &[]), &[("b", "")], true);
        check(of("a", "Near", &["1"]), &[("a", "1")], false);
    }
}
