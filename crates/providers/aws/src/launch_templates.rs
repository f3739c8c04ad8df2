//! Launch templates: everything about a machine but its type, zone and image, stored in EC2 under a name that is a hash of it.
//!
//! Invariant: equal contents have equal names and different contents different ones, so a template is never changed, only made, and
//! making it twice is no error.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use aws_sdk_ec2::types::{
    ConnectionTrackingSpecificationRequest, LaunchTemplateBlockDeviceMappingRequest,
    LaunchTemplateCpuOptionsRequest, LaunchTemplateEbsBlockDeviceRequest,
    LaunchTemplateHttpTokensState, LaunchTemplateIamInstanceProfileSpecificationRequest,
    LaunchTemplateInstanceMetadataEndpointState, LaunchTemplateInstanceMetadataOptionsRequest,
    LaunchTemplateInstanceMetadataProtocolIpv6, LaunchTemplateInstanceMetadataTagsState,
    LaunchTemplateInstanceNetworkInterfaceSpecificationRequest, LaunchTemplatePlacementRequest,
    LaunchTemplateTagSpecificationRequest, LaunchTemplatesMonitoringRequest,
    RequestLaunchTemplateData, ResourceType, Tag, TagSpecification, Tenancy, VolumeType,
};
use base64::Engine as _;
use mortise_core::apis::ec2nodeclass::{ConnectionTracking, Ec2NodeClassSpec, MetadataOptions};
use mortise_core::cloud::CloudError;
use mortise_core::values::Quantity;
use serde::Serialize;
use tokio::time::Instant;

use crate::api::describe::filter;
use crate::failure::Failure;
use crate::node_settings::GIB;
use crate::provider::AwsProvider;
use crate::tags;

/// How long a template is taken to exist after it was seen.
const SEEN: Duration = Duration::from_secs(5 * 60);

/// A disk, as the template has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct DiskSpec {
    device: String,
    gib: Option<i32>,
    volume_type: Option<String>,
    encrypted: Option<bool>,
    delete_on_termination: Option<bool>,
    iops: Option<i32>,
    throughput: Option<i32>,
    kms_key: Option<String>,
    snapshot: Option<String>,
    initialization_rate: Option<i32>,
}

/// A network interface, as the template has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct InterfaceSpec {
    card: i32,
    device: i32,
    /// `efa`, `efa-only`; nothing for a usual one.
    kind: Option<String>,
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
    pub(crate) prefixes: Option<i32>,
    pub(crate) monitoring: bool,
    pub(crate) metadata: MetadataOptions,
    pub(crate) tracking: Option<ConnectionTracking>,
    pub(crate) nested_virtualization: Option<String>,
    /// On hardware of one's own.
    pub(crate) dedicated: bool,
}

/// Disks of a class, or of its family when it names none.
pub(crate) fn disks(
    spec: &Ec2NodeClassSpec,
    family: crate::ami_family::AmiFamily,
) -> Vec<DiskSpec> {
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
    let disk = |each: &mortise_core::apis::ec2nodeclass::BlockDeviceMapping| {
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
        let port = |each: &mortise_core::apis::ec2nodeclass::NetworkInterface| InterfaceSpec {
            card: each.network_card_index,
            device: each.device_index,
            kind: (each.interface_type != "interface").then(|| each.interface_type.clone()),
        };
        return own.iter().map(port).collect();
    }
    let adapters = i32::try_from(fabric).unwrap_or(0);
    if adapters > 0 {
        return (0..adapters)
            .map(|card| InterfaceSpec {
                card,
                device: i32::from(card > 0),
                kind: Some("efa".to_owned()),
            })
            .collect();
    }
    vec![InterfaceSpec {
        card: 0,
        device: 0,
        kind: None,
    }]
}

impl LaunchTemplate {
    /// Its name: a hash of its contents that no build and no machine changes.
    pub(crate) fn name(&self) -> String {
        let text = serde_json::to_vec(self).unwrap_or_default(); // plain data: it has no way to fail
        let hash = text.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        format!("{}{hash}", tags::TEMPLATE_PREFIX)
    }

