//! Disruption settings of a NodePool: consolidation, expiry and budgets of every version.

use super::edit::{FieldMove, drop_entry, instead};
use super::finding::{Code, FindingLog, MigrationLevel};
use super::pool::{ManifestVersion, TEMPLATE};
use crate::yaml::{MapEntry, YamlNode};
use mortise_apis::DurationText;
use mortise_apis::nearest::nearest;
use mortise_apis::values::GoDuration;

const DISRUPTION: [&str; 2] = ["spec", "disruption"];
const AFTER: &str = "spec.disruption.consolidateAfter";
const POLICY: &str = "spec.disruption.consolidationPolicy";
const EXPIRE: &str = "spec.template.spec.expireAfter";
const BUDGETS: &str = "spec.disruption.budgets";
const POLICIES: [&str; 3] = ["WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced"];
const REASONS: [&str; 3] = ["Underutilized", "Empty", "Drifted"];
const EVERYTHING: &str = "WhenEmptyOrUnderutilized";

pub(crate) fn convert(root: &mut YamlNode, age: ManifestVersion, log: &mut FindingLog<'_>) {
    words_of_provisioners(root, age, log);
    expiry(root, age, log);
    policy(root, age, log);
    for (path, field, never) in [
        (
            &[DISRUPTION.as_slice(), &["consolidateAfter"]].concat(),
            AFTER,
            true,
        ),
        (
            &[TEMPLATE.as_slice(), &["expireAfter"]].concat(),
            EXPIRE,
            true,
        ),
        (
            &[TEMPLATE.as_slice(), &["terminationGracePeriod"]].concat(),
            "spec.template.spec.terminationGracePeriod",
            false,
        ),
    ] {
        if let Some(node) = root.at_mut(path) {
            duration(node, field, never, log);
        }
    }
    budgets(root, age, log);
}

/// `consolidation`, `ttlSecondsAfterEmpty` and `ttlSecondsUntilExpired`.
fn words_of_provisioners(root: &mut YamlNode, age: ManifestVersion, log: &mut FindingLog<'_>) {
    let mut take = |name: &str| {
        let spec = root.get_mut("spec");
        spec.and_then(|spec| spec.remove(name))
            .filter(|entry| !entry.value.is_nothing())
    };
    let (consolidation, empty, expired) = (
        take("consolidation"),
        take("ttlSecondsAfterEmpty"),
        take("ttlSecondsUntilExpired"),
    );
    let enabled = consolidation
        .as_ref()
        .map(|entry| entry.value.get("enabled").map(YamlNode::value) == Some(true.into()));
    let old = age == ManifestVersion::Alpha;
    let (wanted, why) = match (enabled, &empty) {
        (Some(true), _) => (Some((EVERYTHING, "0s".to_owned())), "spec.consolidation"),
        (_, Some(entry)) => (
            Some((
                "WhenEmpty",
                seconds(entry, "spec.ttlSecondsAfterEmpty", log),
            )),
            "spec.ttlSecondsAfterEmpty",
        ),
        (Some(false), None) => (
            Some(("WhenEmpty", DurationText::NEVER.to_owned())),
            "spec.consolidation",
        ),
        (None, None) if old => (Some(("WhenEmpty", DurationText::NEVER.to_owned())), ""),
        (None, None) => (None, ""),
    };
    let line = consolidation
        .as_ref()
        .or(empty.as_ref())
        .map_or(0, |entry| entry.value.line);
    if enabled == Some(true) && empty.is_some() {
        log.warning(
            Code::Removed,
            line,
            "spec.ttlSecondsAfterEmpty",
            "was refused together with consolidation, which includes empty nodes",
        );
    }
    if let Some((policy, after)) = wanted {
        let comments: Vec<String> = consolidation
            .into_iter()
            .chain(empty)
            .flat_map(MapEntry::comments)
            .collect();
        let text = format!("{POLICY}: {policy} and consolidateAfter: {after}");
        match why {
            "" => log.converted(Code::Added, 0, AFTER, format!("{text}: a Provisioner without ttlSecondsAfterEmpty and consolidation took no nodes away; by default a NodePool does")),
            why if old => log.converted(Code::Moved, line, why, format!("is {text} now")),
            why => log.warning(Code::Moved, line, why, format!("is not a field of a NodePool and has no effect on consolidation; it is {text} now")),
        }
        set_consolidation(root, policy, &after, comments, log);
    }
    match expired {
        Some(entry) => {
            let line = entry.value.line;
            let after = seconds(&entry, "spec.ttlSecondsUntilExpired", log);
            let text = format!("is {EXPIRE}: {after} now");
            if old {
                log.converted(Code::Moved, line, "spec.ttlSecondsUntilExpired", text);
            } else {
                log.warning(
                    Code::Moved,
                    line,
                    "spec.ttlSecondsUntilExpired",
                    format!("{text}; its old path is ignored"),
                );
            }
            let comments = entry.comments();
            root.make(&TEMPLATE)
                .push(instead("expireAfter", YamlNode::plain(&after), comments));
        }
        None if old => {
            root.make(&TEMPLATE)
                .set("expireAfter", YamlNode::plain(DurationText::NEVER));
            log.converted(Code::Added, 0, EXPIRE, "Never: nodes of a Provisioner without ttlSecondsUntilExpired did not expire; by default those of a NodePool do after 720h");
        }
        None => {}
    }
}

