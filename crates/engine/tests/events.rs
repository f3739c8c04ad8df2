//! The table of events: Karpenter's are told as Karpenter tells them, or listed among the differences; and nothing is in the
//! table that no code tells.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use mortise_apis::names::{ObjectRef, PodKey};
use mortise_engine::effect::Event;
use mortise_engine::events::{EventRule, RULES, fault};

/// Karpenter's events: reason, type, kinds of objects, seconds until it is repeated, how its text begins.
const RECORDED: &str = include_str!("recorded_events.tsv");

struct Recorded<'a> {
    reason: &'a str,
    warning: bool,
    kind: &'a str,
    every_s: i64,
    begins: &'a str,
}

/// One for each kind of object.
fn recorded() -> Vec<Recorded<'static>> {
    let mut all = Vec::new();
    for line in RECORDED.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        for kind in fields[2].split(',') {
            all.push(Recorded {
                reason: fields[0],
                warning: fields[1] == "Warning",
                kind,
                every_s: fields[3].parse().unwrap(),
                begins: fields[4],
            });
        }
    }
    all
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn fits(rule: &EventRule, recorded: &Recorded<'_>) -> bool {
    rule.reason == recorded.reason
        && rule.warning == recorded.warning
        && rule.on.contains(&recorded.kind)
        && rule.every_s == recorded.every_s
        && rule
            .begins
            .starts_with(recorded.begins.trim_end_matches('('))
}

#[test]
fn every_event_of_karpenter_is_told_or_a_documented_difference() {
    let differences = std::fs::read_to_string(repository().join("docs/differences.md")).unwrap();
    let mut told = 0;
    for each in recorded() {
        if RULES.iter().any(|rule| fits(rule, &each)) {
            told += 1;
            continue;
        }
        let row = differences
            .lines()
            .find(|line| line.starts_with("| ") && line.contains(&format!("`{}`", each.reason)));
        let named = row.is_some_and(|row| {
            each.kind != "CapacityBuffer" || row.contains("CapacityBuffers are not served")
        });
        assert!(
            named,
            "{} on {} is neither told nor a difference",
            each.reason, each.kind
        );
    }
    assert!(told >= 35, "{told} of Karpenter's events are told");
}

/// All sources that are no tests.
fn sources(dir: &Path, text: &mut String) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let is_test = name.contains("test") || name == "events.rs" && dir.ends_with("engine/src");
        if is_test {
            continue;
        }
        if path.is_dir() {
            sources(&path, text);
        } else if name.ends_with(".rs") {
            let source = std::fs::read_to_string(&path).unwrap();
            text.push_str(source.split("#[cfg(test)]\nmod tests {").next().unwrap());
        }
    }
}

#[test]
fn every_event_of_the_table_is_told_somewhere_and_documented() {
    let mut text = String::new();
    for crate_ in ["apis", "planning", "engine", "deciders"] {
        sources(
            &repository().join(format!("crates/{crate_}/src")),
            &mut text,
        );
    }
    sources(&repository().join("crates/controller/src"), &mut text);
    let operations =
        std::fs::read_to_string(repository().join("docs/reference/events.md")).unwrap();
    let by_name = [
        ("Finalized", "FINALIZED"),
        ("LaunchesPaused", "LAUNCHES_PAUSED"),
    ];
    let reasons: BTreeSet<&str> = RULES.iter().map(|rule| rule.reason).collect();
    for reason in reasons {
        let constant = by_name.iter().find(|(word, _)| *word == reason);
        let literal =
            constant.map_or_else(|| format!("\"{reason}\""), |(_, name)| (*name).to_owned());
        assert!(text.contains(&literal), "nothing tells {reason}");
        let row = operations
            .lines()
            .find(|line| line.starts_with("| `") && line.contains(&format!("`{reason}`")));
        assert!(
            row.is_some(),
            "docs/reference/events.md does not list {reason}"
        );
    }
}

#[test]
fn what_is_not_in_the_table_is_a_fault() {
    let pod = || ObjectRef::Pod(PodKey::new("a", "p"));
    let node = || ObjectRef::Node("n".into());
    let good = Event::normal(pod(), "Nominated", "Pod should schedule on: node/n");
    assert_eq!(fault(&good), None);
    for (why, event) in [
        (
            "type",
            Event {
                warning: true,
                ..good.clone()
            },
        ),
        ("time", good.clone().every(1_000)),
        (
            "text",
            Event {
                message: "pod goes to n".to_owned(),
                ..good.clone()
            },
        ),
        (
            "object",
            Event {
                target: node(),
                ..good.clone()
            },
        ),
        (
            "reason",
            Event {
                reason: "Invented".into(),
                ..good
            },
        ),
    ] {
        assert!(fault(&event).is_some(), "{why}");
    }
    let transition = |reason: &'static str, on| {
        let text =
            "Status condition transitioned, Type: Ready, Status: False -> True, Reason: Ready";
        Event::normal(on, reason, text)
    };
    assert_eq!(fault(&transition("Ready", node())), None);
    assert!(fault(&transition("Drained", node())).is_some());
    assert!(fault(&transition("Ready", pod())).is_some());
}