    fn data(&self) -> RequestLaunchTemplateData {
        let metadata = &self.metadata;
        let options = LaunchTemplateInstanceMetadataOptionsRequest::builder()
            .set_http_endpoint(
                metadata
                    .http_endpoint
                    .as_deref()
                    .map(LaunchTemplateInstanceMetadataEndpointState::from),
            )
            .set_http_protocol_ipv6(
                metadata
                    .http_protocol_ipv6
                    .as_deref()
                    .map(LaunchTemplateInstanceMetadataProtocolIpv6::from),
            )
            .set_http_put_response_hop_limit(
                metadata
                    .http_put_response_hop_limit
                    .and_then(|hops| i32::try_from(hops).ok()),
            )
            .set_http_tokens(
                metadata
                    .http_tokens
                    .as_deref()
                    .map(LaunchTemplateHttpTokensState::from),
            )
            .instance_metadata_tags(LaunchTemplateInstanceMetadataTagsState::Disabled); // our tag keys have slashes, which it refuses
        let tracking = self.tracking.as_ref().map(|tracking| {
            ConnectionTrackingSpecificationRequest::builder()
                .set_tcp_established_timeout(tracking.tcp_established_timeout)
                .set_udp_stream_timeout(tracking.udp_stream_timeout)
                .set_udp_timeout(tracking.udp_timeout)
                .build()
        });
        let port = |port: &InterfaceSpec| {
            let fabric_only = port.kind.as_deref() == Some("efa-only");
            LaunchTemplateInstanceNetworkInterfaceSpecificationRequest::builder()
                .network_card_index(port.card)
                .device_index(port.device)
                .set_interface_type(port.kind.clone())
                .set_groups(Some(self.groups.clone()))
                .set_associate_public_ip_address(self.public_address.filter(|_| !fabric_only))
                .set_ipv4_prefix_count(self.prefixes.filter(|_| !fabric_only))
                .set_connection_tracking_specification(tracking.clone().filter(|_| !fabric_only))
                .build()
        };
        let disk = |disk: &DiskSpec| {
            let ebs = LaunchTemplateEbsBlockDeviceRequest::builder()
                .set_volume_size(disk.gib)
                .set_volume_type(disk.volume_type.as_deref().map(VolumeType::from))
                .set_encrypted(disk.encrypted)
                .set_delete_on_termination(disk.delete_on_termination)
                .set_iops(disk.iops)
                .set_throughput(disk.throughput)
                .set_kms_key_id(disk.kms_key.clone())
                .set_snapshot_id(disk.snapshot.clone())
                .set_volume_initialization_rate(disk.initialization_rate);
            LaunchTemplateBlockDeviceMappingRequest::builder()
                .device_name(&disk.device)
                .ebs(ebs.build())
                .build()
        };
        let tagged = |kind: ResourceType| {
            LaunchTemplateTagSpecificationRequest::builder()
                .resource_type(kind)
                .set_tags(Some(tags(&self.tags)))
                .build()
        };
        let mut tag_specifications = vec![tagged(ResourceType::NetworkInterface)];
        if self.spot {
            tag_specifications.push(tagged(ResourceType::SpotInstancesRequest));
        }
        let encoded = base64::engine::general_purpose::STANDARD.encode(&self.user_data);
        RequestLaunchTemplateData::builder()
            .image_id(&self.image)
            .user_data(encoded)
            .set_iam_instance_profile(self.profile.as_ref().map(|name| {
                LaunchTemplateIamInstanceProfileSpecificationRequest::builder()
                    .name(name)
                    .build()
            }))
            .set_network_interfaces(Some(self.ports.iter().map(port).collect()))
            .set_block_device_mappings(
                Some(self.disks.iter().map(disk).collect())
                    .filter(|list: &Vec<_>| !list.is_empty()),
            )
            .monitoring(
                LaunchTemplatesMonitoringRequest::builder()
                    .enabled(self.monitoring)
                    .build(),
            )
            .metadata_options(options.build())
            .set_cpu_options(self.nested_virtualization.as_deref().map(|wanted| {
                LaunchTemplateCpuOptionsRequest::builder()
                    .nested_virtualization(wanted.into())
                    .build()
            }))
            .set_placement(self.dedicated.then(|| {
                LaunchTemplatePlacementRequest::builder()
                    .tenancy(Tenancy::Dedicated)
                    .build()
            }))
            .set_tag_specifications(Some(tag_specifications))
            .build()
    }
}

/// Tags as EC2 takes them.
pub(crate) fn tags(tags: &BTreeMap<String, String>) -> Vec<Tag> {
    tags.iter()
        .map(|(key, value)| Tag::builder().key(key).value(value).build())
        .collect()
}

/// Templates that were seen to exist a moment ago.
#[derive(Debug, Default)]
pub(crate) struct Templates {
    seen: Mutex<HashMap<String, Instant>>,
}

impl Templates {
    fn exists(&self, name: &str) -> bool {
        let mut seen = self.lock();
        seen.retain(|_, at| at.elapsed() < SEEN);
        seen.contains_key(name)
    }

    fn saw(&self, name: &str) {
        self.lock().insert(name.to_owned(), Instant::now());
    }

