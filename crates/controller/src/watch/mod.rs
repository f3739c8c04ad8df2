//! Watches: from the API server to news for the index.
//!
//! ```text
//! list (pages, consistent) ─► watch from its version ─► ended, broken ─► watch again from the last version seen
//!      ▲                                                                              │
//!      └────────── that version is too old (410), the longer after the more often ◄──┘
//! ```
//!
//! A watch on which nothing comes for long, not even a bookmark, gives way to a list: a kind that is only quiet is as the watch
//! showed it; a watch that had hidden something counts as broken until something comes from it.
//!
//! Each watch says when it stands, when it broke, and up to which version it has shown everything (bookmarks), so that
//! deciders know which of them is old.
//!
//! Lists are consistent reads and not answers from some replica's cache: a list that is older than what was seen already
//! would take objects out of the picture that are there. An object that cannot be read is counted, named once in the log,
//! and kept as it was last readable; its deletion is noticed by its name alone.

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
use kube::api::{Api, ListParams, WatchParams};
use kube::core::{ApiResource, WatchEvent};
use mortise_engine::engine::EngineInput;
use mortise_engine::freshness::WatchState;
use mortise_state::resource_kinds::{EventSource, Object, ObjectEvent, ObjectKey};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::client::backoff::{Backoff, jitter};
use crate::client::error_class;
use crate::client::resource_kinds::{ObjectIdentity, ResourceKind};
use crate::driver_message::DriverMessage;
use crate::service_state::ServiceState;
pub(crate) use watch_health::WatchHealth;

/// Objects per page of a list. 500 pods are some 3 MB of text, which is held for a moment.
const PAGE: u32 = 500;
/// The server ends a watch after this time, spread so that they do not all end together.
const WATCH_SECONDS: u32 = 240;
/// A page of a list, or the beginning of a watch, comes within this time.
const ANSWER: Duration = Duration::from_secs(45);
/// A watch that lasts less than this did not end by its own time.
const BRIEF: Duration = Duration::from_secs(1);
/// A kind is listed anew when nothing came for this long, not even a bookmark. They come every minute, but not to a watch that
/// has seen all that its API server's store told of the kind: etcd says by itself only every few minutes that nothing happened.
/// Shorter than what makes the watch old: a kind that is only quiet holds nobody up.
const SILENCE: Duration = Duration::from_secs(75);

/// Lists further apart than this have nothing to do with each other.
const CALM: Duration = Duration::from_secs(60);

/// One kind, watched.
pub(crate) struct Watch {
    pub(crate) kind: ResourceKind,
    pub(crate) client: kube::Client,
    pub(crate) inputs: mpsc::Sender<DriverMessage>,
    pub(crate) shared: Arc<ServiceState>,
    pub(crate) liveness: Arc<WatchHealth>,
    /// How many kinds have not been listed yet.
    pub(crate) unlisted: Arc<AtomicUsize>,
}

/// Why a watch ended.
enum WatchEnd {
    /// It ended as watches do: go on from the version.
    Resume(String),
    /// The version is too old.
    Relist,
    /// Nothing came for too long after this version. The kind is only quiet, or what the watch should have shown is lost on
    /// its way.
    Quiet(String),
    /// It failed.
    Failed {
        version: Option<String>,
        error: String,
    },
    /// Nobody takes the news any more.
    Closed,
}

impl Watch {
    /// Watches until `end`, or until nobody takes the news any more.
    pub(crate) async fn run(self, end: CancellationToken) {
        tokio::select! {
            () = end.cancelled() => {}
            // It ends only when nobody takes the news any more.
            _ = self.watch() => {}
        }
    }

