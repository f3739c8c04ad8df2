//! Disruption budgets that never or always allow.

use mortise_apis::karpenter::budget_schedule::REASONS;
use mortise_apis::values::{Allowance, BudgetActivity, BudgetError, CompiledBudget};

use super::super::text::first_of;
use super::{AdmissionContext, AdmissionResult, Check, PoolRequest};

/// Says which reasons can never, and which can without limit, take nodes of the pool.
pub(super) fn run(
    context: &AdmissionContext<'_>,
    request: &PoolRequest<'_>,
    answer: &mut AdmissionResult,
) {
    let (pool, before) = (request.pool, request.before);
    if before.is_some_and(|old| old.spec.disruption == pool.spec.disruption) || pool.is_static() {
        return;
    }
    let budgets = pool.budgets();
    let budgets: Vec<(&CompiledBudget, BudgetActivity)> = budgets
        .iter()
        .map(|budget| {
            let holds = match budget.window() {
                Ok(None) => BudgetActivity::Always,
                Ok(Some(window)) => window.holds(context.now),
                // Refused elsewhere.
                Err(BudgetError::DurationAlone(_)) => BudgetActivity::Always,
                Err(_) => BudgetActivity::Sometimes,
            };
            (budget, holds)
        })
        .collect();
    let zero = |budget: &CompiledBudget| {
        let allowance = budget.allowance();
        allowance.is_ok_and(|allowed| allowed.allowed(i64::MAX / 100) <= 0)
    };
    let nodes = || i64::try_from(context.snapshot.nodes_of_pool(&pool.name()).count()).unwrap_or(0);
    let all = |budget: &CompiledBudget| match budget.allowance() {
        Ok(Allowance::Percent(percent)) => percent >= 100,
        Ok(Allowance::Nodes(count)) => (2..=count).contains(&nodes()),
        Err(_) => false,
    };
    let (mut never, mut unlimited, mut outside) = (Vec::new(), Vec::new(), Vec::new());
    for reason in REASONS {
        let of_reason: Vec<_> = budgets
            .iter()
            .filter(|(budget, _)| budget.covers(reason))
            .collect();
        let mut always = of_reason
            .iter()
            .filter(|(_, holds)| *holds == BudgetActivity::Always)
            .peekable();
        if always.peek().is_none() {
            let windows = of_reason
                .iter()
                .any(|(_, holds)| *holds == BudgetActivity::Sometimes);
            (if windows {
                &mut outside
            } else {
                &mut unlimited
            })
            .push(reason);
        } else if always.clone().any(|(budget, _)| zero(budget)) {
            never.push(reason);
        } else if always.all(|(budget, _)| all(budget)) {
            unlimited.push(reason);
        }
    }
    let reasons = |reasons: &[&str]| {
        if reasons.len() == REASONS.len() {
            "any reason".to_owned()
        } else {
            first_of(reasons, 3)
        }
    };
    let mut warn_for = |list: &[&str], what: &str| {
        if !list.is_empty() {
            answer.warn(
                Check::Budgets,
                "spec.disruption.budgets",
                format!("disruption.budgets: {what} for {}", reasons(list)),
                "",
            );
        }
    };
    warn_for(
        &never,
        "no node may ever be disrupted (only expiry and interruption end nodes)",
    );
    warn_for(&unlimited, "all nodes may be disrupted at once");
    warn_for(
        &outside,
        "outside the scheduled windows all nodes may be disrupted at once",
    );
}
