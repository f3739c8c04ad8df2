//! Recorded operations of small parts: zonal shifts, memory of nodes, types read again, version of the cluster, partitions of placement
//! groups, removal of templates, counts of reservations, and whether a class can use a type.

use std::collections::BTreeMap;
use std::sync::Arc;

use mortise_apis::k8s::Node;
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_aws_class::labels::PLACEMENT_GROUP_PARTITION;
use mortise_aws_class::spec::Ec2NodeClass;
use mortise_cloudprovider::LaunchedInstance;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::api::wire::{ApiCall, ApiError};
use super::api::{Answers, clients};
use super::instances::Stage;
use super::offerings::{Source, all_types, moment, options};
use super::replay::{Case, Difference, Replay, resolved, score};
use crate::config::AwsConfig;
use crate::launch::partition;
use crate::launch::templates::LaunchTemplates;
use crate::launch::tests::class;
use crate::node_class::{CachedNodeClass, PlacementGroup, PlacementStrategy, amis};
use crate::offerings::availability::Moment;
use crate::offerings::region_offerings::RegionOfferings;
use crate::sdk::cluster_info::ClusterInfoCache;
use mortise_aws_catalog as catalog;
use mortise_aws_catalog::node_settings::NodeSettings;

fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(work)
}

/// Recorded names begin with a capital, those of this service do not.
fn as_on_the_wire(recorded: &Value) -> Value {
    match recorded {
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| {
                let (first, rest) = name.split_at(1);
                (first.to_lowercase() + rest, as_on_the_wire(value))
            });
            Value::Object(fields.collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(as_on_the_wire).collect()),
        other => other.clone(),
    }
}

/// Not the recorded name, which is empty: the SDK refuses that.
const CLUSTER_ARN: &str = "test-cluster";

/// A poll for zonal shifts: the call, and the zones that are shifted afterwards.
async fn shifts(case: &Case) -> Result<(), Difference> {
    let mut case = case.clone();
    for call in &mut case.calls {
        call.input = json!({ "resourceIdentifier": CLUSTER_ARN });
        call.out = as_on_the_wire(&call.out);
    }
    let replay = Arc::new(Replay::of(&case));
    let moment = Moment::default();
    moment
        .shifted
        .replace(known_shifts(&case.given["zonalShifts"]));
    let clients = clients(Arc::<Replay>::clone(&replay));
    let now = case.given["now"].as_str().unwrap().parse().unwrap();
    let read = moment.shifted.read(&clients, CLUSTER_ARN, now).await;
    replay.settled()?;
    read.map_err(|error| error.to_string())?;
    let recorded: Vec<String> = case.expect["after"]["zonalShifts"]
        .as_object()
        .map(|zones| zones.keys().cloned().collect())
        .unwrap_or_default();
    let ours: Vec<String> = moment
        .shifted
        .now()
        .iter()
        .map(|zone| zone.to_string())
        .collect();
    if ours == recorded && recorded.iter().all(|zone| moment.shifted.has(zone)) {
        Ok(())
    } else {
        Err(format!("shifted: ours {ours:?}, recorded {recorded:?}").into())
    }
}

fn known_shifts(given: &Value) -> Vec<(Arc<str>, std::time::Duration)> {
    let hour = std::time::Duration::from_secs(3600);
    let zones = given.as_object().into_iter().flatten();
    zones
        .map(|(zone, _)| (Arc::from(zone.as_str()), hour))
        .collect()
}

