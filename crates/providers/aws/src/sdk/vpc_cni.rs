//! Settings of the VPC CNI that decide how many pods a node has addresses for.

use std::collections::BTreeMap;

use mortise_aws_catalog::CapacityOptions;

use crate::config::{AwsConfig, PrefixDelegation};

/// What the VPC CNI does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct VpcCni {
    /// Each address slot of an interface gets a block of addresses.
    pub(crate) prefix_delegation: bool,
    /// Pods are in other subnets than their node, so its first interface has no addresses for them.
    pub(crate) custom_networking: bool,
}

impl VpcCni {
    /// Reads the environment of its container. What it cannot read is off, as for the CNI itself.
    pub(crate) fn of(environment: &BTreeMap<String, String>) -> Self {
        let is_on = |name: &str| environment.get(name).is_some_and(|value| value == "true");
        Self {
            prefix_delegation: is_on("ENABLE_PREFIX_DELEGATION"),
            custom_networking: is_on("AWS_VPC_K8S_CNI_CUSTOM_NETWORK_CFG"),
        }
    }

    /// What nodes have by the settings and, if those leave it to the CNI, by what that does.
    pub(crate) fn options(self, config: &AwsConfig) -> CapacityOptions {
        let shape = config.shape;
        match config.prefix_delegation {
            PrefixDelegation::Off => shape,
            PrefixDelegation::On => CapacityOptions {
                prefix_delegation: true,
                ..shape
            },
            PrefixDelegation::Auto => CapacityOptions {
                prefix_delegation: self.prefix_delegation,
                // Users of custom networking have reserved this interface already.
                reserved_enis: shape.reserved_enis.max(i64::from(self.custom_networking)),
                ..shape
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cni(environment: &[(&str, &str)]) -> VpcCni {
        let pairs = environment.iter();
        VpcCni::of(
            &pairs
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
        )
    }

    #[test]
    fn what_the_cni_does_counts_only_if_the_settings_leave_it_to_that() {
        let both = cni(&[
            ("ENABLE_PREFIX_DELEGATION", "true"),
            ("AWS_VPC_K8S_CNI_CUSTOM_NETWORK_CFG", "true"),
        ]);
        let neither = cni(&[("ENABLE_PREFIX_DELEGATION", "yes"), ("OTHER", "true")]);
        assert_eq!(neither, VpcCni::default());
        let by = |cni: VpcCni, prefix_delegation, reserved_enis| {
            let shape = CapacityOptions {
                reserved_enis,
                ..CapacityOptions::default()
            };
            let config = AwsConfig {
                shape,
                prefix_delegation,
                ..AwsConfig::default()
            };
            let options = cni.options(&config);
            (options.prefix_delegation, options.reserved_enis)
        };
        assert_eq!(by(both, PrefixDelegation::Off, 0), (false, 0));
        assert_eq!(by(neither, PrefixDelegation::On, 0), (true, 0));
        assert_eq!(by(both, PrefixDelegation::Auto, 0), (true, 1));
        assert_eq!(by(both, PrefixDelegation::Auto, 2), (true, 2));
        assert_eq!(by(neither, PrefixDelegation::Auto, 0), (false, 0));
    }
}
