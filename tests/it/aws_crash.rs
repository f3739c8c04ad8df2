//! Killed on EC2 around each call that makes or ends something, executed or not, before its answer is there: nothing is made twice,
//! nothing is left.

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

/// What becomes of the call around which the process is killed.
type Fate = fn(&str) -> Fault;

/// Lets the process run until AWS has each of these calls, kills it before the answer is there, and starts another.
async fn dies_at(account: &Account, scene: &mut Scene, actions: &[&str], fate: Fate) -> Result<()> {
    let moto = &account.moto;
    for action in actions {
        wait_until(&format!("a call of {action}"), SOON, || async {
            ensure!(moto.held_calls().await? == 1, "none yet");
            Ok(())
        })
        .await?;
        scene.mortise.kill9().await;
        let next = actions.iter().skip_while(|each| *each != action).nth(1);
        let faults: Vec<Fault> = next.map(|next| fate(next)).into_iter().collect();
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

/// The first call of these will be held.
async fn will_hold(account: &Account, actions: &[&str], fate: Fate) -> Result<()> {
    let first = actions.first().context("an action")?;
    account.moto.set_faults(&[fate(first)]).await
}

#[tokio::test]
async fn killed_after_every_call_it_leaves_and_doubles_nothing() -> Result<()> {
    leaves_and_doubles_nothing(Fault::hold_after).await
}

#[tokio::test]
async fn killed_before_every_call_it_leaves_and_doubles_nothing() -> Result<()> {
    leaves_and_doubles_nothing(Fault::cut).await
}

/// A class and a node come and go, and the process is killed around every call that this takes.
async fn leaves_and_doubles_nothing(fate: Fate) -> Result<()> {
    let account = Account::open().await?;
    // Tags follow when a list has shown the instance.
    let flags = ["--garbage-collection-interval=3s"];
    let (mut scene, factory) = account.bare_scene(&[], &flags).await?;
    will_hold(&account, &MAKE, fate).await?;
    scene
        .apply(&[
            class(&account.fixtures),
            spot_pool(),
            deployment("web", 2, ("700m", "1Gi"), json!({})),
        ])
        .await?;
    dies_at(&account, &mut scene, &MAKE, fate).await?;
    scene.running("web", 2).await?;
    scene.settled(1).await?;
    wait_until("one instance with all its tags", SOON, || async {
        let launched = account.moto.launched_instances().await?;
        ensure!(launched.len() == 1, "{launched:?}");
        let name = launched[0].tags.get("Name");
        ensure!(name == Some(&launched[0].private_dns), "{launched:?}");
        Ok(())
    })
    .await?;
    let profiles = account.moto.instance_profiles().await?;
    ensure!(profiles.len() == 1, "{profiles:?}");

    will_hold(&account, &END_NODE, fate).await?;
    scene.scale("web", 0).await?;
    dies_at(&account, &mut scene, &END_NODE, fate).await?;
    scene.empty().await?;
    ensure!(account.moto.instances().await?.is_empty());

    will_hold(&account, &END_CLASS, fate).await?;
    let classes: Api<Ec2NodeClass> = Api::all(scene.plane.client());
    classes.delete("default", &DeleteParams::default()).await?;
    dies_at(&account, &mut scene, &END_CLASS, fate).await?;
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