/// A registered node teaches its memory.
async fn memory(case: &Case) -> Result<(), Difference> {
    let objects = case.given["objects"].as_array().unwrap();
    let of_kind = |kind: &'static str| objects.iter().filter(move |each| each["kind"] == kind);
    let node: Node = serde_json::from_value(case.given["args"]["object"].clone()).unwrap();
    let provider_id = node.spec.provider_id.as_deref();
    let claim =
        of_kind("NodeClaim").find(|each| each["status"]["providerID"].as_str() == provider_id);
    let name = &claim.unwrap()["spec"]["nodeClassRef"]["name"];
    let class = of_kind("EC2NodeClass").find(|each| each["metadata"]["name"] == *name);
    let class: Ec2NodeClass = serde_json::from_value(class.unwrap().clone()).unwrap();
    let claims: Vec<NodeClaim> = of_kind("NodeClaim")
        .map(|each| serde_json::from_value(each.clone()).unwrap())
        .collect();
    let types = all_types(case, &class).await?;
    let moment = moment(case, &class, &types);
    let positions = amis::positions(&class.status.amis, &types);
    let image = |name: &str| {
        let at = types.iter().position(|each| &*each.name == name)?;
        Some(&*class.status.amis[positions[at]?].id)
    };
    let claims: Vec<Arc<NodeClaim>> = claims.into_iter().map(Arc::new).collect();
    moment.memory.learn(&claims, &[Arc::new(node)], image);
    let after = match &case.expect["after"]["discoveredCapacity"] {
        Value::Null => &case.given["discoveredCapacity"],
        after => after,
    };
    for (key, amount) in after.as_object().into_iter().flatten() {
        let (name, _) = key.rsplit_once('-').unwrap();
        let recorded = mortise_apis::values::Quantity::parse(amount.as_str().unwrap()).unwrap();
        let ours = image(name).and_then(|image| moment.memory.of(name, image));
        if ours != Some(recorded.value()) {
            return Err(format!("{name}: ours {ours:?}, recorded {amount}").into());
        }
    }
    if after.is_null() && !moment.memory.is_empty() {
        return Err("ours learned something".into());
    }
    Ok(())
}

/// Prices are read separately from the types, and are another operation.
#[derive(Debug)]
struct WithoutPrices(Arc<Replay>);

impl Answers for WithoutPrices {
    fn answer(&self, call: ApiCall) -> Result<Value, ApiError> {
        if call.op == "DescribeSpotPriceHistory" {
            return Err(ApiError::Transport("no prices here".to_owned()));
        }
        self.0.answer(call)
    }
}

/// Types and zones are read with the recorded calls.
async fn types_read_again(case: &Case) -> Result<(), Difference> {
    let replay = Arc::new(Replay::of(case));
    let tables = catalog::embedded_catalog().unwrap();
    let answers = WithoutPrices(Arc::clone(&replay));
    let offerings = RegionOfferings::as_recorded(Arc::new(clients(Arc::new(answers))), tables);
    let view = offerings.view().await;
    view.map_err(|error| error.to_string())?;
    replay.settled()
}

/// The version of the cluster, where EKS runs its control plane.
async fn version(case: &Case) -> Result<(), Difference> {
    if case.calls.is_empty() {
        return Err(Difference::Meant(
            "the case does not say which version its reference read, or the API server has",
        ));
    }
    let mut case = case.clone();
    for call in &mut case.calls {
        call.input = as_on_the_wire(&call.input);
        call.out = as_on_the_wire(&call.out);
    }
    let recorded = case.calls[0].out["cluster"]["version"].clone();
    let options = resolved(&case.given["options"]);
    let text = |name: &str| options[name].as_str().map(str::to_owned);
    let replay = Arc::new(Replay::of(&case));
    let config = AwsConfig {
        cluster_name: text("ClusterName").unwrap(),
        cluster_endpoint: text("ClusterEndpoint"),
        eks_control_plane: options["EKSControlPlane"] == true,
        ..AwsConfig::default()
    };
    let clients = Arc::new(clients(Arc::<Replay>::clone(&replay)));
    let found = ClusterInfoCache::new(clients, Arc::new(config)).get().await;
    replay.settled()?;
    let ours = found.map_err(|error| error.to_string())?.version.clone();
    if recorded == *ours {
        Ok(())
    } else {
        Err(format!("ours {ours}, recorded {recorded}").into())
    }
}

