//! kube-scheduler calls mortise: nominated capacity stays free, fenced nodes get no pods, and scheduling continues without
//! mortise.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams};
use mortise_tests::harness::{
    Component, Mortise, MortiseOptions, SchedulerOptions, Signal, wait_until,
};
use serde_json::{Value, json};

use crate::objects::{AMD64, LINUX, ON_DEMAND, kwok_class, pod, pool, types};
use crate::scene::{SOON, Scene, Setting, account, leads, on_node, runs};

async fn scene(flags: &[&str]) -> Result<Scene> {
    let setting = Setting {
        extender: true,
        flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
        ..Setting::default()
    };
    Scene::start(setting).await
}

async fn calls(scene: &Scene, call: &str) -> Result<f64> {
    let label = format!("call=\"{call}\"");
    scene
        .mortise
        .metric("mortise_webhook_calls_total", &[&label])
        .await
}

/// Waits until a pod runs, and says where.
async fn place(scene: &Scene, name: &str) -> Result<String> {
    let pods: Api<Pod> = Api::default_namespaced(scene.plane.client());
    wait_until(&format!("pod {name} to run"), SOON, || async {
        let pod = pods.get(name).await?;
        ensure!(
            runs(&pod),
            "{:?}",
            pod.status.and_then(|status| status.conditions)
        );
        Ok(on_node(&pod).context("a node")?.to_owned())
    })
    .await
}

/// Pods of a scheduler that is started after the other.
const LATER: &str = "later";

/// No scheduler runs while nodes are launched for two pods. The pod whose scheduler starts first, and which would also fit on
/// the bigger node, may not use the capacity that the other is nominated to.
#[tokio::test]
async fn nominated_capacity_stays_free() -> Result<()> {
    let mut scene = scene(&[]).await?;
    scene
        .apply(&[
            kwok_class(),
            pool("default", &[AMD64, LINUX, ON_DEMAND], json!({})),
        ])
        .await?;
    scene.plane.stop_component(Component::Scheduler).await?;
    // 12 CPUs need the type with 16; what is left there fits only the small pod.
    scene
        .apply(&[pod(
            "big",
            "big",
            ("15500m", "1Gi"),
            json!({ "schedulerName": LATER }),
        )])
        .await?;
    let of_big = scene.settled(1).await?;
    scene
        .apply(&[pod("small", "small", ("1", "1Gi"), json!({}))])
        .await?;
    let launched_nodes = scene.settled(2).await?;
    let big = of_big
        .first()
        .context("the first node")?
        .node_name()
        .to_owned();
    let small = launched_nodes
        .iter()
        .map(|launched_node| launched_node.node_name().to_owned())
        .find(|name| *name != big)
        .context("the second node")?;
    let filtered = calls(&scene, "filter").await?;
    let denied = calls(&scene, "denied_nominated").await?;

    let mut scheduler = SchedulerOptions::with_extender(scene.mortise.extender()?);
    scene.plane.start_scheduler(&scheduler).await?;
    let place_of_small = place(&scene, "small").await?;
    ensure!(
        place_of_small == small,
        "{place_of_small}, where its node is {small}"
    );
    ensure!(
        calls(&scene, "denied_nominated").await? > denied,
        "the small pod was kept off the big node"
    );
    LATER.clone_into(&mut scheduler.scheduler_name);
    scene.plane.start_scheduler(&scheduler).await?;
    let place_of_big = place(&scene, "big").await?;
    ensure!(
        place_of_big == big,
        "{place_of_big}, where its node is {big}"
    );
    ensure!(
        calls(&scene, "filter").await? >= filtered + 2.0,
        "a filter call for each pod"
    );
    let told = scene.mortise.debug("extender").await?;
    for pod in ["default/small", "default/big"] {
        let mut calls = told["calls"].as_array().into_iter().flatten();
        let own = |call: &&Value| call["pod"] == pod && call["nominated_node"] == json!(true);
        ensure!(
            calls.any(|call| own(&call)),
            "its node was among the nodes: {told}"
        );
    }

    // Where there is a choice, mortise is asked which is better.
    let prioritized = calls(&scene, "prioritize").await?;
    scene
        .apply(&[pod(
            "third",
            "third",
            ("200m", "64Mi"),
            json!({ "schedulerName": LATER }),
        )])
        .await?;
    place(&scene, "third").await?;
    ensure!(
        calls(&scene, "prioritize").await? > prioritized,
        "prioritize was called"
    );
    scene.end().await;
    Ok(())
}

