//! How fast pods that all fit are bound.
//!
//! The pods are there before the scheduler is: what is measured is its rate, not that of whoever makes the pods. The rate of
//! the middle 80 % leaves out its start and its end.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use mortise_tests::harness::{Component, ControlPlane, Mortise, MortiseOptions, wait_until};
use serde::Serialize;
use serde_json::{Value, json};

use super::binds::Binds;
use super::pass_through::PassThrough;
use super::seen::{self, Counts, Watching};
use super::{CompareArgs, Way};
use crate::end_to_end::process::cpu_seconds;
use crate::report::progress;

/// For everything that the whole cluster takes part in.
const LONG: Duration = Duration::from_mins(10);
/// Objects that are created at the same time.
const WRITERS: usize = 16;

/// Figures of one run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) way: Way,
    pub(crate) round: u32,
    pub(crate) nodes: u32,
    pub(crate) pods: u32,
    /// Pods a second from the first bind to the last.
    pub(crate) all_per_s: f64,
    /// Pods a second from the bind of the tenth per cent to that of the ninetieth.
    pub(crate) middle_per_s: f64,
    /// Processor seconds of kube-scheduler from its start to the last bind.
    pub(crate) scheduler_cpu_s: f64,
    /// Processor seconds of mortise in that time.
    pub(crate) mortise_cpu_s: f64,
    /// Calls of the extender.
    pub(crate) calls: f64,
    /// Mean time from the end of the request's headers to the beginning of the answer, as mortise measures it (the
    /// pass-through extender: from the first byte), in milliseconds; 0 without calls.
    pub(crate) call_ms: f64,
}

/// Runs every configuration the requested number of times with these nodes; returns the version of Kubernetes with the
/// figures.
pub(crate) async fn measure(
    pass_through: &PassThrough,
    nodes: u32,
    args: &CompareArgs,
) -> Result<(String, Vec<Row>)> {
    let CompareArgs {
        pods, runs, ways, ..
    } = args;
    progress(&format!("a control plane with {nodes} nodes"));
    let crds = Mortise::output(&["manifests", "crds", "--provider", "kwok"]).await?;
    let mut binds = Binds::new()?;
    let builder = ControlPlane::builder()
        .full()
        .without(Component::Scheduler)
        .manifests(&crds);
    let flags = binds.flags();
    let builder = flags.iter().fold(builder, |builder, flag| {
        builder.flag(Component::ApiServer, flag)
    });
    let mut plane = Box::pin(builder.start()).await?;
    let version = plane.client().apiserver_version().await?.git_version;
    let mut mortise = Mortise::start(&plane, MortiseOptions::default()).await?;
    mortise.wait_ready().await?;
    make_nodes(&plane, &mortise, nodes).await?;
    let mut watching = seen::follow(plane.client());
    let mut rows = Vec::new();
    // What is played first finds everything cold: it is played once more, before anything is counted.
    let first = Way::turns(ways, 0).first().map(|way| (*way, None));
    let turns = (0..*runs).flat_map(|round| {
        let ways = Way::turns(ways, round).into_iter();
        ways.map(move |way| (way, Some(round)))
    });
    for (run, (way, round)) in first.into_iter().chain(turns).enumerate() {
        let told = round.map_or_else(
            || "to warm up".to_owned(),
            |round| format!("round {}", round + 1),
        );
        progress(&format!("{nodes} nodes, {}, {told}", way.label()));
        // Names are never used again: kwok deletes what it knows by name, and may be late.
        let played = one(
            &mut plane,
            &mortise,
            pass_through,
            (&mut watching, &mut binds),
            (way, run, *pods),
        );
        let row = Box::pin(played).await?;
        if let Some(round) = round {
            rows.push(Row {
                round,
                nodes,
                ..row
            });
        }
    }
    drop(watching);
    mortise.kill9().await;
    plane.stop().await;
    Ok((version, rows))
}

