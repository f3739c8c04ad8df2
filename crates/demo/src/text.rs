//! Output of the demo: addresses, commands, and the summary.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use mortise_controller::{Addresses, pem};
use mortise_sim::Stats;
use mortise_state::snapshot::{Pod, Snapshot};
use serde_json::{Value, json};

use crate::demo_cluster;
use crate::play::Pace;

/// Addresses and files of the demo.
pub(crate) struct DemoEndpoints<'a> {
    pub(crate) addresses: Addresses,
    pub(crate) directory: &'a Path,
    pub(crate) speed: Pace,
    pub(crate) seed: u64,
    /// Name of the scenario, and what it shows.
    pub(crate) scenario: Option<(&'static str, String)>,
}

/// Names of existing objects for the printed commands and the probe.
pub(crate) struct SampleRequests {
    /// Some ready nodes.
    nodes: Vec<String>,
    /// A pending pod, if there is one.
    pod: Option<Arc<Pod>>,
    /// A NodePool.
    pool: String,
}

impl SampleRequests {
    pub(crate) fn about(snapshot: &Snapshot) -> Self {
        Self {
            nodes: ready_nodes(snapshot),
            pod: misfit(snapshot),
            pool: pool(snapshot),
        }
    }

    /// The body of a filter call.
    pub(crate) fn filter(&self) -> Value {
        json!({ "Pod": pod_body(self.pod.as_deref()), "NodeNames": self.nodes })
    }

    /// Path and query of an explanation.
    pub(crate) fn explain(&self) -> String {
        match (&self.pod, self.nodes.first()) {
            (Some(pod), _) => format!("/debug/explain?pod={}", pod.key),
            (None, Some(node)) => format!("/debug/explain?node={node}"),
            (None, None) => format!("/debug/explain?nodepool={}", self.pool),
        }
    }
}

/// The first text: addresses and commands.
pub(crate) fn welcome(
    places: &DemoEndpoints<'_>,
    asked: &SampleRequests,
    snapshot: &Snapshot,
    took: Duration,
) -> String {
    let DemoEndpoints {
        addresses,
        directory,
        speed,
        seed,
        scenario,
    } = places;
    let https = format!("https://{}", addresses.https);
    let file = |name: &str| directory.join(name).display().to_string();
    let curl = format!("curl -s --cacert {}", file(pem::CA_CERT));
    let client = format!(
        "{curl} --cert {} --key {}",
        file(pem::EXTENDER_CLIENT_CERT),
        file(pem::EXTENDER_CLIENT_KEY)
    );
    let mut text = format!(
        "mortise demo: {} nodes and {} pods; first responses (filter, explain) {:.1} s after the start; one second shows {}, seed {seed}\n\n",
        snapshot.nodes.len(),
        snapshot.pods.len(),
        took.as_secs_f64(),
        match speed {
            Pace::Times(1) => "one second".to_owned(),
            Pace::Times(times) => format!("{times} seconds"),
            Pace::Max => "as much as can be played".to_owned(),
        },
    );
    if let Some((name, about)) = scenario {
        text.push_str(&format!("Scenario {name}: {about}\n\n"));
    }
    let mut add = |name: &str, command: &str| {
        for part in [name, "\n  ", command, "\n\n"] {
            text.push_str(part);
        }
    };
    add(
        "UI (its certificate was issued for this run, so the browser shows a warning)",
        &format!("{https}/ui/"),
    );
    add(
        "Extender: which of these nodes may the scheduler use? (client certificate)",
        &post(
            &client,
            &format!("{https}/extender/v1/filter"),
            &asked.filter(),
        ),
    );
    add(
        "Admission: a NodePool with two mistakes",
        &post(&curl, &format!("{https}/admission/v1/validate"), &review()),
    );
    if asked.pod.is_some() {
        add(
            "Why does this pod wait?",
            &format!(
                "{curl} -H 'Accept: text/plain' '{https}{}'",
                asked.explain()
            ),
        );
    }
    if let Some(node) = asked.nodes.first() {
        add(
            "What is known about this node?",
            &format!("{curl} -H 'Accept: text/plain' '{https}/debug/explain?node={node}'"),
        );
    }
    add(
        "What was decided last?",
        &format!("{curl} -H 'Accept: text/plain' '{https}/debug/decisions?limit=20'"),
    );
    add(
        "Metrics, health",
        &format!(
            "curl -s http://{}/metrics; curl -s http://{}/readyz",
            addresses.metrics, addresses.health
        ),
    );
    text.push_str("Ctrl-C ends it.");
    text
}

fn post(curl: &str, url: &str, body: &Value) -> String {
    format!("{curl} -d '{body}' {url}")
}

fn ready_nodes(snapshot: &Snapshot) -> Vec<String> {
    let ready = snapshot
        .nodes
        .sorted()
        .into_iter()
        .filter(|(_, node)| node.initialized && !node.deleting);
    ready
        .filter_map(|(_, node)| node.node_name())
        .map(|name| name.to_string())
        .take(3)
        .collect()
}

