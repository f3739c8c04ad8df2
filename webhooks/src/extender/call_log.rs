//! The newest calls of the scheduler, for people who look: which pod, how many nodes, what was denied, how long it took.
//!
//! Bounded, and without anything of the pod but its name.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use serde::Serialize;

/// Calls that are kept.
const MOST: usize = 1_000;

/// One call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ExtenderCall {
    /// When it was answered.
    pub at: Timestamp,
    /// `filter`, `prioritize` or `preempt`.
    pub call: &'static str,
    /// Namespace and name of the pod.
    pub pod: String,
    /// Nodes in the question.
    pub nodes: usize,
    /// Whether the node that the pod is nominated to was among them; `None` without a nomination, or if it is no filter
    /// call.
    pub nominated_node: Option<bool>,
    /// Nodes denied, by message.
    pub denied: BTreeMap<&'static str, usize>,
    /// The best score given; of other calls `None`.
    pub best: Option<i64>,
    /// Time to answer, in microseconds, without reading and writing.
    pub micros: u64,
}

/// The newest calls.
#[derive(Debug, Default)]
pub struct CallLog {
    inner: Mutex<VecDeque<ExtenderCall>>,
}

impl CallLog {
    fn lock(&self) -> MutexGuard<'_, VecDeque<ExtenderCall>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a call; the oldest goes.
    pub fn push(&self, call: ExtenderCall) {
        let mut inner = self.lock();
        if inner.len() >= MOST {
            inner.pop_front();
        }
        inner.push_back(call);
    }

    /// The newest calls, newest first.
    #[must_use]
    pub fn newest(&self, limit: usize) -> Vec<ExtenderCall> {
        self.lock().iter().rev().take(limit).cloned().collect()
    }
}
