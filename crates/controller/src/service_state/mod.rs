//! State that every part of the service reads: the newest snapshot, decisions, metrics and health.
//!
//! Invariant: one writer (the driver, or the simulator in the demo) publishes; all others read without a lock. HTTP handlers
//! need only this state, so the same service runs on a cluster and on a simulation.

pub(crate) mod decision_log;
pub(crate) mod handshakes;
pub(crate) mod recent_drain_blockers;
pub(crate) mod unused_reservations;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, ArcSwapOption};
use mortise_apis::labels::WellKnown;
use mortise_cloudprovider::CloudProvider;
use mortise_engine::freshness::Freshness;
use mortise_engine::record::{Record, Verdict};
use mortise_planning::settings::Settings;
use mortise_state::index::Index;
use mortise_state::snapshot::Snapshot;
use mortise_webhooks::ClusterView;
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::config::TelemetryDetail;
use mortise_state::costs::CostOfAccount;

use crate::costs::Costs;
use crate::metrics::Metrics;
use crate::traces::Traces;
use decision_log::{DecisionLog, NumberedRecord};
use handshakes::Handshakes;
use unused_reservations::UnusedReservations;

/// An event loop without a turn for this long is stalled; longer steps run on their own threads.
pub const LOOP_STALL: Duration = Duration::from_secs(10);

/// Concurrent live streams. Each remembers what it has sent, about 600 bytes per node.
const STREAMS: usize = 16;

/// State shared by all parts. Created once, held in an `Arc`.
#[derive(Debug)]
pub struct ServiceState {
    snapshot: ArcSwap<Snapshot>,
    freshness: ArcSwap<Freshness>,
    generation: watch::Sender<u64>,
    confirmed_ms: AtomicI64,
    clock: Arc<dyn Clock>,
    /// Decisions.
    pub records: DecisionLog,
    /// Metrics.
    pub metrics: Metrics,
    /// Health.
    pub health: ReadinessState,
    pub(crate) handshakes: Handshakes,
    pub(crate) unused_reservations: UnusedReservations,
    pub(crate) costs: Costs,
    /// Effective flags and settings, for `/debug/config`. No secrets in here.
    pub effective: serde_json::Value,
    settings: OnceLock<Settings>,
    providers: OnceLock<ProviderList>,
    traces: OnceLock<Traces>,
    leader_address: ArcSwapOption<SocketAddr>,
    pub(crate) streams: Arc<Semaphore>,
}

/// The clouds.
struct ProviderList(Vec<Arc<dyn CloudProvider>>);

impl std::fmt::Debug for ProviderList {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = self.0.iter().map(|each| each.descriptor().name);
        f.debug_list().entries(names).finish()
    }
}

impl ServiceState {
    /// An empty state.
    #[must_use]
    pub fn new(
        clock: Arc<dyn Clock>,
        well_known: WellKnown,
        version: &str,
        effective: serde_json::Value,
    ) -> Arc<Self> {
        Self::with_detail(
            clock,
            well_known,
            version,
            effective,
            TelemetryDetail::Bounded,
        )
    }

    /// An empty state with this detail of metrics and events.
    #[must_use]
    pub fn with_detail(
        clock: Arc<dyn Clock>,
        well_known: WellKnown,
        version: &str,
        effective: serde_json::Value,
        detail: TelemetryDetail,
    ) -> Arc<Self> {
        let empty = Index::new(well_known, true, clock.now()).freeze(clock.now());
        Arc::new(Self {
            snapshot: ArcSwap::from_pointee(empty),
            freshness: ArcSwap::default(),
            generation: watch::Sender::new(0),
            confirmed_ms: AtomicI64::new(0),
            clock,
            records: DecisionLog::default(),
            metrics: Metrics::new(version, detail),
            health: ReadinessState::default(),
            handshakes: Handshakes::default(),
            unused_reservations: UnusedReservations::default(),
            costs: Costs::default(),
            effective,
            settings: OnceLock::new(),
            providers: OnceLock::new(),
            traces: OnceLock::new(),
            leader_address: ArcSwapOption::empty(),
            streams: Arc::new(Semaphore::new(STREAMS)),
        })
    }

