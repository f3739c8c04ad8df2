//! Live changes for the page, as server-sent events.
//!
//! | Event | Data |
//! |---|---|
//! | `state` | the full state, at the beginning, and again when this client fell behind |
//! | `nodes` | `{ "changed": [node...], "gone": [key...] }` |
//! | `totals` | the numbers of `state.totals`, with every change and at least every five seconds |
//! | `decision` | one decision |

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures::stream;
use http::StatusCode;
use serde_json::{Value, json};
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::Instant;

use super::{node, views};
use crate::service_state::ServiceState;
use crate::service_state::decision_log::NumberedRecord;

/// Time between two reads of a snapshot that changes continuously.
const PACE: Duration = Duration::from_millis(250);
/// Time between totals without changes.
const IDLE: Duration = Duration::from_secs(5);

pub(super) async fn stream(shared: Arc<ServiceState>) -> Response {
    let Ok(slot) = Arc::clone(&shared.streams).try_acquire_owned() else {
        return (StatusCode::SERVICE_UNAVAILABLE, "too many open streams\n").into_response();
    };
    let listener = Listener {
        decisions: shared.records.subscribe(),
        generations: shared.generations(),
        shown: BTreeMap::new(),
        begun: false,
        not_before: Instant::now(),
        queue: Vec::new(),
        shared,
        _slot: slot,
    };
    let events = stream::unfold(listener, |mut listener| async move {
        let event = listener.next().await?;
        Some((Ok::<_, Infallible>(event), listener))
    });
    Sse::new(events)
        .keep_alive(KeepAlive::default())
        .into_response()
}

struct Listener {
    shared: Arc<ServiceState>,
    decisions: broadcast::Receiver<Arc<NumberedRecord>>,
    generations: watch::Receiver<u64>,
    /// The last state of each node that this client received.
    shown: BTreeMap<String, String>,
    begun: bool,
    not_before: Instant,
    queue: Vec<Event>,
    _slot: OwnedSemaphorePermit,
}

impl Listener {
    /// The next event; `None` when the process shuts down.
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.queue.pop() {
                return Some(event);
            }
            if !self.begun {
                self.begun = true;
                return Some(self.full_state_event());
            }
            let not_before = self.not_before;
            let changed = async {
                tokio::time::sleep_until(not_before).await;
                self.generations.changed().await
            };
            tokio::select! {
                () = self.shared.health.stopping() => return None,
                decision = self.decisions.recv() => match decision {
                    Ok(numbered) => return Some(event("decision", &views::decision(&numbered))),
                    // Too slow: send the full state again.
                    Err(RecvError::Lagged(_)) => self.begun = false,
                    Err(RecvError::Closed) => return None,
                },
                changed = changed => match changed {
                    Ok(()) => self.queue_changes(),
                    Err(_) => return None,
                },
                () = tokio::time::sleep(IDLE) => self.queue_changes(),
            }
        }
    }

    fn full_state_event(&mut self) -> Event {
        let state = views::state(&self.shared);
        self.shown = state["nodes"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|node| (key(node), node.to_string()))
            .collect();
        self.generations.mark_unchanged();
        event("state", &state)
    }

    /// Queues the changes since the last event of this client.
    fn queue_changes(&mut self) {
        self.not_before = Instant::now() + PACE;
        let snapshot = self.shared.snapshot();
        let mut changed = Vec::new();
        let mut now = BTreeMap::new();
        for (_, node) in snapshot.nodes.sorted() {
            let node = node::json(&snapshot, node);
            let (key, text) = (key(&node), node.to_string());
            if self.shown.get(&key) != Some(&text) {
                changed.push(node);
            }
            now.insert(key, text);
        }
        let gone: Vec<&String> = self
            .shown
            .keys()
            .filter(|key| !now.contains_key(*key))
            .collect();
        // The queue is consumed from its end.
        self.queue
            .push(event("totals", &views::totals(&self.shared, &snapshot)));
        if !changed.is_empty() || !gone.is_empty() {
            self.queue
                .push(event("nodes", &json!({ "changed": changed, "gone": gone })));
        }
        self.shown = now;
    }
}

fn key(node: &Value) -> String {
    node["key"].as_str().unwrap_or_default().to_owned()
}

fn event(name: &str, data: &Value) -> Event {
    Event::default().event(name).data(data.to_string())
}
