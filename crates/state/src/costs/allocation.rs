//! The accounts: what each costs per hour now, and what it has cost in each hour.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use crate::snapshot::{NodeKey, Snapshot, StateNode};
use foldhash::fast::FixedState;
use jiff::Timestamp;
use mortise_apis::values::money::{MicroUsd, Spent};
use mortise_apis::values::{after, since};

use super::account::{CostAccount, Rate, divide, rate_of};

const HOUR_MS: i64 = 3_600_000;
/// Hours that are kept: a week.
pub const HOURS: usize = 7 * 24;
/// Accounts are kept apart up to this number; of further ones those of a kind share an account.
const MOST: usize = 1_000;
/// Name of the account that further ones share.
const OTHERS: &str = "(others)";

/// What an account has cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amounts {
    /// What was paid.
    pub spent: Spent,
    /// What the same instance types would have cost on-demand.
    pub on_demand: Spent,
}

impl Amounts {
    fn add(&mut self, rate: Rate, ms: i64) {
        self.spent += Spent::at_price(rate.price, ms);
        self.on_demand += Spent::at_price(rate.on_demand, ms);
    }

    fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

/// What all accounts cost in one hour.
#[derive(Debug)]
pub struct HourlyCosts {
    /// When it began.
    pub start: Timestamp,
    /// By account, those that cost something.
    pub amounts: BTreeMap<CostAccount, Amounts>,
}

/// An account now.
#[derive(Clone, Debug)]
pub struct CostOfAccount {
    /// The account.
    pub account: CostAccount,
    /// What it costs per hour.
    pub price: MicroUsd,
    /// What it has cost since this hour began, or since this process did.
    pub hour: Amounts,
    /// What it has cost while this process led.
    pub led: Amounts,
}

#[derive(Debug, Default)]
struct Running {
    rate: Rate,
    hour: Amounts,
    led: Amounts,
}

/// A node, and what its price was divided into.
#[derive(Debug)]
struct ChargedNode {
    node: Arc<StateNode>,
    parts: Vec<(CostAccount, Rate)>,
}

/// The accounts of a cluster.
#[derive(Debug, Default)]
pub struct Allocation {
    accounts: BTreeMap<CostAccount, Running>,
    nodes: HashMap<NodeKey, ChargedNode, FixedState>,
    hours: VecDeque<Arc<HourlyCosts>>,
    read_at: Timestamp,
    generation: Option<u64>,
    has_led: bool,
}

/// The hour of a time.
fn hour_of(time: Timestamp) -> Timestamp {
    after(time, -time.as_millisecond().rem_euclid(HOUR_MS))
}

impl Allocation {
    /// When the nodes were read last.
    #[must_use]
    pub const fn read_at(&self) -> Timestamp {
        self.read_at
    }

    /// The hours that are over, the first of them first.
    pub fn hours(&self) -> impl Iterator<Item = &Arc<HourlyCosts>> {
        self.hours.iter()
    }

    /// All accounts now.
    #[must_use]
    pub fn accounts(&self) -> Vec<CostOfAccount> {
        let all = self.accounts.iter();
        all.map(|(account, running)| CostOfAccount {
            account: account.clone(),
            price: running.rate.price,
            hour: running.hour,
            led: running.led,
        })
        .collect()
    }

    /// Charges the time since the last reading, and takes in the nodes of a snapshot. `is_leading`: this process led from now on.
    /// `label`: key of the label of pods by whose values costs are divided.
    pub fn read(
        &mut self,
        snapshot: &Snapshot,
        now: Timestamp,
        (is_leading, label): (bool, Option<&Arc<str>>),
    ) {
        if self.generation.is_some() {
            self.charge_until(now.max(self.read_at));
        }
        self.read_at = now.max(self.read_at);
        self.has_led = is_leading;
        if self.generation != Some(snapshot.generation) {
            self.generation = Some(snapshot.generation);
            self.take_nodes(snapshot, label);
        }
    }

