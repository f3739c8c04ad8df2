//! An EC2 that answers launches as recorded, and calls in a form in which ours and recorded ones can be compared.

use std::collections::BTreeMap;
use std::sync::Mutex;

use serde_json::{Value, json};

use super::super::api::Answers;
use super::super::api::wire::{ApiCall, ApiError};
use super::super::replay::{Case, RecordedCall, Replay, normal};
use crate::tags;

/// Calls that resolve a class: a launch takes it resolved.
const RESOLVING: [&str; 2] = ["DescribePlacementGroups", "GetManagedResource"];

/// The contents of a CreateLaunchTemplate call, without the name.
pub(super) fn content(input: &Value, bare: bool) -> String {
    let mut input = input.clone();
    if let Some(fields) = input.as_object_mut() {
        fields.remove("LaunchTemplateName");
    }
    let call = ApiCall {
        op: "CreateLaunchTemplate".to_owned(),
        input,
    };
    canonical(call, bare).input.to_string()
}

/// The same call with everything left out or put in order that may differ; `bare`: without tags.
pub(super) fn canonical(mut call: ApiCall, bare: bool) -> ApiCall {
    if bare {
        empty_tags(&mut call.input);
    }
    without_tags(&mut call.input, &[tags::NODECLAIM, tags::NODECLAIM_UID]);
    if let Some(Value::String(text)) = call.input.pointer_mut("/LaunchTemplateData/UserData") {
        *text = canonical_user_data(text);
    }
    normal(call)
}

/// Empties every list of tags.
fn empty_tags(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(empty_tags),
        Value::Object(fields) => {
            for (name, item) in fields {
                match item {
                    Value::Array(tags) if name == "Tags" => tags.clear(),
                    other => empty_tags(other),
                }
            }
        }
        _ => {}
    }
}

/// Drops tags everywhere.
fn without_tags(value: &mut Value, keys: &[&str]) {
    match value {
        Value::Array(items) => {
            items.retain(|item| !keys.iter().any(|key| item["Key"] == **key));
            items.iter_mut().for_each(|item| without_tags(item, keys));
        }
        Value::Object(fields) => {
            let fields = fields.values_mut();
            fields.for_each(|item| without_tags(item, keys));
        }
        _ => {}
    }
}

/// User data whose order does not matter: flags, and tables.
pub(crate) fn canonical_user_data(text: &str) -> String {
    if text.contains("ubelet-extra-args") || text.contains("KubeletExtraArgs") {
        let mut words: Vec<&str> = text.split([' ', ',', '"', '\'', '\n', '\\']).collect();
        words.retain(|word| !word.is_empty());
        words.sort_unstable();
        return words.join(" ");
    }
    match text.parse::<toml::Table>() {
        Ok(table) if table.contains_key("settings") => {
            serde_json::to_value(&table).unwrap().to_string()
        }
        _ => text.to_owned(),
    }
}

/// Learns what templates a launch makes, and launches nothing.
#[derive(Debug, Default)]
pub(super) struct Probe {
    pub(super) bare: bool,
    pub(super) names: Mutex<BTreeMap<String, String>>,
}

impl Answers for Probe {
    fn answer(&self, call: ApiCall) -> Result<Value, ApiError> {
        match call.op.as_str() {
            "DescribeLaunchTemplates" => Err(ApiError::Service {
                code: "InvalidLaunchTemplateName.NotFoundException".to_owned(),
                message: String::new(),
            }),
            "CreateLaunchTemplate" => {
                let name = call.input["LaunchTemplateName"].as_str().unwrap();
                let mut names = self.names.lock().unwrap();
                names.insert(name.to_owned(), content(&call.input, self.bare));
                Ok(json!({ "LaunchTemplate": { "LaunchTemplateName": name } }))
            }
            _ => Err(ApiError::Transport("only a probe".to_owned())),
        }
    }
}

/// Answers as recorded, under the recorded names of templates.
#[derive(Debug)]
pub(super) struct Renamed {
    pub(super) replay: Replay,
    pub(super) bare: bool,
    pub(super) names: BTreeMap<String, String>,
    /// A template call that is recorded to fail fails for every template, because ours are made at the same time.
    pub(super) failing: Option<RecordedCall>,
}

