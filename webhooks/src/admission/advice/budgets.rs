//! Disruption budgets that never or always allow.

use jiff::{SignedDuration, Timestamp};
use mortise_core::apis::nodepool::{Budget, NodePool};
use mortise_core::values::{Allowance, CronSchedule, GoDuration};

use super::super::text::some;
use super::{Answer, Facts};

/// Reasons that budgets are about.
const REASONS: [&str; 3] = ["Underutilized", "Empty", "Drifted"];

/// Windows that are looked at to find a gap between them.
const WINDOWS: usize = 300;

/// When a budget holds.
#[derive(PartialEq)]
enum Holds {
    Always,
    Sometimes,
    Never,
}

/// Says which reasons can never, and which can without limit, take nodes of the pool.
pub(super) fn pool(
    facts: &Facts<'_>,
    pool: &NodePool,
    before: Option<&NodePool>,
    answer: &mut Answer,
) {
    if before.is_some_and(|old| old.spec.disruption == pool.spec.disruption) || pool.is_static() {
        return;
    }
    let Some(disruption) = &pool.spec.disruption else {
        return; // the definition's default: 10 %
    };
    let Some(budgets) = &disruption.budgets else {
        return;
    };
    let budgets: Vec<(usize, &Budget, Holds)> = budgets
        .iter()
        .enumerate()
        .map(|(n, budget)| (n, budget, holds(budget, facts.now)))
        .collect();
    let covers = |budget: &Budget, reason: &str| {
        let listed = budget.reasons.as_ref();
        listed.is_none_or(|reasons| reasons.iter().any(|each| each == reason))
    };
    let zero = |budget: &Budget| {
        Allowance::parse(&budget.nodes).is_ok_and(|allowed| allowed.of(i64::MAX / 100) <= 0)
    };
    let nodes = || i64::try_from(facts.snapshot.nodes_of_pool(&pool.name()).count()).unwrap_or(0);
    let all = |budget: &Budget| match Allowance::parse(&budget.nodes) {
        Ok(Allowance::Percent(percent)) => percent >= 100,
        Ok(Allowance::Nodes(count)) => (2..=count).contains(&nodes()),
        Err(_) => false,
    };
    let (mut never, mut unlimited, mut outside) = (Vec::new(), Vec::new(), Vec::new());
    for reason in REASONS {
        let of_reason: Vec<_> = budgets
            .iter()
            .filter(|(_, budget, _)| covers(budget, reason))
            .collect();
        let mut always = of_reason
            .iter()
            .filter(|(_, _, holds)| *holds == Holds::Always)
            .peekable();
        if always.peek().is_none() {
            let windows = of_reason
                .iter()
                .any(|(_, _, holds)| *holds == Holds::Sometimes);
            (if windows {
                &mut outside
            } else {
                &mut unlimited
            })
            .push(reason);
        } else if always.clone().any(|(_, budget, _)| zero(budget)) {
            never.push(reason);
        } else if always.all(|(_, budget, _)| all(budget)) {
            unlimited.push(reason);
        }
    }
    let reasons = |reasons: &[&str]| {
        if reasons.len() == REASONS.len() {
            "any reason".to_owned()
        } else {
            some(reasons, 3)
        }
    };
    let mut tell = |list: &[&str], what: &str| {
        if !list.is_empty() {
            answer
                .warnings
                .push(format!("disruption.budgets: {what} for {}", reasons(list)));
        }
    };
    tell(
        &never,
        "no node may ever be disrupted (only expiry and interruption end nodes)",
    );
    tell(&unlimited, "all nodes may be disrupted at once");
    tell(
        &outside,
        "outside the scheduled windows all nodes may be disrupted at once",
    );
}

/// Whether a budget holds at all times: each window lasts until the next begins.
fn holds(budget: &Budget, now: Timestamp) -> Holds {
    let (Some(schedule), Some(duration)) = (&budget.schedule, &budget.duration) else {
        return Holds::Always;
    };
    let (Ok(schedule), Ok(duration)) = (
        CronSchedule::parse(schedule),
        GoDuration::parse(duration.as_str()),
    ) else {
        return Holds::Sometimes; // refused elsewhere
    };
    let duration = SignedDuration::from(duration);
    if duration.is_zero() {
        return Holds::Never;
    }
    let Some(mut begin) = schedule.next(now) else {
        return Holds::Never;
    };
    for _ in 0..WINDOWS {
        let Some(next) = schedule.next(begin) else {
            return Holds::Sometimes;
        };
        if next.duration_since(begin) > duration {
            return Holds::Sometimes;
        }
        begin = next;
    }
    Holds::Always
}
