//! Recorded operations of small parts: zonal shifts, memory of nodes, types read again, counts of reservations, and whether a class
//! can use a type.

use std::collections::BTreeMap;
use std::sync::Arc;

use mortise_apis::k8s::Node;
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_aws_class::spec::Ec2NodeClass;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::api::wire::{ApiCall, ApiError};
use super::api::{Answers, clients};
use super::offerings::{Source, all_types, moment};
use super::replay::{Case, Difference, Replay, resolved, score};
use crate::node_class::amis;
use crate::offerings::availability::Moment;
use crate::offerings::region_offerings::RegionOfferings;
use mortise_aws_catalog as catalog;

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

/// What the other operations are with us.
fn elsewhere(op: &str) -> Difference {
    let reason = match op.split('.').next().unwrap_or_default() {
        "version" | "controllers/providers/version" => {
            "the version of the cluster is looked up when a class is resolved, not by a loop of its own"
        }
        "controllers/metrics" => "series of offerings are computed when they are read",
        "controllers/providers/ssm/invalidation" => {
            "parameters have a lifetime instead of a loop that removes them"
        }
        "registrationhooks" => "labels of the placement group come with the launch",
        "amifamily" | "launchtemplate" => "compared as a part of whole launches",
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
