//! `admission`: how long reviews take, how many a processor answers, and what a preview of an edit costs.
//!
//! Reviews are answered as the service answers them, from the bytes of the request to the answer; only TLS and HTTP are
//! left out.

use std::io::Write;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use jiff::Timestamp;
use mortise_apis::node_class::{NodeClassKind, NodeClassRegistry};
use mortise_apis::{CrdSet, NodePool, labels};
use mortise_aws_class::Ec2NodeClassApi;
use mortise_aws_class::spec::KIND;
use mortise_state::index::Index;
use mortise_state::resource_kinds::{EventSource, Object, ObjectEvent};
use mortise_state::snapshot::Snapshot;
use mortise_webhooks::Counters;
use mortise_webhooks::admission::{
    AdmissionContext, AdmissionSettings, respond_to_review, set_defaults, validate,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::inputs;
use crate::output::Output;
use crate::report::{Benchmark, Results};
use crate::test_host::cpu_seconds;

/// Options of `admission`.
#[derive(Debug, clap::Args, Serialize)]
pub(crate) struct AdmissionArgs {
    /// Nodes of the cluster.
    #[arg(long, default_value_t = 2_000)]
    nodes: usize,
    /// Pods on each node.
    #[arg(long, default_value_t = 10)]
    pods: usize,
    /// Pools besides the one with the nodes.
    #[arg(long, default_value_t = 59)]
    pools: usize,
    /// Reviews of each sort.
    #[arg(long, default_value_t = 2_000)]
    runs: usize,
    /// Previews.
    #[arg(long, default_value_t = 5)]
    previews: usize,
    #[command(flatten)]
    #[serde(skip)]
    output: Output,
}

/// The figures of one sort of review.
#[derive(Debug, Serialize)]
struct Row {
    review: &'static str,
    runs: usize,
    /// Milliseconds of one review by wall time: median, 99 of 100, most.
    milliseconds: (f64, f64, f64),
    /// Reviews in a second of one processor, by processor time.
    per_cpu_second: Option<f64>,
    /// What was answered: refusals and warnings.
    answer: Vec<String>,
}

/// All figures of a run, and the sizes of the cluster.
#[derive(Debug, Serialize)]
pub(crate) struct AdmissionResults {
    nodes: usize,
    pods: usize,
    pools: usize,
    instance_types: usize,
    rows: Vec<Row>,
}

/// What the figures should be within.
const LIMITS: &str =
    "wanted: validation p99 <= 50 ms, 1,000 reviews/s on one processor, preview <= 1 s";

impl Benchmark for AdmissionArgs {
    const NAME: &'static str = "admission";
    const SOURCES: &'static [&'static str] = &["../webhooks/src", "../crates", "src"];
    type Results = AdmissionResults;

    fn output(&self) -> &Output {
        &self.output
    }

    fn seed(&self) -> Option<u64> {
        None
    }

    fn is_complete(&self) -> bool {
        true
    }

    fn measure(&self) -> Result<AdmissionResults> {
        let (mut index, pool) = inputs::empty(&inputs::own_folder())?;
        fill(&mut index, &pool, self)?;
        index.set_synced();
        let snapshot = index.freeze(Timestamp::UNIX_EPOCH);
        let types = snapshot
            .catalog_of(&pool)
            .map_or(0, |catalog| catalog.types().len());
        let rules = rules();
        let mut rows = Vec::new();
        for (name, handler, body) in reviews(&pool)? {
            rows.push(measure(name, self.runs, || {
                answer(handler, &snapshot, &rules, &body)
            })?);
        }
        for (name, body) in previews(&pool)? {
            rows.push(measure(name, self.previews, || {
                answer(Handler::Validate, &snapshot, &rules, &body)
            })?);
        }
        Ok(AdmissionResults {
            nodes: self.nodes,
            pods: snapshot.pods.len(),
            pools: snapshot.pools.len(),
            instance_types: types,
            rows,
        })
    }
}

