//! `drains`: nodes are disrupted by the hundred while pods are created and deleted, and no pod is bound to a draining node.
//!
//! The template of the pool changes, so all nodes drift and are replaced; when they are, it changes again. kube-scheduler
//! asks the extender, and short-lived pods look for room all the time.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Api, Patch, PatchParams};
use mortise_apis::NodePool;
use mortise_tests::harness::{Component, ControlPlane, Mortise, MortiseOptions, wait_until};
use serde::Serialize;
use serde_json::json;

use super::Way;
use super::provisioning::{self, Claims, SeenClaim, act, deployment};
use super::script::Script;
use super::seen::{self, SeenPod};
use crate::output::Output;
use crate::report::{self, Benchmark, Results, progress};

/// A wave of replacements that takes longer is stuck.
const WAVE: Duration = Duration::from_mins(5);
/// The pods that keep the nodes, each on one of its own.
const SERVICE: u64 = 1;
/// More than half of the only instance type of the NodePool.
const SERVICE_CPU: u64 = 9_000;
/// Short-lived pods come in scripts of this length, one after the other.
const SCRIPT_SECONDS: u32 = 3_600;

/// Options of `drains`.
#[derive(Debug, clap::Args, Serialize)]
pub(crate) struct DrainsArgs {
    /// Nodes, all of which are replaced at once.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=500))]
    nodes: u32,
    /// Total number of nodes to disrupt; the last wave is completed.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    disruptions: u32,
    /// Short-lived pods a second.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=100))]
    rate: u32,
    /// Fixes what comes and goes when.
    #[arg(long, default_value_t = 42)]
    #[serde(skip)]
    seed: u64,
    #[command(flatten)]
    #[serde(skip)]
    output: Output,
}

/// What became of all of them.
#[derive(Debug, Serialize)]
pub(crate) struct DrainsResults {
    kubernetes: String,
    nodes: u32,
    /// Nodes that were drained.
    drained: usize,
    /// Pods that were bound to a node after its drain had begun, DaemonSet pods excluded. Target: none.
    bound_in_drain: usize,
    /// Pods that were bound in all, those of DaemonSets not counted.
    bound: usize,
    /// Pods that the Eviction API took.
    evictions: usize,
    seconds: f64,
    /// Counts of the extender.
    counts: BTreeMap<String, u64>,
}

impl Benchmark for DrainsArgs {
    const NAME: &'static str = "drains";
    const SOURCES: &'static [&'static str] = report::PROGRAM;
    type Results = DrainsResults;

    fn output(&self) -> &Output {
        &self.output
    }

    fn seed(&self) -> Option<u64> {
        Some(self.seed)
    }

    fn is_complete(&self) -> bool {
        (self.nodes, self.disruptions, self.rate) == (50, 1_000, 30)
    }

    fn measure(&self) -> Result<DrainsResults> {
        report::block_on(measure(self))
    }
}

impl Results for DrainsResults {
    fn write_table(&self, out: &mut dyn Write) -> Result<()> {
        let Self {
            kubernetes,
            nodes,
            drained,
            bound_in_drain,
            bound,
            evictions,
            seconds,
            counts: _,
        } = self;
        writeln!(
            out,
            "control plane, mortise and this client share the test host; Kubernetes {kubernetes}"
        )?;
        writeln!(
            out,
            "{drained} nodes drained in {seconds:.0} s, {nodes} at a time; {bound} pods bound meanwhile, {evictions} evicted; {bound_in_drain} bound to a node that was being drained (wanted: 0)"
        )?;
        Ok(())
    }
}

async fn measure(args: &DrainsArgs) -> Result<DrainsResults> {
    let crds = Mortise::output(&["manifests", "crds", "--provider", "kwok"]).await?;
    let builder = ControlPlane::builder()
        .full()
        .without(Component::Scheduler)
        .manifests(&crds)
        .manifests(&provisioning::objects(
            &["c-16x-amd64-linux"],
            "Never",
            "100%",
        ));
    let mut plane = Box::pin(builder.start()).await?;
    let kubernetes = plane.client().apiserver_version().await?.git_version;
    let mut mortise = Mortise::start(&plane, MortiseOptions::default()).await?;
    mortise.wait_ready().await?;
    plane
        .start_scheduler(&Way::With.options(&mortise, None)?)
        .await?;
    let pods = seen::follow(plane.client());
    let claims = provisioning::follow_claims(plane.client());
    let made =
        serde_json::from_value::<Deployment>(deployment(SERVICE, args.nodes.into(), SERVICE_CPU))?;
    let deployments: Api<Deployment> = Api::default_namespaced(plane.client());
    deployments
        .create(&kube::api::PostParams::default(), &made)
        .await?;
    let script = Script::steady(SCRIPT_SECONDS, args.rate, args.seed);
    let begun = Instant::now();
    {
        let coming = act(&plane, &script);
        let waves = waves(&plane, &claims, args);
        tokio::pin!(coming, waves);
        tokio::select! {
            ended = &mut waves => ended?,
            ended = &mut coming => {
                ended?;
                anyhow::bail!("{SCRIPT_SECONDS} s were not enough for {} disruptions", args.disruptions);
            }
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    let told = mortise.debug("extender?limit=1").await?;
    let (all, claims) = (pods.pods.all(), claims.all());
    let workload = || all.values().filter(|pod| !pod.is_daemon());
    let (drained, bound_in_drain) = provisioning::drained(&all, &claims);
    mortise.kill9().await;
    plane.stop().await;
    Ok(DrainsResults {
        kubernetes,
        nodes: args.nodes,
        drained,
        bound_in_drain,
        bound: workload().filter(|pod| pod.bound.is_some()).count(),
        evictions: workload().filter(|pod: &&SeenPod| pod.evicted).count(),
        seconds,
        counts: provisioning::numbers(&told["counts"]),
    })
}

/// Replaces all nodes until enough were replaced.
async fn waves(plane: &ControlPlane, claims: &Claims, args: &DrainsArgs) -> Result<()> {
    let pools: Api<NodePool> = Api::all(plane.client());
    let nodes = args.nodes as usize;
    for wave in 0_u32.. {
        let name = format!("wave {wave}");
        wait_until(&name, WAVE, || async {
            let all = claims.all();
            let there = all.values().filter(|claim| !claim.gone);
            let ready = there
                .clone()
                .filter(|claim| !claim.is_going() && !claim.is_coming());
            let (there, ready) = (there.count(), ready.count());
            ensure!(
                there == ready && ready >= nodes,
                "{ready} nodes of {there} are ready and not to go"
            );
            Ok(())
        })
        .await?;
        let gone = claims.all().values().filter(|claim| claim.gone).count();
        progress(&format!("{gone} nodes were replaced"));
        if gone >= args.disruptions as usize {
            return Ok(());
        }
        let template =
            json!({ "metadata": { "labels": { "bench.mortise.sh/wave": format!("w{wave}") } } });
        let patch = json!({ "spec": { "template": template } });
        pools
            .patch("default", &PatchParams::default(), &Patch::Merge(patch))
            .await?;
        // The claims must be seen to go before they are waited for.
        wait_until(&format!("{name} to begin"), WAVE, || async {
            let all = claims.all();
            let going = all
                .values()
                .filter(|claim| SeenClaim::is_going(claim))
                .count();
            ensure!(going > 0, "no node goes");
            Ok(())
        })
        .await?;
    }
    Ok(())
}
