//! Contents of a launch template as EC2 takes them. Pure.

use aws_sdk_ec2::types::{
    CapacityReservationPreference, CapacityReservationTarget,
    ConnectionTrackingSpecificationRequest, LaunchTemplateBlockDeviceMappingRequest,
    LaunchTemplateCapacityReservationSpecificationRequest, LaunchTemplateCpuOptionsRequest,
    LaunchTemplateEbsBlockDeviceRequest, LaunchTemplateEnclaveOptionsRequest,
    LaunchTemplateHttpTokensState, LaunchTemplateIamInstanceProfileSpecificationRequest,
    LaunchTemplateInstanceMarketOptionsRequest, LaunchTemplateInstanceMetadataEndpointState,
    LaunchTemplateInstanceMetadataOptionsRequest, LaunchTemplateInstanceMetadataProtocolIpv6,
    LaunchTemplateInstanceMetadataTagsState,
    LaunchTemplateInstanceNetworkInterfaceSpecificationRequest, LaunchTemplatePlacementRequest,
    LaunchTemplateTagSpecificationRequest, LaunchTemplatesMonitoringRequest, MarketType,
    RequestLaunchTemplateData, ResourceType, Tenancy, VolumeType,
};
use base64::Engine as _;
use mortise_aws_class::spec::{ConnectionTracking, MetadataOptions};

use crate::launch::template::{DiskSpec, InterfaceSpec, LaunchTemplate, ReservationTarget};
use crate::sdk::arguments::ec2_tags;

/// The argument of CreateLaunchTemplate.
pub(crate) fn template_data(template: &LaunchTemplate) -> RequestLaunchTemplateData {
    let interfaces = template.ports.iter().map(|port| interface(template, port));
    let disks: Vec<_> = template.disks.iter().map(disk).collect();
    let encoded = base64::engine::general_purpose::STANDARD.encode(&template.user_data);
    RequestLaunchTemplateData::builder()
        .image_id(&template.image)
        .user_data(encoded)
        .set_iam_instance_profile(template.profile.as_ref().map(|name| {
            LaunchTemplateIamInstanceProfileSpecificationRequest::builder()
                .name(name)
                .build()
        }))
        .set_network_interfaces(Some(interfaces.collect()))
        .set_block_device_mappings(Some(disks).filter(|list| !list.is_empty()))
        .monitoring(
            LaunchTemplatesMonitoringRequest::builder()
                .enabled(template.monitoring)
                .build(),
        )
        .metadata_options(metadata_options(&template.metadata))
        .set_cpu_options(template.nested_virtualization.as_deref().map(|wanted| {
            LaunchTemplateCpuOptionsRequest::builder()
                .nested_virtualization(wanted.into())
                .build()
        }))
        .placement(placement(template))
        .enclave_options(
            LaunchTemplateEnclaveOptionsRequest::builder()
                .enabled(template.enclaves)
                .build(),
        )
        .set_capacity_reservation_specification(
            template.reservation.as_ref().map(capacity_reservation),
        )
        .set_instance_market_options(template.reservation.as_ref().and_then(market))
        .set_tag_specifications(Some(tag_specifications(template)))
        .build()
}

fn placement(template: &LaunchTemplate) -> LaunchTemplatePlacementRequest {
    let tenancy = if template.dedicated {
        Tenancy::Dedicated
    } else {
        Tenancy::Default
    };
    LaunchTemplatePlacementRequest::builder()
        .tenancy(tenancy)
        .set_group_id(template.placement_group.clone())
        .set_partition_number(template.partition)
        .build()
}

fn capacity_reservation(
    target: &ReservationTarget,
) -> LaunchTemplateCapacityReservationSpecificationRequest {
    let preference = if target.id.is_some() {
        CapacityReservationPreference::CapacityReservationsOnly
    } else {
        CapacityReservationPreference::None
    };
    LaunchTemplateCapacityReservationSpecificationRequest::builder()
        .capacity_reservation_preference(preference)
        .set_capacity_reservation_target(target.id.as_ref().map(|id| {
            CapacityReservationTarget::builder()
                .capacity_reservation_id(id)
                .build()
        }))
        .build()
}

fn market(target: &ReservationTarget) -> Option<LaunchTemplateInstanceMarketOptionsRequest> {
    let market = MarketType::from(target.market?);
    let options = LaunchTemplateInstanceMarketOptionsRequest::builder();
    Some(options.market_type(market).build())
}

