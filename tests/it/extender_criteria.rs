//! Acceptance criteria of the extender that need real peers, by the numbers of `docs/design/extender.md`.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Pod};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use mortise_apis::{NodeClaim, NodePool, labels};
use mortise_kwok_class::object::KwokNodeClass;
use mortise_tests::harness::{Http, Mortise, SchedulerOptions, wait_until};
use serde_json::{Value, json};

use crate::objects::{ON_DEMAND, deployment, kwok_class, pod, pool, reader_and_stranger, types};
use crate::scene::{SOON, Scene, Setting, on_node, runs};

async fn scene() -> Result<Scene> {
    let setting = Setting {
        extender: true,
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

fn pods(scene: &Scene) -> Api<Pod> {
    Api::default_namespaced(scene.plane.client())
}

/// Waits until a pod runs, and says where.
async fn place(api: &Api<Pod>, name: &str) -> Result<String> {
    wait_until(&format!("pod {name} to run"), SOON, || async {
        let pod = api.get(name).await?;
        let conditions = pod.status.as_ref().map(|status| &status.conditions);
        ensure!(runs(&pod), "{conditions:?}");
        Ok(on_node(&pod).context("a node")?.to_owned())
    })
    .await
}

/// A NodePool with one large node, which was launched for a pod called `first`.
async fn one_node(scene: &Scene) -> Result<()> {
    let only = json!({ "limits": { "nodes": "1" }, "disruption": { "consolidateAfter": "Never" } });
    let large = types(&["c-16x-amd64-linux"]);
    scene
        .apply(&[kwok_class(), pool("default", &[large, ON_DEMAND], only)])
        .await?;
    scene
        .apply(&[pod("first", "first", ("1", "1Gi"), json!({}))])
        .await?;
    place(&pods(scene), "first").await?;
    scene.settled(1).await?;
    Ok(())
}

/// Criterion 5: mortise is killed while the scheduler is at work. Every pod that fits is placed, and no pod is ever told of an
/// error of the scheduler.
#[tokio::test]
async fn criterion_05_without_the_service_in_mid_run_every_pod_is_placed() -> Result<()> {
    let mut scene = scene().await?;
    one_node(&scene).await?;
    scene
        .apply(&[deployment("many", 80, ("100m", "64Mi"), json!({}))])
        .await?;
    wait_until("the first pods to run", SOON, || async {
        let run = scene
            .pods("many")
            .await?
            .iter()
            .filter(|pod| runs(pod))
            .count();
        ensure!(run > 0, "none yet");
        Ok(())
    })
    .await?;
    scene.mortise.kill9().await;
    scene.running("many", 80).await?;
    for event in scene.events("FailedScheduling").await? {
        let message = event.message.unwrap_or_default();
        ensure!(!message.contains("extender"), "{message}");
    }
    for pod in scene.pods("many").await? {
        let conditions = pod.status.and_then(|status| status.conditions);
        let errors = conditions.into_iter().flatten();
        let mut errors = errors.filter(|each| each.reason.as_deref() == Some("SchedulerError"));
        ensure!(errors.next().is_none(), "an error of the scheduler");
    }
    scene.end().await;
    Ok(())
}

/// Criterion 11: a pod that was denied its only node is asked about again as soon as the node is allowed, although nothing that
/// the scheduler watches has changed: mortise makes the event.
#[tokio::test]
async fn criterion_11_a_pod_that_was_denied_everything_is_retried() -> Result<()> {
    let scene = scene().await?;
    one_node(&scene).await?;
    let claims: Api<NodeClaim> = Api::all(scene.plane.client());
    let (claim, _) = scene.claims().await?.pop_first().context("a claim")?;
    let fence = async |value: Value| -> Result<()> {
        let patch = json!({ "metadata": { "annotations": { labels::FENCE: value } } });
        claims
            .patch(&claim, &PatchParams::default(), &Patch::Merge(patch))
            .await?;
        Ok(())
    };
    fence(json!("interruption")).await?;
    wait_until("the fence", SOON, || async {
        let nominations = scene.mortise.debug("nominations").await?;
        let fences = nominations["fences"].as_array().map_or(0, Vec::len);
        ensure!(fences == 1, "{nominations}");
        Ok(())
    })
    .await?;
    let waiting = pod("second", "second", ("1", "1Gi"), json!({}));
    scene.apply(&[waiting]).await?;
    wait_until("the pod to be denied its only node", SOON, || async {
        let told = scene.mortise.debug("extender").await?;
        ensure!(told["denied_pods"] == json!(1), "{told}");
        Ok(())
    })
    .await?;
    ensure!(calls(&scene, "denied_interrupted").await? > 0.0);
    ensure!(
        calls(&scene, "wakeups").await? == 0.0,
        "there is no reason yet"
    );

    fence(Value::Null).await?;
    place(&pods(&scene), "second").await?;
    ensure!(
        calls(&scene, "wakeups").await? > 0.0,
        "mortise made the event"
    );
    let nodes = scene.nodes().await?;
    let annotations = nodes
        .into_values()
        .filter_map(|node| node.metadata.annotations);
    ensure!(
        annotations
            .flatten()
            .any(|(key, _)| key == labels::CAPACITY_FREED_AT)
    );
    scene.end().await;
    Ok(())
}

/// Criterion 17: with the service down and the webhooks as they are by default, our objects, pods and nodes can be made,
/// changed and deleted.
#[tokio::test]
async fn criterion_17_nothing_is_refused_while_the_service_is_down() -> Result<()> {
    let mut scene = scene().await?;
    let manifests = scene
        .mortise
        .webhook_manifests(&["--scheduler-names", "--namespace", "kube-system"])
        .await?;
    scene.plane.apply_yaml(&manifests).await?;
    let labelled = json!({ "apiVersion": "v1", "kind": "Namespace",
        "metadata": { "name": "team", "labels": { labels::SCHEDULER_NAME: "second" } } });
    scene.apply(&[labelled]).await?;
    scene.mortise.kill9().await;

    scene
        .apply(&[kwok_class(), pool("default", &[ON_DEMAND], json!({}))])
        .await?;
    let client = scene.plane.client();
    let pools: Api<NodePool> = Api::all(client.clone());
    let classes: Api<KwokNodeClass> = Api::all(client.clone());
    let patch = Patch::Merge(json!({ "spec": { "weight": 7 } }));
    pools
        .patch("default", &PatchParams::default(), &patch)
        .await?;
    let label = Patch::Merge(json!({ "metadata": { "labels": { "team": "a" } } }));
    classes
        .patch("default", &PatchParams::default(), &label)
        .await?;
    pools.delete("default", &DeleteParams::default()).await?;
    classes.delete("default", &DeleteParams::default()).await?;

    let of_team: Api<Pod> = Api::namespaced(client.clone(), "team");
    let made: Pod = serde_json::from_value(pod("one", "one", ("1", "1Gi"), json!({})))?;
    let made = wait_until("a pod of the team", SOON, || async {
        // Its namespace's service account comes a moment after the namespace.
        Ok(of_team.create(&PostParams::default(), &made).await?)
    })
    .await?;
    let scheduler = made.spec.and_then(|spec| spec.scheduler_name);
    ensure!(
        scheduler.as_deref() == Some("default-scheduler"),
        "{scheduler:?}"
    );
    of_team
        .patch("one", &PatchParams::default(), &label)
        .await?;
    of_team
        .delete("one", &DeleteParams::default().grace_period(0))
        .await?;
    let nodes: Api<Node> = Api::all(client);
    let made: Node = serde_json::from_value(json!({ "metadata": { "name": "plain" } }))?;
    nodes.create(&PostParams::default(), &made).await?;
    nodes
        .patch("plain", &PatchParams::default(), &label)
        .await?;
    nodes.delete("plain", &DeleteParams::default()).await?;
    scene.end().await;
    Ok(())
}

/// Where kube-scheduler cannot be configured: pods of a labelled namespace name a second one, which asks the extender.
#[tokio::test]
async fn pods_of_a_labelled_namespace_go_to_the_second_scheduler() -> Result<()> {
    let mut scene = Scene::start(Setting::default()).await?;
    one_node(&scene).await?;
    let manifests = scene
        .mortise
        .webhook_manifests(&["--scheduler-names", "--namespace", "kube-system"])
        .await?;
    scene.plane.apply_yaml(&manifests).await?;
    let labels = json!({ labels::SCHEDULER_NAME: "second" });
    scene
        .apply(&[json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "team", "labels": labels } })])
        .await?;
    let namespaces: Api<Namespace> = Api::all(scene.plane.client());
    let label = Patch::Merge(json!({ "metadata": { "labels": labels } }));
    namespaces
        .patch("kube-system", &PatchParams::default(), &label)
        .await?;

    let probe = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let named = async |namespace: &str, over: Value| -> Result<String> {
        let api: Api<Pod> = Api::namespaced(scene.plane.client(), namespace);
        let body: Pod = serde_json::from_value(pod("probe", "probe", ("100m", "64Mi"), over))?;
        let made = api.create(&probe, &body).await?;
        let name = made.spec.and_then(|spec| spec.scheduler_name);
        name.context("a scheduler's name")
    };
    wait_until("the webhook to be asked", SOON, || async {
        let name = named("team", json!({})).await?;
        ensure!(name == "second", "{name}");
        Ok(())
    })
    .await?;
    let own = named("team", json!({ "schedulerName": "own" })).await?;
    ensure!(own == "own", "who names one keeps it: {own}");
    for namespace in ["default", "kube-system"] {
        let name = wait_until("its service account", SOON, || named(namespace, json!({}))).await?;
        ensure!(name == "default-scheduler", "{namespace}: {name}");
    }

    let mut second = SchedulerOptions::with_extender(scene.mortise.extender()?);
    "second".clone_into(&mut second.scheduler_name);
    scene.plane.start_scheduler(&second).await?;
    let of_team: Api<Pod> = Api::namespaced(scene.plane.client(), "team");
    let body: Pod = serde_json::from_value(pod("one", "one", ("100m", "64Mi"), json!({})))?;
    of_team.create(&PostParams::default(), &body).await?;
    place(&of_team, "one").await?;
    ensure!(calls(&scene, "filter").await? > 0.0, "it asks the extender");
    scene.end().await;
    Ok(())
}

