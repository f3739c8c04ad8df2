//! Leader election by a Lease, as in client-go, so that Karpenter and this service never act at the same time.
//!
//! # Source
//! `k8s.io/client-go/tools/leaderelection`: a Lease is held while its record changed within the lease duration *as observed
//! with the local clock*; the holder renews every retry period and stops leading after the renew deadline; a holder that exits
//! writes an empty holder and a lease duration of one second.
//!
//! Invariant: this process leads no longer than the renew deadline after the start of its last successful renewal. That
//! deadline is shorter than the lease duration of other candidates.

mod address;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use mortise_engine::engine::EngineInput;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::client::backoff::jitter;
use crate::driver_message::DriverMessage;
use crate::effects::leadership_deadline::LeadershipDeadline;
use crate::effects::lease::{LeaseRecord, LeaseStore, StoreError};
use crate::service_state::ServiceState;
use crate::watch::WatchHealth;

/// How long other candidates wait for a holder that does not renew.
pub const LEASE_DURATION: Duration = Duration::from_secs(15);
/// How long the holder tries to renew before it stops leading.
pub const RENEW_DEADLINE: Duration = Duration::from_secs(10);
/// Time between attempts of the holder.
pub const RETRY_PERIOD: Duration = Duration::from_secs(2);
/// Time between attempts of a candidate, and its jitter: a released Lease is acquired within a second, and the former leader
/// leads again within the same time after an outage of the API server.
const WAITING_PERIOD: (Duration, Duration) =
    (Duration::from_millis(700), Duration::from_millis(300));

/// Timeout of one attempt, so that one lost response does not end leadership: half of the renew deadline, as in client-go.
const ATTEMPT: Duration = Duration::from_secs(5);

/// The rules, without clock and network.
#[derive(Debug)]
pub(crate) struct Elector {
    identity: String,
    /// Where other replicas reach this one.
    address: Option<SocketAddr>,
    observed: Option<LeaseRecord>,
    observed_at: Instant,
}

/// The next request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ElectionStep {
    /// Create the Lease with this record.
    Create(LeaseRecord),
    /// Replace the Lease with this record.
    Update(LeaseRecord),
    /// Another process holds it.
    Wait,
}

impl Elector {
    pub(crate) fn new(identity: String, address: Option<SocketAddr>, now: Instant) -> Self {
        Self {
            identity,
            address,
            observed: None,
            observed_at: now,
        }
    }

    /// Decides on the Lease of the API server. `now` and `wall` are the same time on two clocks.
    pub(crate) fn decide(
        &mut self,
        found: Option<LeaseRecord>,
        now: Instant,
        wall: Timestamp,
    ) -> ElectionStep {
        let fresh = LeaseRecord {
            holder: self.identity.clone(),
            duration_seconds: i32::try_from(LEASE_DURATION.as_secs()).unwrap_or(i32::MAX),
            acquired: Some(wall),
            renewed: Some(wall),
            transitions: 0,
            address: self.address,
            version: String::new(),
        };
        let Some(found) = found else {
            return ElectionStep::Create(fresh);
        };
        self.observe(found.clone(), now);
        let mine = found.holder == self.identity;
        if !found.holder.is_empty() && !mine && self.is_valid(&found, now) {
            return ElectionStep::Wait;
        }
        let (acquired, transitions) = if mine {
            (found.acquired, found.transitions)
        } else {
            (Some(wall), found.transitions.saturating_add(1))
        };
        ElectionStep::Update(LeaseRecord {
            acquired,
            transitions,
            version: found.version,
            ..fresh
        })
    }

    /// Stores a record that was written or read.
    pub(crate) fn observe(&mut self, record: LeaseRecord, now: Instant) {
        if self.observed.as_ref() != Some(&record) {
            self.observed = Some(record);
            self.observed_at = now;
        }
    }

    /// The record that releases the Lease; `None` if another process holds it.
    pub(crate) fn release(&self, wall: Timestamp) -> Option<LeaseRecord> {
        let held = self
            .observed
            .as_ref()
            .filter(|record| record.holder == self.identity)?;
        Some(LeaseRecord {
            holder: String::new(),
            duration_seconds: 1,
            acquired: Some(wall),
            renewed: Some(wall),
            address: None,
            ..held.clone()
        })
    }

    /// Where the process that holds the Lease answers calls of this one.
    fn holder_address(&self) -> Option<SocketAddr> {
        let record = self.observed.as_ref();
        let other =
            record.filter(|record| !record.holder.is_empty() && record.holder != self.identity);
        other.and_then(|record| record.address)
    }

    fn is_valid(&self, record: &LeaseRecord, now: Instant) -> bool {
        let duration = Duration::from_secs(u64::try_from(record.duration_seconds).unwrap_or(0));
        self.observed_at + duration > now
    }
}

/// Result of one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ElectionResult {
    /// This process holds the Lease.
    Holds,
    /// Another process holds it, or held it in between.
    OtherHolds,
    /// Not known yet.
    Unclear,
}