/// A node's label for the partition that EC2 chose. Recorded claims of groups with partitions have the label before they register, without
/// a value if it is not known.
async fn partition_label(case: &Case) -> Result<(), Difference> {
    if case.expect["error"].is_object() {
        return Err(Difference::Meant(
            "a launch asks a few times for a partition that is not visible, registration does not wait for it",
        ));
    }
    let claim = &case.given["args"]["nodeClaim"];
    let labelled = claim["metadata"]["labels"][PLACEMENT_GROUP_PARTITION].as_str();
    let named = labelled.filter(|named| !named.is_empty());
    let key = || PLACEMENT_GROUP_PARTITION.to_owned();
    let mut launched = LaunchedInstance {
        provider_id: claim["status"]["providerID"].as_str().unwrap().into(),
        image_id: None,
        labels: named
            .map(|named| (key(), named.to_owned()))
            .into_iter()
            .collect(),
        annotations: BTreeMap::new(),
        capacity: BTreeMap::new(),
        allocatable: BTreeMap::new(),
    };
    let class = CachedNodeClass {
        placement_group: labelled.map(|_| PlacementGroup {
            id: "pg-1".to_owned(),
            name: "group".to_owned(),
            strategy: PlacementStrategy::Partition,
            partitions: 7,
        }),
        ..class()
    };
    let stage = Stage::of(case, case);
    partition::complete(&mut launched, &class, &stage.cache).await;
    stage.replay.settled()?;
    let described = case.expect["after"]["instanceCache"].as_object();
    let described = described.into_iter().flat_map(|all| all.values());
    let mut chosen = described.map(|each| each["PartitionNumber"].to_string());
    let recorded = chosen.next().or_else(|| named.map(str::to_owned));
    let ours = launched.labels.remove(PLACEMENT_GROUP_PARTITION);
    if ours == recorded {
        Ok(())
    } else {
        Err(format!("ours {ours:?}, recorded {recorded:?}").into())
    }
}

/// The templates of a deleted class are deleted.
async fn templates_deleted(case: &Case) -> Result<(), Difference> {
    let replay = Arc::new(Replay::of(case));
    let options = resolved(&case.given["options"]);
    let config = AwsConfig {
        cluster_name: options["ClusterName"].as_str().unwrap().to_owned(),
        ..AwsConfig::default()
    };
    let clients = Arc::new(clients(Arc::<Replay>::clone(&replay)));
    let class = case.given["args"]["nodeClass"]["metadata"]["name"].as_str();
    let templates = LaunchTemplates::new(clients, Arc::new(config));
    let deleted = templates.delete_all(class.unwrap()).await;
    replay.settled()?;
    Ok(deleted.map_err(|error| error.to_string())?)
}

/// What a node is launched with is compared as a part of whole launches, but a class that cannot be read has none.
fn launch_parameters(case: &Case) -> Result<(), Difference> {
    let class = case.given["args"]["nodeClass"].clone();
    let class: Ec2NodeClass = serde_json::from_value(class).unwrap();
    let read = NodeSettings::read(&class.spec, options(case));
    match (read, case.expect["error"]["message"].as_str()) {
        (Ok(_), None) => Err(elsewhere(&case.op)),
        (Err(_), Some(_)) => Ok(()),
        (read, recorded) => Err(format!("ours {read:?}, recorded {recorded:?}").into()),
    }
}

/// What the other operations are with us.
fn elsewhere(op: &str) -> Difference {
    let reason = match op.split('.').next().unwrap_or_default() {
        "controllers/metrics" => "series of offerings are computed when they are read",
        "controllers/providers/ssm/invalidation" => {
            "parameters have a lifetime instead of a loop that removes them"
        }
        "amifamily" => "compared as a part of whole launches",
        _ => return format!("{op} has no counterpart").into(),
    };
    Difference::Meant(reason)
}

#[test]
fn small_parts_do_what_is_recorded() {
    score("other.jsonl", |case| {
        block_on(async {
            match case.op.as_str() {
                "controllers/arczonalshift.Reconcile" | "arczonalshift.UpdateZonalShifts" => {
                    shifts(case).await
                }
                "controllers/providers/instancetype/capacity.Reconcile" => memory(case).await,
                "controllers/providers/instancetype.Reconcile" => types_read_again(case).await,
                "controllers/providers/version.Reconcile"
                | "version.UpdateVersion"
                | "version.Get" => version(case).await,
                "registrationhooks.Registered" => partition_label(case).await,
                "launchtemplate.DeleteAll" => templates_deleted(case).await,
                "amifamily.Resolve" => launch_parameters(case),
                op => Err(elsewhere(op)),
            }
        })
    });
}

