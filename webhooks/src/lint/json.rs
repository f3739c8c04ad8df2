//! The report as one JSON object.

use mortise_core::calendar::{BudgetSchedule, Calendar, CalendarInterval, ReasonSchedule};
use mortise_core::values::BudgetActivity;
use serde_json::{Value, json};

use super::report::{LintFinding, LintLevel, LintReport, PoolCalendar};

impl LintReport {
    /// The report as JSON: `files`, `objects`, `passedOver`, `errors`, `warnings`, `findings` and `calendars`; times in
    /// RFC 3339.
    #[must_use]
    pub fn json(&self) -> Value {
        json!({
            "files": self.files,
            "objects": self.objects,
            "passedOver": self.passed_over,
            "errors": self.count(LintLevel::Error),
            "warnings": self.count(LintLevel::Warning),
            "findings": self.findings.iter().map(finding).collect::<Vec<_>>(),
            "calendars": self.calendars.iter().map(calendar).collect::<Vec<_>>(),
            "withoutCalendar": self.without_calendar,
        })
    }
}

fn finding(finding: &LintFinding) -> Value {
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

fn budget(of: &BudgetSchedule) -> Value {
    let BudgetSchedule {
        nodes,
        reasons,
        schedule,
        duration,
        holds,
        error,
        spans,
    } = of;
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

fn reason(of: &ReasonSchedule) -> Value {
    let steps = of.steps.iter().map(|step| {
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
        "reasons": of.reasons,
        "never": of.never,
        "steps": steps.collect::<Vec<_>>(),
    })
}
