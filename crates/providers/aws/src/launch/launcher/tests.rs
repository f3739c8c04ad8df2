//! Launches that go wrong, are repeated, or were made by an earlier process.

use std::sync::Mutex;

use mortise_aws_class::labels::PLACEMENT_GROUP_PARTITION;
use mortise_aws_class::status::{Ami, SecurityGroup, Subnet};
use mortise_cloudprovider::CapacityType;
use serde_json::{Value, json};

use super::*;
use crate::facts::api::wire::{ApiCall, ApiError};
use crate::facts::api::{Answers, clients};
use crate::launch::batch_request::BatchRequest;
use crate::launch::tests::class;
use crate::node_class::{FoundSubnet, PlacementGroup, PlacementStrategy, amis};
use crate::provider::AwsProvider;
use crate::sdk::cluster_info::ClusterInfo;
use crate::tags;

const UID: &str = "8a7b6c5d-0000-4000-8000-000000000001";

/// An EC2 whose fleets answer one after the other as set.
#[derive(Debug, Default)]
struct Fleets {
    answers: Mutex<Vec<Result<Value, ApiError>>>,
    calls: Mutex<Vec<ApiCall>>,
    /// Partition of the instance, once it is visible.
    partition: Mutex<Vec<Option<i32>>>,
    /// Instances of the batch `t`.
    batch: Mutex<Vec<&'static str>>,
    /// Which request of that batch made them, if they say so.
    request: Mutex<Option<BatchRequest>>,
}

impl Fleets {
    fn made(&self, op: &str) -> Vec<Value> {
        let calls = self.calls.lock().unwrap();
        let calls = calls.iter().filter(|call| call.op == op);
        calls.map(|call| call.input.clone()).collect()
    }

    fn tokens(&self) -> Vec<String> {
        let fleets = self.made("CreateFleet").into_iter();
        let token = |input: Value| input["ClientToken"].as_str().unwrap().to_owned();
        fleets.map(token).collect()
    }
}

impl Answers for Fleets {
    fn answer(&self, call: ApiCall) -> Result<Value, ApiError> {
        self.calls.lock().unwrap().push(call.clone());
        match &*call.op {
            "DescribeLaunchTemplates" => refused("InvalidLaunchTemplateName.NotFoundException"),
            "CreateLaunchTemplate" => Ok(json!({})),
            "CreateFleet" => self.answers.lock().unwrap().remove(0),
            "DescribeInstances" if call.input.to_string().contains(tags::LAUNCH_BATCH) => {
                let batch = self.batch.lock().unwrap();
                let request = *self.request.lock().unwrap();
                let mut tags = vec![json!({ "Key": tags::LAUNCH_BATCH, "Value": "t" })];
                tags.extend(request.map(
                    |request| json!({ "Key": tags::LAUNCH_REQUEST, "Value": request.to_string() }),
                ));
                let instance = |id: &&str| {
                    json!({
                        "InstanceId": id, "InstanceType": "m5.large",
                        "Placement": { "AvailabilityZone": "us-west-2a" },
                        "Tags": tags,
                    })
                };
                let instances: Vec<Value> = batch.iter().map(instance).collect();
                Ok(json!({ "Reservations": [{ "Instances": instances }] }))
            }
            "DescribeInstances" => {
                let mut placement = json!({ "AvailabilityZone": "us-west-2a" });
                if let Some(Some(partition)) = self.partition.lock().unwrap().pop() {
                    placement["PartitionNumber"] = json!(partition);
                }
                Ok(json!({ "Reservations": [{ "Instances": [{
                    "InstanceId": "i-1",
                    "InstanceType": "m5.large",
                    "Placement": placement,
                    "Tags": [{ "Key": tags::NODECLAIM_UID, "Value": UID }],
                }] }] }))
            }
            other => panic!("{other}"),
        }
    }
}

fn refused(code: &str) -> Result<Value, ApiError> {
    Err(ApiError::Service {
        code: code.to_owned(),
        message: "said".to_owned(),
    })
}

fn launched() -> Result<Value, ApiError> {
    let overrides = json!({ "InstanceType": "m5.large", "AvailabilityZone": "us-west-2a", "SubnetId": "subnet-1" });
    Ok(json!({ "Instances": [{
        "InstanceIds": ["i-1"],
        "InstanceType": "m5.large",
        "LaunchTemplateAndOverrides": { "Overrides": overrides },
    }] }))
}