fn metadata_options(metadata: &MetadataOptions) -> LaunchTemplateInstanceMetadataOptionsRequest {
    LaunchTemplateInstanceMetadataOptionsRequest::builder()
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
        .instance_metadata_tags(LaunchTemplateInstanceMetadataTagsState::Disabled) // our tag keys have slashes, which it refuses
        .build()
}

fn connection_tracking(tracking: &ConnectionTracking) -> ConnectionTrackingSpecificationRequest {
    ConnectionTrackingSpecificationRequest::builder()
        .set_tcp_established_timeout(tracking.tcp_established_timeout)
        .set_udp_stream_timeout(tracking.udp_stream_timeout)
        .set_udp_timeout(tracking.udp_timeout)
        .build()
}

/// An interface with what the template says about all of them. One for the elastic fabric alone has no addresses.
fn interface(
    template: &LaunchTemplate,
    port: &InterfaceSpec,
) -> LaunchTemplateInstanceNetworkInterfaceSpecificationRequest {
    let has_addresses = port.kind.as_deref() != Some("efa-only");
    let tracking = template.tracking.as_ref().map(connection_tracking);
    let prefixes = template.prefixes.filter(|_| has_addresses);
    let ipv6 = template.ipv6 && has_addresses;
    LaunchTemplateInstanceNetworkInterfaceSpecificationRequest::builder()
        .set_network_card_index(port.card)
        .device_index(port.device)
        .set_interface_type(port.kind.clone())
        .set_groups(Some(template.groups.clone()))
        .set_associate_public_ip_address(template.public_address.filter(|_| has_addresses))
        .set_ipv4_prefix_count(prefixes.filter(|_| !template.ipv6))
        .set_ipv6_prefix_count(prefixes.filter(|_| template.ipv6))
        .set_primary_ipv6(ipv6.then_some(true))
        .set_ipv6_address_count(ipv6.then_some(1))
        .set_connection_tracking_specification(tracking.filter(|_| has_addresses))
        .build()
}

fn disk(disk: &DiskSpec) -> LaunchTemplateBlockDeviceMappingRequest {
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
}

/// Tags of what an instance brings with it, apart from what the fleet request tags.
fn tag_specifications(template: &LaunchTemplate) -> Vec<LaunchTemplateTagSpecificationRequest> {
    let spot = template.spot.then_some(ResourceType::SpotInstancesRequest);
    let kinds = [ResourceType::NetworkInterface].into_iter().chain(spot);
    kinds
        .map(|kind| {
            LaunchTemplateTagSpecificationRequest::builder()
                .resource_type(kind)
                .set_tags(Some(ec2_tags(&template.tags)))
                .build()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use mortise_aws_class::spec::Ec2NodeClassSpec;
    use serde_json::json;

    use super::*;
    use crate::launch::template::tests::template;
    use crate::launch::template::{disks, ports};
    use mortise_aws_catalog::ami_family::AmiFamily;

    fn spec(json: serde_json::Value) -> Ec2NodeClassSpec {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn data_has_what_the_class_says() {
        let own = spec(json!({
            "blockDeviceMappings": [
                { "deviceName": "/dev/xvda", "ebs": { "volumeSize": "100G", "volumeType": "gp3", "iops": 3000, "throughput": 0 } },
                { "ebs": { "volumeSize": "1Gi" } },
            ],
        }));
        let data = template_data(&LaunchTemplate {
            disks: disks(&own, AmiFamily::Al2023),
            public_address: Some(false),
            ..template()
        });
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
            [(Some(0), 0), (Some(1), 1), (Some(2), 1)]
        );
        assert!(found.iter().all(|port| port.kind.as_deref() == Some("efa")));
        let own = spec(json!({ "networkInterfaces": [
            { "networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface" },
            { "networkCardIndex": 0, "deviceIndex": 1, "interfaceType": "efa-only" },
        ] }));
        let data = template_data(&LaunchTemplate {
            ports: ports(&own, 8),
            public_address: Some(true),
            ..template()
        });
        let addresses: Vec<_> = data
            .network_interfaces()
            .iter()
            .map(|port| (port.interface_type(), port.associate_public_ip_address()))
            .collect();
        assert_eq!(
            addresses,
            [(Some("interface"), Some(true)), (Some("efa-only"), None)]
        );
    }
}
