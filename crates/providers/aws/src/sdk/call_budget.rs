//! How many calls may be made: one token bucket for each of EC2's limits, with what is urgent first.
//!
//! A call takes a token before it is sent. While there is none, callers wait in order of urgency, then of arrival: what ends or launches
//! an instance is never behind a list. A limit that EC2 reports all the same (other clients share the account) empties its bucket and
//! halves its rate, step by step; the rate comes back while no limit is reported.
//!
//! # Source
//! Rates and sizes are those of the EC2 API's throttling documentation.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mortise_cloudprovider::{GaugeName, ProviderGauge};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// A token in the unit that buckets count in.
const TOKEN: u64 = 1_000_000;
/// A rate is halved at most this often.
const MAX_SLOWDOWN: u32 = 4;
/// Limits that are reported within this time are one.
const ONE_REPORT: Duration = Duration::from_secs(1);
/// After this time without a report a rate is doubled again.
const RECOVERY: Duration = Duration::from_secs(30);

/// What a call is for; what comes first is served first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Urgency {
    /// An instance ends; money is spent until then.
    Terminate,
    /// An instance starts; pods wait until then.
    Launch,
    /// Something is read or tidied up.
    Background,
}

/// A limit of EC2, which several kinds of calls share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Limit {
    Reads,
    Mutations,
    RunInstances,
    CreateTags,
    TerminateInstances,
}

impl Limit {
    /// Its label in metrics.
    const fn label(self) -> &'static str {
        match self {
            Self::Reads => "reads",
            Self::Mutations => "mutations",
            Self::RunInstances => "run_instances",
            Self::CreateTags => "create_tags",
            Self::TerminateInstances => "terminate_instances",
        }
    }
}

/// Tokens per second and size of each limit.
const RATES: [(Limit, u64, u64); 5] = [
    (Limit::Reads, 20, 100),
    (Limit::Mutations, 5, 50),
    (Limit::RunInstances, 2, 5),
    (Limit::CreateTags, 10, 100),
    (Limit::TerminateInstances, 5, 100),
];

/// The limit that a call counts against; `None` for other services, which are called rarely.
fn limit_of(action: &str) -> Option<Limit> {
    Some(match action.strip_prefix("ec2:")? {
        "RunInstances" => Limit::RunInstances,
        "CreateTags" => Limit::CreateTags,
        "TerminateInstances" => Limit::TerminateInstances,
        name if name.starts_with("Describe") || name.starts_with("Get") => Limit::Reads,
        _ => Limit::Mutations,
    })
}

/// A bucket without time of its own.
#[derive(Clone, Copy, Debug)]
struct TokenBucket {
    rate: u64,
    size: u64,
    /// In parts of [`TOKEN`].
    level: u64,
    /// What calls that did not wait took beyond it, in the same parts. Never more than the size: old sins are forgotten.
    debt: u64,
    filled: Instant,
    /// How often the rate is halved.
    slowdown: u32,
    /// When the slowdown last changed.
    changed: Instant,
}

impl TokenBucket {
    fn full(rate: u64, size: u64, now: Instant) -> Self {
        Self {
            rate,
            size: size * TOKEN,
            level: size * TOKEN,
            debt: 0,
            filled: now,
            slowdown: 0,
            changed: now,
        }
    }

    /// Parts of a token that come in a second.
    const fn speed(&self) -> u64 {
        (self.rate * TOKEN) >> self.slowdown
    }

    fn fill(&mut self, now: Instant) {
        while self.slowdown > 0 && now.duration_since(self.changed) >= RECOVERY {
            // What came until then came at the old rate.
            self.add(self.changed + RECOVERY);
            self.changed += RECOVERY;
            self.slowdown -= 1;
        }
        self.add(now);
    }

    fn add(&mut self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.filled).as_micros();
        let elapsed = u64::try_from(elapsed).unwrap_or(u64::MAX);
        let come = elapsed.saturating_mul(self.speed()) / 1_000_000;
        if come > 0 {
            let repaid = come.min(self.debt);
            self.debt -= repaid;
            self.level = self.level.saturating_add(come - repaid).min(self.size);
            self.filled = self.filled.max(now);
        }
    }

    /// Takes a token.
    /// # Errors
    /// There is none; when to look again.
    fn take(&mut self, now: Instant) -> Result<(), Instant> {
        self.fill(now);
        match self.level.checked_sub(TOKEN) {
            Some(left) => {
                self.level = left;
                Ok(())
            }
            None => {
                let lacking = TOKEN - self.level + self.debt;
                let wait = lacking
                    .saturating_mul(1_000_000)
                    .div_ceil(self.speed().max(1));
                Err(now + Duration::from_micros(wait.max(1)))
            }
        }
    }

    /// Takes a token that may not be there.
    fn charge(&mut self, now: Instant) {
        self.fill(now);
        let lacking = TOKEN.saturating_sub(self.level);
        self.level = self.level.saturating_sub(TOKEN);
        self.debt = (self.debt + lacking).min(self.size);
    }

    /// EC2 reported the limit.
    fn throttled(&mut self, now: Instant) {
        self.fill(now);
        let is_new = self.slowdown == 0 || now.duration_since(self.changed) >= ONE_REPORT;
        if is_new {
            self.slowdown = (self.slowdown + 1).min(MAX_SLOWDOWN);
            self.changed = now;
        }
        self.level = 0;
        self.debt = 0;
        self.filled = now;
    }
}

