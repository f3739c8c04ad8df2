//! What an instance type is, in our own words: made from the embedded data or from EC2's description of it.
//!
//! Invariant: plain data, no SDK type and no decision. What a cloud did not say is `None` or an empty list, never zero; the
//! numbers that are zero here (`efa`, `disk_gb`, `branch_interfaces`) mean "has none".

use std::sync::Arc;

/// Graphics processors of one kind in an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// Product name, such as `H100`.
    pub name: Arc<str>,
    /// Maker, such as `NVIDIA`.
    pub manufacturer: Arc<str>,
    /// How many whole ones; 0 for a fraction of one.
    pub count: i64,
    /// Memory of one, in MiB.
    pub memory_mib: i64,
}

/// Inference accelerators of one kind in an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accelerator {
    /// Product name, such as `Inferentia`.
    pub name: Arc<str>,
    /// Maker, such as `AWS`.
    pub manufacturer: Arc<str>,
    /// How many.
    pub count: i64,
}

/// Neuron devices of one kind in an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neuron {
    /// Product name, such as `Trainium`.
    pub name: Arc<str>,
    /// How many devices.
    pub count: i64,
    /// Cores of one device.
    pub cores: i64,
}

/// An instance type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceTypeInfo {
    /// Name, such as `m5.large`.
    pub name: Arc<str>,
    /// Processor architectures in EC2's words (`x86_64`, `arm64`, `i386`, ...), in EC2's order.
    pub architectures: Vec<Arc<str>>,
    /// Virtual processors.
    pub vcpus: i64,
    /// Memory in MiB, before anything takes from it.
    pub memory_mib: i64,
    /// Maker of the processor, such as `Intel`.
    pub cpu_manufacturer: Option<Arc<str>>,
    /// Sustained clock speed in MHz; `None` when EC2 does not say.
    pub clock_mhz: Option<i64>,
    /// Whether a guest may run guests of its own.
    pub nested_virtualization: bool,
    /// Usage classes: `on-demand`, `spot`, `capacity-block`.
    pub usage: Vec<Arc<str>>,
    /// Virtualization: `hvm`, `paravirtual`.
    pub virtualization: Vec<Arc<str>>,
    /// `nitro`, `xen`, or `None` for bare metal.
    pub hypervisor: Option<Arc<str>>,
    /// Whether Nitro Enclaves are supported.
    pub enclaves: bool,
    /// Placement group strategies: `cluster`, `partition`, `spread`.
    pub placement: Vec<Arc<str>>,
    /// Most bandwidth to EBS in Mbps, where EBS optimisation is on by default.
    pub ebs_mbps: Option<i64>,
    /// Baseline network bandwidth in Mbps, where a number is published.
    pub network_mbps: Option<i64>,
    /// Local disks in GB altogether.
    pub disk_gb: i64,
    /// Whether the local disks are NVMe.
    pub nvme: bool,
    /// Whether it has an elastic network adapter.
    pub ena: bool,
    /// Whether traffic between such instances is encrypted in transit.
    pub encryption_in_transit: bool,
    /// IPv4 addresses per network interface, the interface's own included.
    pub ipv4_per_interface: i64,
    /// Most network interfaces per network card, by card index.
    pub interfaces: Vec<i64>,
    /// Index of the card that the primary interface is on.
    pub default_card: usize,
    /// Most EFA interfaces.
    pub efa: i64,
    /// Graphics processors.
    pub gpus: Vec<Gpu>,
    /// Inference accelerators.
    pub inference: Vec<Accelerator>,
    /// Neuron devices.
    pub neuron: Vec<Neuron>,
    /// Branch interfaces for pods with security groups of their own.
    pub branch_interfaces: i64,
    /// Addresses for Windows pods.
    pub windows_addresses: i64,
}

impl InstanceTypeInfo {
    /// Whether nodes can be made of it at all: hardware virtualization, unless nothing is said of it, and a processor that Kubernetes
    /// has images for.
    #[must_use]
    pub fn usable(&self) -> bool {
        let known = |each: &Arc<str>| matches!(&**each, "x86_64" | "arm64");
        let virtualization = &self.virtualization;
        (virtualization.is_empty() || virtualization.iter().any(|each| &**each == "hvm"))
            && self.architectures.iter().any(known)
    }