/// Takes part in the election until `end`; then releases the Lease.
pub(crate) struct Election<S> {
    pub(crate) store: S,
    pub(crate) identity: String,
    /// Where this process listens.
    pub(crate) listens: SocketAddr,
    /// URL of the API server.
    pub(crate) server: String,
    pub(crate) name: String,
    pub(crate) shared: Arc<ServiceState>,
    pub(crate) liveness: Arc<WatchHealth>,
    pub(crate) license: Arc<LeadershipDeadline>,
    pub(crate) inputs: mpsc::Sender<DriverMessage>,
    pub(crate) end: CancellationToken,
    /// Cancelled when this process has stopped acting; the Lease is released only then.
    pub(crate) quiet: CancellationToken,
}

impl<S: LeaseStore> Election<S> {
    pub(crate) async fn run(self) {
        let address = address::reachable(self.listens, &self.server).await;
        let mut elector = Elector::new(self.identity.clone(), address, Instant::now());
        let mut leading = false;
        let mut renewed = Instant::now();
        self.shared.metrics.engine.leading(&self.name, false);
        while !self.end.is_cancelled() {
            let begun = Instant::now();
            let mut deadline = begun + ATTEMPT;
            if leading {
                deadline = deadline.min(renewed + RENEW_DEADLINE);
            }
            let attempt = tokio::select! {
                () = self.end.cancelled() => break,
                attempt = tokio::time::timeout_at(deadline, self.try_acquire_or_renew(&mut elector, leading)) => attempt,
            };
            match attempt {
                Ok(Ok(ElectionResult::Holds)) => {
                    renewed = begun;
                    self.license.extend(renewed + RENEW_DEADLINE);
                    if !leading {
                        leading = true;
                        self.set_leading(true).await;
                    }
                }
                Ok(Ok(ElectionResult::OtherHolds)) if leading => {
                    leading = false;
                    self.license.end();
                    tracing::error!(lease = self.name, "lease is held by another process");
                    self.set_leading(false).await;
                }
                Ok(Ok(ElectionResult::OtherHolds | ElectionResult::Unclear)) => {}
                Ok(Err(error)) => {
                    tracing::warn!(lease = self.name, %error, "failed to read or write lease")
                }
                Err(_) => tracing::warn!(lease = self.name, "lease request timed out"),
            }
            self.shared.set_leader_address(elector.holder_address());
            if leading && Instant::now() >= renewed + RENEW_DEADLINE {
                leading = false;
                tracing::error!(lease = self.name, "failed to renew lease in time");
                self.set_leading(false).await;
            }
            // Followers use jitter, as in client-go; the holder must not, and must not sleep past its deadline.
            let now = Instant::now();
            let wake = if leading {
                (now + RETRY_PERIOD).min(renewed + RENEW_DEADLINE)
            } else {
                let (period, later) = WAITING_PERIOD;
                now + period + jitter(later)
            };
            tokio::select! {
                () = self.end.cancelled() => break,
                () = tokio::time::sleep_until(wake) => {}
            }
        }
        if leading {
            self.set_leading(false).await;
            self.quiet.cancelled().await;
            self.release_lease(&elector).await;
        }
    }

    async fn try_acquire_or_renew(
        &self,
        elector: &mut Elector,
        leading: bool,
    ) -> Result<ElectionResult, StoreError> {
        let found = self.store.get().await?;
        self.liveness.record_response();
        if leading
            && found
                .as_ref()
                .is_some_and(|found| found.holder != self.identity)
        {
            return Ok(ElectionResult::OtherHolds);
        }
        let written = match elector.decide(found, Instant::now(), self.shared.now()) {
            ElectionStep::Wait => return Ok(ElectionResult::OtherHolds),
            ElectionStep::Create(record) => self.store.create(&record).await,
            ElectionStep::Update(record) => self.store.update(&record).await,
        };
        match written {
            Ok(record) => {
                elector.observe(record, Instant::now());
                Ok(ElectionResult::Holds)
            }
            // Another process wrote in between. The next attempt shows who holds the Lease.
            Err(StoreError::Conflict) => Ok(ElectionResult::Unclear),
            Err(error) => Err(error),
        }
    }

    async fn set_leading(&self, leading: bool) {
        if leading {
            tracing::info!(lease = self.name, identity = self.identity, "leading");
        } else {
            tracing::info!(
                lease = self.name,
                identity = self.identity,
                "lost leadership"
            );
        }
        self.shared.metrics.engine.leading(&self.name, leading);
        if self
            .inputs
            .send(DriverMessage::Input(EngineInput::Leading(leading)))
            .await
            .is_err()
        {
            tracing::debug!("engine loop exited before leader election");
        }
    }

    async fn release_lease(&self, elector: &Elector) {
        let Some(record) = elector.release(self.shared.now()) else {
            return;
        };
        match tokio::time::timeout(RETRY_PERIOD, self.store.update(&record)).await {
            Ok(Ok(_)) => tracing::info!(lease = self.name, "released lease"),
            Ok(Err(error)) => {
                tracing::warn!(lease = self.name, %error, "failed to release lease, it will expire")
            }
            Err(_) => tracing::warn!(lease = self.name, "lease release timed out, it will expire"),
        }
    }
}

impl<S> fmt::Debug for Election<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Election")
            .field("name", &self.name)
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}

/// A unique name of this process: the host name and a random part, as in client-go.
pub(crate) fn identity() -> String {
    format!(
        "{}_{:016x}{:016x}",
        crate::effects::hostname(),
        crate::client::backoff::random(),
        crate::client::backoff::random()
    )
}

#[cfg(test)]
mod tests;
