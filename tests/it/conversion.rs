//! `v1beta1` and `v1` on a real API server, converted by mortise.

use anyhow::{Context as _, Result, ensure};
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use mortise_tests::harness::{ControlPlane, Mortise, MortiseOptions, wait_until};
use serde_json::{Value, json};

use crate::scene::{SOON, turn};

fn api(plane: &ControlPlane, version: &str, kind: &str, plural: &str) -> Api<DynamicObject> {
    let group = if kind == "EC2NodeClass" {
        "karpenter.k8s.aws"
    } else {
        "karpenter.sh"
    };
    let kind = GroupVersionKind::gvk(group, version, kind);
    Api::all_with(
        plane.client(),
        &ApiResource::from_gvk_with_plural(&kind, plural),
    )
}

fn object(value: Value) -> Result<DynamicObject> {
    Ok(serde_json::from_value(value)?)
}

fn old_pool() -> Value {
    json!({
        "apiVersion": "karpenter.sh/v1beta1",
        "kind": "NodePool",
        "metadata": { "name": "old" },
        "spec": {
            "disruption": { "consolidationPolicy": "WhenUnderutilized", "consolidateAfter": "Never", "expireAfter": "48h" },
            "template": { "spec": {
                "nodeClassRef": { "name": "old" },
                "kubelet": { "maxPods": 20 },
                "requirements": [{ "key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"] }],
            } },
        },
    })
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "one story, told in order")]
async fn both_versions_are_served_and_nothing_is_lost() -> Result<()> {
    let _turn = turn().await?;
    // Both sets: this mortise has the kwok provider, and converts what belongs to the other too.
    let mut crds = Mortise::output(&["manifests", "crds"]).await?;
    crds.push_str(&Mortise::output(&["manifests", "crds", "--provider", "aws"]).await?);
    let plane = Box::pin(ControlPlane::builder().manifests(&crds).start()).await?;
    let options = MortiseOptions::with_flags(&["--conversion-webhook"]);
    let mortise = Mortise::start(&plane, options).await?;
    mortise.wait_ready().await?;
    let (now, older) = (
        api(&plane, "v1", "NodePool", "nodepools"),
        api(&plane, "v1beta1", "NodePool", "nodepools"),
    );

    // Not asked for, not served.
    let refused = older
        .create(&PostParams::default(), &object(old_pool())?)
        .await;
    ensure!(
        matches!(&refused, Err(kube::Error::Api(status)) if status.code == 404),
        "{refused:?}"
    );
    let url = mortise.url("");
    let ca = plane
        .dir()
        .join("mortise-certs/ca.crt")
        .display()
        .to_string();
    let both = [
        "manifests",
        "crds",
        "--provider",
        "aws",
        "--conversion",
        "--url",
        &url,
        "--ca-file",
        &ca,
    ];
    plane.apply_yaml(&Mortise::output(&both).await?).await?;
    wait_until("v1beta1 to be served", SOON, || async {
        older.list(&kube::api::ListParams::default()).await?;
        Ok(())
    })
    .await?;

    // Written in the older version, read in both.
    older
        .create(&PostParams::default(), &object(old_pool())?)
        .await?;
    let read = serde_json::to_value(now.get("old").await?)?;
    let disruption = &read["spec"]["disruption"];
    ensure!(
        disruption["consolidationPolicy"] == "WhenEmptyOrUnderutilized",
        "{read:#}"
    );
    ensure!(disruption["consolidateAfter"] == "Never", "{read:#}");
    ensure!(disruption.get("expireAfter").is_none(), "{read:#}");
    let template = &read["spec"]["template"]["spec"];
    ensure!(template["expireAfter"] == "48h", "{read:#}");
    ensure!(
        template["nodeClassRef"]
            == json!({ "group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "old" }),
        "{read:#}"
    );
    let again = serde_json::to_value(older.get("old").await?)?;
    for at in [
        "/spec/disruption/consolidationPolicy",
        "/spec/disruption/consolidateAfter",
        "/spec/disruption/expireAfter",
        "/spec/template/spec",
    ] {
        ensure!(
            again.pointer(at) == old_pool().pointer(at),
            "{at}: {again:#}"
        );
    }

    // Written in the newer one, edited in the older one: what that cannot hold is still there.
    let pool = json!({
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": { "name": "now" },
        "spec": {
            "disruption": { "consolidationPolicy": "Balanced", "consolidateAfter": "5m", "budgets": [{ "nodes": "20%", "reasons": ["Drifted"] }] },
            "template": { "spec": {
                "terminationGracePeriod": "1h",
                "nodeClassRef": { "group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "c" },
                "requirements": [{ "key": "karpenter.k8s.aws/instance-cpu", "operator": "Gte", "values": ["4"] }],
            } },
        },
    });
    let created = serde_json::to_value(now.create(&PostParams::default(), &object(pool)?).await?)?;
    let view = serde_json::to_value(older.get("now").await?)?;
    ensure!(
        view["spec"]["disruption"]["consolidationPolicy"] == "WhenUnderutilized",
        "{view:#}"
    );
    let weight = json!({ "spec": { "weight": 7 } });
    older
        .patch("now", &PatchParams::default(), &Patch::Merge(&weight))
        .await?;
    let mut edited = serde_json::to_value(now.get("now").await?)?;
    let weight = edited["spec"]
        .as_object_mut()
        .context("spec")?
        .remove("weight");
    ensure!(weight == Some(json!(7)), "{edited:#}");
    ensure!(
        edited["spec"] == created["spec"],
        "{edited:#} is not {created:#}"
    );

    // Node classes.
    let old_class = json!({
        "apiVersion": "karpenter.k8s.aws/v1beta1",
        "kind": "EC2NodeClass",
        "metadata": { "name": "old" },
        "spec": {
            "amiFamily": "AL2",
            "role": "nodes",
            "subnetSelectorTerms": [{ "tags": { "a": "b" } }],
            "securityGroupSelectorTerms": [{ "tags": { "a": "b" } }],
        },
    });
    let classes = |version| api(&plane, version, "EC2NodeClass", "ec2nodeclasses");
    classes("v1beta1")
        .create(&PostParams::default(), &object(old_class)?)
        .await?;
    let read = serde_json::to_value(classes("v1").get("old").await?)?;
    ensure!(
        read["spec"]["amiSelectorTerms"] == json!([{ "alias": "al2@latest" }]),
        "{read:#}"
    );
    ensure!(
        read["spec"]["metadataOptions"]["httpPutResponseHopLimit"] == 2,
        "{read:#}"
    );

    // kubectl shows the older version too, and what is said about it.
    let shown = plane
        .kubectl(&["get", "nodepools.v1beta1.karpenter.sh"])
        .await?;
    ensure!(
        shown.stdout.contains("now") && shown.stderr.contains("mortise migrate"),
        "{shown:?}"
    );
    let counted = mortise
        .metric("mortise_webhook_calls_total", &["call=\"converted\""])
        .await?;
    ensure!(counted > 0.0, "{}", mortise.metrics().await?);

    let malformed = mortise
        .http()?
        .post(
            &mortise.url("conversion/v1"),
            &json!({ "kind": "NodePool" }),
        )
        .await?;
    ensure!(malformed.status == 400, "{malformed:?}");
    plane.stop().await;
    Ok(())
}
