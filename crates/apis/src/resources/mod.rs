//! Amounts of resources as plain integers, for arithmetic in the solver.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use smallvec::SmallVec;

use crate::values::{ParseQuantityError, Quantity};

mod accelerators;
mod limits;
mod pool_limits;
#[cfg(test)]
mod tests;

pub use limits::{LimitExceeded, Limits};
pub use pool_limits::PoolLimits;

/// Resource name: CPU.
pub const CPU: &str = "cpu";
/// Resource name: memory.
pub const MEMORY: &str = "memory";
/// Resource name: number of pods.
pub const PODS: &str = "pods";
/// Resource name: local disk.
pub const EPHEMERAL_STORAGE: &str = "ephemeral-storage";
/// Pseudo-resource of NodePool limits: number of nodes.
pub const NODES: &str = "nodes";

/// Amounts of resources: requests, capacity, allocatable, room.
///
/// # Units
/// CPU in milli, memory and ephemeral storage in bytes, pods and extended resources in whole units; all rounded up when they
/// come from quantities. Negative amounts mean overcommitted.
///
/// # Shape
/// `extended` is sorted by name, unique, and holds no zero amounts, so that equal amounts are equal values. There is no order:
/// of two amounts each may have more of something; see [`Self::fits_in`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Resources {
    /// CPU in milli.
    pub cpu: i64,
    /// Memory in bytes.
    pub memory: i64,
    /// Number of pods.
    pub pods: i64,
    /// Local disk in bytes.
    pub ephemeral_storage: i64,
    /// Everything else by name, in whole units; huge pages are bytes.
    pub extended: SmallVec<[(Arc<str>, i64); 2]>,
}

/// A resource whose quantity cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("resource {name:?}: {source}")]
pub struct ResourceError {
    /// Resource name.
    pub name: String,
    /// What is wrong with the quantity.
    pub source: ParseQuantityError,
}

impl Resources {
    /// Nothing.
    #[must_use]
    pub fn zero() -> Self {
        Self::default()
    }

    /// Only CPU (milli) and memory (bytes).
    #[must_use]
    pub fn new(cpu: i64, memory: i64) -> Self {
        Self {
            cpu,
            memory,
            ..Self::default()
        }
    }

    /// Sets the amount of a resource by its Kubernetes name; units as for the fields.
    #[must_use]
    pub fn with(mut self, name: &str, amount: i64) -> Self {
        self.set(name, amount);
        self
    }

    /// Sets the amount of a resource by its Kubernetes name; units as for the fields.
    pub fn set(&mut self, name: &str, amount: i64) {
        match name {
            CPU => self.cpu = amount,
            MEMORY => self.memory = amount,
            PODS => self.pods = amount,
            EPHEMERAL_STORAGE => self.ephemeral_storage = amount,
            _ => match (
                self.extended
                    .binary_search_by(|(n, _)| n.as_ref().cmp(name)),
                amount,
            ) {
                (Ok(at), 0) => {
                    self.extended.remove(at);
                }
                (Ok(at), _) => {
                    if let Some(entry) = self.extended.get_mut(at) {
                        entry.1 = amount;
                    }
                }
                (Err(_), 0) => {}
                (Err(at), _) => self.extended.insert(at, (Arc::from(name), amount)),
            },
        }
    }

    /// The amount of a resource by its Kubernetes name; zero when there is none. Units as for the fields.
    #[must_use]
    pub fn get(&self, name: &str) -> i64 {
        match name {
            CPU => self.cpu,
            MEMORY => self.memory,
            PODS => self.pods,
            EPHEMERAL_STORAGE => self.ephemeral_storage,
            _ => self.extended(name),
        }
    }

    /// The amount of an extended resource; zero when there is none.
    #[must_use]
    pub fn extended(&self, name: &str) -> i64 {
        let at = self
            .extended
            .binary_search_by(|(n, _)| n.as_ref().cmp(name));
        at.ok()
            .and_then(|at| self.extended.get(at))
            .map_or(0, |(_, amount)| *amount)
    }

