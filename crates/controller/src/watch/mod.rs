//! Watches: from the API server to events for the index.
//!
//! ```text
//! list (pages, consistent) ─► watch from its version ─► ended, broken ─► watch again from the last version seen
//!      ▲                                                                              │
//!      └────────── that version is too old (410), the longer after the more often ◄──┘
//! ```
//!
//! A watch without any event or bookmark for `SILENCE_TIMEOUT` is replaced by a list. If the list shows no newer object, the
//! watch was only silent. Otherwise the watch missed objects, and counts as broken until its next event.
//!
//! Each watch reports when it is established, when it broke, and up to which version it is complete (bookmarks), so that
//! deciders know which watch is old.
//!
//! Lists are consistent reads, not reads from the watch cache of one replica: a list older than the last event would remove
//! existing objects from the cluster state. An object that cannot be parsed is counted, logged once, and keeps its last
//! readable state; its deletion needs only its name.

pub(crate) mod interruption_notices;
mod watch_health;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{ListParams, WatchParams};
use kube::core::{ApiResource, WatchEvent};
use mortise_engine::engine::EngineInput;
use mortise_engine::freshness::WatchState;
use mortise_state::resource_kinds::{EventSource, Object, ObjectEvent, ObjectKey, ResourceKind};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::client::backoff::{Backoff, jitter};
use crate::client::error_class;
use crate::client::reader::{KindReader, Reader};
use crate::client::resource_kinds::{ObjectIdentity, api_resource};
use crate::driver_message::DriverMessage;
use crate::service_state::ServiceState;
pub(crate) use watch_health::WatchHealth;

/// Objects per page of a list. 500 pods are about 3 MB of text in memory until they are parsed.
const PAGE_SIZE: u32 = 500;
/// The server ends a watch after this time. Jitter spreads the ends of the watches.
const WATCH_SECONDS: u32 = 240;
/// Timeout for a page of a list and for the response headers of a watch.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(45);
/// A watch that ends earlier than this did not reach its server-side timeout.
const MIN_WATCH_DURATION: Duration = Duration::from_secs(1);
/// A kind is listed again after this time without an event or bookmark. Bookmarks arrive every minute, except on a watch that
/// has received everything that the API server's store reported for the kind: etcd reports its progress only every few minutes.
/// Shorter than the time after which a watch is old, so that a kind without changes delays no decider.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(75);

/// The backoff between repeated lists is reset if two lists are further apart than this.
const RELIST_RESET: Duration = Duration::from_secs(60);

/// The watch of one kind.
pub(crate) struct Watch {
    pub(crate) kind: ResourceKind,
    pub(crate) reader: Reader,
    pub(crate) inputs: mpsc::Sender<DriverMessage>,
    pub(crate) shared: Arc<ServiceState>,
    pub(crate) liveness: Arc<WatchHealth>,
    /// Number of kinds without a complete list.
    pub(crate) unlisted: Arc<AtomicUsize>,
}

/// Why a watch ended.
enum WatchEnd {
    /// The server ended it as usual: resume from the version.
    Resume(String),
    /// The version is too old.
    Relist,
    /// No event or bookmark after this version for too long: the kind has no changes, or events were lost.
    Quiet(String),
    /// It failed.
    Failed {
        version: Option<String>,
        error: String,
    },
    /// The receiver of events is closed.
    Closed,
}

impl Watch {
    /// Watches until `end`, or until the receiver of events is closed.
    pub(crate) async fn run(self, end: CancellationToken) {
        tokio::select! {
            () = end.cancelled() => {}
            // It ends only when the receiver is closed.
            _ = self.list_and_watch() => {}
        }
    }

