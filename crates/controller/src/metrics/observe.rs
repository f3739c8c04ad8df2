//! Counting what happens.

use std::borrow::Cow;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use mortise_core::apis::k8s::Node;
use mortise_core::apis::{NodeClaim, NodePool};
use mortise_core::cloud::{InterruptionKind, UnavailableOffering};
use mortise_core::decider_id::DeciderId;
use mortise_core::names::{ClaimName, NodeClassKey, ObjectRef};
use mortise_core::record::{Record, Verdict};
use mortise_core::snapshot::Snapshot;
use mortise_core::values::{GoDuration, since};
use prometheus_client::metrics::counter::Counter;

use super::conditions::ConditionedKind;
use super::exposition::policy_of;
use super::{Metrics, labels, reason};
use crate::handshakes::HandshakeCause;

impl Metrics {
    /// Counts a decision.
    pub(crate) fn decided(&self, record: &Record, snapshot: &Snapshot) {
        let labels = labels::DeciderVerdict {
            decider: record.decider.label(),
            verdict: record.verdict.label(),
        };
        self.decisions.with(&labels, count);
        let place = || SubjectLabels::of(&record.subject, snapshot);
        match record.verdict {
            Verdict::Registered => {
                let place = place();
                if !place.priced {
                    let nodepool = place.pool.clone();
                    let labels = labels::Pool { nodepool };
                    self.machines.unpriced.with(&labels, count);
                }
                self.nodes_created.with(
                    &labels::PoolZone {
                        nodepool: place.pool,
                        zone: place.zone,
                    },
                    count,
                );
            }
            Verdict::Nominated => {
                if let ObjectRef::Pod(key) = &record.subject
                    && let Some(pod) = snapshot.pods.get(key)
                {
                    self.pods.nominated(pod, record.at);
                }
            }
            Verdict::Evicted => {
                let why = reason::disruption(&record.reasons);
                self.pods
                    .drained(why.map_or("forceful_termination", |why| why.reason));
            }
            Verdict::Disrupted | Verdict::Notified | Verdict::LaunchFailed => {
                let Some(why) = reason::disruption(&record.reasons) else {
                    return;
                };
                let place = place();
                if let Some(condition) = reason::unhealthy(&record.reasons) {
                    let labels = labels::Unhealthy {
                        condition: condition.to_owned(),
                        nodepool: place.pool.clone(),
                        capacity_type: place.capacity_type.clone(),
                        image_id: image_of(&record.subject, snapshot),
                    };
                    self.unhealthy.with(&labels, count);
                }
                let policy = if why.is_consolidation {
                    policy_of(snapshot, &place.pool.as_str().into())
                } else {
                    String::new()
                };
                let labels = labels::Disrupted {
                    reason: why.reason,
                    nodepool: place.pool,
                    capacity_type: place.capacity_type,
                    consolidation_policy: policy,
                    termination_mode: place.termination_mode,
                };
                self.disrupted.with(&labels, count);
                self.pods.initiated(&labels, place.pods);
            }
            Verdict::Condition if reason::is_drained(&record.reasons) => {
                self.nodes_drained.with(
                    &labels::Pool {
                        nodepool: place().pool,
                    },
                    count,
                );
            }
            _ => {}
        }
    }

    /// A claim was created.
    pub(crate) fn claim_created(&self, claim: &NodeClaim, reason: &'static str) {
        let relaxed = claim
            .metadata
            .annotations
            .as_ref()
            .and_then(|all| all.get(mortise_core::labels::MIN_VALUES_RELAXED));
        let labels = labels::Created {
            reason,
            nodepool: claim
                .pool()
                .map(|pool| pool.to_string())
                .unwrap_or_default(),
            min_values_relaxed: if relaxed.is_some_and(|value| value == "true") {
                "true"
            } else {
                "false"
            },
        };
        self.created.with(&labels, count);
    }

