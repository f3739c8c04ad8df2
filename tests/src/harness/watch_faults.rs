//! What can be wrong with the watch of one resource while everything else passes: it is silent, late, or too old again and
//! again.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use http_body_util::BodyExt as _;
use hyper::body::{Bytes, Frame, Incoming};
use tokio::sync::watch;
use tokio::time::Instant;

/// What is wrong with the watch of one resource. Lists of it are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchFault {
    /// It stays open and nothing comes through, neither events nor bookmarks nor its end.
    Silent,
    /// Everything comes through so much later.
    Late(Duration),
    /// It ends, and is too old whenever it begins again (410), which is said in an event and as a status in turn.
    Expired,
}

/// What was asked for of one resource as a whole, by path with query, in order.
#[derive(Clone, Debug, Default)]
pub struct Reads {
    /// Lists, page by page.
    pub lists: Vec<String>,
    /// Beginnings of watches.
    pub watches: Vec<String>,
}

type Faults = BTreeMap<String, WatchFault>;

/// The lists and watches that come by, by resource, and what is wrong with which.
#[derive(Debug, Default)]
pub(super) struct Collections {
    faults: watch::Sender<Faults>,
    reads: Mutex<BTreeMap<String, Reads>>,
}

impl Collections {
    /// From now on this is wrong with the watch of a resource, or nothing is.
    pub(super) fn disturb(&self, resource: &str, fault: Option<WatchFault>) {
        self.faults.send_modify(|faults| {
            match fault {
                Some(fault) => faults.insert(resource.to_owned(), fault),
                None => faults.remove(resource),
            };
        });
    }

    /// What was asked for of a resource so far.
    pub(super) fn reads(&self, resource: &str) -> Reads {
        let reads = self.reads.lock().unwrap_or_else(PoisonError::into_inner);
        reads.get(resource).cloned().unwrap_or_default()
    }

    /// Notes a list, or the beginning of a watch. Returns how many watches of the resource have begun, this one included,
    /// when this one is too old.
    pub(super) fn note(&self, path: &str, is_watch: bool) -> Option<usize> {
        let resource = resource(path)?;
        let mut reads = self.reads.lock().unwrap_or_else(PoisonError::into_inner);
        let reads = reads.entry(resource.to_owned()).or_default();
        if !is_watch {
            reads.lists.push(path.to_owned());
            return None;
        }
        reads.watches.push(path.to_owned());
        let fault = self.faults.borrow().get(resource).copied();
        (fault == Some(WatchFault::Expired)).then_some(reads.watches.len())
    }

    /// A watch that begins, as it comes from the API server.
    pub(super) fn pass(&self, path: &str, body: Incoming) -> Passing {
        Passing {
            body,
            pieces: VecDeque::new(),
            ended: false,
            resource: resource(path).unwrap_or_default().to_owned(),
            faults: self.faults.subscribe(),
        }
    }
}

/// A watch on its way to the client.
pub(super) struct Passing {
    body: Incoming,
    /// What has come and was not handed on, and when it came; `None` is the end.
    pieces: VecDeque<(Instant, Option<Result<Frame<Bytes>>>)>,
    ended: bool,
    resource: String,
    faults: watch::Receiver<Faults>,
}

impl Passing {
    /// The next piece, when it may come through; `None` at the end.
    pub(super) async fn next(&mut self) -> Option<Result<Frame<Bytes>>> {
        loop {
            let fault = self.faults.borrow_and_update().get(&self.resource).copied();
            let wait = match fault {
                None => Some(Duration::ZERO),
                Some(WatchFault::Late(by)) => Some(by),
                Some(WatchFault::Silent) => None,
                Some(WatchFault::Expired) => return None,
            };
            let first = self.pieces.front().map(|(came, _)| *came);
            let due = first.zip(wait).map(|(came, wait)| came + wait);
            if due.is_some_and(|due| due <= Instant::now()) {
                return self.pieces.pop_front().and_then(|(_, piece)| piece);
            }
            tokio::select! {
                changed = self.faults.changed() => {
                    if changed.is_err() {
                        return None; // the proxy is gone
                    }
                }
                frame = self.body.frame(), if !self.ended => {
                    self.ended = !matches!(frame, Some(Ok(_)));
                    let piece = frame.map(|frame| frame.map_err(anyhow::Error::from));
                    self.pieces.push_back((Instant::now(), piece));
                }
                () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
            }
        }
    }
}

/// The resource that a path is about as a whole or in a namespace, and not one object of it.
fn resource(path: &str) -> Option<&str> {
    let path = path.split_once('?').map_or(path, |(path, _)| path);
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    match parts.as_slice() {
        ["api", _, rest @ ..] | ["apis", _, _, rest @ ..] => match rest {
            [resource] | ["namespaces", _, resource] => Some(resource),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_a_resource_or_one_object() {
        for (path, wanted) in [
            ("/api/v1/pods?limit=500&watch=true", Some("pods")),
            ("/api/v1/namespaces/a/pods", Some("pods")),
            ("/api/v1/namespaces?watch=1", Some("namespaces")),
            ("/apis/karpenter.sh/v1/nodeclaims?", Some("nodeclaims")),
            ("/apis/karpenter.sh/v1/nodeclaims/c", None),
            ("/api/v1/nodes/pods", None),
            ("/api/v1/namespaces/a", None),
            ("/api/v1/namespaces/a/pods/p", None),
            ("/apis/karpenter.sh", None),
            ("/readyz", None),
        ] {
            assert_eq!(resource(path), wanted, "{path}");
        }
    }

    #[test]
    fn only_a_watch_of_the_disturbed_resource_is_too_old() {
        let all = Collections::default();
        all.disturb("nodes", Some(WatchFault::Expired));
        assert_eq!(all.note("/api/v1/nodes?watch=true", true), Some(1));
        assert_eq!(all.note("/api/v1/nodes?watch=true", true), Some(2));
        assert_eq!(all.note("/api/v1/nodes?limit=500", false), None);
        assert_eq!(all.note("/api/v1/pods?watch=true", true), None);
        all.disturb("nodes", None);
        assert_eq!(all.note("/api/v1/nodes?watch=true", true), None);
        let reads = all.reads("nodes");
        assert_eq!((reads.lists.len(), reads.watches.len()), (1, 3));
    }
}
