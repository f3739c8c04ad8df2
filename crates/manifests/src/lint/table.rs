//! The report for people: one line for each finding, the calendars, a summary.

use jiff::Timestamp;
use mortise_apis::karpenter::budget_schedule::{
    AllowedDisruptions, BudgetSchedule, Calendar, CalendarInterval, ReasonSchedule,
};
use mortise_apis::values::BudgetActivity;

use super::report::{LintFinding, LintLevel, LintReport, PoolCalendar};

/// Most lines for the times of one reason.
const MOST_STEPS: usize = 40;

/// The report as lines of text.
#[must_use]
pub fn render_table(report: &LintReport) -> Vec<String> {
    let mut lines: Vec<String> = report.findings.iter().map(finding_line).collect();
    for each in &report.calendars {
        lines.push(String::new());
        push_calendar(each, &mut lines);
    }
    lines.push(String::new());
    lines.push(summary(report));
    lines
}

/// What was read and what was found, in a sentence.
pub(super) fn summary(report: &LintReport) -> String {
    let mut text = format!(
        "{} in {}: {}, {}",
        count(report.objects, "object"),
        count(report.files, "file"),
        count(report.count(LintLevel::Error), "error"),
        count(report.count(LintLevel::Warning), "warning"),
    );
    if !report.passed_over.is_empty() {
        let kinds: Vec<String> = report
            .passed_over
            .iter()
            .map(|(kind, number)| format!("{number} {kind}"))
            .collect();
        text.push_str(&format!("; passed over: {}", kinds.join(", ")));
    }
    if report.without_calendar > 0 {
        text.push_str(&format!(
            "; no calendar of {}, because of errors",
            count(report.without_calendar, "NodePool")
        ));
    }
    text
}

fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

fn finding_line(finding: &LintFinding) -> String {
    let LintFinding {
        file,
        line,
        kind,
        name,
        field,
        level,
        check,
        ..
    } = finding;
    let subject: Vec<&str> = [kind, name, field]
        .into_iter()
        .map(String::as_str)
        .filter(|word| !word.is_empty())
        .collect();
    let subject = if subject.is_empty() {
        String::new()
    } else {
        format!(" {}:", subject.join(" "))
    };
    format!(
        "{file}:{line}: {}:{subject} {} [{}]",
        level.label(),
        finding.message().replace('\n', " "),
        check.label()
    )
}

fn push_calendar(calendar: &PoolCalendar, lines: &mut Vec<String>) {
    let PoolCalendar { file, line, days } = calendar;
    let Calendar {
        pool,
        from,
        until,
        budgets,
        reasons,
    } = days;
    lines.push(format!(
        "Budgets of NodePool {pool} ({file}:{line}), {} to {} UTC",
        from.strftime("%a %Y-%m-%d %H:%M"),
        until.strftime("%a %Y-%m-%d %H:%M")
    ));
    for (at, budget) in budgets.iter().enumerate() {
        lines.push(format!("  [{at}] {}", budget_text(budget)));
    }
    if budgets.is_empty() {
        lines.push("  no budget: all nodes may go at once, at all times".to_owned());
    }
    for reason in reasons {
        push_reason(reason, lines);
    }
}

fn budget_text(budget: &BudgetSchedule) -> String {
    let BudgetSchedule {
        nodes,
        reasons,
        schedule,
        duration,
        holds,
        error,
        spans,
    } = budget;
    let reasons = match reasons {
        None => "any reason".to_owned(),
        Some(reasons) if reasons.is_empty() => "no reason".to_owned(),
        Some(reasons) => reasons.join(", "),
    };
    let mut text = format!("nodes {nodes}, {reasons}");
    match (schedule, duration) {
        (Some(schedule), Some(duration)) => {
            text.push_str(&format!(", \"{schedule}\" for {duration}"));
            text.push_str(match holds {
                BudgetActivity::Always => ": holds always",
                BudgetActivity::Never => ": never holds",
                BudgetActivity::Sometimes if spans.is_empty() => ": does not hold in these days",
                BudgetActivity::Sometimes => "",
            });
        }
        _ => text.push_str(", holds always"),
    }
    if let Some(error) = error {
        text.push_str(&format!(
            ": cannot be used ({error}), so nothing is allowed"
        ));
    }
    text
}

fn push_reason(reason: &ReasonSchedule, lines: &mut Vec<String>) {
    let ReasonSchedule {
        reasons,
        never,
        steps,
    } = reason;
    let reasons = reasons.join(", ");
    match steps.as_slice() {
        _ if *never => lines.push(format!("  {reasons}: never allows a node")),
        [only] if only.allowed == AllowedDisruptions::All => {
            lines.push(format!("  {reasons}: always allows all nodes at once"));
        }
        [only] => lines.push(format!(
            "  {reasons}: {} throughout these days{}",
            allowed_text(only),
            budgets_text(only)
        )),
        several => {
            lines.push(format!("  {reasons}:"));
            for step in several.iter().take(MOST_STEPS) {
                lines.push(format!(
                    "    {}  {}{}",
                    interval_text(step.from, step.until),
                    allowed_text(step),
                    budgets_text(step)
                ));
            }
            if let Some(more) = several
                .len()
                .checked_sub(MOST_STEPS)
                .filter(|more| *more > 0)
            {
                lines.push(format!(
                    "    and {more} more times, all of them with -o json"
                ));
            }
        }
    }
}

/// `Mon 2026-01-05 09:00 - Mon 17:00`.
fn interval_text(from: Timestamp, until: Timestamp) -> String {
    format!(
        "{} - {}",
        from.strftime("%a %Y-%m-%d %H:%M"),
        until.strftime("%a %H:%M")
    )
}

fn allowed_text(step: &CalendarInterval) -> String {
    match (&step.allowed, step.nodes) {
        (AllowedDisruptions::Limited(_), Some(nodes)) => format!("{} = {nodes}", step.allowed),
        _ => step.allowed.to_string(),
    }
}

fn budgets_text(step: &CalendarInterval) -> String {
    if step.budgets.is_empty() {
        return String::new();
    }
    let budgets: Vec<String> = step.budgets.iter().map(|at| format!("[{at}]")).collect();
    format!("  {}", budgets.join(" "))
}
