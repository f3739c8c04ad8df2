//! The table of events: Karpenter's are told as Karpenter tells them, or listed among the differences; and nothing is in the
//! table that no code tells.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use mortise_apis::names::{ObjectRef, PodKey};
use mortise_cloudprovider::InterruptionKind;
use mortise_engine::decider_id::DeciderId;
use mortise_engine::effect::Event;
use mortise_engine::events::{EventRule, RULES, events_of, fault};
use mortise_engine::record::{Record, Verdict, Visibility};
use mortise_planning::reason::Reason;

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
        assert!(
            row.is_some(),
            "{} on {} is neither told nor a difference",
            each.reason,
            each.kind
        );
    }
    assert!(told >= 35, "{told} of Karpenter's events are told");
}

/// All sources that are no tests.
fn sources(dir: &Path, text: &mut String) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let is_table = name == "rules.rs" && dir.ends_with("engine/src/events");
        if is_table || name.contains("test") {
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

/// The rule of `FailedScheduling` is `rules::FAILED_SCHEDULING`.
fn constant(reason: &str) -> String {
    let mut name = String::new();
    for each in reason.chars() {
        if each.is_ascii_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(each.to_ascii_uppercase());
    }
    name
}

#[test]
fn every_event_of_the_table_is_told_somewhere_and_documented() {
    let mut text = String::new();
    sources(&repository().join("crates/engine/src/events"), &mut text);
    let operations =
        std::fs::read_to_string(repository().join("docs/reference/events.md")).unwrap();
    let reasons: BTreeSet<&str> = RULES.iter().map(|rule| rule.reason).collect();
    for reason in reasons {
        let literal = format!("rules::{}", constant(reason));
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

fn record(subject: ObjectRef, verdict: Verdict, reasons: Vec<Reason>) -> Record {
    Record {
        at: Timestamp::UNIX_EPOCH,
        decider: DeciderId::Provisioning,
        subject,
        verdict,
        reasons,
        visibility: Visibility::Event,
        related: Vec::new(),
        generation: 1,
    }
}

fn nominated() -> Record {
    let place = Reason::OnNode {
        node: "n".into(),
        claim: None,
    };
    let pod = ObjectRef::Pod(PodKey::new("a", "p"));
    record(pod, Verdict::Nominated, vec![place])
}

#[test]
fn only_records_for_users_have_events() {
    assert_eq!(events_of(&nominated()).len(), 1);
    for visibility in [Visibility::DecisionLog, Visibility::MetricsOnly] {
        let hidden = Record {
            visibility,
            ..nominated()
        };
        assert_eq!(events_of(&hidden), [], "{visibility:?}");
    }
}

#[test]
fn related_objects_are_told_the_same_in_turn() {
    let kind = InterruptionKind::SpotInterruption;
    let reasons = vec![Reason::Interrupted { kind }, Reason::Notice { kind }];
    let claim = ObjectRef::Claim("c".into());
    let interrupted = Record {
        related: vec![ObjectRef::Node("n".into())],
        ..record(claim, Verdict::Notified, reasons)
    };
    let events = events_of(&interrupted);
    let told: Vec<(&str, &str, &str)> = events
        .iter()
        .map(|event| (&*event.reason, event.target.kind(), &*event.message))
        .collect();
    let warned = "Spot interruption warning was triggered";
    assert_eq!(
        told,
        [
            ("SpotInterrupted", "NodeClaim", warned),
            ("SpotInterrupted", "Node", warned),
            (
                "TerminatingOnInterruption",
                "NodeClaim",
                "Interruption triggered termination for the NodeClaim"
            ),
            (
                "TerminatingOnInterruption",
                "Node",
                "Interruption triggered termination for the Node"
            ),
        ]
    );
}

/// Makes another event of one.
type Change = fn(&mut Event);

#[test]
fn what_is_not_in_the_table_is_a_fault() {
    let good = events_of(&nominated()).remove(0);
    assert_eq!(fault(&good), None);
    let differing: [(&str, Change); 5] = [
        ("type", |event| event.warning = true),
        ("time", |event| event.dedupe_ms = 1_000),
        ("text", |event| event.message = "pod goes to n".to_owned()),
        ("object", |event| event.target = ObjectRef::Node("n".into())),
        ("reason", |event| event.reason = "Invented".into()),
    ];
    for (why, differ) in differing {
        let mut event = good.clone();
        differ(&mut event);
        assert!(fault(&event).is_some(), "{why}");
    }
    let node = ObjectRef::Node("n".into());
    let change = Reason::Transition {
        condition: "Ready".to_owned(),
        from: "False".to_owned(),
        to: "True".to_owned(),
        why: "Ready".to_owned(),
    };
    let transition = events_of(&record(node, Verdict::Condition, vec![change])).remove(0);
    assert_eq!(fault(&transition), None);
    let mut other = transition.clone();
    other.reason = "Drained".into();
    assert!(fault(&other).is_some());
    let mut of_pod = transition;
    of_pod.target = good.target;
    assert!(fault(&of_pod).is_some());
}