    async fn list_and_watch(&self) -> Result<(), WatchEnd> {
        let resource = api_resource(&self.kind.api);
        let api: KindReader<WatchedObject> = self.reader.all(&resource);
        let mut state = WatchProgress {
            unreadable: BTreeSet::new(),
            broken: false,
            listed: false,
            silent_since: None,
            has_missed_objects: false,
        };
        let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(15));
        // The watch counts as broken until its first list.
        self.send_watch_state(WatchState::Broke).await?;
        let mut relists = Backoff::new(Duration::from_millis(500), Duration::from_secs(30));
        let mut relisted: Option<Instant> = None;
        let mut version = None;
        loop {
            let end = match version.take() {
                None => self.list_all(&api, &mut state).await,
                Some(version) => {
                    self.watch_from(&api, version, &mut state, &mut backoff)
                        .await
                }
            };
            match end {
                Ok(next) => version = Some(next),
                Err(WatchEnd::Closed) => return Err(WatchEnd::Closed),
                Err(WatchEnd::Resume(next)) => version = Some(next),
                Err(WatchEnd::Relist) => {
                    tracing::info!(kind = self.kind.api.kind, "watch is too old, relisting");
                    self.shared
                        .metrics
                        .engine
                        .watch_restarted(self.kind.api.kind);
                    self.send_watch_state(WatchState::Broke).await?;
                    // The first relist is immediate. If a server rejects the version repeatedly, immediate relists would
                    // request 100,000 pods in a loop.
                    if relisted
                        .replace(Instant::now())
                        .is_some_and(|at| at.elapsed() < RELIST_RESET)
                    {
                        self.mark_broken(&mut state);
                        tokio::time::sleep(relists.next()).await;
                    } else {
                        relists.reset();
                    }
                }
                // A list shows which of the two it is. For a kind without changes it proves as much as a bookmark.
                Err(WatchEnd::Quiet(last)) => {
                    state.silent_since = last.parse().ok();
                    self.shared
                        .metrics
                        .engine
                        .watch_restarted(self.kind.api.kind);
                    tracing::debug!(
                        resource = self.kind.api.resource(),
                        "watch is silent, relisting"
                    );
                }
                Err(WatchEnd::Failed {
                    version: last,
                    error,
                }) => {
                    self.report_failure(&mut state, &error, backoff.failures());
                    self.send_watch_state(WatchState::Broke).await?;
                    version = last;
                    tokio::time::sleep(backoff.next()).await;
                }
            }
        }
    }

    fn report_failure(&self, state: &mut WatchProgress, error: &str, failures: u32) {
        self.shared
            .metrics
            .engine
            .watch_restarted(self.kind.api.kind);
        self.mark_broken(state);
        // One refused connection is common (a rolling API server); several in a row are worth a warning.
        if failures == 2 {
            tracing::warn!(
                resource = self.kind.api.resource(),
                error,
                "watch is stalled, cluster state may be stale"
            );
        } else {
            tracing::debug!(
                resource = self.kind.api.resource(),
                error,
                failures,
                "watch failed"
            );
        }
    }

    /// Until the watch is established again, the cluster state cannot be confirmed.
    fn mark_broken(&self, state: &mut WatchProgress) {
        if !state.broken && self.kind.is_vital() {
            state.broken = true;
            self.liveness.record_watch_broken(true);
        }
    }

    async fn mark_established(&self, state: &mut WatchProgress) -> Result<(), WatchEnd> {
        self.liveness.record_response();
        if state.broken {
            state.broken = false;
            self.liveness.record_watch_broken(false);
        }
        self.send_watch_state(WatchState::Stands).await
    }

    /// Reads the whole list. Objects are sent page by page; the index finds deleted ones at the end, by key.
    async fn list_all(
        &self,
        api: &KindReader<WatchedObject>,
        state: &mut WatchProgress,
    ) -> Result<String, WatchEnd> {
        let mut keys = BTreeSet::new();
        let mut params = ListParams::default().limit(PAGE_SIZE);
        // Every page shows the cluster at the version of the first one.
        let mut version = None;
        let silent_since = state.silent_since.take();
        state.has_missed_objects = false;
        loop {
            let page = match with_response_timeout(api.list(&params)).await {
                Ok(page) => page,
                // The list took longer than the server's compaction interval.
                Err(kube::Error::Api(status)) if status.code == 410 => {
                    return Err(WatchEnd::Relist);
                }
                Err(error) => return Err(watch_failure(None, &error)),
            };
            self.liveness.record_response();
            version = version.or(page.metadata.resource_version);
            for item in page.items {
                let newer = |since: u64| item.version.parse().is_ok_and(|at: u64| at > since);
                state.has_missed_objects |= silent_since.is_some_and(newer);
                let key = self.kind.index.key(&item.namespace, &item.name);
                self.send_object(item, &key, state).await?;
                keys.insert(key);
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => break,
            }
        }
        let version = version.unwrap_or_default();
        state.unreadable.retain(|key| keys.contains(key));
        self.send_message(DriverMessage::Input(EngineInput::News(
            ObjectEvent::Listed {
                kind: self.kind.index.clone(),
                keys,
                version: version.parse().ok(),
            },
        )))
        .await?;
        if state.has_missed_objects {
            tracing::warn!(
                resource = self.kind.api.resource(),
                "watch missed objects of the list, treated as broken until its next event"
            );
            self.mark_broken(state);
            self.send_watch_state(WatchState::Broke).await?;
        }
        if !state.listed {
            state.listed = true;
            tracing::debug!(resource = self.kind.api.resource(), "listed");
            if self.unlisted.fetch_sub(1, Ordering::AcqRel) == 1 {
                self.send_message(DriverMessage::Input(EngineInput::Synced))
                    .await?;
            }
        }
        Ok(version)
    }

    async fn watch_from(
        &self,
        api: &KindReader<WatchedObject>,
        mut version: String,
        state: &mut WatchProgress,
        backoff: &mut Backoff,
    ) -> Result<String, WatchEnd> {
        let spread = u32::try_from(jitter(Duration::from_secs(50)).as_secs()).unwrap_or(0);
        let params = WatchParams::default().timeout(WATCH_SECONDS + spread);
        let stream = match with_response_timeout(api.watch(&params, &version)).await {
            Ok(stream) => stream.boxed(),
            Err(kube::Error::Api(status)) if status.code == 410 => return Err(WatchEnd::Relist),
            Err(error) => return Err(watch_failure(Some(version), &error)),
        };
        if !state.has_missed_objects {
            self.mark_established(state).await?;
        }
        let mut stream = stream;
        let begun = Instant::now();
        loop {
            let event = match tokio::time::timeout(SILENCE_TIMEOUT, stream.next()).await {
                Ok(Some(Ok(event))) => event,
                // A watch that ends immediately did not time out: an immediate retry could loop indefinitely.
                Ok(None) if begun.elapsed() < MIN_WATCH_DURATION => {
                    let error = "it ended immediately".to_owned();
                    return Err(WatchEnd::Failed {
                        version: Some(version),
                        error,
                    });
                }
                Ok(None) => return Err(WatchEnd::Resume(version)),
                Ok(Some(Err(error))) => return Err(watch_failure(Some(version), &error)),
                Err(_) => return Err(WatchEnd::Quiet(version)),
            };
            if state.has_missed_objects && !matches!(event, WatchEvent::Error(_)) {
                state.has_missed_objects = false;
                self.mark_established(state).await?;
            }
            match event {
                WatchEvent::Added(item) | WatchEvent::Modified(item) => {
                    backoff.reset();
                    item.version.clone_into(&mut version);
                    let key = self.kind.index.key(&item.namespace, &item.name);
                    self.send_object(item, &key, state).await?;
                }
                WatchEvent::Deleted(item) => {
                    backoff.reset();
                    item.version.clone_into(&mut version);
                    let key = self.kind.index.key(&item.namespace, &item.name);
                    state.unreadable.remove(&key);
                    self.send_message(DriverMessage::Input(EngineInput::News(
                        ObjectEvent::Deleted(key, item.version.parse().ok()),
                    )))
                    .await?;
                }
                WatchEvent::Bookmark(mark) => {
                    backoff.reset();
                    version = mark.metadata.resource_version;
                    self.send_watch_state(WatchState::Bookmark(version.parse().ok()))
                        .await?;
                }
                WatchEvent::Error(status) if status.code == 410 => return Err(WatchEnd::Relist),
                WatchEvent::Error(status) => {
                    return Err(WatchEnd::Failed {
                        version: Some(version),
                        error: status.message,
                    });
                }
            }
        }
    }

    async fn send_object(
        &self,
        item: WatchedObject,
        key: &ObjectKey,
        state: &mut WatchProgress,
    ) -> Result<(), WatchEnd> {
        match item.parse(&self.kind) {
            Ok(object) => {
                state.unreadable.remove(key);
                self.send_message(DriverMessage::Input(EngineInput::News(
                    ObjectEvent::Applied(object, EventSource::Watch),
                )))
                .await
            }
            Err(error) => {
                self.shared.metrics.engine.unparsable(self.kind.api.kind);
                if state.unreadable.insert(key.clone()) {
                    let event = ObjectEvent::Unreadable(key.clone());
                    self.send_message(DriverMessage::Input(EngineInput::News(event)))
                        .await?;
                    tracing::warn!(
                        resource = self.kind.api.resource(),
                        namespace = item.namespace,
                        name = item.name,
                        %error,
                        "failed to parse object, its previous state stays in use"
                    );
                }
                Ok(())
            }
        }
    }

    /// Reports the state of this watch.
    async fn send_watch_state(&self, state: WatchState) -> Result<(), WatchEnd> {
        let kind = self.kind.index.clone();
        self.send_message(DriverMessage::Input(EngineInput::Watch { kind, state }))
            .await
    }

    async fn send_message(&self, message: DriverMessage) -> Result<(), WatchEnd> {
        self.inputs
            .send(message)
            .await
            .map_err(|_| WatchEnd::Closed)
    }
}

