//! The report as one JSON object.

use mortise_apis::karpenter::budget_schedule::{
    BudgetSchedule, Calendar, CalendarInterval, ReasonSchedule,
};
use mortise_apis::values::BudgetActivity;
use serde_json::{Value, json};

use super::report::{LintFinding, LintLevel, LintReport, PoolCalendar};

/// The report as JSON: `files`, `objects`, `passedOver`, `errors`, `warnings`, `findings` and `calendars`; times in
/// RFC 3339.
#[must_use]
pub fn render_json(report: &LintReport) -> Value {
    json!({
        "files": report.files,
        "objects": report.objects,
        "passedOver": report.passed_over,
        "errors": report.count(LintLevel::Error),
        "warnings": report.count(LintLevel::Warning),
        "findings": report.findings.iter().map(finding_json).collect::<Vec<_>>(),
        "calendars": report.calendars.iter().map(calendar_json).collect::<Vec<_>>(),
        "withoutCalendar": report.without_calendar,
    })
}

fn finding_json(finding: &LintFinding) -> Value {
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
pub(super) fn calendar_json(calendar: &PoolCalendar) -> Value {
    let PoolCalendar { file, line, days } = calendar;
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
        "budgets": budgets.iter().map(budget_json).collect::<Vec<_>>(),
        "reasons": reasons.iter().map(reason_json).collect::<Vec<_>>(),
    })
}

fn budget_json(budget: &BudgetSchedule) -> Value {
    let BudgetSchedule {
        nodes,
        reasons,
        schedule,
        duration,
        holds,
        error,
        spans,
    } = budget;
    let holds = match holds {
        BudgetActivity::Always => "always",
        BudgetActivity::Sometimes => "sometimes",
        BudgetActivity::Never => "never",
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

fn reason_json(reason: &ReasonSchedule) -> Value {
    let steps = reason.steps.iter().map(|step| {
        let CalendarInterval {
            from,
            until,
            allowed,
            nodes,
            budgets,
        } = step;
        json!({ "from": from, "until": until, "allowed": allowed.to_string(), "nodes": nodes, "budgets": budgets })
    });
    json!({
        "reasons": reason.reasons,
        "never": reason.never,
        "steps": steps.collect::<Vec<_>>(),
    })
}
