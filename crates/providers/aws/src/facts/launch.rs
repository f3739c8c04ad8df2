//! Recorded launches, replayed by the launcher against an EC2 that answers as recorded.

mod answers;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::labels;
use mortise_apis::schema::conditions::READY;
use mortise_aws_catalog::node_settings::NodeSettings;
use mortise_aws_class::labels::{PLACEMENT_GROUP_PARTITION, ZONE_ID};
use mortise_aws_class::spec::Ec2NodeClass;
use mortise_cloudprovider::{CapacityType, LaunchError, LaunchedInstance, UnavailableOffering};
use serde_json::{Value, json};
use tokio::time::Instant;

pub(super) use self::answers::canonical_user_data;
use self::answers::{Probe, Recorded, Renamed, content, is_bare};
use super::api::{Answers, clients};
use super::offerings::{options, region};
use super::replay::{Case, Difference, Replay, resolved, score};
use super::resolved_type::{resolved_type, resources};
use crate::config::AwsConfig;
use crate::launch::fleet_input::NodeNetwork;
use crate::launch::{LaunchMember, Launcher, PendingLaunch};
use crate::node_class::{CachedNodeClass, FoundSubnet, PlacementGroup, PlacementStrategy, amis};
use crate::offerings::availability::Moment;
use crate::offerings::reservation_counts::ReservationCounts;
use crate::offerings::unavailable_offerings::{
    PlacementScope, UnavailableKey, UnavailableOfferings,
};
use crate::provider::AwsProvider;
use crate::sdk::cluster_info::ClusterInfo;
use crate::tags;

/// The resolved class of a case.
fn class(case: &Case) -> CachedNodeClass {
    let given = &case.given;
    let object = [&given["nodeClass"], &given["args"]["nodeClass"]];
    let object = object.into_iter().find(|each| each.is_object()).unwrap();
    let mut object: Ec2NodeClass = serde_json::from_value(object.clone()).unwrap();
    if is_bare(case) {
        ready(&mut object); // below the check
    }
    let keys = [&given["instanceTypes"], &given["args"]["instanceTypes"]];
    let keys = keys.into_iter().find_map(Value::as_array);
    let keys = keys.into_iter().flatten().map(|key| key.as_str().unwrap());
    let mut types: Vec<_> = keys.map(resolved_type).collect();
    types.sort_by(|a, b| a.name.cmp(&b.name));
    let options = options(case);
    let status = &object.status;
    let free = &given["subnetState"]["availableIPs"];
    let subnets = status.subnets.iter().map(|subnet| FoundSubnet {
        subnet: subnet.clone(),
        free: i32::try_from(free[&subnet.id].as_i64().unwrap_or(0)).unwrap(),
    });
    CachedNodeClass {
        settings: NodeSettings::read(&object.spec, options).unwrap_or_default(),
        subnets: subnets.collect(),
        groups: status.security_groups.clone(),
        images: amis::positions(&status.amis, &types),
        amis: status.amis.clone(),
        reservations: status.capacity_reservations.clone(),
        placement_group: placement_group(case),
        profile: status.instance_profile.clone(),
        hash: recorded_hash(case),
        not_ready: None,
        types,
        found: Instant::now(),
        object,
    }
}

/// The hash that the class had when it was recorded: its annotations are not.
fn recorded_hash(case: &Case) -> Option<String> {
    let annotations = &case.expect["result"]["metadata"]["annotations"];
    annotations[tags::CLASS_HASH].as_str().map(str::to_owned)
}

fn ready(class: &mut Ec2NodeClass) {
    let condition = json!({ "type": READY, "status": "True", "reason": READY, "message": "", "observedGeneration": class.metadata.generation });
    class.status.conditions = vec![serde_json::from_value(condition).unwrap()];
}

fn placement_group(case: &Case) -> Option<PlacementGroup> {
    let call = case
        .calls
        .iter()
        .find(|call| call.op == "DescribePlacementGroups")?;
    let found = call.out["PlacementGroups"].as_array()?.first()?;
    Some(PlacementGroup {
        id: found["GroupId"].as_str()?.to_owned(),
        name: found["GroupName"].as_str()?.to_owned(),
        strategy: match found["Strategy"].as_str()? {
            "partition" => PlacementStrategy::Partition,
            "spread" => PlacementStrategy::Spread,
            _ => PlacementStrategy::Cluster,
        },
        partitions: i32::try_from(found["PartitionCount"].as_i64().unwrap_or(0)).unwrap(),
    })
}

