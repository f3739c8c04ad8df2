//! Whole reconciles of a class: calls, and the object afterwards.

mod recorded;

use std::collections::BTreeSet;
use std::sync::Arc;

use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::karpenter::nodepool::NodePool;
use mortise_apis::node_class::NodeClassObject;
use mortise_aws_class::hash::HASH_VERSION;
use mortise_aws_class::spec::{Ec2NodeClass, KIND};
use mortise_cloudprovider::ResolveRequest;
use serde_json::{Value, json};

use self::recorded::{Recorded, objects, options};
use super::api::wire::{ApiCall, ApiError};
use super::api::{self, Answers};
use super::discovery::{now, paused};
use super::replay::{Case, Difference, score, score_of, table};
use crate::config::AwsConfig;
use crate::launch::DryRuns;
use crate::launch::templates::LaunchTemplates;
use crate::launch::tests::class;
use crate::node_class::{CachedNodeClass, PRICES_UNCERTAIN, Validation, ValidationInput, Validity};
use crate::offerings::region_offerings::RegionOfferings;
use crate::provider::AwsProvider;
use crate::sdk::cluster_info::ClusterInfoCache;
use crate::tags;
use mortise_aws_catalog::CapacityOptions;
use mortise_aws_catalog::node_settings::NodeSettings;

fn config(case: &Case) -> AwsConfig {
    let options = options(case);
    let core = table(case.given["coreOptions"].as_str().unwrap());
    let cluster = &case.given["cluster"];
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let percent = options["VMMemoryOverheadPercent"].as_f64().unwrap();
    AwsConfig {
        cluster_name: text(&options["ClusterName"]).unwrap(),
        cluster_endpoint: text(&cluster["endpoint"]),
        cluster_ca_bundle: text(&cluster["caBundle"]),
        service_cidr: text(&cluster["clusterCIDR"]),
        cluster_dns: text(&cluster["kubeDNSIP"]),
        kubernetes_version: text(&cluster["kubernetesVersion"]),
        isolated_vpc: options["IsolatedVPC"] == true,
        disable_dry_run: options["DisableDryRun"] == true
            || case.given["args"]["info"]["dryRunDisabled"] == true,
        reserved_capacity: core["FeatureGates"]["ReservedCapacity"] == true,
        shape: CapacityOptions {
            vm_overhead_ppm: format!("{:.0}", percent * 1e6).parse().unwrap(),
            reserved_enis: options["ReservedENIs"].as_i64().unwrap(),
            prefix_delegation: false,
            expressions: options["FeatureGates"]["NodeClassCEL"] == true,
        },
        ..AwsConfig::default()
    }
}
fn request(case: &Case) -> ResolveRequest {
    let mut object = case.given["args"]["object"].clone();
    object["apiVersion"] = json!("karpenter.k8s.aws/v1");
    object["kind"] = json!("EC2NodeClass");
    let class = NodeClassObject::deserialize(KIND.group.into(), KIND.kind.into(), object).unwrap();
    let (pools, claims): (Vec<Arc<NodePool>>, Vec<Arc<NodeClaim>>) =
        (objects(case, "NodePool"), objects(case, "NodeClaim"));
    ResolveRequest {
        node_pools: pools
            .into_iter()
            .filter(|each| each.node_class_key() == class.key)
            .collect(),
        claims: claims
            .into_iter()
            .filter(|each| each.node_class_key() == class.key)
            .collect(),
        class,
        nodes: Vec::new(),
    }
}

/// A status in an order of its own, without times.
fn comparable(status: &Value) -> Value {
    let mut status = match status {
        Value::Object(_) => status.clone(),
        _ => json!({}),
    };
    // One image with several sets of requirements has them in random order.
    if let Some(amis) = status.get_mut("amis").and_then(Value::as_array_mut) {
        for pair in amis.chunk_by_mut(|a, b| a["id"] == b["id"]) {
            pair.sort_by_key(Value::to_string);
        }
    }
    let Some(conditions) = status["conditions"].as_array_mut() else {
        status.as_object_mut().unwrap().remove("conditions");
        return status;
    };
    // The reference has none for prices.
    conditions.retain(|each| each["type"] != PRICES_UNCERTAIN);
    for each in conditions.iter_mut() {
        let fields = each.as_object_mut().unwrap();
        fields.remove("lastTransitionTime");
        // The order follows times.
        // The reference looks at instance types in random order.
        if fields["reason"] == "KubeletExpressionEvaluationFailed" {
            let text = fields["message"].as_str().unwrap_or_default();
            let mut parts = text.split("instance-type=");
            let mut same = parts.next().unwrap_or_default().to_owned();
            for part in parts {
                same.push_str("instance-type=?");
                same.push_str(
                    part.trim_start_matches(|c: char| c.is_alphanumeric() || c == '.' || c == '-'),
                );
            }
            fields["message"] = json!(same);
        }
        if fields["type"] == "Ready" {
            let text = fields["message"].as_str().unwrap_or_default().to_owned();
            let parts: BTreeSet<&str> = text.split(", ").collect();
            fields["message"] = json!(parts);
        }
    }
    conditions.sort_by_key(|each| each["type"].to_string());
    status
}

