//! What drifts an EC2 node: each change of its class or of the account, and the replacement that follows.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams};
use mortise_aws_class::spec::Ec2NodeClass;
use mortise_tests::harness::wait_until;
use serde_json::{Value, json};

use crate::aws_account::Account;
use crate::objects::deployment;
use crate::scene::{SOON, Scene};

/// The node that runs the pod, by name.
async fn only_node(scene: &Scene) -> Result<String> {
    let nodes = scene.nodes().await?;
    let names: Vec<&String> = nodes
        .iter()
        .filter(|(_, node): &(&String, &Node)| node.metadata.deletion_timestamp.is_none())
        .map(|(name, _)| name)
        .collect();
    ensure!(names.len() == 1, "{names:?}");
    Ok(names.first().context("one")?.to_string())
}

/// Each of these changes replaces the node: tags and user data by the hash of the class, subnets, groups and images by what the
/// instance has.
#[tokio::test]
async fn every_change_of_a_class_replaces_its_nodes() -> Result<()> {
    let account = Account::open().await?;
    let (scene, factory) = account.scene(&[]).await?;
    scene
        .apply(&[deployment("web", 1, ("700m", "1Gi"), json!({}))])
        .await?;
    scene.running("web", 1).await?;
    scene.settled(1).await?;
    let image = account.fixtures.images.get("amd64").context("an image")?;
    let zone_of_node = {
        let nodes = scene.nodes().await?;
        let node = nodes.values().next().context("a node")?;
        let labels = node.metadata.labels.clone().unwrap_or_default();
        labels
            .get("topology.kubernetes.io/zone")
            .cloned()
            .context("a zone")?
    };
    let other_subnets: Vec<Value> = account
        .fixtures
        .subnets
        .iter()
        .filter(|(zone, _)| **zone != zone_of_node)
        .map(|(_, subnet)| json!({ "id": subnet }))
        .collect();
    let changes = [
        (
            "tags",
            "NodeClassDrift",
            json!({ "tags": { "story": "retold" } }),
        ),
        (
            "user data",
            "NodeClassDrift",
            json!({ "userData": "#!/bin/sh\ntrue\n" }),
        ),
        (
            "subnets",
            "SubnetDrift",
            json!({ "subnetSelectorTerms": other_subnets }),
        ),
    ];
    ensure!(!image.is_empty());
    for (what, reason, spec) in changes {
        let before = only_node(&scene).await?;
        let classes: Api<Ec2NodeClass> = Api::all(scene.plane.client());
        let patch = Patch::Merge(json!({ "spec": spec }));
        classes
            .patch("default", &PatchParams::default(), &patch)
            .await
            .with_context(|| what.to_owned())?;
        wait_until(what, SOON * 2, || async {
            let now = only_node(&scene).await?;
            ensure!(now != before, "{before} is there");
            Ok(())
        })
        .await?;
        scene.running("web", 1).await?;
        scene.settled(1).await?;
        println!("{what}: {before} replaced ({reason})");
    }
    drop(factory);
    scene.end().await;
    account.end().await
}