    /// Sets the settings with which explanations look at the cluster: those of the deciders. The first call wins.
    pub fn set_settings(&self, settings: Settings) {
        self.settings.get_or_init(|| settings);
    }

    /// Settings with which explanations look at the cluster.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        self.settings.get_or_init(Settings::default)
    }

    /// Sets the clouds whose facts are shown. The first call wins.
    pub(crate) fn set_providers(&self, providers: Vec<Arc<dyn CloudProvider>>) {
        self.providers.get_or_init(|| ProviderList(providers));
    }

    /// The clouds; empty for a service that runs without one.
    pub(crate) fn providers(&self) -> &[Arc<dyn CloudProvider>] {
        self.providers.get().map_or(&[], |list| &list.0)
    }

    /// Sets where spans go. The first call wins.
    pub(crate) fn set_traces(&self, traces: Traces) {
        self.traces.get_or_init(|| traces);
    }

    /// Where spans go; `None`: nowhere.
    pub(crate) fn traces(&self) -> Option<&Traces> {
        self.traces.get()
    }

    /// Sets where another replica, which leads, answers calls of this one.
    pub(crate) fn set_leader_address(&self, address: Option<SocketAddr>) {
        if self.leader_address() != address {
            self.leader_address.store(address.map(Arc::new));
        }
    }

    /// Where another replica, which leads, answers calls of this one; `None` if this one leads, or none says where it does.
    pub(crate) fn leader_address(&self) -> Option<SocketAddr> {
        self.leader_address.load().as_deref().copied()
    }

    /// The newest snapshot. One atomic load.
    #[must_use]
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.load_full()
    }

    /// Publishes a snapshot. Subscribers wake only if its generation changed.
    pub fn publish(&self, snapshot: Arc<Snapshot>) {
        let generation = snapshot.generation;
        self.unused_reservations
            .follow(&snapshot.catalogs, self.now());
        self.snapshot.store(snapshot);
        self.follow_costs();
        self.generation
            .send_if_modified(|known| std::mem::replace(known, generation) != generation);
    }

    /// Divides what nodes cost, if it is time to read them again.
    pub(crate) fn follow_costs(&self) {
        let is_leading = self.health.is_leading();
        self.costs
            .follow(&self.snapshot.load(), self.now(), is_leading);
    }

    /// What each account costs now.
    pub(crate) fn costs_now(&self) -> Vec<CostOfAccount> {
        let is_leading = self.health.is_leading();
        self.costs.now(&self.snapshot(), self.now(), is_leading)
    }

    /// Age and state of each watch.
    #[must_use]
    pub fn freshness(&self) -> Arc<Freshness> {
        self.freshness.load_full()
    }

    /// Stores the state of each watch, for debug pages.
    pub(crate) fn set_freshness(&self, freshness: &Arc<Freshness>) {
        self.freshness.store(Arc::clone(freshness));
    }

    /// Records that the newest snapshot showed the state of the API server `ago`: every watch was established, and the API
    /// server responded.
    pub fn confirm(&self, ago: Duration) {
        let ago = i64::try_from(ago.as_millis()).unwrap_or(i64::MAX);
        let at = self.now().as_millisecond().saturating_sub(ago);
        self.confirmed_ms.fetch_max(at, Ordering::Relaxed);
    }

    /// Changes with every published generation.
    #[must_use]
    pub fn generations(&self) -> watch::Receiver<u64> {
        self.generation.subscribe()
    }

    /// Stores and counts decisions, and sends them to subscribers.
    pub fn record(&self, records: Vec<Record>) -> Vec<Arc<NumberedRecord>> {
        log_withdrawn(&records);
        for record in &records {
            self.metrics.on_record(record, &self.snapshot.load());
        }
        let logged = records.into_iter();
        let logged = logged.filter(|record| record.visibility.is_logged());
        self.records.extend(logged)
    }

    /// The clock.
    #[must_use]
    pub fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    /// Now.
    #[must_use]
    pub fn now(&self) -> jiff::Timestamp {
        self.clock.now()
    }

    /// Milliseconds since the snapshot was last confirmed.
    #[must_use]
    pub fn snapshot_age_ms(&self) -> i64 {
        self.now()
            .as_millisecond()
            .saturating_sub(self.confirmed_ms.load(Ordering::Relaxed))
            .max(0)
    }
}