    /// The amounts that are not zero, by Kubernetes name, sorted within the standard and the extended ones.
    pub fn iter(&self) -> impl Iterator<Item = (&str, i64)> {
        [
            (CPU, self.cpu),
            (EPHEMERAL_STORAGE, self.ephemeral_storage),
            (MEMORY, self.memory),
            (PODS, self.pods),
        ]
        .into_iter()
        .filter(|(_, amount)| *amount != 0)
        .chain(
            self.extended
                .iter()
                .map(|(name, amount)| (name.as_ref(), *amount)),
        )
    }

    /// Combines both amounts of every resource.
    fn zip(&self, other: &Self, with: impl Fn(i64, i64) -> i64) -> Self {
        let mut extended: SmallVec<[(Arc<str>, i64); 2]> = SmallVec::new();
        let (mut ours, mut theirs) = (
            self.extended.iter().peekable(),
            other.extended.iter().peekable(),
        );
        loop {
            let order = match (ours.peek(), theirs.peek()) {
                (Some((a, _)), Some((b, _))) => a.cmp(b),
                (Some(_), None) => std::cmp::Ordering::Less,
                (None, Some(_)) => std::cmp::Ordering::Greater,
                (None, None) => break,
            };
            let (a, b) = (
                order.is_le().then(|| ours.next()).flatten(),
                order.is_ge().then(|| theirs.next()).flatten(),
            );
            let amount = with(a.map_or(0, |(_, n)| *n), b.map_or(0, |(_, n)| *n));
            if let (Some((name, _)), 1.. | ..=-1) = (a.or(b), amount) {
                extended.push((Arc::clone(name), amount));
            }
        }
        Self {
            cpu: with(self.cpu, other.cpu),
            memory: with(self.memory, other.memory),
            pods: with(self.pods, other.pods),
            ephemeral_storage: with(self.ephemeral_storage, other.ephemeral_storage),
            extended,
        }
    }

    /// The sum, saturating.
    #[must_use]
    pub fn add(&self, other: &Self) -> Self {
        self.zip(other, i64::saturating_add)
    }

    /// The difference, saturating at the ends of 64 bits (not at zero: negative means overcommitted).
    #[must_use]
    pub fn sub(&self, other: &Self) -> Self {
        self.zip(other, i64::saturating_sub)
    }

    /// Adds in place, saturating.
    pub fn add_assign(&mut self, other: &Self) {
        if other.extended.is_empty() {
            self.cpu = self.cpu.saturating_add(other.cpu);
            self.memory = self.memory.saturating_add(other.memory);
            self.pods = self.pods.saturating_add(other.pods);
            self.ephemeral_storage = self
                .ephemeral_storage
                .saturating_add(other.ephemeral_storage);
        } else {
            *self = self.add(other);
        }
    }

    /// Subtracts in place, saturating.
    pub fn sub_assign(&mut self, other: &Self) {
        if other.extended.is_empty() {
            self.cpu = self.cpu.saturating_sub(other.cpu);
            self.memory = self.memory.saturating_sub(other.memory);
            self.pods = self.pods.saturating_sub(other.pods);
            self.ephemeral_storage = self
                .ephemeral_storage
                .saturating_sub(other.ephemeral_storage);
        } else {
            *self = self.sub(other);
        }
    }

    /// The same amounts `times` over, saturating.
    #[must_use]
    pub fn times(&self, times: i64) -> Self {
        self.zip(&Self::default(), |amount, _| amount.saturating_mul(times))
    }

    /// The larger amount of each resource.
    #[must_use]
    pub fn max(&self, other: &Self) -> Self {
        self.zip(other, i64::max)
    }

    /// The smaller amount of each resource.
    #[must_use]
    pub fn min(&self, other: &Self) -> Self {
        self.zip(other, i64::min)
    }