/// What `mortise manifests scheduler --second-scheduler` writes, an API server takes, and its configuration is the recommended one.
#[tokio::test]
async fn the_second_scheduler_is_as_recommended() -> Result<()> {
    let scene = Scene::start(Setting::default()).await?;
    let command = [
        "manifests",
        "scheduler",
        "--second-scheduler",
        "--name",
        "second",
    ];
    let manifests = Mortise::output(&command).await?;
    let objects = scene.plane.apply_yaml(&manifests).await?;
    let kinds: Vec<String> = objects
        .iter()
        .filter_map(|object| Some(object.types.as_ref()?.kind.clone()))
        .collect();
    ensure!(
        kinds.len() == 8 && kinds.iter().any(|kind| kind == "Deployment"),
        "{kinds:?}"
    );
    let maps: Api<ConfigMap> = Api::namespaced(scene.plane.client(), "kube-system");
    let data = maps.get("second").await?.data.context("data")?;
    let config = data.get("config.yaml").context("a configuration")?;
    ensure!(config.contains("\"schedulerName\": \"second\""), "{config}");
    let file = scene.plane.dir().join("second.yaml");
    std::fs::write(&file, config)?;
    let file = file.display().to_string();
    let found = Mortise::output(&["check", "scheduler", &file]).await?;
    ensure!(found.contains("no differences"), "{found}");
    scene.end().await;
    Ok(())
}

