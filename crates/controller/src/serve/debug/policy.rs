//! The NodePoolPolicy that holds for a NodePool, and how much of it is used.

use jiff::Timestamp;
use mortise_apis::node_pool_policy::{CommitmentAmount, LimitSource, Month};
use mortise_apis::values::money::MicroUsd;
use mortise_apis::values::{Quantity, span_text};
use mortise_state::snapshot::{CommitmentUse, MonthUse, PolicyUse, Snapshot};
use serde_json::{Value, json};

/// A line for each limit.
pub(super) fn lines(policy: &PolicyUse, now: Timestamp) -> Vec<String> {
    let by = |source: &LimitSource| match source {
        LimitSource::Limits => String::new(),
        LimitSource::Calendar { .. } => format!(", by {source}"),
    };
    let nodes = policy.nodes.as_ref().map(|nodes| {
        let by = by(&nodes.source);
        format!("nodes: {} of {}{by}", nodes.used, nodes.limit)
    });
    let price = policy.price.as_ref();
    let hourly = price.and_then(|price| {
        let hourly = price.hourly.as_ref()?;
        let (limit, by) = (hourly.most, by(&hourly.source));
        Some(match &price.unknown {
            Some(claim) => format!("hourlyPrice: unknown for NodeClaim {claim}, limit {limit}{by}"),
            None => format!("hourlyPrice: {} of {limit}{by}", price.used),
        })
    });
    let month = price.and_then(|price| {
        let MonthUse {
            limit,
            spent,
            leaves,
            ..
        } = price.month?;
        let used = match &price.unknown {
            Some(claim) => format!("the price of NodeClaim {claim} is unknown"),
            None => format!("{} are in use", price.used),
        };
        Some(format!(
            "spending: {spent} of {limit} in {}, which leaves {leaves}; {used}",
            Month::of(now)
        ))
    });
    let calendar = policy
        .limits_until
        .map(|until| format!("calendar: its limits change at {until} at the earliest"));
    let rate = policy.rate.as_ref().map(|rate| {
        let (recent, limit) = (rate.recent, rate.limit);
        let window = span_text(limit.window_ms);
        format!("new nodes: {recent} of {} in {window}", limit.nodes)
    });
    let on_demand = policy.on_demand.map(|now| {
        let [own, all, wanted] =
            [now.on_demand, now.all, now.share.of(now.all)].map(Quantity::from_milli);
        format!("on-demand: {own} of {all} CPUs, at least {wanted}")
    });
    let zones = policy.zones.as_ref().map(|zones| {
        let cpus = zones
            .iter()
            .map(|(zone, cpus)| format!("{zone} {} CPUs", Quantity::from_milli(cpus)));
        let cpus: Vec<String> = cpus.collect();
        let cpus = if cpus.is_empty() {
            "none yet".to_owned()
        } else {
            cpus.join(", ")
        };
        format!(
            "zones: {cpus}; new nodes go to the one with the fewest, for up to {} more",
            zones.increase
        )
    });
    let kept = policy.minimum_utilization;
    let kept = kept.map(|percent| format!("nodes from {percent} % of use on are not consolidated"));
    let worth = policy.minimum_savings_per_move;
    let worth = worth
        .map(|least| format!("consolidation saves at least {least} for each pod that it moves"));
    let cost = policy.eviction_cost_ms;
    let cost = cost.map(|ms| {
        let span = span_text(ms);
        format!("evicting a pod that comes and goes costs the price of an average one for {span}")
    });
    let moves = policy.max_moves_per_day;
    let moves = moves.map(|most| format!("consolidation moves {most} pods of a workload in a day"));
    let waves = policy.drift_waves.map(|waves| {
        let ready = span_text(waves.ready_for_ms);
        let (first, most) = (waves.first, waves.most);
        let then = if most == i64::MAX {
            "then as many as new ones are"
        } else {
            "and no more at a time, because the policy cannot be read,"
        };
        format!("drift replaces {first} at a time first, {then} ready for {ready}")
    });
    let expired = policy.expires_within_budgets;
    let expired =
        expired.then(|| "expired nodes wait for the budgets of their NodePool".to_owned());
    let pause = policy.pause.as_ref().filter(|pause| pause.holds(now));
    let pause = pause.map(|pause| {
        let end = pause.until.map(|until| format!(" until {until}"));
        let end = end.unwrap_or_default();
        format!("disruption is paused{end}: {}", pause.reason)
    });
    let all = [
        nodes, hourly, month, calendar, rate, on_demand, zones, kept, worth, cost, moves, waves,
        expired, pause,
    ];
    all.into_iter().flatten().collect()
}

/// The commitments that pay for nodes of a NodePool, as lines and for commands.
pub(super) fn commitments(pool: &str, snapshot: &Snapshot) -> (Vec<String>, Vec<Value>) {
    let Some(all) = snapshot.commitments() else {
        return (Vec::new(), Vec::new());
    };
    let left = all.left_without(|_| false);
    let own = left.uses().filter(|each| each.of.is_for(pool));
    own.map(|each| {
        let CommitmentUse {
            of,
            amount,
            used,
            nodes,
            beyond,
        } = each;
        let (policy, commitment) = (&of.policy, &of.commitment);
        let amounts = match commitment.amount {
            CommitmentAmount::OnDemandPrice(_) => {
                format!("{} of {} on-demand", MicroUsd(used), MicroUsd(amount))
            }
            CommitmentAmount::Instances(_) => format!("{used} of {amount} instances"),
        };
        let until = commitment.until.map(|until| format!(", until {until}"));
        let until = until.unwrap_or_default();
        let line = format!(
            "{} of NodePoolPolicy {policy}: {amounts} in use by {nodes} nodes, others that it could pay for cost {beyond}{until}",
            commitment.name
        );
        let json = json!({
            "policy": policy,
            "name": commitment.name,
            "unit": each.unit(),
            "amount": each.in_unit(amount),
            "used": each.in_unit(used),
            "nodes": nodes,
            "beyond_dollars_per_hour": beyond.dollars(),
            "until": commitment.until,
            "text": line,
        });
        (line, json)
    })
    .unzip()
}

/// The same for commands.
pub(super) fn json(policy: &PolicyUse, now: Timestamp) -> Value {
    json!({ "name": policy.name, "limits": lines(policy, now) })
}