/// What a process answers when kube-scheduler asks whether this pod may go to that node: nothing, or why not.
async fn denied(asked: &Mortise, scene: &Scene, pod: &str, node: &str) -> Result<Option<String>> {
    let pods: Api<Pod> = Api::default_namespaced(scene.plane.client());
    let question = json!({ "Pod": pods.get(pod).await?, "Nodes": null, "NodeNames": [node] });
    let url = asked.url("extender/v1/filter");
    let reply = asked.scheduler_http()?.post(&url, &question).await?;
    let answer = reply.json()?;
    let passed = answer["NodeNames"] == json!([node]);
    let why = answer["FailedAndUnresolvableNodes"][node].as_str();
    ensure!(passed == why.is_none(), "{answer}");
    Ok(why.map(str::to_owned))
}

/// A second process, which does not lead.
async fn follower(scene: &Scene) -> Result<Mortise> {
    let kubeconfig = format!("--kubeconfig={}", account(&scene.plane).await?.display());
    let options = MortiseOptions::with_flags(&[&kubeconfig]);
    let follower = Mortise::start(&scene.plane, options).await?;
    follower.wait_ready().await?;
    ensure!(leads(&scene.mortise).await? && !leads(&follower).await?);
    Ok(follower)
}

/// Whether a process has answered a call about this pod itself.
async fn has_answered(asked: &Mortise, pod: &str) -> Result<bool> {
    let told = asked.debug("extender").await?;
    let calls = told["calls"].as_array().context("calls")?;
    let pod = format!("default/{pod}");
    Ok(calls.iter().any(|call| call["pod"] == pod.as_str()))
}

/// kube-scheduler may call any replica. One that does not lead respects the nominations of the leader, and when the leader is
/// killed none of them is lost, before another leads and after.
#[tokio::test]
async fn every_replica_keeps_nominations() -> Result<()> {
    const NOMINATED: Option<&str> = Some("free capacity is nominated to other pods");
    let mut scene = scene(&[]).await?;
    let mut follower = follower(&scene).await?;
    let pool = pool("default", &[AMD64, LINUX, ON_DEMAND], json!({}));
    scene.apply(&[kwok_class(), pool]).await?;
    scene.plane.stop_component(Component::Scheduler).await?;
    scene
        .apply(&[pod("big", "big", ("15500m", "1Gi"), json!({}))])
        .await?;
    let launched_nodes = scene.settled(1).await?;
    let node = launched_nodes.first().context("a node")?.node_name();
    // A pool without anything for it: the small one waits, and would go where there is room.
    let small = json!({ "nodeSelector": { "node.kubernetes.io/instance-type": "none" } });
    scene
        .apply(&[pod("small", "small", ("1", "1Gi"), small)])
        .await?;

    wait_until("the follower to know the nomination", SOON, || async {
        let why = denied(&follower, &scene, "small", node).await?;
        ensure!(why.as_deref() == NOMINATED, "{why:?}");
        Ok(())
    })
    .await?;
    for mortise in [&scene.mortise, &follower] {
        let why = denied(mortise, &scene, "small", node).await?;
        ensure!(why.as_deref() == NOMINATED, "{why:?}");
        let why = denied(mortise, &scene, "big", node).await?;
        ensure!(why.is_none(), "{why:?}");
    }

    scene.mortise.kill9().await;
    let mut asked = 0;
    while !leads(&follower).await? {
        let why = denied(&follower, &scene, "small", node).await?;
        ensure!(why.as_deref() == NOMINATED, "no replica leads: {why:?}");
        asked += 1;
    }
    ensure!(asked > 0, "it took over at once");
    // Its first look at the pods that wait is behind it when it says why one of them does.
    wait_until("the new leader to have looked around", SOON, || async {
        let explained = follower
            .debug("explain?namespace=default&pod=small")
            .await?;
        ensure!(explained["why"].is_string(), "{explained}");
        Ok(())
    })
    .await?;
    let why = denied(&follower, &scene, "small", node).await?;
    ensure!(why.as_deref() == NOMINATED, "the new leader: {why:?}");
    let scheduler = SchedulerOptions::with_extender(follower.extender()?);
    scene.plane.start_scheduler(&scheduler).await?;
    let place = place(&scene, "big").await?;
    ensure!(place == node, "{place}, where its node is {node}");
    scene.settled(1).await?;
    follower.kill9().await;
    scene.end().await;
    Ok(())
}

