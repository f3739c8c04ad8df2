//! The tables of the reference pages, from the code.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context as _, Result};
use clap::{Arg, Args as _};
use mortise::args::ServeArgs;
use mortise_apis::schema::conditions::{
    CAPACITY_BUFFER, KnownConditions, NODE_CLAIM, NODE_OVERLAY, NODE_POOL, NODE_POOL_POLICY,
};
use mortise_controller::DEBUG_ROUTES;
use mortise_engine::events::RULES;
use mortise_manifests::render::{ALERTS, AlertRule, RECORDING_RULES};
use mortise_webhooks::admission::{AdmissionCheck, CHECKS, CheckedKinds};
use mortise_webhooks::routes::{Access, ROUTES};
use serde_json::Value;

/// A cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

fn code(text: &str) -> String {
    if text.is_empty() {
        String::new()
    } else {
        format!("`{text}`")
    }
}

/// Flags of `mortise serve`, either those in its help or those that are accepted and hidden.
pub(super) fn flags(hidden: bool) -> String {
    let command = ServeArgs::augment_args(clap::Command::new("serve"));
    let mut table = "| flag | variable | default | what it does |\n|---|---|---|---|\n".to_owned();
    for flag in command
        .get_arguments()
        .filter(|flag| flag.is_hide_set() == hidden)
    {
        let long = flag.get_long().unwrap_or_default();
        let variable = flag
            .get_env()
            .map(|name| name.to_string_lossy().into_owned());
        let help = flag.get_help().map(ToString::to_string).unwrap_or_default();
        table.push_str(&format!(
            "| `--{long}` | {} | {} | {}{} |\n",
            code(&variable.unwrap_or_default()),
            code(&default(flag)),
            cell(&help),
            values(flag)
        ));
    }
    table
}

fn default(flag: &Arg) -> String {
    let all = flag.get_default_values().iter();
    let all: Vec<String> = all
        .map(|each| each.to_string_lossy().into_owned())
        .collect();
    all.join(",")
}

/// What the flag may be, where that is a list.
fn values(flag: &Arg) -> String {
    let all: Vec<String> = flag
        .get_possible_values()
        .iter()
        .map(|value| value.get_name().to_owned())
        .filter(|name| !name.is_empty())
        .collect();
    if all.is_empty() || all == ["true", "false"] {
        return String::new();
    }
    let all: Vec<String> = all.iter().map(|name| code(name)).collect();
    format!(" ({})", all.join(", "))
}

/// Reason, type, objects, and how long an event is not repeated.
pub(super) fn events() -> Vec<String> {
    let row = |rule: &mortise_engine::events::EventRule| {
        let type_ = if rule.warning { "Warning" } else { "Normal" };
        let on = match rule.on {
            [] => "node class".to_owned(),
            kinds => kinds.join(", "),
        };
        let minutes = rule.every_s / 60;
        format!("| `{}` | {type_} | {on} | {minutes} min |", rule.reason)
    };
    RULES.iter().map(row).collect()
}

/// Conditions that exist from the start, by kind, and the one that sums them up.
pub(super) fn conditions() -> Vec<String> {
    let kinds: [(&str, KnownConditions); 7] = [
        ("NodePool", NODE_POOL),
        ("NodeClaim", NODE_CLAIM),
        ("NodeOverlay", NODE_OVERLAY),
        ("NodePoolPolicy", NODE_POOL_POLICY),
        ("CapacityBuffer", CAPACITY_BUFFER),
        ("EC2NodeClass", mortise_aws_class::status::CONDITIONS),
        ("KWOKNodeClass", mortise_kwok_class::object::CONDITIONS),
    ];
    let mut rows = Vec::new();
    for (kind, known) in kinds {
        for type_ in known.root.iter().chain(known.dependents) {
            rows.push(format!("| {kind} | `{type_}` |"));
        }
    }
    rows
}

/// Paths that are written to with POST, who may call them, and the largest body.
pub(super) fn routes() -> Vec<String> {
    let row = |route: &mortise_webhooks::routes::Route| {
        let who = match route.access {
            Access::ExtenderClient => "client certificate of the extender's CA",
            Access::Open => "anyone who reaches the port",
            Access::Debug => "as for debug paths",
        };
        format!(
            "| `{}` | {who} | {} MiB |",
            route.path,
            route.body_limit >> 20
        )
    };
    ROUTES.iter().map(row).collect()
}

