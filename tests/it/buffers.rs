//! Capacity buffers: room that is there before pods need it.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan as _};
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use mortise_apis::karpenter::capacitybuffer::ReplicaPeaks;
use mortise_apis::{CapacityBuffer, Condition};
use mortise_tests::harness::wait_until;
use serde_json::{Value, json};

use crate::objects::{deployment, kwok_class, small_pool};
use crate::scene::{LaunchedNode, SOON, Scene, Setting, provider_id};

const READY: &str = "ReadyForProvisioning";
const PROVISIONING: &str = "Provisioning";
const LEARNED: &str = "DemandLearned";
const PEAKS: &str = "mortise.sh/replica-peaks";

async fn scene() -> Result<Scene> {
    Scene::start(Setting {
        flags: vec!["--feature-gates=CapacityBuffer=true".to_owned()],
        ..Setting::default()
    })
    .await
}

/// A PodTemplate named `room` of pods of this size: one fits on a node of the pool.
fn template(cpu: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PodTemplate", "metadata": { "name": "room" },
        "template": {
            "metadata": { "labels": { "app": "room" } },
            "spec": { "containers": [{ "name": "main", "image": "registry.test/main", "resources": { "requests": { "cpu": cpu, "memory": "64Mi" } } }] },
        },
    })
}

fn buffer(name: &str, spec: Value) -> Value {
    json!({ "apiVersion": "autoscaling.x-k8s.io/v1beta1", "kind": "CapacityBuffer", "metadata": { "name": name }, "spec": spec })
}

fn of_template(replicas: i32) -> Value {
    json!({ "podTemplateRef": { "name": "room" }, "replicas": replicas })
}

fn api(scene: &Scene) -> Api<CapacityBuffer> {
    Api::default_namespaced(scene.plane.client())
}

fn condition<'a>(buffer: &'a CapacityBuffer, type_: &str) -> Result<&'a Condition> {
    let all = &buffer.status.conditions;
    let found = all.iter().find(|each| each.type_ == type_);
    found.with_context(|| format!("no condition {type_}: {all:?}"))
}

/// Waits until a condition has this status and reason; returns its message.
async fn told(
    scene: &Scene,
    name: &str,
    type_: &str,
    (status, reason): (&str, &str),
) -> Result<String> {
    let what = format!("{type_}={status}/{reason} of buffer {name}");
    wait_until(&what, SOON, || async {
        let buffer = api(scene).get(name).await?;
        let condition = condition(&buffer, type_)?;
        ensure!(
            condition.status.as_str() == status && condition.reason == reason,
            "{condition:?}"
        );
        Ok(condition.message.clone())
    })
    .await
}

async fn has_room(scene: &Scene, name: &str) -> Result<String> {
    told(scene, name, PROVISIONING, ("True", "FitsExistingCapacity")).await
}

async fn edit(scene: &Scene, name: &str, spec: Value) -> Result<()> {
    let patch = json!({ "spec": spec });
    let params = PatchParams::default();
    api(scene)
        .patch(name, &params, &Patch::Merge(&patch))
        .await?;
    Ok(())
}

fn names(nodes: &[LaunchedNode]) -> BTreeSet<String> {
    nodes
        .iter()
        .map(|node| node.node_name().to_owned())
        .collect()
}

/// The whole life of a buffer: nodes and status, pods that take the room at once, room that comes back, and the end.
#[tokio::test]
async fn pods_take_the_room_at_once_and_it_is_refilled() -> Result<()> {
    let scene = scene().await?;
    scene
        .apply(&[
            kwok_class(),
            small_pool("default", json!({})),
            template("1200m"),
            buffer("room", of_template(2)),
        ])
        .await?;
    let spare = scene.settled(2).await?;
    let message = has_room(&scene, "room").await?;
    ensure!(
        message == "all 2 virtual pods fit on existing nodes",
        "{message}"
    );
    let seen = api(&scene).get("room").await?;
    ensure!(condition(&seen, READY)?.reason == "Resolved", "{seen:?}");
    let status = &seen.status;
    ensure!(
        status.replicas == Some(2)
            && status.pod_template_ref.as_ref().map(|of| &*of.name) == Some("room")
            && status.pod_template_generation == Some(1)
            && status.provisioning_strategy.as_deref() == Some("buffer.x-k8s.io/active-capacity"),
        "{status:?}"
    );
    scene
        .event(
            PROVISIONING,
            "room",
            "Status: False -> True, Reason: FitsExistingCapacity",
        )
        .await?;

    // Empty nodes with room stay, although the pool consolidates at once: emptiness has had its chance when a node
    // without room is gone.
    scene
        .apply(&[deployment("web", 2, ("1200m", "64Mi"), json!({}))])
        .await?;
    let pods = scene.running("web", 2).await?;
    let on: BTreeSet<String> = pods
        .iter()
        .filter_map(|pod| pod.spec.as_ref()?.node_name.clone())
        .collect();
    ensure!(on == names(&spare), "{on:?} are not the spare nodes");
    let all = scene.settled(4).await?;
    ensure!(names(&spare).is_subset(&names(&all)), "the first two stay");
    has_room(&scene, "room").await?;

    edit(&scene, "room", json!({ "replicas": 1 })).await?;
    scene.settled(3).await?;
    // Pods that go give their nodes to the buffer: of three nodes one is left, with room and without pods.
    scene.scale("web", 0).await?;
    scene.settled(1).await?;
    has_room(&scene, "room").await?;
    let metrics = scene.mortise.metrics().await?;
    let gauge = "operator_capacitybuffer_status_condition_count{namespace=\"default\",name=\"room\",type=\"Provisioning\",status=\"True\",reason=\"FitsExistingCapacity\"} 1";
    ensure!(metrics.contains(gauge), "no series {gauge}");

    api(&scene).delete("room", &DeleteParams::default()).await?;
    scene.empty().await?;
    scene
        .event("Finalized", "room", "Finalized capacitybuffer")
        .await?;
    scene.end().await;
    Ok(())
}