    /// Hours end on the way.
    fn charge_until(&mut self, now: Timestamp) {
        let mut from = self.read_at;
        // Of a process that was stopped for longer, only the hours that are kept are counted.
        let oldest = after(hour_of(now), -HOUR_MS.saturating_mul(HOURS as i64));
        while hour_of(from) < hour_of(now) {
            let end = after(hour_of(from), HOUR_MS);
            self.charge(since(end, from));
            self.end_hour(hour_of(from));
            from = end.max(oldest);
        }
        self.charge(since(now, from));
    }

    fn charge(&mut self, ms: i64) {
        if ms == 0 {
            return;
        }
        for running in self.accounts.values_mut() {
            running.hour.add(running.rate, ms);
            if self.has_led {
                running.led.add(running.rate, ms);
            }
        }
    }

    fn end_hour(&mut self, start: Timestamp) {
        let mut amounts = BTreeMap::new();
        for (account, running) in &mut self.accounts {
            let own = std::mem::take(&mut running.hour);
            if !own.is_nothing() {
                amounts.insert(account.clone(), own);
            }
        }
        if self.hours.len() >= HOURS {
            self.hours.pop_front();
        }
        self.hours
            .push_back(Arc::new(HourlyCosts { start, amounts }));
        // Counters of metrics must not go back, so accounts that were counted stay until they are too many.
        let is_crowded = self.accounts.len() > MOST;
        self.accounts.retain(|_, running| {
            running.rate != Rate::default() || !(running.led.is_nothing() || is_crowded)
        });
    }

    fn take_nodes(&mut self, snapshot: &Snapshot, label: Option<&Arc<str>>) {
        let mut seen = 0;
        let mut changed: Vec<&Arc<StateNode>> = Vec::new();
        for (key, node) in snapshot.nodes.iter() {
            match self.nodes.get(key) {
                Some(charged) if Arc::ptr_eq(&charged.node, node) => seen += 1,
                Some(_) => {
                    seen += 1;
                    changed.push(node);
                }
                None => changed.push(node),
            }
        }
        if seen < self.nodes.len() {
            let all = self.nodes.keys();
            let gone = all.filter(|key| snapshot.nodes.get(*key).is_none());
            let gone: BTreeSet<NodeKey> = gone.cloned().collect();
            for key in gone {
                self.forget(&key);
            }
        }
        for node in changed {
            self.forget(&node.key);
            self.take_node(node, snapshot, label);
        }
    }

    fn take_node(&mut self, node: &Arc<StateNode>, snapshot: &Snapshot, label: Option<&Arc<str>>) {
        let rate = rate_of(node, snapshot);
        let mut parts = rate.map_or_else(Vec::new, |rate| divide(node, rate, label));
        for (account, rate) in &mut parts {
            if self.accounts.len() >= MOST && !self.accounts.contains_key(account) {
                *account = shared_account(account);
            }
            self.accounts.entry(account.clone()).or_default().rate += *rate;
        }
        let charged = ChargedNode {
            node: Arc::clone(node),
            parts,
        };
        self.nodes.insert(node.key.clone(), charged);
    }

    fn forget(&mut self, key: &NodeKey) {
        let Some(charged) = self.nodes.remove(key) else {
            return;
        };
        for (account, rate) in charged.parts {
            if let Some(running) = self.accounts.get_mut(&account) {
                running.rate = running.rate - rate;
            }
        }
    }
}

/// The account that a further one shares.
fn shared_account(account: &CostAccount) -> CostAccount {
    match account {
        CostAccount::NodePool(_) => CostAccount::NodePool(OTHERS.into()),
        CostAccount::Namespace(_) => CostAccount::Namespace(OTHERS.into()),
        CostAccount::Label(_) => CostAccount::Label(Some(OTHERS.into())),
        CostAccount::Unrequested => CostAccount::Unrequested,
    }
}
