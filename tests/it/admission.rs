//! What people are told when they apply a pool: through the real API server, as kubectl shows it.

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail, ensure};
use kube::api::{Api, DeleteParams};
use mortise_apis::NodePool;
use mortise_tests::harness::{KubectlOutput, Mortise, wait_until};
use serde_json::{Value, json};

use crate::objects::{AMD64, LINUX, ON_DEMAND, deployment, kwok_class, pool, types};
use crate::scene::{SOON, Scene, Setting};

/// A scene whose API server asks mortise's webhooks.
async fn scene() -> Result<Scene> {
    scene_of(Setting::default()).await
}

async fn scene_of(setting: Setting) -> Result<Scene> {
    let scene = Scene::start(setting).await?;
    scene.apply(&[kwok_class()]).await?;
    wait_until("the catalogue", SOON, || async {
        let snapshot = scene.mortise.debug("snapshot").await?;
        ensure!(
            snapshot["counts"]["catalogs"].as_u64() == Some(1),
            "{snapshot}"
        );
        Ok(())
    })
    .await?;
    asked(&scene).await?;
    Ok(scene)
}

/// Registers the webhooks, and waits until the API server asks them.
pub(crate) async fn asked(scene: &Scene) -> Result<()> {
    let webhooks = scene.mortise.webhook_manifests(&[]).await?;
    scene.plane.apply_yaml(&webhooks).await?;
    // The API server reads the configurations from a watch of its own: it asks when the pool without group and kind of its
    // class, which the schema alone refuses, is admitted.
    wait_until("the API server to ask the webhooks", SOON, || async {
        let mut probe = pool("probe", &[LINUX], json!({}));
        probe["spec"]["template"]["spec"]["nodeClassRef"] = json!({ "name": "default" });
        kubectl(scene, &["create", "--dry-run=server"], &probe)
            .await?
            .ok()?;
        Ok(())
    })
    .await
}

/// Runs kubectl on one object.
pub(crate) async fn kubectl(scene: &Scene, args: &[&str], object: &Value) -> Result<KubectlOutput> {
    let path: PathBuf = scene.plane.dir().join("object.json");
    std::fs::write(&path, object.to_string())?;
    let path = path.display().to_string();
    let args: Vec<&str> = args.iter().copied().chain(["-f", path.as_str()]).collect();
    scene.plane.kubectl(&args).await
}

async fn create(scene: &Scene, object: &Value) -> Result<KubectlOutput> {
    kubectl(scene, &["create"], object).await
}

/// The lines that kubectl prints for warnings of the API server.
pub(crate) fn warnings(output: &KubectlOutput) -> Vec<&str> {
    output
        .stderr
        .lines()
        .filter_map(|line| line.strip_prefix("Warning: "))
        .collect()
}

/// There is one warning with these parts, and it is short. Pools of a story resemble each other, which is told too, and
/// kubectl has warnings of its own.
fn told(output: &KubectlOutput, parts: &[&str]) -> Result<()> {
    let all = warnings(output);
    let mut fitting = all
        .iter()
        .filter(|text| parts.iter().all(|part| text.contains(part)));
    match (fitting.next(), fitting.next()) {
        (Some(text), None) if text.chars().count() <= 120 => Ok(()),
        _ => bail!("{parts:?} are not in exactly one short warning of {all:?}"),
    }
}

fn mistyped() -> Value {
    pool(
        "mistyped",
        &[("kubernetes.io/arch", "NotInn", &["arm64"])],
        json!({}),
    )
}

