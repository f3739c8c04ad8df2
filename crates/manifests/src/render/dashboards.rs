//! Dashboards for Grafana: what nodes cost and do, and how the service itself fares.

use serde_json::{Value, json};

/// Width of a dashboard in Grafana's units.
const WIDTH: usize = 24;
/// Width and height of a panel.
const PANEL: (usize, usize) = (8, 8);

/// A plot.
#[derive(Clone, Copy, Debug)]
pub struct Panel {
    /// What it shows.
    pub title: &'static str,
    /// Unit of its values, by Grafana's names.
    pub unit: &'static str,
    /// What to look at.
    pub says: &'static str,
    /// Expressions in PromQL, each with the legend of its series.
    pub queries: &'static [(&'static str, &'static str)],
}

/// Plots of one question.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The question.
    pub title: &'static str,
    /// Its plots.
    pub panels: &'static [Panel],
}

/// A dashboard.
#[derive(Clone, Copy, Debug)]
pub struct Dashboard {
    /// File name without ending, and uid.
    pub name: &'static str,
    /// Title.
    pub title: &'static str,
    /// Its rows.
    pub rows: &'static [Row],
}

const fn panel(
    title: &'static str,
    unit: &'static str,
    says: &'static str,
    queries: &'static [(&'static str, &'static str)],
) -> Panel {
    Panel {
        title,
        unit,
        says,
        queries,
    }
}

const MONEY: Row = Row {
    title: "Money",
    panels: &[
        panel(
            "Cost per hour",
            "currencyUSD",
            "Price of all nodes of a NodePool, per hour.",
            &[(
                r#"max by (nodepool) (karpenter_nodepools_cost_total{job="$job"})"#,
                "{{nodepool}}",
            )],
        ),
        panel(
            "Part of the limit",
            "percentunit",
            "At 100 % a NodePool launches nothing more.",
            &[(
                r#"max by (nodepool, resource_type) (karpenter_nodepools_usage{job="$job"} / (karpenter_nodepools_limit{job="$job"} > 0))"#,
                "{{nodepool}} {{resource_type}}",
            )],
        ),
        panel(
            "Unused reserved capacity",
            "currencyUSD",
            "What reservations that no node uses cost per hour.",
            &[(
                r#"max(mortise_unused_reserved_cost{job="$job"})"#,
                "per hour",
            )],
        ),
    ],
};

const PAYERS: Row = Row {
    title: "Who pays",
    panels: &[
        panel(
            "Cost per hour by namespace",
            "currencyUSD",
            "Price of the parts of nodes that the pods of a namespace request, and of what no pod requests.",
            &[
                (
                    r#"3600 * sum by (namespace) (rate(mortise_namespace_cost_total{job="$job"}[1h]))"#,
                    "{{namespace}}",
                ),
                (
                    r#"3600 * sum(rate(mortise_unrequested_cost_total{job="$job"}[1h]))"#,
                    "unrequested",
                ),
            ],
        ),
        panel(
            "Saved per hour",
            "currencyUSD",
            "What the nodes of a NodePool cost less than the same instance types on-demand.",
            &[(
                r#"3600 * sum by (nodepool) (rate(mortise_nodepool_on_demand_cost_total{job="$job"}[1h]) - rate(mortise_nodepool_cost_total{job="$job"}[1h]))"#,
                "{{nodepool}}",
            )],
        ),
        panel(
            "Part of the month",
            "percentunit",
            "What NodePoolPolicies with a limit per month have spent of it.",
            &[(
                r#"max by (policy) (mortise_policy_month_cost{job="$job"}) / (max by (policy) (mortise_policy_month_cost_limit{job="$job"}) > 0)"#,
                "{{policy}}",
            )],
        ),
        panel(
            "Used of what is paid for",
            "percentunit",
            "What on-demand nodes use of the commitments of NodePoolPolicies.",
            &[(
                r#"max by (policy, commitment) (mortise_commitment_used{job="$job"}) / (max by (policy, commitment) (mortise_commitment_amount{job="$job"}) > 0)"#,
                "{{policy}} {{commitment}}",
            )],
        ),
    ],
};