#[derive(Debug)]
struct LimitState {
    bucket: TokenBucket,
    /// Who waits, by urgency and arrival.
    waiting: BTreeSet<(Urgency, u64)>,
    arrivals: u64,
}

/// One limit with those who wait for it.
#[derive(Debug)]
struct Gate {
    limit: Limit,
    state: Mutex<LimitState>,
    /// The first in the queue changed.
    moved: Notify,
}

impl Gate {
    fn lock(&self) -> MutexGuard<'_, LimitState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When to look again; `None` for one who is not the first.
    fn attempt(&self, place: (Urgency, u64)) -> Result<(), Option<Instant>> {
        let mut state = self.lock();
        if state.waiting.first() != Some(&place) {
            return Err(None);
        }
        state.bucket.take(Instant::now()).map_err(Some)
    }
}

/// A place in the queue of a limit, released when it is dropped.
struct Place<'a> {
    gate: &'a Gate,
    place: (Urgency, u64),
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.gate.lock().waiting.remove(&self.place);
        self.gate.moved.notify_waiters();
    }
}

/// The calls that EC2 allows at the moment, shared by everything that calls it.
#[derive(Clone, Debug)]
pub(crate) struct CallBudget {
    gates: Arc<[Gate]>,
}

impl Default for CallBudget {
    fn default() -> Self {
        let now = Instant::now();
        let gates = RATES.map(|(limit, rate, size)| Gate {
            limit,
            state: Mutex::new(LimitState {
                bucket: TokenBucket::full(rate, size, now),
                waiting: BTreeSet::new(),
                arrivals: 0,
            }),
            moved: Notify::new(),
        });
        Self {
            gates: Arc::new(gates),
        }
    }
}

impl CallBudget {
    fn gate(&self, action: &str) -> Option<&Gate> {
        let limit = limit_of(action)?;
        self.gates.iter().find(|gate| gate.limit == limit)
    }

    /// Waits until a call such as `ec2:DescribeInstances` may be sent.
    pub(crate) async fn take(&self, action: &str, urgency: Urgency) {
        let Some(gate) = self.gate(action) else {
            return;
        };
        let place = {
            let mut state = gate.lock();
            state.arrivals += 1;
            let place = (urgency, state.arrivals);
            state.waiting.insert(place);
            place
        };
        let queued = Place { gate, place };
        loop {
            let moved = gate.moved.notified();
            tokio::pin!(moved);
            // Listens before it looks: a change in between is not missed.
            moved.as_mut().enable();
            match gate.attempt(queued.place) {
                Ok(()) => return,
                Err(None) => moved.await,
                Err(Some(at)) => {
                    tokio::select! {
                        () = moved => {}
                        () = sleep_until(at) => {}
                    }
                }
            }
        }
    }

    /// Counts a call that did not wait. What it lacks is lacking to those that do.
    pub(crate) fn charge(&self, action: &str) {
        if let Some(gate) = self.gate(action) {
            gate.lock().bucket.charge(Instant::now());
        }
    }

    /// What may be sent at once and what waits, for each limit.
    pub(crate) fn gauges(&self) -> Vec<ProviderGauge> {
        let gauges = self.gates.iter().flat_map(|gate| {
            let mut state = gate.lock();
            state.bucket.fill(Instant::now());
            let gauge = |name, count: u64| ProviderGauge {
                name,
                labels: vec![("limit", gate.limit.label())],
                value: f64::from(u32::try_from(count).unwrap_or(u32::MAX)),
            };
            let waiting = u64::try_from(state.waiting.len()).unwrap_or(u64::MAX);
            [
                gauge(GaugeName::CallTokens, state.bucket.level / TOKEN),
                gauge(GaugeName::CallsWaiting, waiting),
            ]
        });
        gauges.collect()
    }

    /// EC2 refused a call because of its limit.
    pub(crate) fn throttled(&self, action: &str) {
        if let Some(gate) = self.gate(action) {
            gate.lock().bucket.throttled(Instant::now());
        }
    }
}

#[cfg(test)]
impl CallBudget {
    /// Whole tokens that are left for an action.
    pub(crate) fn left(&self, action: &str) -> u64 {
        self.gate(action).unwrap().lock().bucket.level / TOKEN
    }
}

#[cfg(test)]
mod tests {
    use futures::future::join_all;

