//! What drifts an EC2 node: each change of its class, and the replacement that follows and has what the class now says.

use anyhow::{Context as _, Result, ensure};
use kube::api::{Api, Patch, PatchParams};
use mortise_aws_class::spec::Ec2NodeClass;
use mortise_tests::harness::{Fixtures, Instance, wait_until};
use serde_json::{Value, json};

use crate::aws_account::Account;
use crate::objects::deployment;
use crate::scene::{LaunchedNode, SOON, Scene};

/// A change of a class's spec.
struct Change {
    what: &'static str,
    /// Why mortise says that nodes drift.
    reason: &'static str,
    spec: Value,
    /// Whether an instance is as the class says after the change.
    is_new: Box<dyn Fn(&Instance) -> bool>,
}

/// Tags and user data drift by the hash of the class; images, groups and subnets by what the instance has.
fn changes(fixtures: &Fixtures, zone: &str) -> Result<Vec<Change>> {
    let next = fixtures.images.get("next").context("an image")?.clone();
    let group = fixtures.spare_security_group.clone();
    let elsewhere: Vec<String> = fixtures
        .subnets
        .iter()
        .filter(|(other, _)| *other != zone)
        .map(|(_, subnet)| subnet.clone())
        .collect();
    let terms: Vec<Value> = elsewhere.iter().map(|id| json!({ "id": id })).collect();
    Ok(vec![
        Change {
            what: "tags",
            reason: "NodeClassDrift",
            spec: json!({ "tags": { "story": "retold" } }),
            is_new: Box::new(|instance| {
                instance
                    .tags
                    .get("story")
                    .is_some_and(|tag| tag == "retold")
            }),
        },
        Change {
            what: "user data",
            reason: "NodeClassDrift",
            spec: json!({ "userData": "#!/bin/sh\ntrue\n" }),
            is_new: Box::new(|instance| instance.plain_user_data().contains("#!/bin/sh\ntrue\n")),
        },
        Change {
            what: "image",
            reason: "AMIDrift",
            // The family stays the same, so that the hash of the class does.
            spec: json!({ "amiFamily": "AL2023", "amiSelectorTerms": [{ "id": next }] }),
            is_new: Box::new(move |instance| instance.image == next),
        },
        Change {
            what: "security groups",
            reason: "SecurityGroupDrift",
            spec: json!({ "securityGroupSelectorTerms": [{ "id": group }] }),
            is_new: Box::new(move |instance| instance.security_groups == [group.clone()]),
        },
        Change {
            what: "subnets",
            reason: "SubnetDrift",
            spec: json!({ "subnetSelectorTerms": terms }),
            is_new: Box::new(move |instance| elsewhere.contains(&instance.subnet)),
        },
    ])
}

/// The one node, when another than this one has taken its place.
async fn replaced(scene: &Scene, before: &LaunchedNode, what: &str) -> Result<LaunchedNode> {
    wait_until(what, SOON * 2, || async {
        let claims = scene.claims().await?;
        let classes: Api<Ec2NodeClass> = Api::all(scene.plane.client());
        ensure!(
            !claims.contains_key(&*before.claim.name()),
            "{} is there; the class: {:?}",
            before.claim.name(),
            classes.get("default").await?.status.conditions
        );
        Ok(())
    })
    .await?;
    scene.running("web", 1).await?;
    only_node(scene).await
}

async fn only_node(scene: &Scene) -> Result<LaunchedNode> {
    let nodes = scene.settled(1).await?;
    nodes.into_iter().next().context("one")
}

#[tokio::test]
async fn every_change_of_a_class_replaces_its_nodes() -> Result<()> {
    let account = Account::open().await?;
    let (scene, factory) = account.scene(&[]).await?;
    scene
        .apply(&[deployment("web", 1, ("700m", "1Gi"), json!({}))])
        .await?;
    scene.running("web", 1).await?;
    let mut node = only_node(&scene).await?;
    let zone = node.label("topology.kubernetes.io/zone").to_owned();
    let classes: Api<Ec2NodeClass> = Api::all(scene.plane.client());
    for change in changes(&account.fixtures, &zone)? {
        let patch = Patch::Merge(json!({ "spec": change.spec }));
        classes
            .patch("default", &PatchParams::default(), &patch)
            .await
            .with_context(|| change.what.to_owned())?;
        // The claim is gone soon after: its condition would be seen by chance, the event stays.
        scene
            .event("Drifted", &node.claim.name(), change.reason)
            .await?;
        node = replaced(&scene, &node, change.what).await?;
        let instance = account.instance_of(&node).await?;
        ensure!((change.is_new)(&instance), "{}: {instance:?}", change.what);
    }
    drop(factory);
    scene.end().await;
    account.end().await
}
