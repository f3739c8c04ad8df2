//! The report as SARIF 2.1.0, which code hosts show next to the lines of a change.

use serde_json::{Value, json};

use super::json::calendar_json;
use super::report::{LintFinding, LintLevel, LintReport};
use super::table::summary;
use mortise_webhooks::admission::Check;

const SCHEMA: &str = "https://json.schemastore.org/sarif-2.1.0.json";

/// The report as a SARIF log with one run; the run's properties contain the calendars.
#[must_use]
pub fn render_sarif(report: &LintReport, version: &str) -> Value {
    let rules: Vec<Value> = Check::ALL
        .iter()
        .map(|check| {
            json!({
                "id": check.label(),
                "shortDescription": { "text": format!("{}.", check.description()) },
            })
        })
        .collect();
    json!({
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": { "name": "mortise", "semanticVersion": version, "rules": rules } },
            "columnKind": "unicodeCodePoints",
            "results": report.findings.iter().map(result_json).collect::<Vec<_>>(),
            "properties": {
                "summary": summary(report),
                "errors": report.count(LintLevel::Error),
                "warnings": report.count(LintLevel::Warning),
                "calendars": report.calendars.iter().map(calendar_json).collect::<Vec<_>>(),
            },
        }],
    })
}

fn result_json(finding: &LintFinding) -> Value {
    let rule = Check::ALL.iter().position(|check| *check == finding.check);
    let mut location = json!({
        "physicalLocation": {
            "artifactLocation": { "uri": uri(&finding.file) },
            "region": { "startLine": finding.line.max(1) },
        },
    });
    let object: Vec<&str> = [&finding.kind, &finding.name, &finding.field]
        .into_iter()
        .map(String::as_str)
        .filter(|word| !word.is_empty())
        .collect();
    if !object.is_empty() {
        location["logicalLocations"] =
            json!([{ "fullyQualifiedName": object.join("/"), "kind": "object" }]);
    }
    json!({
        "ruleId": finding.check.label(),
        "ruleIndex": rule,
        "level": finding.level.label(),
        "message": { "text": result_message(finding) },
        "locations": [location],
        "properties": {
            "field": finding.field,
            "value": finding.value,
            "fix": finding.fix,
            "nearest": finding.nearest(),
        },
    })
}

/// The message with what it is about, because viewers show nothing else.
fn result_message(finding: &LintFinding) -> String {
    if finding.field.is_empty() {
        finding.message()
    } else {
        format!("{}: {}", finding.field, finding.message())
    }
}

/// A file name as a relative reference: what may not stand in one is written as percent codes.
fn uri(file: &str) -> String {
    let mut text = String::new();
    let name = match file {
        "<stdin>" => "stdin",
        other => other.strip_prefix("./").unwrap_or(other),
    };
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' | b'~' => {
                text.push(char::from(byte));
            }
            b'\\' => text.push('/'),
            other => text.push_str(&format!("%{other:02X}")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_are_references() {
        assert_eq!(uri("./a b/c.yaml"), "a%20b/c.yaml");
        assert_eq!(uri("<stdin>"), "stdin");
        assert_eq!(uri("a\\b:c.yaml"), "a/b%3Ac.yaml");
    }
}