impl Results for AdmissionResults {
    fn write_table(&self, out: &mut dyn Write) -> Result<()> {
        let Self {
            nodes,
            pods,
            pools,
            instance_types,
            rows,
        } = self;
        writeln!(
            out,
            "{nodes} nodes, {pods} pods, {pools} pools, {instance_types} instance types; {LIMITS}"
        )?;
        writeln!(
            out,
            "{:<34}{:>7}{:>10}{:>10}{:>10}{:>12}  answer",
            "review", "runs", "p50 ms", "p99 ms", "max ms", "per cpu s"
        )?;
        for row in rows {
            let (median, high, most) = row.milliseconds;
            let rate = row.per_cpu_second.unwrap_or(f64::NAN);
            let answer = row.answer.first().map_or("allowed", String::as_str);
            writeln!(
                out,
                "{:<34}{:>7}{median:>10.3}{high:>10.3}{most:>10.3}{rate:>12.0}  {answer}",
                row.review, row.runs
            )?;
        }
        Ok(())
    }
}

#[derive(Clone, Copy)]
enum Handler {
    Validate,
    Default,
}

fn answer(
    handler: Handler,
    snapshot: &Snapshot,
    rules: &AdmissionSettings,
    body: &[u8],
) -> Result<Value> {
    let counters = Counters::default();
    let answered = respond_to_review(body, &counters, |request| match handler {
        Handler::Default => set_defaults(rules, &snapshot.well_known, request),
        Handler::Validate => validate(
            &AdmissionContext {
                snapshot,
                rules,
                now: Timestamp::UNIX_EPOCH,
                stop: &|| false,
            },
            request,
        ),
    });
    Ok(serde_json::to_value(&answered)?)
}

fn measure(
    review: &'static str,
    runs: usize,
    mut ask: impl FnMut() -> Result<Value>,
) -> Result<Row> {
    let mut milliseconds = Vec::with_capacity(runs);
    let cpu = cpu_seconds();
    let mut last = Value::Null;
    for _ in 0..runs.max(1) {
        let start = Instant::now();
        last = ask()?;
        milliseconds.push(start.elapsed().as_secs_f64() * 1e3);
    }
    let cpu = cpu_seconds().zip(cpu).map(|(end, start)| end - start);
    milliseconds.sort_by(f64::total_cmp);
    let at = |percent: usize| {
        let index = (milliseconds.len() * percent / 100).min(milliseconds.len() - 1);
        milliseconds.get(index).copied().unwrap_or(f64::NAN)
    };
    let mut texts: Vec<String> = Vec::new();
    if last["response"]["allowed"] != json!(true) {
        let message = last["response"]["status"]["message"].as_str();
        texts.push(message.unwrap_or_default().to_owned());
    }
    let warnings = last["response"]["warnings"].as_array();
    texts.extend(
        warnings
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .map(str::to_owned),
    );
    #[expect(clippy::cast_precision_loss, reason = "for display")]
    let per_cpu_second = cpu
        .filter(|seconds| *seconds > 0.0)
        .map(|seconds| runs as f64 / seconds);
    Ok(Row {
        review,
        runs,
        milliseconds: (at(50), at(99), at(100)),
        per_cpu_second,
        answer: texts,
    })
}

/// Both the kind of the recorded inputs and the one with the most rules.
fn rules() -> AdmissionSettings {
    let kind = |group, version, kind, plural| NodeClassKind {
        group,
        version,
        kind,
        plural,
    };
    AdmissionSettings {
        deny_unsatisfiable: false,
        offline: false,
        crds: CrdSet::for_classes(
            &NodeClassRegistry::new([&Ec2NodeClassApi]),
            &[
                kind(
                    "karpenter.test.sh",
                    "v1alpha1",
                    "TestNodeClass",
                    "testnodeclasses",
                ),
                KIND,
            ],
        ),
    }
}