    /// Processor architecture in Kubernetes' words. One that Kubernetes has no word for is put in brackets, so that nothing asks for it.
    #[must_use]
    pub fn arch(&self) -> Arc<str> {
        let word = |each: &Arc<str>| match &**each {
            "x86_64" => Some(Arc::from("amd64")),
            "arm64" => Some(Arc::from("arm64")),
            _ => None,
        };
        self.architectures.iter().find_map(word).unwrap_or_else(|| {
            let all: Vec<&str> = self.architectures.iter().map(|each| &**each).collect();
            Arc::from(format!("[{}]", all.join(" ")))
        })
    }

    /// Whether it can be launched in this way.
    #[must_use]
    pub fn sold_as(&self, usage: &str) -> bool {
        self.usage.iter().any(|each| &**each == usage)
    }

    /// The text before the dot of the name, such as `m5`; all of a name without a dot.
    #[must_use]
    pub fn family(&self) -> &str {
        self.name
            .split_once('.')
            .map_or(&*self.name, |(family, _)| family)
    }

    /// The text after the dot of the name, such as `large`; empty for a name without a dot.
    #[must_use]
    pub fn size(&self) -> &str {
        self.name.split_once('.').map_or("", |(_, size)| size)
    }

    /// Category and generation, such as `("m", "5")`: leading letters, an optional `-<n>tb`, digits, all before a dot.
    /// `None` for a name of another shape.
    #[must_use]
    pub fn category_and_generation(&self) -> Option<(&str, &str)> {
        let (family, _) = self.name.split_once('.')?;
        let letters = family.find(|c: char| !c.is_ascii_lowercase())?;
        let (category, rest) = family.split_at_checked(letters)?;
        if category.is_empty() {
            return None;
        }
        // High-memory names carry their memory in front of the generation: `u-6tb1.metal`, `u7i-12tb.224xlarge`.
        let rest = match rest.strip_prefix('-') {
            Some(tail) => {
                let memory = tail
                    .find(|c: char| !c.is_ascii_digit())
                    .filter(|at| *at > 0)?;
                tail.split_at_checked(memory)?.1.strip_prefix("tb")?
            }
            None => rest,
        };
        let digits = rest
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rest.len());
        let (generation, _) = rest.split_at_checked(digits)?;
        (!generation.is_empty()).then_some((category, generation))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(name: &str) -> InstanceTypeInfo {
        let all = crate::embedded_catalog().unwrap();
        all.find(name)
            .unwrap_or_else(|| panic!("{name} is not in the embedded catalogue"))
            .info
            .clone()
    }

    #[test]
    fn names_are_taken_apart() {
        for (name, family, size, category, generation) in [
            ("m5.large", "m5", "large", "m", "5"),
            ("c7i-flex.large", "c7i-flex", "large", "c", "7"),
            ("u-6tb1.metal", "u-6tb1", "metal", "u", "1"),
            ("u7i-12tb.224xlarge", "u7i-12tb", "224xlarge", "u", "7"),
            ("hpc7a.48xlarge", "hpc7a", "48xlarge", "hpc", "7"),
            ("m5.metal", "m5", "metal", "m", "5"),
        ] {
            let mut any = info("m5.large");
            any.name = Arc::from(name);
            assert_eq!((any.family(), any.size()), (family, size), "{name}");
            assert_eq!(
                any.category_and_generation(),
                Some((category, generation)),
                "{name}"
            );
        }
        for name in ["m5", "5.large", "m.large", "u-tb1.metal", ".", ""] {
            let mut any = info("m5.large");
            any.name = Arc::from(name);
            assert_eq!(any.category_and_generation(), None, "{name:?}");
        }
    }

    #[test]
    fn architecture_is_in_kubernetes_words() {
        assert_eq!(&*info("m5.large").arch(), "amd64");
        assert_eq!(&*info("m7g.large").arch(), "arm64");
        assert_eq!(&*info("m1.small").arch(), "amd64", "i386 is skipped");
        assert_eq!(&*info("mac2.metal").arch(), "[arm64_mac]");
        assert!(!info("mac2.metal").usable());
        assert!(info("m1.small").usable());
    }
}
