//! Settings that are understood and that nothing here reads: whoever gives one is told at the start.

use mortise_planning::settings::Settings;

use super::ServeArgs;

/// A setting that was given and changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inert {
    /// As it is given.
    pub setting: &'static str,
    /// What does not happen, and what to do instead.
    pub consequence: &'static str,
}

impl ServeArgs {
    /// The settings that were given, that somebody would expect something of, and that change nothing.
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