fn object(pool: &NodePool, change: impl FnOnce(&mut Value)) -> Result<Value> {
    let mut object = serde_json::to_value(pool)?;
    object["spec"]["template"]["spec"]["requirements"] = json!([
        { "key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"] },
        { "key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand", "spot"] },
        { "key": "topology.kubernetes.io/zone", "operator": "In", "values": ["test-zone-1", "test-zone-2"] },
    ]);
    object["spec"]["disruption"]["budgets"] =
        json!([{ "nodes": "10%" }, { "nodes": "0", "schedule": "0 9 * * 1-5", "duration": "8h" }]);
    change(&mut object);
    Ok(object)
}

fn body(operation: &str, object: &Value, old: &Value, dry_run: bool) -> Result<Vec<u8>> {
    let some = if object.is_null() { old } else { object };
    let version = some["apiVersion"].as_str().unwrap_or_default();
    let (group, version) = version.split_once('/').context("apiVersion")?;
    Ok(serde_json::to_vec(&json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002", "name": some["metadata"]["name"],
            "kind": { "group": group, "version": version, "kind": some["kind"] },
            "operation": operation, "object": object, "oldObject": old, "dryRun": dry_run,
        },
    }))?)
}

fn reviews(pool: &NodePool) -> Result<Vec<(&'static str, Handler, Vec<u8>)>> {
    let good = object(pool, |_| {})?;
    let new = object(pool, |object| object["metadata"]["name"] = json!("another"))?;
    let limited = object(pool, |object| {
        object["spec"]["limits"]["cpu"] = json!("100")
    })?;
    let bad = object(pool, |object| {
        object["spec"]["weight"] = json!(1_000);
        object["spec"]["template"]["spec"]["requirements"][0]["operator"] = json!("Inn");
    })?;
    let mistyped = object(pool, |object| {
        object["metadata"]["name"] = json!("another");
        object["spec"]["template"]["spec"]["requirements"][2]["values"] = json!(["test-zone-9"]);
    })?;
    let class = json!({
        "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": { "name": "default" },
        "spec": {
            "role": "nodes", "amiSelectorTerms": [{ "alias": "al2023@latest" }],
            "subnetSelectorTerms": [{ "tags": { "karpenter.sh/discovery": "main" } }],
            "securityGroupSelectorTerms": [{ "tags": { "karpenter.sh/discovery": "main" } }],
            "blockDeviceMappings": [{ "deviceName": "/dev/xvda", "ebs": { "volumeSize": "100Gi", "volumeType": "gp3" } }],
            "tags": { "team": "a" },
            "kubelet": { "maxPods": 110, "evictionHard": { "memory.available": "5%" } },
        },
    });
    let null = Value::Null;
    Ok(vec![
        (
            "default, good NodePool",
            Handler::Default,
            body("CREATE", &new, &null, false)?,
        ),
        (
            "default, bad NodePool",
            Handler::Default,
            body("CREATE", &bad, &null, false)?,
        ),
        (
            "validate, NodePool created",
            Handler::Validate,
            body("CREATE", &new, &null, false)?,
        ),
        (
            "validate, NodePool with unknown zone",
            Handler::Validate,
            body("CREATE", &mistyped, &null, false)?,
        ),
        (
            "validate, NodePool with 2,000 nodes",
            Handler::Validate,
            body("UPDATE", &limited, &good, false)?,
        ),
        (
            "validate, EC2NodeClass created",
            Handler::Validate,
            body("CREATE", &class, &null, false)?,
        ),
        (
            "validate, NodePool deleted",
            Handler::Validate,
            body("DELETE", &null, &good, false)?,
        ),
    ])
}

fn previews(pool: &NodePool) -> Result<Vec<(&'static str, Vec<u8>)>> {
    let good = object(pool, |_| {})?;
    let all = object(pool, |object| {
        object["spec"]["template"]["metadata"]["labels"]["team"] = json!("a");
    })?;
    let none = object(pool, |object| object["spec"]["weight"] = json!(5))?;
    Ok(vec![
        (
            "preview, every node drifts",
            body("UPDATE", &all, &good, true)?,
        ),
        (
            "preview, no node drifts",
            body("UPDATE", &none, &good, true)?,
        ),
    ])
}

