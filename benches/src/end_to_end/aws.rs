//! Memory with the AWS provider: catalogue of EC2 and its prices in memory, an emulated account behind it.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use kube::api::Api;
use mortise_apis::schema::conditions::ConditionStatus;
use mortise_aws_class::spec::Ec2NodeClass;
use mortise_tests::harness::{ControlPlane, Mortise, MortiseOptions, Moto, wait_until};
use serde_json::json;

use super::process::Memory;
use crate::report::progress;

/// Memory is measured this long after the start.
const SETTLED: Duration = Duration::from_secs(30);
/// The class is resolved by many calls to the emulator.
const SOON: Duration = Duration::from_mins(5);
const CLUSTER: &str = "bench";

/// Memory of mortise with the AWS provider in a cluster without nodes, half a minute after its start and with the class
/// resolved: the account's instance types are known.
pub(crate) async fn memory_of_empty() -> Result<Memory> {
    progress("mortise with the AWS provider, on an emulated account");
    let moto = Moto::start().await?;
    let fixtures = moto.fixtures(CLUSTER).await?;
    let crds = Mortise::output(&["manifests", "crds", "--provider", "aws"]).await?;
    let plane = Box::pin(ControlPlane::builder().manifests(&crds).start()).await?;
    let flags = [
        "--provider=aws".to_owned(),
        format!("--cluster-name={CLUSTER}"),
        format!("--aws-region={}", Moto::REGION),
        format!("--aws-endpoint-url={}", moto.endpoint()),
        format!("--interruption-queue={}", fixtures.queue_name),
    ];
    let options = MortiseOptions {
        flags: flags.to_vec(),
        env: moto.env(),
        ..MortiseOptions::default()
    };
    let start = Instant::now();
    let mut mortise = Mortise::start(&plane, options).await?;
    mortise.wait_ready().await?;

    let discovery = json!([{ "tags": { "karpenter.sh/discovery": fixtures.cluster } }]);
    let class = json!({
        "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": { "name": "default" },
        "spec": {
            "amiSelectorTerms": [{ "alias": "al2023@latest" }], "role": fixtures.role,
            "subnetSelectorTerms": discovery, "securityGroupSelectorTerms": discovery,
        },
    });
    let pool = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": { "name": "default" },
        "spec": { "template": { "spec": {
            "nodeClassRef": { "group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default" },
            "requirements": [{ "key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot", "on-demand"] }],
        } } },
    });
    plane.apply_yaml(&format!("{class}\n---\n{pool}")).await?;
    let classes: Api<Ec2NodeClass> = Api::all(plane.client());
    wait_until("the node class to be ready", SOON, || async {
        let status = classes.get("default").await?.status;
        let ready = status.conditions.iter().any(|condition| {
            condition.type_ == "Ready" && condition.status == ConditionStatus::True
        });
        ensure!(ready, "{:?}", status.conditions);
        Ok(())
    })
    .await?;
    tokio::time::sleep_until((start + SETTLED).into()).await;
    let types = mortise.debug("snapshot").await?["catalogs"].clone();
    let count = types
        .as_array()
        .and_then(|all| all.first()?["types"].as_u64())
        .with_context(|| format!("no catalogue: {types}"))?;
    let memory = Memory::of(mortise.pid(), format!("empty, AWS, {count} types"))?;
    mortise.kill9().await;
    plane.stop().await;
    moto.stop().await;
    Ok(memory)
}
