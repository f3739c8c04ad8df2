//! How much memory nodes of a type really have, learned from nodes: the share that the hypervisor keeps is only estimated, and too
//! high an estimate wastes memory, too low a one makes nodes that their pods do not fit on.
//!
//! Invariant: the smallest amount that any node had counts, by type and image, because images differ in what they keep.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mortise_apis::k8s::Node;
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::labels;
use mortise_apis::resources::Resources;
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
    /// A node of the type has this many bytes. Returns whether that is news.
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

    /// Learns from registered nodes, as far as they still boot the image that their class has for the type: `image` is its id.
    pub(crate) fn learn<'a>(
        &self,
        claims: &[Arc<NodeClaim>],
        nodes: &[Arc<Node>],
        image: impl Fn(&str) -> Option<&'a str>,
    ) {
        let by_instance: BTreeMap<&str, &Arc<NodeClaim>> = claims
            .iter()
            .filter_map(|claim| Some((claim.provider_id()?, claim)))
            .collect();
        for node in nodes {
            let instance = node.spec.provider_id.as_deref().unwrap_or_default();
            let instance_type = node.label(labels::INSTANCE_TYPE);
            let (Some(claim), Some(instance_type)) = (by_instance.get(instance), instance_type)
            else {
                continue;
            };
            let Some(image) = image(instance_type) else {
                continue;
            };
            if claim.status.image_id.as_deref() != Some(image) {
                continue;
            }
            let capacity = Resources::from_api(&node.status.capacity);
            let bytes = capacity.map_or(0, |capacity| capacity.memory);
            if self.observe(instance_type, image, bytes) {
                tracing::debug!(instance_type, image, bytes, "observed memory");
            }
        }
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

    #[tokio::test(start_paused = true)]
    async fn only_nodes_with_the_image_of_now_teach() {
        let parse = |value: serde_json::Value| serde_json::from_value(value);
        let node = |instance: &str, memory: &str| -> Arc<Node> {
            let node = serde_json::json!({
                "metadata": { "labels": { "node.kubernetes.io/instance-type": "m5.large" } },
                "spec": { "providerID": instance },
                "status": { "capacity": { "memory": memory } },
            });
            Arc::new(serde_json::from_value(node).unwrap())
        };
        let claim = |instance: &str, image: &str| -> Arc<NodeClaim> {
            let claim =
                serde_json::json!({ "status": { "providerID": instance, "imageID": image } });
            Arc::new(parse(claim).unwrap())
        };
        let claims = [claim("i-1", "ami-1"), claim("i-2", "ami-old")];
        let nodes = [
            node("i-1", "8Gi"),
            node("i-2", "4Gi"),
            node("i-unknown", "2Gi"),
        ];
        let memory = DiscoveredMemory::default();
        memory.learn(&claims, &nodes, |_| Some("ami-1"));
        memory.learn(&claims, &nodes, |_| Some("ami-1"));
        assert_eq!(memory.of("m5.large", "ami-1"), Some(8 << 30));
        assert_eq!(memory.of("m5.large", "ami-old"), None);
        let nothing = DiscoveredMemory::default();
        nothing.learn(&claims, &nodes, |_| None);
        assert!(nothing.is_empty(), "no image suits the type any more");
    }
}
