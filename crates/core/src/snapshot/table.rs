//! A copy-on-write table: freezing it shares everything, changing it copies one small shard.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::collections::btree_map;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use foldhash::fast::FixedState;

/// Shards of a table. 512 shards of 100,000 pods hold 200 entries each, so that a change after a freeze copies 200
/// pointers, and a freeze copies 512.
const SHARDS: usize = 512;

type Shard<K, V> = BTreeMap<K, Arc<V>>;

/// Map from key to shared value. Cloning costs one pointer; the first change after a clone copies the list of shards
/// (512 pointers) and then one shard per touched shard.
///
/// Iteration order is fixed by the keys alone (never by insertion or by chance), but it is not sorted: use
/// [`Table::sorted`] where order matters to people.
pub struct Table<K, V> {
    shards: Arc<Vec<Arc<Shard<K, V>>>>,
    len: usize,
}

impl<K: Ord + Hash + Clone, V> Table<K, V> {
    fn slot<Q: Hash + ?Sized>(key: &Q) -> usize {
        usize::try_from(FixedState::with_seed(7).hash_one(key) % SHARDS as u64).unwrap_or(0)
    }

    /// The value of a key.
    #[must_use]
    pub fn get<Q>(&self, key: &Q) -> Option<&Arc<V>>
    where
        K: Borrow<Q>,
        Q: Ord + Hash + ?Sized,
    {
        self.shards.get(Self::slot(key))?.get(key)
    }

    /// Whether the key is there.
    #[must_use]
    pub fn contains<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Ord + Hash + ?Sized,
    {
        self.get(key).is_some()
    }

    /// Puts a value, and returns the one that was there.
    pub fn insert(&mut self, key: K, value: Arc<V>) -> Option<Arc<V>> {
        let slot = Self::slot(&key);
        let shard = Arc::make_mut(&mut self.shards).get_mut(slot)?;
        let old = Arc::make_mut(shard).insert(key, value);
        if old.is_none() {
            self.len += 1;
        }
        old
    }

    /// Takes a value out.
    pub fn remove<Q>(&mut self, key: &Q) -> Option<Arc<V>>
    where
        K: Borrow<Q>,
        Q: Ord + Hash + ?Sized,
    {
        if !self.contains(key) {
            return None;
        }
        let slot = Self::slot(key);
        let old = Arc::make_mut(Arc::make_mut(&mut self.shards).get_mut(slot)?).remove(key);
        if old.is_some() {
            self.len -= 1;
        }
        old
    }

    /// Changes the value of a key where it is, made from nothing when it is not there. It is kept if `change` says so. A value
    /// that a clone of the table shares is copied first.
    pub fn change(&mut self, key: K, change: impl FnOnce(&mut V) -> bool)
    where
        V: Clone + Default,
    {
        let slot = Self::slot(&key);
        let Some(shard) = Arc::make_mut(&mut self.shards).get_mut(slot) else {
            return;
        };
        let shard = Arc::make_mut(shard);
        match shard.entry(key) {
            btree_map::Entry::Occupied(mut known) => {
                if !change(Arc::make_mut(known.get_mut())) {
                    known.remove();
                    self.len -= 1;
                }
            }
            btree_map::Entry::Vacant(free) => {
                let mut value = V::default();
                if change(&mut value) {
                    free.insert(Arc::new(value));
                    self.len += 1;
                }
            }
        }
    }

    /// How many entries.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All entries in a fixed, unsorted order.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &Arc<V>)> {
        self.shards
            .iter()
            .flat_map(|shard| -> btree_map::Iter<'_, K, Arc<V>> { shard.iter() })
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

impl<K: Ord + Hash + Clone, V> Default for Table<K, V> {
    fn default() -> Self {
        let empty = Arc::new(Shard::new());
        Self {
            shards: Arc::new(vec![empty; SHARDS]),
            len: 0,
        }
    }
}

impl<K, V> Clone for Table<K, V> {
    fn clone(&self) -> Self {
        Self {
            shards: Arc::clone(&self.shards),
            len: self.len,
        }
    }
}

impl<K, V> fmt::Debug for Table<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Table({} entries)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clone_keeps_what_it_saw() {
        let mut table = Table::<String, u32>::default();
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