async fn one(
    plane: &mut ControlPlane,
    mortise: &Mortise,
    pass_through: &PassThrough,
    (watching, binds): (&mut Watching, &mut Binds),
    (way, run, pods): (Way, usize, u32),
) -> Result<Row> {
    let count = pods as usize;
    make_pods(plane, run, pods).await?;
    reach(watching, |counts| counts.there == count).await?;
    wait_until("mortise to know all pods", LONG, || async {
        let snapshot = mortise.debug("snapshot").await?;
        let known = &snapshot["counts"]["pods"];
        ensure!(*known == json!(count), "it knows {known} of {count}");
        Ok(())
    })
    .await?;
    let (calls, seconds) = calls(mortise, pass_through).await?;
    let mortise_cpu = cpu_seconds(mortise.pid())?;
    let options = way.options(mortise, Some(pass_through))?;
    plane.start_scheduler(&options).await?;
    reach(watching, |counts| counts.bound == count).await?;
    let scheduler = plane.pid(Component::Scheduler).context("no scheduler")?;
    let scheduler_cpu_s = cpu_seconds(scheduler)?;
    let mortise_cpu_s = cpu_seconds(mortise.pid())? - mortise_cpu;
    let (calls_after, seconds_after) = self::calls(mortise, pass_through).await?;
    plane.stop_component(Component::Scheduler).await?;

    let times = binds.next(count).await?;
    let rates = Rates::of(&times).context("too few pods for a rate")?;
    delete_pods(plane).await?;
    reach(watching, |counts| counts.there == 0).await?;
    watching.pods.forget_gone();
    let calls = calls_after - calls;
    let call_ms = if calls > 0.0 {
        (seconds_after - seconds) / calls * 1e3
    } else {
        0.0
    };
    Ok(Row {
        way,
        round: 0,
        nodes: 0,
        pods,
        all_per_s: rates.all,
        middle_per_s: rates.middle,
        scheduler_cpu_s,
        mortise_cpu_s,
        calls,
        call_ms,
    })
}

struct Rates {
    all: f64,
    middle: f64,
}

impl Rates {
    /// Of sorted times; `None` of less than ten.
    fn of(times: &[Timestamp]) -> Option<Self> {
        let count = times.len();
        if count < 10 {
            return None;
        }
        let between = |from: usize, to: usize| {
            let (from_at, to_at) = (times.get(from)?, times.get(to)?);
            #[expect(clippy::cast_precision_loss, reason = "a count of pods")]
            let pods = (to - from) as f64;
            let took = to_at.duration_since(*from_at).as_secs_f64();
            // All within the resolution of the clock is not a rate.
            (took > 0.0).then(|| pods / took)
        };
        Some(Self {
            all: between(0, count - 1)?,
            middle: between(count / 10, count * 9 / 10)?,
        })
    }
}

async fn reach(watching: &mut Watching, wanted: impl Fn(&Counts) -> bool) -> Result<()> {
    let told = watching.counts.clone();
    match tokio::time::timeout(LONG, watching.counts.wait_for(wanted)).await {
        Ok(counts) => {
            counts.context("the watch of pods has ended")?;
            Ok(())
        }
        Err(_) => anyhow::bail!("after {LONG:?} there are {:?}", *told.borrow()),
    }
}

/// Calls of either extender so far, and the seconds that they took. In one run only one of them is asked.
async fn calls(mortise: &Mortise, pass_through: &PassThrough) -> Result<(f64, f64)> {
    const TIMES: &str = "mortise_http_request_duration_seconds";
    let (mut count, mut seconds) = pass_through.calls();
    for verb in ["filter", "prioritize", "preempt"] {
        let label = format!("path=\"/extender/v1/{verb}\"");
        count += mortise.metric(&format!("{TIMES}_count"), &[&label]).await?;
        seconds += mortise.metric(&format!("{TIMES}_sum"), &[&label]).await?;
    }
    Ok((count, seconds))
}

