//! Texts of reasons: the requirement or number that blocks a pod, and the available alternatives.

use std::fmt::Write as _;

use crate::reason::PoolBlocker;
use mortise_apis::labels;
use mortise_apis::requirements::{Incompatible, Requirement, Requirements};
use mortise_apis::resources::{Resources, quantity};
use mortise_state::catalog::{Catalog, EliminatingRequirement};

/// Most offerings that a text names.
const SHOWN: usize = 3;

/// Why a NodePool's own requirements leave no instance type.
pub(super) fn no_types(catalog: &Catalog, requirements: &Requirements) -> String {
    match catalog.eliminating_requirement(requirements) {
        Some(blame) => types(&blame, "the pool"),
        None => sold_out(catalog, requirements, |_| true).unwrap_or_default(),
    }
}

/// Which requirement leaves no instance type, whose it is, and which values exist.
pub(super) fn types(blame: &EliminatingRequirement, whose: &str) -> String {
    let EliminatingRequirement {
        requirement,
        before,
        only_together,
        back,
        ..
    } = blame;
    let mut text = if *only_together {
        format!("none of {before} types is offered with {requirement} and the other requirements")
    } else {
        format!("none of {before} types has {requirement}, required by {whose}")
    };
    if !back.is_empty() {
        let ways = back
            .iter()
            .map(|(value, types)| format!("{value} ({types})"));
        let ways: Vec<String> = ways.collect();
        // Writing to a String cannot fail.
        write!(text, "; there are {}", ways.join(", ")).ok();
    }
    text
}

/// The compatible offerings that are unavailable; `None` when there is no compatible offering.
pub(super) fn sold_out(
    catalog: &Catalog,
    asked: &Requirements,
    concerns: impl Fn(usize) -> bool,
) -> Option<String> {
    let allows = |key: &str, value: &str| asked.get(key).is_none_or(|own| own.has(value));
    let (mut all, mut reserved) = (Vec::new(), false);
    for (at, of) in catalog.types().iter().enumerate() {
        if !concerns(at) || !labels_allow(of.requirements.iter(), asked) {
            continue;
        }
        let ways = of.offerings.iter().filter(|offering| {
            allows(labels::TOPOLOGY_ZONE, &offering.zone)
                && allows(labels::CAPACITY_TYPE, offering.capacity_type.as_str())
                && offering
                    .labels
                    .iter()
                    .all(|(key, value)| allows(key, value))
        });
        for way in ways {
            reserved |= way.reservation.as_ref().is_some_and(|(_, left)| *left == 0);
            all.push(format!(
                "{} in {} ({})",
                of.name, way.zone, way.capacity_type
            ));
        }
    }
    if all.is_empty() {
        return None;
    }
    let more = all.len().saturating_sub(SHOWN);
    all.truncate(SHOWN);
    let mut text = if reserved {
        format!("reserved capacity is used up: {}", all.join(", "))
    } else {
        format!("sold out at present: {}", all.join(", "))
    };
    if more > 0 {
        write!(text, " and {more} more").ok();
    }
    Some(text)
}

fn labels_allow<'a>(own: impl Iterator<Item = &'a Requirement>, asked: &Requirements) -> bool {
    own.into_iter().all(|own| {
        asked
            .get(own.key())
            .is_none_or(|asked| own.has_intersection(asked))
    })
}

/// Labels that nodes of a NodePool do not have as required.
pub(super) fn clash(clash: &Incompatible, whose: &str) -> (PoolBlocker, String) {
    let host = clash.keys().any(|key| key == labels::HOSTNAME);
    let mut parts = Vec::new();
    for each in &clash.undefined {
        let near = each.typo_of.as_ref();
        let near = near.map_or_else(String::new, |known| format!(" (is {known} meant?)"));
        parts.push(format!(
            "no node of the NodePool has label {}, required by {whose}{near}",
            each.key
        ));
    }
    for each in &clash.no_overlap {
        if each.key() == labels::HOSTNAME {
            parts.push(format!(
                "{whose} requires {}: a new node has a new name",
                each.asked
            ));
        } else {
            parts.push(format!(
                "{whose} requires {}, the NodePool {}",
                each.asked, each.had
            ));
        }
    }
    let blocker = if host {
        PoolBlocker::HostName
    } else {
        PoolBlocker::Labels
    };
    (blocker, parts.join("; "))
}

/// The nearest instance type, and what it lacks.
pub(super) fn too_small(
    instance_type: &str,
    resource: &str,
    asked: i64,
    daemons: i64,
    has: i64,
) -> String {
    let amount = |of: i64| quantity(resource, of);
    if has == 0 {
        return format!("no type that comes into question has {resource}");
    }
    let overhead = if daemons > 0 {
        format!(", of which DaemonSets take {}", amount(daemons))
    } else {
        String::new()
    };
    format!(
        "nearest type {instance_type} has {} of {resource}{overhead}: {} requested",
        amount(has),
        amount(asked)
    )
}

/// Which limit leaves no instance type: the smallest one exceeds it.
pub(super) fn limit(
    limits: &[(String, i64)],
    used: &Resources,
    smallest: impl Fn(&str) -> Option<i64>,
) -> String {
    let beyond = limits.iter().filter_map(|(name, limit)| {
        let least = smallest(name)?;
        let used = used.get(name);
        (used.saturating_add(least) > *limit).then(|| {
            let amount = |of: i64| quantity(name, of);
            format!(
                "limit {name} is {}, {} are in use, the smallest type that would do has {}",
                amount(*limit),
                amount(used),
                amount(least)
            )
        })
    });
    let beyond: Vec<String> = beyond.collect();
    beyond.join("; ")
}