fn short(code: &str) -> Result<Value, ApiError> {
    let overrides = json!({ "InstanceType": "m5.large", "AvailabilityZone": "us-west-2a", "SubnetId": "subnet-1" });
    Ok(json!({ "Errors": [{
        "ErrorCode": code,
        "ErrorMessage": "said",
        "LaunchTemplateAndOverrides": { "Overrides": overrides },
    }] }))
}

fn ready_class() -> CachedNodeClass {
    let mut class = class();
    let condition = json!({ "type": "Ready", "status": "True", "reason": "Ready", "message": "" });
    class.object.status.conditions = vec![serde_json::from_value(condition).unwrap()];
    class.subnets = vec![FoundSubnet {
        subnet: Subnet {
            id: "subnet-1".to_owned(),
            zone: "us-west-2a".to_owned(),
            zone_id: None,
        },
        free: 100,
    }];
    class.groups = vec![SecurityGroup::default()];
    class.amis = vec![Ami {
        id: "ami-1".to_owned(),
        ..Ami::default()
    }];
    let mut types = mortise_aws_catalog::embedded("us-west-2", &["us-west-2a"]).unwrap();
    types.retain(|each| &*each.name == "m5.large");
    class.images = amis::positions(&class.amis, &types);
    class.types = types;
    class
}

fn launcher(answers: Vec<Result<Value, ApiError>>) -> (Arc<Fleets>, Launcher) {
    let fleets = Arc::new(Fleets {
        answers: Mutex::new(answers),
        ..Fleets::default()
    });
    let clients = Arc::new(clients(Arc::clone(&fleets) as Arc<dyn Answers>));
    let tables = mortise_aws_catalog::embedded_catalog().unwrap();
    let offerings = Arc::new(RegionOfferings::as_recorded(Arc::clone(&clients), tables));
    let provider = AwsProvider::compose(clients, &Arc::default(), &offerings);
    (fleets, provider.launcher)
}

fn claim(age: Duration) -> NodeClaim {
    let created = Timestamp::now() - age;
    let claim = json!({
        "metadata": { "name": "claim", "uid": UID, "creationTimestamp": created.to_string() },
        "spec": { "requirements": [{ "key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"] }] },
    });
    serde_json::from_value(claim).unwrap()
}

async fn launch(launcher: &Launcher) -> Result<LaunchedInstance, LaunchError> {
    launch_with(launcher, &ready_class()).await
}

async fn launch_with(
    launcher: &Launcher,
    class: &CachedNodeClass,
) -> Result<LaunchedInstance, LaunchError> {
    let claim = claim(Duration::ZERO);
    let cluster = ClusterInfo {
        service_cidr: Some("10.0.0.0/16".to_owned()),
        ..ClusterInfo::default()
    };
    let member = LaunchMember {
        claim: &claim,
        uid: UID,
    };
    let network = NodeNetwork {
        cluster: &cluster,
        ipv6: false,
    };
    let pending = PendingLaunch::of_claim(member, class, network);
    launcher.launch_pending(pending).await.remove(0)
}

