//! Node overlays: a resource that only an overlay defines decides which instance type is launched.

use anyhow::{Context as _, Result, ensure};
use mortise_tests::harness::wait_until;
use serde_json::json;

use crate::objects::{ON_DEMAND, deployment, kwok_class, pool, types};
use crate::scene::{SOON, Scene, Setting};

#[tokio::test]
async fn a_resource_of_an_overlay_decides_what_is_launched() -> Result<()> {
    let scene = Scene::start(Setting {
        flags: vec!["--feature-gates=NodeOverlay=true".to_owned()],
        ..Setting::default()
    })
    .await?;
    let both = ["c-4x-amd64-linux", "m-4x-amd64-linux"];
    let overlay = json!({ "apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay", "metadata": { "name": "fuse" }, "spec": {
        "requirements": [{ "key": "node.kubernetes.io/instance-type", "operator": "In", "values": [both[1]] }],
        "capacity": { "example.com/fuse": "4" },
    } });
    scene
        .apply(&[
            overlay,
            kwok_class(),
            pool("default", &[types(&both), ON_DEMAND], json!({})),
        ])
        .await?;
    let mut wants = deployment("wants-fuse", 1, ("1", "1Gi"), json!({}));
    let resources = wants
        .pointer_mut("/spec/template/spec/containers/0/resources")
        .context("resources")?;
    resources["requests"]["example.com/fuse"] = json!("1");
    resources["limits"]["example.com/fuse"] = json!("1");
    // Without that resource the cheaper one is launched.
    scene
        .apply(&[
            wants,
            deployment(
                "plain",
                1,
                ("1", "1Gi"),
                json!({ "nodeSelector": { "node.kubernetes.io/instance-type": both[0] } }),
            ),
        ])
        .await?;
    wait_until("a node for each", SOON, || async {
        let claims = scene.claims().await?;
        ensure!(claims.len() == 2, "{:?}", claims.keys());
        let mut launched = Vec::new();
        for claim in claims.values() {
            let wanted = claim
                .spec
                .requirements
                .iter()
                .find(|each| each.key == "node.kubernetes.io/instance-type")
                .context("types")?;
            let overlaid =
                claim.annotation("karpenter.sh/capacity-overlay-applied") == Some("true");
            launched.push((wanted.values().to_vec(), overlaid));
        }
        launched.sort();
        let want = both.map(|name| (vec![name.to_owned()], name == both[1]));
        ensure!(launched == want, "{launched:?}");
        Ok(())
    })
    .await?;
    // The conditions of an overlay state whether it is active; of two equal ones, one reports the other.
    let twin = json!({ "apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay", "metadata": { "name": "a-twin" }, "spec": {
        "requirements": [{ "key": "node.kubernetes.io/instance-type", "operator": "In", "values": [both[1]] }],
        "capacity": { "example.com/fuse": "8" },
    } });
    scene.apply(&[twin]).await?;
    wait_until("the conditions of both", SOON, || async {
        let wide = ["get", "nodeoverlays", "-o", "jsonpath={range .items[*]}{.metadata.name} {range .status.conditions[*]}{.type}={.status} {.message};{end}{\"\\n\"}{end}"];
        let said = scene.plane.kubectl(&wide).await?.ok()?;
        let of = |name: &str| said.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
        ensure!(of("fuse").contains("Ready=True"), "{said}");
        ensure!(
            of("a-twin").contains("ValidationSucceeded=False conflict with another overlay: fuse"),
            "{said}"
        );
        Ok(())
    })
    .await?;
    scene.end().await;
    Ok(())
}