const WASTE: Row = Row {
    title: "Waste",
    panels: &[
        panel(
            "Requested part of the nodes",
            "percent",
            "What pods request of what nodes can give.",
            &[(
                r#"max by (resource_type) (karpenter_cluster_utilization_percent{job="$job"})"#,
                "{{resource_type}}",
            )],
        ),
        panel(
            "Nodes",
            "short",
            "Nodes, and those that consolidation and drift may disrupt.",
            &[
                (
                    r#"max(karpenter_cluster_state_node_count{job="$job"})"#,
                    "nodes",
                ),
                (
                    r#"max by (reason) (karpenter_voluntary_disruption_eligible_nodes{job="$job"})"#,
                    "may be disrupted: {{reason}}",
                ),
            ],
        ),
        panel(
            "Capacity that the cloud refused",
            "short",
            "Offerings that are not asked for now, by cause.",
            &[(
                r#"max by (capacity_type, cause) (mortise_unavailable_capacity{job="$job"})"#,
                "{{capacity_type}} {{cause}}",
            )],
        ),
    ],
};

const CHURN: Row = Row {
    title: "Churn",
    panels: &[
        panel(
            "Nodes created and disrupted per hour",
            "short",
            "Disruption by its reason. Many underutilized ones next to few saved dollars: raise consolidateAfter, or minimumSavingsPerMove of a NodePoolPolicy.",
            &[
                (
                    r#"sum(increase(karpenter_nodeclaims_created_total{job="$job"}[1h]))"#,
                    "created",
                ),
                (
                    r#"sum by (reason) (increase(karpenter_nodeclaims_disrupted_total{job="$job"}[1h]))"#,
                    "{{reason}}",
                ),
            ],
        ),
        panel(
            "Disruptions that budgets allow",
            "short",
            "At 0 a NodePool's nodes wait for others, or for a schedule.",
            &[(
                r#"max by (nodepool) (karpenter_nodepools_allowed_disruptions{job="$job"})"#,
                "{{nodepool}}",
            )],
        ),
        panel(
            "Pods evicted per hour",
            "short",
            "Eviction requests by the response of the API server; 429: a PodDisruptionBudget allows none.",
            &[(
                r#"sum by (code) (increase(karpenter_pods_eviction_requests_total{job="$job"}[1h]))"#,
                "{{code}}",
            )],
        ),
    ],
};

const LATENCY: Row = Row {
    title: "How long pods wait",
    panels: &[
        panel(
            "From creation to a node",
            "s",
            "Until pods are bound: half of them, and 99 of 100.",
            &[
                (
                    r#"histogram_quantile(0.5, sum by (le) (rate(karpenter_pods_bound_duration_seconds_bucket{job="$job"}[15m])))"#,
                    "half",
                ),
                (
                    r#"histogram_quantile(0.99, sum by (le) (rate(karpenter_pods_bound_duration_seconds_bucket{job="$job"}[15m])))"#,
                    "99 of 100",
                ),
            ],
        ),
        panel(
            "Pods without a plan",
            "short",
            "Waiting to be planned, without a node that is on its way, and stalled for more than a minute. Replicas that do not lead know of fewer nodes.",
            &[
                (
                    r#"max(karpenter_scheduler_queue_depth{job="$job"})"#,
                    "waiting to be planned",
                ),
                (
                    r#"min(karpenter_scheduler_unschedulable_pods_count{job="$job"})"#,
                    "no node is on its way",
                ),
                (
                    r#"min(mortise_pods_stalled{job="$job",state="no_node"})"#,
                    "stalled: no node",
                ),
                (
                    r#"max(mortise_pods_stalled{job="$job",state="on_ready_node"})"#,
                    "stalled: on a ready node",
                ),
            ],
        ),
        panel(
            "Duration of a plan",
            "s",
            "99 of 100 plans took at most this long.",
            &[(
                r#"histogram_quantile(0.99, sum by (le) (rate(karpenter_scheduler_scheduling_duration_seconds_bucket{job="$job"}[15m])))"#,
                "99 of 100",
            )],
        ),
    ],
};

