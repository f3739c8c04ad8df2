//! Killed on EC2 after each call that makes or ends something, before its answer is there: nothing is made twice, nothing is left.

use anyhow::{Context as _, Result, ensure};
use kube::api::{Api, DeleteParams};
use mortise_aws_class::spec::Ec2NodeClass;
use mortise_tests::harness::{Fault, wait_until};
use serde_json::json;

use crate::aws_account::{Account, class, spot_pool};
use crate::crash_matrix::forget_lease;
use crate::objects::deployment;
use crate::scene::{SOON, Scene};

/// Calls of a class that becomes ready and of a node that comes, in their order.
const MAKE: [&str; 5] = [
    "CreateInstanceProfile",
    "AddRoleToInstanceProfile",
    "CreateLaunchTemplate",
    "CreateFleet",
    "CreateTags",
];
/// The same of a node that goes.
const END_NODE: [&str; 1] = ["TerminateInstances"];
/// The same of a class that is deleted.
const END_CLASS: [&str; 3] = [
    "RemoveRoleFromInstanceProfile",
    "DeleteInstanceProfile",
    "DeleteLaunchTemplate",
];

/// Lets the process run until AWS has executed each of these calls, kills it before the answer is there, and starts another.
async fn dies_after(account: &Account, scene: &mut Scene, actions: &[&str]) -> Result<()> {
    let moto = &account.moto;
    for action in actions {
        wait_until(&format!("a call of {action}"), SOON, || async {
            ensure!(moto.held_calls().await? == 1, "none yet");
            Ok(())
        })
        .await?;
        scene.mortise.kill9().await;
        let next = actions.iter().skip_while(|each| *each != action).nth(1);
        let faults: Vec<Fault> = next
            .map(|next| Fault::hold_after(next))
            .into_iter()
            .collect();
        moto.set_faults(&faults).await?;
        lives(scene).await?;
    }
    Ok(())
}

async fn lives(scene: &mut Scene) -> Result<()> {
    forget_lease(scene).await?;
    scene.mortise.start_again(&[]).await?;
    scene.mortise.wait_ready().await
}

/// The first call of these will be held when it is executed.
async fn will_hold(account: &Account, actions: &[&str]) -> Result<()> {
    let first = actions.first().context("an action")?;
    account.moto.set_faults(&[Fault::hold_after(first)]).await
}

#[tokio::test]
async fn killed_after_every_call_it_leaves_and_doubles_nothing() -> Result<()> {
    let account = Account::open().await?;
    // Tags follow when a list has shown the instance.
    let flags = ["--garbage-collection-interval=3s"];
    let (mut scene, factory) = account.bare_scene(&[], &flags).await?;
    will_hold(&account, &MAKE).await?;
    scene
        .apply(&[
            class(&account.fixtures),
            spot_pool(),
            deployment("web", 2, ("700m", "1Gi"), json!({})),
        ])
        .await?;
    dies_after(&account, &mut scene, &MAKE).await?;
    scene.running("web", 2).await?;
    scene.settled(1).await?;
    let launched = account.moto.launched_instances().await?;
    ensure!(launched.len() == 1, "{launched:?}");
    let name = launched[0].tags.get("Name");
    ensure!(name == Some(&launched[0].private_dns), "{launched:?}");
    let profiles = account.moto.instance_profiles().await?;
    ensure!(profiles.len() == 1, "{profiles:?}");

    will_hold(&account, &END_NODE).await?;
    scene.scale("web", 0).await?;
    dies_after(&account, &mut scene, &END_NODE).await?;
    scene.empty().await?;
    ensure!(account.moto.instances().await?.is_empty());

    will_hold(&account, &END_CLASS).await?;
    let classes: Api<Ec2NodeClass> = Api::all(scene.plane.client());
    classes.delete("default", &DeleteParams::default()).await?;
    dies_after(&account, &mut scene, &END_CLASS).await?;
    wait_until("the class to be gone", SOON, || async {
        let left = classes.get_opt("default").await?;
        ensure!(left.is_none(), "its finalizer holds it");
        Ok(())
    })
    .await?;
    let profiles = account.moto.instance_profiles().await?;
    let templates = account.moto.launch_templates().await?;
    ensure!(
        profiles.is_empty() && templates.is_empty(),
        "{profiles:?} {templates:?}"
    );
    let launched = account.moto.launched_instances().await?;
    ensure!(launched.len() == 1, "{launched:?}");
    drop(factory);
    scene.end().await;
    account.end().await
}