    /// The object of a claim is gone: this was it.
    pub(crate) fn claim_gone(&self, claim: &NodeClaim, now: jiff::Timestamp) {
        let label = |key: &str| claim.label(key).unwrap_or_default().to_owned();
        let labels = labels::Terminated {
            nodepool: label(mortise_core::labels::NODEPOOL),
            capacity_type: label(mortise_core::labels::CAPACITY_TYPE),
            zone: label(mortise_core::labels::TOPOLOGY_ZONE),
        };
        self.terminated.with(&labels, count);
        self.machines.claim_gone(claim, now);
        if let Some(deleted) = &claim.metadata.deletion_timestamp {
            self.terminated_since(ConditionedKind::Claim, since(now, deleted.0));
        }
    }

    /// The object of a pool is gone: this was it.
    pub(crate) fn pool_gone(&self, pool: &NodePool, now: jiff::Timestamp) {
        if let Some(deleted) = &pool.metadata.deletion_timestamp {
            self.terminated_since(ConditionedKind::Pool, since(now, deleted.0));
        }
    }

    /// The object of a node is gone: this was it. Nodes that belong to no pool are not counted.
    pub(crate) fn node_gone(&self, node: &Node, now: jiff::Timestamp) {
        let Some(pool) = node.label(mortise_core::labels::NODEPOOL) else {
            return;
        };
        let zone = node.label(mortise_core::labels::TOPOLOGY_ZONE);
        let labels = labels::PoolZone {
            nodepool: pool.to_owned(),
            zone: zone.unwrap_or_default().to_owned(),
        };
        self.nodes_terminated.with(&labels, count);
        if !self.machines.node_gone(node, pool, now) {
            self.ceiling.drop_one();
        }
        if let Some(deleted) = &node.metadata.deletion_timestamp {
            self.terminated_since(ConditionedKind::Node, since(now, deleted.0));
        }
    }

    /// An effect has an outcome.
    pub(crate) fn effect_done(&self, effect: &'static str, result: &'static str, took: Duration) {
        self.effects
            .with(&labels::EffectResult { effect, result }, count);
        self.effect_duration
            .with(&labels::EffectName { effect }, |histogram| {
                histogram.observe(took.as_secs_f64())
            });
    }

    /// An eviction was answered with this HTTP status.
    pub(crate) fn eviction(&self, code: u16) {
        let code = code_word(code);
        self.evictions.with(&labels::Code { code }, count);
    }

    /// A cloud was called.
    pub(crate) fn cloud_call(
        &self,
        controller: DeciderId,
        method: &'static str,
        provider: &str,
        took: Duration,
        error: Option<&'static str>,
    ) {
        let labels = labels::Method {
            controller: controller.label(),
            method,
            provider: provider.to_owned(),
        };
        self.cloud_duration
            .with(&labels, |histogram| histogram.observe(took.as_secs_f64()));
        if let Some(error) = error {
            let labels = labels::MethodError {
                controller: controller.label(),
                method,
                provider: provider.to_owned(),
                error,
            };
            self.cloud_errors.with(&labels, count);
        }
    }

    /// The cloud had none of some offerings.
    pub(crate) fn launch_failed(
        &self,
        class: &NodeClassKey,
        none: &[UnavailableOffering],
        snapshot: &Snapshot,
    ) {
        for each in none {
            let labels = labels::LaunchFailure {
                zone: each.zone.to_string(),
                zone_id: zone_id(snapshot, class, &each.zone),
                capacity_type: each.capacity_type.as_str(),
                reason: "InsufficientCapacity",
            };
            self.launch_failures.with(&labels, count);
        }
    }

    /// The cloud did not end the machine of a claim.
    pub(crate) fn termination_failed(&self, claim: &ClaimName, snapshot: &Snapshot) {
        let claim = snapshot.claims.get(claim);
        let label = |key: &str| {
            let value = claim.and_then(|claim| claim.label(key));
            value.unwrap_or_default().to_owned()
        };
        let labels = labels::ZoneOnly {
            zone: label(mortise_core::labels::TOPOLOGY_ZONE),
            zone_id: label(mortise_core::labels::aws::ZONE_ID),
        };
        self.termination_failures.with(&labels, count);
    }

    /// A message of a cloud came in, this long after it was sent.
    pub(crate) fn notice(&self, kind: InterruptionKind, age: Option<Duration>) {
        self.messages.with(
            &labels::Message {
                message_type: kind.label(),
            },
            count,
        );
        if let Some(age) = age {
            self.message_age.observe(age.as_secs_f64());
        }
    }

