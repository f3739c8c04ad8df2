//! Devices that few pods use and that make a node expensive.

use super::Resources;

/// Last parts of the names of device plugins' resources: graphics processors, whole or in slices, and processors for training.
const KINDS: [&str; 5] = ["gpu", "gaudi", "neuron", "neuroncore", "tpu"];
/// The same with a part of the device in the name, such as `nvidia.com/mig-1g.5gb` and `nvidia.com/gpu.shared`.
const PARTS: [&str; 2] = ["mig-", "gpu."];

/// Whether an extended resource is an accelerator.
fn is_accelerator(resource: &str) -> bool {
    resource.split_once('/').is_some_and(|(_, kind)| {
        KINDS.contains(&kind) || PARTS.iter().any(|part| kind.starts_with(part))
    })
}

impl Resources {
    /// Whether there are accelerators among them.
    #[must_use]
    pub fn has_accelerators(&self) -> bool {
        let mut extended = self.extended.iter();
        extended.any(|(name, amount)| *amount > 0 && is_accelerator(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_of_several_makers_count_and_others_do_not() {
        for name in [
            "nvidia.com/gpu",
            "nvidia.com/gpu.shared",
            "nvidia.com/mig-1g.5gb",
            "amd.com/gpu",
            "habana.ai/gaudi",
            "example.com/neuroncore",
            "google.com/tpu",
        ] {
            assert!(is_accelerator(name), "{name}");
            assert!(Resources::zero().with(name, 1).has_accelerators());
        }
        for name in [
            "cpu",
            "gpu",
            "hugepages-2Mi",
            "example.com/pod-eni",
            "example.com/efa",
            "smarter-devices/fuse",
            "example.com/gpus-in-use",
        ] {
            assert!(!is_accelerator(name), "{name}");
        }
        let none_left = Resources::zero().with("nvidia.com/gpu", -1);
        assert!(!none_left.has_accelerators());
    }
}
