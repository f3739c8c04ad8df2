//! Leader election by a Lease, as client-go does it, so that Karpenter and this service never act at the same time.
//!
//! # Source
//! `k8s.io/client-go/tools/leaderelection`: a lease counts as held while its record changed within the lease duration *as
//! seen by the observer's own clock*; the holder renews every retry period and gives up after the renew deadline; a holder
//! that ends writes an empty holder and a lease of one second.
//!
//! Invariant: this process counts itself as leader no longer than the renew deadline after its last successful renewal
//! began, which is shorter than the lease duration that others wait.

use std::fmt;
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

/// How long others wait for a silent holder.
pub const LEASE_DURATION: Duration = Duration::from_secs(15);
/// How long the holder tries to renew before it gives up.
pub const RENEW_DEADLINE: Duration = Duration::from_secs(10);
/// Time between attempts of the holder.
pub const RETRY_PERIOD: Duration = Duration::from_secs(2);
/// Time between looks of those who wait, and how much later each may be: a Lease that is given back is taken within a second,
/// and whoever led before an API server fell silent leads again as soon after it speaks.
const WAITING_PERIOD: (Duration, Duration) =
    (Duration::from_millis(700), Duration::from_millis(300));

/// Time for one attempt, so that one lost answer is not the end: half of the renew deadline, as client-go has it.
const ATTEMPT: Duration = Duration::from_secs(5);

/// The rules, without clock and network.
#[derive(Debug)]
pub(crate) struct Elector {
    identity: String,
    observed: Option<LeaseRecord>,
    observed_at: Instant,
}

/// What to do next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ElectionStep {
    /// Create the Lease with this record.
    Create(LeaseRecord),
    /// Replace the Lease with this record.
    Update(LeaseRecord),
    /// Somebody else holds it.
    Wait,
}

impl Elector {
    pub(crate) fn new(identity: String, now: Instant) -> Self {
        Self {
            identity,
            observed: None,
            observed_at: now,
        }
    }

    /// Decides on what the API server has. `now` and `wall` are the same moment on two clocks.
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

    /// A write went through, or a read showed this.
    pub(crate) fn observe(&mut self, record: LeaseRecord, now: Instant) {
        if self.observed.as_ref() != Some(&record) {
            self.observed = Some(record);
            self.observed_at = now;
        }
    }

    /// The record that gives the Lease back; `None` when it is not ours.
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
            ..held.clone()
        })
    }

    fn is_valid(&self, record: &LeaseRecord, now: Instant) -> bool {
        let duration = Duration::from_secs(u64::try_from(record.duration_seconds).unwrap_or(0));
        self.observed_at + duration > now
    }
}

/// What one attempt showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ElectionResult {
    /// This process holds the Lease from now on.
    Holds,
    /// Another one does, or did in between.
    OtherHolds,
    /// Not known yet.
    Unclear,
}

/// Takes part in the election until `end`; then gives the Lease back.
pub(crate) struct Election<S> {
    pub(crate) store: S,
    pub(crate) identity: String,
    pub(crate) name: String,
    pub(crate) shared: Arc<ServiceState>,
    pub(crate) liveness: Arc<WatchHealth>,
    pub(crate) license: Arc<LeadershipDeadline>,
    pub(crate) inputs: mpsc::Sender<DriverMessage>,
    pub(crate) end: CancellationToken,
    /// Reached when this process must not act any more; the Lease is given back only then.
    pub(crate) quiet: CancellationToken,
}

impl<S: LeaseStore> Election<S> {
    pub(crate) async fn run(self) {
        let mut elector = Elector::new(self.identity.clone(), Instant::now());
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
                attempt = tokio::time::timeout_at(deadline, self.attempt(&mut elector, leading)) => attempt,
            };
            match attempt {
                Ok(Ok(ElectionResult::Holds)) => {
                    renewed = begun;
                    self.license.extend(renewed + RENEW_DEADLINE);
                    if !leading {
                        leading = true;
                        self.lead(true).await;
                    }
                }
                Ok(Ok(ElectionResult::OtherHolds)) if leading => {
                    leading = false;
                    self.license.end();
                    tracing::error!(lease = self.name, "lease is held by another process");
                    self.lead(false).await;
                }
                Ok(Ok(ElectionResult::OtherHolds | ElectionResult::Unclear)) => {}
                Ok(Err(error)) => {
                    tracing::warn!(lease = self.name, %error, "failed to read or write lease")
                }
                Err(_) => tracing::warn!(lease = self.name, "lease request timed out"),
            }
            if leading && Instant::now() >= renewed + RENEW_DEADLINE {
                leading = false;
                tracing::error!(lease = self.name, "failed to renew lease in time");
                self.lead(false).await;
            }
            // Followers spread their attempts, as client-go does; the holder must not, and must not sleep past its deadline.
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
            self.lead(false).await;
            self.quiet.cancelled().await;
            self.give_back(&elector).await;
        }
    }

    async fn attempt(
        &self,
        elector: &mut Elector,
        leading: bool,
    ) -> Result<ElectionResult, StoreError> {
        let found = self.store.get().await?;
        self.liveness.answered();
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
            // Somebody wrote in between. Whose it is now is seen at the next attempt.
            Err(StoreError::Conflict) => Ok(ElectionResult::Unclear),
            Err(error) => Err(error),
        }
    }

    async fn lead(&self, leading: bool) {
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

    async fn give_back(&self, elector: &Elector) {
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

/// A name that no other process has: the host, and a random part, as client-go makes it.
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
