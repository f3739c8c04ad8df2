//! How many pods of an application were available, at every moment of a story.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyhow::{Result, ensure};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::Api;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Client, ResourceExt as _};
use mortise_tests::harness::wait_until;
use tokio::task::JoinHandle;

use crate::scene::{SOON, runs};

/// A watch of pods that remembers the least number that ran at once.
pub(crate) struct Availability {
    least: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Availability {
    /// Watches pods with label `app` from now on; returns when the first list is complete.
    pub(crate) async fn watch(client: &Client, app: &str) -> Result<Self> {
        let pods: Api<Pod> = Api::default_namespaced(client.clone());
        let least = Arc::new(AtomicUsize::new(usize::MAX));
        let listed = Arc::new(AtomicBool::new(false));
        let events = watcher(
            pods,
            watcher::Config::default().labels(&format!("app={app}")),
        );
        let (low, complete) = (Arc::clone(&least), Arc::clone(&listed));
        let task = tokio::spawn(async move {
            let mut events = Box::pin(events);
            let mut running = BTreeSet::new();
            while let Some(event) = events.next().await {
                match event {
                    // A restarted list is no event about pods until it is complete.
                    Ok(Event::Init) => {
                        running.clear();
                        complete.store(false, Ordering::Release);
                    }
                    Ok(Event::Apply(pod) | Event::InitApply(pod)) if runs(&pod) => {
                        running.insert(pod.name_any());
                    }
                    Ok(Event::Apply(pod) | Event::InitApply(pod) | Event::Delete(pod)) => {
                        running.remove(&pod.name_any());
                    }
                    Ok(Event::InitDone) => complete.store(true, Ordering::Release),
                    // The watch restarts automatically.
                    Err(_) => {}
                }
                if complete.load(Ordering::Acquire) {
                    low.fetch_min(running.len(), Ordering::AcqRel);
                }
            }
        });
        wait_until("the list of pods", SOON, || async {
            ensure!(listed.load(Ordering::Acquire), "not complete");
            Ok(())
        })
        .await?;
        Ok(Self { least, task })
    }

    /// The least number of pods that were running and ready so far.
    pub(crate) fn least(&self) -> usize {
        self.least.load(Ordering::Acquire)
    }
}

impl Drop for Availability {
    fn drop(&mut self) {
        self.task.abort();
    }
}
