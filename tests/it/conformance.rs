//! The rules of the provider port, asked of every provider with an emulator of its cloud.

use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, DeleteParams};
use mortise_apis::names::{NodeClassKey, ProviderId};
use mortise_apis::node_class::{NodeClassKind, NodeClassObject};
use mortise_aws::{AwsConfig, AwsProvider};
use mortise_cloudprovider::BoxFuture;
use mortise_cloudprovider::conformance::{ConformanceFailure, TestCloud, conformance};
use mortise_kwok::KwokProvider;
use mortise_tests::harness::{ControlPlane, Moto};
use serde_json::{Value, json};

use crate::aws_account::Account;

/// Set for the process that asks the provider of EC2.
const OWN_PROCESS: &str = "MORTISE_TESTS_OWN_PROCESS";

/// A node class with a status, as the API server would hold it.
fn class_object(
    kind: &NodeClassKind,
    mut object: Value,
    status: Option<&Value>,
) -> NodeClassObject {
    object["metadata"]["uid"] = json!("00000000-0000-4000-8000-class");
    object["metadata"]["generation"] = json!(1);
    if let Some(status) = status {
        json_patch::merge(&mut object["status"], status);
    }
    let name = object["metadata"]["name"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    NodeClassObject::new(NodeClassKey::new(kind.group, kind.kind, name), object)
}

fn passes(failures: &[ConformanceFailure]) -> Result<()> {
    let lines: Vec<String> = failures.iter().map(ToString::to_string).collect();
    ensure!(
        lines.is_empty(),
        "rules that are broken:\n{}",
        lines.join("\n")
    );
    Ok(())
}

/// An API server whose Nodes are the instances.
struct KwokCloud {
    nodes: Api<Node>,
}

impl TestCloud for KwokCloud {
    fn node_class(&self, status: Option<&Value>) -> NodeClassObject {
        let object = json!({ "metadata": { "name": "default" }, "spec": {} });
        class_object(&mortise_kwok_class::object::KIND, object, status)
    }

    fn settle(&self) -> BoxFuture<'_, ()> {
        Box::pin(tokio::time::sleep(Duration::from_millis(50)))
    }

    fn end_instance<'a>(&'a self, instance: &'a ProviderId) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let name = instance.trim_start_matches("kwok://");
            let deleted = self.nodes.delete(name, &DeleteParams::default()).await;
            assert!(deleted.is_ok(), "{name}: {deleted:?}");
        })
    }
}

#[tokio::test]
async fn kwok_keeps_the_rules_of_providers() -> Result<()> {
    let plane = ControlPlane::builder().start().await?;
    let provider = KwokProvider::new(plane.client(), None)?;
    let cloud = KwokCloud {
        nodes: Api::all(plane.client()),
    };
    let failures = conformance(&provider, &cloud).await;
    plane.stop().await;
    passes(&failures)
}

/// An account of the emulator.
struct Ec2Cloud {
    account: Account,
}

impl TestCloud for Ec2Cloud {
    fn node_class(&self, status: Option<&Value>) -> NodeClassObject {
        let object = crate::aws_account::class(&self.account.fixtures);
        class_object(&mortise_aws_class::spec::KIND, object, status)
    }

    fn settle(&self) -> BoxFuture<'_, ()> {
        Box::pin(tokio::time::sleep(Duration::from_millis(250)))
    }

    fn end_instance<'a>(&'a self, instance: &'a ProviderId) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let id = instance.rsplit('/').next().unwrap_or_default();
            let ended = self.account.moto.terminate(id).await;
            assert!(ended.is_ok(), "{id}: {ended:?}");
        })
    }
}

/// The SDK reads credentials from the environment of its process, so the provider is asked in a process of its own.
async fn in_own_process(test: &'static str) -> Result<()> {
    let program = std::env::current_exe()?;
    let run = move || {
        let mut command = Command::new(program);
        let command = command.args(["--exact", test, "--nocapture"]);
        command
            .envs(Moto::CREDENTIALS)
            .env(OWN_PROCESS, "1")
            .output()
    };
    let output = tokio::task::spawn_blocking(run).await??;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(
        output.status.success() && text.contains("1 passed"),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

#[tokio::test]
async fn ec2_keeps_the_rules_of_providers() -> Result<()> {
    if std::env::var_os(OWN_PROCESS).is_none() {
        return in_own_process("conformance::ec2_keeps_the_rules_of_providers").await;
    }
    let account = Account::open().await?;
    // Launches follow the first resolution at once here, not when the class is ready.
    account.moto.set_profile_delay(0.0).await?;
    let provider = AwsProvider::connect(AwsConfig {
        cluster_name: account.fixtures.cluster.clone(),
        region: Some(Moto::REGION.to_owned()),
        endpoint_url: Some(account.moto.endpoint().to_owned()),
        interruption_queue: Some(account.fixtures.queue_name.clone()),
        ..AwsConfig::default()
    });
    let provider = provider.await?;
    let cloud = Ec2Cloud { account };
    passes(&conformance(&provider, &cloud).await)?;
    cloud.account.end().await
}
