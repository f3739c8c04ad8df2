//! Recorded tagging and garbage collection of instances, against ours.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use mortise_apis::karpenter::nodeclaim::NodeClaim;

use super::instances::{Stage, block_on};
use super::replay::{Case, Difference, resolved, score};
use crate::instances::TAGGED_ANNOTATIONS;

/// The annotations that the recorded operation wrote, of those that are about tags.
fn recorded_annotations(case: &Case) -> BTreeMap<String, String> {
    let changes = case.expect["changes"].as_array();
    let written = changes.into_iter().flatten();
    let all = written.flat_map(|each| {
        each["object"]["metadata"]["annotations"]
            .as_object()
            .cloned()
    });
    all.flatten()
        .filter(|(key, _)| TAGGED_ANNOTATIONS.contains(&key.as_str()))
        .filter_map(|(key, value)| Some((key, value.as_str()?.to_owned())))
        .collect()
}

async fn tag(case: &Case) -> Result<(), Difference> {
    let stage = Stage::of(case, case);
    let claim: NodeClaim = serde_json::from_value(case.given["args"]["object"].clone()).unwrap();
    let tagged = stage.cache.tag(&claim).await;
    stage.replay.settled()?;
    match tagged {
        Ok(ours) if ours == recorded_annotations(case) => Ok(()),
        Ok(ours) => Err(format!("ours {ours:?}, recorded {:?}", case.expect["changes"]).into()),
        Err(ours) if !case.expect["error"].is_null() => {
            drop(ours);
            Ok(())
        }
        Err(ours) => Err(format!("ours fails: {ours}").into()),
    }
}

/// What garbage collection decides is the decider's, which is compared in its own crate; here the calls that follow from it.
async fn collect(case: &Case) -> Result<(), Difference> {
    let effects = case.expect["effects"].as_array();
    let ended: BTreeSet<&str> = effects
        .into_iter()
        .flatten()
        .filter(|effect| effect["op"] == "cloudprovider.Delete")
        .filter_map(|effect| effect["args"]["providerID"].as_str())
        .collect();
    let mut calls = case.clone();
    // The recorded calls of many terminations at once are those of their batches, which are not of this case.
    let is_short = ended.len() > 1 && calls.calls.len() == 1;
    let looks = calls.calls.len();
    calls
        .calls
        .retain(|call| call.op != "DescribeInstances" || call.input["InstanceIds"].is_null());
    let looks = looks - calls.calls.len();
    let stage = Stage::of(case, &calls);
    let listed = stage
        .cache
        .list()
        .await
        .map_err(|error| error.to_string())?;
    let recorded = resolved(&case.calls[0].out)["Reservations"].clone();
    let recorded: BTreeSet<(String, Option<i64>, bool)> = recorded
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|each| each["Instances"].as_array())
        .flatten()
        .map(|each| {
            let launched = each["LaunchTime"]
                .as_str()
                .and_then(|time| time.parse::<Timestamp>().ok());
            (
                each["InstanceId"].as_str().unwrap_or_default().to_owned(),
                launched.map(Timestamp::as_second),
                each["State"]["Name"] == "shutting-down",
            )
        })
        .collect();
    let ours = listed.iter().map(|each| {
        let id = each.provider_id.rsplit('/').next().unwrap_or_default();
        (
            id.to_owned(),
            each.created.map(Timestamp::as_second),
            each.terminating,
        )
    });
    let ours: BTreeSet<_> = ours.collect();
    if ours != recorded {
        return Err(format!("list: ours {ours:?}, recorded {recorded:?}").into());
    }
    if !is_short {
        let endings = ended.iter().map(|id| async {
            let id = (*id).into();
            stage.cache.terminate(&id).await
        });
        for ending in futures::future::join_all(endings).await {
            ending.map_err(|error| error.to_string())?;
        }
    }
    stage.replay.settled()?;
    if looks > 0 {
        let why = "an instance that was listed a moment ago is ended without another look at it";
        return Err(Difference::Meant(why));
    }
    Ok(())
}

#[test]
fn tags_and_garbage_collection_are_as_recorded() {
    score("nodeclaim_controllers.jsonl", |case| {
        match case.op.rsplit('/').next().unwrap_or_default() {
            "tagging.Reconcile" => block_on(tag(case)),
            "garbagecollection.Reconcile" => block_on(collect(case)),
            _ => Err(format!("{} is not replayed", case.op).into()),
        }
    });
}
