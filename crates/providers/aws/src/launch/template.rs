//! Contents of launch templates: everything about an instance but its type, zone and image, under a name that is a hash of it. Pure.

use std::collections::BTreeMap;

use mortise_apis::values::{Quantity, fnv1a};
use mortise_aws_class::spec::{
    BlockDeviceMapping, ConnectionTracking, Ec2NodeClassSpec, MetadataOptions, NetworkInterface,
};
use serde::Serialize;

use crate::tags;
use mortise_aws_catalog::ami_family::AmiFamily;
use mortise_aws_catalog::node_settings::GIB;

/// A disk, as the template has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct DiskSpec {
    pub(crate) device: String,
    pub(crate) gib: Option<i32>,
    pub(crate) volume_type: Option<String>,
    pub(crate) encrypted: Option<bool>,
    pub(crate) delete_on_termination: Option<bool>,
    pub(crate) iops: Option<i32>,
    pub(crate) throughput: Option<i32>,
    pub(crate) kms_key: Option<String>,
    pub(crate) snapshot: Option<String>,
    pub(crate) initialization_rate: Option<i32>,
}

/// A network interface, as the template has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct InterfaceSpec {
    /// Network card; `None` for the default one of an instance with one interface.
    pub(crate) card: Option<i32>,
    pub(crate) device: i32,
    /// `interface`, `efa` or `efa-only`; `None` for the one that every instance has.
    pub(crate) kind: Option<String>,
}

/// The contents of a template.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct LaunchTemplate {
    pub(crate) cluster: String,
    pub(crate) class: String,
    pub(crate) image: String,
    pub(crate) user_data: String,
    pub(crate) profile: Option<String>,
    pub(crate) groups: Vec<String>,
    pub(crate) spot: bool,
    pub(crate) tags: BTreeMap<String, String>,
    pub(crate) disks: Vec<DiskSpec>,
    pub(crate) ports: Vec<InterfaceSpec>,
    pub(crate) public_address: Option<bool>,
    /// Address prefixes of each interface, of the family of the pods' addresses.
    pub(crate) prefixes: Option<i32>,
    /// Pods have IPv6 addresses.
    pub(crate) ipv6: bool,
    pub(crate) monitoring: bool,
    pub(crate) metadata: MetadataOptions,
    pub(crate) tracking: Option<ConnectionTracking>,
    pub(crate) nested_virtualization: Option<String>,
    /// On hardware of one's own.
    pub(crate) dedicated: bool,
    /// Id of the placement group.
    pub(crate) placement_group: Option<String>,
    /// Partition of the placement group.
    pub(crate) partition: Option<i32>,
    pub(crate) enclaves: bool,
    /// `None` while reservations are not used: open ones are then used as they come.
    pub(crate) reservation: Option<ReservationTarget>,
}

/// Which reservation the instances use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct ReservationTarget {
    /// Its id; `None`: none at all, not even an open one.
    pub(crate) id: Option<String>,
    /// The market that instances of the kind of reservation are sold on, if it is a special one.
    pub(crate) market: Option<&'static str>,
}

/// Regions whose metadata service has no IPv6 endpoint.
/// # Source
/// The reference implementation's list.
const NO_METADATA_IPV6: [&str; 6] = [
    "us-iso-east-1",
    "us-iso-west-1",
    "us-isob-east-1",
    "us-isob-west-1",
    "us-isof-south-1",
    "us-isof-east-1",
];

/// Metadata options of a class, as the region takes them.
pub(crate) fn metadata_options(spec: &Ec2NodeClassSpec, region: &str) -> MetadataOptions {
    let mut options = spec.metadata_options.clone().unwrap_or_default();
    if NO_METADATA_IPV6.contains(&region) {
        options.http_protocol_ipv6 = None;
    }
    options
}

