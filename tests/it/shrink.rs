//! `mortise simulate --shrink`: what is left of a scenario that violates an invariant violates it still.

use anyhow::{Context as _, Result, ensure};
use mortise_tests::harness::StateDir;

use crate::command;

/// In Karpenter's way nothing says why pods wait that the limit of a NodePool keeps from running: in this simulator a violation. The rest
/// has nothing to do with it.
const SCENARIO: &str = r#"
apiVersion: mortise.sh/v1alpha1
kind: Scenario
metadata: { name: too-many }
spec:
  duration: 40m
  seed: 7
  spotShortagePercent: 3
  timeline:
    - { at: 2m, scale: { deployment: api, replicas: 4 } }
    - { at: 901s, scale: { deployment: web, replicas: 40 } }
    - { at: 16m, roll: { deployment: api } }
    - { at: 30m, interrupt: { count: 1 } }
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: { name: default }
spec:
  limits: { cpu: "10" }
  disruption: { consolidateAfter: 30s, budgets: [{ nodes: "2" }] }
  template:
    spec:
      nodeClassRef: { group: karpenter.k8s.aws, kind: EC2NodeClass, name: default }
      requirements: []
---
apiVersion: apps/v1
kind: Deployment
metadata: { name: web }
spec:
  replicas: 4
  template:
    metadata: { labels: { app: web } }
    spec: { containers: [{ name: main, image: registry.test/main, resources: { requests: { cpu: 400m, memory: 600Mi } } }] }
---
apiVersion: apps/v1
kind: Deployment
metadata: { name: api }
spec:
  replicas: 2
  template:
    metadata: { labels: { app: api } }
    spec: { containers: [{ name: main, image: registry.test/main, resources: { requests: { cpu: 300m } } }] }
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: { name: api }
spec: { maxUnavailable: 1, selector: { matchLabels: { app: api } } }
"#;

#[tokio::test]
async fn a_scenario_that_violates_an_invariant_is_made_small() -> Result<()> {
    let mut folder = StateDir::create("shrink")?;
    let file = folder.join("small.yaml");
    let path = file.display().to_string();
    let args = ["-", "--policy", "karpenter", "--shrink", path.as_str()];
    let played = command::run("simulate", &args, Some(SCENARIO)).await?;
    ensure!(played.code == 0, "{played:?}");
    let said = "1 timeline entries";
    ensure!(played.stderr.contains(said), "{}", played.stderr);

    let small = std::fs::read_to_string(&file)?;
    for gone in [
        "name: api",
        "deployment: api",
        "interrupt",
        "roll",
        "PodDisruptionBudget",
        "budgets",
        "spotShortage",
    ] {
        ensure!(!small.contains(gone), "{gone} is left:\n{small}");
    }
    for kept in [
        "limits",
        "deployment: web",
        "# Play it with: mortise simulate",
        "--policy karpenter",
    ] {
        ensure!(small.contains(kept), "{kept} is gone:\n{small}");
    }
    let args = [path.as_str(), "--policy", "karpenter", "-o", "json"];
    let again = command::run("simulate", &args, None).await?;
    let again: serde_json::Value = serde_json::from_str(&again.stdout)?;
    let violations = again["totals"]["violations"].as_array();
    let first = violations
        .and_then(|all| all.first())
        .context("a violation")?;
    ensure!(
        small.contains(first.as_str().unwrap_or_default()),
        "{first}:\n{small}"
    );
    std::fs::remove_file(&file)?;

    // mortise says why they wait: nothing to shrink, and no file.
    let args = ["-", "--shrink", path.as_str()];
    let played = command::run("simulate", &args, Some(SCENARIO)).await?;
    ensure!(
        played.code == 0 && played.stderr.contains("no invariant was violated"),
        "{played:?}"
    );
    ensure!(!file.exists(), "{path} was written");
    folder.discard();
    Ok(())
}
