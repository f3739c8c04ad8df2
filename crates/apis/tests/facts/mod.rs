//! Reads recorded answers and reports how many of them we give too.

#![allow(
    dead_code,
    clippy::panic,
    clippy::print_stdout,
    reason = "test support: each test uses a part of it, the report is its output, a panic its failure"
)]

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use mortise_apis::issues::FieldIssue;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// How many failures are shown in full.
const SHOWN: usize = 15;

/// The repository's folder of facts, from any of its crates.
fn own_folder() -> PathBuf {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = crate_folder
        .ancestors()
        .map(|at| at.join("tests/data/facts"));
    folders
        .filter(|folder| folder.is_dir())
        .last()
        .unwrap_or_else(|| panic!("no facts above {}", crate_folder.display()))
}

/// Where the cases are: the folder in the environment, or the repository's own.
fn folder() -> PathBuf {
    std::env::var_os("MORTISE_FACTS_DIR").map_or_else(own_folder, PathBuf::from)
}

/// A file, packed or plain.
fn open(file: &str) -> Box<dyn Read> {
    let folder = folder();
    let (plain, packed) = (folder.join(file), folder.join(format!("{file}.gz")));
    if let Ok(file) = File::open(&plain) {
        return Box::new(file);
    }
    let bytes = fs::read(&packed).unwrap_or_else(|error| {
        panic!(
            "neither {} nor {} can be read: {error}",
            plain.display(),
            packed.display()
        )
    });
    Box::new(GzDecoder::new(std::io::Cursor::new(bytes)))
}

/// The whole text of a file.
pub(crate) fn recorded(file: &str) -> String {
    let mut text = String::new();
    let read = open(file).read_to_string(&mut text);
    read.unwrap_or_else(|error| panic!("{file}: {error}"));
    text
}

/// Compares every case of a file; prints `N passed, M failed` and fails when any case does or when there is none.
pub(crate) fn check(name: &str, compare: impl Fn(&Value) -> Result<(), String>) {
    let (mut passed, mut failures) = (0_usize, Vec::new());
    for (number, line) in BufReader::new(open(&format!("{name}.jsonl")))
        .lines()
        .enumerate()
    {
        let line = line.unwrap_or_else(|error| panic!("{name}: line {}: {error}", number + 1));
        if line.trim().is_empty() {
            continue;
        }
        let case: Value = serde_json::from_str(&line)
            .unwrap_or_else(|error| panic!("{name}: line {}: {error}", number + 1));
        match compare(&case) {
            Ok(()) => passed += 1,
            Err(why) => failures.push(format!("line {}: {why}\n    {line}", number + 1)),
        }
    }
    println!("{name}: {passed} passed, {} failed", failures.len());
    assert!(passed + failures.len() > 0, "{name}: no cases");
    let shown = failures
        .iter()
        .take(SHOWN)
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join("\n");
    assert!(
        failures.is_empty(),
        "{name}: {passed} passed, {} failed\n{shown}",
        failures.len()
    );
}

/// `Ok` when both are equal, else what differs.
pub(crate) fn same<T: PartialEq + std::fmt::Debug>(
    what: &str,
    ours: T,
    theirs: T,
) -> Result<(), String> {
    if ours == theirs {
        Ok(())
    } else {
        Err(format!("{what}: we say {ours:?}, recorded {theirs:?}"))
    }
}

/// Compares the hash of every case, also after the object was written and read again: what passes through here must
/// not look drifted.
pub(crate) fn check_hashes<K: DeserializeOwned + Serialize>(
    name: &str,
    object: &str,
    version: &str,
    hash: impl Fn(&K, &Value) -> u64,
) {
    check(name, |case| {
        same("version", version, text(case, "version")?)?;
        let once: K = read(&case[object])?;
        let written = serde_json::to_value(&once).map_err(|error| error.to_string())?;
        for each in [once, read(&written)?] {
            let hash = hash(&each, case).to_string();
            same("hash", hash.as_str(), text(case, "hash")?)?;
        }
        Ok(())
    });
}

/// `Ok` when a verdict is the recorded one.
pub(crate) fn agrees(valid: bool, found: &[FieldIssue]) -> Result<(), String> {
    let texts: Vec<String> = found
        .iter()
        .map(|fault| format!("{:?} {fault}", fault.weight))
        .collect();
    match (valid, texts.is_empty()) {
        (true, true) | (false, false) => Ok(()),
        (true, false) => Err(format!("is valid, but: {texts:#?}")),
        (false, true) => Err("is not valid, but nothing was found".to_owned()),
    }
}

/// A member that must be text.
pub(crate) fn text<'a>(case: &'a Value, member: &str) -> Result<&'a str, String> {
    case[member]
        .as_str()
        .ok_or_else(|| format!("{member} is no text"))
}

/// A list of texts; empty when absent or null.
pub(crate) fn texts(value: &Value) -> Vec<String> {
    value
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect()
}

/// A member read as a type.
pub(crate) fn read<T: DeserializeOwned>(value: &Value) -> Result<T, String> {
    serde_json::from_value(value.clone()).map_err(|error| error.to_string())
}

/// A table of the repository; tables are the same for every set of cases.
pub(crate) fn table(name: &str) -> Value {
    let path = own_folder().join(format!("{name}.json.gz"));
    let file = File::open(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_reader(GzDecoder::new(file))
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
