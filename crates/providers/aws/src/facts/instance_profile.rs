//! Recorded operations on instance profiles: the provider's own, the garbage collection, and the IAM calls of whole reconciles.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_aws_class::spec::Ec2NodeClass;
use serde_json::{Value, json};

use super::api::wire::{ApiCall, ApiError};
use super::api::{self, Answers};
use super::replay::{Case, Difference, RecordedCall, RecordedError, Replay, load, resolved, score};
use crate::AwsConfig;
use crate::failure::{Failure, FailureKind};
use crate::node_class::instance_profiles::calls::FoundProfile;
use crate::node_class::instance_profiles::{InstanceProfiles, ProfilePlan, names};

/// Answers as recorded, where the one new profile has the recorded name. Names of new profiles are free: only equality counts.
#[derive(Debug)]
struct Renamed {
    replay: Replay,
    /// Names that the recording has, and the one among them that was made up.
    recorded: BTreeSet<String>,
    made_up: Option<String>,
    ours: Mutex<Option<String>>,
}

const NAME: &str = "InstanceProfileName";

impl Renamed {
    fn of(case: &Case) -> Self {
        let names = case
            .calls
            .iter()
            .filter_map(|call| call.input[NAME].as_str());
        let recorded: BTreeSet<String> = names.map(str::to_owned).collect();
        let known = |name: &&String| {
            case.given["args"]["object"]["status"]["instanceProfile"] != name.as_str()
        };
        Self {
            replay: Replay::of(&without_empty_tags(case)),
            made_up: recorded.iter().rfind(known).cloned(),
            recorded,
            ours: Mutex::default(),
        }
    }

    /// The name that the recording has for ours.
    fn recorded_name(&self, ours: &str) -> String {
        let made_up = self.made_up.clone();
        let is_new = self.ours.lock().unwrap().as_deref() == Some(ours);
        made_up
            .filter(|_| is_new)
            .unwrap_or_else(|| ours.to_owned())
    }
}

impl Answers for Renamed {
    fn answer(&self, mut call: ApiCall) -> Result<Value, ApiError> {
        let asked = call.input[NAME].as_str().map(str::to_owned);
        if let Some(asked) = asked.filter(|asked| !self.recorded.contains(asked)) {
            self.ours.lock().unwrap().get_or_insert(asked.clone());
            call.input[NAME] = Value::from(self.recorded_name(&asked));
        }
        let mut answer = self.replay.answer(call)?;
        let ours = self.ours.lock().unwrap().clone();
        if let (Some(ours), Some(profile)) = (ours, answer.get_mut("InstanceProfile"))
            && profile[NAME].as_str() == self.made_up.as_deref()
        {
            profile[NAME] = Value::from(ours);
        }
        Ok(answer)
    }
}

/// A list without items is not on the wire.
fn without_empty_tags(case: &Case) -> Case {
    let mut case = case.clone();
    for fields in case
        .calls
        .iter_mut()
        .filter_map(|call| call.input.as_object_mut())
    {
        fields.retain(|name, value| name != "Tags" || *value != json!([]));
    }
    case
}

/// The profiles of a case, with what was remembered.
fn profiles(case: &Case) -> (Arc<Renamed>, InstanceProfiles) {
    let answers = Arc::new(Renamed::of(case));
    let options = resolved(&case.given["options"]);
    let config = AwsConfig {
        cluster_name: options["ClusterName"]
            .as_str()
            .unwrap_or("test-cluster")
            .to_owned(),
        isolated_vpc: options["IsolatedVPC"] == true,
        ..AwsConfig::default()
    };
    let clients = api::clients(Arc::clone(&answers) as Arc<dyn Answers>);
    let profiles = InstanceProfiles::new(Arc::new(clients), Arc::new(config));
    let held = &case.given["behind"]["iam"]["instanceProfiles"];
    for key in texts(&case.given["warm"]["instanceProfile"]) {
        let name = key.rsplit(':').next().unwrap_or_default();
        if let Some(profile) = held.get(name) {
            profiles.memory().learn(found(profile));
        }
    }
    for name in texts(&case.given["protectedProfiles"]) {
        profiles.memory().protect(&name);
    }
    for role in texts(&case.given["warm"]["role"]) {
        profiles.memory().miss_role(&role, missing_role(&role));
    }
    for (role, uid) in texts(&case.given["recreationCache"])
        .iter()
        .filter_map(|key| key.rsplit_once('/'))
    {
        let role = names::bare_role(role);
        // The recording has not the name; it is that of the newest profile of the class with the role.
        let made = held
            .as_object()
            .into_iter()
            .flatten()
            .map(|(_, each)| found(each));
        let mut made =
            made.filter(|each| each.path.ends_with(&format!("/{uid}/")) && each.has_role(role));
        if let Some(made) = made.next_back() {
            profiles.memory().remember_made(role, uid, &made.name);
        }
    }
    (answers, profiles)
}

fn missing_role(role: &str) -> Failure {
    Failure {
        action: "iam:AddRoleToInstanceProfile",
        place: "region us-west-2".to_owned(),
        kind: FailureKind::Service,
        code: "NoSuchEntity".to_owned(),
        message: format!("The role with name {role} cannot be found."),
    }
}