/// Disks of a class, or of its family when it names none.
pub(crate) fn disks(spec: &Ec2NodeClassSpec, family: AmiFamily) -> Vec<DiskSpec> {
    let Some(own) = spec
        .block_device_mappings
        .as_deref()
        .filter(|list| !list.is_empty())
    else {
        let default = |(device, gib): &(&str, i64)| DiskSpec {
            device: (*device).to_owned(),
            gib: i32::try_from(*gib).ok(),
            volume_type: Some("gp3".to_owned()),
            encrypted: Some(true),
            delete_on_termination: None,
            iops: None,
            throughput: None,
            kms_key: None,
            snapshot: None,
            initialization_rate: None,
        };
        return family.default_disks().iter().map(default).collect();
    };
    let small = |number: Option<i64>| {
        number
            .filter(|number| *number != 0)
            .and_then(|number| i32::try_from(number).ok())
    };
    let disk = |each: &BlockDeviceMapping| {
        let ebs = each.ebs.clone().unwrap_or_default();
        let bytes = ebs
            .volume_size
            .as_deref()
            .and_then(|text| Quantity::parse(text).ok())
            .map(|size| size.value());
        Some(DiskSpec {
            device: each.device_name.clone()?,
            gib: bytes.and_then(|bytes| {
                i32::try_from(bytes.div_euclid(GIB) + i64::from(bytes.rem_euclid(GIB) != 0)).ok()
            }),
            volume_type: ebs.volume_type,
            encrypted: ebs.encrypted,
            delete_on_termination: ebs.delete_on_termination,
            iops: small(ebs.iops),
            throughput: small(ebs.throughput),
            kms_key: ebs.kms_key_id,
            snapshot: ebs.snapshot_id,
            initialization_rate: ebs.volume_initialization_rate,
        })
    };
    own.iter().filter_map(disk).collect()
}

/// Network interfaces: the class's own, else one per fabric adapter when the pods ask for them, else one.
pub(crate) fn ports(spec: &Ec2NodeClassSpec, fabric: i64) -> Vec<InterfaceSpec> {
    let own = spec.network_interfaces.as_deref().unwrap_or_default();
    if !own.is_empty() {
        let port = |each: &NetworkInterface| InterfaceSpec {
            card: Some(each.network_card_index),
            device: each.device_index,
            kind: Some(each.interface_type.clone()),
        };
        return own.iter().map(port).collect();
    }
    let adapters = i32::try_from(fabric).unwrap_or(0);
    if adapters > 0 {
        return (0..adapters)
            .map(|card| InterfaceSpec {
                card: Some(card),
                device: i32::from(card > 0),
                kind: Some("efa".to_owned()),
            })
            .collect();
    }
    vec![InterfaceSpec {
        card: None,
        device: 0,
        kind: None,
    }]
}

impl LaunchTemplate {
    /// Its name: a hash of its contents, the same in every build and process.
    pub(crate) fn name(&self) -> String {
        let text = serde_json::to_vec(self).unwrap_or_default(); // plain data: it has no way to fail
        format!("{}{}", tags::TEMPLATE_PREFIX, fnv1a(text))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A template with little in it.
    pub(crate) fn template() -> LaunchTemplate {
        let spec = Ec2NodeClassSpec::default();
        LaunchTemplate {
            cluster: "demo".to_owned(),
            class: "default".to_owned(),
            image: "ami-1".to_owned(),
            user_data: "x".to_owned(),
            profile: Some("node".to_owned()),
            groups: vec!["sg-1".to_owned()],
            spot: false,
            tags: BTreeMap::from([("a".to_owned(), "b".to_owned())]),
            disks: disks(&spec, AmiFamily::Al2023),
            ports: ports(&spec, 0),
            public_address: None,
            prefixes: None,
            ipv6: false,
            monitoring: false,
            metadata: MetadataOptions::default(),
            tracking: None,
            nested_virtualization: None,
            dedicated: false,
            placement_group: None,
            partition: None,
            enclaves: false,
            reservation: None,
        }
    }

    #[test]
    fn names_follow_contents() {
        let name = template().name();
        assert_eq!(name, template().name());
        let digits = name.strip_prefix(tags::TEMPLATE_PREFIX).unwrap();
        assert!(digits.parse::<u64>().is_ok(), "{name}");
        let others = [
            LaunchTemplate {
                image: "ami-2".to_owned(),
                ..template()
            },
            LaunchTemplate {
                user_data: "y".to_owned(),
                ..template()
            },
            LaunchTemplate {
                spot: true,
                ..template()
            },
            LaunchTemplate {
                groups: vec!["sg-2".to_owned()],
                ..template()
            },
            LaunchTemplate {
                ports: ports(&Ec2NodeClassSpec::default(), 2),
                ..template()
            },
        ];
        for other in others {
            assert_ne!(other.name(), name, "{other:?}");
        }
    }
}
