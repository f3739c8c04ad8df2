//! Capacity reservations that the terms of a class select, and how many instances each of them still takes.

use std::collections::{BTreeMap, BTreeSet};

use aws_sdk_ec2::types::{CapacityReservation as Ec2Reservation, Filter};
use futures::future::{try_join, try_join_all};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use mortise_aws_class::labels::CAPACITY_BLOCK;
use mortise_aws_class::spec::CapacityReservationSelectorTerm;
use mortise_aws_class::status::CapacityReservation;
use tokio::time::Instant;

use crate::failure::Failure;
use crate::offerings::reservation_counts::ReservationCounts;
use crate::sdk::AwsClients;
use crate::sdk::arguments::{filter, tag_filters};

/// How long before its end a capacity block takes no more instances.
/// # Source
/// EC2 begins to terminate the instances of a block 30 minutes before its end; the reference implementation leaves 10 more.
pub(crate) const EXPIRING: SignedDuration = SignedDuration::from_mins(40);

/// Milliseconds until the first of these capacity blocks takes no more instances; `None` if none of those that take some ends.
pub(super) fn expiring_in_ms(all: &[CapacityReservation], now: Timestamp) -> Option<i64> {
    let blocks = all.iter().filter(|each| {
        each.reservation_type.as_deref() == Some(CAPACITY_BLOCK)
            && each.state.as_deref() == Some("active")
    });
    let ends = blocks.filter_map(|each| each.end_time.as_ref());
    let left = ends.map(|end| (end.0.duration_since(now) - EXPIRING).as_millis());
    left.min().and_then(|ms| i64::try_from(ms.max(0)).ok())
}

/// The selected reservations, by id. Notes the free instances of each.
pub(crate) async fn find(
    clients: &AwsClients,
    terms: &[CapacityReservationSelectorTerm],
    counts: &ReservationCounts,
    now: Timestamp,
) -> Result<Vec<CapacityReservation>, Failure> {
    let read = Instant::now();
    let ids: BTreeSet<&str> = terms.iter().filter_map(|term| term.id.as_deref()).collect();
    let named = ids.into_iter().map(|id| by_id(clients, id));
    let selecting = terms.iter().filter(|term| term.id.is_none());
    let selected = selecting.map(|term| by_filters(clients, filters(term)));
    let (named, selected) = try_join(try_join_all(named), try_join_all(selected)).await?;
    let mut found = BTreeMap::new();
    for each in named.into_iter().chain(selected).flatten() {
        let left = each.available_instance_count;
        let Some(reservation) = described(each, now) else {
            continue;
        };
        if let Some(left) = left.and_then(|left| u32::try_from(left).ok()) {
            counts.read(&reservation.id, left, read);
        }
        found.insert(reservation.id.clone(), reservation);
    }
    Ok(found.into_values().collect())
}

/// One call for each: an id that does not exist fails the whole call that names it.
async fn by_id(clients: &AwsClients, id: &str) -> Result<Vec<Ec2Reservation>, Failure> {
    let call = clients
        .ec2
        .describe_capacity_reservations()
        .capacity_reservation_ids(id)
        .filters(filter("state", ["active"]));
    match call.send().await {
        Ok(answer) => Ok(answer.capacity_reservations.unwrap_or_default()),
        Err(error) => match clients.failure("ec2:DescribeCapacityReservations", error) {
            failure if failure.is_not_found() => Ok(Vec::new()),
            failure => Err(failure),
        },
    }
}

async fn by_filters(
    clients: &AwsClients,
    filters: Vec<Filter>,
) -> Result<Vec<Ec2Reservation>, Failure> {
    let mut pages = clients
        .ec2
        .describe_capacity_reservations()
        .set_filters(Some(filters))
        .max_results(1000)
        .into_paginator()
        .send();
    let mut found = Vec::new();
    while let Some(page) = pages.next().await {
        let page =
            page.map_err(|error| clients.failure("ec2:DescribeCapacityReservations", error))?;
        found.extend(page.capacity_reservations.unwrap_or_default());
    }
    Ok(found)
}

fn filters(term: &CapacityReservationSelectorTerm) -> Vec<Filter> {
    let mut filters = vec![filter("state", ["active"])];
    filters.extend(term.owner_id.as_ref().map(|id| filter("owner-id", [id])));
    let criteria = term.instance_match_criteria.as_ref();
    filters.extend(criteria.map(|criteria| filter("instance-match-criteria", [criteria])));
    filters.extend(term.tags.as_ref().map(tag_filters).unwrap_or_default());
    filters
}

