//! Alerting rules of mortise, and metrics under their earlier names, for Prometheus.

use serde_json::{Value, json};

/// What an alert asks of its reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// Pods wait, or nothing is decided: now.
    Critical,
    /// Something does not work as it should: today.
    Warning,
    /// Money or a future upgrade: this week.
    Info,
}

impl Severity {
    /// Value of the label `severity`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::Warning => "warning",
            Self::Info => "info",
        }
    }
}

/// An alerting rule.
#[derive(Clone, Copy, Debug)]
pub struct AlertRule {
    /// Its name, which is also the heading of its runbook.
    pub name: &'static str,
    /// When it holds, in PromQL.
    pub expr: &'static str,
    /// How long it has to hold, as Prometheus writes durations.
    pub lasts: &'static str,
    /// How urgent it is.
    pub severity: Severity,
    /// What is the matter, with labels of the series.
    pub summary: &'static str,
}

/// Metrics under the names that articles and earlier versions of Karpenter give them, and the expression that answers.
pub const RECORDING_RULES: [(&str, &str); 19] = [
    (
        "karpenter_consolidation_actions_performed",
        r#"sum without (decision) (karpenter_voluntary_disruption_decisions_total{reason=~"empty|underutilized"})"#,
    ),
    (
        "karpenter_disruption_actions_performed_total",
        "karpenter_voluntary_disruption_decisions_total",
    ),
    (
        "karpenter_disruption_budgets_allowed_disruptions",
        "karpenter_nodepools_allowed_disruptions",
    ),
    (
        "karpenter_disruption_budgets_remaining",
        "karpenter_nodepools_allowed_disruptions",
    ),
    (
        "karpenter_disruption_eligible_nodes",
        "karpenter_voluntary_disruption_eligible_nodes",
    ),
    (
        "karpenter_interruption_received_messages",
        "karpenter_interruption_received_messages_total",
    ),
    (
        "karpenter_nodeclaims_created",
        "karpenter_nodeclaims_created_total",
    ),
    (
        "karpenter_nodeclaims_disrupted",
        "karpenter_nodeclaims_disrupted_total",
    ),
    (
        "karpenter_nodeclaims_launched",
        "karpenter_nodeclaims_created_total",
    ),
    (
        "karpenter_nodeclaims_terminated",
        "karpenter_nodeclaims_terminated_total",
    ),
    ("karpenter_nodepool_limit", "karpenter_nodepools_limit"),
    ("karpenter_nodepool_usage", "karpenter_nodepools_usage"),
    ("karpenter_nodes_created", "karpenter_nodes_created_total"),
    (
        "karpenter_nodes_terminated",
        "karpenter_nodes_terminated_total",
    ),
    (
        "karpenter_nodes_termination_time_seconds",
        "karpenter_nodes_termination_duration_seconds",
    ),
    (
        "karpenter_pods_startup_time_seconds",
        "karpenter_pods_startup_duration_seconds",
    ),
    (
        "karpenter_provisioner_scheduling_duration_seconds_bucket",
        "karpenter_scheduler_scheduling_duration_seconds_bucket",
    ),
    (
        "karpenter_provisioner_scheduling_duration_seconds_count",
        "karpenter_scheduler_scheduling_duration_seconds_count",
    ),
    (
        "karpenter_provisioner_scheduling_duration_seconds_sum",
        "karpenter_scheduler_scheduling_duration_seconds_sum",
    ),
];

use Severity::{Critical, Info, Warning};