/// What no answer may hold.
const SECRET: &str = "correct-horse-battery-staple";

/// Criterion 18: every debug path, the page's data among them (which all users of a cluster may otherwise read: the role
/// `system:discovery` lets them get everything below `/api`), refuses callers without a token (401) and without the right (403), answers those who have it
/// (200), and shows no value of an environment variable and nothing of a Secret.
#[tokio::test]
async fn criterion_18_debug_paths_are_for_those_who_may() -> Result<()> {
    let everything = json!({ "nonResourceURLs": ["/debug/*"], "verbs": ["get", "post"] });
    let setting = Setting {
        insecure_debug: false,
        manifests: vec![reader_and_stranger(everything)],
        ..Setting::default()
    };
    let scene = Scene::start(setting).await?;
    let large = types(&["c-16x-amd64-linux"]);
    let with_secrets = json!({ "containers": [{
        "name": "main", "image": "registry.test/main", "env": [{ "name": "PASSWORD", "value": SECRET }],
        "resources": { "requests": { "cpu": "1" } },
    }] });
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "words" }, "stringData": { "words": SECRET } });
    scene
        .apply(&[
            kwok_class(),
            pool("default", &[large, ON_DEMAND], json!({})),
            secret,
            pod("runs", "runs", ("1", "1Gi"), with_secrets.clone()),
        ])
        .await?;
    let on = place(&pods(&scene), "runs").await?;
    let mut waits = with_secrets;
    waits["nodeSelector"] = json!({ "nowhere": "true" });
    scene
        .apply(&[pod("waits", "waits", ("1", "1Gi"), waits)])
        .await?;
    let (claim, _) = scene.claims().await?.pop_first().context("a claim")?;

    let anonymous = scene.mortise.http()?;
    let (reader, stranger) = (
        scene.caller("reader").await?,
        scene.caller("stranger").await?,
    );
    wait_until(
        "the reader's right and the pod to be known",
        SOON,
        || async {
            let reply = reader.get(&scene.mortise.url("debug/pending")).await?;
            ensure!(
                reply.status == 200 && reply.body.contains("default/waits"),
                "{reply:?}"
            );
            Ok(())
        },
    )
    .await?;
    let asked = serde_json::to_value(pods(&scene).get("waits").await?)?;
    let body = json!({ "Pod": asked, "NodeNames": [on, "stranger"] });
    let (of_node, of_claim) = (
        format!("debug/explain?node={on}"),
        format!("debug/explain?nodeclaim={claim}"),
    );
    let gets = [
        "debug/config",
        "debug/snapshot",
        "debug/pending",
        "debug/nominations",
        "debug/decisions?limit=1000",
        "debug/extender?limit=1000",
        "debug/explain?pod=waits",
        "debug/explain?pod=runs",
        "debug/explain?nodepool=default",
        &of_node,
        &of_claim,
        "api/v1/state",
    ];
    let posts = ["debug/simulate/filter", "debug/simulate/prioritize"];
    let paths = gets.iter().map(|path| (*path, false));
    for (path, post) in paths.chain(posts.map(|path| (path, true))) {
        let url = scene.mortise.url(path);
        let ask = async |http: &Http| match post {
            true => http.post(&url, &body).await,
            false => http.get(&url).await,
        };
        for (http, status) in [(&anonymous, 401), (&stranger, 403), (&reader, 200)] {
            let reply = ask(http).await?;
            ensure!(
                reply.status == status,
                "{path}: {} instead of {status}: {}",
                reply.status,
                reply.body
            );
            ensure!(!reply.body.contains(SECRET), "{path} tells a secret");
        }
        let text = reader.clone().with_header("Accept", "text/plain");
        let reply = ask(&text).await?;
        ensure!(
            reply.status == 200 && !reply.body.contains(SECRET),
            "{path} as text: {}",
            reply.status
        );
    }
    scene.end().await;
    Ok(())
}
