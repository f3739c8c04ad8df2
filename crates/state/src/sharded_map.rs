//! A copy-on-write map: freezing it shares everything, changing it copies one small shard.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use foldhash::fast::FixedState;

/// Number of shards. 100,000 pods are about 200 entries per shard, so that a change after a freeze copies 200 pointers, and a
/// freeze copies 512.
const SHARDS: usize = 512;

/// Entries sorted by the hash of their key, and those of one hash by key. The hashes are a list of their own: searching a few
/// adjacent numbers is faster than comparing keys, each of which is stored elsewhere.
struct Shard<K, V> {
    hashes: Vec<u32>,
    entries: Vec<(K, Arc<V>)>,
}

impl<K: Clone, V> Clone for Shard<K, V> {
    fn clone(&self) -> Self {
        Self {
            hashes: self.hashes.clone(),
            entries: self.entries.clone(),
        }
    }
}

impl<K, V> Default for Shard<K, V> {
    fn default() -> Self {
        Self {
            hashes: Vec::new(),
            entries: Vec::new(),
        }
    }
}

impl<K: Ord, V> Shard<K, V> {
    /// Positions of the keys of this hash, mostly none or one.
    fn positions(&self, hash: u32) -> impl Iterator<Item = usize> {
        let from = self.hashes.partition_point(|known| *known < hash);
        let rest = self.hashes.iter().enumerate().skip(from);
        rest.take_while(move |(_, known)| **known == hash)
            .map(|(at, _)| at)
    }

    /// Position of a key.
    fn find<Q>(&self, hash: u32, key: &Q) -> Option<usize>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        self.positions(hash).find(|at| {
            let entry = self.entries.get(*at);
            entry.is_some_and(|(known, _)| known.borrow() == key)
        })
    }

    fn value(&mut self, at: usize) -> Option<&mut Arc<V>> {
        self.entries.get_mut(at).map(|(_, value)| value)
    }

    /// Inserts an entry whose key is absent.
    fn insert(&mut self, hash: u32, key: K, value: Arc<V>) {
        let at = self.hashes.partition_point(|known| *known < hash);
        let is_less = |at: &usize| self.entries.get(*at).is_some_and(|(known, _)| *known < key);
        let at = at + self.positions(hash).take_while(is_less).count();
        self.hashes.insert(at, hash);
        self.entries.insert(at, (key, value));
    }

    /// Removes the entry at a position.
    fn remove_at(&mut self, at: usize) -> Arc<V> {
        self.hashes.remove(at);
        self.entries.remove(at).1
    }
}

/// Map from key to shared value. Cloning costs one pointer; the first change after a clone copies the list of shards (512
/// pointers) and then one shard per changed shard.
///
/// Iteration order is fixed by the keys alone (never by insertion or at random), but it is not sorted: use
/// [`ShardedMap::sorted`] where the order is shown.
pub struct ShardedMap<K, V> {
    shards: Arc<Vec<Arc<Shard<K, V>>>>,
    len: usize,
}

impl<K: Ord + Hash + Clone, V> ShardedMap<K, V> {
    /// Shard of a key, and the hash of the key in its shard.
    fn slot<Q: Hash + ?Sized>(key: &Q) -> (usize, u32) {
        let hash = FixedState::with_seed(7).hash_one(key);
        let slot = usize::try_from(hash % SHARDS as u64).unwrap_or(0);
        (slot, u32::try_from(hash >> 32).unwrap_or(0))
    }

    /// The shard, for a change.
    fn shard(&mut self, slot: usize) -> Option<&mut Shard<K, V>> {
        let shard = Arc::make_mut(&mut self.shards).get_mut(slot)?;
        Some(Arc::make_mut(shard))
    }

    /// The value of a key.
    #[must_use]
    pub fn get<Q>(&self, key: &Q) -> Option<&Arc<V>>
    where
        K: Borrow<Q>,
        Q: Ord + Hash + ?Sized,
    {
        if self.len == 0 {
            return None;
        }
        let (slot, hash) = Self::slot(key);
        let shard = self.shards.get(slot)?;
        let at = shard.find(hash, key)?;
        shard.entries.get(at).map(|(_, value)| value)
    }

    /// Whether the key is present.
    #[must_use]
    pub fn contains<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Ord + Hash + ?Sized,
    {
        self.get(key).is_some()
    }

    /// Inserts a value, and returns the previous one.
    pub fn insert(&mut self, key: K, value: Arc<V>) -> Option<Arc<V>> {
        let (slot, hash) = Self::slot(&key);
        let shard = self.shard(slot)?;
        if let Some(at) = shard.find(hash, &key) {
            return shard.value(at).map(|known| std::mem::replace(known, value));
        }
        shard.insert(hash, key, value);
        self.len += 1;
        None
    }

