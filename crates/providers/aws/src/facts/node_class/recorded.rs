//! What AWS answers in a recorded reconcile.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use mortise_apis::karpenter::nodepool::NodePool;
use serde_json::{Value, json};

use crate::facts::api::Answers;
use crate::facts::api::wire::{ApiCall, ApiError};
use crate::facts::discovery::with_codes;
use crate::facts::launch::canonical_user_data;
use crate::facts::replay::{Case, RecordedCall, Replay, normal, resolved, table};

/// Types that the reference prefers; of others it takes any, in random order.
const PREFERRED: [&str; 2] = ["m5.large", "m6g.large"];

/// Calls that others make, at their own time.
const OTHERS: [&str; 1] = ["GetManagedResource"];

/// What AWS answers in a case: what is recorded, and, where the reference had an answer in one of its caches, what must have been in it.
#[derive(Debug)]
pub(super) struct Recorded {
    case: Case,
    pub(super) replay: Replay,
    left: Mutex<Vec<ApiCall>>,
    /// The object after the reconcile.
    pub(super) after: Value,
    loose: Loose,
    /// Ids that the reference asked for, for parameters whose values are not recorded.
    unnamed: Mutex<Vec<String>>,
}

/// The object afterwards; the one before where nothing was written.
fn after(case: &Case) -> Value {
    let changed = case.expect["changes"]
        .as_array()
        .and_then(|changes| changes.iter().find(|each| each["object"].is_object()));
    changed.map_or_else(
        || case.given["args"]["object"].clone(),
        |each| each["object"].clone(),
    )
}

fn texts(value: &Value) -> impl Iterator<Item = &str> {
    value
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
}

fn not_found(code: &str) -> Result<Value, ApiError> {
    Err(ApiError::Service {
        code: code.to_owned(),
        message: "not found".to_owned(),
    })
}

impl Recorded {
    /// The answers of a case.
    pub(super) fn of(case: &Case) -> Self {
        let mut case = with_codes(case);
        case.calls
            .retain(|call| !OTHERS.contains(&&*call.op) && !is_by_name(&call.op, &call.input));
        let loose = Loose::of(&case);
        for call in &mut case.calls {
            reduce(&call.op, &mut call.input, loose);
            if let Some(roles) = call.out.pointer_mut("/InstanceProfile/Roles") {
                without_paths(roles);
            }
        }
        let left = case.calls.iter().map(|call| {
            normal(ApiCall {
                op: call.op.clone(),
                input: call.input.clone(),
            })
        });
        let left: Vec<ApiCall> = left.collect();
        let unnamed = case
            .calls
            .iter()
            .filter(|call| call.op == "DescribeImages")
            .flat_map(|call| {
                call.input["Filters"]
                    .as_array()
                    .cloned()
                    .unwrap_or_default()
            })
            .filter(|filter| filter["Name"] == "image-id")
            .flat_map(|filter| {
                texts(&filter["Values"])
                    .map(str::to_owned)
                    .collect::<Vec<_>>()
            });
        Self {
            replay: Replay::of(&case),
            left: Mutex::new(left),
            after: after(&case),
            loose,
            unnamed: Mutex::new(unnamed.collect()),
            case,
        }
    }

    fn warm(&self, cache: &str) -> bool {
        let cache = &self.case.given["warm"][cache];
        cache.as_u64().is_some_and(|entries| entries > 0)
            || cache.as_array().is_some_and(|entries| !entries.is_empty())
    }