#[tokio::test]
async fn a_percentage_follows_the_workload() -> Result<()> {
    let scene = scene().await?;
    let workload = json!({ "apiGroup": "apps", "kind": "Deployment", "name": "web" });
    scene
        .apply(&[
            kwok_class(),
            small_pool("default", json!({})),
            buffer("room", json!({ "scalableRef": workload, "percentage": 50 })),
        ])
        .await?;
    let message = told(&scene, "room", READY, ("False", "ScalableRefNotFound")).await?;
    ensure!(
        message == "Deployment \"web\" not found in namespace \"default\"",
        "{message}"
    );
    told(
        &scene,
        "room",
        PROVISIONING,
        ("False", "NotReadyForProvisioning"),
    )
    .await?;
    ensure!(scene.claims().await?.is_empty(), "no room for nothing");

    scene
        .apply(&[deployment("web", 0, ("1200m", "64Mi"), json!({}))])
        .await?;
    told(&scene, "room", READY, ("True", "Resolved")).await?;
    told(&scene, "room", PROVISIONING, ("False", "BufferEmpty")).await?;
    for (replicas, nodes) in [(1, 2), (3, 5)] {
        scene.scale("web", replicas).await?;
        scene.running("web", replicas).await?;
        scene.settled(nodes).await?;
        has_room(&scene, "room").await?;
        let seen = api(&scene).get("room").await?.status.replicas;
        ensure!(
            seen == i32::try_from(nodes - replicas).ok(),
            "{seen:?} for {replicas}"
        );
    }
    // The pods of another template need another node.
    let bigger = deployment("web", 1, ("100m", "64Mi"), json!({}));
    scene.apply(&[bigger]).await?;
    scene.settled(1).await?;
    has_room(&scene, "room").await?;
    scene.end().await;
    Ok(())
}

#[tokio::test]
async fn limits_of_buffer_and_pool_hold() -> Result<()> {
    let scene = scene().await?;
    scene
        .apply(&[
            kwok_class(),
            small_pool("default", json!({ "limits": { "nodes": "2" } })),
            template("1200m"),
            buffer(
                "room",
                json!({ "podTemplateRef": { "name": "room" }, "limits": { "cpu": "2500m" } }),
            ),
        ])
        .await?;
    scene.settled(2).await?;
    has_room(&scene, "room").await?;
    edit(&scene, "room", json!({ "limits": { "cpu": "5" } })).await?;
    let (status, reason) = ("False", "RequiresNewCapacity");
    let message = told(&scene, "room", PROVISIONING, (status, reason)).await?;
    ensure!(
        message == "0/4 virtual pods required new capacity, 2 failed",
        "{message}"
    );
    scene.settled(2).await?;
    // More room from the pool is used without a change of the buffer.
    scene
        .apply(&[small_pool("default", json!({ "limits": { "nodes": "4" } }))])
        .await?;
    scene.settled(4).await?;
    has_room(&scene, "room").await?;
    let shown = scene.mortise.debug("buffers").await?;
    let expected = json!([{
        "buffer": "default/room", "pods": 4, "ready": 4, "coming": 0, "failed": 0, "closedUntil": null, "learned": null, "problem": null,
    }]);
    ensure!(shown == expected, "{shown}");
    scene.end().await;
    Ok(())
}

