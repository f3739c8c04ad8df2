//! One requirement: what values the label of one key may have.

use std::borrow::Borrow as _;
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;

use super::Operator;
use crate::{RequirementSpec, labels};

/// Sorted, unique values; one fits without an allocation.
type Values = SmallVec<[Arc<str>; 1]>;

/// The integers that a complement is narrowed to, both inclusive. The order of the fields is part of the order of requirements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct IntegerRange {
    at_least: Option<i64>,
    at_most: Option<i64>,
}

impl IntegerRange {
    /// What both allow; may be no integer at all.
    fn tighter(self, other: Self) -> Self {
        Self {
            at_least: tighter(self.at_least, other.at_least, i64::max),
            at_most: tighter(self.at_most, other.at_most, i64::min),
        }
    }

    fn is_unbounded(self) -> bool {
        self == Self::default()
    }

    fn is_empty(self) -> bool {
        matches!((self.at_least, self.at_most), (Some(min), Some(max)) if min > max)
    }

    fn contain(self, value: &str) -> bool {
        self.is_unbounded()
            || integer(value).is_some_and(|n| {
                self.at_least.is_none_or(|min| n >= min) && self.at_most.is_none_or(|max| n <= max)
            })
    }
}

/// The set of values that the label of one key may have.
///
/// # Shape
/// Either the values themselves, or (complement) everything but the values; the latter may be narrowed to the integers between
/// two inclusive bounds. Values are sorted and unique. Values of a complement with bounds lie inside the bounds.
///
/// # Source
/// Karpenter core 1.14 (`Gt n` is kept as `>= n+1`, `Lt n` as `<= n-1`); checked against recorded answers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Requirement {
    key: Arc<str>,
    complement: bool,
    values: Values,
    /// Absent when unbounded. Boxed, since few have bounds and catalogs hold tens of thousands of requirements.
    bounds: Option<Box<IntegerRange>>,
    min_values: Option<u32>,
    /// The label must be there, although operator and values alone would be met by its absence: what is left of `Exists` or
    /// `In` after an intersection. Without values nothing meets it.
    must_exist: bool,
}

// The catalog of a large cloud holds some fifty thousand of them.
const _: () = assert!(size_of::<Requirement>() <= 64);

/// The integer in a label or bound; `None` when the text is no decimal integer of 64 bits (`+3` and `05` are).
fn integer(text: &str) -> Option<i64> {
    text.parse().ok()
}

/// The integer of a bound's text: out of range saturates, any other text that is no integer counts as 0.
///
/// # Source
/// Karpenter ignores the parse error; admission rejects such texts, but stored objects may contain them.
fn bound(text: &str) -> i64 {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return 0;
    }
    let saturated = if text.starts_with('-') {
        i64::MIN
    } else {
        i64::MAX
    };
    integer(text).unwrap_or(saturated)
}

/// The stricter of two bounds, where absent means unbounded.
fn tighter(a: Option<i64>, b: Option<i64>, pick: fn(i64, i64) -> i64) -> Option<i64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(pick(a, b)),
        (one, None) | (None, one) => one,
    }
}

impl Requirement {
    /// Builds a requirement; former names of the key are replaced by the current one.
    ///
    /// `Gt`, `Lt`, `Gte`, `Lte` use the first value; `Exists` and `DoesNotExist` ignore values. The validation of NodePools
    /// rejects such input.
    #[must_use]
    pub fn new<V: Into<Arc<str>>>(
        key: impl Into<Arc<str>>,
        operator: Operator,
        values: impl IntoIterator<Item = V>,
    ) -> Self {
        let key = key.into();
        let normal = labels::normalize(&key);
        let key = if *normal == *key {
            key
        } else {
            Arc::from(normal)
        };
        let mut requirement = Self {
            key,
            complement: true,
            values: Values::new(),
            bounds: None,
            min_values: None,
            must_exist: false,
        };
        let mut values = values.into_iter().map(Into::into);
        let mut limit = || values.next().map_or(0, |text| bound(&text));
        match operator {
            Operator::In | Operator::NotIn => {
                requirement.complement = operator == Operator::NotIn;
                requirement.values.extend(values);
                requirement.values.sort_unstable();
                requirement.values.dedup();
            }
            Operator::Exists => {}
            Operator::DoesNotExist => requirement.complement = false,
            Operator::Gt => match limit().checked_add(1) {
                Some(min) => requirement.set_bounds(Some(min), None),
                None => requirement.complement = false, // nothing is greater than the greatest integer
            },
            // Wraps at the smallest integer, as in Karpenter: a bound that excludes nothing instead of everything.
            Operator::Lt => requirement.set_bounds(None, Some(limit().wrapping_sub(1))),
            Operator::Gte => requirement.set_bounds(Some(limit()), None),
            Operator::Lte => requirement.set_bounds(None, Some(limit())),
        }
        requirement
    }