    /// A message was removed from its queue.
    pub(crate) fn notice_acknowledged(&self) {
        self.messages_deleted.inc();
    }

    /// Whether this process leads.
    pub(crate) fn leading(&self, lease: &str, leading: bool) {
        self.leader.with(
            &labels::Lease {
                name: lease.to_owned(),
            },
            |gauge| {
                gauge.set(i64::from(leading));
            },
        );
    }

    /// How many effects of a lane wait and run.
    pub(crate) fn effects_queued(&self, lane: &'static str, waiting: usize, running: usize) {
        let labels = labels::Lane { lane };
        self.effect_queue_depth.with(&labels, |gauge| {
            gauge.set(as_i64(waiting));
        });
        self.effects_running.with(&labels, |gauge| {
            gauge.set(as_i64(running));
        });
    }

    /// An event was sent.
    pub(crate) fn event_sent(&self) {
        self.events_sent.inc();
    }

    /// An event was not sent.
    pub(crate) fn event_dropped(&self, reason: &'static str) {
        self.events_dropped
            .with(&labels::ReasonOnly { reason }, count);
    }

    /// How many events wait.
    pub(crate) fn events_queued(&self, waiting: usize) {
        self.event_queue_depth.set(as_i64(waiting));
    }

    /// How many inputs wait.
    pub(crate) fn inputs_queued(&self, waiting: usize) {
        self.input_queue_depth.set(as_i64(waiting));
    }

    /// A decider begins a step.
    pub(crate) fn stepping(&self, decider: DeciderId) {
        if decider == DeciderId::Provisioning {
            *self.planning.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        }
    }

    /// A decider stepped.
    pub(crate) fn stepped(&self, decider: DeciderId, took: Duration) {
        let seconds = took.as_secs_f64();
        self.step_duration.with(
            &labels::Decider {
                decider: decider.label(),
            },
            |histogram| histogram.observe(seconds),
        );
        if decider == DeciderId::Provisioning {
            *self.planning.lock().unwrap_or_else(PoisonError::into_inner) = None;
            self.scheduling_duration.with(
                &labels::Controller {
                    controller: "provisioner",
                },
                |histogram| histogram.observe(seconds),
            );
        }
    }

    /// A watch had to begin again.
    pub(crate) fn watch_restarted(&self, kind: &str) {
        self.watch_restarts.with(
            &labels::Kind {
                kind: kind.to_owned(),
            },
            count,
        );
    }

    /// An object could not be read.
    pub(crate) fn unparsable(&self, kind: &str) {
        self.unparsable.with(
            &labels::Kind {
                kind: kind.to_owned(),
            },
            count,
        );
    }

    /// A request was answered.
    pub(crate) fn request(&self, path: &'static str, status: http::StatusCode, took: Duration) {
        self.requests.with(
            &labels::Request {
                path,
                status: status_class(status),
            },
            count,
        );
        self.request_duration
            .with(&labels::Path { path }, |histogram| {
                histogram.observe(took.as_secs_f64())
            });
    }

    /// A request panicked.
    pub(crate) fn panicked(&self) {
        self.panics.inc();
    }

    /// A connection was opened (`true`) or closed.
    pub(crate) fn connection(&self, opened: bool) {
        if opened {
            self.connections.inc();
        } else {
            self.connections.dec();
        }
    }

    /// A TLS handshake failed.
    pub(crate) fn handshake_failed(&self, cause: HandshakeCause) {
        let cause = cause.label();
        self.handshakes_failed.with(&labels::Cause { cause }, count);
    }

    /// A connection to a port was refused or ended by us.
    pub(crate) fn connection_ended(&self, port: &'static str, cause: &'static str) {
        self.connections_ended
            .with(&labels::PortCause { port, cause }, count);
    }

    /// What was done about the token of a caller.
    pub(crate) fn token_reviewed(&self, outcome: &'static str) {
        self.token_reviews.with(&labels::Outcome { outcome }, count);
    }

    /// Pods bound without an extender call.
    pub(crate) fn set_unasked_binds(&self, binds: u64) {
        self.unasked_binds
            .set(i64::try_from(binds).unwrap_or(i64::MAX));
    }