    /// Names that are hashes or random, as the recording has them.
    fn renamed(&self, mut call: ApiCall) -> ApiCall {
        if call.input["LaunchTemplateName"].is_string() {
            call.input["LaunchTemplateName"] = json!("$LT1");
        }
        let configs = call.input.get_mut("LaunchTemplateConfigs");
        let configs = configs.and_then(Value::as_array_mut);
        for config in configs.into_iter().flatten() {
            config["LaunchTemplateSpecification"]["LaunchTemplateName"] = json!("$LT1");
        }
        if call.input["LaunchTemplate"].is_object() {
            call.input["LaunchTemplate"]["LaunchTemplateName"] = json!("$LT1");
        }
        if let Some(name) = call.input["InstanceProfileName"].as_str()
            && let Some(recorded) = self.profile(name)
        {
            call.input["InstanceProfileName"] = json!(recorded);
        }
        let name = call
            .input
            .pointer_mut("/LaunchTemplateData/IamInstanceProfile/Name");
        if let Some(Value::String(name)) = name
            && let Some(recorded) = self.profile(name)
        {
            *name = recorded;
        }
        reduce(&call.op, &mut call.input, self.loose);
        call
    }

    /// The recorded name of a profile that we derive another name for.
    pub(super) fn profile(&self, name: &str) -> Option<String> {
        let cluster = options(&self.case)["ClusterName"].as_str().unwrap();
        let recorded: BTreeSet<&str> = self
            .case
            .calls
            .iter()
            .filter_map(|call| call.input["InstanceProfileName"].as_str())
            .collect();
        let stored = self.case.given["args"]["object"]["status"]["instanceProfile"].as_str();
        if recorded.contains(name) || stored == Some(name) {
            return None;
        }
        let derived = format!("{cluster}_");
        name.starts_with(&derived)
            .then(|| {
                recorded
                    .into_iter()
                    .rfind(|each| each.starts_with(&derived) && Some(*each) != stored)
            })
            .flatten()
            .map(str::to_owned)
    }

    /// What was in a cache of the reference.
    fn cached(&self, call: &ApiCall) -> Option<Result<Value, ApiError>> {
        let status = &self.after["status"];
        let list = |name: &str| status[name].as_array().cloned().unwrap_or_default();
        match &*call.op {
            "DescribeSubnets" if self.warm("subnet") => {
                let rows = list("subnets").into_iter().enumerate().map(|(at, each)| {
                    json!({
                        "SubnetId": each["id"],
                        "AvailabilityZone": each["zone"],
                        "AvailabilityZoneId": each["zoneID"],
                        "AvailableIpAddressCount": 1000 - at,
                    })
                });
                Some(Ok(json!({ "Subnets": rows.collect::<Vec<_>>() })))
            }
            "DescribeSecurityGroups" if self.warm("securityGroup") => {
                let rows = list("securityGroups").into_iter();
                let rows =
                    rows.map(|each| json!({ "GroupId": each["id"], "GroupName": each["name"] }));
                Some(Ok(json!({ "SecurityGroups": rows.collect::<Vec<_>>() })))
            }
            "DescribeImages" if self.warm("ami") => Some(Ok(images(&list("amis")))),
            // The reference asks for one after the other, and not for the rest once one was refused.
            "DescribeImages" if self.refused("DescribeImages") => Some(Ok(json!({}))),
            "GetParameter" if self.warm("ami") || self.warm("ssm") => {
                Some(self.parameter(call.input["Name"].as_str().unwrap()))
            }
            "DescribePlacementGroups" if self.warm("placementGroup") => Some(Ok(self.group())),
            "DescribeCapacityReservations" if self.warm("capacityReservation") => {
                Some(Ok(reservations(&list("capacityReservations"))))
            }
            "GetInstanceProfile" => self.warm_profile(call.input["InstanceProfileName"].as_str()?),
            "CreateLaunchTemplate" => Some(self.verdict(&call.op).or_else(|error| match error {
                ApiError::Service { code, .. } if code == "DryRunOperation" => {
                    Ok(json!({ "LaunchTemplate": {} }))
                }
                other => Err(other),
            })),
            "CreateFleet" | "RunInstances" if self.warm("validation") => {
                Some(self.verdict(&call.op))
            }
            _ => None,
        }
    }