fn read<T: DeserializeOwned>(object: Value) -> Result<Box<T>> {
    Ok(Box::new(serde_json::from_value(object)?))
}

/// Nodes of the pool with pods of one size, and pools that have none.
fn fill(index: &mut Index, pool: &NodePool, args: &AdmissionArgs) -> Result<()> {
    let mut apply = |object| {
        index.apply(ObjectEvent::Applied(object, EventSource::Watch));
    };
    let mut stamped: NodePool = serde_json::from_value(object(pool, |_| {})?)?;
    let hash = stamped.hash().to_string();
    let annotations = stamped.metadata.annotations.get_or_insert_default();
    annotations.insert(labels::NODEPOOL_HASH.to_owned(), hash);
    annotations.insert(labels::NODEPOOL_HASH_VERSION.to_owned(), "v3".to_owned());
    let annotations = annotations.clone();
    let name = stamped.metadata.name.clone().context("name of the pool")?;
    let spec =
        json!({ "nodeClassRef": stamped.spec.template.spec.node_class_ref, "requirements": [] });
    apply(Object::Pool(Box::new(stamped)));
    for n in 0..args.pools {
        let other = object(pool, |object| {
            object["metadata"]["name"] = json!(format!("pool-{n}"));
            object["spec"]["weight"] = json!(n % 100 + 1);
        })?;
        apply(Object::Pool(read(other)?));
    }
    if args.pods == 0 || args.nodes == 0 {
        bail!("--nodes and --pods must be 1 or more");
    }
    let milli = 3_800 / args.pods;
    for n in 0..args.nodes {
        let (node, id) = (format!("node-{n}"), format!("test:///zone/{n}"));
        let mut labels = json!({
            labels::NODEPOOL: name, labels::INSTANCE_TYPE: "fake-it-3", labels::CAPACITY_TYPE: "on-demand",
            labels::TOPOLOGY_ZONE: format!("test-zone-{}", n % 2 + 1), labels::ARCH: "amd64", labels::OS: "linux",
            "testing/cluster": "unspecified",
        });
        let has = json!({ "cpu": "3900m", "memory": "8Gi", "pods": "40" });
        let conditions = ["Launched", "Registered", "Initialized"]
            .map(|kind| json!({ "type": kind, "status": "True", "reason": kind, "message": "" }));
        apply(Object::Claim(read(json!({
            "metadata": { "name": node, "uid": node, "labels": labels, "annotations": annotations, "creationTimestamp": Timestamp::UNIX_EPOCH },
            "spec": spec,
            "status": { "providerID": id, "nodeName": node, "capacity": has, "allocatable": has, "conditions": conditions },
        }))?));
        labels[labels::REGISTERED] = json!("true");
        labels[labels::INITIALIZED] = json!("true");
        apply(Object::Node(read(json!({
            "metadata": { "name": node, "labels": labels }, "spec": { "providerID": id },
            "status": { "capacity": has, "allocatable": has, "conditions": [{ "type": "Ready", "status": "True" }] },
        }))?));
        for p in 0..args.pods {
            let pod = format!("pod-{n}-{p}");
            apply(Object::Pod(read(json!({
                "metadata": {
                    "name": pod, "namespace": "default", "uid": pod, "labels": { "app": format!("app-{}", p % 7) },
                    "creationTimestamp": Timestamp::UNIX_EPOCH,
                    "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "app", "uid": "app", "controller": true }],
                },
                "spec": { "nodeName": node, "containers": [{ "name": "c", "resources": { "requests": { "cpu": format!("{milli}m"), "memory": "256Mi" } } }] },
                "status": { "phase": "Running" },
            }))?));
        }
    }
    Ok(())
}