    /// Certificates were looked at and changed, or could not be read.
    pub(crate) fn certificates_reloaded(&self, outcome: &'static str) {
        self.certificate_reloads
            .with(&labels::Outcome { outcome }, count);
    }
}

/// The image of a claim's machine; empty where images have no ids.
fn image_of(subject: &ObjectRef, snapshot: &Snapshot) -> String {
    let claim = match subject {
        ObjectRef::Claim(name) => snapshot.claims.get(name),
        _ => None,
    };
    claim
        .and_then(|claim| claim.status.image_id.clone())
        .unwrap_or_default()
}

pub(super) fn count(counter: &Counter) {
    counter.inc();
}

pub(super) fn as_i64(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

const fn status_class(status: http::StatusCode) -> &'static str {
    match status.as_u16() {
        200..=299 => "2xx",
        300..=399 => "3xx",
        401 => "401",
        403 => "403",
        400..=499 => "4xx",
        _ => "5xx",
    }
}

/// Pool, zone and capacity type of what a record or an object is about; empty where not known.
#[derive(Debug, Default)]
struct SubjectLabels {
    pool: String,
    zone: String,
    capacity_type: String,
    /// What the machine costs is known.
    priced: bool,
    /// Pods on it that would have to move.
    pods: usize,
    /// What its grace period makes of its end, in Karpenter's words.
    termination_mode: &'static str,
}

impl SubjectLabels {
    fn of(subject: &ObjectRef, snapshot: &Snapshot) -> Self {
        let node = match subject {
            ObjectRef::Claim(name) => snapshot.node_of_claim(name),
            ObjectRef::Node(name) => snapshot.node(name),
            ObjectRef::Pool(name) => {
                return Self {
                    pool: name.to_string(),
                    ..Self::default()
                };
            }
            ObjectRef::NodeClass(_) | ObjectRef::Overlay(_) | ObjectRef::Pod(_) => None,
        };
        let Some(node) = node else {
            return Self::default();
        };
        let label = |key: &str| {
            node.label(key)
                .map(Cow::from)
                .unwrap_or_default()
                .into_owned()
        };
        Self {
            pool: node.pool().map(|pool| pool.to_string()).unwrap_or_default(),
            zone: label(mortise_core::labels::TOPOLOGY_ZONE),
            capacity_type: label(mortise_core::labels::CAPACITY_TYPE),
            priced: node.price.is_some(),
            pods: node.reschedulable().count(),
            termination_mode: termination_mode(node.claim.as_deref()),
        }
    }
}

/// `graceful` without a termination grace period, `forceful` with one of nought, `eventual` otherwise.
fn termination_mode(claim: Option<&NodeClaim>) -> &'static str {
    let period = claim.and_then(|claim| claim.spec.termination_grace_period.as_ref());
    match period.map(|text| GoDuration::parse(text.as_str())) {
        None => "graceful",
        Some(Ok(period)) if period.as_nanos() <= 0 => "forceful",
        Some(_) => "eventual",
    }
}

/// The cloud's id of a zone, as offerings of a class tell it; empty where they do not.
fn zone_id(snapshot: &Snapshot, class: &NodeClassKey, zone: &str) -> String {
    let types = snapshot.catalogs.get(class).map(|catalog| catalog.types());
    let offerings = types
        .unwrap_or_default()
        .iter()
        .flat_map(|each| &each.offerings);
    offerings
        .filter(|offering| &*offering.zone == zone)
        .flat_map(|offering| &offering.labels)
        .find(|(key, _)| &**key == mortise_core::labels::aws::ZONE_ID)
        .map(|(_, id)| id.to_string())
        .unwrap_or_default()
}

/// A status as a label; those that the API server does not answer evictions with are told by their class.
const fn code_word(code: u16) -> &'static str {
    match code {
        200..=299 => "200",
        400 => "400",
        401 => "401",
        403 => "403",
        404 => "404",
        408 => "408",
        409 => "409",
        422 => "422",
        429 => "429",
        500 => "500",
        503 => "503",
        504 => "504",
        ..500 => "4xx",
        _ => "5xx",
    }
}