    async fn watch(&self) -> Result<(), WatchEnd> {
        let resource = ApiResource {
            group: self.kind.group.to_owned(),
            version: self.kind.version.to_owned(),
            api_version: if self.kind.group.is_empty() {
                self.kind.version.to_owned()
            } else {
                format!("{}/{}", self.kind.group, self.kind.version)
            },
            kind: self.kind.kind.to_owned(),
            plural: self.kind.plural.to_owned(),
        };
        let api: Api<WatchedObject> = Api::all_with(self.client.clone(), &resource);
        let mut state = WatchProgress {
            unreadable: BTreeSet::new(),
            broken: false,
            listed: false,
            quiet_since: None,
            hides: false,
        };
        let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(15));
        // What it shows is followed from the first list on.
        self.is(WatchState::Broke).await?;
        let mut relists = Backoff::new(Duration::from_millis(500), Duration::from_secs(30));
        let mut relisted: Option<Instant> = None;
        let mut version = None;
        loop {
            let end = match version.take() {
                None => self.list(&api, &mut state).await,
                Some(version) => self.follow(&api, version, &mut state, &mut backoff).await,
            };
            match end {
                Ok(next) => version = Some(next),
                Err(WatchEnd::Closed) => return Err(WatchEnd::Closed),
                Err(WatchEnd::Resume(next)) => version = Some(next),
                Err(WatchEnd::Relist) => {
                    tracing::info!(kind = self.kind.kind, "watch is too old, relisting");
                    self.shared.metrics.engine.watch_restarted(self.kind.kind);
                    self.is(WatchState::Broke).await?;
                    // Once is what lists are for. A server that says so again and again would be asked for 100,000 pods in a
                    // loop.
                    if relisted
                        .replace(Instant::now())
                        .is_some_and(|at| at.elapsed() < CALM)
                    {
                        self.shows_nothing(&mut state);
                        tokio::time::sleep(relists.next()).await;
                    } else {
                        relists.reset();
                    }
                }
                // A list shows which of the two it is. To a kind that is only quiet it proves as much as a bookmark.
                Err(WatchEnd::Quiet(last)) => {
                    state.quiet_since = last.parse().ok();
                    self.shared.metrics.engine.watch_restarted(self.kind.kind);
                    tracing::debug!(
                        resource = self.kind.resource(),
                        "watch is silent, relisting"
                    );
                }
                Err(WatchEnd::Failed {
                    version: last,
                    error,
                }) => {
                    self.broke(&mut state, &error, backoff.failures());
                    self.is(WatchState::Broke).await?;
                    version = last;
                    tokio::time::sleep(backoff.next()).await;
                }
            }
        }
    }

    fn broke(&self, state: &mut WatchProgress, error: &str, failures: u32) {
        self.shared.metrics.engine.watch_restarted(self.kind.kind);
        self.shows_nothing(state);
        // One refused connection is common (a rolling API server); several in a row are news.
        if failures == 2 {
            tracing::warn!(
                resource = self.kind.resource(),
                error,
                "watch is stalled, cluster state may be stale"
            );
        } else {
            tracing::debug!(
                resource = self.kind.resource(),
                error,
                failures,
                "watch failed"
            );
        }
    }

    /// Until it stands again, the picture proves nothing.
    fn shows_nothing(&self, state: &mut WatchProgress) {
        if !state.broken && self.kind.is_vital() {
            state.broken = true;
            self.liveness.watch_broke(true);
        }
    }

    async fn stands(&self, state: &mut WatchProgress) -> Result<(), WatchEnd> {
        self.liveness.answered();
        if state.broken {
            state.broken = false;
            self.liveness.watch_broke(false);
        }
        self.is(WatchState::Stands).await
    }

    /// Reads the whole list. Objects are handed on as they come; what is gone is found at the end, by key.
    async fn list(
        &self,
        api: &Api<WatchedObject>,
        state: &mut WatchProgress,
    ) -> Result<String, WatchEnd> {
        let mut keys = BTreeSet::new();
        let mut params = ListParams::default().limit(PAGE);
        // Every page shows the cluster at the version of the first one.
        let mut version = None;
        let quiet_since = state.quiet_since.take();
        state.hides = false;
        loop {
            let page = match answered(api.list(&params)).await {
                Ok(page) => page,
                // The list took longer than the server remembers.
                Err(kube::Error::Api(status)) if status.code == 410 => {
                    return Err(WatchEnd::Relist);
                }
                Err(error) => return Err(failed(None, &error)),
            };
            self.liveness.answered();
            version = version.or(page.metadata.resource_version);
            for item in page.items {
                let newer = |since: u64| item.version.parse().is_ok_and(|at: u64| at > since);
                state.hides |= quiet_since.is_some_and(newer);
                let key = self.kind.key(&item.namespace, &item.name);
                self.seen(item, &key, state).await?;
                keys.insert(key);
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => break,
            }
        }
        let version = version.unwrap_or_default();
        state.unreadable.retain(|key| keys.contains(key));
        self.send(DriverMessage::Input(EngineInput::News(
            ObjectEvent::Listed {
                kind: self.kind.index.clone(),
                keys,
                version: version.parse().ok(),
            },
        )))
        .await?;
        if state.hides {
            tracing::warn!(
                resource = self.kind.resource(),
                "watch missed objects of the list, treated as broken until its next event"
            );
            self.shows_nothing(state);
            self.is(WatchState::Broke).await?;
        }
        if !state.listed {
            state.listed = true;
            tracing::debug!(resource = self.kind.resource(), "listed");
            if self.unlisted.fetch_sub(1, Ordering::AcqRel) == 1 {
                self.send(DriverMessage::Input(EngineInput::Synced)).await?;
            }
        }
        Ok(version)
    }

    async fn follow(
        &self,
        api: &Api<WatchedObject>,
        mut version: String,
        state: &mut WatchProgress,
        backoff: &mut Backoff,
    ) -> Result<String, WatchEnd> {
        let spread = u32::try_from(jitter(Duration::from_secs(50)).as_secs()).unwrap_or(0);
        let params = WatchParams::default().timeout(WATCH_SECONDS + spread);
        let stream = match answered(api.watch(&params, &version)).await {
            Ok(stream) => stream.boxed(),
            Err(kube::Error::Api(status)) if status.code == 410 => return Err(WatchEnd::Relist),
            Err(error) => return Err(failed(Some(version), &error)),
        };
        if !state.hides {
            self.stands(state).await?;
        }
        let mut stream = stream;
        let begun = Instant::now();
        loop {
            let event = match tokio::time::timeout(SILENCE, stream.next()).await {
                Ok(Some(Ok(event))) => event,
                // A watch that ends as soon as it began is no end of its time: asking again at once would go on for ever.
                Ok(None) if begun.elapsed() < BRIEF => {
                    let error = "it ended immediately".to_owned();
                    return Err(WatchEnd::Failed {
                        version: Some(version),
                        error,
                    });
                }
                Ok(None) => return Err(WatchEnd::Resume(version)),
                Ok(Some(Err(error))) => return Err(failed(Some(version), &error)),
                Err(_) => return Err(WatchEnd::Quiet(version)),
            };
            if state.hides && !matches!(event, WatchEvent::Error(_)) {
                state.hides = false;
                self.stands(state).await?;
            }
            match event {
                WatchEvent::Added(item) | WatchEvent::Modified(item) => {
                    backoff.reset();
                    item.version.clone_into(&mut version);
                    let key = self.kind.key(&item.namespace, &item.name);
                    self.seen(item, &key, state).await?;
                }
                WatchEvent::Deleted(item) => {
                    backoff.reset();
                    item.version.clone_into(&mut version);
                    let key = self.kind.key(&item.namespace, &item.name);
                    state.unreadable.remove(&key);
                    self.send(DriverMessage::Input(EngineInput::News(
                        ObjectEvent::Deleted(key, item.version.parse().ok()),
                    )))
                    .await?;
                }
                WatchEvent::Bookmark(mark) => {
                    backoff.reset();
                    version = mark.metadata.resource_version;
                    self.is(WatchState::Bookmark(version.parse().ok())).await?;
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

    async fn seen(
        &self,
        item: WatchedObject,
        key: &ObjectKey,
        state: &mut WatchProgress,
    ) -> Result<(), WatchEnd> {
        match item.read(&self.kind) {
            Ok(object) => {
                state.unreadable.remove(key);
                self.send(DriverMessage::Input(EngineInput::News(
                    ObjectEvent::Applied(object, EventSource::Watch),
                )))
                .await
            }
            Err(error) => {
                self.shared.metrics.engine.unparsable(self.kind.kind);
                if state.unreadable.insert(key.clone()) {
                    let news = ObjectEvent::Unreadable(key.clone());
                    self.send(DriverMessage::Input(EngineInput::News(news)))
                        .await?;
                    tracing::warn!(
                        resource = self.kind.resource(),
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

    /// Says how this watch is.
    async fn is(&self, state: WatchState) -> Result<(), WatchEnd> {
        let kind = self.kind.index.clone();
        self.send(DriverMessage::Input(EngineInput::Watch { kind, state }))
            .await
    }

    async fn send(&self, message: DriverMessage) -> Result<(), WatchEnd> {
        self.inputs
            .send(message)
            .await
            .map_err(|_| WatchEnd::Closed)
    }
}

/// Waits for the beginning of an answer, but not for ever: a server that is gone without a word sends no end either.
async fn answered<T>(call: impl Future<Output = Result<T, kube::Error>>) -> Result<T, kube::Error> {
    let answer = tokio::time::timeout(ANSWER, call).await;
    answer.unwrap_or_else(|elapsed| Err(kube::Error::Service(Box::new(elapsed))))
}

fn failed(version: Option<String>, error: &kube::Error) -> WatchEnd {
    WatchEnd::Failed {
        version,
        error: error_class::message(error),
    }
}

struct WatchProgress {
    unreadable: BTreeSet<ObjectKey>,
    broken: bool,
    listed: bool,
    /// Up to this version it had shown everything when nothing came for too long.
    quiet_since: Option<u64>,
    /// It had not shown what the last list showed, and nothing came from it since.
    hides: bool,
}

/// An object as it came, with the little that is read of it in any case.
#[derive(Clone)]
struct WatchedObject {
    name: String,
    namespace: String,
    version: String,
    text: Box<RawValue>,
    meta: ObjectMeta,
}

impl WatchedObject {
    fn read(&self, kind: &ResourceKind) -> Result<Object, serde_json::Error> {
        kind.read(self.text.get())
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
mod tests;
