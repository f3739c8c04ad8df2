//! What nodes have cost, by account, and what policies count of it.

use std::cmp::Reverse;
use std::sync::atomic::AtomicU64;

use mortise_apis::values::money::Spent;
use mortise_state::snapshot::{CommitmentsLeft, Snapshot};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use super::FloatGauge;
use crate::metrics::labels;
use mortise_state::costs::{CostAccount, CostOfAccount};

type FloatCounter = Counter<f64, AtomicU64>;

/// Registers the counters: what accounts have cost while this process led, of NodePools and others at most this number each, the
/// most expensive ones.
pub(super) fn register(
    live: &mut Registry,
    mut accounts: Vec<CostOfAccount>,
    most: (usize, usize),
) {
    accounts.sort_by_key(|each| Reverse(each.led.spent));
    let (pools, on_demand) = (
        Family::<labels::Pool, FloatCounter>::default(),
        Family::<labels::Pool, FloatCounter>::default(),
    );
    let namespaces = Family::<labels::Namespace, FloatCounter>::default();
    let values = Family::<labels::CostLabel, FloatCounter>::default();
    let mut unrequested = Spent::default();
    let mut shown = [0; 3];
    let mut is_shown = |kind: usize, most: usize| {
        shown.get_mut(kind).is_some_and(|count| {
            *count += 1;
            *count <= most
        })
    };
    for each in &accounts {
        let (name, spent) = (each.account.name().to_owned(), each.led.spent.dollars());
        match &each.account {
            CostAccount::NodePool(_) if is_shown(0, most.0) => {
                let labels = labels::Pool { nodepool: name };
                let of_on_demand = each.led.on_demand.dollars();
                on_demand.get_or_create(&labels).inc_by(of_on_demand);
                pools.get_or_create(&labels).inc_by(spent);
            }
            CostAccount::Namespace(_) if is_shown(1, most.1) => {
                let labels = labels::Namespace { namespace: name };
                namespaces.get_or_create(&labels).inc_by(spent);
            }
            CostAccount::Label(_) if is_shown(2, most.1) => {
                let labels = labels::CostLabel { value: name };
                values.get_or_create(&labels).inc_by(spent);
            }
            CostAccount::NodePool(_) | CostAccount::Namespace(_) | CostAccount::Label(_) => {}
            CostAccount::Unrequested => unrequested += each.led.spent,
        }
    }
    live.register(
        "mortise_nodepool_cost",
        "What the nodes of a NodePool have cost",
        pools,
    );
    live.register(
        "mortise_nodepool_on_demand_cost",
        "What the instance types of the nodes of a NodePool would have cost on-demand",
        on_demand,
    );
    live.register(
        "mortise_namespace_cost",
        "What the pods of a namespace have cost, by the shares of nodes that they request",
        namespaces,
    );
    live.register(
        "mortise_label_cost",
        "What the pods with a value of the cost label have cost, by the shares of nodes that they request",
        values,
    );
    live.register(
        "mortise_unrequested_cost",
        "What the parts of nodes have cost that no pod requests",
        ConstCounter::new(unrequested.dollars()),
    );
}

/// What is paid for in advance, and what is used of it.
pub(super) fn commitments(live: &mut Registry, snapshot: &Snapshot) {
    let amounts = Family::<labels::Commitment, FloatGauge>::default();
    let used = Family::<labels::Commitment, FloatGauge>::default();
    let left = snapshot
        .commitments()
        .map(|all| all.left_without(|_| false));
    for each in left.iter().flat_map(CommitmentsLeft::uses) {
        let labels = labels::Commitment {
            policy: each.of.policy.to_string(),
            commitment: each.of.commitment.name.to_string(),
            unit: each.unit(),
        };
        amounts
            .get_or_create(&labels)
            .set(each.in_unit(each.amount));
        used.get_or_create(&labels).set(each.in_unit(each.used));
    }
    live.register(
        "mortise_commitment_amount",
        "What a commitment of a NodePoolPolicy pays for, used or not: dollars per hour of on-demand prices, or instances",
        amounts,
    );
    live.register(
        "mortise_commitment_used",
        "What nodes use of a commitment",
        used,
    );
}

/// What the nodes of policies with a limit per month have cost in this month, and the limit.
pub(super) fn policies(live: &mut Registry, snapshot: &Snapshot) {
    let spent = Family::<labels::Policy, FloatGauge>::default();
    let limits = Family::<labels::Policy, FloatGauge>::default();
    for pool in snapshot.policies_in_force().into_keys() {
        let Some(policy) = snapshot.policy_of(&pool) else {
            continue;
        };
        let month = policy.price.as_ref().and_then(|price| price.month);
        if let Some(month) = month {
            let labels = labels::Policy {
                policy: policy.name.to_string(),
            };
            spent.get_or_create(&labels).set(month.spent.dollars());
            limits.get_or_create(&labels).set(month.limit.dollars());
        }
    }
    live.register(
        "mortise_policy_month_cost",
        "What the nodes of a NodePoolPolicy have cost in this calendar month",
        spent,
    );
    live.register(
        "mortise_policy_month_cost_limit",
        "What the nodes of a NodePoolPolicy may cost in a calendar month",
        limits,
    );
}