fn set_consolidation(
    root: &mut YamlNode,
    policy: &str,
    after: &str,
    comments: Vec<String>,
    log: &mut FindingLog<'_>,
) {
    let disruption = root.make(&DISRUPTION);
    let known = |key: &str| {
        disruption
            .get(key)
            .and_then(YamlNode::text)
            .map(str::to_owned)
    };
    let (known_policy, known_after) = (known("consolidationPolicy"), known("consolidateAfter"));
    if let Some(known) = known_after.filter(|known| known != after) {
        log.warning(
            Code::Removed,
            0,
            AFTER,
            format!("{known} stood beside it; {after} stays"),
        );
    }
    if known_policy.is_none() {
        disruption.set("consolidationPolicy", YamlNode::plain(policy));
    }
    disruption.remove("consolidateAfter");
    disruption.push(instead(
        "consolidateAfter",
        YamlNode::plain(after),
        comments,
    ));
}

/// A number of seconds as a duration.
fn seconds(entry: &MapEntry, field: &str, log: &mut FindingLog<'_>) -> String {
    let value = entry.value.value();
    match value.as_u64().or_else(|| value.as_str()?.parse().ok()) {
        Some(seconds) => format!("{seconds}s"),
        None => {
            log.error(
                Code::Unreadable,
                entry.value.line,
                field,
                format!("{value} is not a number of seconds; Never is used instead"),
            );
            DurationText::NEVER.to_owned()
        }
    }
}

/// Expiry is a field of the NodeClaim template, and budgets no longer apply to it.
fn expiry(root: &mut YamlNode, age: ManifestVersion, log: &mut FindingLog<'_>) {
    let moved = FieldMove {
        from: &DISRUPTION,
        key: "expireAfter",
        to: &TEMPLATE,
        name: "expireAfter",
    };
    match age {
        ManifestVersion::Beta => moved.run(root, MigrationLevel::Converted, "", log),
        _ => moved.run(
            root,
            MigrationLevel::Warning,
            "; its old path is ignored",
            log,
        ),
    }
    if matches!(age, ManifestVersion::Now | ManifestVersion::Part) {
        return;
    }
    let template = root.at(&TEMPLATE);
    let found = template.and_then(|template| template.get("expireAfter"));
    if found.and_then(YamlNode::text) == Some(DurationText::NEVER) {
        return;
    }
    let grace = template.is_some_and(|template| template.get("terminationGracePeriod").is_some());
    let default = if found.is_none() {
        "720h, the default: "
    } else {
        ""
    };
    let hint = if grace {
        ""
    } else {
        "; terminationGracePeriod limits the drain duration"
    };
    log.warning(
        Code::Behaviour,
        found.map_or(0, |node| node.line),
        EXPIRE,
        format!("{default}since v1 a node that reaches its age is replaced regardless of budgets, and a change of the age replaces existing nodes{hint}"),
    );
}