#[tokio::test]
async fn mistakes_are_answered_with_what_was_meant() -> Result<()> {
    let scene = scene().await?;

    // A mistyped operator: refused, with the operators and the nearest one.
    let said = create(&scene, &mistyped()).await?;
    ensure!(said.code != 0, "{}", said.stdout);
    for part in [
        "requirements[0].operator",
        "\"NotInn\"",
        "DoesNotExist",
        "did you mean \"NotIn\"?",
    ] {
        ensure!(
            said.stderr.contains(part),
            "{part} is not in {}",
            said.stderr
        );
    }
    ensure!(
        said.stderr.contains("mortise.sh"),
        "the webhook says it: {}",
        said.stderr
    );

    // An unknown type: admitted, with the nearest one.
    let unknown = pool(
        "unknown",
        &[types(&["c-2x-amd64-linus", "c-4x-amd64-linux"])],
        json!({}),
    );
    let said = create(&scene, &unknown).await?;
    ensure!(said.code == 0, "{}", said.stderr);
    told(
        &said,
        &[
            "instance-type",
            "\"c-2x-amd64-linus\"",
            "did you mean \"c-2x-amd64-linux\"?",
        ],
    )?;

    // A set that no type satisfies: admitted, with the requirement that removes the last ones.
    let impossible = pool(
        "impossible",
        &[
            types(&["c-2x-amd64-linux"]),
            LINUX,
            ("kubernetes.io/arch", "In", &["arm64"]),
        ],
        json!({}),
    );
    let said = create(&scene, &impossible).await?;
    ensure!(said.code == 0, "{}", said.stderr);
    told(&said, &["no instance type is left", "instance-type", "144"])?;

    // A class that is not there, nearly one that is.
    let mut orphan = pool("orphan", &[LINUX], json!({}));
    orphan["spec"]["template"]["spec"]["nodeClassRef"]["name"] = json!("defualt");
    let said = create(&scene, &orphan).await?;
    ensure!(said.code == 0, "{}", said.stderr);
    told(
        &said,
        &["\"defualt\" does not exist", "did you mean \"default\"?"],
    )?;

    // A pool without mistakes: nothing is said, and group and kind of the class are filled in.
    let over = json!({ "weight": 50, "disruption": { "budgets": [{ "nodes": "10%" }] } });
    let mut terse = pool("terse", &[LINUX, AMD64, ON_DEMAND], over);
    terse["spec"]["template"]["spec"]["nodeClassRef"] = json!({ "name": "default" });
    let said = create(&scene, &terse).await?;
    ensure!(
        said.code == 0 && said.stderr.trim().is_empty(),
        "{}",
        said.stderr
    );
    let reference = scene.pool("terse").await?.spec.template.spec.node_class_ref;
    ensure!(
        reference.group == "karpenter.kwok.sh" && reference.kind == "KWOKNodeClass",
        "{reference:?}"
    );

    // The same faults are conditions, for those who do not read warnings; a good pool is ready.
    for (name, ready) in [("terse", true), ("orphan", false)] {
        wait_until(&format!("pool {name}: Ready {ready}"), SOON, || async {
            let conditions = scene.pool(name).await?.status.conditions;
            let found = conditions
                .iter()
                .find(|condition| condition.type_ == "Ready")
                .context("no condition yet")?;
            ensure!((found.status.to_string() == "True") == ready, "{found:?}");
            Ok(())
        })
        .await?;
    }
    ensure!(
        scene
            .mortise
            .metric(
                "mortise_webhook_calls_total",
                &["call=\"admission_denied\""]
            )
            .await?
            >= 1.0
    );
    scene.end().await;
    Ok(())
}

#[tokio::test]
async fn deleting_a_pool_says_what_it_drains() -> Result<()> {
    let scene = scene().await?;
    scene
        .apply(&[pool(
            "default",
            &[types(&["c-4x-amd64-linux"]), ON_DEMAND],
            json!({}),
        )])
        .await?;
    scene
        .apply(&[deployment("web", 3, ("1", "1Gi"), json!({}))])
        .await?;
    scene.running("web", 3).await?;
    scene.settled(1).await?;
    let said = scene
        .plane
        .kubectl(&["delete", "nodepool", "default", "--dry-run=server"])
        .await?;
    let told = warnings(&said);
    ensure!(
        said.code == 0 && told.len() == 1,
        "{} {told:?}",
        said.stderr
    );
    ensure!(told[0].contains("drains 1 node with 3 pods"), "{told:?}");
    ensure!(
        scene
            .pool("default")
            .await?
            .metadata
            .deletion_timestamp
            .is_none(),
        "a dry run changes nothing"
    );
    scene.end().await;
    Ok(())
}

