//! Manifests with one mistake each, created through a real API server: its answer is the one that the mistake deserves.

use anyhow::{Context as _, Result, ensure};
use http::Request;
use json_patch::merge;
use kube::client::Body;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::aws_account::Account;
use crate::objects::good;
use crate::scene::{SOON, Scene};
use mortise_tests::harness::wait_until;

const BAD: &str = include_str!("../../webhooks/tests/data/bad_manifests.yaml");

/// Where the answer is another than the table's, and why.
const OTHERWISE: [(&str, &[&str]); 5] = [
    // The account has other instance types than the table's cluster: another requirement removes the last, and another
    // number of families is left.
    ("nothing is left", &["no instance type is left", "In [m5]"]),
    ("minValues out of reach", &[]),
    // Changes of claims are not asked about: this is the definition's own rule.
    ("a spec of a claim changed", &["spec is immutable"]),
    // The API server takes unknown fields out before it asks, and says so itself (kubectl then refuses the file).
    (
        "time to live of an old release",
        &["unknown field", "spec.ttlSecondsUntilExpired"],
    ),
    (
        "requirements in the old place",
        &["unknown field", "spec.requirements"],
    ),
];

#[derive(Deserialize)]
struct Bad {
    name: String,
    kind: String,
    #[serde(default)]
    set: String,
    #[serde(default)]
    answer: String,
    change: Value,
    from: Option<Value>,
    says: [String; 4],
}

fn path(kind: &str) -> Result<&'static str> {
    Ok(match kind {
        "NodePool" => "/apis/karpenter.sh/v1/nodepools",
        "NodeClaim" => "/apis/karpenter.sh/v1/nodeclaims",
        "NodeOverlay" => "/apis/karpenter.sh/v1alpha1/nodeoverlays",
        "NodePoolPolicy" => "/apis/mortise.sh/v1alpha1/nodepoolpolicies",
        "CapacityBuffer" => "/apis/autoscaling.x-k8s.io/v1beta1/namespaces/default/capacitybuffers",
        "EC2NodeClass" => "/apis/karpenter.k8s.aws/v1/ec2nodeclasses",
        other => anyhow::bail!("no path of {other}"),
    })
}

/// Writes over an object that may be changed by its controller meanwhile: a conflict is not the answer that is asked for.
async fn over(scene: &Scene, path: &str, object: &Value) -> Result<(u16, String, Vec<String>)> {
    let (read, _) = path.split_once('?').context("a query")?;
    wait_until("a write without a conflict", SOON, || async {
        let mut object = object.clone();
        let request = Request::get(read).body(Body::empty())?;
        let response = scene.plane.client().send(request).await?;
        let body = response.into_body().collect_bytes().await?;
        let now: Value = serde_json::from_slice(&body)?;
        object["metadata"]["resourceVersion"] = now["metadata"]["resourceVersion"].clone();
        let answer = write(scene, "PUT", path, &object).await?;
        ensure!(
            !answer.1.contains("the object has been modified"),
            "{}",
            answer.1
        );
        Ok(answer)
    })
    .await
}

/// Status, message and warnings of one write.
async fn write(
    scene: &Scene,
    method: &str,
    path: &str,
    object: &Value,
) -> Result<(u16, String, Vec<String>)> {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", "application/json")
        .body(Body::from(object.to_string().into_bytes()))?;
    let response = scene.plane.client().send(request).await?;
    let warnings = response.headers().get_all("warning");
    let warnings = warnings
        .iter()
        .map(|value| Ok(String::from_utf8(value.as_bytes().to_vec())?.replace("\\\"", "\"")))
        .collect::<Result<_>>()?;
    let status = response.status().as_u16();
    let body = response.into_body().collect_bytes().await?;
    let body: Value = serde_json::from_slice(&body)?;
    let message = body["message"].as_str().unwrap_or_default().to_owned();
    Ok((status, message, warnings))
}

#[tokio::test]
async fn each_is_answered_through_the_api_server() -> Result<()> {
    let account = Account::open().await?;
    let (scene, _nodes) = account.scene(&[]).await?;
    wait_until("the catalogue", SOON, || async {
        let snapshot = scene.mortise.debug("snapshot").await?;
        ensure!(
            snapshot["counts"]["catalogs"].as_u64() >= Some(1),
            "{snapshot}"
        );
        Ok(())
    })
    .await?;
    let webhooks = scene.mortise.webhook_manifests(&["--fail"]).await?;
    scene.plane.apply_yaml(&webhooks).await?;
    wait_until("the API server to ask the webhooks", SOON, || async {
        let mut probe = good("NodePool")?;
        merge(&mut probe, &json!({ "metadata": { "name": "probe" }, "spec": { "template": { "spec": { "nodeClassRef": { "group": null, "kind": null } } } } }));
        let (status, message, _) = write(&scene, "POST", "/apis/karpenter.sh/v1/nodepools?dryRun=All", &probe).await?;
        ensure!(status == 201, "{status}: {message}");
        Ok(())
    })
    .await?;

    let rows: Vec<Bad> = serde_saphyr::from_str(BAD)?;
    let (mut asked, mut wrong) = (0, Vec::new());
    for (number, row) in rows
        .iter()
        .enumerate()
        .filter(|(_, row)| row.set.is_empty())
    {
        let name = json!({ "metadata": { "name": format!("case-{number}") } });
        let path = path(&row.kind)?;
        let mut object = good(&row.kind)?;
        merge(&mut object, &name);
        let path = match &row.from {
            None => format!("{path}?dryRun=All"),
            Some(from) => {
                let mut before = object.clone();
                merge(&mut before, from);
                let (status, message, _) = write(&scene, "POST", path, &before).await?;
                ensure!(status == 201, "{}: {status} {message}", row.name);
                format!("{path}/case-{number}?dryRun=All")
            }
        };
        merge(&mut object, &row.change);
        let answer = match &row.from {
            None => write(&scene, "POST", &path, &object).await?,
            Some(_) => over(&scene, &path, &object).await?,
        };
        let (status, message, warnings) = answer;
        asked += 1;
        let is_warned = row.answer == "warning";
        let otherwise = OTHERWISE.iter().find(|(name, _)| *name == row.name);
        let parts: Vec<&str> = match otherwise {
            Some((_, parts)) => parts.to_vec(),
            None => row.says.iter().map(String::as_str).collect(),
        };
        let says = |text: &String| parts.iter().all(|part| text.contains(part));
        let fits = match is_warned {
            true => (200..300).contains(&status) && (parts.is_empty() || warnings.iter().any(says)),
            false => status >= 400 && says(&message),
        };
        if !fits {
            wrong.push(format!(
                "{}: {parts:?} is not in {status} {message:?} {warnings:?}",
                row.name
            ));
        }
    }
    ensure!(asked >= 60, "{asked} manifests");
    ensure!(
        wrong.is_empty(),
        "{} of {asked}:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    scene.end().await;
    account.end().await
}