/// The unschedulable pod of the demo, or any pending pod.
fn misfit(snapshot: &Snapshot) -> Option<Arc<Pod>> {
    let pending = || snapshot.pending.values();
    pending()
        .find(|pod| pod.key.name.starts_with(demo_cluster::MISFIT))
        .or_else(|| pending().next())
        .cloned()
}

/// The NodePool of most pods of the demo, or the first one.
fn pool(snapshot: &Snapshot) -> String {
    let known = demo_cluster::FIRST_POOL;
    let mut pools = snapshot.pools.keys().map(ToString::to_string);
    let first = pools.next().unwrap_or_else(|| known.to_owned());
    if first == known || pools.any(|pool| pool == known) {
        known.to_owned()
    } else {
        first
    }
}

fn pod_body(pod: Option<&Pod>) -> Value {
    let (namespace, name, uid) = pod.map_or(("default", "my-pod", "1"), |pod| {
        (&*pod.key.namespace, &*pod.key.name, &*pod.uid)
    });
    json!({ "metadata": { "namespace": namespace, "name": name, "uid": uid }, "spec": { "containers": [] } })
}

/// An admission review of a NodePool with an operator and an instance type that do not exist.
fn review() -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "1", "kind": { "group": "karpenter.sh", "version": "v1", "kind": "NodePool" }, "operation": "CREATE", "name": "mine",
            "object": {
                "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": { "name": "mine" },
                "spec": { "template": { "spec": {
                    "nodeClassRef": { "group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default" },
                    "requirements": [
                        { "key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m5.lrage"] },
                        { "key": "karpenter.sh/capacity-type", "operator": "Inn", "values": ["spot"] },
                    ],
                } } },
            },
        },
    })
}

/// Summary at the end.
pub(crate) struct Summary<'a> {
    pub(crate) stats: &'a Stats,
    pub(crate) calls: BTreeMap<&'static str, u64>,
    pub(crate) seed: u64,
    pub(crate) region: &'a str,
    pub(crate) scenario: Option<&'static str>,
    /// Time from the start of the process to the first responses, if there were any.
    pub(crate) first_answer: Option<Duration>,
    pub(crate) real: Duration,
}

impl Summary<'_> {
    pub(crate) fn json(&self) -> Value {
        let Stats {
            virtual_seconds,
            pods_placed,
            longest_pending_s,
            nodes_launched,
            nodes_removed,
            interruptions,
            shortages,
            evictions,
            evictions_refused,
            spent_micro_usd,
            price_micro_usd,
            peak_price_micro_usd,
            decisions,
            effects,
            events,
            violations,
        } = self.stats;
        json!({
            "seed": self.seed,
            "region": self.region,
            "scenario": self.scenario,
            "first_answer_ms": self.first_answer.map(|took| took.as_millis()),
            "virtual_seconds": virtual_seconds,
            "real_seconds": (self.real.as_secs_f64() * 10.0).round() / 10.0,
            "pods_placed": pods_placed,
            "longest_pending_s": longest_pending_s,
            "nodes_launched": nodes_launched,
            "nodes_removed": nodes_removed,
            "spent_usd": rounded(*spent_micro_usd),
            "usd_per_hour": rounded(*price_micro_usd),
            "peak_usd_per_hour": rounded(*peak_price_micro_usd),
            "interruptions": interruptions,
            "shortages": shortages,
            "evictions": evictions,
            "evictions_refused": evictions_refused,
            "decisions": decisions,
            "effects": effects,
            "events": events,
            "calls": self.calls,
            "violations": violations,
        })
    }

    pub(crate) fn text(&self) -> String {
        let stats = self.stats;
        let decisions: Vec<String> = stats
            .decisions
            .iter()
            .map(|(kind, count)| format!("{kind} {count}"))
            .collect();
        let calls: Vec<String> = self
            .calls
            .iter()
            .filter(|(_, count)| **count > 0)
            .map(|(kind, count)| format!("{kind} {count}"))
            .collect();
        format!(
            "\n{} virtual minutes in {:.0} s: {} pods placed, {} nodes launched, {} removed, {} interruptions, {} evictions, ${:.2} spent (${:.2} an hour at the peak, ${:.2} now)\ndecisions: {}\ncalls: {}",
            stats.virtual_seconds / 60,
            self.real.as_secs_f64(),
            stats.pods_placed,
            stats.nodes_launched,
            stats.nodes_removed,
            stats.interruptions,
            stats.evictions,
            dollars(stats.spent_micro_usd),
            dollars(stats.peak_price_micro_usd),
            dollars(stats.price_micro_usd),
            decisions.join(", "),
            calls.join(", "),
        )
    }
}

#[expect(clippy::cast_precision_loss, reason = "for display only")]
fn dollars(micro_usd: i64) -> f64 {
    micro_usd as f64 / 1e6
}

/// Dollars, rounded to a hundredth of a cent.
fn rounded(micro_usd: i64) -> f64 {
    (dollars(micro_usd) * 1e4).round() / 1e4
}
