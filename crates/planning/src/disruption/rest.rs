//! How long consolidation leaves a node alone that replaced others.
//!
//! # Rule
//! A replacement rests for the cooldown. If it replaces a replacement of the last 24 hours, it rests for twice as long as that one
//! did, up to 24 hours. So pods that move again and again, because kube-scheduler places them in another way than planned or the
//! load goes up and down, move some eight times a day instead of every few minutes.
//!
//! The number of replacements in a row is an annotation of the NodeClaim: every replica reads it, and it survives a restart.

use jiff::Timestamp;

use mortise_apis::NodeClaim;
use mortise_apis::labels;
use mortise_apis::values::{after, doubled};

const DAY_MS: i64 = 24 * 3_600_000;

/// Replacements in a row, this one included; 0 for a NodeClaim that replaced nothing.
fn in_a_row(claim: &NodeClaim) -> u32 {
    if claim.annotation(labels::REPLACES).is_none() {
        return 0;
    }
    let counted = claim.annotation(labels::REPLACEMENTS_IN_A_ROW);
    counted.and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// Replacements in a row of a NodeClaim that is created now for these. Those that lived for a day do not count.
#[must_use]
pub fn next_in_a_row<'c>(replaced: impl Iterator<Item = &'c NodeClaim>, now: Timestamp) -> u32 {
    let recent = |claim: &&NodeClaim| {
        let created = claim.metadata.creation_timestamp.as_ref();
        created.is_some_and(|at| now < after(at.0, DAY_MS))
    };
    let most = replaced.filter(recent).map(in_a_row).max();
    most.unwrap_or(0).saturating_add(1)
}

/// When a replacement that was created then has rested; `None` for a NodeClaim that replaced nothing. `first_ms`: rest of the
/// first one in a row.
#[must_use]
pub fn rests_until(
    claim: &NodeClaim,
    created: Option<Timestamp>,
    first_ms: i64,
) -> Option<Timestamp> {
    let before = in_a_row(claim).checked_sub(1)?;
    let rest = doubled(first_ms, before, DAY_MS.max(first_ms));
    created.map(|created| after(created, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn claim(replaces: Option<&str>, in_a_row: Option<&str>, created: &str) -> NodeClaim {
        let mut annotations = serde_json::Map::new();
        if let Some(names) = replaces {
            annotations.insert(labels::REPLACES.to_owned(), json!(names));
        }
        if let Some(count) = in_a_row {
            annotations.insert(labels::REPLACEMENTS_IN_A_ROW.to_owned(), json!(count));
        }
        let object = json!({
            "metadata": { "name": "a", "creationTimestamp": created, "annotations": annotations },
            "spec": { "nodeClassRef": { "group": "g", "kind": "k", "name": "n" }, "requirements": [] },
        });
        serde_json::from_value(object).unwrap_or_else(|error| unreachable!("{error}"))
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap_or_else(|error| unreachable!("{error}"))
    }

    #[test]
    fn each_replacement_of_a_replacement_rests_twice_as_long() {
        const NOON: &str = "2030-01-01T12:00:00Z";
        let table = [
            (None, None, None),
            (Some("b"), None, Some("2030-01-01T12:05:00Z")),
            (Some("b,c"), Some("2"), Some("2030-01-01T12:10:00Z")),
            (Some("b"), Some("5"), Some("2030-01-01T13:20:00Z")),
            (Some("b"), Some("40"), Some("2030-01-02T12:00:00Z")),
            // What cannot be read counts once.
            (Some("b"), Some("many"), Some("2030-01-01T12:05:00Z")),
        ];
        for (replaces, in_a_row, expected) in table {
            let claim = claim(replaces, in_a_row, NOON);
            let until = rests_until(&claim, Some(at(NOON)), 5 * 60_000);
            assert_eq!(until, expected.map(at), "{replaces:?} {in_a_row:?}");
        }
        // Without a cooldown nothing rests; a cooldown of more than a day stays.
        let often = claim(Some("b"), Some("9"), NOON);
        assert_eq!(rests_until(&often, Some(at(NOON)), 0), Some(at(NOON)));
        let days = rests_until(&often, Some(at(NOON)), 2 * DAY_MS);
        assert_eq!(days, Some(at("2030-01-03T12:00:00Z")));
    }

    #[test]
    fn replacements_of_the_last_day_count() {
        let now = at("2030-01-03T00:00:00Z");
        let new = "2030-01-02T23:00:00Z";
        let next = |all: &[NodeClaim]| next_in_a_row(all.iter(), now);
        assert_eq!(next(&[]), 1);
        assert_eq!(next(&[claim(None, None, new)]), 1);
        assert_eq!(
            next(&[claim(Some("b"), None, new), claim(None, None, new)]),
            2
        );
        assert_eq!(next(&[claim(Some("b"), Some("3"), new)]), 4);
        assert_eq!(
            next(&[claim(Some("b"), Some("3"), "2030-01-01T23:00:00Z")]),
            1
        );
    }
}
