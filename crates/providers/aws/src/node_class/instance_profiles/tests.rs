//! What recorded operations do not show: crashes, lost answers, another process at the same time, roles that do not exist, and who
//! may be collected when.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_aws_class::spec::Ec2NodeClass;
use serde_json::{Value, json};

use super::InstanceProfiles;
use crate::AwsConfig;
use crate::facts::api::wire::{ApiCall, ApiError};
use crate::facts::api::{self, Answers};

const NAME: &str = "InstanceProfileName";

/// IAM in memory, with what a test makes of it.
#[derive(Debug, Default)]
struct FakeIam {
    state: Mutex<FakeState>,
}

#[derive(Debug, Default)]
struct FakeState {
    profiles: BTreeMap<String, Value>,
    /// Operations, in order.
    calls: Vec<String>,
    roles: BTreeSet<&'static str>,
    /// ARNs of profiles that an instance has.
    used: BTreeSet<String>,
    /// The next call of this operation takes effect, and its answer is lost.
    lost: Option<&'static str>,
    /// Calls of this operation fail with this code.
    refused: Option<(&'static str, &'static str)>,
    /// The role that another process adds just before ours does.
    raced: Option<&'static str>,
}

fn service(code: &str, message: String) -> ApiError {
    ApiError::Service {
        code: code.to_owned(),
        message,
    }
}

impl FakeState {
    fn apply(&mut self, op: &str, input: &Value) -> Result<Value, ApiError> {
        let name = input[NAME].as_str().unwrap_or_default().to_owned();
        let missing = || {
            service(
                "NoSuchEntity",
                format!("Instance Profile {name} cannot be found."),
            )
        };
        let role = input["RoleName"].as_str().unwrap_or_default();
        match op {
            "CreateInstanceProfile" if self.profiles.contains_key(&name) => Err(service(
                "EntityAlreadyExists",
                format!("Instance Profile {name} already exists."),
            )),
            "CreateInstanceProfile" => {
                let path = input["Path"].as_str().unwrap_or("/");
                let profile =
                    json!({ NAME: name, "Path": path, "Arn": format!("arn:{name}"), "Roles": [] });
                self.profiles.insert(name, profile.clone());
                Ok(json!({ "InstanceProfile": profile }))
            }
            "GetInstanceProfile" => {
                let profile = self.profiles.get(&name).ok_or_else(missing)?;
                Ok(json!({ "InstanceProfile": profile }))
            }
            "AddRoleToInstanceProfile" => {
                let raced = self.raced.take();
                let profile = self.profiles.get_mut(&name).ok_or_else(missing)?;
                if let Some(raced) = raced {
                    profile["Roles"] = json!([{ "RoleName": raced }]);
                }
                if !self.roles.contains(role) {
                    return Err(service(
                        "NoSuchEntity",
                        format!("The role with name {role} cannot be found."),
                    ));
                }
                if profile["Roles"] != json!([]) {
                    return Err(service(
                        "LimitExceeded",
                        "Cannot exceed quota for InstanceSessionsPerInstanceProfile: 1".to_owned(),
                    ));
                }
                profile["Roles"] = json!([{ "RoleName": role }]);
                Ok(json!({}))
            }
            "RemoveRoleFromInstanceProfile" => {
                self.profiles.get_mut(&name).ok_or_else(missing)?["Roles"] = json!([]);
                Ok(json!({}))
            }
            "DeleteInstanceProfile" => {
                let profile = self.profiles.get(&name).ok_or_else(missing)?;
                if profile["Roles"] != json!([]) {
                    return Err(service(
                        "DeleteConflict",
                        "Cannot delete entity, must remove roles from instance profile first."
                            .to_owned(),
                    ));
                }
                self.profiles.remove(&name);
                Ok(json!({}))
            }
            "ListInstanceProfiles" => {
                let prefix = input["PathPrefix"].as_str().unwrap();
                let listed = self
                    .profiles
                    .values()
                    .filter(|each| each["Path"].as_str().unwrap().starts_with(prefix));
                Ok(json!({ "InstanceProfiles": listed.collect::<Vec<_>>(), "IsTruncated": false }))
            }
            "DescribeInstances" => {
                let asked = input.to_string();
                let used = self.used.iter().any(|arn| asked.contains(&**arn));
                let found = if used {
                    json!([{ "Instances": [{ "InstanceId": "i-1" }] }])
                } else {
                    json!([])
                };
                Ok(json!({ "Reservations": found }))
            }
            other => panic!("{other} is not expected"),
        }
    }
}

