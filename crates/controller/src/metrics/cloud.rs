//! Calls to clouds, and messages from clouds.

use std::time::Duration;

use mortise_apis::names::{ClaimName, NodeClassKey};
use mortise_cloudprovider::{InterruptionKind, UnavailableOffering};
use mortise_engine::decider_id::DeciderId;
use mortise_engine::metric_event::MetricEvent;
use mortise_state::snapshot::Snapshot;

use super::families::Buckets;
use super::labels;
use super::series::series;

series! {
    /// The families.
    CloudMetrics {
        launch_failures: always counter[labels::LaunchFailure; 10] "karpenter_cloudprovider_instance_launch_failures" "Launches that failed for lack of capacity, by offering";
        termination_failures: always counter[labels::ZoneOnly; 5] "karpenter_cloudprovider_instance_termination_failures" "Failed requests to terminate an instance";
        duration: always histogram[labels::Method; 10; Buckets::DURATIONS] "karpenter_cloudprovider_duration_seconds" "Duration of cloud provider calls";
        errors: always counter[labels::MethodError; 30] "karpenter_cloudprovider_errors" "Failed cloud provider calls";
        messages: always counter[labels::Message; 10] "karpenter_interruption_received_messages" "Interruption messages received";
        messages_deleted: always counter[] "karpenter_interruption_deleted_messages" "Interruption messages deleted from the queue";
        unhealthy: always counter[labels::StatusCategory; 3] "karpenter_interruption_instance_status_unhealthy" "Instances whose status has become bad, by category";
        sources_failed: always counter[labels::NoticeFailure; 12] "mortise_interruption_source_failures" "Failed attempts to read a source of interruption notices";
        sources_healthy: always gauge[labels::NoticeSource; 4] "mortise_interruption_source_healthy" "Whether a source of interruption notices can be read and says all it should (1), or not (0)";
        message_age: always histogram[Buckets::DURATIONS] "karpenter_interruption_message_queue_duration_seconds" "Time from the creation of an interruption message until it was received";
    }
}

impl CloudMetrics {
    /// Records a call to a cloud.
    pub(crate) fn called(
        &self,
        controller: DeciderId,
        method: &'static str,
        provider: &str,
        took: Duration,
        error: Option<&'static str>,
    ) {
        let controller = controller.label();
        let provider = provider.to_owned();
        let labels = labels::Method {
            controller,
            method,
            provider: provider.clone(),
        };
        self.duration.observe(&labels, took.as_secs_f64());
        if let Some(error) = error {
            self.errors.count(&labels::MethodError {
                controller,
                method,
                provider,
                error,
            });
        }
    }

    /// Records offerings without capacity.
    pub(crate) fn launch_failed(
        &self,
        class: &NodeClassKey,
        none: &[UnavailableOffering],
        snapshot: &Snapshot,
    ) {
        for each in none {
            self.launch_failures.count(&labels::LaunchFailure {
                zone: each.zone.to_string(),
                zone_id: zone_id(snapshot, class, &each.zone),
                capacity_type: each.capacity_type.as_str(),
                reason: "InsufficientCapacity",
            });
        }
    }

    /// Counts a failed termination of a NodeClaim's instance.
    pub(crate) fn termination_failed(&self, claim: &ClaimName, snapshot: &Snapshot) {
        let claim = snapshot.claims.get(claim);
        let label = |key: &str| {
            let value = claim.and_then(|claim| claim.label(key));
            value.unwrap_or_default().to_owned()
        };
        let zone_id = claim.and_then(|claim| {
            let mut labels = claim.metadata.labels.iter().flatten();
            labels.find(|(key, _)| snapshot.well_known.is_zone_id(key))
        });
        let zone_id = zone_id.map(|(_, id)| id.clone()).unwrap_or_default();
        self.termination_failures.count(&labels::ZoneOnly {
            zone: label(mortise_apis::labels::TOPOLOGY_ZONE),
            zone_id,
        });
    }

    /// Records a received message, and the time since it was sent.
    pub(crate) fn notice(&self, kind: InterruptionKind, age: Option<Duration>) {
        self.messages.count(&labels::Message {
            message_type: kind.label(),
        });
        if let Some(age) = age {
            self.message_age.observe(age.as_secs_f64());
        }
    }

    /// Counts instances whose status has become bad.
    pub(crate) fn tallied(&self, tallies: &[MetricEvent]) {
        for tally in tallies {
            if let MetricEvent::InstanceUnhealthy { category } = tally {
                self.unhealthy.count(&labels::StatusCategory { category });
            }
        }
    }

    /// Counts a failed attempt to read a source of notices.
    pub(crate) fn notices_failed(
        &self,
        provider: &'static str,
        source: &'static str,
        error: &'static str,
    ) {
        self.sources_failed.count(&labels::NoticeFailure {
            provider,
            source,
            error,
        });
    }

    /// Shows whether a source of notices is healthy.
    pub(crate) fn notices_healthy(
        &self,
        provider: &'static str,
        source: &'static str,
        healthy: bool,
    ) {
        let labels = labels::NoticeSource { provider, source };
        self.sources_healthy.set(&labels, i64::from(healthy));
    }

    /// Counts a message that was removed from its queue.
    pub(crate) fn notice_acknowledged(&self) {
        self.messages_deleted.inc();
    }
}

/// The cloud's ID of a zone, from the offerings of a class; empty if they have none.
fn zone_id(snapshot: &Snapshot, class: &NodeClassKey, zone: &str) -> String {
    let types = snapshot.catalogs.get(class).map(|catalog| catalog.types());
    let offerings = types
        .unwrap_or_default()
        .iter()
        .flat_map(|each| &each.offerings);
    offerings
        .filter(|offering| &*offering.zone == zone)
        .flat_map(|offering| &offering.labels)
        .find(|(key, _)| snapshot.well_known.is_zone_id(key))
        .map(|(_, id)| id.to_string())
        .unwrap_or_default()
}
