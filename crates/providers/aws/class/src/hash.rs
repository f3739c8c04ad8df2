//! The hash of an EC2NodeClass.

use mortise_apis::hash::structure::{
    Structure, boolean, int32, int32_value, int64, list, map, text, text_pointer, text_value,
};
use mortise_apis::values::Quantity;
use serde_json::Value;

use crate::go_json;
use crate::spec::{
    BlockDevice, BlockDeviceMapping, ConnectionTracking, Ec2NodeClass, Ec2NodeClassSpec,
    MetadataOptions, NetworkInterface, PlacementGroupSelector,
};

/// Version of [`Ec2NodeClass::hash`].
pub const HASH_VERSION: &str = "v6";

impl Ec2NodeClass {
    /// The drift hash, version [`HASH_VERSION`].
    ///
    /// `ca_bundle` is the text of the cluster's certificate authority as it goes into boot data; empty when there is
    /// none. Selectors of subnets, groups, reservations and images do not count: what they resolve to has drift checks
    /// of its own.
    #[must_use]
    pub fn hash(&self, ca_bundle: &str) -> u64 {
        let kubelet = self
            .spec
            .kubelet
            .as_ref()
            .filter(|fields| !fields.is_empty());
        let kubelet = kubelet.map_or_else(
            || "null".to_owned(),
            |fields| go_json::write(&Value::Object(fields.clone())),
        );
        spec(&self.spec) ^ text(resolved_ami_family(&self.spec)) ^ text(ca_bundle) ^ text(&kubelet)
    }
}

/// The image family that is in force: the given one, else the one of an alias, else `Custom`.
#[must_use]
pub fn resolved_ami_family(spec: &Ec2NodeClassSpec) -> &str {
    if let Some(family) = spec.ami_family.as_deref() {
        return family;
    }
    let alias = spec
        .ami_selector_terms
        .iter()
        .find_map(|term| term.alias.as_deref());
    match alias.and_then(|alias| alias.split('@').next()) {
        Some("al2") => "AL2",
        Some("al2023") => "AL2023",
        Some("bottlerocket") => "Bottlerocket",
        Some("windows2019") => "Windows2019",
        Some("windows2022") => "Windows2022",
        Some("windows2025") => "Windows2025",
        Some(_) | None => "Custom",
    }
}

fn spec(spec: &Ec2NodeClassSpec) -> u64 {
    let processor = spec.cpu_options.as_ref().map(|options| {
        Structure::new("CPUOptions")
            .field(
                "NestedVirtualization",
                text_pointer(options.nested_virtualization.as_ref()),
            )
            .finish()
    });
    Structure::new("EC2NodeClassSpec")
        .field(
            "PlacementGroupSelector",
            spec.placement_group_selector.as_ref().map(placement_group),
        )
        .field(
            "AssociatePublicIPAddress",
            spec.associate_public_ip_address.map(boolean),
        )
        .field("UserData", text_pointer(spec.user_data.as_ref()))
        .field("Role", text_value(spec.role.as_deref().unwrap_or_default()))
        .field(
            "InstanceProfile",
            text_pointer(spec.instance_profile.as_ref()),
        )
        .field("Tags", spec.tags.as_ref().map(map))
        .field(
            "BlockDeviceMappings",
            spec.block_device_mappings
                .as_ref()
                .map(|disks| list(disks.iter().map(disk))),
        )
        .field(
            "InstanceStorePolicy",
            text_pointer(spec.instance_store_policy.as_ref()),
        )
        .field(
            "NetworkInterfaces",
            spec.network_interfaces
                .as_ref()
                .map(|interfaces| list(interfaces.iter().map(interface))),
        )
        .field("DetailedMonitoring", spec.detailed_monitoring.map(boolean))
        .field(
            "MetadataOptions",
            spec.metadata_options.as_ref().map(metadata_options),
        )
        .field(
            "ConnectionTracking",
            spec.connection_tracking.as_ref().map(connection_tracking),
        )
        .field("Context", text_pointer(spec.context.as_ref()))
        .field("CPUOptions", processor)
        .finish()
}

fn placement_group(selector: &PlacementGroupSelector) -> u64 {
    Structure::new("PlacementGroupSelector")
        .field(
            "Name",
            text_value(selector.name.as_deref().unwrap_or_default()),
        )
        .field("ID", text_value(selector.id.as_deref().unwrap_or_default()))
        .finish()
}

fn disk(disk: &BlockDeviceMapping) -> u64 {
    Structure::new("BlockDeviceMapping")
        .field("DeviceName", text_pointer(disk.device_name.as_ref()))
        .field("EBS", disk.ebs.as_ref().map(volume))
        .field(
            "RootVolume",
            disk.root_volume.filter(|root| *root).map(boolean),
        )
        .finish()
}

fn volume(volume: &BlockDevice) -> u64 {
    // The CRD admits a unit without a number; such a text is hashed as it is, so that a change of it is a change.
    let size = volume.volume_size.as_deref().map(|size| {
        Quantity::parse(size).map_or_else(|_| text(size), |size| text(&size.to_string()))
    });
    Structure::new("BlockDevice")
        .field(
            "DeleteOnTermination",
            volume.delete_on_termination.map(boolean),
        )
        .field("Encrypted", volume.encrypted.map(boolean))
        .field("IOPS", volume.iops.map(int64))
        .field("KMSKeyID", text_pointer(volume.kms_key_id.as_ref()))
        .field("SnapshotID", text_pointer(volume.snapshot_id.as_ref()))
        .field("Throughput", volume.throughput.map(int64))
        .field(
            "VolumeInitializationRate",
            volume.volume_initialization_rate.map(int32),
        )
        .field("VolumeSize", size)
        .field("VolumeType", text_pointer(volume.volume_type.as_ref()))
        .finish()
}

fn interface(interface: &NetworkInterface) -> u64 {
    Structure::new("NetworkInterface")
        .field(
            "NetworkCardIndex",
            int32_value(interface.network_card_index),
        )
        .field("DeviceIndex", int32_value(interface.device_index))
        .field("InterfaceType", text_value(&interface.interface_type))
        .finish()
}

fn metadata_options(options: &MetadataOptions) -> u64 {
    Structure::new("MetadataOptions")
        .field("HTTPEndpoint", text_pointer(options.http_endpoint.as_ref()))
        .field(
            "HTTPProtocolIPv6",
            text_pointer(options.http_protocol_ipv6.as_ref()),
        )
        .field(
            "HTTPPutResponseHopLimit",
            options.http_put_response_hop_limit.map(int64),
        )
        .field("HTTPTokens", text_pointer(options.http_tokens.as_ref()))
        .finish()
}

fn connection_tracking(tracking: &ConnectionTracking) -> u64 {
    Structure::new("ConnectionTracking")
        .field(
            "TCPEstablishedTimeout",
            tracking.tcp_established_timeout.map(int32),
        )
        .field("UDPStreamTimeout", tracking.udp_stream_timeout.map(int32))
        .field("UDPTimeout", tracking.udp_timeout.map(int32))
        .finish()
}