    /// What a dry run said before, as far as the class tells.
    fn verdict(&self, op: &str) -> Result<Value, ApiError> {
        let mut before = self.case.given["args"]["object"]["status"]["conditions"]
            .as_array()
            .into_iter()
            .flatten();
        let refused = before.find(|each| each["reason"] == format!("{op}AuthCheckFailed"));
        let message = refused
            .and_then(|each| each["message"].as_str())
            .unwrap_or_default();
        let parts = [
            (
                "permission boundary",
                "with an explicit deny in a permissions boundary",
            ),
            (
                "service control policy",
                "with an explicit deny in a service control policy",
            ),
        ];
        let said = parts.iter().find(|(part, _)| message.contains(part));
        Err(ApiError::Service {
            code: if refused.is_some() {
                "UnauthorizedOperation"
            } else {
                "DryRunOperation"
            }
            .to_owned(),
            message: said.map_or("", |(_, said)| said).to_owned(),
        })
    }

    fn refused(&self, op: &str) -> bool {
        self.case
            .calls
            .iter()
            .any(|call| call.op == op && call.error.is_some())
    }

    fn parameter(&self, path: &str) -> Result<Value, ApiError> {
        let answer = |id: &str| Ok(json!({ "Parameter": { "Value": id } }));
        if let Some(id) = self.case.given["answers"]["ssmParameters"][path].as_str() {
            return answer(id);
        }
        if let Some(id) = self.unnamed.lock().unwrap().pop() {
            return answer(&id);
        }
        let amis = self.after["status"]["amis"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let plain = |ami: &Value| {
            ami["requirements"]
                .as_array()
                .is_some_and(|all| all.len() == 1)
        };
        if !amis.is_empty() && amis.iter().all(plain) {
            return answer("ami-that-is-not-described");
        }
        let fits = |ami: &&Value| {
            let text = ami["requirements"].to_string();
            let arm = path.contains("arm64") == text.contains("arm64");
            let exists = |key: &str| text.contains(&format!("{key}\",\"operator\":\"Exists"));
            let (gpu, neuron) = (
                exists("instance-gpu-count"),
                exists("instance-accelerator-count"),
            );
            let wanted = if path.contains("nvidia") || path.contains("-gpu") {
                gpu
            } else if path.contains("neuron") {
                neuron
            } else {
                !gpu && !neuron
            };
            arm && wanted
        };
        match amis.iter().find(fits) {
            Some(ami) => answer(ami["id"].as_str().unwrap()),
            None => not_found("ParameterNotFound"),
        }
    }

    /// The group that a class selects, unless its status said before that there is none.
    fn group(&self) -> Value {
        let is = |object: &Value, status: &str| {
            let conditions = object["status"]["conditions"].as_array();
            conditions
                .into_iter()
                .flatten()
                .any(|each| each["type"] == "PlacementGroupReady" && each["status"] == status)
        };
        if is(&self.case.given["args"]["object"], "False") || is(&self.after, "False") {
            return json!({ "PlacementGroups": [] });
        }
        let mut found = self.case.given["answers"]["DescribePlacementGroups"].clone();
        for group in found["PlacementGroups"]
            .as_array_mut()
            .into_iter()
            .flatten()
        {
            group["State"] = json!("available");
        }
        found
    }

    /// A profile in the cache, or one that was made within the minute.
    fn warm_profile(&self, name: &str) -> Option<Result<Value, ApiError>> {
        let (given, object) = (&self.case.given, &self.case.given["args"]["object"]);
        let role = object["spec"]["role"].as_str();
        let made = format!("{}/{}", role?, object["metadata"]["uid"].as_str()?);
        let key = format!("instance-profile:{name}");
        let is_made = object["status"]["instanceProfile"] == name
            && texts(&given["recreationCache"]).any(|each| each == made);
        if !is_made && !texts(&given["warm"]["instanceProfile"]).any(|each| each == key) {
            return None;
        }
        let known = &given["behind"]["iam"]["instanceProfiles"][name];
        let role = role.and_then(|role| role.rsplit('/').next());
        let roles = match known["Roles"].clone() {
            mut roles @ Value::Array(_) => {
                without_paths(&mut roles);
                roles
            }
            _ => {
                json!([{ "RoleName": role, "Path": "/", "RoleId": "r", "Arn": "arn", "CreateDate": "2026-01-01T00:00:00Z" }])
            }
        };
        Some(Ok(json!({ "InstanceProfile": {
            "InstanceProfileName": name, "Path": "/", "InstanceProfileId": "i", "Arn": "arn",
            "CreateDate": "2026-01-01T00:00:00Z", "Roles": roles,
        } })))
    }
}

fn images(amis: &[Value]) -> Value {
    let mut seen = BTreeSet::new();
    let rows = amis.iter().enumerate().filter_map(|(at, ami)| {
        let id = ami["id"].as_str().unwrap();
        let arm = ami["requirements"].to_string().contains("arm64");
        let mut row = json!({
            "ImageId": id,
            "Name": ami["name"],
            "Architecture": if arm { "arm64" } else { "x86_64" },
            "CreationDate": format!("20{:02}-01-01T00:00:00Z", 99 - at),
        });
        if ami["deprecated"] == true {
            row["DeprecationTime"] = json!("2020-01-01T00:00:00Z");
        }
        seen.insert(id.to_owned()).then_some(row)
    });
    json!({ "Images": rows.collect::<Vec<_>>() })
}

fn reservations(stored: &[Value]) -> Value {
    let rows = stored.iter().map(|each| {
        json!({
            "CapacityReservationId": each["id"],
            "AvailabilityZone": each["availabilityZone"],
            "InstanceType": each["instanceType"],
            "OwnerId": each["ownerID"],
            "InstanceMatchCriteria": each["instanceMatchCriteria"],
            "ReservationType": each["reservationType"],
            "Interruptible": each["interruptible"],
            "EndDate": each["endTime"],
        })
    });
    json!({ "CapacityReservations": rows.collect::<Vec<_>>() })
}

/// The name of a role has no path; the stand-in took both for the name.
fn without_paths(roles: &mut Value) {
    for role in roles.as_array_mut().into_iter().flatten() {
        let name = role["RoleName"]
            .as_str()
            .and_then(|name| name.rsplit('/').next());
        role["RoleName"] = json!(name);
    }
}

/// Looking for a template by its name, which is a hash.
fn is_by_name(op: &str, input: &Value) -> bool {
    op == "DescribeLaunchTemplates" && input["LaunchTemplateNames"].is_array()
}

/// What of a template is not compared.
#[derive(Clone, Copy, Debug, Default)]
struct Loose {
    /// Most pods: the reference validates with a type that it made up, which takes none.
    pods: bool,
    /// Settings of the kubelet: of the same type expressions have no value.
    kubelet: bool,
    /// The placement group: the reference launches into one that it knew before, although the class says that there is none.
    group: bool,
}

impl Loose {
    fn of(case: &Case) -> Self {
        let made = || {
            case.calls
                .iter()
                .filter(|call| call.op == "CreateLaunchTemplate")
        };
        let data = |call: &RecordedCall| {
            let data = call.input.pointer("/LaunchTemplateData/UserData");
            data.and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let none = ["maxPods: 0\n", "max-pods=0", "max-pods = 0\n"];
        let conditions = after(case)["status"]["conditions"].clone();
        let mut conditions = conditions.as_array().into_iter().flatten();
        Self {
            pods: made()
                .map(data)
                .any(|text| none.iter().any(|none| text.contains(none))),
            kubelet: options(case)["FeatureGates"]["NodeClassCEL"] == true,
            group: conditions
                .any(|each| each["type"] == "PlacementGroupReady" && each["status"] == "False"),
        }
    }
}

/// The text without the number of pods.
fn without_pods(text: &str) -> String {
    let mut text = text.to_owned();
    for key in ["maxPods: ", "--max-pods=", "max-pods = "] {
        if let Some(at) = text.find(key) {
            let (before, after) = text.split_at(at);
            let after = after.strip_prefix(key).unwrap_or(after);
            let after = after.trim_start_matches(|c: char| c.is_ascii_digit());
            text = format!("{before}{after}");
        }
    }
    text
}

/// What differs without meaning anything.
fn reduce(op: &str, input: &mut Value, loose: Loose) {
    if let Some(Value::String(text)) = input.pointer_mut("/LaunchTemplateData/UserData") {
        *text = if loose.kubelet {
            String::new()
        } else if loose.pods {
            canonical_user_data(&without_pods(text))
        } else {
            canonical_user_data(text)
        };
    }
    if loose.group
        && let Some(Value::Object(placement)) = input.pointer_mut("/LaunchTemplateData/Placement")
    {
        placement.remove("GroupId");
    }
    if let (Some(name), "RemoveRoleFromInstanceProfile") = (input["RoleName"].as_str(), op) {
        input["RoleName"] = json!(name.rsplit('/').next());
    }
    if op == "DeleteLaunchTemplate" {
        *input = json!({});
    }
}

impl Answers for Recorded {
    fn answer(&self, call: ApiCall) -> Result<Value, ApiError> {
        let source = &self.case.given["instanceTypeSource"];
        if is_by_name(&call.op, &call.input) {
            return not_found("InvalidLaunchTemplateName.NotFoundException");
        }
        match &*call.op {
            "DescribeInstanceTypes" => {
                return Ok(self.types(resolved(&source["DescribeInstanceTypes"])));
            }
            "DescribeInstanceTypeOfferings" => {
                return Ok(resolved(&source["DescribeInstanceTypeOfferings"]));
            }
            "DescribeSpotPriceHistory" => return Ok(json!({})),
            _ => {}
        }
        let call = normal(self.renamed(call));
        let known = {
            let mut left = self.left.lock().unwrap();
            let at = left.iter().position(|each| *each == call);
            let makes = call.op == "CreateLaunchTemplate"
                || call.op == "CreateFleet"
                || call.op == "RunInstances";
            at.map(|at| left.remove(at)).is_some()
                || (makes && left.iter().any(|each| each.op == call.op))
        };
        match self.cached(&call).filter(|_| !known) {
            Some(answer) => answer,
            None => self.replay.answer(call),
        }
    }
}

impl Recorded {
    /// The types, reduced to the one that was tried, where that was any.
    fn types(&self, mut answer: Value) -> Value {
        let tried = self.case.calls.iter().find(|call| call.op == "CreateFleet");
        let tried = tried.and_then(|call| {
            call.input["LaunchTemplateConfigs"][0]["Overrides"][0]["InstanceType"].as_str()
        });
        let pools: Vec<Arc<NodePool>> = objects(&self.case, "NodePool");
        let random = |tried: &&str| !pools.is_empty() || !PREFERRED.contains(tried);
        if let Some(tried) = tried.filter(random) {
            let all = answer["InstanceTypes"].as_array_mut().unwrap();
            all.retain(|each| each["InstanceType"] == tried);
        }
        answer
    }
}

/// The AWS options in force.
pub(super) fn options(case: &Case) -> &'static Value {
    table(case.given["options"].as_str().unwrap())
}

/// Objects of a kind in the cluster.
pub(super) fn objects<T: serde::de::DeserializeOwned>(case: &Case, kind: &str) -> Vec<Arc<T>> {
    let all = case.given["objects"].as_array();
    let of_kind = all
        .into_iter()
        .flatten()
        .filter(|each| each["kind"] == kind);
    of_kind
        .map(|each| Arc::new(serde_json::from_value(each.clone()).unwrap()))
        .collect()
}