    /// A requirement that the label has exactly this value.
    #[must_use]
    pub fn is(key: impl Into<Arc<str>>, value: impl Into<Arc<str>>) -> Self {
        Self::new(key, Operator::In, [value.into()])
    }

    /// A requirement that the label has any value.
    #[must_use]
    pub fn exists(key: impl Into<Arc<str>>) -> Self {
        Self::new(key, Operator::Exists, std::iter::empty::<Arc<str>>())
    }

    /// A requirement that the label is absent.
    #[must_use]
    pub fn does_not_exist(key: impl Into<Arc<str>>) -> Self {
        Self::new(key, Operator::DoesNotExist, std::iter::empty::<Arc<str>>())
    }

    /// Sets how many different values must stay possible until launch.
    #[must_use]
    pub const fn with_min_values(mut self, min_values: Option<u32>) -> Self {
        self.min_values = min_values;
        self
    }

    /// The label's key, normalised.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The label's key as a shared text.
    #[must_use]
    pub const fn shared_key(&self) -> &Arc<str> {
        &self.key
    }

    /// The listed values, sorted: the allowed ones, or the excluded ones of a complement.
    #[must_use]
    pub fn values(&self) -> &[Arc<str>] {
        &self.values
    }

    /// Whether [`Self::values`] are the excluded ones.
    #[must_use]
    pub const fn is_complement(&self) -> bool {
        self.complement
    }

    /// The smallest integer allowed, if bounded.
    #[must_use]
    pub fn at_least(&self) -> Option<i64> {
        self.bounds().at_least
    }

    /// The largest integer allowed, if bounded.
    #[must_use]
    pub fn at_most(&self) -> Option<i64> {
        self.bounds().at_most
    }

    /// How many different values must stay possible until launch.
    #[must_use]
    pub const fn min_values(&self) -> Option<u32> {
        self.min_values
    }

    fn bounds(&self) -> IntegerRange {
        self.bounds.as_deref().copied().unwrap_or_default()
    }

    fn set_bounds(&mut self, at_least: Option<i64>, at_most: Option<i64>) {
        let bounds = IntegerRange { at_least, at_most };
        self.bounds = (!bounds.is_unbounded()).then(|| Box::new(bounds));
    }

    fn lists(&self, value: &str) -> bool {
        self.values
            .binary_search_by(|v| Ord::cmp(v.as_ref(), value))
            .is_ok()
    }

    /// Whether the label may have this value.
    #[must_use]
    pub fn has(&self, value: &str) -> bool {
        self.lists(value) != self.complement && self.bounds().contain(value)
    }

    /// Number of allowed values; complements count as `i64::MAX` less the excluded values.
    #[must_use]
    pub fn len(&self) -> i64 {
        let listed = i64::try_from(self.values.len()).unwrap_or(i64::MAX);
        if self.complement {
            i64::MAX - listed
        } else {
            listed
        }
    }

