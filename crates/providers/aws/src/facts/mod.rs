//! Recorded answers of the reference implementation, against which the pure parts are checked.
//!
//! `MORTISE_FACTS_DIR` names another directory with files of the same names.

use std::io::Read as _;
use std::path::PathBuf;

use flate2::read::GzDecoder;
use serde_json::Value;

pub(crate) mod api;
mod discovery;
mod drift;
mod instance_profile;
mod instance_types;
mod instances;
mod interruption;
mod interruption_reconciles;
mod launch;
mod launch_filters;
mod node_class;
mod nodeclaim_controllers;
mod offerings;
mod other;
mod pricing;
mod replay;
mod resolved_type;
mod unavailable_offerings;
mod user_data;

/// The text of a recorded file.
fn read(name: &str) -> String {
    let own = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../tests/data/facts");
    let root = std::env::var_os("MORTISE_FACTS_DIR").map_or_else(own, PathBuf::from);
    let candidates = [
        root.join("aws").join(format!("{name}.gz")),
        root.join("aws").join(name),
        root.join(format!("{name}.gz")),
        root.join(name),
    ];
    let path = candidates
        .iter()
        .find(|path| path.exists())
        .unwrap_or_else(|| panic!("none of {candidates:?} exists"));
    let bytes = std::fs::read(path).unwrap();
    if !bytes.starts_with(&[0x1f, 0x8b]) {
        return String::from_utf8(bytes).unwrap();
    }
    let mut text = String::new();
    GzDecoder::new(&*bytes).read_to_string(&mut text).unwrap();
    text
}

/// The recorded cases of one file: line number and case.
fn cases(name: &str) -> Vec<(usize, Value)> {
    let cases: Vec<_> = read(name)
        .lines()
        .enumerate()
        .map(|(index, line)| (index + 1, serde_json::from_str(line).unwrap()))
        .collect();
    assert!(!cases.is_empty(), "{name} has no cases");
    cases
}

/// Runs every case, prints the score, and fails with the first differences. A case that returns `Ok(false)` is out of reach and is printed by name.
fn check(name: &str, run: impl Fn(&Value) -> Result<bool, String>) {
    let (mut passed, mut failed, mut skipped) = (0, Vec::new(), Vec::new());
    for (line, case) in cases(name) {
        let title = case
            .get("note")
            .or_else(|| case.get("type"))
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned();
        match run(&case) {
            Ok(true) => passed += 1,
            Ok(false) => skipped.push(format!("{name}:{line} {title}")),
            Err(difference) => failed.push(format!("{name}:{line} {title}: {difference}")),
        }
    }
    println!(
        "{name}: {passed} passed, {} failed, {} not reached",
        failed.len(),
        skipped.len()
    );
    for each in &skipped {
        println!("  not reached: {each}");
    }
    let first: Vec<_> = failed.iter().take(20).cloned().collect();
    assert!(
        failed.is_empty(),
        "{} failed:\n{}",
        failed.len(),
        first.join("\n")
    );
    assert!(passed > 0, "no case of {name} was checked");
}
