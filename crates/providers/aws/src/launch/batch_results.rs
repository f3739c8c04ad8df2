//! What the launch of a batch gave each of its claims: the batch is launched by whoever asks for one of them first, the others wait.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mortise_apis::names::ProviderId;
use mortise_cloudprovider::{LaunchError, LaunchedInstance};
use tokio::time::Instant;

/// How long a batch is remembered after it was asked for last.
const REMEMBERED: Duration = Duration::from_secs(15 * 60);

/// How the launch of one claim ended.
pub(crate) type LaunchResult = Result<LaunchedInstance, LaunchError>;

/// What is known of one batch, by claim UID. Whoever holds its lock may launch.
#[derive(Debug, Default)]
pub(crate) struct BatchResults {
    by_uid: BTreeMap<String, LaunchResult>,
}

impl BatchResults {
    /// The result for a claim. An instance stays the claim's, a failure is told once: the next launch may go better.
    pub(crate) fn take(&mut self, uid: &str) -> Option<LaunchResult> {
        match self.by_uid.get(uid)? {
            Ok(launched) => Some(Ok(launched.clone())),
            Err(_) => self.by_uid.remove(uid),
        }
    }

    /// Whether there is a result for a claim.
    pub(crate) fn has(&self, uid: &str) -> bool {
        self.by_uid.contains_key(uid)
    }

    /// Keeps a result until the claim asks for it.
    pub(crate) fn insert(&mut self, uid: &str, result: LaunchResult) {
        self.by_uid.insert(uid.to_owned(), result);
    }

    /// Instances that claims of the batch got.
    pub(crate) fn instances(&self) -> impl Iterator<Item = &ProviderId> {
        let launched = self.by_uid.values().filter_map(|each| each.as_ref().ok());
        launched.map(|each| &each.provider_id)
    }
}

/// A batch: its results behind a lock that is held while it is launched.
pub(crate) type SharedResults = Arc<tokio::sync::Mutex<BatchResults>>;

/// Batches by token.
#[derive(Debug, Default)]
pub(crate) struct LaunchedBatches {
    by_token: Mutex<HashMap<Arc<str>, (Instant, SharedResults)>>,
}

impl LaunchedBatches {
    /// The results of a batch, empty at first. Those that were not asked for in a while are forgotten.
    pub(crate) fn of(&self, token: &Arc<str>) -> SharedResults {
        let mut all = self.by_token.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, (touched, results)| {
            touched.elapsed() < REMEMBERED || Arc::strong_count(results) > 1
        });
        let (touched, results) = all
            .entry(Arc::clone(token))
            .or_insert_with(|| (Instant::now(), SharedResults::default()));
        *touched = Instant::now();
        Arc::clone(results)
    }
}