#[tokio::test(start_paused = true)]
async fn a_template_that_vanished_is_made_again_once() {
    let gone = "InvalidLaunchTemplateName.NotFoundException";
    let (fleets, launcher_) = launcher(vec![refused(gone), launched()]);
    launch(&launcher_).await.unwrap();
    assert_eq!(fleets.made("CreateLaunchTemplate").len(), 2);
    let (fleets, launcher_) = launcher(vec![refused(gone), refused(gone)]);
    assert_eq!(
        launch(&launcher_).await.unwrap_err().to_string(),
        "LaunchFailed: Launch templates not found when creating fleet request: Instance launch failed"
    );
    assert_eq!(fleets.made("CreateFleet").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_outcome_is_asked_for_again_with_the_same_token() {
    let cut = Err(ApiError::Transport("cut".to_owned()));
    let (fleets, launcher) = launcher(vec![
        cut,
        short("InvalidParameterValue"),
        refused(TOKEN_MISMATCH),
        launched(),
    ]);
    let error = launch(&launcher).await.unwrap_err();
    assert!(matches!(error, LaunchError::Other(_)), "{error:?}");
    let error = launch(&launcher).await.unwrap_err();
    assert!(matches!(error, LaunchError::Create { .. }), "{error:?}");
    let error = launch(&launcher).await.unwrap_err();
    assert!(matches!(error, LaunchError::Other(_)), "{error:?}");
    launch(&launcher).await.unwrap();
    let next = format!("{UID}-1");
    assert_eq!(fleets.tokens(), [UID, UID, &next, &next]);
}

#[tokio::test(start_paused = true)]
async fn instances_are_searched_for_where_there_may_be_one() {
    let (fleets, launcher) = launcher(vec![Err(ApiError::Transport("cut".to_owned()))]);
    let looked = |claim: NodeClaim| {
        let launcher = &launcher;
        async move { launcher.launched_before(&claim, UID).await.unwrap() }
    };
    assert_eq!(looked(claim(Duration::ZERO)).await, None);
    assert_eq!(fleets.made("DescribeInstances").len(), 0, "a new claim");
    assert!(looked(claim(YOUNG * 2)).await.is_some(), "an old one");
    launch(&launcher).await.unwrap_err();
    assert!(
        looked(claim(Duration::ZERO)).await.is_some(),
        "tried before"
    );
}

#[tokio::test(start_paused = true)]
async fn a_node_is_labelled_with_the_partition_that_ec2_chose() {
    let group = |strategy| PlacementGroup {
        id: "pg-1".to_owned(),
        name: "racks".to_owned(),
        strategy,
        partitions: 3,
    };
    let label = async |strategy, asks: &[Option<i32>], named: Option<&str>| {
        let (fleets, launcher) = launcher(vec![launched()]);
        *fleets.partition.lock().unwrap() = asks.iter().rev().copied().collect();
        let mut class = ready_class();
        let mut launched = launch_with(&launcher, &class).await.unwrap();
        class.placement_group = Some(group(strategy));
        let key = PLACEMENT_GROUP_PARTITION.to_owned();
        launched
            .labels
            .extend(named.map(|named| (key, named.to_owned())));
        partition::complete(&mut launched, &class, &launcher.services.instances).await;
        let label = launched.labels.get(PLACEMENT_GROUP_PARTITION).cloned();
        (
            label.unwrap_or_default(),
            fleets.made("DescribeInstances").len(),
        )
    };
    let partitions = PlacementStrategy::Partition;
    let found = |label: &str, asked| (label.to_owned(), asked);
    assert_eq!(label(partitions, &[Some(3)], None).await, found("3", 1));
    let late = [None, None, Some(2)];
    assert_eq!(label(partitions, &late, None).await, found("2", 3));
    assert_eq!(label(partitions, &[], None).await, found("", 5), "never");
    let asked_for = label(partitions, &[Some(3)], Some("1")).await;
    assert_eq!(asked_for, found("1", 0), "the claim asked for it");
    let spread = label(PlacementStrategy::Spread, &[Some(3)], None).await;
    assert_eq!(spread, found("", 0), "no partitions");
}

#[tokio::test(start_paused = true)]
async fn an_account_without_the_role_of_spot_instances_is_told_so() {
    let role = "AuthFailure.ServiceLinkedRoleCreationNotPermitted";
    let (_, launcher) = launcher(vec![short(role), short("InsufficientInstanceCapacity")]);
    for expected in [Some(failure::SPOT_PREREQUISITE), None] {
        let error = launch(&launcher).await.unwrap_err();
        let LaunchError::InsufficientCapacity { missing, .. } = error else {
            panic!("{error:?}")
        };
        assert_eq!(missing, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_shortage_is_remembered_and_addresses_are_returned() {
    let (_, launcher) = launcher(vec![short("InsufficientInstanceCapacity"), launched()]);
    let error = launch(&launcher).await.unwrap_err();
    let LaunchError::InsufficientCapacity { unavailable, .. } = error else {
        panic!("{error:?}")
    };
    assert_eq!(unavailable.len(), 1);
    let marks = launcher
        .services
        .unavailable
        .snapshot(jiff::Timestamp::UNIX_EPOCH);
    let [mark] = &marks[..] else {
        panic!("{marks:?}")
    };
    assert_eq!(&*mark.cause, "InsufficientInstanceCapacity");
    assert_eq!(launcher.addresses.left()["subnet-1"], 100);
    let error = launch(&launcher).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "insufficient capacity: all requested instance types were unavailable during launch"
    );
    tokio::time::advance(Duration::from_secs(181)).await;
    let launched = launch(&launcher).await.unwrap();
    assert_eq!(
        launched.labels[mortise_apis::labels::CAPACITY_TYPE],
        CapacityType::OnDemand.as_str()
    );
    assert_eq!(launcher.addresses.left()["subnet-1"], 71, "29 pods");
}

/// A batch of claims with these names, which are their UIDs too.
fn batch(names: &[&str], age: Duration, taken: &[&str]) -> LaunchBatch {
    let member = |name: &&str| {
        let mut claim = claim(age);
        claim.metadata.name = Some((*name).to_owned());
        claim.metadata.uid = Some((*name).to_owned());
        Arc::new(claim)
    };
    LaunchBatch {
        token: Arc::from("t"),
        claims: names.iter().map(member).collect(),
        taken: taken
            .iter()
            .map(|id| tags::provider_id("us-west-2a", id).into())
            .collect(),
    }
}

fn launched_many(ids: &[&str]) -> Result<Value, ApiError> {
    let mut answer = launched()?;
    answer["Instances"][0]["InstanceIds"] = json!(ids);
    Ok(answer)
}

async fn ask(launcher: &Launcher, batch: &LaunchBatch, uid: &str) -> Result<String, String> {
    launcher.services.cluster.assume(ClusterInfo {
        service_cidr: Some("10.0.0.0/16".to_owned()),
        ..ClusterInfo::default()
    });
    let launched = launcher.launch_of_batch(batch, uid, &ready_class()).await;
    launched
        .map(|launched| launched.provider_id.to_string())
        .map_err(|error| error.to_string())
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_one_request_and_each_claim_gets_its_own_instance() {
    let (fleets, launcher) = launcher(vec![launched_many(&["i-2", "i-1"])]);
    let batch = batch(&["a", "b", "c"], Duration::ZERO, &[]);
    let asked = ["c", "b", "a"].map(|uid| ask(&launcher, &batch, uid));
    let [c, b, a] = <[_; 3]>::try_from(futures::future::join_all(asked).await).unwrap();
    assert_eq!(
        a.as_deref(),
        Ok("aws:///us-west-2a/i-1"),
        "in order of id and of UID"
    );
    assert_eq!(b.as_deref(), Ok("aws:///us-west-2a/i-2"));
    c.unwrap_err();
    let [request] = &fleets.made("CreateFleet")[..] else {
        panic!("one request")
    };
    assert_eq!(request["ClientToken"], "t");
    assert_eq!(
        request["TargetCapacitySpecification"]["TotalTargetCapacity"],
        3
    );
    let tags = request["TagSpecifications"][0]["Tags"].to_string();
    assert!(tags.contains(tags::LAUNCH_BATCH) && !tags.contains(tags::NODECLAIM));
    assert_eq!(launcher.addresses.left()["subnet-1"], 100 - 2 * 29);
    assert_eq!(ask(&launcher, &batch, "a").await, a, "the same again");
}

#[tokio::test(start_paused = true)]
async fn a_batch_of_an_earlier_process_is_searched_for_before_it_is_launched() {
    let (fleets, launcher) = launcher(vec![launched_many(&["i-9"])]);
    *fleets.batch.lock().unwrap() = vec!["i-3", "i-1", "i-2"];
    let batch = batch(&["a", "b", "c"], YOUNG * 2, &["i-1"]);
    for (uid, id) in [("c", "i-9"), ("a", "i-2"), ("b", "i-3")] {
        let id = Ok(tags::provider_id("us-west-2a", id));
        assert_eq!(ask(&launcher, &batch, uid).await, id, "{uid}");
    }
    assert_eq!(fleets.made("DescribeInstances").len(), 1);
    let [request] = &fleets.made("CreateFleet")[..] else {
        panic!("one request")
    };
    assert_eq!(
        request["TargetCapacitySpecification"]["TotalTargetCapacity"],
        1
    );
}

#[tokio::test(start_paused = true)]
async fn the_rest_of_a_batch_is_another_request_once_all_of_the_first_are_visible() {
    let (fleets, launcher) = launcher(vec![
        refused(TOKEN_MISMATCH),
        launched_many(&["i-8", "i-9"]),
    ]);
    // An earlier process asked for two of the four, and ended.
    *fleets.batch.lock().unwrap() = vec!["i-1"];
    *fleets.request.lock().unwrap() = Some(BatchRequest { index: 0, count: 2 });
    let batch = batch(&["a", "b", "c", "d"], YOUNG * 2, &[]);
    ask(&launcher, &batch, "b").await.unwrap_err();
    ask(&launcher, &batch, "c").await.unwrap_err();
    ask(&launcher, &batch, "d").await.unwrap_err();
    assert_eq!(fleets.tokens(), ["t"], "the other one is not visible yet");
    *fleets.batch.lock().unwrap() = vec!["i-1", "i-2"];
    for (uid, id) in [("a", "i-1"), ("d", "i-9"), ("b", "i-2"), ("c", "i-8")] {
        let id = Ok(tags::provider_id("us-west-2a", id));
        assert_eq!(ask(&launcher, &batch, uid).await, id, "{uid}");
    }
    assert_eq!(fleets.tokens(), ["t", "t-1"]);
    let request = &fleets.made("CreateFleet")[1];
    let tags = request["TagSpecifications"][0]["Tags"].to_string();
    assert!(tags.contains("\"1/2\""), "{tags}");
}

#[tokio::test(start_paused = true)]
async fn no_claim_gets_an_instance_that_another_one_has() {
    let (fleets, launcher) = launcher(vec![launched_many(&["i-1"]), launched_many(&["i-2"])]);
    // An earlier process asked for one of the two, so that EC2 takes the request for the other one for a repetition.
    *fleets.batch.lock().unwrap() = vec!["i-1"];
    let batch = batch(&["a", "b"], YOUNG * 2, &[]);
    let id = |id| Ok(tags::provider_id("us-west-2a", id));
    assert_eq!(ask(&launcher, &batch, "a").await, id("i-1"));
    ask(&launcher, &batch, "b").await.unwrap_err();
    assert_eq!(ask(&launcher, &batch, "b").await, id("i-2"));
    assert_eq!(fleets.tokens(), ["t", "t-1"]);
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_may_have_been_launched_is_launched_again_by_the_same_token() {
    let cut = Err(ApiError::Transport("cut".to_owned()));
    let (fleets, launcher) = launcher(vec![cut, launched_many(&["i-1", "i-2"])]);
    let batch = batch(&["a", "b"], Duration::ZERO, &[]);
    for uid in ["a", "b"] {
        ask(&launcher, &batch, uid).await.unwrap_err();
    }
    assert_eq!(fleets.tokens(), ["t"], "b learns what became of the batch");
    for uid in ["b", "a"] {
        ask(&launcher, &batch, uid).await.unwrap();
    }
    assert_eq!(fleets.tokens(), ["t", "t"]);
}

#[tokio::test(start_paused = true)]
async fn a_full_subnet_is_no_shortage_while_another_of_its_zone_has_room() {
    let full = "InsufficientFreeAddressesInSubnet";
    let (_, launcher) = launcher(vec![short(full)]);
    let mut class = ready_class();
    class.found = Instant::now();
    let mut other = class.subnets[0].clone();
    other.subnet.id = "subnet-2".to_owned();
    other.free = 50;
    class.subnets.push(other);
    let marks = || {
        let marks = launcher.services.unavailable.keys();
        marks
            .into_iter()
            .filter(|key| matches!(key, UnavailableKey::Offering(_)))
            .count()
    };
    launch_with(&launcher, &class).await.unwrap_err();
    assert_eq!(marks(), 0, "subnet-2 has room");
    class.subnets.pop();
    let error = launch_with(&launcher, &class).await.unwrap_err();
    let LaunchError::InsufficientCapacity { unavailable, .. } = error else {
        panic!("{error:?}")
    };
    assert_eq!(
        (marks(), unavailable.len()),
        (0, 1),
        "no other subnet is left"
    );
}