/// Edits are previewed, deletions can be forbidden, and all kinds are asked about; what leaves a spec alone is not sent.
#[tokio::test]
async fn every_kind_is_asked_about() -> Result<()> {
    let scene = scene().await?;
    let wide = json!({ "disruption": { "budgets": [{ "nodes": "10%" }] } });
    let default = pool(
        "default",
        &[types(&["c-4x-amd64-linux"]), ON_DEMAND],
        wide.clone(),
    );
    scene.apply(&[default]).await?;
    scene
        .apply(&[deployment("web", 3, ("1", "1Gi"), json!({}))])
        .await?;
    scene.running("web", 3).await?;
    scene.settled(1).await?;
    let run = async |args: &[&str]| scene.plane.kubectl(args).await;

    // What an edit would do, in numbers; the pool is as it was.
    let edited = pool("default", &[types(&["c-8x-amd64-linux"]), ON_DEMAND], wide);
    let said = kubectl(&scene, &["apply", "--dry-run=server"], &edited).await?;
    ensure!(said.code == 0, "{}", said.stderr);
    told(&said, &["drifts 1 of 1 node", "hourly price $", " -> $"])?;
    ensure!(
        scene.claims().await?.len() == 1,
        "a dry run launches nothing"
    );

    // A claim that a user deletes; the service's own writes of claims are not validated.
    let name = scene.claims().await?.into_keys().next().context("name")?;
    let said = run(&["delete", "nodeclaim", &name, "--dry-run=server"]).await?;
    told(&said, &["deleting NodeClaim", "with 3 pods"])?;
    let calls = async || {
        scene
            .mortise
            .metric("mortise_webhook_calls_total", &["call=\"validate\""])
            .await
    };
    let before = calls().await?;
    run(&["label", "nodepool", "default", "team=a"])
        .await?
        .ok()?;
    run(&[
        "annotate",
        "nodepool",
        "default",
        "mortise.sh/deletion-protection=true",
    ])
    .await?
    .ok()?;
    let after = calls().await?;
    ensure!(
        (after - before).abs() < 0.5,
        "labels and annotations are not asked about: {before} -> {after}"
    );

    // A protected pool stays.
    let said = run(&["delete", "nodepool", "default"]).await?;
    ensure!(
        said.code != 0
            && said.stderr.contains("mortise.sh/deletion-protection")
            && said.stderr.contains("1 node with 3 pods"),
        "{}",
        said.stderr
    );

    // The other kinds.
    let cases = [
        (
            json!({ "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": { "name": "mine" }, "spec": {
                "nodeClassRef": { "name": "default" }, "requirements": [{ "key": "kubernetes.io/arch", "operator": "Inn", "values": ["amd64"] }],
            } }),
            "spec.requirements[0].operator: \"Inn\"",
        ),
        (
            json!({ "apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay", "metadata": { "name": "cheap" }, "spec": {
                "requirements": [], "priceAdjustment": "10%",
            } }),
            "did you mean -10%?",
        ),
        (
            json!({ "apiVersion": "autoscaling.x-k8s.io/v1beta1", "kind": "CapacityBuffer", "metadata": { "name": "room", "namespace": "default" }, "spec": {
                "replicas": 2,
            } }),
            "one of podTemplateRef and scalableRef is required",
        ),
        (
            json!({ "apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": { "name": "slow" }, "spec": {
                "nodeRegistrationDelay": "1 day",
            } }),
            "spec.nodeRegistrationDelay: \"1 day\"",
        ),
    ];
    for (object, part) in cases {
        let said = create(&scene, &object).await?;
        ensure!(
            said.code != 0 && said.stderr.contains(part) && said.stderr.contains("mortise.sh"),
            "{part} is not in {}",
            said.stderr
        );
    }
    scene.end().await;
    Ok(())
}

/// With mortise gone, pools can still be created, and what the schema knows is still refused.
#[tokio::test]
async fn without_the_webhook_creation_works() -> Result<()> {
    let mut scene = scene().await?;
    scene.mortise.kill9().await;
    let said = create(&scene, &pool("calm", &[LINUX], json!({}))).await?;
    ensure!(said.code == 0, "{}", said.stderr);
    let said = create(&scene, &mistyped()).await?;
    ensure!(
        said.code != 0 && said.stderr.contains("NotInn"),
        "the schema's own rule: {}",
        said.stderr
    );
    ensure!(
        !said.stderr.contains("did you mean"),
        "and not the webhook: {}",
        said.stderr
    );
    let pools: Api<NodePool> = Api::all(scene.plane.client());
    pools.delete("calm", &DeleteParams::default()).await?;
    create(&scene, &pool("terse", &[LINUX], json!({})))
        .await?
        .ok()?;

    // `--fail` is for those who rather have nothing than something unchecked.
    let strict = scene.mortise.webhook_manifests(&["--fail"]).await?;
    scene.plane.apply_yaml(&strict).await?;
    wait_until("creation to be refused", SOON, || async {
        let said = kubectl(
            &scene,
            &["create", "--dry-run=server"],
            &pool("calm", &[LINUX], json!({})),
        )
        .await?;
        ensure!(
            said.code != 0 && said.stderr.contains("failed calling webhook"),
            "{}{}",
            said.stdout,
            said.stderr
        );
        Ok(())
    })
    .await?;
    // Deletions always pass.
    pools.delete("terse", &DeleteParams::default()).await?;
    scene.end().await;
    Ok(())
}