/// One line per reason, with the number of pods.
fn log_withdrawn(records: &[Record]) {
    let mut pods: BTreeMap<String, (&Record, usize)> = BTreeMap::new();
    for record in records {
        if record.verdict == Verdict::Withdrawn {
            let why = record.reasons.iter().map(ToString::to_string);
            let why = why.collect::<Vec<_>>().join("; ");
            pods.entry(why).or_insert((record, 0)).1 += 1;
        }
    }
    for (why, (first, pods)) in pods {
        tracing::info!(pods, first = %first.subject, why, "withdrew nominations");
    }
}

impl ClusterView for ServiceState {
    fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.load_full()
    }

    fn age_ms(&self) -> i64 {
        self.snapshot_age_ms()
    }

    fn now(&self) -> jiff::Timestamp {
        self.clock.now()
    }
}

/// Conditions of readiness, and a few facts for debug pages.
#[derive(Debug)]
pub struct ReadinessState {
    start: Instant,
    turned_ms: AtomicU64,
    certificate: AtomicBool,
    leading: AtomicBool,
    stopping: CancellationToken,
}

impl Default for ReadinessState {
    fn default() -> Self {
        Self {
            start: Instant::now(),
            turned_ms: AtomicU64::new(0),
            certificate: AtomicBool::new(false),
            leading: AtomicBool::new(false),
            stopping: CancellationToken::new(),
        }
    }
}

impl ReadinessState {
    /// Records a turn of the event loop.
    pub fn record_turn(&self) {
        self.turned_ms.store(self.uptime_ms(), Ordering::Relaxed);
    }

    /// Time since the last turn of the event loop.
    #[must_use]
    pub fn time_since_turn(&self) -> Duration {
        Duration::from_millis(
            self.uptime_ms()
                .saturating_sub(self.turned_ms.load(Ordering::Relaxed)),
        )
    }

    /// Whether a certificate is loaded.
    pub fn set_certificate(&self, loaded: bool) {
        self.certificate.store(loaded, Ordering::Relaxed);
    }

    /// Whether this process leads.
    pub fn set_leading(&self, leading: bool) {
        self.leading.store(leading, Ordering::Relaxed);
    }

    /// Whether this process leads.
    #[must_use]
    pub fn is_leading(&self) -> bool {
        self.leading.load(Ordering::Relaxed)
    }

    /// Shutdown has begun.
    pub fn set_stopping(&self) {
        self.stopping.cancel();
    }

    /// Waits until shutdown has begun: open streams end then.
    pub(crate) async fn stopping(&self) {
        self.stopping.cancelled().await;
    }

    /// Why the service is not ready; empty = ready.
    #[must_use]
    pub fn unready_reasons(&self, synced: bool) -> Vec<&'static str> {
        let stopping = self.stopping.is_cancelled();
        [
            (
                !self.certificate.load(Ordering::Relaxed),
                "no certificate is loaded",
            ),
            (!synced, "not all watches are synced"),
            (
                self.time_since_turn() >= LOOP_STALL,
                "the event loop is stalled",
            ),
            (stopping, "shutting down"),
        ]
        .into_iter()
        .filter_map(|(missing, what)| missing.then_some(what))
        .collect()
    }

    pub(crate) fn uptime_ms(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}