/// All of them, the most urgent first. Each has a runbook in `docs/tasks/alerts.md`.
pub const ALERTS: [AlertRule; 28] = [
    AlertRule {
        name: "MortiseAbsent",
        expr: "absent(mortise_snapshot_generation)",
        lasts: "10m",
        severity: Critical,
        summary: "Prometheus gets no metrics of mortise: it does not run, or it is not scraped",
    },
    AlertRule {
        name: "MortiseHasNoLeader",
        expr: "max by (job) (leader_election_master_status) == 0",
        lasts: "3m",
        severity: Critical,
        summary: "No replica of mortise leads, so that no node is launched or removed",
    },
    AlertRule {
        name: "MortiseSnapshotOld",
        expr: "max by (job, pod) (mortise_snapshot_age_seconds) > 120",
        lasts: "5m",
        severity: Critical,
        summary: "What {{ $labels.pod }} knows of the cluster is {{ $value | humanizeDuration }} old",
    },
    AlertRule {
        name: "MortisePodsWithoutNode",
        // A replica that does not lead does not know of nominations to nodes that exist.
        expr: r#"min by (job) (mortise_pods_stalled{state="no_node"}) > 0"#,
        lasts: "10m",
        severity: Critical,
        summary: "{{ $value }} pods are unschedulable, and no node is being launched for them",
    },
    AlertRule {
        name: "MortiseInterruptionSourceUnhealthy",
        expr: "min by (job, provider, source) (mortise_interruption_source_healthy) == 0",
        lasts: "10m",
        severity: Critical,
        summary: "Interruption notices cannot be read from {{ $labels.source }}: spot nodes end without a drain",
    },
    AlertRule {
        name: "MortisePodsNotBound",
        expr: r#"max by (job) (mortise_pods_stalled{state="on_ready_node"}) > 0"#,
        lasts: "10m",
        severity: Warning,
        summary: "{{ $value }} pods have a ready node, and kube-scheduler does not bind them there",
    },
    AlertRule {
        name: "MortiseLaunchesPaused",
        expr: "max by (job, nodepool) (mortise_nodepool_launches_paused) > 0",
        lasts: "5m",
        severity: Warning,
        summary: "Instances of NodePool {{ $labels.nodepool }} do not register, so that no more are launched",
    },
    AlertRule {
        name: "MortiseLaunchesFail",
        expr: r#"sum by (job, error) (increase(karpenter_cloudprovider_errors_total{method="Create",error!="InsufficientCapacityError"}[15m])) > 5"#,
        lasts: "5m",
        severity: Warning,
        summary: "{{ $value | humanize }} launches failed within 15 minutes: {{ $labels.error }}",
    },
    AlertRule {
        name: "MortiseAccountStopsLaunches",
        expr: r#"max by (job, cause) (mortise_unavailable_capacity{cause=~"quota|spot_role|subnet_full"}) > 0"#,
        lasts: "10m",
        severity: Warning,
        summary: "The account or a subnet stops launches: {{ $labels.cause }}",
    },
    AlertRule {
        name: "MortiseNodePoolAtLimit",
        expr: "max by (job, nodepool, resource_type) (karpenter_nodepools_usage / (karpenter_nodepools_limit > 0)) > 0.9",
        lasts: "15m",
        severity: Warning,
        summary: "NodePool {{ $labels.nodepool }} uses {{ $value | humanizePercentage }} of its limit of {{ $labels.resource_type }}",
    },
    AlertRule {
        name: "MortiseDrainTooLong",
        expr: "max by (job) (mortise_oldest_drain_age_seconds) > 3600",
        lasts: "5m",
        severity: Warning,
        summary: "A node has been draining for {{ $value | humanizeDuration }}",
    },
    AlertRule {
        name: "MortiseDisruptionBraked",
        expr: "max by (job) (mortise_disruption_braked) > 0",
        lasts: "15m",
        severity: Warning,
        summary: "More than a third of the nodes are not ready, so that no others are disrupted",
    },
    AlertRule {
        name: "MortiseUpgradeDriftHeld",
        expr: "max by (job, nodepool) (mortise_upgrade_drift_held_nodes) > 0",
        lasts: "0m",
        severity: Warning,
        summary: "{{ $value }} nodes of NodePool {{ $labels.nodepool }} drifted right after an upgrade of mortise and wait for you",
    },
    AlertRule {
        name: "MortiseChurn",
        expr: r#"sum by (job) (increase(karpenter_nodeclaims_disrupted_total{reason="underutilized"}[6h])) > max by (job) (karpenter_cluster_state_node_count)"#,
        lasts: "15m",
        severity: Warning,
        summary: "Within six hours consolidation replaced as many nodes as there are ({{ $value | humanize }})",
    },
    AlertRule {
        name: "MortiseExtenderNotCalled",
        expr: "min by (job) (mortise_extender_unasked_binds) > 0",
        lasts: "10m",
        severity: Warning,
        summary: "kube-scheduler binds pods without a call to the extender",
    },
    AlertRule {
        name: "MortiseWatchesOld",
        expr: "max by (job, kind, how) (mortise_old_watches) > 0",
        lasts: "5m",
        severity: Warning,
        summary: "The watch of {{ $labels.kind }} is {{ $labels.how }}: what depends on it is paused",
    },
    AlertRule {
        name: "MortiseEffectsFail",
        expr: r#"sum by (job, effect) (increase(mortise_effects_total{result!="done"}[15m])) > 5 and sum by (job, effect) (rate(mortise_effects_total{result!="done"}[15m])) > 0.5 * sum by (job, effect) (rate(mortise_effects_total[15m]))"#,
        lasts: "15m",
        severity: Warning,
        summary: "More than half of the effects {{ $labels.effect }} fail",
    },
    AlertRule {
        name: "MortiseCloudThrottled",
        expr: "max by (job, limit) (mortise_cloud_calls_waiting) > 0",
        lasts: "10m",
        severity: Warning,
        summary: "{{ $value }} calls wait, because the account allows no more of {{ $labels.limit }}",
    },
    AlertRule {
        name: "MortiseHandshakesFail",
        expr: r#"sum by (job, cause) (increase(mortise_tls_handshakes_failed_total{cause=~"name_not_in_certificate|certificate_refused|client_certificate|no_certificate"}[15m])) > 10"#,
        lasts: "15m",
        severity: Warning,
        summary: "Callers of the webhooks or the extender are refused, or refuse the certificate: {{ $labels.cause }}",
    },
    AlertRule {
        name: "MortiseObjectsUnreadable",
        expr: "sum by (job) (increase(mortise_unparsable_objects_total[1h])) > 0",
        lasts: "0m",
        severity: Warning,
        summary: "An object cannot be read; its last readable state counts",
    },
    AlertRule {
        name: "MortisePanicked",
        expr: "sum by (job) (increase(mortise_http_panics_total[1h])) > 0",
        lasts: "0m",
        severity: Warning,
        summary: "A request ended in a defect of mortise",
    },
    AlertRule {
        name: "MortisePricesOld",
        expr: "min by (job, capacity_type) (mortise_price_age_seconds) > 259200",
        lasts: "1h",
        severity: Info,
        summary: "Prices of {{ $labels.capacity_type }} capacity are {{ $value | humanizeDuration }} old",
    },
    AlertRule {
        name: "MortiseNodesUndrainable",
        expr: "max by (job, reason) (mortise_undrainable_nodes) > 0",
        lasts: "1d",
        severity: Info,
        summary: "{{ $value }} nodes could not be drained ({{ $labels.reason }}): an upgrade or an expiry will wait for them",
    },
    AlertRule {
        name: "MortiseDisruptionPaused",
        expr: "max by (job, scope) (mortise_disruption_pauses) > 0",
        lasts: "7d",
        severity: Info,
        summary: "Disruption has been paused for a week ({{ $labels.scope }}): nothing is consolidated or replaced there",
    },
    AlertRule {
        name: "MortiseSharesPods",
        expr: r#"max by (job, name) (mortise_other_controllers{name="cluster-autoscaler"}) > 0"#,
        lasts: "1d",
        severity: Info,
        summary: "{{ $labels.name }} runs next to mortise: both launch nodes for the same pods",
    },
    AlertRule {
        name: "MortiseReservationsUnused",
        expr: "max by (job) (mortise_unused_reserved_instances) > 0",
        lasts: "6h",
        severity: Info,
        summary: "{{ $value }} instances of capacity reservations are paid for and not used",
    },
    AlertRule {
        name: "MortiseMonthAlmostSpent",
        expr: "max by (job, policy) (mortise_policy_month_cost) > 0.9 * max by (job, policy) (mortise_policy_month_cost_limit)",
        lasts: "10m",
        severity: Info,
        summary: "NodePoolPolicy {{ $labels.policy }} has spent nine tenths of its month: what is left allows few new nodes",
    },
    AlertRule {
        name: "MortiseCommitmentUnused",
        expr: "max by (job, policy, commitment) (mortise_commitment_used) < 0.8 * max by (job, policy, commitment) (mortise_commitment_amount)",
        lasts: "1d",
        severity: Info,
        summary: "Commitment {{ $labels.commitment }} of NodePoolPolicy {{ $labels.policy }} is paid for and a fifth of it has not been used for a day",
    },
];

/// The rule file of Prometheus: alerts, and metrics under their earlier names.
#[must_use]
pub fn rule_groups() -> Value {
    let alert = |rule: &AlertRule| {
        let runbook = format!("docs/tasks/alerts.md#{}", rule.name.to_lowercase());
        json!({
            "alert": rule.name,
            "expr": rule.expr,
            "for": rule.lasts,
            "labels": { "severity": rule.severity.as_str() },
            "annotations": { "summary": rule.summary, "runbook": runbook },
        })
    };
    let record = |(name, expr): &(&str, &str)| json!({ "record": name, "expr": expr });
    json!({ "groups": [
        { "name": "mortise.alerts", "rules": ALERTS.iter().map(alert).collect::<Vec<_>>() },
        { "name": "mortise.earlier-names", "rules": RECORDING_RULES.iter().map(record).collect::<Vec<_>>() },
    ] })
}

/// The same as an object of Prometheus Operator.
#[must_use]
pub fn prometheus_rule(namespace: &str) -> Value {
    json!({
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {
            "name": "mortise",
            "namespace": namespace,
            "labels": { "app.kubernetes.io/name": "mortise" },
        },
        "spec": rule_groups(),
    })
}
