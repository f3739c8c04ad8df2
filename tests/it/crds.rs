//! The generated definitions on a real API server: what was recorded as accepted is accepted, what was refused is refused.

use std::collections::BTreeMap;
use std::io::Read as _;

use anyhow::{Context as _, Result, bail, ensure};
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, PostParams};
use kube::core::GroupVersionKind;
use kube::{Client, Error};
use mortise_tests::harness::{ControlPlane, Mortise, wait_until};
use serde::Deserialize;
use serde_json::Value;

use crate::scene::{SOON, turn};

const RECORDED: &[u8] = include_bytes!("../data/facts/crd_admission.jsonl.gz");

#[derive(Deserialize)]
struct Case {
    accepted: bool,
    /// `core` or `aws`: the set of definitions.
    crds: String,
    id: String,
    /// `create` or `update`.
    op: String,
    object: Value,
    /// The object before an update.
    previous: Option<Value>,
}

fn recorded(set: &str) -> Result<Vec<Case>> {
    let mut text = String::new();
    flate2::read::GzDecoder::new(RECORDED).read_to_string(&mut text)?;
    let cases: Result<Vec<Case>, _> = text.lines().map(serde_json::from_str).collect();
    let mut cases = cases?;
    cases.retain(|case| case.crds == set);
    Ok(cases)
}

fn api(client: &Client, object: &Value) -> Result<(Api<DynamicObject>, DynamicObject)> {
    let object: DynamicObject = serde_json::from_value(object.clone())?;
    let types = object.types.as_ref().context("kind")?;
    let plurals = BTreeMap::from([
        ("NodePool", "nodepools"),
        ("NodeClaim", "nodeclaims"),
        ("NodeOverlay", "nodeoverlays"),
        ("EC2NodeClass", "ec2nodeclasses"),
    ]);
    let plural = plurals
        .get(types.kind.as_str())
        .with_context(|| format!("kind {}", types.kind))?;
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::try_from(types)?, plural);
    Ok((Api::all_with(client.clone(), &resource), object))
}

/// Whether the API server takes it. Only a refusal of the object itself counts as one.
fn verdict(result: Result<DynamicObject, Error>) -> Result<(bool, String)> {
    match result {
        Ok(_) => Ok((true, String::new())),
        Err(Error::Api(status)) if status.code == 422 || status.code == 400 => {
            Ok((false, status.message))
        }
        Err(error) => Err(error.into()),
    }
}

async fn answer(client: &Client, case: &Case) -> Result<(bool, String)> {
    let dry = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let (api, object) = api(client, &case.object)?;
    match (case.op.as_str(), &case.previous) {
        ("create", None) => verdict(api.create(&dry, &object).await),
        ("update", Some(previous)) => {
            let (_, previous) = self::api(client, previous)?;
            let name = previous.metadata.name.clone().context("name")?;
            let stored = api
                .create(&PostParams::default(), &previous)
                .await
                .context("the object before the update")?;
            let mut object = object;
            object.metadata.resource_version = stored.metadata.resource_version;
            let answer = verdict(api.replace(&name, &dry, &object).await);
            api.delete(&name, &DeleteParams::default()).await?;
            wait_until("the object to be gone", SOON, || async {
                ensure!(api.get_opt(&name).await?.is_none(), "still there");
                Ok(())
            })
            .await?;
            answer
        }
        (op, _) => bail!("op {op}"),
    }
}

async fn agrees(set: &str, provider: &str) -> Result<()> {
    let _turn = turn().await?;
    let crds = Mortise::output(&["manifests", "crds", "--provider", provider]).await?;
    let plane = Box::pin(ControlPlane::builder().manifests(&crds).start()).await?;
    let client = plane.client();
    let cases = recorded(set)?;
    let mut differ = Vec::new();
    for case in &cases {
        let (accepted, message) = answer(&client, case)
            .await
            .with_context(|| format!("case {}", case.id))?;
        if accepted != case.accepted {
            let said = if accepted {
                "accepted".to_owned()
            } else {
                format!("refused: {message}")
            };
            differ.push(format!(
                "{} {}: {said}\n  {}",
                case.op, case.id, case.object
            ));
        }
    }
    ensure!(
        !cases.is_empty() && differ.is_empty(),
        "{} of {} differ:\n{}",
        differ.len(),
        cases.len(),
        differ.join("\n")
    );
    plane.stop().await;
    Ok(())
}

#[tokio::test]
async fn the_core_kinds_agree_with_the_recorded_answers() -> Result<()> {
    agrees("core", "kwok").await
}

#[tokio::test]
async fn the_kinds_of_aws_agree_with_the_recorded_answers() -> Result<()> {
    agrees("aws", "aws").await
}
