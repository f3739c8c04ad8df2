use std::sync::Arc;

use jiff::Timestamp;
use mortise_apis::values::after;
use mortise_apis::values::money::{MicroUsd, Spent};
use mortise_state::snapshot::{Pod, Snapshot, StateNode};

use mortise_state::costs::{CostAccount, HOURS};

use super::{Costs, csv};
use crate::testing::{noon, shared};

const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;

/// The test cluster: `n1` has a quarter of its CPUs requested by a pod of the namespace `shop`.
fn cluster() -> Snapshot {
    Snapshot::clone(&shared().snapshot())
}

fn change(snapshot: &mut Snapshot, node: &str, edit: impl FnOnce(&mut StateNode)) {
    let mut node = StateNode::clone(snapshot.node(node).unwrap());
    edit(&mut node);
    snapshot.insert_node(Arc::new(node));
    snapshot.generation += 1;
}

fn with_prices(prices: &[(&str, i64)]) -> Snapshot {
    let mut snapshot = cluster();
    for (node, price) in prices {
        change(&mut snapshot, node, |node| {
            node.price = Some(MicroUsd(*price));
        });
    }
    snapshot
}

/// Kind and name of each account, with its price now, what it has cost in this hour and while this process led.
fn accounts(
    costs: &Costs,
    snapshot: &Snapshot,
    at: Timestamp,
) -> Vec<(String, i64, String, String)> {
    let all = costs.now(snapshot, at, true).into_iter();
    all.map(|each| {
        let account = format!("{} {}", each.account.kind(), each.account.name());
        let (hour, led) = (each.hour.spent.to_dollars(), each.led.spent.to_dollars());
        (account, each.price.0, hour, led)
    })
    .collect()
}

fn row(account: &str, price: i64, hour: &str, led: &str) -> (String, i64, String, String) {
    (account.to_owned(), price, hour.to_owned(), led.to_owned())
}

#[test]
fn a_node_is_divided_by_what_pods_request() {
    let snapshot = with_prices(&[("n1", 400_000), ("n2", 200_000)]);
    let costs = Costs::default();
    costs.set_label("app".into());
    costs.follow(&snapshot, noon(), true);
    let at = after(noon(), 30 * MINUTE);
    assert_eq!(
        accounts(&costs, &snapshot, at),
        [
            row("nodepool general", 600_000, "0.300000", "0.300000"),
            row("namespace shop", 100_000, "0.050000", "0.050000"),
            row("label web", 100_000, "0.050000", "0.050000"),
            row("unrequested ", 500_000, "0.250000", "0.250000"),
        ]
    );
}

#[test]
fn what_does_not_lead_counts_hours_and_no_metrics() {
    let snapshot = with_prices(&[("n1", 400_000)]);
    let costs = Costs::default();
    costs.follow(&snapshot, noon(), false);
    costs.follow(&snapshot, after(noon(), 15 * MINUTE), true);
    let found = accounts(&costs, &snapshot, after(noon(), 45 * MINUTE));
    assert_eq!(
        found[0],
        row("nodepool general", 400_000, "0.300000", "0.200000")
    );
}

#[test]
fn the_parts_come_to_the_whole() {
    let mut snapshot = with_prices(&[("n1", 333_333)]);
    // Seven pods that request more CPUs and memory than the node has.
    change(&mut snapshot, "n1", |node| {
        let pod = Pod::clone(&node.pods[0]);
        node.pods = (0..7_i64)
            .map(|n| {
                let mut pod = pod.clone();
                let class = Arc::make_mut(&mut pod.class);
                class.namespace = format!("team-{}", n % 3).into();
                class.requests.cpu = 311 + 97 * n;
                class.requests.memory = (7 - n) << 29;
                Arc::new(pod)
            })
            .collect();
    });
    let costs = Costs::default();
    costs.follow(&snapshot, noon(), true);
    let now = costs.now(&snapshot, after(noon(), 1_234_567), true);
    let sum = |is_part: fn(&CostAccount) -> bool| {
        let parts = now.iter().filter(|each| is_part(&each.account));
        parts.fold(Spent::default(), |sum, each| sum + each.hour.spent)
    };
    let whole = sum(|account| matches!(account, CostAccount::NodePool(_)));
    assert_eq!(whole, Spent::at_price(MicroUsd(333_333), 1_234_567));
    let pods = sum(|account| matches!(account, CostAccount::Namespace(_)));
    let rest = sum(|account| matches!(account, CostAccount::Unrequested));
    assert_eq!(pods + rest, whole);
    assert!(rest < Spent::at_price(MicroUsd(10), 1_234_567), "rounding");
}

#[test]
fn hours_end_and_a_week_of_them_is_kept() {
    let mut snapshot = with_prices(&[("n1", 400_000)]);
    let costs = Costs::default();
    costs.follow(&snapshot, after(noon(), 30 * MINUTE), true);
    costs.follow(&snapshot, after(noon(), 90 * MINUTE), true);
    // Nothing is read for some hours, and then the node is gone.
    snapshot.remove_node("kwok://n1");
    snapshot.generation += 1;
    costs.follow(&snapshot, after(noon(), 3 * HOUR), true);
    costs.follow(&snapshot, after(noon(), 5 * HOUR), true);
    assert_eq!(
        csv(&costs.hours()),
        "hour,account,name,cost,on_demand_cost\n\
         2026-05-01T12:00:00Z,nodepool,general,0.200000,0.200000\n\
         2026-05-01T12:00:00Z,namespace,shop,0.050000,0.050000\n\
         2026-05-01T12:00:00Z,unrequested,,0.150000,0.150000\n\
         2026-05-01T13:00:00Z,nodepool,general,0.400000,0.400000\n\
         2026-05-01T13:00:00Z,namespace,shop,0.100000,0.100000\n\
         2026-05-01T13:00:00Z,unrequested,,0.300000,0.300000\n\
         2026-05-01T14:00:00Z,nodepool,general,0.400000,0.400000\n\
         2026-05-01T14:00:00Z,namespace,shop,0.100000,0.100000\n\
         2026-05-01T14:00:00Z,unrequested,,0.300000,0.300000\n"
    );
    // A process that was stopped for a month does not count each of its hours.
    costs.follow(&snapshot, after(noon(), 31 * 24 * HOUR), true);
    let hours = costs.hours();
    assert_eq!(hours.len(), HOURS);
    let last = hours.last().unwrap();
    assert_eq!(last.start, after(noon(), 31 * 24 * HOUR - HOUR));
    assert!(last.amounts.is_empty());
}
