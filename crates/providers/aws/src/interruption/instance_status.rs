//! Instances whose status checks fail, and scheduled events of instances. Needs no queue.
//!
//! A status counts once it has failed for two minutes, so it is asked for every two minutes, and again at the moment at which a
//! failure will count: no later than by asking every minute, with half the calls. EC2 announces events days ahead, and a queue
//! has them at once; they are asked for every ten minutes.
//!
//! EC2 offers no filter by tag: what is asked concerns the whole account, and instances of others are left out by whoever acts.
//! While all running instances of the account fit on one page, one call without filters says everything. Otherwise each kind of
//! finding is a call with its filter, whose answer is short whatever the account runs.
//!
//! # Source
//! The reference implementation's filters and times. Events that are over or called off stay listed for a while with a mark in
//! their description, and are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aws_sdk_ec2::primitives::DateTime;
use aws_sdk_ec2::types::{
    EventCode, Filter, InstanceStatus, InstanceStatusEvent, InstanceStatusSummary, StatusType,
    SummaryStatus,
};
use jiff::{SignedDuration, Timestamp};
use mortise_cloudprovider::{
    BoxFuture, CloudError, InterruptionKind, InterruptionNotice, NoticeSource,
};
use tokio::time::Instant;

use crate::failure::Failure;
use crate::sdk::AwsClients;
use crate::sdk::arguments::filter;

/// Time between two polls of statuses while none has begun to fail: with the toleration, the longest that delays nothing.
const STATUS_INTERVAL: Duration = Duration::from_secs(120);
/// Time between two polls of events.
const EVENT_INTERVAL: Duration = Duration::from_secs(600);
/// Most instances that EC2 gives on one page.
const PAGE: i32 = 1_000;
/// Time for which an account with more instances than a page is asked by filters before one page is tried again.
const LARGE_INTERVAL: Duration = Duration::from_secs(3_600);
/// The least time between two polls, whatever EC2's clock says.
const MIN_INTERVAL: Duration = Duration::from_secs(10);
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

/// What one poll asks for.
#[derive(Clone, Copy, Debug)]
struct Asked {
    statuses: bool,
    events: bool,
}

impl Asked {
    /// EC2 meets all filters of one call or none, so each kind is a call.
    fn filters(self) -> impl Iterator<Item = Filter> {
        let statuses = ["instance-status.status", "system-status.status"]
            .into_iter()
            .filter(move |_| self.statuses)
            .map(|name| filter(name, ["impaired"]));
        let events = self.events.then(|| filter("event.code", EVENT_CODES));
        statuses.chain(events)
    }
}

#[derive(Debug, Default)]
struct PollState {
    /// When to ask for statuses again; `None` before the first time.
    next_statuses: Option<Instant>,
    /// When to ask for events again; `None` before the first time.
    next_events: Option<Instant>,
    /// Until when the account counts as one with more instances than a page.
    large_until: Option<Instant>,
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

    /// Every status that one of the filters would find, by instance. May find events that were not asked for.
    async fn list(&self, asked: Asked) -> Result<BTreeMap<String, InstanceStatus>, Failure> {
        let is_large = self.lock().large_until;
        if is_large.is_none_or(|until| until <= Instant::now()) {
            if let Some(found) = self.list_at_once().await? {
                return Ok(found);
            }
            self.lock().large_until = Some(Instant::now() + LARGE_INTERVAL);
        }
        self.list_filtered(asked).await
    }

    /// What the filters would find, by one call without any; `None` if the account has more instances than a page.
    async fn list_at_once(&self) -> Result<Option<BTreeMap<String, InstanceStatus>>, Failure> {
        let call = self.clients.ec2.describe_instance_status();
        let page = call.max_results(PAGE).send().await;
        let page =
            page.map_err(|error| self.clients.failure("ec2:DescribeInstanceStatus", error))?;
        if page.next_token.is_some() {
            return Ok(None);
        }
        let mut state = self.lock();
        state.next_events = Some(Instant::now() + EVENT_INTERVAL);
        let statuses = page.instance_statuses.unwrap_or_default().into_iter();
        let findings = statuses.filter(is_finding);
        Ok(Some(by_instance(findings).collect()))
    }

    async fn list_filtered(
        &self,
        asked: Asked,
    ) -> Result<BTreeMap<String, InstanceStatus>, Failure> {
        let mut found = BTreeMap::new();
        for filter in asked.filters() {
            let call = self.clients.ec2.describe_instance_status().filters(filter);
            let mut pages = call.into_paginator().send();
            while let Some(page) = pages.next().await {
                let page = page
                    .map_err(|error| self.clients.failure("ec2:DescribeInstanceStatus", error))?;
                found.extend(by_instance(page.instance_statuses.unwrap_or_default()));
            }
        }
        Ok(found)
    }