#[tokio::test]
async fn what_a_buffer_lacks_is_told_and_taken_up_when_it_comes() -> Result<()> {
    let scene = scene().await?;
    let neither = json!({ "replicas": 1 });
    let kind = json!({ "scalableRef": { "apiGroup": "batch", "kind": "Job", "name": "x" }, "replicas": 1 });
    let foreign = json!({ "podTemplateRef": { "name": "room" }, "replicas": 1, "provisioningStrategy": "example.com/standby" });
    let typo = json!({ "podTemplateRef": { "name": "room" }, "replicas": 1, "provisioningStrategy": "buffer.x-k8s.io/active" });
    scene
        .apply(&[
            kwok_class(),
            small_pool("default", json!({})),
            buffer("room", of_template(1)),
            buffer("neither", neither),
            buffer("kind", kind),
            buffer("foreign", foreign),
            buffer("typo", typo),
        ])
        .await?;
    let said = async |name: &str, reason: &str| told(&scene, name, READY, ("False", reason)).await;
    let message = said("room", "PodTemplateNotFound").await?;
    ensure!(
        message.contains("PodTemplate \"room\" not found"),
        "{message}"
    );
    let message = said("neither", "ResolutionFailed").await?;
    ensure!(
        message == "Neither podTemplateRef nor scalableRef is set",
        "{message}"
    );
    let message = said("kind", "ResolutionFailed").await?;
    ensure!(
        message.contains("Deployment, ReplicaSet, StatefulSet of apps are"),
        "{message}"
    );
    let shown = scene.mortise.debug("buffers").await?;
    ensure!(
        shown.to_string().contains("Neither podTemplateRef"),
        "{shown}"
    );
    let message = said("typo", "ResolutionFailed").await?;
    ensure!(
        message.contains("buffer.x-k8s.io/active-capacity"),
        "{message}"
    );

    scene.apply(&[template("1200m")]).await?;
    scene.settled(1).await?;
    has_room(&scene, "room").await?;
    let foreign = api(&scene).get("foreign").await?;
    ensure!(foreign.status == Default::default(), "{:?}", foreign.status);
    scene.end().await;
    Ok(())
}

#[tokio::test]
async fn nothing_happens_without_the_gate() -> Result<()> {
    let scene = Scene::kwok().await?;
    scene
        .apply(&[
            kwok_class(),
            small_pool("default", json!({})),
            template("1200m"),
            buffer("room", of_template(2)),
            deployment("web", 1, ("1200m", "64Mi"), json!({})),
        ])
        .await?;
    scene.running("web", 1).await?;
    let nodes = scene.settled(1).await?;
    ensure!(provider_id(&nodes[0].node).is_some(), "a node of mortise");
    let seen = api(&scene).get("room").await?;
    ensure!(seen.status == Default::default(), "{:?}", seen.status);
    scene.end().await;
    Ok(())
}

/// A missing definition is said once, clearly, and everything else works.
#[tokio::test]
async fn without_the_definition_the_service_says_so_and_goes_on() -> Result<()> {
    let mut scene = scene().await?;
    let name = "capacitybuffers.autoscaling.x-k8s.io";
    let gone = scene.plane.kubectl(&["delete", "crd", name]).await?;
    ensure!(gone.code == 0, "{}", gone.stderr);
    scene.mortise.terminate().await;
    scene.mortise.start_again(&[]).await?;
    scene.mortise.wait_ready().await?;
    let web = deployment("web", 1, ("1200m", "64Mi"), json!({}));
    scene
        .apply(&[kwok_class(), small_pool("default", json!({})), web])
        .await?;
    scene.running("web", 1).await?;
    let log = scene.mortise.log()?;
    ensure!(
        log.contains("CRD capacitybuffers.autoscaling.x-k8s.io is not installed"),
        "nothing is said"
    );
    scene.end().await;
    Ok(())
}

/// Room by a schedule: none before, nodes when its time comes, none when it ends. No object is changed.
#[tokio::test]
async fn a_buffer_with_a_schedule_keeps_room_while_it_holds() -> Result<()> {
    let scene = scene().await?;
    let mut of = buffer("room", of_template(1));
    // Late enough to be seen before it comes.
    let begin = (Timestamp::now() + Duration::from_secs(90)).to_zoned(TimeZone::UTC);
    let schedule = format!("{} {} * * *", begin.minute(), begin.hour());
    of["metadata"]["annotations"] =
        json!({ "mortise.sh/buffer-schedule": schedule, "mortise.sh/buffer-duration": "1m" });
    let soon = json!({ "disruption": { "consolidateAfter": "0s" } });
    scene
        .apply(&[
            kwok_class(),
            small_pool("default", soon),
            template("1200m"),
            of,
        ])
        .await?;
    let message = told(&scene, "room", PROVISIONING, ("False", "BufferEmpty")).await?;
    let first = begin.strftime("%Y-%m-%dT%H:%M:00Z");
    ensure!(
        message == format!("outside of its schedule, which begins next at {first}"),
        "{message}"
    );
    let claims = scene.claims().await?;
    ensure!(claims.is_empty(), "{claims:?}");
    scene.settled(1).await?;
    has_room(&scene, "room").await?;
    scene.empty().await?;
    let message = told(&scene, "room", PROVISIONING, ("False", "BufferEmpty")).await?;
    let tomorrow = begin.checked_add(1.day())?;
    let next = tomorrow.strftime("%Y-%m-%dT%H:%M:00Z").to_string();
    ensure!(message.ends_with(&next), "{message}");
    scene.end().await;
    Ok(())
}