async fn make_nodes(plane: &ControlPlane, mortise: &Mortise, count: u32) -> Result<()> {
    let nodes: Api<Node> = Api::all(plane.client());
    stream::iter(0..count)
        .map(Ok)
        .try_for_each_concurrent(WRITERS, |number| {
            let nodes = &nodes;
            async move {
                let node = serde_json::from_value(node(number))?;
                nodes.create(&PostParams::default(), &node).await?;
                anyhow::Ok(())
            }
        })
        .await?;
    wait_until("all nodes to be Ready", LONG, || async {
        let all = nodes.list(&ListParams::default()).await?.items;
        let ready = all.iter().filter(|node| is_ready(node)).count();
        ensure!(ready == count as usize, "{ready} of {count}");
        let known = mortise.debug("snapshot").await?["counts"]["nodes"].clone();
        ensure!(known == json!(count), "mortise knows {known} of {count}");
        Ok(())
    })
    .await
}

fn is_ready(node: &Node) -> bool {
    let status = node.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_deref());
    let tainted = node.spec.as_ref().and_then(|spec| spec.taints.as_deref());
    tainted.is_none_or(<[_]>::is_empty)
        && conditions
            .unwrap_or_default()
            .iter()
            .any(|each| each.type_ == "Ready" && each.status == "True")
}

fn node(number: u32) -> Value {
    let name = format!("plain-{number}");
    let zone = format!("test-zone-{}", number % 3);
    let has =
        json!({ "cpu": "32", "memory": "128Gi", "pods": "110", "ephemeral-storage": "100Gi" });
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": name, "labels": {
            "kubernetes.io/hostname": name, "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux",
            "node.kubernetes.io/instance-type": "other-32x", "topology.kubernetes.io/zone": zone, "kwok-partition": "a",
        }, "annotations": { "kwok.x-k8s.io/node": "fake" } },
        "spec": { "providerID": format!("other://{number}") },
        "status": { "capacity": has, "allocatable": has },
    })
}

async fn make_pods(plane: &ControlPlane, run: usize, count: u32) -> Result<()> {
    let pods: Api<Pod> = Api::default_namespaced(plane.client());
    stream::iter(0..count)
        .map(Ok)
        .try_for_each_concurrent(WRITERS, |number| {
            let pods = &pods;
            async move {
                let pod = serde_json::from_value(pod(run, number))?;
                pods.create(&PostParams::default(), &pod).await?;
                anyhow::Ok(())
            }
        })
        .await
}

fn pod(run: usize, number: u32) -> Value {
    let name = format!("wait-{run}-{number}");
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "labels": { "app.kubernetes.io/name": "bench" } },
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "main", "image": "registry.test/main:1.0",
                "env": [{ "name": "LOG_LEVEL", "value": "info" }],
                "resources": { "requests": { "cpu": "100m", "memory": "128Mi" } },
            }],
        },
    })
}

async fn delete_pods(plane: &ControlPlane) -> Result<()> {
    let pods: Api<Pod> = Api::default_namespaced(plane.client());
    let now = DeleteParams::default().grace_period(0);
    let names = pods.list_metadata(&ListParams::default()).await?.items;
    stream::iter(names.into_iter().filter_map(|pod| pod.metadata.name))
        .map(Ok)
        .try_for_each_concurrent(WRITERS, |name| {
            let (pods, now) = (&pods, &now);
            async move {
                match pods.delete(&name, now).await {
                    Ok(_) => Ok(()),
                    Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
                    Err(error) => Err(anyhow::Error::from(error)),
                }
            }
        })
        .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_leaves_a_slow_start_out() {
        let begun = Timestamp::UNIX_EPOCH;
        // The first tenth takes ten seconds, the rest comes a hundred a second.
        let times: Vec<Timestamp> = (0..1_000_u64)
            .map(|at| {
                begun
                    + Duration::from_millis(if at < 100 {
                        at * 100
                    } else {
                        10_000 + (at - 100) * 10
                    })
            })
            .collect();
        let rates = Rates::of(&times).unwrap();
        assert!((rates.middle - 100.0).abs() < 0.1, "{}", rates.middle);
        assert!(rates.all < 60.0, "{}", rates.all);
        assert!(Rates::of(&[begun]).is_none());
    }
}
