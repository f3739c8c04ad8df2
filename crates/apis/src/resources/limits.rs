//! Limits of pools.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;

use super::{NODES, ResourceError, Resources, amount_of, quantity};

/// Upper bounds of a pool: those that are present must not be exceeded.
///
/// # Units
/// As for [`Resources`]; `nodes` counts nodes.
///
/// # Shape
/// Sorted by name, unique. A limit of zero is a limit; an absent one is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    nodes: Option<i64>,
    amounts: Vec<(Arc<str>, i64)>,
}

/// A limit that would be passed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitExceeded {
    /// Resource name, or `nodes`.
    pub name: Arc<str>,
    /// What would be used.
    pub usage: i64,
    /// The limit.
    pub limit: i64,
}

impl fmt::Display for LimitExceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, usage, limit } = self;
        write!(
            f,
            "{name} {} would exceed the limit of {}",
            quantity(name, *usage),
            quantity(name, *limit)
        )
    }
}

impl Limits {
    /// Reads the limits of a pool; the pseudo-resource `nodes` limits the number of nodes.
    ///
    /// # Errors
    /// A quantity cannot be read; the first by name.
    pub fn from_api(list: &BTreeMap<String, ApiQuantity>) -> Result<Self, ResourceError> {
        let mut limits = Self::default();
        for (name, quantity) in list {
            let amount = amount_of(name, quantity)?;
            if name == NODES {
                limits.nodes = Some(amount);
            } else {
                limits.amounts.push((Arc::from(name.as_str()), amount));
            }
        }
        Ok(limits)
    }

    /// Whether nothing is limited.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.nodes.is_none() && self.amounts.is_empty()
    }

    /// The limit on the number of nodes.
    #[must_use]
    pub const fn nodes(&self) -> Option<i64> {
        self.nodes
    }

    /// The limit on a resource.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<i64> {
        let at = self.amounts.binary_search_by(|(n, _)| n.as_ref().cmp(name));
        at.ok()
            .and_then(|at| self.amounts.get(at))
            .map(|(_, limit)| *limit)
    }

    /// The limits on resources, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, i64)> {
        self.amounts.iter().map(|(name, limit)| (name, *limit))
    }

    /// The first limit (nodes, then by name) that this usage exceeds; usage equal to the limit is allowed.
    #[must_use]
    pub fn exceeded(&self, usage: &Resources, nodes: i64) -> Option<LimitExceeded> {
        let amounts = self
            .amounts
            .iter()
            .map(|(name, _)| (name.as_ref(), usage.get(name)));
        self.exceeded_by(std::iter::once((NODES, nodes)).chain(amounts))
    }

    /// The first of these amounts that exceeds its limit. Only named resources count: a missing resource cannot exceed a limit,
    /// not even a negative one.
    pub fn exceeded_by<'a>(
        &self,
        usage: impl IntoIterator<Item = (&'a str, i64)>,
    ) -> Option<LimitExceeded> {
        usage.into_iter().find_map(|(name, usage)| {
            let limit = if name == NODES {
                self.nodes
            } else {
                self.get(name)
            }?;
            (usage > limit).then(|| LimitExceeded {
                name: Arc::from(name),
                usage,
                limit,
            })
        })
    }
}
