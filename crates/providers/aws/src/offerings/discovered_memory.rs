//! How much memory nodes of a type really have, learned from nodes: the share that the hypervisor keeps is only estimated, and too
//! high an estimate wastes memory, too low a one makes nodes that their pods do not fit on.
//!
//! Invariant: the smallest amount that any node had counts, by type and image, because images differ in what they keep.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How long an observation counts after it was last made.
/// # Source
/// The reference implementation's number.
const TTL: Duration = Duration::from_secs(60 * 24 * 3600);

/// A type, and the id of the image that it boots.
type TypeAndImage = (Arc<str>, Arc<str>);

#[derive(Clone, Copy, Debug)]
struct Observed {
    bytes: i64,
    expires: Instant,
}

/// Observed memory of nodes, by type and image.
#[derive(Debug, Default)]
pub(crate) struct DiscoveredMemory {
    by_type: Mutex<BTreeMap<TypeAndImage, Observed>>,
}

impl DiscoveredMemory {
    /// A node of the type has so many bytes. Returns whether that is news.
    pub(crate) fn observe(&self, instance_type: &str, image: &str, bytes: i64) -> bool {
        if bytes <= 0 {
            return false;
        }
        let now = Instant::now();
        let mut all = self.lock();
        let key = (Arc::from(instance_type), Arc::from(image));
        let known = all.get(&key).filter(|known| known.expires > now);
        let least = known.map_or(bytes, |known| known.bytes.min(bytes));
        let news = known.is_none_or(|known| known.bytes != least);
        let observed = Observed {
            bytes: least,
            expires: now + TTL,
        };
        all.insert(key, observed);
        news
    }

    /// Memory of nodes of the type with the image in bytes; `None` if no node was seen.
    pub(crate) fn of(&self, instance_type: &str, image: &str) -> Option<i64> {
        let key = (Arc::from(instance_type), Arc::from(image));
        let now = Instant::now();
        let all = self.lock();
        let known = all.get(&key).filter(|known| known.expires > now);
        known.map(|known| known.bytes)
    }

    /// Whether nothing was ever seen, so that nothing needs to be asked.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<TypeAndImage, Observed>> {
        self.by_type.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_smallest_node_counts() {
        let memory = DiscoveredMemory::default();
        assert_eq!(memory.of("m5.large", "ami-1"), None);
        assert!(!memory.observe("m5.large", "ami-1", 0), "not reported yet");
        assert!(memory.is_empty());
        assert!(memory.observe("m5.large", "ami-1", 8_000));
        assert!(!memory.observe("m5.large", "ami-1", 9_000));
        assert!(memory.observe("m5.large", "ami-1", 7_000));
        assert_eq!(memory.of("m5.large", "ami-1"), Some(7_000));
        assert_eq!(memory.of("m5.large", "ami-2"), None, "images differ");
        tokio::time::advance(TTL).await;
        assert_eq!(memory.of("m5.large", "ami-1"), None);
        assert!(memory.observe("m5.large", "ami-1", 9_000));
        assert_eq!(memory.of("m5.large", "ami-1"), Some(9_000));
    }
}
