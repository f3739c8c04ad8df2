//! Pods that are denied their only node, on a cluster in which nothing else happens.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use mortise_apis::NodeClaim;
use mortise_apis::labels::FENCE;
use mortise_tests::harness::{Mortise, wait_until};
use serde::Serialize;
use serde_json::{Value, json};

use crate::end_to_end::cluster::stage;
use crate::report::progress;

const LONG: Duration = Duration::from_mins(5);
const WRITERS: usize = 16;
/// How long the calls are counted, twice.
const HALF: Duration = Duration::from_secs(30);

/// How often held pods are tried again.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Held {
    pub(crate) pods: u32,
    pub(crate) seconds: u64,
    pub(crate) first_per_s: f64,
    pub(crate) second_per_s: f64,
}

/// Denies this number of pods for a minute.
pub(crate) async fn measure(count: u32) -> Result<Held> {
    progress(&format!("{count} pods that are denied"));
    let (plane, mut mortise, _) = Box::pin(stage(&objects())).await?;
    let pods: Api<Pod> = Api::default_namespaced(plane.client());
    let first = serde_json::from_value(pod("first"))?;
    pods.create(&PostParams::default(), &first).await?;
    let claims: Api<NodeClaim> = Api::all(plane.client());
    let claim = wait_until("a node", LONG, || async {
        let pod = pods.get("first").await?;
        ensure!(
            pod.spec.is_some_and(|spec| spec.node_name.is_some()),
            "it is on its way"
        );
        let claims = claims.list(&ListParams::default()).await?;
        claims.items.into_iter().next().context("a claim")
    })
    .await?;
    let fence = json!({ "metadata": { "annotations": { FENCE: "interruption" } } });
    claims
        .patch(&claim.name(), &PatchParams::default(), &Patch::Merge(fence))
        .await?;
    wait_until("the fence", LONG, || async {
        let nominations = mortise.debug("nominations").await?;
        let fences = nominations["fences"].as_array().map_or(0, Vec::len);
        ensure!(fences == 1, "{nominations}");
        Ok(())
    })
    .await?;
    stream::iter(0..count)
        .map(Ok)
        .try_for_each_concurrent(WRITERS, |number| {
            let pods = &pods;
            async move {
                let pod = serde_json::from_value(pod(&format!("held-{number}")))?;
                pods.create(&PostParams::default(), &pod).await?;
                anyhow::Ok(())
            }
        })
        .await?;
    wait_until("all pods to be denied", LONG, || async {
        let told = mortise.debug("extender?limit=1").await?;
        let held = &told["denied_pods"];
        ensure!(*held == json!(count), "{held} of {count}");
        Ok(())
    })
    .await?;
    let first_per_s = rate(&mortise).await?;
    let second_per_s = rate(&mortise).await?;
    mortise.kill9().await;
    plane.stop().await;
    Ok(Held {
        pods: count,
        seconds: HALF.as_secs() * 2,
        first_per_s,
        second_per_s,
    })
}

/// filter calls a second from now on.
async fn rate(mortise: &Mortise) -> Result<f64> {
    let calls = async || {
        mortise
            .metric("mortise_webhook_calls_total", &["call=\"filter\""])
            .await
    };
    let before = calls().await?;
    tokio::time::sleep(HALF).await;
    Ok((calls().await? - before) / HALF.as_secs_f64())
}

/// A NodePool with one node.
fn objects() -> String {
    let class = json!({ "apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": { "name": "default" } });
    let pool = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": { "name": "default" },
        "spec": {
            "limits": { "nodes": "1" },
            "template": { "spec": {
                "nodeClassRef": { "group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default" },
                "requirements": [
                    { "key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["c-64x-amd64-linux"] },
                    { "key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"] },
                ],
                "expireAfter": "Never",
            } },
            "disruption": { "consolidateAfter": "Never" },
        },
    });
    format!("{class}\n---\n{pool}")
}

fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name },
        "spec": { "containers": [{ "name": "main", "image": "registry.test/main:1.0", "resources": { "requests": { "cpu": "10m", "memory": "8Mi" } } }] },
    })
}
