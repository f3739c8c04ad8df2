//! Settings that are accepted and have no effect here; the service warns about each at its start.

use super::ServeArgs;

/// A setting that was set and has no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inert {
    /// The flag.
    pub setting: &'static str,
    /// What is not done, and what to use instead.
    pub consequence: &'static str,
}

impl ServeArgs {
    /// The settings that were set, from which an effect could be expected, and that have none.
    #[must_use]
    pub fn inert(&self) -> Vec<Inert> {
        let profiling = self.core.accepted.enable_profiling.then_some(Inert {
            setting: "--enable-profiling",
            consequence: "there is no profiling listener; use perf and /metrics",
        });
        profiling.into_iter().collect()
    }
}
