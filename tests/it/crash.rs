//! Killed when it matters who goes on: on EC2, where a second launch would cost money, and with a second process that waits.

use std::io::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use mortise_tests::harness::{Mortise, MortiseOptions, Moto, wait_until};
use serde_json::json;

use crate::aws_account::Account;
use crate::crash_matrix::{ABORTED, FAILPOINT};
use crate::objects::{ON_DEMAND, deployment, kwok_class, pool, types};
use crate::scene::{SOON, Scene, account, leads};

/// On EC2 a second launch would cost money: the client token and the tags make it the same instance.
#[tokio::test]
async fn on_ec2_nothing_is_launched_twice() -> Result<()> {
    let account = Account::open().await?;
    let (mut scene, factory) = account.scene(&[(FAILPOINT, "after-launch")]).await?;
    scene
        .apply(&[deployment("web", 2, ("700m", "1Gi"), json!({}))])
        .await?;
    let code = scene.mortise.wait_end(SOON).await?;
    ensure!(code == ABORTED, "ended with {code}");
    let claims = scene.claims().await?;
    let named = claims
        .values()
        .filter(|claim| claim.status.provider_id.is_some());
    ensure!(
        claims.len() == 1 && named.count() == 0,
        "the instance must not be recorded yet: {claims:?}"
    );
    let launched = account.moto.instances().await?;
    ensure!(launched.len() == 1, "{launched:?}");

    scene.mortise.start_again(&[FAILPOINT]).await?;
    scene.mortise.wait_ready().await?;
    scene.running("web", 2).await?;
    let launched_nodes = scene.settled(1).await?;
    let instances = account.moto.instances().await?;
    ensure!(
        instances.len() == 1 && instances[0].id == launched[0].id,
        "{instances:?}"
    );
    let id = launched_nodes[0]
        .claim
        .status
        .provider_id
        .clone()
        .unwrap_or_default();
    ensure!(
        id == format!("aws:///{}/{}", launched[0].zone, launched[0].id),
        "{id} in {}",
        Moto::REGION
    );
    drop(factory);
    scene.end().await;
    account.end().await
}

/// A second process waits for the Lease, takes over when the first is killed, and hands over when it is asked to end.
#[tokio::test]
async fn a_second_process_takes_over() -> Result<()> {
    let mut scene = Scene::kwok().await?;
    let kubeconfig = format!("--kubeconfig={}", account(&scene.plane).await?.display());
    let options = MortiseOptions::with_flags(&["--batch-idle-duration=500ms", &kubeconfig]);
    let mut second = Mortise::start(&scene.plane, options).await?;
    second.wait_ready().await?;
    let requirements = [types(&["c-4x-amd64-linux"]), ON_DEMAND];
    scene
        .apply(&[kwok_class(), pool("default", &requirements, json!({}))])
        .await?;
    scene
        .apply(&[deployment("web", 3, ("1", "1Gi"), json!({}))])
        .await?;
    scene.running("web", 3).await?;
    scene.settled(1).await?;
    ensure!(
        leads(&second).await? != leads(&scene.mortise).await?,
        "one of both leads"
    );

    let first_leads = leads(&scene.mortise).await?;
    if first_leads {
        scene.mortise.kill9().await;
        wait_until("the second to lead", Duration::from_mins(1), || async {
            ensure!(leads(&second).await?, "not yet");
            Ok(())
        })
        .await?;
        scene.scale("web", 6).await?;
        scene.running("web", 6).await?;
        scene.settled(2).await?;
    }
    ensure!(first_leads, "the first one was there first");

    // Asked to end, the second gives the Lease back: the first does not wait for its end, as it would for a dead one's.
    scene.mortise.start_again(&[]).await?;
    scene.mortise.wait_ready().await?;
    ensure!(!leads(&scene.mortise).await?, "two lead");
    let asked = Instant::now();
    let code = second.terminate().await;
    ensure!(code == 0, "SIGTERM ends it in order, not with {code}");
    wait_until("the first to lead again", SOON, || async {
        ensure!(leads(&scene.mortise).await?, "not yet");
        Ok(())
    })
    .await?;
    let took = asked.elapsed();
    // The target is 2 s, on an idle test host; a Lease expires after 15 s.
    ensure!(took < Duration::from_secs(10), "handed over after {took:?}");
    writeln!(std::io::stderr(), "handed over after {took:?}")?;
    scene.end().await;
    Ok(())
}