    /// Whether no value is allowed, so that the label must be absent.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.complement && self.values.is_empty()
    }

    /// The class of the set: `In`, `NotIn`, `Exists` (also with bounds) or `DoesNotExist`.
    #[must_use]
    pub fn operator(&self) -> Operator {
        match (self.complement, self.values.is_empty()) {
            (true, true) => Operator::Exists,
            (true, false) => Operator::NotIn,
            (false, false) => Operator::In,
            (false, true) => Operator::DoesNotExist,
        }
    }

    /// Whether the set is met by a label that is absent.
    #[must_use]
    pub fn allows_absence(&self) -> bool {
        self.form_allows_absence() && !self.must_exist
    }

    fn form_allows_absence(&self) -> bool {
        self.complement != self.values.is_empty()
    }

    /// Whether nothing meets it, neither a value nor the label's absence.
    #[must_use]
    pub fn is_impossible(&self) -> bool {
        self.is_empty() && self.must_exist
    }

    /// The values that both allow; the key is this one's, minValues the larger of the two.
    ///
    /// Karpenter's algebra, which forgets that a label must be there: `Exists` and `NotIn` give `NotIn`, and two lists
    /// without a common value give `DoesNotExist`, both of which an absent label meets. [`Self::both`] remembers.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        self.merged(other, self.must_exist || other.must_exist)
    }

    /// The intersection. Empty if one requires the label and the other allows no value.
    #[must_use]
    pub fn both(&self, other: &Self) -> Self {
        self.merged(other, !(self.allows_absence() && other.allows_absence()))
    }

    fn merged(&self, other: &Self, must_exist: bool) -> Self {
        let bounds = self.bounds().tighter(other.bounds());
        let min_values = self.min_values.max(other.min_values);
        let mut result = Self {
            key: Arc::clone(&self.key),
            complement: self.complement && other.complement,
            values: Values::new(),
            bounds: None,
            min_values,
            must_exist: false,
        };
        if bounds.is_empty() {
            result.complement = false;
            result.must_exist = must_exist;
            return result;
        }
        let inside = |value: &&Arc<str>| bounds.contain(value);
        if result.complement {
            result.values = union(&self.values, &other.values);
            result.values.retain(|value| bounds.contain(value));
            result.set_bounds(bounds.at_least, bounds.at_most);
        } else {
            // The values of a concrete side are tested against the other side.
            let (list, filter) = if self.complement {
                (other, self)
            } else {
                (self, other)
            };
            result.values = list
                .values
                .iter()
                .filter(|v| filter.lists(v) != filter.complement)
                .filter(inside)
                .cloned()
                .collect();
        }
        result.must_exist = must_exist && result.form_allows_absence();
        result
    }

    /// Whether some value is allowed by both.
    ///
    /// # Cost
    /// No allocation; linear in the shorter list.
    #[must_use]
    pub fn has_intersection(&self, other: &Self) -> bool {
        let bounds = self.bounds().tighter(other.bounds());
        if bounds.is_empty() {
            return false;
        }
        let (list, filter) = match (self.complement, other.complement) {
            (true, true) => return true,
            (true, false) => (other, self),
            (false, true) => (self, other),
            (false, false) if self.values.len() <= other.values.len() => (self, other),
            (false, false) => (other, self),
        };
        list.values
            .iter()
            .any(|v| filter.lists(v) != filter.complement && bounds.contain(v))
    }

    /// One allowed value: the first of a list, or an integer of the range picked by the seed. `None` when nothing is allowed
    /// or no integer is left in the range.
    #[must_use]
    pub fn any(&self, seed: u64) -> Option<String> {
        if !self.complement {
            return self.values.first().map(|value| value.to_string());
        }
        let IntegerRange { at_least, at_most } = self.bounds();
        let max = at_most.unwrap_or(i64::MAX);
        // Positive values are preferred; negative ones only if the bound allows no other.
        let min = at_least.unwrap_or(if max < 0 { i64::MIN } else { 0 });
        if min > max {
            return None;
        }
        let span = i128::from(max) - i128::from(min) + 1;
        let start = i128::from(seed) % span;
        // Each excluded value can block one integer, so one more try than there are values always finds a free one.
        (0..span.min(i128::try_from(self.values.len()).unwrap_or(0) + 1))
            .map(|step| (i128::from(min) + (start + step) % span).to_string())
            .find(|candidate| !self.lists(candidate))
    }

    /// The requirement as API entries. Two bounds give two entries; a bound wins over excluded values, which the API cannot
    /// express next to it.
    #[must_use]
    pub fn to_specs(&self) -> SmallVec<[RequirementSpec; 1]> {
        let entry = |operator: Operator, values: Vec<String>| RequirementSpec {
            min_values: self.min_values.map(i64::from),
            ..RequirementSpec::new(&self.key, operator.as_str(), values)
        };
        let mut entries = SmallVec::new();
        if let Some(min) = self.at_least() {
            entries.push(entry(Operator::Gte, vec![min.to_string()]));
        }
        if let Some(max) = self.at_most() {
            entries.push(entry(Operator::Lte, vec![max.to_string()]));
        }
        if entries.is_empty() {
            if self.must_exist && self.complement {
                entries.push(entry(Operator::Exists, Vec::new()));
            }
            entries.push(entry(
                self.operator(),
                self.values.iter().map(ToString::to_string).collect(),
            ));
        }
        entries
    }
}

/// Merges two sorted lists without duplicates.
fn union(a: &[Arc<str>], b: &[Arc<str>]) -> Values {
    let mut out = Values::with_capacity(a.len() + b.len());
    let (mut a, mut b) = (a.iter().peekable(), b.iter().peekable());
    loop {
        let next = match (a.peek(), b.peek()) {
            (Some(x), Some(y)) => match x.cmp(y) {
                Ordering::Less => a.next(),
                Ordering::Greater => b.next(),
                Ordering::Equal => {
                    b.next();
                    a.next()
                }
            },
            (Some(_), None) => a.next(),
            (None, _) => b.next(),
        };
        match next {
            Some(value) => out.push(Arc::clone(value)),
            None => return out,
        }
    }
}

/// How many values a text shows before the rest is counted.
const SHOWN_VALUES: usize = 5;

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operator = self.operator();
        write!(f, "{} {operator}", self.key)?;
        if matches!(operator, Operator::In | Operator::NotIn) {
            f.write_str(" [")?;
            for (i, value) in self.values.iter().take(SHOWN_VALUES).enumerate() {
                let gap = if i == 0 { "" } else { " " };
                let value: &str = value.borrow();
                write!(f, "{gap}{value}")?;
            }
            if let Some(more @ 1..) = self.values.len().checked_sub(SHOWN_VALUES) {
                write!(f, " and {more} others")?;
            }
            f.write_str("]")?;
        }
        if let Some(min) = self.at_least() {
            write!(f, " >={min}")?;
        }
        if let Some(max) = self.at_most() {
            write!(f, " <={max}")?;
        }
        if let Some(min) = self.min_values {
            write!(f, " minValues {min}")?;
        }
        Ok(())
    }
}