/// Checks that need more than the object: their name in reports, the kinds of objects, when they run, and what they find.
pub(super) fn checks() -> String {
    let row = |check: &AdmissionCheck| {
        let kinds = match check.kinds {
            CheckedKinds::Named(kinds) => kinds.join(", "),
            CheckedKinds::NodeClasses => "node classes".to_owned(),
        };
        let when = if check.is_of_deletions() {
            "deletion"
        } else {
            "creation, update"
        };
        format!(
            "| `{}` | {kinds} | {when} | {} |\n",
            check.check.label(),
            cell(check.check.description())
        )
    };
    let mut rows: Vec<String> = CHECKS.iter().map(row).collect();
    // Two files may look for the same thing.
    let mut seen = BTreeSet::new();
    rows.retain(|row| seen.insert(row.clone()));
    format!(
        "| check | objects | on | finds |\n|---|---|---|---|\n{}",
        rows.concat()
    )
}

/// Alerts, by urgency.
pub(super) fn alerts() -> String {
    let row = |alert: &AlertRule| {
        let link = format!("[{}](#{})", alert.name, alert.name.to_lowercase());
        let when = cell(alert.expr);
        format!(
            "| {link} | {} | `{when}` | {} |\n",
            alert.severity.as_str(),
            alert.lasts
        )
    };
    let rows: String = ALERTS.iter().map(row).collect();
    format!("| alert | severity | when | for |\n|---|---|---|---|\n{rows}")
}

/// Earlier names of metrics.
pub(super) fn earlier_names() -> String {
    let row = |(name, expr): &(&str, &str)| format!("| `{name}` | `{}` |\n", cell(expr));
    let rows: String = RECORDING_RULES.iter().map(row).collect();
    format!("| name | is |\n|---|---|\n{rows}")
}

/// Paths that are read with GET.
pub(super) fn debug_paths() -> String {
    let rows = DEBUG_ROUTES.iter().map(|route| {
        format!(
            "| {} | {} |\n",
            code(&cell(&route.usage())),
            cell(route.shows)
        )
    });
    format!("| path | shows |\n|---|---|\n{}", rows.collect::<String>())
}

/// For each kind the name of its block and the table of the fields of its spec.
pub(super) fn definitions(repository: &Path) -> Result<Vec<(String, String)>> {
    let files = [
        "aws/karpenter.sh_nodepools",
        "aws/karpenter.sh_nodeclaims",
        "aws/karpenter.sh_nodeoverlays",
        "aws/autoscaling.x-k8s.io_capacitybuffers",
        "aws/mortise.sh_nodepoolpolicies",
        "aws/karpenter.k8s.aws_ec2nodeclasses",
        "kwok/karpenter.kwok.sh_kwoknodeclasses",
    ];
    let mut tables = Vec::new();
    for file in files {
        let path = repository
            .join("manifests/crds")
            .join(format!("{file}.yaml"));
        let crd: Value = serde_saphyr::from_str(&std::fs::read_to_string(path)?)?;
        let kind = crd["spec"]["names"]["kind"].as_str().context("its kind")?;
        let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        let mut table = "| field | type | default | description |\n|---|---|---|---|\n".to_owned();
        fields(&schema["properties"]["spec"], "spec", &mut table);
        tables.push((kind.to_owned(), table));
    }
    Ok(tables)
}

/// A row for each field below a schema, in the order of their names.
fn fields(schema: &Value, path: &str, table: &mut String) {
    let all = schema["properties"].as_object().into_iter().flatten();
    let mut all: Vec<(&String, &Value)> = all.collect();
    all.sort_by_key(|(name, _)| name.as_str());
    for (name, field) in all {
        let path = format!("{path}.{name}");
        let default = match &field["default"] {
            Value::Null => String::new(),
            Value::String(text) => code(text),
            other => code(&other.to_string()),
        };
        table.push_str(&format!(
            "| `{path}` | {} | {default} | {} |\n",
            type_of(field),
            cell(field["description"].as_str().unwrap_or_default().trim())
        ));
        fields(field, &path, table);
        fields(&field["items"], &format!("{path}[]"), table);
    }
}

fn type_of(field: &Value) -> String {
    if field["x-kubernetes-int-or-string"] == true {
        return "integer or string".to_owned();
    }
    let own = field["type"].as_str().unwrap_or("any");
    match own {
        "array" => format!("list of {}", type_of(&field["items"])),
        "object" if field["additionalProperties"].is_object() => {
            format!("map to {}", type_of(&field["additionalProperties"]))
        }
        _ => own.to_owned(),
    }
}