/// Annotations of a buffer that learns, and has two weeks of this number of replicas.
fn learning(mode: &str, peaks: &str) -> Value {
    let first = Timestamp::now() - SignedDuration::from_hours(2 * 168);
    let first = first.strftime("%Y-%m-%dT%H:00:00Z");
    json!({ "mortise.sh/buffer-learning": mode, PEAKS: format!("{first} {peaks}*336") })
}

/// Room by what was recorded; it is the buffer's own annotation that remembers, so a start in between changes nothing.
#[tokio::test]
async fn a_buffer_that_learned_has_room_before_the_pods_come() -> Result<()> {
    let mut scene = scene().await?;
    let workload = json!({ "apiGroup": "apps", "kind": "Deployment", "name": "web" });
    let mut of = buffer("room", json!({ "scalableRef": workload, "replicas": 0 }));
    of["metadata"]["annotations"] = learning("observe", "3");
    scene
        .apply(&[
            kwok_class(),
            small_pool("default", json!({})),
            deployment("web", 1, ("1200m", "64Mi"), json!({})),
            of,
        ])
        .await?;
    let message = told(&scene, "room", LEARNED, ("True", "Observed")).await?;
    let rest = "(percentile 90 of 2 weeks); in the last week 168 of 168 hours had no more than were expected";
    ensure!(
        message.starts_with("3 replicas are expected until ") && message.ends_with(rest),
        "{message}"
    );
    // What the workload has now is recorded next to it.
    wait_until("this hour is recorded", SOON, || async {
        let now: ReplicaPeaks = recorded(&scene).await?.parse()?;
        ensure!(now.peak_at(Timestamp::now()) == Some(1), "{now}");
        Ok(())
    })
    .await?;
    scene.settled(1).await?;
    let shown = scene.mortise.debug("buffers").await?;
    let learned = &shown[0]["learned"];
    ensure!(
        learned["missing"] == 2 && learned["expected"] == 3,
        "{shown}"
    );

    let applied = json!({ "mortise.sh/buffer-learning": "apply" });
    annotate(&scene, &applied).await?;
    told(&scene, "room", LEARNED, ("True", "Applied")).await?;
    let spare = names(&scene.settled(3).await?);
    has_room(&scene, "room").await?;
    let before = recorded(&scene).await?;
    scene.mortise.kill9().await;
    scene.mortise.start_again(&[]).await?;
    scene.mortise.wait_ready().await?;
    scene.scale("web", 3).await?;
    scene.running("web", 3).await?;
    ensure!(
        names(&scene.settled(3).await?) == spare,
        "{spare:?} were there"
    );
    told(&scene, "room", PROVISIONING, ("False", "BufferEmpty")).await?;
    wait_until("the new peak is recorded", SOON, || async {
        let now: ReplicaPeaks = recorded(&scene).await?.parse()?;
        ensure!(
            now.peak_at(Timestamp::now()) == Some(3),
            "{now} after {before}"
        );
        Ok(())
    })
    .await?;

    annotate(&scene, &json!({ PEAKS: "2026-01-05T07:00:00Z 3 many" })).await?;
    let message = told(&scene, "room", LEARNED, ("False", "RecordingUnreadable")).await?;
    ensure!(message.contains("\"many\" is not a number"), "{message}");
    ensure!(recorded(&scene).await?.ends_with("many"), "left as it is");
    annotate(&scene, &json!({ PEAKS: null })).await?;
    told(&scene, "room", LEARNED, ("False", "Recording")).await?;
    scene.end().await;
    Ok(())
}

async fn recorded(scene: &Scene) -> Result<String> {
    let buffer = api(scene).get("room").await?;
    let text = buffer.annotation(PEAKS).context("no peaks")?;
    Ok(text.to_owned())
}

async fn annotate(scene: &Scene, annotations: &Value) -> Result<()> {
    let patch = json!({ "metadata": { "annotations": annotations } });
    let params = PatchParams::default();
    api(scene)
        .patch("room", &params, &Patch::Merge(&patch))
        .await?;
    Ok(())
}