/// Bodies that are no reviews are answered and counted, and lose nothing.
#[tokio::test]
async fn malformed_bodies_are_answered() -> Result<()> {
    let scene = scene().await?;
    let open = scene.mortise.http()?;
    let scheduler = scene.mortise.scheduler_http()?;
    let before = scene
        .mortise
        .metric("mortise_webhook_calls_total", &["call=\"malformed\""])
        .await?;
    for body in [
        "",
        "{",
        "[]",
        "null",
        "{\"request\":7}",
        "{\"kind\":\"AdmissionReview\"}",
    ] {
        for path in ["admission/v1/validate", "admission/v1/default"] {
            let reply = open.post_text(&scene.mortise.url(path), body).await?;
            ensure!(reply.status == 200, "{path} {body:?}: {}", reply.status);
            let review: Value = serde_json::from_str(&reply.body)?;
            ensure!(
                review["response"]["allowed"] == json!(false),
                "{path} {body:?}: {review}"
            );
            ensure!(
                review["response"]["status"]["code"] == json!(400),
                "{path} {body:?}: {review}"
            );
        }
        for path in [
            "extender/v1/filter",
            "extender/v1/prioritize",
            "extender/v1/preempt",
        ] {
            let reply = scheduler.post_text(&scene.mortise.url(path), body).await?;
            ensure!(
                reply.status == 400,
                "{path} {body:?}: {} {}",
                reply.status,
                reply.body
            );
        }
    }
    let after = scene
        .mortise
        .metric("mortise_webhook_calls_total", &["call=\"malformed\""])
        .await?;
    ensure!(after >= before + 30.0, "{before} -> {after}");
    // A body beyond the limit is refused before it is read as a whole.
    let long = format!("\"{}\"", "x".repeat(9 << 20));
    let reply = open
        .post_text(&scene.mortise.url("admission/v1/validate"), &long)
        .await?;
    ensure!(reply.status == 413, "{}", reply.status);
    ensure!(
        scene
            .mortise
            .metric("mortise_webhook_calls_total", &["call=\"panics\""])
            .await?
            < 1.0
    );
    scene.mortise.wait_ready().await?;
    scene.end().await;
    Ok(())
}

/// No webhook is called for pods, nodes or namespaces, and a service that is down can never block a deletion.
#[tokio::test]
async fn pods_are_not_reviewed() -> Result<()> {
    for flags in [&[][..], &["--fail"]] {
        let args: Vec<&str> = ["manifests", "webhooks"]
            .into_iter()
            .chain(flags.iter().copied())
            .collect();
        let written = Mortise::output(&args).await?;
        let documents: Vec<Value> = serde_saphyr::from_multiple(&written)?;
        ensure!(documents.len() == 2, "{written}");
        let webhooks = documents
            .iter()
            .filter_map(|document| document["webhooks"].as_array());
        for webhook in webhooks.flatten() {
            let text = webhook.to_string();
            for resource in ["pods", "nodes", "namespaces", "*"] {
                ensure!(!text.contains(&format!("[\"{resource}\"]")), "{text}");
            }
            let deletes = text.contains("DELETE");
            let about_claims = text.contains("nodeclaims");
            let may_fail = !flags.is_empty() && !deletes && !about_claims;
            let policy = if may_fail { "Fail" } else { "Ignore" };
            ensure!(
                webhook["failurePolicy"] == json!(policy),
                "{flags:?} {text}"
            );
            ensure!(webhook["sideEffects"] == json!("None"), "{text}");
            // The service makes claims by the hundred; only those that people make or delete are asked about.
            ensure!(
                !about_claims || text.contains("without-a-pool") || text.contains("by-people"),
                "{text}"
            );
        }
    }
    Ok(())
}

/// With their gate, overlays are watched, and one that contradicts another is told which.
#[tokio::test]
async fn overlays_that_contradict_each_other_are_named() -> Result<()> {
    let scene = scene_of(Setting {
        flags: vec!["--feature-gates=NodeOverlay=true".to_owned()],
        ..Setting::default()
    })
    .await?;
    let overlay = |name: &str, price: &str, family: &str| {
        json!({ "apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay", "metadata": { "name": name }, "spec": {
            "weight": 10, "price": price,
            "requirements": [{ "key": "karpenter.kwok.sh/instance-family", "operator": "In", "values": [family] }],
        } })
    };
    let first = create(&scene, &overlay("first", "0.01", "c")).await?;
    ensure!(first.code == 0 && warnings(&first).is_empty(), "{first:?}");
    // The watch brings it.
    let (of_c, of_m) = (
        overlay("second", "0.02", "c"),
        overlay("other", "0.02", "m"),
    );
    wait_until("the conflict to be told", SOON, || async {
        let said = kubectl(&scene, &["create", "--dry-run=server"], &of_c).await?;
        told(
            &said,
            &[
                "NodeOverlay \"first\" of equal weight",
                "sets the price of 48 types too",
            ],
        )
    })
    .await?;
    let said = create(&scene, &of_m).await?;
    ensure!(said.code == 0 && warnings(&said).is_empty(), "{said:?}");
    scene.end().await;
    Ok(())
}
