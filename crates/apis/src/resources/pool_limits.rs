//! Limits of a NodePool.

/// Limits of a pool, parsed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolLimits {
    /// The pseudo-resource `nodes`.
    pub nodes: Option<i64>,
    /// Every other limit in the unit of [`super::Resources`] (milli-CPU, bytes, counts). Sorted by name.
    pub resources: Vec<(String, i64)>,
}
