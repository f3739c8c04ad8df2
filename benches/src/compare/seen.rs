//! What an independent client sees of pods.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::Api;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::report::progress;

/// One pod, as long as it was there and after.
#[derive(Clone, Debug)]
pub(crate) struct SeenPod {
    pub(crate) name: String,
    /// Kind of its controlling owner; empty for a bare pod.
    pub(crate) owner: String,
    pub(crate) since: Instant,
    pub(crate) node: Option<String>,
    pub(crate) bound: Option<Instant>,
    /// Version of the pod that its bind made; `None` when a list showed it first.
    pub(crate) bound_version: Option<u64>,
    /// The Eviction API has marked it.
    pub(crate) evicted: bool,
    pub(crate) gone: Option<Instant>,
}

impl SeenPod {
    pub(crate) fn is_daemon(&self) -> bool {
        self.owner == "DaemonSet"
    }

    /// From its creation, as seen, until it was bound.
    pub(crate) fn waited(&self) -> Option<Duration> {
        Some(self.bound?.saturating_duration_since(self.since))
    }
}

/// Everything seen, by UID.
#[derive(Clone, Debug, Default)]
pub(crate) struct SeenPods {
    pods: Arc<Mutex<BTreeMap<String, SeenPod>>>,
}

/// How many pods there are: all, and those that are bound. Pods that are gone are in neither.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) there: usize,
    pub(crate) bound: usize,
}

/// A running watch of pods.
pub(crate) struct Watching {
    pub(crate) pods: SeenPods,
    pub(crate) counts: watch::Receiver<Counts>,
    task: JoinHandle<()>,
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl SeenPods {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, SeenPod>> {
        self.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everything seen so far.
    pub(crate) fn all(&self) -> BTreeMap<String, SeenPod> {
        self.lock().clone()
    }

    /// Forgets everything that is gone.
    pub(crate) fn forget_gone(&self) {
        self.lock().retain(|_, pod| pod.gone.is_none());
    }

    fn apply(&self, pod: &Pod, at: Instant, listed: bool) -> Change {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        let conditions = pod
            .status
            .as_ref()
            .and_then(|status| status.conditions.as_deref());
        let evicted = conditions.is_some_and(|all| {
            all.iter()
                .any(|each| each.type_ == "DisruptionTarget" && each.status == "True")
        });
        let mut all = self.lock();
        let is_new = !all.contains_key(&uid);
        let seen = all.entry(uid).or_insert_with(|| SeenPod {
            name: pod.metadata.name.clone().unwrap_or_default(),
            owner: owner(pod),
            since: at,
            node: None,
            bound: None,
            bound_version: None,
            evicted: false,
            gone: None,
        });
        seen.evicted |= evicted;
        let newly_bound = seen.node.is_none() && node.is_some();
        if newly_bound {
            seen.bound = Some(at);
            seen.bound_version = version(pod.metadata.resource_version.as_ref(), listed);
            seen.node = node;
        }
        Change {
            there: i64::from(is_new),
            bound: i64::from(newly_bound),
        }
    }

    fn remove(&self, uid: &str, at: Instant) -> Change {
        let mut all = self.lock();
        match all.get_mut(uid) {
            Some(seen) if seen.gone.is_none() => {
                seen.gone = Some(at);
                Change {
                    there: -1,
                    bound: -i64::from(seen.bound.is_some()),
                }
            }
            _ => Change { there: 0, bound: 0 },
        }
    }

    /// Pods that a fresh list does not have are gone.
    fn retain(&self, listed: &[String], at: Instant) -> Change {
        let gone: Vec<String> = {
            let all = self.lock();
            let there = all.iter().filter(|(_, pod)| pod.gone.is_none());
            there
                .filter(|(uid, _)| !listed.contains(uid))
                .map(|(uid, _)| uid.clone())
                .collect()
        };
        let changes = gone.iter().map(|uid| self.remove(uid, at));
        changes.fold(Change { there: 0, bound: 0 }, |sum, each| Change {
            there: sum.there + each.there,
            bound: sum.bound + each.bound,
        })
    }
}

/// The version that an event made. Versions of one API server tell what was first, whatever the kind. What a list shows was
/// made some time before.
pub(crate) fn version(text: Option<&String>, listed: bool) -> Option<u64> {
    text.filter(|_| !listed)?.parse().ok()
}

struct Change {
    there: i64,
    bound: i64,
}

fn owner(pod: &Pod) -> String {
    let owners = pod.metadata.owner_references.as_deref().unwrap_or_default();
    let controller = owners.iter().find(|owner| owner.controller == Some(true));
    controller
        .map(|owner| owner.kind.clone())
        .unwrap_or_default()
}

/// Follows all pods. A watch that breaks (kube-apiserver ends slow ones) goes on where it was.
pub(crate) fn follow(client: Client) -> Watching {
    let pods = SeenPods::default();
    let (told, counts) = watch::channel(Counts::default());
    let seen = pods.clone();
    let task = tokio::spawn(async move {
        let events = watcher(Api::<Pod>::all(client), watcher::Config::default()).default_backoff();
        let mut events = std::pin::pin!(events);
        let mut listed: Vec<String> = Vec::new();
        while let Some(event) = events.next().await {
            let at = Instant::now();
            let change = match event {
                Ok(Event::Apply(pod)) => seen.apply(&pod, at, false),
                Ok(Event::InitApply(pod)) => {
                    listed.push(pod.metadata.uid.clone().unwrap_or_default());
                    seen.apply(&pod, at, true)
                }
                Ok(Event::Delete(pod)) => {
                    seen.remove(pod.metadata.uid.as_deref().unwrap_or_default(), at)
                }
                Ok(Event::Init) => {
                    listed.clear();
                    continue;
                }
                Ok(Event::InitDone) => seen.retain(&listed, at),
                Err(error) => {
                    progress(&format!("a watch was interrupted: {error}"));
                    continue;
                }
            };
            told.send_modify(|counts| {
                counts.there = counts.there.saturating_add_signed(as_isize(change.there));
                counts.bound = counts.bound.saturating_add_signed(as_isize(change.bound));
            });
        }
    });
    Watching { pods, counts, task }
}

fn as_isize(number: i64) -> isize {
    isize::try_from(number).unwrap_or_default()
}
