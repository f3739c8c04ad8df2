//! How long what is outside of the service takes.

/// Durations in milliseconds, each from and to; the one that counts is random.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    /// From the launch of an instance to its Node.
    pub(crate) boot_ms: (i64, i64),
    /// From the binding of a pod to its running containers.
    pub(crate) pod_start_ms: (i64, i64),
    /// From the deletion of a pod to its end.
    pub(crate) pod_stop_ms: (i64, i64),
    /// From the request to terminate an instance to its end; 0 = the provider confirms the end at once.
    pub(crate) termination_ms: (i64, i64),
    /// The deletion time of a pod includes its grace period, as in Kubernetes. Otherwise it is the time of the request.
    pub(crate) marks_grace: bool,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            boot_ms: (15_000, 35_000),
            pod_start_ms: (800, 2_500),
            pod_stop_ms: (500, 3_000),
            termination_ms: (5_000, 20_000),
            marks_grace: false,
        }
    }
}