/// Objects of a kind as one list shows them.
#[derive(Debug, Default)]
pub(crate) struct ListedObjects {
    pub(crate) objects: Vec<Object>,
    /// Names of objects that cannot be parsed.
    pub(crate) unreadable: Vec<String>,
}

/// Lists a kind once, as a watch begins.
pub(crate) async fn list_once(
    reader: &Reader,
    kind: &ResourceKind,
) -> Result<ListedObjects, kube::Error> {
    let api: KindReader<WatchedObject> = reader.all(&api_resource(&kind.api));
    let mut params = ListParams::default().limit(PAGE_SIZE);
    let mut listed = ListedObjects::default();
    loop {
        let page = with_response_timeout(api.list(&params)).await?;
        for item in page.items {
            match item.parse(kind) {
                Ok(object) => listed.objects.push(object),
                Err(_) => listed.unreadable.push(item.name),
            }
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(listed),
        }
    }
}

/// Waits for the response headers, with a timeout: a server that vanished closes no connection.
async fn with_response_timeout<T>(
    call: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, kube::Error> {
    let response = tokio::time::timeout(RESPONSE_TIMEOUT, call).await;
    response.unwrap_or_else(|elapsed| Err(kube::Error::Service(Box::new(elapsed))))
}

fn watch_failure(version: Option<String>, error: &kube::Error) -> WatchEnd {
    WatchEnd::Failed {
        version,
        error: error_class::message(error),
    }
}

struct WatchProgress {
    unreadable: BTreeSet<ObjectKey>,
    broken: bool,
    listed: bool,
    /// The watch was complete up to this version when it became silent.
    silent_since: Option<u64>,
    /// The last list showed objects that the watch had missed, and the watch has sent no event since.
    has_missed_objects: bool,
}

/// An object as received, with the metadata that is always parsed.
#[derive(Clone)]
struct WatchedObject {
    name: String,
    namespace: String,
    version: String,
    text: Box<RawValue>,
    meta: ObjectMeta,
}

impl WatchedObject {
    fn parse(&self, kind: &ResourceKind) -> Result<Object, serde_json::Error> {
        kind.index.parse(self.text.get())
    }
}

impl fmt::Debug for WatchedObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}@{}", self.namespace, self.name, self.version)
    }
}

impl<'de> Deserialize<'de> for WatchedObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        let ObjectIdentity {
            name,
            namespace,
            resource_version: version,
            ..
        } = ObjectIdentity::read(text.get()).map_err(serde::de::Error::custom)?;
        Ok(Self {
            name,
            namespace,
            version,
            text,
            meta: ObjectMeta::default(),
        })
    }
}

impl kube::Resource for WatchedObject {
    type DynamicType = ApiResource;
    type Scope = kube::core::DynamicResourceScope;

    fn kind(resource: &ApiResource) -> Cow<'_, str> {
        resource.kind.as_str().into()
    }

    fn group(resource: &ApiResource) -> Cow<'_, str> {
        resource.group.as_str().into()
    }

    fn version(resource: &ApiResource) -> Cow<'_, str> {
        resource.version.as_str().into()
    }

    fn plural(resource: &ApiResource) -> Cow<'_, str> {
        resource.plural.as_str().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.meta
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_types, reason = "clients of scripted API servers")]
mod tests;
