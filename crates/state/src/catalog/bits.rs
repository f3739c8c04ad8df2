//! A set of small integers, stored as bits.

/// A set of indices below a bound that the owner knows.
///
/// # Shape
/// All sets that are combined have the same number of words.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bits {
    words: Vec<u64>,
}

impl Bits {
    /// The empty set, for indices below `bound`.
    pub fn none(bound: usize) -> Self {
        Self {
            words: vec![0; bound.div_ceil(64)],
        }
    }

    /// All indices below `bound`.
    pub fn all(bound: usize) -> Self {
        let mut all = Self::none(bound);
        (0..bound).for_each(|index| all.insert(index));
        all
    }

    /// Adds an index.
    pub fn insert(&mut self, index: usize) {
        if let Some(word) = self.words.get_mut(index / 64) {
            *word |= 1 << (index % 64);
        }
    }

    /// Removes an index.
    pub fn remove(&mut self, index: usize) {
        if let Some(word) = self.words.get_mut(index / 64) {
            *word &= !(1 << (index % 64));
        }
    }

    /// Adds an index; grows if necessary.
    pub fn insert_growing(&mut self, index: usize) {
        if index / 64 >= self.words.len() {
            self.words.resize(index / 64 + 1, 0);
        }
        self.insert(index);
    }

    /// Whether the set contains the index.
    pub fn has(&self, index: usize) -> bool {
        self.words
            .get(index / 64)
            .is_some_and(|word| word >> (index % 64) & 1 == 1)
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    /// Number of indices.
    pub fn len(&self) -> usize {
        self.words
            .iter()
            .map(|word| usize::try_from(word.count_ones()).unwrap_or(0))
            .sum()
    }

    /// Intersects with another set.
    pub fn and(&mut self, other: &Self) {
        for (at, word) in self.words.iter_mut().enumerate() {
            *word &= other.words.get(at).copied().unwrap_or(0);
        }
    }

    /// Adds the indices of another set.
    pub fn or(&mut self, other: &Self) {
        for (word, more) in self.words.iter_mut().zip(&other.words) {
            *word |= more;
        }
    }

    /// Whether both have an index in common.
    pub fn meets(&self, other: &Self) -> bool {
        self.words.iter().zip(&other.words).any(|(a, b)| a & b != 0)
    }

    /// The indices, ascending.
    pub fn iter(&self) -> impl Iterator<Item = usize> {
        self.words.iter().enumerate().flat_map(|(at, word)| {
            let mut left = *word;
            std::iter::from_fn(move || {
                if left == 0 {
                    return None;
                }
                let bit = usize::try_from(left.trailing_zeros()).unwrap_or(0);
                left &= left - 1;
                Some(at * 64 + bit)
            })
        })
    }
}

impl FromIterator<usize> for Bits {
    fn from_iter<T: IntoIterator<Item = usize>>(iter: T) -> Self {
        let mut set = Self::default();
        iter.into_iter().for_each(|index| set.insert_growing(index));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behaves_as_a_set() {
        let mut a: Bits = [1, 63, 64, 200].into_iter().collect();
        assert_eq!(a.iter().collect::<Vec<_>>(), [1, 63, 64, 200]);
        a.remove(63);
        assert!(!a.has(63) && a.has(64) && !a.has(9999));
        assert_eq!(a.len(), 3);
        let mut b = Bits::all(100);
        assert!(b.meets(&a) && b.len() == 100);
        b.and(&a);
        assert_eq!(b.iter().collect::<Vec<_>>(), [1, 64]);
        b.or(&a);
        assert_eq!(b.len(), 2, "a smaller set keeps its bound");
        b.and(&Bits::none(100));
        assert!(b.is_empty() && !b.meets(&a));
    }
}