fn config(case: &Case) -> AwsConfig {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let (options, core) = (
        resolved(&case.given["options"]),
        resolved(&case.given["coreOptions"]),
    );
    let cluster = &case.given["cluster"];
    AwsConfig {
        cluster_name: text(&options["ClusterName"]).unwrap(),
        cluster_dns: text(&cluster["kubeDNSIP"]),
        reserved_capacity: core["FeatureGates"]["ReservedCapacity"] == true,
        min_values_best_effort: core["MinValuesPolicy"] == "BestEffort",
        ..AwsConfig::default()
    }
}

/// A key as the recording writes it: capacity type, type, zone, group and partition.
fn parse_mark(text: &str) -> UnavailableKey {
    let parts: Vec<&str> = text.split(':').collect();
    let offering = UnavailableOffering {
        capacity_type: CapacityType::parse(parts[0]).unwrap(),
        instance_type: Arc::from(parts[1]),
        zone: Arc::from(parts[2]),
    };
    match parts.get(3) {
        None => UnavailableKey::Offering(offering),
        Some(group) => UnavailableKey::Placed(
            offering,
            PlacementScope {
                group: Arc::from(*group),
                partition: parts.get(4).map(|each| Arc::from(*each)),
            },
        ),
    }
}

/// Every recorded mark of a set.
fn marks(ice: &Value) -> BTreeSet<UnavailableKey> {
    let texts = |field: &str| -> Vec<String> {
        let list = ice[field].as_array().into_iter().flatten();
        list.map(|each| each.as_str().unwrap().to_owned()).collect()
    };
    let offerings = texts("offerings").into_iter().map(|each| parse_mark(&each));
    let capacity_types = texts("capacityTypes").into_iter();
    let capacity_types = capacity_types
        .map(|each| UnavailableKey::CapacityType(CapacityType::parse(&each).unwrap()));
    let subnets = texts("subnets").into_iter().map(UnavailableKey::Subnet);
    offerings.chain(capacity_types).chain(subnets).collect()
}

/// A launcher in the state that a case begins with, and what it shares.
struct Bench {
    launcher: Launcher,
    unavailable: Arc<UnavailableOfferings>,
    reservations: Arc<ReservationCounts>,
    class: CachedNodeClass,
    cluster: ClusterInfo,
}

impl Bench {
    async fn new(case: &Case, mut class: CachedNodeClass, answers: Arc<dyn Answers>) -> Self {
        let now = Instant::now();
        class.found = now;
        let config = Arc::new(config(case));
        let (offerings, _) = region(case).await;
        let provider = AwsProvider::compose(Arc::new(clients(answers)), &config, &offerings);
        let AwsProvider {
            launcher,
            unavailable,
            moment: Moment { reservations, .. },
            ..
        } = provider;
        for key in marks(&case.given["ice"]) {
            unavailable.mark_because(key, "recorded");
        }
        let counts = case.given["capacityReservationAvailability"].as_object();
        for (id, count) in counts.into_iter().flatten() {
            let left = u32::try_from(count["count"].as_i64().unwrap()).unwrap();
            reservations.read(id, left, now);
        }
        let estimates = case.given["subnetState"]["inflightIPs"].as_object();
        for (subnet, left) in estimates.into_iter().flatten() {
            let left = left.as_i64().unwrap();
            launcher.addresses().assume(subnet, left, now);
        }
        let text = |field: &str| {
            let value = case.given["cluster"][field].as_str();
            value.map(str::to_owned)
        };
        Self {
            launcher,
            unavailable,
            reservations,
            class,
            cluster: ClusterInfo {
                endpoint: text("endpoint").unwrap(),
                ca_bundle: text("caBundle").unwrap_or_default(),
                service_cidr: text("clusterCIDR"),
                version: text("kubernetesVersion").unwrap_or_default(),
                cni: None,
            },
        }
    }