    use super::*;

    async fn taken(budget: &CallBudget, action: &str, count: usize) -> Duration {
        let started = Instant::now();
        join_all((0..count).map(|_| budget.take(action, Urgency::Background))).await;
        started.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_is_free_and_what_follows_has_the_published_rate() {
        for (action, burst, rate) in [
            ("ec2:DescribeInstances", 100, 20),
            ("ec2:CreateFleet", 50, 5),
            ("ec2:RunInstances", 5, 2),
            ("ec2:CreateTags", 100, 10),
            ("ec2:TerminateInstances", 100, 5),
        ] {
            let budget = CallBudget::default();
            assert_eq!(
                taken(&budget, action, burst).await,
                Duration::ZERO,
                "{action}"
            );
            let five = taken(&budget, action, rate * 5).await.as_millis();
            assert!((4_990..=5_020).contains(&five), "{action}: {five} ms");
        }
        assert_eq!(
            taken(&CallBudget::default(), "sqs:ReceiveMessage", 1_000).await,
            Duration::ZERO
        );
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_urgent_goes_first() {
        let budget = CallBudget::default();
        let action = "ec2:DescribeInstances";
        taken(&budget, action, 100).await;
        let order = Mutex::new(Vec::new());
        let one = async |urgency| {
            budget.take(action, urgency).await;
            order.lock().unwrap().push(urgency);
        };
        futures::join!(
            one(Urgency::Background),
            one(Urgency::Launch),
            one(Urgency::Background),
            one(Urgency::Terminate),
        );
        let order = order.into_inner().unwrap();
        assert_eq!(
            order,
            [
                Urgency::Terminate,
                Urgency::Launch,
                Urgency::Background,
                Urgency::Background
            ]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_that_stops_waiting_leaves_its_place() {
        let budget = CallBudget::default();
        let action = "ec2:RunInstances";
        taken(&budget, action, 5).await;
        let first = tokio::spawn({
            let budget = budget.clone();
            async move { budget.take(action, Urgency::Terminate).await }
        });
        tokio::task::yield_now().await;
        let started = Instant::now();
        let second = budget.take(action, Urgency::Background);
        first.abort();
        second.await;
        assert!(
            started.elapsed() <= Duration::from_millis(510),
            "{:?}",
            started.elapsed()
        );
    }

    #[tokio::test(start_paused = true)]
    async fn calls_that_do_not_wait_are_at_the_expense_of_those_that_do() {
        let budget = CallBudget::default();
        let action = "ec2:CreateTags";
        (0..120).for_each(|_| budget.charge(action));
        let begun = Instant::now();
        budget.take(action, Urgency::Background).await;
        // 100 were there; 20 and its own come in 2.1 s.
        assert_eq!(begun.elapsed().as_millis() / 10, 210);
        (0..10_000).for_each(|_| budget.charge(action));
        let begun = Instant::now();
        budget.take(action, Urgency::Background).await;
        assert!(
            begun.elapsed() <= Duration::from_secs(11),
            "a debt has an end"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn tokens_that_are_left_and_calls_that_wait_are_told() {
        let budget = CallBudget::default();
        let told = |limit: &str| {
            let gauges = budget.gauges().into_iter();
            let own = gauges.filter(|gauge| gauge.labels == [("limit", limit)]);
            own.map(|gauge| gauge.value).collect::<Vec<_>>()
        };
        taken(&budget, "ec2:DescribeInstances", 30).await;
        taken(&budget, "ec2:RunInstances", 5).await;
        assert_eq!(told("reads"), [70.0, 0.0]);
        let waits = tokio::spawn({
            let budget = budget.clone();
            async move { budget.take("ec2:RunInstances", Urgency::Launch).await }
        });
        tokio::task::yield_now().await;
        assert_eq!(told("run_instances"), [0.0, 1.0]);
        waits.await.unwrap();
        assert_eq!(told("run_instances"), [0.0, 0.0]);
        assert_eq!(told("reads"), [80.0, 0.0], "some came back in the meantime");
        assert_eq!(budget.gauges().len(), 2 * RATES.len());
    }

    #[tokio::test(start_paused = true)]
    async fn a_reported_limit_slows_calls_down_until_it_is_over() {
        let budget = CallBudget::default();
        let action = "ec2:DescribeInstances";
        budget.throttled(action);
        budget.throttled(action);
        let halved = taken(&budget, action, 10).await;
        assert!(
            halved >= Duration::from_millis(990),
            "{halved:?}: two reports in a second are one"
        );
        tokio::time::advance(RECOVERY).await;
        taken(&budget, action, 100).await;
        let restored = taken(&budget, action, 20).await;
        assert!(restored <= Duration::from_millis(1_010), "{restored:?}");
        assert_eq!(
            taken(&budget, "ec2:CreateTags", 100).await,
            Duration::ZERO,
            "limits are apart"
        );
    }
}
