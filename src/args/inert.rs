//! Settings that are accepted and have no effect here; the service warns about each at its start.

use mortise_planning::settings::Settings;

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
    pub fn inert(&self, settings: &Settings) -> Vec<Inert> {
        let buffers = settings.gates.capacity_buffer.then_some(Inert {
            setting: "--feature-gates CapacityBuffer=true",
            consequence: "capacity buffers are not implemented: no capacity is reserved for any CapacityBuffer; use low-priority pods to reserve capacity",
        });
        let profiling = self.core.accepted.enable_profiling.then_some(Inert {
            setting: "--enable-profiling",
            consequence: "there is no profiling listener; use perf and /metrics",
        });
        [buffers, profiling].into_iter().flatten().collect()
    }
}