#[test]
fn reservations_are_counted_as_recorded() {
    score("capacity_reservation.jsonl", |case| {
        block_on(async {
            let moment = Moment::default();
            let counts = &moment.reservations;
            let id = case.given["args"]["id"].as_str().unwrap_or_default();
            let fields = |value: &Value| -> BTreeMap<String, u32> {
                let counts = value.as_object().into_iter().flatten();
                counts
                    .map(|(id, count)| {
                        let left = count["count"].as_u64().unwrap();
                        (id.clone(), u32::try_from(left).unwrap())
                    })
                    .collect()
            };
            let given = fields(&case.given["capacityReservationAvailability"]);
            for (id, left) in &given {
                counts.read(id, *left, Instant::now());
            }
            match case.op.rsplit('.').next().unwrap_or_default() {
                "MarkLaunched" => counts.launched(id, Instant::now()),
                "MarkTerminated" => counts.terminated(id),
                "GetAvailableInstanceCount" if given.is_empty() => {
                    return Err(Difference::Meant(
                        "counts of an earlier step are not in the case",
                    ));
                }
                "GetAvailableInstanceCount" => {
                    let recorded = case.expect["result"].as_u64();
                    let ours = u64::from(counts.left(id));
                    if recorded != Some(ours) {
                        return Err(format!("ours {ours}, recorded {recorded:?}").into());
                    }
                }
                _ => return Err(Difference::Meant("compared with interruptions")),
            }
            let after = match &case.expect["after"]["capacityReservationAvailability"] {
                Value::Null => given,
                after => fields(after),
            };
            for (id, left) in after {
                if counts.left(&id) != left {
                    return Err(
                        format!("{id}: {} are left, recorded {left}", counts.left(&id)).into(),
                    );
                }
            }
            Ok(())
        })
    });
}

/// What a description lacks because nothing depends on it here.
fn completed(info: &Value) -> Value {
    let mut info = info.clone();
    let fields = info.as_object_mut().unwrap();
    fields.insert("SupportedUsageClasses".to_owned(), json!(["on-demand"]));
    let network = fields.entry("NetworkInfo").or_insert_with(
        || json!({ "NetworkCards": [{ "MaximumNetworkInterfaces": 2, "NetworkCardIndex": 0 }] }),
    );
    network["Ipv4AddressesPerInterface"] = json!(10);
    info
}

#[test]
fn types_suit_classes_as_recorded() {
    score("instance_compatibility.jsonl", |case| {
        let info = completed(&resolved(&case.given["info"]));
        let name = info["InstanceType"].as_str().unwrap().to_owned();
        let source = Source {
            types: json!({ "InstanceTypes": [info] }),
            offerings: json!({ "InstanceTypeOfferings": [{ "InstanceType": name, "Location": "zone-1" }] }),
        };
        let given = &case.given;
        let mut spec = json!({ "amiFamily": given["amiFamily"] });
        for field in ["networkInterfaces", "cpuOptions", "connectionTracking"] {
            if !given[field].is_null() {
                spec[field] = given[field].clone();
            }
        }
        let subnets = json!([{ "id": "subnet-1", "zone": "zone-1" }]);
        let class = json!({ "metadata": {}, "spec": spec, "status": { "subnets": subnets } });
        let class: Ec2NodeClass = serde_json::from_value(class).unwrap();
        let fits = block_on(super::offerings::is_offered(
            source,
            &class,
            given["placementGroup"]["Strategy"].as_str(),
        ))?;
        let recorded = case.expect["compatible"].as_bool();
        if recorded == Some(fits) {
            Ok(())
        } else {
            Err(format!("{name}: ours {fits}, recorded {recorded:?}").into())
        }
    });
}
