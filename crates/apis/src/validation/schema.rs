//! Validates a value against the schema of its CRD.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::{patterns, rules};
use crate::crds::CrdSet;
use crate::issues::{FieldIssue, Found, IssueSeverity, IssueTopic, either, meant, quoted};
use crate::node_class::NodeClassRegistry;

/// Maximum nesting that is validated; the CRDs have eight levels.
const DEEPEST: usize = 32;

/// Maximum length of a text for which a correction is searched.
const GUESSED: usize = 256;
/// Number of names that are compared with a missing one.
const NEIGHBOURS: usize = 64;

/// The schema of a kind.
pub(super) struct Definition<'a> {
    /// The schema of `spec`.
    pub(super) of_spec: &'a Value,
    classes: &'a NodeClassRegistry,
    /// The API server rejects an object without a spec.
    needs_spec: bool,
}

impl Definition<'_> {
    /// Adds what is wrong with the spec of an object and everything in it, or that there is none.
    pub(super) fn spec(&self, object: &Value, old: Option<&Value>, found: &mut Found) {
        match object.get("spec") {
            Some(spec) => {
                let classes = self.classes;
                Walk { classes, found }.value(self.of_spec, "spec", spec, old, 0);
            }
            None if self.needs_spec => {
                let none = Map::new();
                let fields = object.as_object().unwrap_or(&none);
                let classes = self.classes;
                Walk { classes, found }.required("", "spec", Some(self.of_spec), fields);
            }
            None => {}
        }
    }
}

/// The schema of a kind; `None` if the set has no such kind.
pub(super) fn definition<'a>(set: &'a CrdSet, kind: &str) -> Option<Definition<'a>> {
    let definition = set
        .manifests()
        .iter()
        .map(|manifest| &manifest.definition)
        .find(|definition| {
            definition
                .pointer("/spec/names/kind")
                .and_then(Value::as_str)
                == Some(kind)
        })?;
    let schema = definition.pointer("/spec/versions/0/schema/openAPIV3Schema")?;
    let required = schema.get("required").and_then(Value::as_array);
    Some(Definition {
        of_spec: schema.pointer("/properties/spec")?,
        classes: set.known(),
        needs_spec: required.is_some_and(|names| names.iter().any(|name| name == "spec")),
    })
}

struct Walk<'a> {
    classes: &'a NodeClassRegistry,
    found: &'a mut Found,
}