    /// Whether every amount is zero.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.iter().next().is_none()
    }

    /// Whether any amount is negative.
    #[must_use]
    pub fn any_negative(&self) -> bool {
        self.iter().any(|(_, amount)| amount < 0)
    }

    /// Whether these amounts fit into the available ones. A resource with a negative amount always fits.
    #[must_use]
    pub fn fits_in(&self, available: &Self) -> bool {
        self.exceeds_first(available).is_none()
    }

    /// The first resource (standard ones first, then by name) of which there is too little: its name.
    #[must_use]
    pub fn exceeds_first<'a>(&'a self, available: &'a Self) -> Option<&'a str> {
        let short = |asked: i64, there: i64| there < 0 || asked > there;
        [
            (CPU, self.cpu, available.cpu),
            (MEMORY, self.memory, available.memory),
            (PODS, self.pods, available.pods),
            (
                EPHEMERAL_STORAGE,
                self.ephemeral_storage,
                available.ephemeral_storage,
            ),
        ]
        .into_iter()
        .find(|(_, asked, there)| short(*asked, *there))
        .map(|(name, _, _)| name)
        .or_else(|| {
            let asked = self
                .extended
                .iter()
                .filter(|(name, amount)| short(*amount, available.extended(name)));
            let there = available.extended.iter().filter(|(_, amount)| *amount < 0);
            asked.chain(there).map(|(name, _)| name.as_ref()).next()
        })
    }

    /// Reads a resource list of the API.
    ///
    /// # Errors
    /// A quantity cannot be read; the first by name.
    pub fn from_api(list: &BTreeMap<String, ApiQuantity>) -> Result<Self, ResourceError> {
        let mut resources = Self::default();
        for (name, quantity) in list {
            resources.set(name, amount_of(name, quantity)?);
        }
        Ok(resources)
    }

    /// The amounts that are not zero, as canonical quantities.
    #[must_use]
    pub fn to_quantities(&self) -> BTreeMap<String, Quantity> {
        self.iter()
            .map(|(name, amount)| (name.to_owned(), quantity(name, amount)))
            .collect()
    }

    /// The amounts that are not zero, as a resource list of the API with canonical texts.
    #[must_use]
    pub fn to_api(&self) -> BTreeMap<String, ApiQuantity> {
        self.iter()
            .map(|(name, amount)| (name.to_owned(), ApiQuantity::from(&quantity(name, amount))))
            .collect()
    }
}

/// Resource amounts of an object. The API server admits only valid quantities; an invalid one counts as zero, which is the
/// safe side for capacity.
#[must_use]
pub fn resources_of(list: &BTreeMap<String, ApiQuantity>) -> Resources {
    Resources::from_api(list).unwrap_or_else(|_| {
        let readable = list.iter().filter_map(|(name, amount)| {
            Resources::from_api(&BTreeMap::from([(name.clone(), amount.clone())])).ok()
        });
        readable.fold(Resources::zero(), |sum, each| sum.add(&each))
    })
}

fn amount_of(name: &str, quantity: &ApiQuantity) -> Result<i64, ResourceError> {
    let quantity = Quantity::try_from(quantity).map_err(|source| ResourceError {
        name: name.to_owned(),
        source,
    })?;
    Ok(if name == CPU {
        quantity.milli()
    } else {
        quantity.value()
    })
}

/// An amount of a resource (milli-CPU, bytes, a count) as a quantity, formatted for display.
#[must_use]
pub fn quantity(name: &str, amount: i64) -> Quantity {
    match name {
        CPU => Quantity::from_milli(amount),
        MEMORY | EPHEMERAL_STORAGE => Quantity::from_bytes(amount),
        _ if name.starts_with("hugepages-") => Quantity::from_bytes(amount),
        _ => Quantity::from_units(amount),
    }
}

impl fmt::Display for Resources {
    /// Amounts that are not zero, such as `cpu 1500m, memory 2Gi, pods 3`; `nothing` when all are zero.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let standard = [
            (CPU, self.cpu),
            (MEMORY, self.memory),
            (PODS, self.pods),
            (EPHEMERAL_STORAGE, self.ephemeral_storage),
        ];
        let extended = self
            .extended
            .iter()
            .map(|(name, amount)| (name.as_ref(), *amount));
        let mut gap = "";
        for (name, amount) in standard
            .into_iter()
            .chain(extended)
            .filter(|(_, amount)| *amount != 0)
        {
            write!(f, "{gap}{name} {}", quantity(name, amount))?;
            gap = ", ";
        }
        if gap.is_empty() {
            f.write_str("nothing")
        } else {
            Ok(())
        }
    }
}

/// A map from resource name to canonical quantity, as objects write it.
impl serde::Serialize for Resources {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(
            self.to_quantities()
                .iter()
                .map(|(name, amount)| (name, amount.to_string())),
        )
    }
}