fn found(profile: &Value) -> FoundProfile {
    let roles = profile["Roles"].as_array().into_iter().flatten();
    let text = |field: &str| profile[field].as_str().unwrap_or_default().to_owned();
    FoundProfile {
        name: text(NAME),
        path: text("Path"),
        arn: text("Arn"),
        roles: roles
            .filter_map(|role| role["RoleName"].as_str().map(str::to_owned))
            .collect(),
    }
}

fn texts(list: &Value) -> Vec<String> {
    let items = list.as_array().into_iter().flatten();
    items
        .filter_map(|each| each.as_str().map(str::to_owned))
        .collect()
}

fn run<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(work)
}

fn same<T: PartialEq + std::fmt::Debug>(
    what: &str,
    ours: T,
    recorded: T,
) -> Result<(), Difference> {
    if ours == recorded {
        Ok(())
    } else {
        Err(format!("{what}: ours {ours:?}, recorded {recorded:?}").into())
    }
}

fn same_result<T>(ours: &Result<T, Failure>, case: &Case) -> Result<(), Difference> {
    let recorded = case.expect.get("error");
    match ours {
        Ok(_) if recorded.is_some() => Err(format!("ours succeeds, recorded {recorded:?}").into()),
        Err(failure) if recorded.is_none() => Err(format!("ours fails: {failure}").into()),
        _ => Ok(()),
    }
}

/// The protected profiles and the roles with a profile made a moment ago, as they are afterwards.
fn same_memory(
    case: &Case,
    answers: &Renamed,
    profiles: &InstanceProfiles,
) -> Result<(), Difference> {
    let after = |field: &str| {
        let after = case.expect["after"].get(field);
        let list = texts(after.unwrap_or_else(|| &case.given[field]));
        list.into_iter().collect::<BTreeSet<String>>()
    };
    let (protected, made) = profiles.memory().remembered_names();
    let protected = protected
        .iter()
        .map(|name| answers.recorded_name(name))
        .collect();
    same("protected", protected, after("protectedProfiles"))?;
    let bare = |key: &String| {
        let (role, uid) = key.rsplit_once('/').unwrap();
        format!("{}/{uid}", names::bare_role(role))
    };
    let recorded: BTreeSet<String> = after("recreationCache").iter().map(bare).collect();
    let is_gone = case.given["args"]["object"]["metadata"]
        .get("deletionTimestamp")
        .is_some();
    // The recording keeps the guard of a class that is gone; ours goes with its profile.
    if is_gone {
        Ok(())
    } else {
        same("made", made, recorded)
    }
}

fn one(case: &Case) -> Result<(), Difference> {
    let (answers, profiles) = profiles(case);
    let args = &case.given["args"];
    let text = |field: &str| args[field].as_str().unwrap_or_default();
    let name = text("name");
    match case.op.as_str() {
        "instanceprofile.Create" => {
            let recorded = case
                .calls
                .iter()
                .find(|call| call.op == "CreateInstanceProfile");
            let tags = recorded.and_then(|call| call.input["Tags"].as_array());
            let tag = |tag: &Value| {
                (
                    tag["Key"].as_str().unwrap().to_owned(),
                    tag["Value"].as_str().unwrap().to_owned(),
                )
            };
            let tags: BTreeMap<String, String> = tags.into_iter().flatten().map(tag).collect();
            let made = run(profiles.create(ProfilePlan {
                name,
                path: Some(text("nodeClassUID")).filter(|path| !path.is_empty()),
                role: names::bare_role(text("role")),
                tags: &tags,
            }));
            same_result(&made, case)?;
        }
        "instanceprofile.Get" => {
            let got = run(profiles.get(name));
            same_result(&got, case)?;
            let recorded = case.expect.get("result").map(found);
            same("profile", got.ok().flatten(), recorded)?;
        }
        "instanceprofile.Delete" => same_result(&run(profiles.delete(name)), case)?,
        "instanceprofile.ListProfiles" => {
            let listed = run(profiles.list(text("pathPrefix")));
            same_result(&listed, case)?;
            let recorded = case.expect["result"].as_array().into_iter().flatten();
            same(
                "profiles",
                listed.unwrap_or_default(),
                recorded.map(found).collect(),
            )?;
        }
        "instanceprofile.IsProtected" => {
            let ours = profiles.memory().is_protected(name);
            same(
                "protected",
                Value::from(ours),
                case.expect["result"].clone(),
            )?;
        }
        "instanceprofile.SetProtectedState" if args["protected"] == true => {
            profiles.memory().protect(name)
        }
        "instanceprofile.SetProtectedState" => profiles.memory().forget(name),
        other => return Err(format!("unknown operation {other}").into()),
    }
    same_memory(case, &answers, &profiles)?;
    answers.replay.settled()
}

#[test]
fn operations_on_profiles_are_as_recorded() {
    score("instance_profile.jsonl", one);
}

