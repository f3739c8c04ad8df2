//! The report as one JSON object.

use mortise_core::calendar::{BudgetDays, Calendar, ReasonDays, Step};
use mortise_core::values::Holds;
use serde_json::{Value, json};

use super::report::{Finding, Level, PoolCalendar, Report};

impl Report {
    /// The report as JSON: `files`, `objects`, `passedOver`, `errors`, `warnings`, `findings` and `calendars`; times in
    /// RFC 3339.
    #[must_use]
    pub fn json(&self) -> Value {
        json!({
            "files": self.files,
            "objects": self.objects,
            "passedOver": self.passed_over,
            "errors": self.count(Level::Error),
            "warnings": self.count(Level::Warning),
            "findings": self.findings.iter().map(finding).collect::<Vec<_>>(),
            "calendars": self.calendars.iter().map(calendar).collect::<Vec<_>>(),
            "withoutCalendar": self.without_calendar,
        })
    }
}

fn finding(finding: &Finding) -> Value {
    json!({
        "file": finding.file,
        "line": finding.line,
        "kind": finding.kind,
        "name": finding.name,
        "field": finding.field,
        "value": finding.value,
        "level": finding.level.label(),
        "check": finding.check.label(),
        "problem": finding.problem,
        "fix": finding.fix,
        "nearest": finding.nearest(),
        "message": finding.message(),
    })
}

/// A calendar as JSON.
pub(super) fn calendar(of: &PoolCalendar) -> Value {
    let PoolCalendar { file, line, days } = of;
    let Calendar {
        pool,
        from,
        until,
        budgets,
        reasons,
    } = days;
    json!({
        "file": file,
        "line": line,
        "nodePool": pool.to_string(),
        "from": from,
        "until": until,
        "budgets": budgets.iter().map(budget).collect::<Vec<_>>(),
        "reasons": reasons.iter().map(reason).collect::<Vec<_>>(),
    })
}

fn budget(of: &BudgetDays) -> Value {
    let BudgetDays {
        nodes,
        reasons,
        schedule,
        duration,
        holds,
        error,
        spans,
    } = of;
    let holds = match holds {
        Holds::Always => "always",
        Holds::Sometimes => "sometimes",
        Holds::Never => "never",
    };
    let windows: Vec<Value> = spans
        .iter()
        .map(|(from, until)| json!({ "from": from, "until": until }))
        .collect();
    json!({
        "nodes": nodes,
        "reasons": reasons,
        "schedule": schedule,
        "duration": duration,
        "holds": holds,
        "error": error,
        "windows": windows,
    })
}

fn reason(of: &ReasonDays) -> Value {
    let steps = of.steps.iter().map(|step| {
        let Step {
            from,
            until,
            allowed,
            nodes,
            budgets,
        } = step;
        json!({ "from": from, "until": until, "allowed": allowed.to_string(), "nodes": nodes, "budgets": budgets })
    });
    json!({
        "reasons": of.reasons,
        "never": of.never,
        "steps": steps.collect::<Vec<_>>(),
    })
}