    /// What is to be acted on now, with statuses and events.
    #[cfg(test)]
    pub(crate) async fn poll(&self, now: Timestamp) -> Result<Vec<InterruptionNotice>, Failure> {
        let asked = Asked {
            statuses: true,
            events: true,
        };
        Ok(notices(&self.list(asked).await?, now))
    }

    /// Waits until something is to be asked for, and notes when it is again: an attempt that is cut off counts as well.
    async fn due(&self) -> Asked {
        let next = {
            let state = self.lock();
            state.next_statuses.min(state.next_events)
        };
        if let Some(next) = next {
            tokio::time::sleep_until(next).await;
        }
        let now = Instant::now();
        let is_due = |at: &mut Option<Instant>, interval| {
            let due = at.is_none_or(|at| at <= now);
            if due {
                *at = Some(now + interval);
            }
            due
        };
        let mut state = self.lock();
        Asked {
            statuses: is_due(&mut state.next_statuses, STATUS_INTERVAL),
            events: is_due(&mut state.next_events, EVENT_INTERVAL),
        }
    }

    async fn next_poll(&self) -> Result<Vec<InterruptionNotice>, CloudError> {
        let asked = self.due().await;
        let result = self.list(asked).await;
        let now = Timestamp::now();
        let mut state = self.lock();
        match result {
            Ok(statuses) => {
                state.denied = None;
                if let Some(left) = until_failed(&statuses, now) {
                    let next = Instant::now() + left.max(MIN_INTERVAL);
                    state.next_statuses = state.next_statuses.map(|planned| planned.min(next));
                }
                Ok(notices(&statuses, now))
            }
            Err(failure) if failure.code == DENIED => {
                let next = Instant::now() + DENIED_INTERVAL;
                (state.next_statuses, state.next_events) = (Some(next), Some(next));
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

fn by_instance(
    statuses: impl IntoIterator<Item = InstanceStatus>,
) -> impl Iterator<Item = (String, InstanceStatus)> {
    let statuses = statuses.into_iter();
    statuses.filter_map(|status| Some((status.instance_id.clone()?, status)))
}

/// One of the filters would find it.
fn is_finding(status: &InstanceStatus) -> bool {
    let summaries = [status.instance_status(), status.system_status()];
    let is_impaired = summaries
        .into_iter()
        .flatten()
        .any(|summary| summary.status() == Some(&SummaryStatus::Impaired));
    is_impaired || status.events().iter().any(is_ending)
}

/// It ends what runs on the instance.
fn is_ending(event: &InstanceStatusEvent) -> bool {
    let code = event.code().map(EventCode::as_str);
    code.is_some_and(|code| EVENT_CODES.contains(&code))
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

/// For how long each failing check has failed; `None` for one that does not say.
fn failing(
    summary: Option<&InstanceStatusSummary>,
    now: Timestamp,
) -> impl Iterator<Item = Option<SignedDuration>> {
    let details = summary.map(|summary| summary.details()).unwrap_or_default();
    details
        .iter()
        .filter(|detail| detail.status() == Some(&StatusType::Failed))
        .map(move |detail| {
            let since = detail.impaired_since().and_then(timestamp)?;
            Some(now.duration_since(since))
        })
}

/// A check has failed for long enough. One that does not say since when has.
fn has_failed(summary: Option<&InstanceStatusSummary>, now: Timestamp) -> bool {
    failing(summary, now).any(|age| age.is_none_or(|age| age >= TOLERATION))
}

/// Time until the first check that fails now will have failed for long enough.
fn until_failed(statuses: &BTreeMap<String, InstanceStatus>, now: Timestamp) -> Option<Duration> {
    statuses
        .values()
        .flat_map(|status| [status.instance_status(), status.system_status()])
        .flat_map(|summary| failing(summary, now))
        .flatten()
        .filter(|age| *age < TOLERATION)
        .max()
        .map(|age| (TOLERATION - age).unsigned_abs())
}

/// When the first event begins that is not over: `Some(None)` if that is not known.
fn first_event(events: &[InstanceStatusEvent]) -> Option<Option<Timestamp>> {
    let is_open = |event: &&InstanceStatusEvent| {
        let text = event.description().unwrap_or_default();
        is_ending(event) && !OVER.iter().any(|mark| text.starts_with(mark))
    };
    let open = events.iter().filter(is_open);
    open.map(|event| event.not_before().and_then(timestamp))
        .min()
}

fn timestamp(time: &DateTime) -> Option<Timestamp> {
    Timestamp::from_nanosecond(time.as_nanos()).ok()
}