fn merge(into: &mut Value, patch: &Value) {
    for (key, value) in patch.as_object().into_iter().flatten() {
        match value {
            Value::Null => drop(into.as_object_mut().unwrap().remove(key)),
            value => into[key] = value.clone(),
        }
    }
}

fn differing(ours: &Value, recorded: &Value) -> String {
    let fields: BTreeSet<&String> = [ours, recorded]
        .into_iter()
        .filter_map(Value::as_object)
        .flat_map(serde_json::Map::keys)
        .collect();
    let mut all = Vec::new();
    for field in fields {
        if field == "conditions" {
            let rows = |status: &Value| status[field].as_array().cloned().unwrap_or_default();
            let (ours, recorded) = (rows(ours), rows(recorded));
            let only = |a: &[Value], b: &[Value]| {
                let only = a.iter().filter(|each| !b.contains(each));
                only.map(Value::to_string).collect::<Vec<_>>().join(" ")
            };
            if ours != recorded {
                all.push(format!(
                    "conditions: ours {}\n    recorded {}",
                    only(&ours, &recorded),
                    only(&recorded, &ours)
                ));
            }
        } else if ours[field] != recorded[field] {
            all.push(format!(
                "{field}: ours {}\n    recorded {}",
                ours[field], recorded[field]
            ));
        }
    }
    all.join("\n  ")
}

fn reconcile(case: &Case) -> Result<(), Difference> {
    let answers = Arc::new(Recorded::of(case));
    let clients = Arc::new(api::clients(Arc::clone(&answers) as Arc<dyn Answers>));
    let tables = mortise_aws_catalog::embedded_catalog().unwrap();
    let request = request(case);
    let resolved = paused(async {
        let offerings = Arc::new(RegionOfferings::as_recorded(Arc::clone(&clients), tables));
        let provider = AwsProvider::compose(clients, &Arc::new(config(case)), &offerings);
        provider.resolve_class(&request, now(case)).await
    });
    let before = &case.given["args"]["object"]["status"];
    let mut ours = match before {
        Value::Object(_) => before.clone(),
        _ => json!({}),
    };
    if let Ok(resolved) = &resolved {
        merge(&mut ours, resolved.status.as_ref().unwrap_or(&Value::Null));
    }
    if let Some(name) = ours["instanceProfile"].as_str()
        && let Some(recorded) = answers.profile(name)
    {
        ours["instanceProfile"] = json!(recorded);
    }
    let (ours, recorded) = (comparable(&ours), comparable(&answers.after["status"]));
    if let (Err(Difference::Found(text)), None) =
        (answers.replay.settled(), meant(case, &ours, &recorded))
    {
        return Err(format!("{text}\n  {}", differing(&ours, &recorded)).into());
    }
    match meant(case, &ours, &recorded) {
        _ if ours == recorded => Ok(()),
        Some(reason) => Err(Difference::Meant(reason)),
        None => Err(format!(
            "{}\n  result {:?}",
            differing(&ours, &recorded),
            resolved.map(|_| ())
        )
        .into()),
    }
}

/// Where we do better.
fn meant(case: &Case, ours: &Value, recorded: &Value) -> Option<&'static str> {
    let condition = |status: &Value, type_: &str, field: &str| {
        let mut all = status["conditions"].as_array().into_iter().flatten();
        let found = all.find(|each| each["type"] == type_);
        found.map_or(Value::Null, |found| found[field].clone())
    };
    if !case.expect["panic"].is_null() {
        return Some("images that fit no type are a condition, not a crash");
    }
    let images = ours["amis"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let windows = |ami: &Value| ami["requirements"].to_string().contains("windows");
    if condition(ours, "ValidationSucceeded", "reason") == "NoCompatibleAMI"
        && case.given["args"]["object"]["spec"]["amiFamily"] == "Custom"
        && images.iter().all(windows)
    {
        return Some(
            "images of Windows are not validated with a type made up for it when the class launches nodes of Linux",
        );
    }
    let error = case.expect["error"]["message"].as_str().unwrap_or_default();
    if error.contains("failed to discover any AMIs for alias")
        && condition(ours, "AMIsReady", "reason") == "AMINotFound"
    {
        return Some(
            "an alias under which nothing is published is a condition, not only an error in the log",
        );
    }
    let data = case.given["args"]["object"]["spec"]["userData"]
        .as_str()
        .unwrap_or_default();
    if data.len() > 12_000
        && condition(ours, "ValidationSucceeded", "reason") == "UserDataSizeLimitExceeded"
    {
        return Some("user data that EC2 would refuse is refused before it is sent");
    }
    let before = &case.given["args"]["object"]["status"];
    let group = "PlacementGroupReady";
    (condition(before, group, "reason") == "PlacementGroupNotFound"
        && condition(ours, group, "status") == "False"
        && condition(recorded, group, "status") == "True"
        && !case
            .calls
            .iter()
            .any(|call| call.op == "DescribePlacementGroups"))
    .then_some("a placement group that was not found a moment ago is not taken for found")
}

