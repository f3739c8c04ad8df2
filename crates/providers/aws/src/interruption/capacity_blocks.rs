//! Capacity blocks that end soon: EC2 takes their instances half an hour before the end.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use mortise_cloudprovider::{
    BoxFuture, CloudError, InterruptionKind, InterruptionNotice, NoticeSource,
};
use tokio::time::Instant;

use super::claimed_instances::ClaimedInstances;
use crate::failure::Failure;
use crate::node_class::capacity_reservations::EXPIRING;
use crate::offerings::reservation_counts::ReservationCounts;
use crate::sdk::AwsClients;
use crate::sdk::arguments::filter;

/// Time between two polls.
const INTERVAL: Duration = Duration::from_secs(60);
/// EC2 begins to end instances this long before the end.
const TAKEN: SignedDuration = SignedDuration::from_mins(30);
/// The code of a reservation that does not exist any more.
const GONE: &str = "InvalidCapacityReservationId.NotFound";

/// The poll of reservations that instances end with.
#[derive(Debug)]
pub(crate) struct CapacityBlockPoll {
    clients: Arc<AwsClients>,
    claims: Arc<ClaimedInstances>,
    counts: Arc<ReservationCounts>,
    next: Mutex<Option<Instant>>,
}

impl CapacityBlockPoll {
    /// Calls nothing yet, and nothing as long as no instance runs in a block.
    pub(crate) fn new(
        clients: Arc<AwsClients>,
        claims: Arc<ClaimedInstances>,
        counts: Arc<ReservationCounts>,
    ) -> Self {
        Self {
            clients,
            claims,
            counts,
            next: Mutex::default(),
        }
    }

    /// Instances of blocks that end soon. A reservation that cannot be read does not keep the others from being read.
    pub(crate) async fn poll(&self, now: Timestamp) -> Result<Vec<InterruptionNotice>, Failure> {
        let (mut notices, mut failed) = (Vec::new(), None);
        for (id, instances) in self.claims.by_ending_reservation() {
            let end = match self.end(&id).await {
                Ok(end) => end,
                Err(failure) if failure.code == GONE => None,
                Err(failure) => {
                    failed = Some(failure);
                    None
                }
            };
            let Some(end) = end.filter(|end| end.duration_since(now) <= EXPIRING) else {
                continue;
            };
            notices.push(InterruptionNotice {
                id: None,
                kind: InterruptionKind::CapacityBlockExpiration,
                instances,
                sent: None,
                starts: end.checked_sub(TAKEN).ok(),
            });
        }
        match failed {
            Some(failure) if notices.is_empty() => Err(failure),
            _ => Ok(notices),
        }
    }

    /// When a block ends; `None` for one that is not active, or has no end.
    async fn end(&self, id: &str) -> Result<Option<Timestamp>, Failure> {
        let asked = Instant::now();
        let call = self.clients.ec2.describe_capacity_reservations();
        let mut pages = call
            .capacity_reservation_ids(id)
            .filters(filter("state", ["active"]))
            .into_paginator()
            .send();
        while let Some(page) = pages.next().await {
            let page = page.map_err(|error| {
                self.clients
                    .failure("ec2:DescribeCapacityReservations", error)
            })?;
            let mut all = page.capacity_reservations.unwrap_or_default().into_iter();
            let Some(found) = all.find(|each| each.capacity_reservation_id() == Some(id)) else {
                continue;
            };
            let left = found.available_instance_count();
            if let Some(left) = left.and_then(|left| u32::try_from(left).ok()) {
                self.counts.read(id, left, asked);
            }
            let end = found.end_date().map(|end| end.as_nanos());
            return Ok(end.and_then(|nanos| Timestamp::from_nanosecond(nanos).ok()));
        }
        Ok(None)
    }

    async fn next_poll(&self) -> Result<Vec<InterruptionNotice>, CloudError> {
        let next = {
            let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
            let at = *next;
            *next = Some(at.unwrap_or_else(Instant::now) + INTERVAL);
            at
        };
        if let Some(next) = next {
            tokio::time::sleep_until(next).await;
        }
        Ok(self.poll(Timestamp::now()).await?)
    }
}

impl NoticeSource for CapacityBlockPoll {
    fn name(&self) -> &'static str {
        "capacity-blocks"
    }

    fn next(&self) -> BoxFuture<'_, Result<Vec<InterruptionNotice>, CloudError>> {
        Box::pin(self.next_poll())
    }
}