    async fn launch(&self, case: &Case, claim: Value) -> Result<LaunchedInstance, LaunchError> {
        let claim: NodeClaim = serde_json::from_value(claim).unwrap();
        let uid = claim
            .uid()
            .map_or_else(|| "no-uid".to_owned(), |uid| uid.to_string());
        let member = LaunchMember {
            claim: &claim,
            uid: &uid,
        };
        let network = NodeNetwork {
            cluster: &self.cluster,
            ipv6: case.given["cluster"]["ipFamily"] == "IPv6",
        };
        let pending = PendingLaunch::of_claim(member, &self.class, network);
        self.launcher.launch_pending(pending).await.remove(0)
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap()
}

/// The templates that launches of these claims make, by our names.
fn probe(case: &Case, class: CachedNodeClass, claims: Vec<Value>) -> BTreeMap<String, String> {
    let probe = Arc::new(Probe {
        bare: is_bare(case),
        names: Mutex::default(),
    });
    let answers = Arc::clone(&probe);
    runtime().block_on(async move {
        let bench = Bench::new(case, class, answers).await;
        for claim in claims {
            // It ends without an instance, whatever it is.
            drop(bench.launch(case, claim).await);
        }
    });
    let names = probe.names.lock().unwrap();
    names.clone()
}

fn run(case: &Case) -> Result<(), Difference> {
    let recorded = Recorded::of(case);
    let claim = case.given["args"]["nodeClaim"].clone();
    let class = class(case);
    if case.op == "launchtemplate.EnsureAll" {
        return compare_templates(case, class, &recorded, &claim);
    }
    let needs_names = !recorded.case.calls.is_empty() || recorded.existing().next().is_some();
    let ours = if needs_names {
        probe(case, class.clone(), vec![claim.clone()])
    } else {
        BTreeMap::new()
    };
    let names = recorded.names(&ours);
    let answers = Arc::new(Renamed {
        replay: Replay::of(&recorded.case),
        bare: is_bare(case),
        names: names.clone(),
        failing: recorded.failing.clone(),
    });
    let warm = case.given["launchTemplateCache"].is_u64();
    let known: BTreeSet<&str> = recorded
        .existing()
        .filter_map(|each| each["name"].as_str())
        .collect();
    let replay = Arc::clone(&answers);
    let runtime = runtime();
    let (bench, result) = runtime.block_on(async move {
        let bench = Bench::new(case, class, replay).await;
        for (name, recorded) in names {
            if warm && known.contains(&*recorded) {
                bench.launcher.templates().assume(&name);
            }
        }
        let result = bench.launch(case, claim).await;
        (bench, result)
    });
    let mut compared = Ok(());
    if recorded.failing.is_none() {
        compared = answers.replay.settled();
    }
    let compared = compared
        .and_then(|()| compare_result(case, &result))
        .and_then(|()| runtime.block_on(async { compare_state(case, &recorded.case, &bench) }));
    match (compared, recorded.wasteful) {
        (Ok(()), Some(reason)) => Err(Difference::Meant(reason)),
        (Err(Difference::Found(_)), _) if is_below_zero(case, &bench.class) => Err(
            Difference::Meant("the addresses left in a subnet are never below zero"),
        ),
        (Err(Difference::Found(_)), _) if is_too_small(&bench.class) => Err(Difference::Meant(
            "an instance that is too small for its own overhead has nothing left, instead of less than nothing",
        )),
        (compared, _) => compared,
    }
}

/// Whether the recording has less than no address left in a subnet of the class.
fn is_below_zero(case: &Case, class: &CachedNodeClass) -> bool {
    let left = &case.given["subnetState"]["inflightIPs"];
    let mut subnets = class.subnets.iter();
    subnets.any(|each| left[&each.subnet.id].as_i64().is_some_and(|left| left < 0))
}

/// Whether some type of the class has less than its own overhead.
fn is_too_small(class: &CachedNodeClass) -> bool {
    let mut types = class.types.iter();
    types.any(|each| each.capacity.sub(&each.overhead).any_negative())
}

/// The templates of all types, whatever a launch would choose: those of one launch for each type.
fn compare_templates(
    case: &Case,
    mut class: CachedNodeClass,
    recorded: &Recorded,
    claim: &Value,
) -> Result<(), Difference> {
    let capacity_type = &case.given["args"]["capacityType"];
    let keys = case.given["args"]["instanceTypes"].as_array().unwrap();
    let claims = keys.iter().map(|key| {
        let name = resolved_type(key.as_str().unwrap()).name;
        let mut claim = claim.clone();
        claim["spec"]["requirements"] = json!([
            { "key": labels::INSTANCE_TYPE, "operator": "In", "values": [&*name] },
            { "key": labels::CAPACITY_TYPE, "operator": "In", "values": [capacity_type] },
        ]);
        claim
    });
    let mut requests = claim["spec"]["resources"]["requests"].clone();
    if let Some(requests) = requests.as_object_mut() {
        requests.retain(|name, _| name.contains('/'));
    }
    for each in &mut class.types {
        // Below the checks.
        each.capacity.add_assign(&resources(&requests));
        let offerings = each.offerings.iter_mut();
        offerings.for_each(|offering| offering.available = true);
    }
    let ours: BTreeSet<String> = probe(case, class, claims.collect()).into_values().collect();
    let calls = recorded.case.calls.iter();
    let theirs: BTreeSet<String> = calls
        .filter(|call| call.op == "CreateLaunchTemplate")
        .map(|call| content(&call.input, true))
        .collect();
    match (
        theirs.difference(&ours).next(),
        ours.difference(&theirs).next(),
    ) {
        (None, None) => Ok(()),
        (missing, more) => Err(format!("missing {missing:?}\n    more {more:?}").into()),
    }
}

fn compare_result(
    case: &Case,
    result: &Result<LaunchedInstance, LaunchError>,
) -> Result<(), Difference> {
    let expect = &case.expect;
    match (result, expect.get("error")) {
        (Ok(launched), None) => compare_launched(case, launched),
        (Err(error), Some(recorded)) => compare_error(error, recorded),
        (Ok(launched), Some(recorded)) => {
            Err(format!("launched {launched:?}, recorded is {recorded}").into())
        }
        (Err(error), None) => Err(format!("ours is {error:?}, recorded is a launch").into()),
    }
}

fn compare_error(error: &LaunchError, recorded: &Value) -> Result<(), Difference> {
    let text = recorded["message"].as_str().unwrap();
    let differ = || format!("ours {error:?}\n    recorded {recorded}").into();
    let class = recorded["class"][0].as_str().unwrap_or_default();
    let same = match error {
        LaunchError::InsufficientCapacity { message, .. } => {
            // One text for each error, in any order, with details of the call behind.
            let parts = |text: &str| -> BTreeSet<String> {
                let text = text.split(" (aws-error-code").next().unwrap();
                let text = text.split("insufficient capacity, ").last().unwrap();
                let text = text.replace("with fleet error(s), ", "");
                text.split("; ").map(str::to_owned).collect()
            };
            class == "InsufficientCapacity" && parts(text) == parts(message)
        }
        LaunchError::NodeClassNotReady { message } => {
            class == "NodeClassNotReady"
                && (text.contains(&**message) || message.contains("service address range"))
        }
        LaunchError::Create { reason, message } => {
            class == "CreateError"
                && recorded["conditionReason"] == **reason
                && recorded["conditionMessage"] == **message
        }
        LaunchError::Other(_) if recorded.get("aws").is_none() && text.contains("synthetic") => {
            return Err(Difference::Meant(
                "a call that did not get through may have launched: it is repeated, not reported as refused",
            ));
        }
        LaunchError::Other(_) => false,
    };
    if same { Ok(()) } else { Err(differ()) }
}

fn compare_launched(case: &Case, launched: &LaunchedInstance) -> Result<(), Difference> {
    let recorded = &case.expect["result"];
    if recorded["ID"].is_string() {
        let id = recorded["ID"].as_str().unwrap();
        return if launched.provider_id.ends_with(id)
            && recorded["ImageID"] == json!(launched.image_id)
        {
            Ok(())
        } else {
            Err(format!("ours {launched:?}, recorded {recorded}").into())
        };
    }
    let status = &recorded["status"];
    if status["providerID"] != *launched.provider_id
        || status["imageID"] != json!(launched.image_id)
    {
        return Err(format!("ours {launched:?}, recorded {status}").into());
    }
    let capacity = [
        ("capacity", &launched.capacity),
        ("allocatable", &launched.allocatable),
    ];
    for (field, ours) in capacity {
        let (ours, recorded) = (resources(&json!(ours)), resources(&status[field]));
        if ours != recorded {
            return Err(format!("{field}: ours {ours}, recorded {recorded}").into());
        }
    }
    let texts = |value: &Value| -> BTreeMap<String, String> {
        serde_json::from_value(value.clone()).unwrap()
    };
    let mut labels = texts(&recorded["metadata"]["labels"]);
    labels.remove("karpenter.sh/nodepool"); // the claim has it already
    let mut ours = launched.labels.clone();
    // Of several allowed partitions the recording launches in one and may name another.
    let key = PLACEMENT_GROUP_PARTITION;
    if ours.remove(key).is_some() != labels.remove(key).is_some() {
        return Err("partition label".into());
    }
    if labels.get(ZONE_ID).is_some_and(String::is_empty) {
        labels.remove(ZONE_ID);
        if ours == labels {
            return Err(Difference::Meant(
                "a zone whose id is not known gives no label, instead of an empty one",
            ));
        }
    }
    if ours != labels {
        return Err(format!("labels: ours {ours:?}\n    recorded {labels:?}").into());
    }
    let annotations = texts(&recorded["metadata"]["annotations"]);
    if launched.annotations != annotations {
        return Err(format!("ours {:?}, recorded {annotations:?}", launched.annotations).into());
    }
    Ok(())
}

/// Unavailable offerings, counts of reservations and free addresses, as the recording leaves them.
fn compare_state(case: &Case, recorded: &Case, bench: &Bench) -> Result<(), Difference> {
    let after = &case.expect["after"];
    let changed = |field: &str| {
        after
            .get(field)
            .unwrap_or_else(|| &case.given[field])
            .clone()
    };
    let ours: BTreeSet<UnavailableKey> = bench.unavailable.keys().into_iter().collect();
    let expected = marks(&changed("ice"));
    let missing: Vec<&UnavailableKey> = expected.difference(&ours).collect();
    let is_offering = |key: &&UnavailableKey| matches!(key, UnavailableKey::Offering(_));
    let is_full = ours
        .iter()
        .any(|key| matches!(key, UnavailableKey::Subnet(_)));
    if is_full
        && ours.is_subset(&expected)
        && !missing.is_empty()
        && missing.iter().all(is_offering)
    {
        return Err(Difference::Meant(
            "a full subnet is no shortage while another one of its zone has room",
        ));
    }
    if ours != expected {
        return Err(format!("unavailable: ours {ours:?}\n    recorded {expected:?}").into());
    }
    let counts = changed("capacityReservationAvailability");
    for (id, count) in counts.as_object().into_iter().flatten() {
        let left = bench.reservations.left(id);
        if count["count"] != left {
            return Err(format!("reservation {id}: ours {left}, recorded {count}").into());
        }
    }
    compare_addresses(recorded, &changed("subnetState"), bench)
}

/// Estimates of subnets that the request names. The recording takes addresses in other zones too, and never returns them.
fn compare_addresses(recorded: &Case, state: &Value, bench: &Bench) -> Result<(), Difference> {
    let fleets = recorded
        .calls
        .iter()
        .filter(|call| call.op == "CreateFleet");
    let named: BTreeSet<String> = fleets
        .flat_map(|call| call.input["LaunchTemplateConfigs"].as_array().cloned())
        .flatten()
        .flat_map(|config| config["Overrides"].as_array().cloned().unwrap_or_default())
        .filter_map(|each| each["SubnetId"].as_str().map(str::to_owned))
        .collect();
    let left = bench.launcher.addresses().left();
    for subnet in named {
        let counted = [
            &state["inflightIPs"][&subnet],
            &state["availableIPs"][&subnet],
        ];
        let Some(expected) = counted.into_iter().find_map(Value::as_i64) else {
            continue;
        };
        let ours = left.get(&subnet).copied().unwrap_or(0);
        if ours != expected.max(0) {
            return Err(format!("{subnet}: ours {ours} left, recorded {state}").into());
        }
    }
    Ok(())
}

#[test]
fn launches_are_as_recorded() {
    score("launch.jsonl", run);
}
