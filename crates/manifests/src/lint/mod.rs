//! `lint`: what admission would say about manifests in files, and when budgets would let nodes go, without a cluster.
//!
//! ```text
//! files ─► manifests with lines ─► kinds (own_objects, old, parts, others)
//!                                    │ ours
//!                                    ├─► a snapshot of what the files hold, with a catalogue
//!                                    └─► admission's own questions about each object ─► findings ─► table, JSON, SARIF
//! ```
//!
//! Invariant: pure. Every judgement is admission's ([`mortise_webhooks::admission::validate`]); here is only its place
//! in the file, and what an API server would say before any webhook is asked: versions, kinds, names. Of objects of
//! other kinds, those that could hold a node indefinitely are checked.

mod drains;
mod file_snapshot;
mod json;
mod kinds;
mod report;
mod sarif;
mod table;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::file::{Manifest, UnparsableDocument, manifests};
use crate::migrate::SourceFile;
use jiff::Timestamp;
use mortise_apis::CrdSet;
use mortise_apis::deprecated_fields;
use mortise_apis::karpenter::budget_schedule::calendar;
use mortise_apis::karpenter::nodepool::NodePool;
use mortise_apis::labels::WellKnown;
use mortise_apis::validation::{faults, metadata_faults};
use mortise_state::catalog::Catalog;
use mortise_state::snapshot::Snapshot;
use serde_json::Value;

use drains::Drains;
use kinds::ObjectClass;
use mortise_webhooks::admission::{
    AdmissionContext, AdmissionFinding, AdmissionRequest, AdmissionSettings, Check,
    GroupVersionKind, validate,
};
use report::ObjectLocation;

pub use json::render_json;
pub use report::{LintFinding, LintLevel, LintReport, PoolCalendar};
pub use sarif::render_sarif;
pub use table::render_table;

/// What the files are judged by.
#[derive(Clone, Debug)]
pub struct LintOptions {
    /// The definitions, with the node classes of the provider.
    pub crds: CrdSet,
    /// Label keys of the provider.
    pub well_known: WellKnown,
    /// Instance types that can be launched; without them nothing is said about values.
    pub catalog: Option<Arc<Catalog>>,
    /// Begin of the calendars.
    pub from: Timestamp,
    /// How many nodes each pool is taken to have in the calendars.
    pub nodes: Option<i64>,
}

/// An object of a kind that mortise serves.
struct OwnObject<'a> {
    file: &'a str,
    manifest: Manifest,
    kind: GroupVersionKind,
    /// As the API server would store it: with defaults.
    object: Value,
}

/// Judges all sources together: what one object says of another is looked up in all of them.
#[must_use]
pub fn lint(sources: &[SourceFile], options: &LintOptions) -> LintReport {
    let rules = AdmissionSettings {
        crds: options.crds.clone(),
        offline: true,
        ..AdmissionSettings::default()
    };
    let mut report = LintReport {
        files: sources.len(),
        ..LintReport::default()
    };
    let mut own_objects = Vec::new();
    let mut drains = Drains::default();
    for source in sources {
        for document in manifests(&source.text) {
            match document {
                Ok(manifest) => {
                    drains.visit(&source.name, &manifest);
                    own_objects.extend(classify(
                        &source.name,
                        manifest,
                        &rules,
                        options,
                        &mut report,
                    ));
                }
                Err(document) => report_unparsable(&source.name, &document, &mut report),
            }
        }
    }
    report_duplicates(&own_objects, &mut report);
    report.objects += own_objects.len();
    let snapshot = file_snapshot::build(
        own_objects.iter().map(|each| (&each.kind, &each.object)),
        options,
    );
    for each in &own_objects {
        check_object(each, &snapshot, &rules, options, &mut report);
    }
    drains.report(snapshot.pools.values().map(|pool| &**pool), &mut report);
    report.sort(sources);
    report
}