/// kube-scheduler may have its one connection to a replica that does not lead. Its calls are answered by the leader, and by that replica
/// when the leader is gone.
#[tokio::test]
async fn calls_that_reach_another_replica_are_answered_by_the_leader() -> Result<()> {
    let mut scene = scene(&[]).await?;
    let mut follower = follower(&scene).await?;
    scene.plane.stop_component(Component::Scheduler).await?;
    let scheduler = SchedulerOptions::with_extender(follower.extender()?);
    scene.plane.start_scheduler(&scheduler).await?;
    let keep = json!({ "disruption": { "consolidateAfter": "Never" } });
    let large = types(&["c-16x-amd64-linux"]);
    scene
        .apply(&[kwok_class(), pool("default", &[large, ON_DEMAND], keep)])
        .await?;
    scene
        .apply(&[pod("first", "first", ("1", "1Gi"), json!({}))])
        .await?;
    let node = place(&scene, "first").await?;
    scene.settled(1).await?;
    let outcome = ["outcome=\"answered\""];
    let forwarded = follower.metric("mortise_extender_forwarded_total", &outcome);
    ensure!(forwarded.await? > 0.0, "no call was forwarded");
    ensure!(
        has_answered(&scene.mortise, "first").await?,
        "the leader answers"
    );
    let told = follower.debug("extender").await?;
    let address = format!("127.0.0.1:{}", scene.mortise.https_port());
    ensure!(told["leader"] == address.as_str(), "{told}");

    scene.mortise.kill9().await;
    scene
        .apply(&[pod("second", "second", ("1", "1Gi"), json!({}))])
        .await?;
    ensure!(place(&scene, "second").await? == node);
    ensure!(
        has_answered(&follower, "second").await?,
        "without a leader it answers itself"
    );
    follower.kill9().await;
    scene.end().await;
    Ok(())
}

/// Without an answer of mortise, because it hangs or because it is gone, pods go where there is room.
#[tokio::test]
async fn without_mortise_pods_are_scheduled() -> Result<()> {
    let mut scene = scene(&[]).await?;
    let keep = json!({ "disruption": { "consolidateAfter": "Never" } });
    scene
        .apply(&[
            kwok_class(),
            pool("default", &[types(&["c-8x-amd64-linux"]), ON_DEMAND], keep),
        ])
        .await?;
    scene
        .apply(&[pod("one", "one", ("5", "1Gi"), json!({}))])
        .await?;
    let node = place(&scene, "one").await?;
    scene.settled(1).await?;

    // Sockets stay open, nothing answers: the call times out and the scheduler goes on.
    scene.mortise.signal(Signal::Stop);
    scene
        .apply(&[pod("two", "two", ("1", "1Gi"), json!({}))])
        .await?;
    ensure!(place(&scene, "two").await? == node);
    scene.mortise.signal(Signal::Cont);

    let code = scene.mortise.terminate().await;
    ensure!(code == 0, "SIGTERM ends it in order, not with {code}");
    scene
        .apply(&[pod("three", "three", ("1", "1Gi"), json!({}))])
        .await?;
    ensure!(place(&scene, "three").await? == node);
    scene.end().await;
    Ok(())
}

/// During the grace period of a command, its node gets no new pods although it has free capacity.
#[tokio::test]
async fn a_node_about_to_go_gets_no_pods() -> Result<()> {
    // The fence stands for the whole story: the taint, which would keep pods off too, comes after the grace.
    let scene = scene(&["--bind-grace-period=10m"]).await?;
    let two = types(&["c-8x-amd64-linux"]);
    scene
        .apply(&[kwok_class(), pool("default", &[two, ON_DEMAND], json!({}))])
        .await?;
    let spread = json!({ "affinity": { "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [
        { "labelSelector": { "matchLabels": { "app": "first" } }, "topologyKey": "kubernetes.io/hostname" },
    ] } } });
    scene
        .apply(&[
            pod("one", "first", ("4", "1Gi"), spread.clone()),
            pod("two", "first", ("4", "1Gi"), spread),
        ])
        .await?;
    let (stays, goes) = (place(&scene, "one").await?, place(&scene, "two").await?);
    let launched_nodes = scene.settled(2).await?;
    let pods: Api<Pod> = Api::default_namespaced(scene.plane.client());
    pods.delete("two", &DeleteParams::default()).await?;

    let going = launched_nodes
        .iter()
        .find(|launched_node| launched_node.node_name() == goes)
        .context("its node")?
        .claim
        .name();
    wait_until("a fence around the empty node", SOON, || async {
        let nominations = scene.mortise.debug("nominations").await?;
        let fences = nominations["fences"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        ensure!(
            fences.iter().any(|fence| fence["claim"] == going.as_str()),
            "{nominations}"
        );
        Ok(())
    })
    .await?;
    let denied = calls(&scene, "denied_disrupting").await?;
    scene
        .apply(&[pod("late", "late", ("1", "1Gi"), json!({}))])
        .await?;
    let late = place(&scene, "late").await?;
    ensure!(late == stays, "{late}");
    ensure!(
        calls(&scene, "denied_disrupting").await? > denied,
        "the fenced node was denied"
    );
    let node = scene
        .nodes()
        .await?
        .remove(&goes)
        .context("it is still there")?;
    let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
    ensure!(
        taints
            .iter()
            .all(|taint| taint.key != "karpenter.sh/disrupted"),
        "{taints:?}"
    );
    scene.end().await;
    Ok(())
}
