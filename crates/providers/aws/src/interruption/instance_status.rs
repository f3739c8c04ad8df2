//! Instances whose status checks fail, and scheduled events of instances, asked for every minute. Needs no queue.
//!
//! EC2 offers no filter by tag: what is asked concerns the whole account, and instances of others are left out by whoever acts.
//!
//! # Source
//! The reference implementation's filters and times. Events that are over or called off stay listed for a while with a mark in
//! their description, and are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aws_sdk_ec2::primitives::DateTime;
use aws_sdk_ec2::types::{InstanceStatus, InstanceStatusEvent, InstanceStatusSummary, StatusType};
use jiff::{SignedDuration, Timestamp};
use mortise_cloudprovider::{
    BoxFuture, CloudError, InterruptionKind, InterruptionNotice, NoticeSource,
};
use tokio::time::Instant;

use crate::failure::Failure;
use crate::sdk::AwsClients;
use crate::sdk::arguments::filter;

/// Time between two polls.
const INTERVAL: Duration = Duration::from_secs(60);
/// Time to the next poll while polling is not allowed.
const DENIED_INTERVAL: Duration = Duration::from_secs(600);
/// A status must have failed for this long.
const TOLERATION: SignedDuration = SignedDuration::from_secs(120);
/// Events that end what runs on the instance.
const EVENT_CODES: [&str; 5] = [
    "instance-reboot",
    "system-reboot",
    "system-maintenance",
    "instance-retirement",
    "instance-stop",
];
/// How descriptions of events begin that are over.
const OVER: [&str; 2] = ["[Completed]", "[Canceled]"];
/// Why polling fails without the permission.
const DENIED: &str = "UnauthorizedOperation";

#[derive(Debug, Default)]
struct PollState {
    /// When to poll again; `None` before the first time.
    next: Option<Instant>,
    /// Why polling is not allowed.
    denied: Option<String>,
}

/// The poll.
#[derive(Debug)]
pub(crate) struct InstanceStatusPoll {
    clients: Arc<AwsClients>,
    state: Mutex<PollState>,
}

impl InstanceStatusPoll {
    /// Calls nothing yet.
    pub(crate) fn new(clients: Arc<AwsClients>) -> Self {
        Self {
            clients,
            state: Mutex::default(),
        }
    }

    /// Every status that one of three filters finds, by instance.
    async fn list(&self) -> Result<BTreeMap<String, InstanceStatus>, Failure> {
        let (mut found, impaired) = (BTreeMap::new(), ["impaired"]);
        for filter in [
            filter("instance-status.status", impaired),
            filter("system-status.status", impaired),
            filter("event.code", EVENT_CODES),
        ] {
            let call = self.clients.ec2.describe_instance_status().filters(filter);
            let mut pages = call.into_paginator().send();
            while let Some(page) = pages.next().await {
                let page = page
                    .map_err(|error| self.clients.failure("ec2:DescribeInstanceStatus", error))?;
                let statuses = page.instance_statuses.unwrap_or_default().into_iter();
                found.extend(
                    statuses.filter_map(|status| Some((status.instance_id.clone()?, status))),
                );
            }
        }
        Ok(found)
    }

    /// What is to be acted on now.
    pub(crate) async fn poll(&self, now: Timestamp) -> Result<Vec<InterruptionNotice>, Failure> {
        Ok(notices(&self.list().await?, now))
    }

    async fn next_poll(&self) -> Result<Vec<InterruptionNotice>, CloudError> {
        let next = self.lock().next;
        if let Some(next) = next {
            tokio::time::sleep_until(next).await;
        }
        // An attempt that is cut off counts as well.
        self.lock().next = Some(Instant::now() + INTERVAL);
        let result = self.poll(Timestamp::now()).await;
        let mut state = self.lock();
        match result {
            Ok(notices) => {
                state.denied = None;
                Ok(notices)
            }
            Err(failure) if failure.code == DENIED => {
                state.next = Some(Instant::now() + DENIED_INTERVAL);
                state.denied = Some(failure.to_string());
                Ok(Vec::new())
            }
            Err(failure) => Err(failure.into()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, PollState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl NoticeSource for InstanceStatusPoll {
    fn name(&self) -> &'static str {
        "instance-status"
    }

    fn next(&self) -> BoxFuture<'_, Result<Vec<InterruptionNotice>, CloudError>> {
        Box::pin(self.next_poll())
    }

    fn fault(&self) -> Option<String> {
        self.lock().denied.clone()
    }
}

/// One notice per kind and start, with its instances.
fn notices(statuses: &BTreeMap<String, InstanceStatus>, now: Timestamp) -> Vec<InterruptionNotice> {
    let mut found: BTreeMap<(InterruptionKind, Option<Timestamp>), BTreeSet<Arc<str>>> =
        BTreeMap::new();
    for (id, status) in statuses {
        let mut add = |kind, starts| {
            let instances = found.entry((kind, starts)).or_default();
            instances.insert(Arc::from(id.as_str()));
        };
        if has_failed(status.instance_status(), now) {
            add(InterruptionKind::InstanceStatus, None);
        }
        if has_failed(status.system_status(), now) {
            add(InterruptionKind::SystemStatus, None);
        }
        if let Some(starts) = first_event(status.events()) {
            add(InterruptionKind::EventStatus, starts);
        }
    }
    let notice = |((kind, starts), instances): ((_, _), BTreeSet<_>)| InterruptionNotice {
        id: None,
        kind,
        instances: instances.into_iter().collect(),
        sent: None,
        starts,
    };
    found.into_iter().map(notice).collect()
}

/// A check has failed for long enough. One that does not say since when has.
fn has_failed(summary: Option<&InstanceStatusSummary>, now: Timestamp) -> bool {
    let details = summary.map(|summary| summary.details()).unwrap_or_default();
    details.iter().any(|detail| {
        let is_old = detail
            .impaired_since()
            .and_then(timestamp)
            .is_none_or(|since| now.duration_since(since) >= TOLERATION);
        detail.status() == Some(&StatusType::Failed) && is_old
    })
}

/// When the first event begins that is not over: `Some(None)` if that is not known.
fn first_event(events: &[InstanceStatusEvent]) -> Option<Option<Timestamp>> {
    let is_open = |event: &&InstanceStatusEvent| {
        let code = event
            .code()
            .is_some_and(|code| EVENT_CODES.contains(&code.as_str()));
        let text = event.description().unwrap_or_default();
        code && !OVER.iter().any(|mark| text.starts_with(mark))
    };
    let open = events.iter().filter(is_open);
    open.map(|event| event.not_before().and_then(timestamp))
        .min()
}

fn timestamp(time: &DateTime) -> Option<Timestamp> {
    Timestamp::from_nanosecond(time.as_nanos()).ok()
}