fn report_unparsable(file: &str, document: &UnparsableDocument, report: &mut LintReport) {
    if document.template && !document.ours {
        report.pass_over("template that is not rendered");
        return;
    }
    let fix = if document.template {
        "it looks like a template: render it first (helm template), and lint the output"
    } else {
        "fix indentation, quotes and brackets around this line"
    };
    report.findings.push(LintFinding {
        file: file.to_owned(),
        line: document.line,
        check: Check::Unreadable,
        level: LintLevel::Error,
        problem: format!("is not YAML: {}", document.problem),
        fix: fix.to_owned(),
        ..LintFinding::default()
    });
}

/// Returns objects of own kinds, and reports findings about all others.
fn classify<'a>(
    file: &'a str,
    manifest: Manifest,
    rules: &AdmissionSettings,
    options: &LintOptions,
    report: &mut LintReport,
) -> Option<OwnObject<'a>> {
    let object = manifest.value();
    let text = |field: &str| {
        object
            .get(field)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let class = kinds::classify(&rules.crds, &manifest, api_version, kind);
    let location = ObjectLocation::new(file, &manifest, &object, kind);
    match class {
        ObjectClass::Own => {
            let (group, version) = api_version.split_once('/').unwrap_or_default();
            let kind = GroupVersionKind {
                group: group.to_owned(),
                version: version.to_owned(),
                kind: kind.to_owned(),
            };
            let mut object = object;
            rules.crds.apply_defaults(&mut object);
            Some(OwnObject {
                file,
                manifest,
                kind,
                object,
            })
        }
        ObjectClass::Wrong {
            field,
            problem,
            fix,
            advice,
        } => {
            report.objects += 1;
            report.findings.push(LintFinding {
                check: Check::Version,
                level: LintLevel::Error,
                value: object
                    .get(field)
                    .map_or_else(|| "absent".to_owned(), Value::to_string),
                problem,
                fix,
                ..location.finding(field)
            });
            if advice {
                for advice in deprecated_fields::advice(rules.crds.known(), &object) {
                    report.findings.push(location.deprecated(advice));
                }
            }
            report.findings.extend(location.placeholders());
            None
        }
        ObjectClass::Part(of) => {
            report.objects += 1;
            report_part(&location, of, &object, rules, options, report);
            None
        }
        ObjectClass::Other(what) => {
            report.pass_over(&what);
            report.findings.extend(location.old_names());
            None
        }
    }
}

/// A piece of an object: it cannot be applied, but its fields can be checked.
fn report_part(
    location: &ObjectLocation<'_>,
    of: &'static str,
    object: &Value,
    rules: &AdmissionSettings,
    options: &LintOptions,
    report: &mut LintReport,
) {
    let (article, fix) = if of == "NodePool" {
        (
            "a",
            "use a complete manifest; `mortise migrate` writes it for `kubectl patch nodepool NAME --type merge`",
        )
    } else {
        ("an", "use it in the spec of a complete manifest")
    };
    report.findings.push(LintFinding {
        check: Check::Version,
        level: LintLevel::Error,
        value: "absent".to_owned(),
        problem: format!(
            "but required, as are apiVersion and metadata.name: this is a part of {article} {of}"
        ),
        fix: fix.to_owned(),
        ..location.finding("kind")
    });
    // Fields next to `spec`, or without it, are checked as if they were in it.
    let mut whole = serde_json::Map::new();
    let mut spec = object
        .get("spec")
        .and_then(Value::as_object)
        .cloned()
        .unwrap_or_default();
    for (name, value) in object.as_object().into_iter().flatten() {
        if name != "spec" {
            spec.insert(name.clone(), value.clone());
        }
    }
    whole.insert("kind".to_owned(), of.into());
    whole.insert("spec".to_owned(), Value::Object(spec));
    let lifted = |field: &str| {
        let bare = field.strip_prefix("spec.").unwrap_or(field);
        let first = bare.split(['.', '[']).next().unwrap_or_default();
        if object
            .get("spec")
            .is_some_and(|spec| spec.get(first).is_some())
        {
            field.to_owned()
        } else {
            bare.to_owned()
        }
    };
    let mut findings = Vec::new();
    for mut fault in faults(
        &rules.crds,
        &options.well_known,
        of,
        &Value::Object(whole),
        None,
    ) {
        // What is missing may stand in the rest.
        if fault.value != "absent" {
            fault.field = lifted(&fault.field);
            findings.push(AdmissionFinding::from(&fault));
        }
    }
    if of == "NodePool" {
        for name in object
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, _)| name)
        {
            if name != "spec" && name != "metadata" {
                report.findings.push(LintFinding {
                    check: Check::Deprecated,
                    level: LintLevel::Warning,
                    problem: "is outside of spec, where it is ignored".to_owned(),
                    fix: format!("write spec.{name}"),
                    ..location.finding(name)
                });
            }
        }
    }
    report.findings.extend(location.locate(findings));
    report.findings.extend(location.placeholders());
}

