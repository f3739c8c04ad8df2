//! When a pool's budgets let nodes go in the days to come.
//!
//! The budgets are those that the workers count with ([`NodePool::budgets`]), so the calendar is what will happen, times
//! in UTC. How many nodes a percentage is depends on the pool's size at that time.

use std::fmt;

use jiff::{SignedDuration, Timestamp};

use crate::karpenter::nodepool::NodePool;
use crate::names::PoolName;
use crate::values::{Allowance, BudgetActivity, CompiledBudget};

/// Reasons that budgets are about, as they spell them.
pub const REASONS: [&str; 3] = ["Underutilized", "Empty", "Drifted"];
/// How far a calendar looks: every day of the week once.
const DAYS: i64 = 7;

/// The budgets of a pool over seven days.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Calendar {
    /// The pool.
    pub pool: PoolName,
    /// Begin.
    pub from: Timestamp,
    /// End, excluded.
    pub until: Timestamp,
    /// Each budget, in the order of the pool.
    pub budgets: Vec<BudgetSchedule>,
    /// What the budgets allow together. Reasons for which they do the same stand together.
    pub reasons: Vec<ReasonSchedule>,
}

/// When one budget holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetSchedule {
    /// How many nodes it allows, as written.
    pub nodes: String,
    /// Its reasons; `None` for all.
    pub reasons: Option<Vec<String>>,
    /// Its schedule, if it has one.
    pub schedule: Option<String>,
    /// Its duration, if it has one.
    pub duration: Option<String>,
    /// How often it holds, also after these days.
    pub holds: BudgetActivity,
    /// Why it cannot be used: then it allows nothing, for any reason.
    pub error: Option<String>,
    /// When it holds: begin and end, the end excluded.
    pub spans: Vec<(Timestamp, Timestamp)>,
}

/// What is allowed for some reasons.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReasonSchedule {
    /// The reasons, never empty.
    pub reasons: Vec<&'static str>,
    /// A budget that always holds allows none: not in these days, and not later.
    pub never: bool,
    /// What is allowed when: one after the other, without gaps, each different from the one before.
    pub steps: Vec<CalendarInterval>,
}

/// A time during which the same is allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CalendarInterval {
    /// Begin.
    pub from: Timestamp,
    /// End, excluded.
    pub until: Timestamp,
    /// What is allowed.
    pub allowed: AllowedDisruptions,
    /// That many nodes, where the size of the pool was given; `None` means no limit, or no size.
    pub nodes: Option<i64>,
    /// The budgets that hold, by their position.
    pub budgets: Vec<usize>,
}

/// How many nodes may be on their way out at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AllowedDisruptions {
    /// No budget holds.
    All,
    /// None.
    None,
    /// As many as the smallest of these.
    Limited(Vec<Allowance>),
}

impl fmt::Display for AllowedDisruptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::None => f.write_str("none"),
            Self::Limited(limits) => {
                for (at, limit) in limits.iter().enumerate() {
                    f.write_str(if at == 0 { "" } else { " or " })?;
                    match limit {
                        Allowance::Nodes(count) => write!(f, "{count}")?,
                        Allowance::Percent(percent) => write!(f, "{percent}%")?,
                    }
                }
                f.write_str(if limits.len() > 1 { ", the fewer" } else { "" })
            }
        }
    }
}

/// The calendar of a pool from a time on. `nodes`: how many the pool has, where that is known.
///
/// # Cost
/// One question for each fire time of each schedule: ten thousand for one that fires every minute.
#[must_use]
pub fn calendar(pool: &NodePool, from: Timestamp, nodes: Option<i64>) -> Calendar {
    let until = from
        .checked_add(SignedDuration::from_hours(24 * DAYS))
        .unwrap_or(Timestamp::MAX);
    let budgets = pool.budgets();
    let parsed: Vec<&CompiledBudget> = budgets.iter().collect();
    let days: Vec<BudgetSchedule> = parsed
        .iter()
        .enumerate()
        .map(|(at, budget)| of_budget(pool, at, budget, from, until))
        .collect();
    let mut times: Vec<Timestamp> = days
        .iter()
        .flat_map(|each| &each.spans)
        .flat_map(|(begin, end)| [*begin, *end])
        .chain([from])
        .filter(|time| *time < until)
        .collect();
    times.sort_unstable();
    times.dedup();
    let mut reasons: Vec<ReasonSchedule> = Vec::new();
    for reason in REASONS {
        let mut steps: Vec<CalendarInterval> = Vec::new();
        for (at, begin) in times.iter().enumerate() {
            let end = times.get(at + 1).copied().unwrap_or(until);
            let (allowed, holding) = allowed(&parsed, &days, reason, *begin);
            let count = nodes.and_then(|nodes| {
                let verdict = budgets.evaluate(*begin, nodes, reason);
                verdict.allowed_or_zero()
            });
            match steps.last_mut() {
                Some(last) if last.allowed == allowed && last.budgets == holding => {
                    last.until = end;
                }
                _ => steps.push(CalendarInterval {
                    from: *begin,
                    until: end,
                    allowed,
                    nodes: count,
                    budgets: holding,
                }),
            }
        }
        let never = parsed.iter().zip(&days).any(|(budget, days)| {
            days.error.is_some()
                || days.holds == BudgetActivity::Always && budget.covers(reason) && is_zero(budget)
        });
        match reasons.iter_mut().find(|known| known.steps == steps) {
            Some(known) => known.reasons.push(reason),
            None => reasons.push(ReasonSchedule {
                reasons: vec![reason],
                never,
                steps,
            }),
        }
    }
    Calendar {
        pool: pool.name(),
        from,
        until,
        budgets: days,
        reasons,
    }
}

