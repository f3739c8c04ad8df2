//! Recorded operations of the reference implementation: what it was given, every call that it made with its answer, and what came of
//! it. A case is replayed by running our operation against [`Replay`], which answers calls as recorded, and comparing.

use std::collections::BTreeMap;
use std::sync::{LazyLock, Mutex};

use serde::Deserialize;
use serde_json::Value;

use super::api::Answers;
use super::api::wire::{ApiCall, ApiError};
use super::{cases, read};

/// One recorded operation. Texts such as `it:0123` within are keys into [`table`].
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Case {
    pub(crate) id: String,
    /// Where it was seen.
    #[serde(default)]
    pub(crate) suite: String,
    pub(crate) op: String,
    /// Cases with the same name ran one after the other on the same caches.
    #[serde(default)]
    pub(crate) session: String,
    #[serde(default)]
    pub(crate) given: Value,
    #[serde(default)]
    pub(crate) calls: Vec<RecordedCall>,
    #[serde(default)]
    pub(crate) expect: Value,
    #[serde(default)]
    pub(crate) complete: Option<bool>,
}

/// A call of the reference implementation, with its answer.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct RecordedCall {
    pub(crate) op: String,
    #[serde(rename = "in", default)]
    pub(crate) input: Value,
    #[serde(default)]
    pub(crate) out: Value,
    #[serde(default)]
    pub(crate) error: Option<RecordedError>,
}

/// An error of the AWS API; without `aws` the call did not get through.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct RecordedError {
    pub(crate) aws: Option<RecordedCode>,
    pub(crate) message: String,
}

/// Code and message of an API error.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct RecordedCode {
    pub(crate) code: String,
    pub(crate) message: String,
}

impl RecordedCall {
    /// Its answer.
    pub(crate) fn answer(&self) -> Result<Value, ApiError> {
        match &self.error {
            None => Ok(resolved(&self.out)),
            Some(RecordedError {
                aws: Some(RecordedCode { code, message }),
                ..
            }) => Err(ApiError::Service {
                code: code.clone(),
                message: message.clone(),
            }),
            Some(error) => Err(ApiError::Transport(error.message.clone())),
        }
    }
}

/// Values that cases refer to by key.
static TABLES: LazyLock<BTreeMap<String, Value>> = LazyLock::new(|| {
    let lines = [
        "table_instance_types_resolved.jsonl",
        "table_aws_outputs.jsonl",
    ];
    let mut all: BTreeMap<String, Value> = lines
        .iter()
        .flat_map(|name| cases(name))
        .map(|(_, mut line)| (line["key"].as_str().unwrap().to_owned(), line["v"].take()))
        .collect();
    let options: BTreeMap<String, Value> =
        serde_json::from_str(&read("table_options.json")).unwrap();
    all.extend(options);
    all
});

/// The value behind a key such as `out:0123`.
pub(crate) fn table(key: &str) -> &'static Value {
    TABLES
        .get(key)
        .unwrap_or_else(|| panic!("no table has {key}"))
}

/// The value itself, or the one it is a key of.
pub(crate) fn resolved(value: &Value) -> Value {
    match value {
        Value::String(key) if TABLES.contains_key(key) => table(key).clone(),
        other => other.clone(),
    }
}

/// All cases of a file that are complete.
pub(crate) fn load(name: &str) -> Vec<Case> {
    cases(name)
        .into_iter()
        .map(|(line, case)| {
            serde_json::from_value(case).unwrap_or_else(|error| panic!("{name}:{line}: {error}"))
        })
        .filter(|case: &Case| case.complete != Some(false))
        .collect()
}

/// How a replay differs from the recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Difference {
    /// On purpose, for this reason; it is in `docs/differences.md`.
    Meant(&'static str),
    /// Not on purpose.
    Found(String),
}

impl<T: Into<String>> From<T> for Difference {
    fn from(text: T) -> Self {
        Self::Found(text.into())
    }
}

/// Replays the cases of a file, prints the score, the differences that are meant by reason and id, and fails with the first that are
/// not. `MORTISE_FACTS_SHOW` is how many those are (8).
pub(crate) fn score(name: &str, run: impl Fn(&Case) -> Result<(), Difference>) {
    score_of(name, |_| true, run);
}

/// As [`score`], for those operations of a file that `of` picks.
pub(crate) fn score_of(
    name: &str,
    of: impl Fn(&str) -> bool,
    run: impl Fn(&Case) -> Result<(), Difference>,
) {
    let (mut passed, mut failed) = (0, Vec::new());
    let mut meant: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut by_op: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for case in load(name).into_iter().filter(|case| of(&case.op)) {
        let counts = by_op.entry(case.op.clone()).or_default();
        match run(&case) {
            Ok(()) => {
                passed += 1;
                counts.0 += 1;
            }
            Err(Difference::Meant(reason)) => meant.entry(reason).or_default().push(case.id),
            Err(Difference::Found(text)) => {
                counts.1 += 1;
                failed.push(format!("{} {}: {text}", case.id, case.op));
            }
        }
    }
    let different: usize = meant.values().map(Vec::len).sum();
    println!(
        "{name}: {passed} passed, {} failed, {different} different on purpose",
        failed.len()
    );
    for (op, (passed, failed)) in &by_op {
        println!("  {op}: {passed} passed, {failed} failed");
    }
    for (reason, ids) in &meant {
        println!("  on purpose ({reason}): {}", ids.join(" "));
    }
    let shown = std::env::var("MORTISE_FACTS_SHOW").map_or(8, |text| text.parse().unwrap());
    let first: Vec<_> = failed.iter().take(shown).cloned().collect();
    assert!(
        failed.is_empty(),
        "{} of {name} failed:\n{}",
        failed.len(),
        first.join("\n")
    );
}