fn policy(root: &mut YamlNode, age: ManifestVersion, log: &mut FindingLog<'_>) {
    let Some(disruption) = root.at_mut(&DISRUPTION).filter(|node| !node.is_nothing()) else {
        return;
    };
    if let Some(policy) = disruption.get_mut("consolidationPolicy") {
        let line = policy.line;
        match policy.text() {
            Some("WhenUnderutilized") => {
                *policy = YamlNode::plain(EVERYTHING);
                log.converted(
                    Code::Renamed,
                    line,
                    POLICY,
                    format!("WhenUnderutilized is {EVERYTHING} now"),
                );
            }
            Some(text) if !POLICIES.contains(&text) => match nearest(text, POLICIES) {
                Some(meant) => {
                    log.warning(
                        Code::Renamed,
                        line,
                        POLICY,
                        format!(
                            "{text:?} is none of {}; interpreted as {meant}",
                            POLICIES.join(", ")
                        ),
                    );
                    *policy = YamlNode::plain(&meant);
                }
                None => log.error(
                    Code::Unreadable,
                    line,
                    POLICY,
                    format!("{text:?} is none of {}", POLICIES.join(", ")),
                ),
            },
            _ => {}
        }
    }
    let empty_only = disruption
        .get("consolidationPolicy")
        .and_then(YamlNode::text)
        == Some("WhenEmpty");
    match disruption
        .get("consolidateAfter")
        .filter(|node| !node.is_nothing())
    {
        None if age != ManifestVersion::Part => {
            disruption.set("consolidateAfter", YamlNode::plain("0s"));
            if empty_only && age == ManifestVersion::Beta {
                log.warning(
                    Code::Added,
                    0,
                    AFTER,
                    "0s: v1beta1 required it with WhenEmpty, but it was missing",
                );
            } else {
                log.converted(Code::Added, 0, AFTER, "0s: the previous default");
            }
        }
        Some(after)
            if age == ManifestVersion::Beta
                && !empty_only
                && after.text() != Some(DurationText::NEVER) =>
        {
            let line = after.line;
            log.converted(Code::Behaviour, line, AFTER, "v1beta1 refused a time with this policy; v1 waits that long after the last pod came or went");
        }
        Some(after)
            if age == ManifestVersion::Beta
                && after.line > 0
                && after.text() == Some(DurationText::NEVER) =>
        {
            let line = after.line;
            log.converted(
                Code::Behaviour,
                line,
                AFTER,
                "Never disabled consolidation and stays",
            );
        }
        _ => {}
    }
}

/// Durations of the API have hours, minutes and seconds, but no days.
fn duration(node: &mut YamlNode, field: &str, never: bool, log: &mut FindingLog<'_>) {
    let line = node.line;
    let Some(text) = node.text().map(str::to_owned) else {
        return;
    };
    if never && text == DurationText::NEVER {
        return;
    }
    let api = text.ends_with(['s', 'm', 'h'])
        && text
            .chars()
            .all(|letter| letter.is_ascii_digit() || matches!(letter, 's' | 'm' | 'h'))
        && GoDuration::parse(&text).is_ok();
    if api {
        let seconds =
            GoDuration::parse(&text).map_or(0, |parsed| parsed.as_nanos() / 1_000_000_000);
        if seconds >= 7200 && seconds % 3600 == 0 && !text.ends_with('h') {
            log.converted(
                Code::Behaviour,
                line,
                field,
                format!("{text} is {}h", seconds / 3600),
            );
        }
        return;
    }
    let days = text
        .strip_suffix('d')
        .and_then(|days| days.parse::<u64>().ok());
    let whole = || {
        let nanos = GoDuration::parse(&text).ok()?.as_nanos();
        (nanos >= 0).then(|| format!("{}s", nanos / 1_000_000_000))
    };
    let meant = if never && text.eq_ignore_ascii_case("never") {
        Some(DurationText::NEVER.to_owned())
    } else if let Some(days) = days {
        Some(format!("{}h", days.saturating_mul(24)))
    } else if let Ok(seconds) = text.parse::<u64>() {
        Some(format!("{seconds}s"))
    } else {
        whole()
    };
    match meant {
        Some(meant) => {
            log.warning(
                Code::Renamed,
                line,
                field,
                format!(
                    "{text:?} is not a duration of the API (like 30s, 5m, 720h); interpreted as {meant}"
                ),
            );
            *node = YamlNode {
                line,
                ..YamlNode::plain(&meant)
            };
        }
        None => {
            let or = if never { " or Never" } else { "" };
            log.error(
                Code::Unreadable,
                line,
                field,
                format!("{text:?} is no duration (like 30s, 5m, 720h){or}"),
            );
        }
    }
}

