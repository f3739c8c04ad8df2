//! Every claim and every instance that ever existed in an integration test: nothing may be created twice, not even briefly.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Result, ensure};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Node;
use kube::api::Api;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Client, ResourceExt as _};
use mortise_apis::NodeClaim;
use tokio::task::JoinHandle;

use crate::scene::{label, provider_id};

#[derive(Debug, Default)]
struct Seen {
    /// UIDs of claims by name.
    claims: BTreeMap<String, BTreeSet<String>>,
    /// UIDs of Nodes by the claim that they were made for.
    launched_nodes: BTreeMap<String, BTreeSet<String>>,
}

/// Two watches that record every event. kwok's instances are their Nodes, so Nodes are counted.
pub(crate) struct Census {
    seen: Arc<Mutex<Seen>>,
    tasks: [JoinHandle<()>; 2],
}

impl Census {
    /// Counts from now on.
    pub(crate) fn begin(client: &Client) -> Self {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let (of_claims, of_nodes) = (Arc::clone(&seen), Arc::clone(&seen));
        let claims = watcher(
            Api::<NodeClaim>::all(client.clone()),
            watcher::Config::default(),
        );
        let nodes = watcher(Api::<Node>::all(client.clone()), watcher::Config::default());
        let count_claims = claims.for_each(move |event| {
            if let Ok(Event::Apply(claim) | Event::InitApply(claim)) = event {
                let mut seen = of_claims.lock().unwrap_or_else(PoisonError::into_inner);
                let uids = seen.claims.entry(claim.name_any()).or_default();
                uids.extend(claim.metadata.uid);
            }
            futures::future::ready(())
        });
        let count_nodes = nodes.for_each(move |event| {
            if let Ok(Event::Apply(node) | Event::InitApply(node)) = event
                && provider_id(&node).is_some()
            {
                let claim = label(&node, "kubernetes.io/hostname").to_owned();
                let mut seen = of_nodes.lock().unwrap_or_else(PoisonError::into_inner);
                seen.launched_nodes
                    .entry(claim)
                    .or_default()
                    .extend(node.uid());
            }
            futures::future::ready(())
        });
        Self {
            seen,
            tasks: [tokio::spawn(count_claims), tokio::spawn(count_nodes)],
        }
    }

    /// Number of claims that ever existed. Fails if a claim or an instance was created twice, or an instance without a claim.
    pub(crate) fn claims(&self) -> Result<usize> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        for (name, uids) in seen.claims.iter().chain(&seen.launched_nodes) {
            ensure!(uids.len() == 1, "{name} was made {} times", uids.len());
        }
        for claim in seen.launched_nodes.keys() {
            ensure!(
                seen.claims.contains_key(claim),
                "a node of {claim:?}, which was never seen as a claim"
            );
        }
        Ok(seen.claims.len())
    }
}

impl Drop for Census {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}