/// Answers calls as they were recorded, whatever their order, each recording once.
#[derive(Debug)]
pub(crate) struct Replay {
    state: Mutex<ReplayState>,
}

#[derive(Debug)]
struct ReplayState {
    left: Vec<(ApiCall, Result<Value, ApiError>)>,
    made: Vec<ApiCall>,
    unexpected: Vec<ApiCall>,
}

impl Replay {
    /// Knows the calls of a case.
    pub(crate) fn of(case: &Case) -> Self {
        let left = case.calls.iter().map(|call| {
            let asked = ApiCall {
                op: call.op.clone(),
                input: call.input.clone(),
            };
            (normal(asked), call.answer())
        });
        Self {
            state: Mutex::new(ReplayState {
                left: left.collect(),
                made: Vec::new(),
                unexpected: Vec::new(),
            }),
        }
    }

    /// Every call that was made, normalised.
    pub(crate) fn made(&self) -> Vec<ApiCall> {
        self.state.lock().unwrap().made.clone()
    }

    /// The calls were the recorded ones.
    /// # Errors
    /// The first that was not recorded with what was, else those that were not made.
    pub(crate) fn settled(&self) -> Result<(), Difference> {
        let state = self.state.lock().unwrap();
        if let Some(call) = state.unexpected.first() {
            let recorded: Vec<String> = state
                .left
                .iter()
                .filter(|(other, _)| other.op == call.op)
                .map(|(other, _)| other.input.to_string())
                .collect();
            return Err(format!(
                "unexpected call {} {}\n    recorded: {}",
                call.op,
                call.input,
                recorded.join("\n    or ")
            )
            .into());
        }
        match state.left.first() {
            None => Ok(()),
            Some((call, _)) => Err(format!(
                "{} recorded calls were not made, the first is {} {}",
                state.left.len(),
                call.op,
                call.input
            )
            .into()),
        }
    }
}

impl Answers for Replay {
    fn answer(&self, call: ApiCall) -> Result<Value, ApiError> {
        let call = normal(call);
        let mut state = self.state.lock().unwrap();
        state.made.push(call.clone());
        match state
            .left
            .iter()
            .position(|(recorded, _)| *recorded == call)
        {
            Some(at) => state.left.remove(at).1,
            None => {
                let error = ApiError::Transport(format!("{} was not recorded", call.op));
                state.unexpected.push(call);
                Err(error)
            }
        }
    }
}

/// The same call with what may differ left out (tokens) or put in order (lists whose order means nothing).
pub(crate) fn normal(mut call: ApiCall) -> ApiCall {
    normal_value(&mut call.input);
    if let Value::Object(fields) = &mut call.input {
        fields.remove("ClientToken");
        fields.remove("StartTime"); // of spot prices: now
    }
    call
}

/// Lists whose order counts.
const ORDERED: [&str; 3] = ["BlockDeviceMappings", "NetworkInterfaces", "Groups"];

fn normal_value(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields.iter_mut() {
                normal_value(value);
                if let (Value::Array(items), false) = (value, ORDERED.contains(&name.as_str())) {
                    items.sort_by_key(Value::to_string);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(normal_value),
        Value::Number(number) => {
            // 20 and 20.0 are one number on the wire.
            if let Some(whole) = number.as_f64().filter(|each| each.fract() == 0.0) {
                *value = Value::from(whole as i64);
            }
        }
        _ => {}
    }
}

/// Files of recorded operations that make calls.
const FILES: [&str; 10] = [
    "capacity_reservation.jsonl",
    "discovery.jsonl",
    "drift.jsonl",
    "instance_profile.jsonl",
    "instances.jsonl",
    "interruption.jsonl",
    "nodeclaim_controllers.jsonl",
    "nodeclass_controllers.jsonl",
    "other.jsonl",
    "pricing.jsonl",
];

/// Every recorded answer can be written as its service would write it, and is given to the call that it was recorded for.
#[test]
fn recorded_calls_are_answered() {
    for name in FILES {
        score(name, |case| {
            let replay = Replay::of(case);
            if !case.given.is_object() || !case.expect.is_object() {
                return Err("it has no input or no answer".into());
            }
            for call in &case.calls {
                let answer = replay.answer(ApiCall {
                    op: call.op.clone(),
                    input: call.input.clone(),
                });
                if let Ok(value) = answer {
                    let (status, _) = super::api::wire::write(&call.op, &Ok(value));
                    assert_eq!(status, 200);
                }
            }
            let made = replay.made().len();
            match replay.settled() {
                Ok(()) if made != case.calls.len() => Err(format!("{made} calls").into()),
                other => other,
            }
        });
    }
}