const BLOCKED: Row = Row {
    title: "What does not go on",
    panels: &[
        panel(
            "Drains",
            "short",
            "Nodes that have been terminating for long, and nodes that never could be drained, by what keeps them.",
            &[
                (
                    r#"max by (reason) (mortise_drains_blocked{job="$job"})"#,
                    "blocked: {{reason}}",
                ),
                (
                    r#"max by (reason) (mortise_undrainable_nodes{job="$job"})"#,
                    "would be: {{reason}}",
                ),
            ],
        ),
        panel(
            "Oldest drain",
            "s",
            "Age of the oldest deletion of a node that has not finished.",
            &[(
                r#"max(mortise_oldest_drain_age_seconds{job="$job"})"#,
                "oldest",
            )],
        ),
        panel(
            "Pauses and brakes",
            "short",
            "Pauses of disruption, the brake, and NodePools whose instances do not register.",
            &[
                (
                    r#"max by (scope) (mortise_disruption_pauses{job="$job"})"#,
                    "paused: {{scope}}",
                ),
                (r#"max(mortise_disruption_braked{job="$job"})"#, "brake"),
                (
                    r#"max by (nodepool) (mortise_nodepool_launches_paused{job="$job"})"#,
                    "launches of {{nodepool}} paused",
                ),
            ],
        ),
    ],
};

const CALLERS: Row = Row {
    title: "Callers",
    panels: &[
        panel(
            "Requests per second",
            "reqps",
            "Requests to the webhooks, the extender and debug paths.",
            &[(
                r#"sum by (path, status) (rate(mortise_http_requests_total{job="$job"}[5m]))"#,
                "{{path}} {{status}}",
            )],
        ),
        panel(
            "Time to respond",
            "s",
            "99 of 100 requests took at most this long.",
            &[(
                r#"histogram_quantile(0.99, sum by (path, le) (rate(mortise_http_request_duration_seconds_bucket{job="$job"}[5m])))"#,
                "{{path}}",
            )],
        ),
        panel(
            "Refused",
            "short",
            "Failed TLS handshakes per minute by cause, and pods that kube-scheduler bound without a call.",
            &[
                (
                    r#"60 * sum by (cause) (rate(mortise_tls_handshakes_failed_total{job="$job"}[5m]))"#,
                    "handshakes: {{cause}}",
                ),
                (
                    r#"min(mortise_extender_unasked_binds{job="$job"})"#,
                    "bound without a call",
                ),
            ],
        ),
    ],
};

const LIMITS: Row = Row {
    title: "Limits of the cloud",
    panels: &[
        panel(
            "Calls that wait",
            "short",
            "The account allows no more calls of this kind at once.",
            &[(
                r#"max by (limit) (mortise_cloud_calls_waiting{job="$job"})"#,
                "{{limit}}",
            )],
        ),
        panel(
            "Failed calls per minute",
            "short",
            "Calls of the cloud by their error.",
            &[(
                r#"60 * sum by (method, error) (rate(karpenter_cloudprovider_errors_total{job="$job"}[5m]))"#,
                "{{method}} {{error}}",
            )],
        ),
        panel(
            "Age of prices",
            "s",
            "How old the prices in use are, by where they come from.",
            &[(
                r#"max by (capacity_type, source) (mortise_price_age_seconds{job="$job"})"#,
                "{{capacity_type}} {{source}}",
            )],
        ),
    ],
};

const ENGINE: Row = Row {
    title: "Inside",
    panels: &[
        panel(
            "Effects per minute",
            "short",
            "Writes and cloud calls by their result.",
            &[(
                r#"60 * sum by (effect, result) (rate(mortise_effects_total{job="$job"}[5m]))"#,
                "{{effect}} {{result}}",
            )],
        ),
        panel(
            "Duration of a step",
            "s",
            "99 of 100 steps of a decider took at most this long.",
            &[(
                r#"histogram_quantile(0.99, sum by (decider, le) (rate(mortise_step_duration_seconds_bucket{job="$job"}[5m])))"#,
                "{{decider}}",
            )],
        ),
        panel(
            "Writes to the API server per minute",
            "short",
            "All requests that change something, retries included.",
            &[(
                r#"60 * sum by (verb, resource) (rate(mortise_api_writes_total{job="$job"}[5m]))"#,
                "{{verb}} {{resource}}",
            )],
        ),
        panel(
            "Age of what is known",
            "s",
            "Since the cluster state was confirmed, and since a watch has heard anything.",
            &[
                (
                    r#"max by (pod) (mortise_snapshot_age_seconds{job="$job"})"#,
                    "snapshot {{pod}}",
                ),
                (
                    r#"max by (kind) (mortise_watch_silence_seconds{job="$job"})"#,
                    "{{kind}}",
                ),
            ],
        ),
        panel(
            "Memory",
            "bytes",
            "Resident memory of each replica.",
            &[(
                r#"max by (pod) (mortise_resident_memory_bytes{job="$job"})"#,
                "{{pod}}",
            )],
        ),
        panel(
            "Leader",
            "short",
            "1 for the replica that leads. Exactly one should.",
            &[(
                r#"max by (pod) (leader_election_master_status{job="$job"})"#,
                "{{pod}}",
            )],
        ),
    ],
};

/// All of them.
pub const DASHBOARDS: [Dashboard; 2] = [
    Dashboard {
        name: "mortise-nodes",
        title: "mortise: nodes",
        rows: &[MONEY, PAYERS, WASTE, CHURN, LATENCY, BLOCKED],
    },
    Dashboard {
        name: "mortise-service",
        title: "mortise: the service",
        rows: &[CALLERS, LIMITS, ENGINE],
    },
];

impl Panel {
    fn json(&self, id: usize, (x, y): (usize, usize)) -> Value {
        let source = json!({ "type": "prometheus", "uid": "${datasource}" });
        let target = |(at, (expr, legend)): (usize, &(&str, &str))| {
            let name = char::from(b'A' + u8::try_from(at).unwrap_or_default());
            json!({ "refId": name.to_string(), "datasource": source, "expr": expr, "legendFormat": legend })
        };
        let targets = self.queries.iter().enumerate().map(target);
        json!({
            "id": id,
            "type": "timeseries",
            "title": self.title,
            "description": self.says,
            "datasource": source,
            "gridPos": { "x": x, "y": y, "w": PANEL.0, "h": PANEL.1 },
            "fieldConfig": { "defaults": { "unit": self.unit, "min": 0, "custom": { "fillOpacity": 10 } }, "overrides": [] },
            "options": { "legend": { "displayMode": "list", "placement": "bottom" }, "tooltip": { "mode": "multi" } },
            "targets": targets.collect::<Vec<_>>(),
        })
    }
}

impl Dashboard {
    /// What Grafana imports, as text.
    #[must_use]
    pub fn text(&self) -> String {
        format!("{:#}\n", self.json())
    }

    fn json(&self) -> Value {
        let mut panels = Vec::new();
        let mut y = 0;
        for row in self.rows {
            panels.push(json!({
                "id": panels.len() + 1,
                "type": "row",
                "title": row.title,
                "collapsed": false,
                "gridPos": { "x": 0, "y": y, "w": WIDTH, "h": 1 },
                "panels": [],
            }));
            y += 1;
            let per_line = WIDTH / PANEL.0;
            for (at, panel) in row.panels.iter().enumerate() {
                let place = (at % per_line * PANEL.0, y + at / per_line * PANEL.1);
                panels.push(panel.json(panels.len() + 1, place));
            }
            y += row.panels.len().div_ceil(per_line) * PANEL.1;
        }
        json!({
            "uid": self.name,
            "title": self.title,
            "tags": ["mortise", "kubernetes"],
            "schemaVersion": 39,
            "editable": true,
            "refresh": "1m",
            "time": { "from": "now-6h", "to": "now" },
            "templating": { "list": [
                { "name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus" },
                { "name": "job", "type": "query", "label": "job",
                    "datasource": { "type": "prometheus", "uid": "${datasource}" },
                    "query": { "qryType": 1, "query": "label_values(mortise_snapshot_generation, job)", "refId": "job" },
                    "refresh": 1, "sort": 1 },
            ] },
            "panels": panels,
        })
    }
}

/// ConfigMaps that the sidecar of Grafana's chart loads.
#[must_use]
pub fn dashboard_config_maps(namespace: &str) -> Vec<Value> {
    let config_map = |dashboard: &Dashboard| {
        let file = format!("{}.json", dashboard.name);
        json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": dashboard.name,
                "namespace": namespace,
                "labels": { "app.kubernetes.io/name": "mortise", "grafana_dashboard": "1" },
            },
            "data": { file: dashboard.text() },
        })
    };
    DASHBOARDS.iter().map(config_map).collect()
}
