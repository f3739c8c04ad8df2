//! Nodes whose drain would never end are listed before anything waits for them, with what would free each, and no longer once it is
//! freed.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use mortise_tests::harness::wait_until;
use serde_json::{Value, json};

use crate::command;
use crate::objects::{budget, deployment, kwok_class, merged, never, small_pool};
use crate::scene::{SOON, Scene, on_node};

/// The pods of a workload, and the kind of what keeps their nodes.
const KEPT: [(&str, &str); 3] = [
    ("closed", "pdb_never_allows"),
    ("doubled", "multiple_pdbs"),
    ("annotated", "do_not_disrupt"),
];

/// The nodes that `/debug/disruption` lists: of each, the workload on it, the kind of the blocker, and what frees it.
async fn listed(scene: &Scene) -> Result<BTreeMap<String, (String, String)>> {
    let shown = scene.mortise.debug("disruption").await?;
    let nodes = shown["undrainable"].as_array().context("a list")?;
    let mut found = BTreeMap::new();
    for (app, _) in KEPT {
        let pods = scene.pods(app).await?;
        let has_a_pod =
            |node: &&Value| pods.iter().any(|pod| on_node(pod) == node["node"].as_str());
        for node in nodes.iter().filter(has_a_pod) {
            let blocker = &node["blockers"][0];
            let text = |key: &str| blocker[key].as_str().unwrap_or_default().to_owned();
            found.insert(app.to_owned(), (text("kind"), text("unblocks")));
        }
    }
    ensure!(found.len() == nodes.len(), "{found:?} of {shown}");
    Ok(found)
}

async fn wait_for(scene: &Scene, kept: &[(&str, &str)]) -> Result<BTreeMap<String, String>> {
    wait_until("the nodes that never drain", SOON, || async {
        let found = listed(scene).await?;
        let kinds = found.iter().map(|(app, (kind, _))| (&**app, &**kind));
        let kinds: BTreeMap<&str, &str> = kinds.collect();
        ensure!(kinds == kept.iter().copied().collect(), "{found:?}");
        let remedies = found.into_iter();
        Ok(remedies
            .map(|(app, (_, unblocks))| (app, unblocks))
            .collect())
    })
    .await
}

#[tokio::test]
async fn nodes_that_would_never_drain_are_listed_until_they_are_freed() -> Result<()> {
    let scene = Scene::kwok().await?;
    let of = |name: &str| deployment(name, 1, ("1500m", "256Mi"), json!({}));
    let protected = json!({ "spec": { "template": { "metadata": { "annotations": { "karpenter.sh/do-not-disrupt": "true" } } } } });
    let named = |name: &str| json!({ "metadata": { "name": name } });
    scene
        .apply(&[
            kwok_class(),
            small_pool("general", never()),
            of("free"),
            of("closed"),
            budget("closed", 1),
            of("doubled"),
            budget("doubled", 0),
            merged(budget("doubled", 0), named("second")),
            merged(of("annotated"), protected),
        ])
        .await?;
    for app in ["free", "closed", "doubled", "annotated"] {
        scene.running(app, 1).await?;
    }
    scene.settled(4).await?;
    let remedies = wait_for(&scene, &KEPT).await?;
    for (app, remedy) in [
        (
            "closed",
            "allow one unavailable pod in the budget, or run more than 1 pods",
        ),
        ("doubled", "let only one of doubled, second select it"),
        ("annotated", "remove the annotation"),
    ] {
        let said = remedies.get(app).context("a remedy")?;
        ensure!(said.contains(remedy), "{app}: {said}");
    }
    let url = scene.mortise.url("");
    let said = command::run("top", &["--url", &url], None).await?;
    for part in [
        "NEVER DRAINS BY ITSELF",
        "default/closed-",
        "default/annotated-",
    ] {
        ensure!(said.code == 0 && said.stdout.contains(part), "{said:?}");
    }
    for (_, kind) in KEPT {
        let label = format!("reason=\"{kind}\"");
        let counted = scene
            .mortise
            .metric("mortise_undrainable_nodes", &[&label])
            .await?;
        ensure!(counted == 1.0, "{kind}: {counted}");
    }

    // Each is freed as it says: a replica more, a budget less, no annotation.
    let kubectl = async |args: &[&str]| scene.plane.kubectl(args).await?.ok();
    kubectl(&["delete", "pdb", "second"]).await?;
    // kube-controller-manager computes a budget again when it changes.
    kubectl(&["annotate", "pdb", "doubled", "now=alone"]).await?;
    kubectl(&[
        "annotate",
        "pod",
        "-l",
        "app=annotated",
        "karpenter.sh/do-not-disrupt-",
    ])
    .await?;
    scene.scale("closed", 2).await?;
    scene.running("closed", 2).await?;
    wait_for(&scene, &[]).await?;
    ensure!(
        scene
            .mortise
            .metric("mortise_undrainable_nodes", &[])
            .await?
            == 0.0
    );
    scene.end().await;
    Ok(())
}