/// Objects that stand in the files more than once.
fn report_duplicates(own_objects: &[OwnObject<'_>], report: &mut LintReport) {
    let mut seen: BTreeMap<(&str, &str, &str), &OwnObject<'_>> = BTreeMap::new();
    for each in own_objects {
        let text = |pointer: &str| {
            each.object
                .pointer(pointer)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        let name = text("/metadata/name");
        if name.is_empty() {
            continue;
        }
        let key = (each.kind.kind.as_str(), text("/metadata/namespace"), name);
        match seen.get(&key) {
            Some(first) => {
                let location =
                    ObjectLocation::new(each.file, &each.manifest, &each.object, &each.kind.kind);
                report.findings.push(LintFinding {
                    check: Check::Duplicate,
                    level: LintLevel::Warning,
                    problem: format!(
                        "is duplicated ({}:{}): the one that is applied last takes effect",
                        first.file,
                        first.manifest.line()
                    ),
                    fix: "rename or remove one of them".to_owned(),
                    ..location.finding("metadata.name")
                });
            }
            None => drop(seen.insert(key, each)),
        }
    }
}

fn check_object(
    each: &OwnObject<'_>,
    snapshot: &Snapshot,
    rules: &AdmissionSettings,
    options: &LintOptions,
    report: &mut LintReport,
) {
    let OwnObject {
        file,
        manifest,
        kind,
        object,
    } = each;
    let text = |pointer: &str| {
        object
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let request = AdmissionRequest {
        kind: kind.clone(),
        name: text("/metadata/name").to_owned(),
        namespace: text("/metadata/namespace").to_owned(),
        operation: "CREATE".to_owned(),
        object: object.clone(),
        ..AdmissionRequest::default()
    };
    let context = AdmissionContext {
        snapshot,
        rules,
        now: options.from,
        stop: &|| true,
    };
    let mut findings: Vec<AdmissionFinding> = metadata_faults(object)
        .iter()
        .map(AdmissionFinding::from)
        .collect();
    findings.extend(validate(&context, &request).findings);
    let location = ObjectLocation::new(file, manifest, object, &kind.kind);
    let before = report.findings.len();
    report.findings.extend(location.locate(findings));
    report.findings.extend(location.placeholders());
    if kind.kind != "NodePool" {
        return;
    }
    let invalid_budgets = report.findings.iter().skip(before).any(|finding| {
        let of_budgets =
            finding.field == "spec" || finding.field.starts_with("spec.disruption.budgets");
        finding.check == Check::Schema && of_budgets
    });
    match serde_json::from_value::<NodePool>(object.clone()) {
        Ok(pool) if !invalid_budgets => report.calendars.push(PoolCalendar {
            file: (*file).to_owned(),
            line: manifest.line(),
            days: calendar(&pool, options.from, options.nodes),
        }),
        _ => report.without_calendar += 1,
    }
}