#[test]
fn classes_are_resolved_as_recorded() {
    score("nodeclass.jsonl", |case| match case.op.as_str() {
        "controllers/nodeclass.Controller.Reconcile" => reconcile(case),
        "controllers/nodeclass.Validation.Reconcile" => validated(case),
        other => Err(format!("no check for {other}").into()),
    });
}

/// An account in which nothing is offered, and nothing else is asked.
#[derive(Debug)]
struct Empty;

impl Answers for Empty {
    fn answer(&self, call: ApiCall) -> Result<Value, ApiError> {
        if call.op.starts_with("DescribeInstanceType") || call.op == "DescribeSpotPriceHistory" {
            return Ok(json!({}));
        }
        Err(ApiError::Transport(format!("unexpected {}", call.op)))
    }
}

/// Validation alone, of a class that still waits for something, or before it is known which types there are.
fn validated(case: &Case) -> Result<(), Difference> {
    let object: Ec2NodeClass =
        serde_json::from_value(case.given["args"]["object"].clone()).unwrap();
    let config = Arc::new(config(case));
    let clients = Arc::new(api::clients(Arc::new(Empty)));
    let templates = LaunchTemplates::new(Arc::clone(&clients), Arc::clone(&config));
    let dry_runs = DryRuns::new(
        Arc::clone(&clients),
        Arc::clone(&config),
        Arc::new(templates),
    );
    let validity = paused(async {
        let class = CachedNodeClass {
            settings: NodeSettings::read(&object.spec, config.shape).unwrap(),
            object,
            ..class()
        };
        let tables = mortise_aws_catalog::embedded_catalog().unwrap();
        let offerings = RegionOfferings::as_recorded(Arc::clone(&clients), tables);
        let cluster = ClusterInfoCache::new(clients, Arc::clone(&config));
        let input = ValidationInput {
            class: &class,
            cluster: &Ok(cluster.get().await.unwrap()),
            offerings: &offerings.view().await.unwrap(),
            pools: &[],
        };
        Validation::new(config, Arc::new(dry_runs))
            .judge(input)
            .await
    });
    let ends = match validity {
        Validity::Waiting(_) => json!({ "Requeue": false, "RequeueAfter": "10m0s" }),
        Validity::Unknown(None) => json!({ "Requeue": true, "RequeueAfter": "0s" }),
        other => return Err(format!("{other:?}").into()),
    };
    if ends == case.expect["result"] {
        Ok(())
    } else {
        Err(format!("ours {ends}, recorded {}", case.expect["result"]).into())
    }
}

/// The certificate that the recorded hashes were made with; it is not the one of the recorded cluster.
const BUNDLE: &str = "test-ca-bundle";

/// The hash of a class, which it carries as an annotation; its claims get the same when theirs is of another version.
fn hashed(case: &Case) -> Result<(), Difference> {
    let object = &case.given["args"]["object"];
    let class: Ec2NodeClass = serde_json::from_value(object.clone()).unwrap();
    let ours = [class.hash(BUNDLE).to_string(), HASH_VERSION.to_owned()];
    let changes = case.expect["changes"].as_array();
    for changed in changes.into_iter().flatten() {
        let annotations = &changed["object"]["metadata"]["annotations"];
        let recorded =
            [tags::CLASS_HASH, tags::CLASS_HASH_VERSION].map(|key| annotations[key].clone());
        if recorded != ours.clone().map(Value::from) {
            return Err(
                format!("{}: ours {ours:?}, recorded {recorded:?}", changed["name"]).into(),
            );
        }
    }
    Ok(())
}

#[test]
fn classes_have_the_recorded_hash() {
    let hashes = |op: &str| op == "controllers/nodeclass/hash.Reconcile";
    score_of("nodeclass_controllers.jsonl", hashes, hashed);
}