/// Allows no node, however many there are.
fn is_zero(budget: &CompiledBudget) -> bool {
    budget
        .allowance()
        .is_ok_and(|allowed| matches!(allowed, Allowance::Nodes(0) | Allowance::Percent(0)))
}

fn of_budget(
    pool: &NodePool,
    at: usize,
    budget: &CompiledBudget,
    from: Timestamp,
    until: Timestamp,
) -> BudgetSchedule {
    let written = pool
        .spec
        .disruption
        .as_ref()
        .and_then(|disruption| disruption.budgets.as_ref()?.get(at));
    let (holds, spans) = match budget.window() {
        Ok(None) | Err(_) => (BudgetActivity::Always, vec![(from, until)]),
        Ok(Some(window)) => (window.holds(from), window.spans(from, until)),
    };
    BudgetSchedule {
        nodes: written.map_or_else(|| "10%".to_owned(), |written| written.nodes.clone()),
        reasons: written.and_then(|written| written.reasons.clone()),
        schedule: written.and_then(|written| written.schedule.clone()),
        duration: written.and_then(|written| written.duration.as_ref().map(ToString::to_string)),
        holds,
        error: budget.error().map(ToString::to_string),
        spans,
    }
}

/// What is allowed at a time, and the budgets that say so.
fn allowed(
    budgets: &[&CompiledBudget],
    days: &[BudgetSchedule],
    reason: &str,
    at: Timestamp,
) -> (AllowedDisruptions, Vec<usize>) {
    let mut limits: Vec<Allowance> = Vec::new();
    let (mut holding, mut none) = (Vec::new(), false);
    for (position, (budget, days)) in budgets.iter().zip(days).enumerate() {
        let broken = days.error.is_some();
        let now = days
            .spans
            .iter()
            .any(|(begin, end)| (*begin..*end).contains(&at));
        let counts = broken || (now && budget.covers(reason));
        if !counts {
            continue;
        }
        holding.push(position);
        none |= broken || is_zero(budget);
        // A share of everything does not limit.
        limits.extend(
            budget
                .allowance()
                .ok()
                .filter(|allowed| !matches!(allowed, Allowance::Percent(100..))),
        );
    }
    // Of numbers and of shares, only the smallest counts.
    limits.sort_unstable();
    limits.dedup_by_key(|limit| std::mem::discriminant(limit));
    let allowed = match (none, limits.is_empty()) {
        (true, _) => AllowedDisruptions::None,
        (false, true) => AllowedDisruptions::All,
        (false, false) => AllowedDisruptions::Limited(limits),
    };
    (allowed, holding)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// A Monday.
    const FROM: &str = "2026-01-05T00:00:00Z";

    fn of(budgets: Value, nodes: Option<i64>) -> Calendar {
        let pool: NodePool = serde_json::from_value(json!({
            "metadata": { "name": "p" }, "spec": { "disruption": { "budgets": budgets } },
        }))
        .unwrap();
        calendar(&pool, FROM.parse().unwrap(), nodes)
    }

    /// `Mon 09:00 none`, one for each step of a reason.
    fn steps(calendar: &Calendar, reason: &str) -> Vec<String> {
        let of = calendar
            .reasons
            .iter()
            .find(|each| each.reasons.contains(&reason));
        of.unwrap()
            .steps
            .iter()
            .map(|step| {
                let count = step
                    .nodes
                    .map_or_else(String::new, |nodes| format!(" = {nodes}"));
                format!("{} {}{count}", step.from.strftime("%a %H:%M"), step.allowed)
            })
            .collect()
    }

    #[test]
    fn without_budgets_a_tenth_at_all_times() {
        let calendar = of(Value::Null, Some(25));
        assert_eq!(calendar.reasons.len(), 1);
        assert_eq!(calendar.reasons[0].reasons, REASONS);
        assert_eq!(steps(&calendar, "Empty"), ["Mon 00:00 10% = 3"]);
        assert_eq!(calendar.budgets[0].holds, BudgetActivity::Always);
        assert!(!calendar.reasons[0].never);
    }

    #[test]
    fn working_hours_are_closed_for_some_reasons() {
        let calendar = of(
            json!([
                { "nodes": "10%" },
                { "nodes": "0", "schedule": "0 9 * * mon-fri", "duration": "8h", "reasons": ["Drifted", "Underutilized"] },
            ]),
            None,
        );
        let mut want = vec!["Mon 00:00 10%".to_owned()];
        for day in ["Mon", "Tue", "Wed", "Thu", "Fri"] {
            want.push(format!("{day} 09:00 none"));
            want.push(format!("{day} 17:00 10%"));
        }
        assert_eq!(steps(&calendar, "Drifted"), want);
        assert_eq!(steps(&calendar, "Underutilized"), want);
        assert_eq!(steps(&calendar, "Empty"), ["Mon 00:00 10%"]);
        assert_eq!(calendar.reasons.len(), 2);
        assert_eq!(calendar.budgets[1].spans.len(), 5);
    }

    #[test]
    fn a_window_that_runs_already_and_one_that_runs_over_the_end() {
        let calendar = of(
            json!([{ "nodes": "1", "schedule": "0 22 * * *", "duration": "4h" }]),
            None,
        );
        let all = steps(&calendar, "Empty");
        assert_eq!(all.first().unwrap(), "Mon 00:00 1");
        assert_eq!(all.get(1).unwrap(), "Mon 02:00 all");
        assert_eq!(all.last().unwrap(), "Sun 22:00 1");
        let last = calendar.reasons[0].steps.last().unwrap();
        assert_eq!(last.until, calendar.until);
        assert_eq!(
            calendar.until.duration_since(calendar.from),
            SignedDuration::from_hours(168)
        );
    }

    #[test]
    fn always_never_and_what_only_looks_scheduled() {
        let never = of(json!([{ "nodes": "0%" }, { "nodes": "50%" }]), Some(10));
        assert!(never.reasons[0].never);
        assert_eq!(steps(&never, "Empty"), ["Mon 00:00 none = 0"]);
        let always = of(
            json!([{ "nodes": "0", "schedule": "@hourly", "duration": "1h" }]),
            None,
        );
        assert_eq!(always.budgets[0].holds, BudgetActivity::Always);
        assert!(always.reasons[0].never);
        assert_eq!(always.budgets[0].spans, [(always.from, always.until)]);
        let all = of(json!([{ "nodes": "100%" }]), Some(10));
        assert_eq!(steps(&all, "Empty"), ["Mon 00:00 all = 10"]);
        assert_eq!(steps(&of(json!([]), None), "Empty"), ["Mon 00:00 all"]);
        // Not in these days, but later.
        let later = of(
            json!([{ "nodes": "0", "schedule": "0 0 1 7 *", "duration": "1h" }]),
            None,
        );
        assert_eq!(
            (later.budgets[0].holds, later.budgets[0].spans.len()),
            (BudgetActivity::Sometimes, 0)
        );
    }

    #[test]
    fn the_smallest_number_and_the_smallest_share() {
        let both = of(
            json!([{ "nodes": "30%" }, { "nodes": "5" }, { "nodes": "20%" }, { "nodes": "7" }]),
            Some(10),
        );
        assert_eq!(steps(&both, "Empty"), ["Mon 00:00 5 or 20%, the fewer = 2"]);
    }

    #[test]
    fn what_cannot_be_read_allows_nothing() {
        let broken = of(
            json!([{ "nodes": "10%" }, { "nodes": "1", "schedule": "0 24 * * *", "duration": "1h", "reasons": ["Empty"] }]),
            None,
        );
        assert_eq!(steps(&broken, "Drifted"), ["Mon 00:00 none"]);
        assert!(broken.budgets[1].error.is_some());
    }

    /// Every step agrees with what the workers are told at its begin and just before its end.
    #[test]
    fn the_calendar_is_what_the_budgets_say() {
        let schedules = [
            "0 9 * * 1-5",
            "*/7 * * * *",
            "30 23 * * 6",
            "@daily",
            "0 0 1 1 *",
            "5,10 2-4 * * *",
        ];
        let durations = ["1m", "5m", "45m", "8h", "30h", "200h"];
        for schedule in schedules {
            for duration in durations {
                let written = json!([{ "nodes": "20%" }, { "nodes": "1", "schedule": schedule, "duration": duration }]);
                let pool: NodePool = serde_json::from_value(
                    json!({ "spec": { "disruption": { "budgets": written } } }),
                )
                .unwrap();
                let calendar = calendar(&pool, FROM.parse().unwrap(), Some(10));
                let budgets = pool.budgets();
                for step in &calendar.reasons[0].steps {
                    for time in [
                        step.from,
                        step.until
                            .checked_sub(SignedDuration::from_secs(1))
                            .unwrap(),
                    ] {
                        let told = budgets.evaluate(time, 10, "Empty").allowed_or_zero();
                        assert_eq!(told, step.nodes, "{schedule} {duration} at {time}");
                    }
                }
            }
        }
    }
}
