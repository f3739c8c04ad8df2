//! Manifests that a cluster needs, as objects: webhook configurations, RBAC, kube-scheduler's configuration, rules of Prometheus and
//! dashboards of Grafana.

mod alerts;
mod dashboards;
mod rbac;
mod scheduler;
mod second_scheduler;
mod webhooks;

pub use alerts::{ALERTS, AlertRule, RECORDING_RULES, Severity, prometheus_rule, rule_groups};
pub use dashboards::{DASHBOARDS, Dashboard, Panel, Row, dashboard_config_maps};
pub use rbac::{
    ProviderPermissions, ServiceAccount, When, cluster_rules, local_rules, service_account,
};
pub use scheduler::{SchedulerFiles, scheduler_configuration};
pub use second_scheduler::{SecondScheduler, second_scheduler};
pub use webhooks::{Endpoint, WebhookOptions, conversion_client_config, webhook_configurations};