impl Answers for FakeIam {
    fn answer(&self, call: ApiCall) -> Result<Value, ApiError> {
        let mut state = self.state.lock().unwrap();
        state.calls.push(call.op.clone());
        if let Some((op, code)) = state.refused
            && op == call.op
        {
            return Err(service(code, "refused".to_owned()));
        }
        let answer = state.apply(&call.op, &call.input);
        if state.lost.is_some_and(|op| op == call.op) {
            state.lost = None;
            return Err(ApiError::Transport("the answer was lost".to_owned()));
        }
        answer
    }
}

impl FakeIam {
    fn with_roles(roles: &[&'static str]) -> Arc<Self> {
        let iam = Self::default();
        iam.set(|state| state.roles.extend(roles));
        Arc::new(iam)
    }

    fn set(&self, change: impl FnOnce(&mut FakeState)) {
        change(&mut self.state.lock().unwrap());
    }

    /// Profiles by name, with their role.
    fn profiles(&self) -> BTreeMap<String, Option<String>> {
        let state = self.state.lock().unwrap();
        let role = |profile: &Value| profile["Roles"][0]["RoleName"].as_str().map(str::to_owned);
        state
            .profiles
            .iter()
            .map(|(name, profile)| (name.clone(), role(profile)))
            .collect()
    }

    fn calls(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().unwrap().calls)
    }
}

/// A process with these profiles.
fn process(iam: &Arc<FakeIam>) -> Arc<InstanceProfiles> {
    process_with(iam, AwsConfig::default())
}

fn process_with(iam: &Arc<FakeIam>, config: AwsConfig) -> Arc<InstanceProfiles> {
    let clients = api::clients(Arc::clone(iam) as Arc<dyn Answers>);
    let config = AwsConfig {
        cluster_name: "test".to_owned(),
        ..config
    };
    Arc::new(InstanceProfiles::new(Arc::new(clients), Arc::new(config)))
}

fn class(uid: &str, role: &str, stored: Option<&str>) -> Ec2NodeClass {
    serde_json::from_value(json!({
        "metadata": { "name": format!("class-{uid}"), "uid": uid, "generation": 1 },
        "spec": { "role": role },
        "status": { "instanceProfile": stored },
    }))
    .unwrap()
}

fn claim(profile: &str) -> Arc<NodeClaim> {
    let annotations = json!({ "karpenter.k8s.aws/instance-profile-name": profile });
    Arc::new(
        serde_json::from_value(json!({ "metadata": { "name": "c", "annotations": annotations } }))
            .unwrap(),
    )
}

