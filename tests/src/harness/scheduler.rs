//! kube-scheduler's configuration, with or without an extender.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};

use super::certificates::write;

/// What kube-scheduler asks an extender. A question that is not configured is not asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verbs {
    /// Which nodes a pod may use.
    pub filter: bool,
    /// Which nodes are better.
    pub prioritize: bool,
    /// Where pods may be evicted for a pod.
    pub preempt: bool,
}

impl Verbs {
    /// Everything.
    pub const ALL: Self = Self {
        filter: true,
        prioritize: true,
        preempt: true,
    };
}

/// How kube-scheduler reaches an extender, and how much it listens to it.
#[derive(Clone, Debug)]
pub struct ExtenderConfig {
    /// Base URL without a trailing slash, for example `https://127.0.0.1:8443/extender/v1`.
    pub url: String,
    /// CA of the extender's server certificate, PEM file.
    pub ca: PathBuf,
    /// Client certificate and key (PEM files) that kube-scheduler shows; `None`: it shows none.
    pub client: Option<(PathBuf, PathBuf)>,
    /// Name expected in the server's certificate; `None`: the URL's host.
    pub server_name: Option<String>,
    /// Factor on the extender's scores.
    pub weight: u32,
    /// Send node names only, not whole nodes.
    pub node_cache_capable: bool,
    /// Go on without the extender when a call fails.
    pub ignorable: bool,
    /// Limit of one call.
    pub http_timeout: Duration,
    /// What it is asked.
    pub verbs: Verbs,
}

impl ExtenderConfig {
    /// The settings that mortise ships: weight 5, names only, ignorable, 300 ms.
    #[must_use]
    pub fn new(url: &str, ca: &Path, client: Option<(PathBuf, PathBuf)>) -> Self {
        Self {
            url: url.trim_end_matches('/').to_owned(),
            ca: ca.to_owned(),
            client,
            server_name: None,
            weight: 5,
            node_cache_capable: true,
            ignorable: true,
            http_timeout: Duration::from_millis(300),
            verbs: Verbs::ALL,
        }
    }

    fn to_value(&self) -> Value {
        let mut tls = json!({ "caFile": self.ca });
        if let Some((certificate, key)) = &self.client {
            tls["certFile"] = json!(certificate);
            tls["keyFile"] = json!(key);
        }
        if let Some(name) = &self.server_name {
            tls["serverName"] = json!(name);
        }
        let verb = |asked: bool, verb: &'static str| if asked { verb } else { "" };
        json!({
            "urlPrefix": self.url,
            "filterVerb": verb(self.verbs.filter, "filter"),
            "prioritizeVerb": verb(self.verbs.prioritize, "prioritize"),
            "preemptVerb": verb(self.verbs.preempt, "preempt"),
            "weight": self.weight,
            "enableHTTPS": self.url.starts_with("https:"),
            "tlsConfig": tls,
            "httpTimeout": format!("{}ms", self.http_timeout.as_millis()),
            "nodeCacheCapable": self.node_cache_capable,
            "ignorable": self.ignorable,
        })
    }
}

/// What tests set in the scheduler's configuration.
#[derive(Clone, Debug)]
pub struct SchedulerOptions {
    /// Extenders in the order they are called.
    pub extenders: Vec<ExtenderConfig>,
    /// Longest back-off of an unschedulable pod, whole seconds. Kubernetes' default is 10; tests take 2.
    pub pod_max_backoff: Duration,
    /// Percentage of the nodes that is evaluated for one pod; `None`: kube-scheduler decides (100 nodes and more: a part).
    pub percentage_of_nodes_to_score: Option<u32>,
    /// Prefer full nodes (`MostAllocated`) instead of spreading, as a cluster that consolidates wants.
    pub most_allocated: bool,
    /// `schedulerName` of the pods it places.
    pub scheduler_name: String,
    /// Feature gates that are not as by default.
    pub feature_gates: Vec<(&'static str, bool)>,
}

impl Default for SchedulerOptions {
    fn default() -> Self {
        Self {
            extenders: Vec::new(),
            pod_max_backoff: Duration::from_secs(2),
            percentage_of_nodes_to_score: None,
            most_allocated: false,
            scheduler_name: "default-scheduler".to_owned(),
            feature_gates: Vec::new(),
        }
    }
}

impl SchedulerOptions {
    /// The defaults with one extender.
    #[must_use]
    pub fn with_extender(extender: ExtenderConfig) -> Self {
        Self {
            extenders: vec![extender],
            ..Self::default()
        }
    }

    /// Flags for what the file cannot say.
    pub(crate) fn flags(&self) -> Vec<String> {
        let gates = self.feature_gates.iter();
        gates
            .map(|(gate, on)| format!("--feature-gates={gate}={on}"))
            .collect()
    }

    /// Writes the KubeSchedulerConfiguration file.
    pub(crate) fn write(&self, path: &Path, kubeconfig: &Path) -> Result<()> {
        let mut config = json!({
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": { "kubeconfig": kubeconfig, "qps": 2000, "burst": 4000 },
            "leaderElection": { "leaderElect": false },
            "podInitialBackoffSeconds": 1,
            "podMaxBackoffSeconds": self.pod_max_backoff.as_secs().max(1),
            "extenders": self.extenders.iter().map(ExtenderConfig::to_value).collect::<Vec<_>>(),
        });
        if let Some(percentage) = self.percentage_of_nodes_to_score {
            config["percentageOfNodesToScore"] = json!(percentage);
        }
        let mut profile = json!({ "schedulerName": self.scheduler_name });
        if self.most_allocated {
            let strategy = json!({ "type": "MostAllocated", "resources": [{ "name": "cpu", "weight": 1 }, { "name": "memory", "weight": 1 }] });
            profile["pluginConfig"] =
                json!([{ "name": "NodeResourcesFit", "args": { "scoringStrategy": strategy } }]);
        }
        config["profiles"] = json!([profile]);
        write(path, &serde_json::to_string_pretty(&config)?)
    }
}