fn objects<T: serde::de::DeserializeOwned>(case: &Case, kind: &str) -> Vec<T> {
    let objects = case.given["objects"].as_array().into_iter().flatten();
    let objects = objects.filter(|each| each["kind"] == kind);
    objects
        .map(|each| serde_json::from_value(each.clone()).unwrap())
        .collect()
}

fn claims_of(case: &Case, class: &Ec2NodeClass) -> Vec<Arc<NodeClaim>> {
    let claims = objects::<NodeClaim>(case, "NodeClaim").into_iter();
    let of_class = |claim: &NodeClaim| {
        Some(&*claim.spec.node_class_ref.name) == class.metadata.name.as_deref()
    };
    claims.filter(of_class).map(Arc::new).collect()
}

fn collected(case: &Case) -> Result<(), Difference> {
    let (answers, profiles) = profiles(case);
    run(async {
        for class in objects::<Ec2NodeClass>(case, "EC2NodeClass") {
            profiles.observe(&class, &claims_of(case, &class));
        }
        // Claims of classes that are not there, or whose class the recording leaves out.
        same_result(&profiles.collect().await, case)
    })?;
    same_memory(case, &answers, &profiles)?;
    answers.replay.settled()
}

/// A call that ends the reconcile: not a profile that is searched for and not there.
fn is_failure(call: &RecordedCall) -> bool {
    let code = |error: &RecordedError| error.aws.as_ref().map(|each| each.code.clone());
    let error = call.error.as_ref();
    error.is_some_and(|error| {
        call.op != "GetInstanceProfile" || code(error).as_deref() != Some("NoSuchEntity")
    })
}

/// The profile part of a whole reconcile: the same calls, and the same name in the status afterwards.
fn reconciled(case: &Case) -> Result<(), Difference> {
    let (answers, profiles) = profiles(case);
    let class: Ec2NodeClass = serde_json::from_value(case.given["args"]["object"].clone()).unwrap();
    let claims = claims_of(case, &class);
    let name = class.metadata.name.as_deref().unwrap_or_default();
    let mut after = case.expect["changes"].as_array().into_iter().flatten();
    let after = after.rfind(|each| each["kind"] == "EC2NodeClass" && each["name"] == name);
    if class.metadata.deletion_timestamp.is_some() {
        if claims.is_empty() {
            let uid = class.metadata.uid.as_deref().unwrap_or_default();
            same_result(&run(profiles.release(name, uid)), case)?;
        }
    } else {
        let stored = class.status.instance_profile.clone();
        let ensured = run(profiles.ensure(&class, &claims));
        let of_role = class
            .spec
            .role
            .as_deref()
            .is_some_and(|role| role.contains('/'));
        let renewed = case
            .calls
            .iter()
            .filter(|call| call.op == "GetInstanceProfile")
            .count()
            > 1;
        if of_role && renewed && stored.is_some() && answers.ours.lock().unwrap().is_none() {
            return Err(Difference::Meant(
                "the role of a profile is compared without its path, so that the profile is not renewed every 15 minutes",
            ));
        }
        let failed = case.calls.iter().any(is_failure);
        same("failure", ensured.is_err(), failed)?;
        if case.expect.get("panic").is_some() {
            // The reference crashes later, and nothing is recorded of what it knew.
            return answers.replay.settled();
        }
        let ours = ensured
            .ok()
            .flatten()
            .map(|name| answers.recorded_name(&name))
            .or_else(|| stored.clone());
        let recorded = after.map_or_else(
            || json!(stored),
            |each| each["object"]["status"]["instanceProfile"].clone(),
        );
        same("status", json!(ours), recorded)?;
    }
    same_memory(case, &answers, &profiles)?;
    answers.replay.settled()
}

/// The cases of a file that share it with another area.
fn part(name: &str, what: &str, ops: &[&str], run: impl Fn(&Case) -> Result<(), Difference>) {
    let (mut passed, mut meant, mut failed) = (0, BTreeMap::<&str, Vec<String>>::new(), Vec::new());
    for mut case in load(name) {
        if !ops.contains(&&*case.op) {
            continue;
        }
        case.calls
            .retain(|call| call.op.contains("InstanceProfile"));
        match run(&case) {
            Ok(()) => passed += 1,
            Err(Difference::Meant(reason)) => meant.entry(reason).or_default().push(case.id),
            Err(Difference::Found(text)) => failed.push(format!("{} {}: {text}", case.id, case.op)),
        }
    }
    println!("{name} ({what}): {passed} passed, {} failed", failed.len());
    for (reason, ids) in &meant {
        println!("  on purpose ({reason}): {}", ids.join(" "));
    }
    let first: Vec<_> = failed.iter().take(8).cloned().collect();
    assert!(
        failed.is_empty(),
        "{} failed:\n{}",
        failed.len(),
        first.join("\n")
    );
}

#[test]
fn unused_profiles_are_collected_as_recorded() {
    let ops = ["controllers/nodeclass/garbagecollection.Reconcile"];
    part("nodeclass_controllers.jsonl", "profiles", &ops, collected);
}

#[test]
fn reconciles_make_the_recorded_iam_calls() {
    let ops = ["controllers/nodeclass.Controller.Reconcile"];
    part("nodeclass.jsonl", "profiles", &ops, reconciled);
}
