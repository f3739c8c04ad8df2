//! Settings that change what nodes have.

/// Settings of the controller that change what nodes have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapacityOptions {
    /// Share of memory that the hypervisor keeps, in millionths. `--vm-memory-overhead-percent`.
    pub vm_overhead_ppm: i64,
    /// Network interfaces that pods must not use. `--reserved-enis`.
    pub reserved_enis: i64,
    /// Each address of an interface stands for a block of them, on types that can. `--prefix-delegation`.
    pub prefix_delegation: bool,
    /// Whether kubelet settings of a class may be expressions. The feature gate `NodeClassCEL`.
    pub expressions: bool,
}

impl Default for CapacityOptions {
    fn default() -> Self {
        Self {
            vm_overhead_ppm: 75_000,
            reserved_enis: 0,
            prefix_delegation: false,
            expressions: false,
        }
    }
}