    /// Removes a value.
    pub fn remove<Q>(&mut self, key: &Q) -> Option<Arc<V>>
    where
        K: Borrow<Q>,
        Q: Ord + Hash + ?Sized,
    {
        if !self.contains(key) {
            return None;
        }
        let (slot, hash) = Self::slot(key);
        let shard = self.shard(slot)?;
        let at = shard.find(hash, key)?;
        let old = shard.remove_at(at);
        self.len -= 1;
        Some(old)
    }

    /// Changes the value of a key in place; a missing value is created first. It is kept if `change` returns true. A value that
    /// is shared with a clone of the map is copied first.
    pub fn change(&mut self, key: K, change: impl FnOnce(&mut V) -> bool)
    where
        V: Clone + Default,
    {
        let (slot, hash) = Self::slot(&key);
        let Some(shard) = self.shard(slot) else {
            return;
        };
        if let Some(at) = shard.find(hash, &key) {
            let is_kept = shard
                .value(at)
                .is_some_and(|value| change(Arc::make_mut(value)));
            if !is_kept {
                shard.remove_at(at);
                self.len -= 1;
            }
            return;
        }
        let mut value = V::default();
        if change(&mut value) {
            shard.insert(hash, key, Arc::new(value));
            self.len += 1;
        }
    }

    /// Number of entries.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether the map is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All entries in a fixed, unsorted order.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &Arc<V>)> {
        let entries = self.shards.iter().flat_map(|shard| shard.entries.iter());
        entries.map(|(key, value)| (key, value))
    }

    /// All values in a fixed, unsorted order.
    pub fn values(&self) -> impl Iterator<Item = &Arc<V>> {
        self.iter().map(|(_, value)| value)
    }

    /// All entries by key. Cost: a sort of pointers.
    #[must_use]
    pub fn sorted(&self) -> Vec<(&K, &Arc<V>)> {
        let mut all: Vec<_> = self.iter().collect();
        all.sort_unstable_by(|a, b| a.0.cmp(b.0));
        all
    }
}

impl<K: Ord + Hash + Clone, V> Default for ShardedMap<K, V> {
    fn default() -> Self {
        let empty = Arc::new(Shard::default());
        Self {
            shards: Arc::new(vec![empty; SHARDS]),
            len: 0,
        }
    }
}

impl<K, V> Clone for ShardedMap<K, V> {
    fn clone(&self) -> Self {
        Self {
            shards: Arc::clone(&self.shards),
            len: self.len,
        }
    }
}

impl<K, V> fmt::Debug for ShardedMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Table({} entries)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_map() {
        use std::collections::BTreeMap;

        use mortise_apis::values::SplitMix64;

        let mut random = SplitMix64::new(1);
        let mut roll = |below: u64| random.below(below);
        let mut table = ShardedMap::<String, u64>::default();
        let mut map = BTreeMap::new();
        for turn in 0..20_000 {
            let key = format!("k{}", roll(3_000));
            match roll(3) {
                0 => {
                    let old = table.insert(key.clone(), Arc::new(turn));
                    assert_eq!(old.map(|old| *old), map.insert(key, turn));
                }
                1 => {
                    let old = table.remove(&key);
                    assert_eq!(old.map(|old| *old), map.remove(&key));
                }
                _ => {
                    let grown = map.get(&key).copied().unwrap_or_default() + 1;
                    table.change(key.clone(), |value| {
                        *value += 1;
                        *value % 5 != 0
                    });
                    if grown % 5 == 0 {
                        map.remove(&key);
                    } else {
                        map.insert(key, grown);
                    }
                }
            }
            assert_eq!(table.len(), map.len());
        }
        let all = table.sorted().into_iter();
        let all: Vec<(String, u64)> = all.map(|(key, value)| (key.clone(), **value)).collect();
        assert_eq!(all, map.into_iter().collect::<Vec<_>>());
    }

    #[test]
    fn a_clone_keeps_what_it_saw() {
        let mut table = ShardedMap::<String, u32>::default();
        for n in 0..1000 {
            table.insert(format!("k{n}"), Arc::new(n));
        }
        let frozen = table.clone();
        table.remove("k7");
        table.insert("k8".to_owned(), Arc::new(0));
        assert_eq!(frozen.get("k7").map(|v| **v), Some(7));
        assert_eq!(frozen.get("k8").map(|v| **v), Some(8));
        assert_eq!((frozen.len(), table.len()), (1000, 999));
        assert_eq!(table.get("k8").map(|v| **v), Some(0));
        assert_eq!(table.remove("absent"), None);
        let order: Vec<_> = frozen
            .sorted()
            .into_iter()
            .map(|(k, _)| k.clone())
            .collect();
        assert!(order.is_sorted());
    }
}
