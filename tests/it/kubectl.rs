//! What kubectl prints about our kinds: tables, explanations and descriptions that read well.

use anyhow::{Result, ensure};
use mortise_tests::harness::wait_until;
use serde_json::json;

use crate::objects::{LINUX, deployment, kwok_class, pool};
use crate::scene::{SOON, Scene};

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "one story, told in order")]
async fn tables_and_descriptions_read_well() -> Result<()> {
    let scene = Scene::kwok().await?;
    scene
        .apply(&[
            kwok_class(),
            pool(
                "default",
                &[LINUX],
                json!({ "weight": 7, "limits": { "cpu": "100" } }),
            ),
        ])
        .await?;
    scene
        .apply(&[deployment("web", 1, ("1", "1Gi"), json!({}))])
        .await?;
    scene.running("web", 1).await?;
    let run = async |args: &[&str]| -> Result<String> {
        let said = scene.plane.kubectl(args).await?;
        ensure!(said.code == 0, "{args:?}: {}", said.stderr);
        Ok(said.stdout)
    };
    // The columns are those of Karpenter, in its order; `-o wide` adds the rest.
    wait_until("the pool's line", SOON, || async {
        let table = run(&["get", "nodepools", "-o", "wide"]).await?;
        let rows: Vec<Vec<&str>> = table
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        ensure!(
            rows[0]
                == [
                    "NAME",
                    "NODECLASS",
                    "NODES",
                    "READY",
                    "AGE",
                    "WEIGHT",
                    "CPU",
                    "MEMORY"
                ],
            "{table}"
        );
        ensure!(
            rows.len() == 2
                && rows[1][..4] == ["default", "default", "1", "True"]
                && rows[1][5] == "7",
            "{table}"
        );
        Ok(())
    })
    .await?;
    let table = run(&["get", "nodeclaims", "-o", "wide"]).await?;
    let header: Vec<&str> = table
        .lines()
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    ensure!(
        header
            == [
                "NAME",
                "TYPE",
                "CAPACITY",
                "ZONE",
                "NODE",
                "READY",
                "AGE",
                "IMAGEID",
                "ID",
                "NODEPOOL",
                "NODECLASS",
                "DRIFTED"
            ],
        "{table}"
    );
    ensure!(table.contains("kwok://") && table.contains("c-"), "{table}");
    // Every field is explained, with its type and what may be written.
    let explained = run(&["explain", "nodepools.spec.disruption", "--recursive=false"]).await?;
    for part in [
        "budgets",
        "consolidateAfter",
        "consolidationPolicy",
        "WhenEmptyOrUnderutilized",
        "DESCRIPTION",
    ] {
        ensure!(explained.contains(part), "{part} is not in\n{explained}");
    }
    ensure!(!explained.contains("<no description>"), "{explained}");
    let described = run(&["describe", "nodepool", "default"]).await?;
    for part in [
        "Kind:         NodePool",
        "Conditions:",
        "NodeClassReady",
        "ValidationSucceeded",
        "Weight:  7",
        "Limits:",
    ] {
        ensure!(described.contains(part), "{part} is not in\n{described}");
    }
    // Short names and the category list what they should.
    let all = run(&["get", "karpenter", "--ignore-not-found"]).await?;
    ensure!(all.contains("nodepool.karpenter.sh/default"), "{all}");
    ensure!(all.contains("nodeclaim.karpenter.sh/default-"), "{all}");
    scene.end().await;
    Ok(())
}