    /// Forgets all: one of them has gone.
    pub(crate) fn forget(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Instant>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AwsProvider {
    /// Makes the template unless it is there. Returns its name.
    pub(crate) async fn ensure_template(
        &self,
        template: &LaunchTemplate,
    ) -> Result<String, Failure> {
        let name = template.name();
        if self.templates.exists(&name) {
            return Ok(name);
        }
        let mut own = template.tags.clone();
        own.insert(tags::NODE_CLASS.to_owned(), template.class.clone());
        let specification = TagSpecification::builder()
            .resource_type(ResourceType::LaunchTemplate)
            .set_tags(Some(tags(&own)))
            .build();
        let call = self
            .api
            .ec2
            .create_launch_template()
            .launch_template_name(&name)
            .launch_template_data(template.data())
            .tag_specifications(specification);
        match call.send().await {
            Ok(_) => tracing::info!(
                template = name,
                class = template.class,
                "created launch template"
            ),
            Err(error) => {
                let failure = self.api.failure("ec2:CreateLaunchTemplate", error);
                if failure.code != "InvalidLaunchTemplateName.AlreadyExistsException" {
                    return Err(failure);
                }
            }
        }
        self.templates.saw(&name);
        Ok(name)
    }

    /// Deletes all templates that were made for a class. Machines do not need them once they run.
    pub(crate) async fn delete_templates(&self, class: &str) -> Result<(), CloudError> {
        let filters = vec![
            filter(
                format!("tag:{}", tags::EKS_CLUSTER),
                [&self.config.cluster_name],
            ),
            filter(format!("tag:{}", tags::NODE_CLASS), [class]),
        ];
        let mut pages = self
            .api
            .ec2
            .describe_launch_templates()
            .set_filters(Some(filters))
            .max_results(200)
            .into_paginator()
            .send();
        while let Some(page) = pages.next().await {
            let page =
                page.map_err(|error| self.api.failure("ec2:DescribeLaunchTemplates", error))?;
            for id in page
                .launch_templates()
                .iter()
                .filter_map(|each| each.launch_template_id())
            {
                match self
                    .api
                    .ec2
                    .delete_launch_template()
                    .launch_template_id(id)
                    .send()
                    .await
                {
                    Ok(_) => tracing::info!(template = id, class, "deleted launch template"),
                    Err(error) => match self.api.failure("ec2:DeleteLaunchTemplate", error) {
                        failure if failure.is_not_found() => {}
                        failure => return Err(failure.into()),
                    },
                }
            }
        }
        self.templates.forget();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ami_family::AmiFamily;
    use serde_json::json;

    fn spec(json: serde_json::Value) -> Ec2NodeClassSpec {
        serde_json::from_value(json).unwrap()
    }

    fn template() -> LaunchTemplate {
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
            monitoring: false,
            metadata: MetadataOptions::default(),
            tracking: None,
            nested_virtualization: None,
            dedicated: false,
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

    #[test]
    fn data_has_what_the_class_says() {
        let own = spec(json!({
            "blockDeviceMappings": [
                { "deviceName": "/dev/xvda", "ebs": { "volumeSize": "100G", "volumeType": "gp3", "iops": 3000, "throughput": 0 } },
                { "ebs": { "volumeSize": "1Gi" } },
            ],
        }));
        let data = LaunchTemplate {
            disks: disks(&own, AmiFamily::Al2023),
            public_address: Some(false),
            ..template()
        }
        .data();
        let [disk] = data.block_device_mappings() else {
            panic!("{:?}", data.block_device_mappings())
        };
        let ebs = disk.ebs().unwrap();
        assert_eq!(
            (ebs.volume_size(), ebs.iops(), ebs.throughput()),
            (Some(94), Some(3000), None),
            "sizes round up to whole GiB"
        );
        assert_eq!(data.user_data(), Some("eA=="), "base64");
        assert_eq!(
            data.iam_instance_profile()
                .and_then(|profile| profile.name()),
            Some("node")
        );
        let [port] = data.network_interfaces() else {
            panic!("{:?}", data.network_interfaces())
        };
        assert_eq!(
            (
                port.device_index(),
                port.groups(),
                port.associate_public_ip_address()
            ),
            (Some(0), &["sg-1".to_owned()][..], Some(false))
        );
        assert!(
            data.security_group_ids().is_empty(),
            "groups are the interface's"
        );
        let family = disks(&Ec2NodeClassSpec::default(), AmiFamily::Bottlerocket);
        assert_eq!(
            family
                .iter()
                .map(|disk| (&*disk.device, disk.gib))
                .collect::<Vec<_>>(),
            [("/dev/xvda", Some(4)), ("/dev/xvdb", Some(20))]
        );
    }

    #[test]
    fn fabric_adapters_are_spread_over_the_cards() {
        let found = ports(&Ec2NodeClassSpec::default(), 3);
        assert_eq!(
            found
                .iter()
                .map(|port| (port.card, port.device))
                .collect::<Vec<_>>(),
            [(0, 0), (1, 1), (2, 1)]
        );
        assert!(found.iter().all(|port| port.kind.as_deref() == Some("efa")));
        let own = spec(json!({ "networkInterfaces": [
            { "networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface" },
            { "networkCardIndex": 0, "deviceIndex": 1, "interfaceType": "efa-only" },
        ] }));
        let data = LaunchTemplate {
            ports: ports(&own, 8),
            public_address: Some(true),
            ..template()
        }
        .data();
        let addresses: Vec<_> = data
            .network_interfaces()
            .iter()
            .map(|port| (port.interface_type(), port.associate_public_ip_address()))
            .collect();
        assert_eq!(addresses, [(None, Some(true)), (Some("efa-only"), None)]);
    }
}