impl Answers for Renamed {
    fn answer(&self, mut call: ApiCall) -> Result<Value, ApiError> {
        rename(&mut call.input, &self.names);
        if let Some(failing) = &self.failing {
            if call.op == failing.op {
                return failing.answer();
            }
            if call.op == "DescribeLaunchTemplates" {
                return Err(ApiError::Service {
                    code: "InvalidLaunchTemplateName.NotFoundException".to_owned(),
                    message: String::new(),
                });
            }
        }
        self.replay.answer(canonical(call, self.bare))
    }
}

fn rename(value: &mut Value, names: &BTreeMap<String, String>) {
    match value {
        Value::String(text) => {
            if let Some(name) = names.get(text.as_str()) {
                *text = name.clone();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| rename(item, names)),
        Value::Object(fields) => fields.values_mut().for_each(|item| rename(item, names)),
        _ => {}
    }
}

/// A recorded case, made comparable.
pub(super) struct Recorded {
    pub(super) case: Case,
    /// Why it makes more calls than we do.
    pub(super) wasteful: Option<&'static str>,
    /// The call for a template that fails.
    pub(super) failing: Option<RecordedCall>,
}

/// Whether a case is below the level that knows tags: it has none.
pub(super) fn is_bare(case: &Case) -> bool {
    case.op != "cloudprovider.Create"
}

impl Recorded {
    /// The calls of a case in canonical form, without those that resolve the class and those that nothing needs.
    pub(super) fn of(case: &Case) -> Self {
        let mut case = case.clone();
        case.calls
            .retain(|call| !RESOLVING.contains(&call.op.as_str()));
        let made = case.calls.len();
        let mut wasteful = None;
        let has = |op: &str| case.calls.iter().any(|call| call.op == op);
        if has("CreateFleet") {
            let fleets: Vec<String> = case
                .calls
                .iter()
                .filter(|call| call.op == "CreateFleet")
                .map(|call| call.input["LaunchTemplateConfigs"].to_string())
                .collect();
            case.calls.retain(|call| {
                let name = match call.op.as_str() {
                    "CreateLaunchTemplate" => &call.input["LaunchTemplateName"],
                    "DescribeLaunchTemplates" => &call.input["LaunchTemplateNames"][0],
                    _ => return true,
                };
                fleets.iter().any(|fleet| fleet.contains(&name.to_string()))
            });
            wasteful = Some("no templates are made for types that the request does not ask for");
        } else if !has("CreateLaunchTemplate") && case.expect["error"].is_object() {
            case.calls.clear();
            wasteful = Some("what is wrong with a class is found before AWS is asked");
        }
        let wasteful = wasteful.filter(|_| case.calls.len() < made);
        let bare = is_bare(&case);
        for call in &mut case.calls {
            let input = std::mem::take(&mut call.input);
            let op = call.op.clone();
            call.input = canonical(ApiCall { op, input }, bare).input;
        }
        let mut calls = case.calls.iter();
        let failing = calls.find(|call| call.op == "CreateLaunchTemplate" && call.error.is_some());
        Self {
            failing: failing.cloned(),
            case,
            wasteful,
        }
    }

    /// Our templates that exist in the recording, with their names there.
    pub(super) fn names(&self, ours: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        let bare = is_bare(&self.case);
        let calls = self.case.calls.iter();
        let made = calls
            .filter(|call| call.op == "CreateLaunchTemplate")
            .map(|call| {
                (
                    content(&call.input, bare),
                    &call.input["LaunchTemplateName"],
                )
            });
        let existing = self.existing();
        let existing = existing.map(|each| (content(&each["body"], bare), &each["name"]));
        let by_content: BTreeMap<String, &Value> = made.chain(existing).collect();
        ours.iter()
            .filter_map(|(name, content)| {
                let recorded = by_content.get(content)?.as_str()?;
                Some((name.clone(), recorded.to_owned()))
            })
            .collect()
    }

    pub(super) fn existing(&self) -> impl Iterator<Item = &Value> {
        let existing = self.case.given["existingLaunchTemplates"].as_array();
        existing.into_iter().flatten()
    }
}