async fn ensured(profiles: &InstanceProfiles, class: &Ec2NodeClass) -> String {
    profiles.ensure(class, &[]).await.unwrap().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_process_that_was_killed_leaves_nothing_that_the_next_one_does_not_find() {
    let iam = FakeIam::with_roles(&["a", "b"]);
    let first = ensured(&process(&iam), &class("u", "a", None)).await;
    // The status was not written.
    assert_eq!(ensured(&process(&iam), &class("u", "a", None)).await, first);
    // It was killed between the two calls.
    iam.set(|state| state.profiles.get_mut(&first).unwrap()["Roles"] = json!([]));
    assert_eq!(ensured(&process(&iam), &class("u", "a", None)).await, first);
    assert_eq!(
        iam.profiles(),
        BTreeMap::from([(first.clone(), Some("a".to_owned()))])
    );
    // Another role, and the first one again: three profiles, each with one meaning.
    let second = ensured(&process(&iam), &class("u", "b", Some(&first))).await;
    let third = ensured(&process(&iam), &class("u", "a", Some(&second))).await;
    assert_eq!(BTreeSet::from([&first, &second, &third]).len(), 3);
    assert_eq!(
        iam.profiles()[&first].as_deref(),
        Some("a"),
        "instances may have it"
    );
}

#[tokio::test(start_paused = true)]
async fn a_status_that_is_not_written_yet_makes_no_second_profile() {
    let iam = FakeIam::with_roles(&["a"]);
    let profiles = process(&iam);
    let name = ensured(&profiles, &class("u", "a", None)).await;
    assert_eq!(
        iam.calls(),
        [
            "GetInstanceProfile",
            "CreateInstanceProfile",
            "AddRoleToInstanceProfile"
        ]
    );
    assert_eq!(ensured(&profiles, &class("u", "a", None)).await, name);
    assert_eq!(
        ensured(&profiles, &class("u", "path/to/a", Some(&name))).await,
        name
    );
    assert_eq!(iam.calls(), [""; 0]);
    tokio::time::advance(Duration::from_secs(16 * 60)).await;
    assert_eq!(
        ensured(&profiles, &class("u", "path/to/a", Some(&name))).await,
        name
    );
    assert_eq!(iam.calls(), ["GetInstanceProfile"], "read again");
}

#[tokio::test(start_paused = true)]
async fn a_role_that_does_not_exist_is_asked_for_once_a_minute() {
    let iam = FakeIam::with_roles(&[]);
    let profiles = process(&iam);
    let failure = profiles
        .ensure(&class("u", "path/a", None), &[])
        .await
        .unwrap_err();
    assert!(failure.is_role_missing(), "{failure}");
    assert_eq!(
        iam.profiles(),
        BTreeMap::new(),
        "the half-made profile is gone"
    );
    iam.calls();
    for (uid, role) in [("u", "path/a"), ("u", "a"), ("v", "other/a")] {
        assert_eq!(
            profiles
                .ensure(&class(uid, role, None), &[])
                .await
                .unwrap_err(),
            failure
        );
    }
    assert_eq!(iam.calls(), [""; 0]);
    iam.set(|state| state.roles.extend(["a"]));
    tokio::time::advance(Duration::from_secs(61)).await;
    ensured(&profiles, &class("u", "path/a", None)).await;
}

#[tokio::test(start_paused = true)]
async fn a_profile_that_is_complete_after_a_failure_is_kept() {
    let iam = FakeIam::with_roles(&["a"]);
    iam.set(|state| state.lost = Some("AddRoleToInstanceProfile"));
    let name = ensured(&process(&iam), &class("u", "a", None)).await;
    assert_eq!(iam.profiles()[&name].as_deref(), Some("a"));
    // Another process makes the same profile at the same time.
    iam.set(|state| {
        state.profiles.clear();
        state.raced = Some("a");
    });
    assert_eq!(ensured(&process(&iam), &class("u", "a", None)).await, name);
    assert_eq!(iam.profiles()[&name].as_deref(), Some("a"));
    // A profile whose role a user has changed is replaced, not repaired: instances have it.
    iam.set(|state| state.profiles.get_mut(&name).unwrap()["Roles"] = json!([{ "RoleName": "z" }]));
    let other = ensured(&process(&iam), &class("u", "a", Some(&name))).await;
    assert_ne!(other, name);
    assert_eq!(iam.profiles()[&name].as_deref(), Some("z"));
}

#[tokio::test(start_paused = true)]
async fn a_refusal_leaves_nothing_behind_and_says_what_was_refused() {
    for op in [
        "GetInstanceProfile",
        "CreateInstanceProfile",
        "AddRoleToInstanceProfile",
    ] {
        let iam = FakeIam::with_roles(&["a"]);
        iam.set(|state| state.refused = Some((op, "AccessDenied")));
        let failure = process(&iam)
            .ensure(&class("u", "a", None), &[])
            .await
            .unwrap_err();
        assert_eq!(
            (failure.action, failure.label()),
            (&*format!("iam:{op}"), "unauthorized")
        );
        assert_eq!(iam.profiles(), BTreeMap::new(), "{op}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_class_is_launched_with_is_known_only_when_it_is_ready() {
    let mut class = class("u", "a", Some("p"));
    assert_eq!(InstanceProfiles::known(&class), None);
    let condition =
        json!([{ "type": "InstanceProfileReady", "status": "True", "observedGeneration": 1 }]);
    class.status.conditions = serde_json::from_value(condition).unwrap();
    assert_eq!(InstanceProfiles::known(&class).as_deref(), Some("p"));
    class.metadata.generation = Some(2);
    assert_eq!(
        InstanceProfiles::known(&class),
        None,
        "the role may be another"
    );
    class.spec.instance_profile = Some("given".to_owned());
    assert_eq!(InstanceProfiles::known(&class).as_deref(), Some("given"));
}

#[tokio::test(start_paused = true)]
async fn a_released_class_leaves_no_profile() {
    let iam = FakeIam::with_roles(&["a", "b"]);
    let profiles = process(&iam);
    let first = ensured(&profiles, &class("u", "a", None)).await;
    ensured(&profiles, &class("u", "b", Some(&first))).await;
    let other = ensured(&profiles, &class("v", "a", None)).await;
    iam.set(|state| state.lost = Some("DeleteInstanceProfile"));
    profiles.release("class-u", "u").await.unwrap_err();
    profiles.release("class-u", "u").await.unwrap();
    profiles.release("class-u", "u").await.unwrap();
    assert_eq!(iam.profiles().into_keys().collect::<Vec<_>>(), [other]);
    let isolated = AwsConfig {
        isolated_vpc: true,
        ..AwsConfig::default()
    };
    let isolated = process_with(&iam, isolated);
    iam.calls();
    isolated.release("class-v", "v").await.unwrap();
    assert_eq!(iam.calls(), [""; 0]);
    assert!(isolated.collector().is_none() && profiles.collector().is_some());
}

const HALF_AN_HOUR: Duration = Duration::from_secs(30 * 60);

#[tokio::test(start_paused = true)]
async fn a_profile_is_collected_when_neither_class_nor_claims_nor_launches_have_it() {
    let iam = FakeIam::with_roles(&["a", "b"]);
    let profiles = process(&iam);
    let old = ensured(&profiles, &class("u", "a", None)).await;
    let current = ensured(&profiles, &class("u", "b", Some(&old))).await;
    let now = class("u", "b", Some(&current));
    let has_old = || iam.profiles().contains_key(&old);
    for _ in 0..3 {
        profiles.ensure(&now, &[claim(&old)]).await.unwrap();
        profiles.collect().await.unwrap();
        tokio::time::advance(HALF_AN_HOUR).await;
        assert!(has_old());
    }
    iam.calls();
    profiles.collect().await.unwrap();
    assert!(
        has_old() && iam.calls().is_empty(),
        "what is known of the class is old"
    );
    profiles.ensure(&now, &[]).await.unwrap();
    profiles.collect().await.unwrap();
    assert_eq!(iam.profiles().into_keys().collect::<Vec<_>>(), [current]);
}

#[tokio::test(start_paused = true)]
async fn a_profile_of_a_class_that_is_gone_is_collected_when_no_instance_has_it() {
    let iam = FakeIam::with_roles(&["a"]);
    let left = ensured(&process(&iam), &class("gone", "a", None)).await;
    let follower = process(&iam);
    iam.calls();
    tokio::time::advance(HALF_AN_HOUR * 3).await;
    follower.collect().await.unwrap();
    assert_eq!(
        iam.calls(),
        [""; 0],
        "a process that resolves no class knows nothing"
    );
    let leader = process(&iam);
    let other = ensured(&leader, &class("u", "a", None)).await;
    let now = class("u", "a", Some(&other));
    leader.collect().await.unwrap();
    assert!(
        iam.profiles().contains_key(&left),
        "its class may not have been resolved yet"
    );
    tokio::time::advance(HALF_AN_HOUR).await;
    leader.ensure(&now, &[]).await.unwrap();
    iam.set(|state| state.used = BTreeSet::from([format!("arn:{left}")]));
    leader.collect().await.unwrap();
    assert!(iam.profiles().contains_key(&left), "an instance has it");
    iam.set(|state| state.used.clear());
    leader.collect().await.unwrap();
    assert_eq!(iam.profiles().into_keys().collect::<Vec<_>>(), [other]);
}