/// EC2's description as the status lists it; `None` for one that has ended, and for one of a kind that is not known.
fn described(each: Ec2Reservation, now: Timestamp) -> Option<CapacityReservation> {
    let id = each.capacity_reservation_id?;
    let unknown = |what: &str, value: Option<&str>| {
        tracing::error!(
            reservation = id,
            what,
            ?value,
            "capacity reservation of an unknown kind"
        );
    };
    let criteria = each
        .instance_match_criteria
        .as_ref()
        .map(|each| each.as_str());
    let Some(criteria @ ("open" | "targeted")) = criteria else {
        unknown("instance match criteria", criteria);
        return None;
    };
    let kind = each.reservation_type.as_ref().map(|each| each.as_str());
    let kind = match kind {
        None => "default",
        Some(known @ ("default" | CAPACITY_BLOCK)) => known,
        other => {
            unknown("reservation type", other);
            return None;
        }
    };
    let end = each
        .end_date
        .and_then(|at| Timestamp::from_second(at.secs()).ok());
    if end.is_some_and(|end| end <= now) {
        return None;
    }
    let expires =
        kind == CAPACITY_BLOCK && end.is_some_and(|end| end.duration_since(now) <= EXPIRING);
    Some(CapacityReservation {
        availability_zone: each.availability_zone.unwrap_or_default(),
        end_time: end.map(Time),
        instance_match_criteria: criteria.to_owned(),
        instance_type: each.instance_type.unwrap_or_default(),
        interruptible: Some(each.interruptible.unwrap_or(false)),
        owner_id: each.owner_id.unwrap_or_default(),
        reservation_type: Some(kind.to_owned()),
        state: Some(if expires { "expiring" } else { "active" }.to_owned()),
        id,
    })
}

#[cfg(test)]
mod tests {
    use aws_sdk_ec2::primitives::DateTime;
    use aws_sdk_ec2::types::{CapacityReservationType, InstanceMatchCriteria};

    use super::*;

    fn reservation(kind: &str, end: Option<Timestamp>) -> Ec2Reservation {
        Ec2Reservation::builder()
            .capacity_reservation_id("cr-1")
            .instance_match_criteria(InstanceMatchCriteria::Targeted)
            .reservation_type(CapacityReservationType::from(kind))
            .set_end_date(end.map(|at| DateTime::from_secs(at.as_second())))
            .build()
    }

    #[test]
    fn blocks_expire_before_their_end() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let state = |kind: &str, minutes: i64| {
            let end = now + SignedDuration::from_mins(minutes);
            described(reservation(kind, Some(end)), now).and_then(|each| each.state)
        };
        assert_eq!(state("capacity-block", 40).as_deref(), Some("expiring"));
        assert_eq!(state("capacity-block", 41).as_deref(), Some("active"));
        assert_eq!(state("default", 40).as_deref(), Some("active"));
        assert_eq!(state("default", 0), None, "it has ended");
    }

    #[test]
    fn the_first_block_to_expire_is_known_ahead() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let block = |kind: &str, minutes: i64| {
            let end = now + SignedDuration::from_mins(minutes);
            described(reservation(kind, Some(end)), now).unwrap()
        };
        let expiring_in_ms = |all: &[CapacityReservation]| expiring_in_ms(all, now);
        let (later, sooner) = (block(CAPACITY_BLOCK, 50), block(CAPACITY_BLOCK, 42));
        assert_eq!(expiring_in_ms(&[later.clone(), sooner]), Some(120_000));
        assert_eq!(
            expiring_in_ms(&[block(CAPACITY_BLOCK, 39), block("default", 41), later]),
            Some(600_000),
            "one expires already, one is no block"
        );
        assert_eq!(expiring_in_ms(&[block(CAPACITY_BLOCK, 39)]), None);
    }

    #[test]
    fn reservations_of_unknown_kinds_are_left_out() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        assert!(described(reservation("default", None), now).is_some());
        assert!(described(reservation("something", None), now).is_none());
        let other = Ec2Reservation::builder()
            .capacity_reservation_id("cr-1")
            .instance_match_criteria(InstanceMatchCriteria::from("something"))
            .build();
        assert!(described(other, now).is_none());
    }
}
