//! How many connections a port has, and which one is evicted for another.
//!
//! A port full of idle connections must still accept the next one, or whoever holds them locks out the API server, the
//! scheduler and the kubelet. Therefore a new connection is accepted and one without a request in progress is evicted: of the
//! same caller if that one is at its limit, else of the caller with the most connections. Among these, connections without any
//! request are evicted first, those of proven callers last, and then the one that was idle for longest.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::activity::Activity;

/// Limits of one port.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Connections.
    pub(super) all: usize,
    /// Connections of one address.
    pub(super) of_peer: usize,
}

/// The connections of one port.
#[derive(Debug)]
pub(super) struct Slots {
    limits: Limits,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    next: u64,
    open: BTreeMap<u64, (IpAddr, Arc<Activity>)>,
    peers: HashMap<IpAddr, usize>,
}

impl Inner {
    fn remove(&mut self, id: u64) {
        let Some((peer, _)) = self.open.remove(&id) else {
            return;
        };
        if let Some(count) = self.peers.get_mut(&peer) {
            *count -= 1;
            if *count == 0 {
                self.peers.remove(&peer);
            }
        }
    }

    /// The connection to evict, of one caller or of all.
    fn victim(&self, of: Option<IpAddr>) -> Option<u64> {
        let candidates = self.open.iter().filter(|(_, (peer, activity))| {
            of.is_none_or(|of| of == *peer) && activity.can_evict()
        });
        candidates
            .min_by_key(|(id, (peer, activity))| {
                let share = self.peers.get(peer).copied().unwrap_or(0);
                (
                    activity.standing(),
                    std::cmp::Reverse(share),
                    activity.last_progress(),
                    **id,
                )
            })
            .map(|(id, _)| *id)
    }
}

/// Result for a new connection.
#[derive(Debug)]
pub(super) enum Admission {
    /// There was free capacity.
    Room(Slot),
    /// Another connection is evicted.
    InPlaceOfAnother(Slot),
    /// Every connection is active.
    Full,
}

impl Slots {
    pub(super) fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self {
            limits,
            inner: Mutex::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Accepts a connection, if needed in place of another. Costs a check of each connection when the port is full.
    pub(super) fn admit(self: &Arc<Self>, peer: IpAddr, activity: &Arc<Activity>) -> Admission {
        // An IPv4 caller at a dual-stack listener is the same caller.
        let peer = peer.to_canonical();
        let mut inner = self.lock();
        let has_share = inner.peers.get(&peer).copied().unwrap_or(0) >= self.limits.of_peer;
        let is_full = inner.open.len() >= self.limits.all;
        if has_share || is_full {
            let Some(id) = inner.victim(has_share.then_some(peer)) else {
                return Admission::Full;
            };
            if let Some((_, victim)) = inner.open.get(&id) {
                victim.evict();
            }
            inner.remove(id);
        }
        let id = inner.next;
        inner.next += 1;
        inner.open.insert(id, (peer, Arc::clone(activity)));
        *inner.peers.entry(peer).or_default() += 1;
        drop(inner);
        let slot = Slot {
            slots: Arc::clone(self),
            id,
        };
        if has_share || is_full {
            Admission::InPlaceOfAnother(slot)
        } else {
            Admission::Room(slot)
        }
    }
}

/// The slot of a connection; freed on drop.
#[derive(Debug)]
pub(super) struct Slot {
    slots: Arc<Slots>,
    id: u64,
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.lock().remove(self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { all: 8, of_peer: 4 };

    fn peer(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    fn open(slots: &Arc<Slots>, from: u8) -> (Admission, Arc<Activity>) {
        let activity = Activity::new();
        (slots.admit(peer(from), &activity), activity)
    }

    fn is_evicted(activity: &Activity) -> bool {
        futures::FutureExt::now_or_never(activity.wait_for_eviction()).is_some()
    }

    #[test]
    fn a_caller_above_its_limit_loses_its_oldest_connection() {
        let slots = Slots::new(LIMITS);
        let other = open(&slots, 2);
        let own: Vec<_> = (0..4).map(|_| open(&slots, 1)).collect();
        let (admitted, _) = open(&slots, 1);
        assert!(matches!(admitted, Admission::InPlaceOfAnother(_)));
        let gone: Vec<bool> = own.iter().map(|(_, each)| is_evicted(each)).collect();
        assert_eq!(gone, [true, false, false, false]);
        assert!(!is_evicted(&other.1));
    }

    #[test]
    fn the_caller_with_most_connections_loses_one_and_proven_ones_are_last() {
        let slots = Slots::new(LIMITS);
        let kept = open(&slots, 9);
        kept.1.mark_proven();
        let asked = open(&slots, 8);
        drop(asked.1.begin_request());
        let few: Vec<_> = (0..2).map(|_| open(&slots, 1)).collect();
        let many: Vec<_> = (0..4).map(|_| open(&slots, 2)).collect();
        let mut later = Vec::new();
        for from in 20..26 {
            let (admitted, activity) = open(&slots, from);
            assert!(matches!(admitted, Admission::InPlaceOfAnother(_)));
            // They are active, so that they are not evicted for later ones.
            later.push((admitted, activity.begin_request()));
        }
        assert!(few.iter().chain(&many).all(|(_, each)| is_evicted(each)));
        assert!(!is_evicted(&kept.1) && !is_evicted(&asked.1));
        assert!(matches!(open(&slots, 40).0, Admission::InPlaceOfAnother(_)));
        assert!(is_evicted(&asked.1), "it asked, and proved nothing");
        assert!(!is_evicted(&kept.1));
    }

    #[test]
    fn a_port_full_of_active_connections_rejects_new_ones() {
        let slots = Slots::new(LIMITS);
        let mut all: Vec<_> = (1..9)
            .map(|from| {
                let (slot, activity) = open(&slots, from);
                (slot, activity.begin_request())
            })
            .collect();
        assert!(matches!(open(&slots, 20).0, Admission::Full));
        all.pop();
        assert!(matches!(open(&slots, 20).0, Admission::Room(_)));
        drop(all);
        let inner = slots.lock();
        assert!(inner.open.is_empty() && inner.peers.is_empty());
    }

    #[tokio::test]
    async fn a_connection_that_is_still_sending_can_be_evicted() {
        let activity = Activity::new();
        let answering = activity.begin_request();
        assert!(!activity.can_evict());
        activity
            .while_reading(async { assert!(activity.can_evict()) })
            .await;
        assert!(!activity.can_evict());
        drop(answering);
        assert!(activity.can_evict());
    }
}