impl Walk<'_> {
    fn fault(&mut self, path: &str, value: &Value, problem: String, fix: String) {
        // User data may be confidential.
        let value = if path.ends_with("userData") {
            "the value".to_owned()
        } else {
            quoted(value)
        };
        self.found.push(FieldIssue {
            weight: IssueSeverity::Schema,
            field: path.to_owned(),
            value,
            problem,
            fix,
            topic: IssueTopic::Schema,
        });
    }

    fn value(
        &mut self,
        schema: &Value,
        path: &str,
        value: &Value,
        old: Option<&Value>,
        depth: usize,
    ) {
        if depth > DEEPEST || self.found.is_cut() {
            return;
        }
        let before = self.found.refusing();
        if !self.has_type(schema, path, value) {
            return;
        }
        match value {
            Value::String(text) => self.text(schema, path, text, value),
            Value::Number(_) => self.number(schema, path, value),
            Value::Array(items) => self.list(schema, path, items, value, depth),
            Value::Object(fields) => self.object(schema, path, fields, old, depth),
            Value::Null | Value::Bool(_) => {}
        }
        if let Some(allowed) = schema.get("enum").and_then(Value::as_array)
            && !allowed.contains(value)
        {
            let words: Vec<&str> = allowed.iter().filter_map(Value::as_str).collect();
            let word = value.as_str().unwrap_or_default();
            let fix = meant(word, words.iter().copied(), || {
                format!("write {}", either(&words))
            });
            self.fault(
                path,
                value,
                format!("is not one of {}", words.join(", ")),
                fix,
            );
        }
        // The API server does not evaluate rules on a value of the wrong type.
        if self.found.refusing() == before {
            for rule in schema
                .get("x-kubernetes-validations")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
            {
                rules::check(self.classes, rule, path, value, old, self.found);
            }
        }
    }

    fn has_type(&mut self, schema: &Value, path: &str, value: &Value) -> bool {
        let int_or_string = schema.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true));
        let wanted = match schema.get("type").and_then(Value::as_str) {
            Some(wanted) => wanted,
            None if int_or_string => "integer or string",
            None => return true,
        };
        let fits = match wanted {
            "object" => value.is_object(),
            "array" => value.is_array(),
            "string" => value.is_string(),
            "boolean" => value.is_boolean(),
            "integer" => is_integer(value),
            "number" => value.is_number(),
            "integer or string" => value.is_string() || is_integer(value),
            _ => true,
        };
        if fits {
            return true;
        }
        let wanted_words = match wanted {
            "boolean" => plain(wanted).to_owned(),
            _ => format!("a {}", plain(wanted)),
        };
        let problem = format!("is {}, not {wanted_words}", type_of(value));
        let fix = match (wanted, value) {
            ("string", Value::Number(_) | Value::Bool(_)) => {
                format!("write it in quotes: \"{value}\"")
            }
            ("integer", Value::String(text)) if text.parse::<i64>().is_ok() => {
                format!("write it without quotes: {text}")
            }
            ("boolean", Value::String(text)) if matches!(text.as_str(), "true" | "false") => {
                format!("write it without quotes: {text}")
            }
            ("integer" | "integer or string", Value::Number(number)) => {
                format!("write a whole number instead of {number}")
            }
            ("array", other) if !other.is_null() => {
                "write a list: begin each entry with \"- \"".to_owned()
            }
            (_, Value::Null) => format!("write {wanted_words}, or leave the field out"),
            _ => format!("write {wanted_words}"),
        };
        self.fault(path, value, problem, fix);
        false
    }

    fn text(&mut self, schema: &Value, path: &str, text: &str, value: &Value) {
        let bound = |name: &str| schema.get(name).and_then(Value::as_u64);
        let length = text.chars().count() as u64;
        if bound("minLength").is_some_and(|least| length < least) {
            self.fault(
                path,
                value,
                "is empty, but a text is needed".to_owned(),
                "fill it in, or leave the field out if it is optional".to_owned(),
            );
            return;
        }
        if let Some(most) = bound("maxLength").filter(|most| length > *most) {
            self.fault(
                path,
                value,
                format!("has {length} characters; at most {most} are allowed"),
                format!("shorten it to {most} characters"),
            );
        }
        if schema.get("format").and_then(Value::as_str) == Some("date-time")
            && text.parse::<jiff::Timestamp>().is_err()
        {
            self.fault(
                path,
                value,
                "is not a time in RFC 3339".to_owned(),
                "write it as 2026-01-31T08:00:00Z, or leave it out".to_owned(),
            );
        }
        let words = schema
            .get("pattern")
            .and_then(Value::as_str)
            .and_then(|pattern| patterns::description(self.classes, pattern));
        if let Some(words) = words.filter(|words| !(words.fits)(text)) {
            let short = Some(text).filter(|text| text.len() <= GUESSED);
            let fix = short.and_then(|text| better(text, words.fits)).map_or_else(
                || format!("write for example {}", words.example),
                |text| format!("did you mean {text}?"),
            );
            self.fault(path, value, format!("is not {}", words.allowed), fix);
        }
    }

    fn number(&mut self, schema: &Value, path: &str, value: &Value) {
        let Some(number) = value.as_i64() else { return };
        let bound = |name: &str| schema.get(name).and_then(Value::as_i64);
        let (least, most) = match schema.get("format").and_then(Value::as_str) {
            Some("int32") => (Some(i64::from(i32::MIN)), Some(i64::from(i32::MAX))),
            _ => (None, None),
        };
        let (least, most) = (bound("minimum").or(least), bound("maximum").or(most));
        let (low, high) = (
            least.filter(|least| number < *least),
            most.filter(|most| number > *most),
        );
        let Some(nearest) = low.or(high) else { return };
        let range = match (least, most) {
            (Some(least), Some(most)) => format!("from {least} to {most}"),
            (Some(least), None) => format!("{least} or more"),
            _ => format!("at most {nearest}"),
        };
        self.fault(
            path,
            value,
            format!("is out of range: {range} is allowed"),
            format!("the nearest allowed value is {nearest}"),
        );
    }

    fn list(&mut self, schema: &Value, path: &str, items: &[Value], value: &Value, depth: usize) {
        let bound = |name: &str| schema.get(name).and_then(Value::as_u64);
        let count = items.len() as u64;
        if bound("minItems").is_some_and(|least| count < least) {
            self.fault(
                path,
                value,
                "is empty, but at least one entry is needed".to_owned(),
                "add an entry".to_owned(),
            );
        }
        let most = bound("maxItems");
        if let Some(most) = most.filter(|most| count > *most) {
            self.fault(
                path,
                &Value::String(format!("{count} entries")),
                format!("are more than the {most} that are allowed"),
                "take entries out, or make a second object".to_owned(),
            );
        }
        // Items beyond the limit must be removed, whatever their values.
        let most = most.map_or(items.len(), |most| {
            usize::try_from(most).unwrap_or(usize::MAX)
        });
        let items = items.get(..most).unwrap_or(items);
        if schema.get("x-kubernetes-list-type").and_then(Value::as_str) == Some("set") {
            let mut seen = BTreeSet::new();
            for (at, item) in items.iter().enumerate() {
                if !seen.insert(item.to_string()) {
                    self.fault(
                        &format!("{path}[{at}]"),
                        item,
                        "stands there twice, but each value is allowed once".to_owned(),
                        "take one out".to_owned(),
                    );
                }
            }
        }
        if let Some(schema) = schema.get("items") {
            for (at, item) in items.iter().enumerate() {
                if self.found.is_cut() {
                    return;
                }
                self.value(schema, &format!("{path}[{at}]"), item, None, depth + 1);
            }
        }
    }

    fn object(
        &mut self,
        schema: &Value,
        path: &str,
        fields: &Map<String, Value>,
        old: Option<&Value>,
        depth: usize,
    ) {
        let empty = Map::new();
        let properties = schema
            .get("properties")
            .and_then(Value::as_object)
            .unwrap_or(&empty);
        for name in schema
            .get("required")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
        {
            let property = properties.get(name);
            let has_default = property.is_some_and(|schema| schema.get("default").is_some());
            if !has_default && !fields.contains_key(name) {
                self.required(path, name, property, fields);
            }
        }
        if let Some(most) = schema
            .get("maxProperties")
            .and_then(Value::as_u64)
            .filter(|most| fields.len() as u64 > *most)
        {
            self.fault(
                path,
                &Value::String(format!("{} entries", fields.len())),
                format!("are more than the {most} that are allowed"),
                "take entries out".to_owned(),
            );
        }
        let values = schema.get("additionalProperties");
        let open = schema.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true));
        let most = schema.get("maxProperties").and_then(Value::as_u64);
        let most = most.map_or(usize::MAX, |most| {
            usize::try_from(most).unwrap_or(usize::MAX)
        });
        for (name, value) in fields.iter().take(most) {
            if self.found.is_cut() {
                return;
            }
            let old = old.and_then(|old| old.get(name));
            if let Some(property) = properties.get(name) {
                self.value(property, &format!("{path}.{name}"), value, old, depth + 1);
            } else if let Some(schema) = values.filter(|schema| schema.is_object()) {
                self.value(schema, &format!("{path}[{name:?}]"), value, old, depth + 1);
            } else if !open && !properties.is_empty() && self.found.takes(IssueSeverity::Suspicious)
            {
                self.unknown(path, name, value, properties, fields);
            }
        }
    }

    fn required(
        &mut self,
        path: &str,
        name: &str,
        schema: Option<&Value>,
        fields: &Map<String, Value>,
    ) {
        let wanted = schema
            .and_then(|schema| schema.get("type"))
            .and_then(Value::as_str)
            .unwrap_or("value");
        let mistyped = crate::nearest::nearest(name, fields.keys().take(NEIGHBOURS));
        let fix = match (mistyped, example(self.classes, name)) {
            (Some(near), _) if near != name => {
                format!("is \"{near}\" meant? Write \"{name}\"")
            }
            (_, Some(example)) => format!("add {example}"),
            (_, None) => format!("add \"{name}\" with {}", plain(wanted)),
        };
        let field = if path.is_empty() {
            name.to_owned()
        } else {
            format!("{path}.{name}")
        };
        self.found.push(FieldIssue {
            weight: IssueSeverity::Schema,
            field,
            value: "absent".to_owned(),
            problem: format!("but required ({})", plain(wanted)),
            fix,
            topic: IssueTopic::Schema,
        });
    }

    /// The API server drops it silently, or rejects it, as the client requests.
    fn unknown(
        &mut self,
        path: &str,
        name: &str,
        value: &Value,
        properties: &Map<String, Value>,
        fields: &Map<String, Value>,
    ) {
        let free = properties.keys().filter(|key| !fields.contains_key(*key));
        let all: Vec<&str> = properties.keys().map(String::as_str).collect();
        let field = format!("{path}.{name}");
        self.found
            .push(no_such_field(field, name, value, free, &all));
    }
}