fn budgets(root: &mut YamlNode, age: ManifestVersion, log: &mut FindingLog<'_>) {
    let path = [DISRUPTION.as_slice(), &["budgets"]].concat();
    let Some(list) = root.at_mut(&path).filter(|list| !list.is_nothing()) else {
        if age == ManifestVersion::Alpha {
            log.converted(
                Code::Behaviour,
                0,
                BUDGETS,
                "none: at most 10% of the nodes are disrupted at a time, the default",
            );
        }
        return;
    };
    for (index, item) in list.items_mut().into_iter().flatten().enumerate() {
        let field = format!("{BUDGETS}[{index}]");
        let budget = &mut item.value;
        let line = budget.line;
        let has =
            |budget: &YamlNode, key: &str| budget.get(key).is_some_and(|node| !node.is_nothing());
        if !has(budget, "nodes") {
            budget.set("nodes", YamlNode::string("10%"));
            log.converted(
                Code::Added,
                line,
                &format!("{field}.nodes"),
                "10%, the default",
            );
        }
        if let Some(nodes) = budget.get_mut("nodes") {
            super::requirements::as_text(nodes);
        }
        match (has(budget, "schedule"), has(budget, "duration")) {
            (false, true) => {
                let gone = drop_entry(budget, "duration");
                let text = gone
                    .as_ref()
                    .and_then(|entry| entry.value.text())
                    .unwrap_or_default();
                log.warning(
                    Code::Removed,
                    gone.as_ref().map_or(line, |entry| entry.value.line),
                    &format!("{field}.duration"),
                    format!("{text} without a schedule is refused; the budget always holds now. It counts nodes that are going at one time, not nodes within {text}"),
                );
            }
            (true, false) => log.error(
                Code::Missing,
                line,
                &format!("{field}.duration"),
                "a schedule requires a duration (like 8h); add one, or remove the schedule",
            ),
            _ => {}
        }
        if let Some(duration) = budget.get_mut("duration") {
            minutes(duration, &format!("{field}.duration"), log);
        }
        for reason in budget
            .get_mut("reasons")
            .and_then(YamlNode::items_mut)
            .into_iter()
            .flatten()
        {
            let Some(text) = reason.value.text().map(str::to_owned) else {
                continue;
            };
            if REASONS.contains(&text.as_str()) {
                continue;
            }
            let line = reason.value.line;
            match nearest(&text, REASONS) {
                Some(meant) => {
                    log.warning(
                        Code::Renamed,
                        line,
                        &format!("{field}.reasons"),
                        format!(
                            "{text:?} is none of {}; interpreted as {meant}",
                            REASONS.join(", ")
                        ),
                    );
                    reason.value = YamlNode::plain(&meant);
                }
                None => log.error(
                    Code::Unreadable,
                    line,
                    &format!("{field}.reasons"),
                    format!("{text:?} is none of {}", REASONS.join(", ")),
                ),
            }
        }
    }
}

/// The duration of a budget has hours and minutes only.
fn minutes(node: &mut YamlNode, field: &str, log: &mut FindingLog<'_>) {
    let line = node.line;
    let Some(text) = node.text().map(str::to_owned) else {
        return;
    };
    let nanos = GoDuration::parse(&text).map(GoDuration::as_nanos);
    let Ok(nanos) = nanos else {
        log.error(
            Code::Unreadable,
            line,
            field,
            format!("{text:?} is no duration of hours and minutes (like 8h, 30m, 1h30m)"),
        );
        return;
    };
    let seconds_named = text.trim_end_matches("0s").contains('s') || text.contains(['.', '-', 'd']);
    if !seconds_named {
        return;
    }
    let all = nanos / 60_000_000_000;
    if all < 1 || nanos % 60_000_000_000 != 0 {
        log.error(
            Code::Unreadable,
            line,
            field,
            format!("{text:?} is not a whole number of minutes"),
        );
        return;
    }
    let meant = match (all / 60, all % 60) {
        (0, minutes) => format!("{minutes}m"),
        (hours, 0) => format!("{hours}h"),
        (hours, minutes) => format!("{hours}h{minutes}m"),
    };
    log.converted(
        Code::Renamed,
        line,
        field,
        format!("{text} is {meant}: a budget's duration has hours and minutes only"),
    );
    *node = YamlNode {
        line,
        ..YamlNode::plain(&meant)
    };
}