/// The fields of every object.
const FIELDS: [&str; 5] = ["apiVersion", "kind", "metadata", "spec", "status"];

/// Reports top-level names next to `spec` that are not fields of an object; often they belong into `spec`.
pub(super) fn next_to_spec(object: &Value, found: &mut Found) {
    for (name, value) in object.as_object().into_iter().flatten() {
        if !FIELDS.contains(&name.as_str()) && found.takes(IssueSeverity::Suspicious) {
            let free = FIELDS
                .into_iter()
                .filter(|known| object.get(known).is_none());
            found.push(no_such_field(name.clone(), name, value, free, &FIELDS));
        }
    }
}

fn no_such_field<S: AsRef<str>>(
    field: String,
    name: &str,
    value: &Value,
    free: impl IntoIterator<Item = S>,
    all: &[&str],
) -> FieldIssue {
    FieldIssue {
        weight: IssueSeverity::Suspicious,
        field,
        value: quoted(value),
        problem: format!(
            "is dropped: there is no such field; the fields are {}",
            all.join(", ")
        ),
        fix: meant(name, free, || "take it out".to_owned()),
        topic: IssueTopic::UnknownField,
    }
}

fn is_integer(value: &Value) -> bool {
    value.is_i64()
        || value.is_u64()
        || value
            .as_f64()
            .is_some_and(|number| number.fract() == 0.0 && number.abs() < 9e15)
}

const fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a set of fields",
    }
}

/// Name of the type.
fn plain(wanted: &str) -> &str {
    match wanted {
        "object" => "set of fields",
        "array" => "list",
        "string" => "text",
        "boolean" => "true or false",
        "integer" => "whole number",
        "integer or string" => "whole number or text",
        other => other,
    }
}

/// Examples for fields that are often forgotten.
fn example(classes: &NodeClassRegistry, name: &str) -> Option<String> {
    let (group, kind) = classes
        .default_kind()
        .map_or(("...", "..."), |class| (class.group, class.kind));
    let text = match name {
        "nodeClassRef" => {
            return Some(format!(
                "nodeClassRef: {{group: {group}, kind: {kind}, name: default}}"
            ));
        }
        "group" => return Some(format!("group: {group}, the group of the node class")),
        "kind" => return Some(format!("kind: {kind}, the kind of the node class")),
        "requirements" => {
            "requirements: [{key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}]"
        }
        "template" => "template: {spec: {nodeClassRef: ..., requirements: [...]}}",
        "operator" => "operator: In",
        "consolidateAfter" => "consolidateAfter: 1m",
        "nodes" => "nodes: 10%",
        "key" => "key: kubernetes.io/arch, for example",
        "effect" => "effect: NoSchedule",
        "name" => "name: default, the name of the object that is meant",
        _ => classes.iter().find_map(|class| class.example(name))?,
    };
    Some(text.to_owned())
}

/// A correction of the text: another case, without spaces, days as hours, units instead of words.
fn better(text: &str, fits: fn(&str) -> bool) -> Option<String> {
    let trimmed: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    let lower = trimmed.to_lowercase();
    let days = trimmed
        .strip_suffix('d')
        .and_then(|days| days.parse::<u32>().ok())
        .and_then(|days| days.checked_mul(24))
        .map(|hours| format!("{hours}h"));
    let words = [
        ("never", "Never"),
        ("hours", "h"),
        ("hour", "h"),
        ("hrs", "h"),
        ("hr", "h"),
        ("minutes", "m"),
        ("minute", "m"),
        ("mins", "m"),
        ("min", "m"),
        ("seconds", "s"),
        ("second", "s"),
        ("secs", "s"),
        ("sec", "s"),
        ("GiB", "Gi"),
        ("MiB", "Mi"),
        ("TiB", "Ti"),
        ("GB", "G"),
        ("MB", "M"),
        ("Gib", "Gi"),
        ("gi", "Gi"),
        ("mi", "Mi"),
    ];
    let mut tries = vec![trimmed.clone()];
    tries.extend(days);
    for (word, short) in words {
        for text in [&trimmed, &lower] {
            tries.extend(
                text.strip_suffix(word)
                    .map(|start| format!("{start}{short}")),
            );
        }
    }
    tries.push(lower);
    if let Some(number) = trimmed.strip_prefix('-') {
        tries.push(number.to_owned());
    }
    if let Ok(size) = trimmed.parse::<u64>()
        && size > 0
    {
        tries.push(format!("{size}Gi"));
        tries.push(format!("{size}s"));
    }
    tries.push(format!("-{trimmed}"));
    tries.push(format!("{trimmed}%"));
    tries.into_iter().find(|each| fits(each) && each != text)
}
