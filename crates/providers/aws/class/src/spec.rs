//! EC2NodeClass: how instances of Amazon EC2 are launched.

use std::collections::BTreeMap;

use mortise_apis::node_class::NodeClassKind;
use mortise_apis::object;
use mortise_apis::schema::fields::rule;
use mortise_apis::schema::object::null_as_default;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::labels::GROUP;
use crate::status::Ec2NodeClassStatus;

/// Group, version, kind and plural.
pub const KIND: NodeClassKind = NodeClassKind {
    group: GROUP,
    version: "v1",
    kind: "EC2NodeClass",
    plural: "ec2nodeclasses",
};

object! {
    /// Launch settings of EC2 instances: AMIs, networks, disks, identity and user data.
    pub struct Ec2NodeClass(KIND.group, KIND.version, KIND.kind, KIND.plural, ClusterResourceScope) {
        /// What is wanted.
        pub spec as "spec": Ec2NodeClassSpec,
        /// What is.
        pub status as "status": Ec2NodeClassStatus,
    }
}

/// Desired settings of the instances.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend(
    "required" = ["amiSelectorTerms", "securityGroupSelectorTerms", "subnetSelectorTerms"],
    "x-kubernetes-validations" = spec_rules()
))]
pub struct Ec2NodeClassSpec {
    /// Subnets of the instances: those that match any of the terms.
    #[serde(deserialize_with = "null_as_default")]
    #[schemars(extend("maxItems" = 30, "x-kubernetes-validations" = [
        rule("self.size() != 0", "subnetSelectorTerms cannot be empty"),
        rule("self.all(x, has(x.tags) || has(x.id))", "expected at least one, got none, ['tags', 'id']"),
        rule(
            "!self.all(x, has(x.id) && has(x.tags))",
            "'id' is mutually exclusive, cannot be set with a combination of other fields in a subnet selector term",
        ),
    ]))]
    pub subnet_selector_terms: Vec<SubnetSelectorTerm>,
    /// Security groups of the instances: those that match any of the terms.
    #[serde(deserialize_with = "null_as_default")]
    #[schemars(extend("maxItems" = 30, "x-kubernetes-validations" = [
        rule("self.size() != 0", "securityGroupSelectorTerms cannot be empty"),
        rule(
            "self.all(x, has(x.tags) || has(x.id) || has(x.name))",
            "expected at least one, got none, ['tags', 'id', 'name']",
        ),
        rule(
            "!self.all(x, has(x.id) && (has(x.tags) || has(x.name)))",
            "'id' is mutually exclusive, cannot be set with a combination of other fields in a security group selector term",
        ),
        rule(
            "!self.all(x, has(x.name) && (has(x.tags) || has(x.id)))",
            "'name' is mutually exclusive, cannot be set with a combination of other fields in a security group selector term",
        ),
    ]))]
    pub security_group_selector_terms: Vec<SecurityGroupSelectorTerm>,
    /// Usable capacity reservations: those that match any of the terms.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxItems" = 30, "x-kubernetes-validations" = [
        rule(
            "self.all(x, has(x.tags) || has(x.id) || has(x.instanceMatchCriteria))",
            "expected at least one, got none, ['tags', 'id', 'instanceMatchCriteria']",
        ),
        rule(
            "!self.all(x, has(x.id) && (has(x.tags) || has(x.ownerID) || has(x.instanceMatchCriteria)))",
            "'id' is mutually exclusive, cannot be set along with other fields in a capacity reservation selector term",
        ),
    ]))]
    pub capacity_reservation_selector_terms: Option<Vec<CapacityReservationSelectorTerm>>,
    /// Placement group of the instances.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placement_group_selector: Option<PlacementGroupSelector>,
    /// Whether instances get a public IP address. Default is the setting of the subnet.
    #[serde(
        rename = "associatePublicIPAddress",
        skip_serializing_if = "Option::is_none"
    )]
    pub associate_public_ip_address: Option<bool>,
    /// Number of IP prefixes per network interface at launch.
    #[serde(rename = "ipPrefixCount", skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minimum" = 0))]
    pub ip_prefix_count: Option<i32>,
    /// AMIs to launch: those that match any of the terms, the newest that is compatible with the instance type.
    #[serde(deserialize_with = "null_as_default")]
    #[schemars(extend("minItems" = 1, "maxItems" = 30, "x-kubernetes-validations" = [
        rule(
            "self.all(x, has(x.tags) || has(x.id) || has(x.name) || has(x.alias) || has(x.ssmParameter))",
            "expected at least one, got none, ['tags', 'id', 'name', 'alias', 'ssmParameter']",
        ),
        rule(
            "!self.exists(x, has(x.id) && (has(x.alias) || has(x.tags) || has(x.name) || has(x.owner)))",
            "'id' is mutually exclusive, cannot be set with a combination of other fields in amiSelectorTerms",
        ),
        rule(
            "!self.exists(x, has(x.alias) && (has(x.id) || has(x.tags) || has(x.name) || has(x.owner)))",
            "'alias' is mutually exclusive, cannot be set with a combination of other fields in amiSelectorTerms",
        ),
        rule(
            "!(self.exists(x, has(x.alias)) && self.size() != 1)",
            "'alias' is mutually exclusive, cannot be set with a combination of other amiSelectorTerms",
        ),
    ]))]
    pub ami_selector_terms: Vec<AmiSelectorTerm>,
    /// Format of the user data and default disks. It is derived from an alias; with Custom the user data is not changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = AMI_FAMILIES))]
    pub ami_family: Option<String>,
    /// User data, merged with the generated user data as the AMI family requires.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_data: Option<String>,
    /// IAM role of the instances; instance profiles are created for it. Mutually exclusive with instanceProfile.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = [rule("self != ''", "role cannot be empty")]))]
    pub role: Option<String>,
    /// Instance profile of the instances, not managed by mortise. Mutually exclusive with role.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = [rule("self != ''", "instanceProfile cannot be empty")]))]
    pub instance_profile: Option<String>,
    /// Tags of all created resources: instances, volumes, network interfaces, launch templates.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = [
        rule("self.all(k, k != '')", "empty tag keys aren't supported"),
        rule("self.all(k, k !='eks:eks-cluster-name')", "tag contains a restricted tag matching eks:eks-cluster-name"),
        rule(
            "self.all(k, !k.startsWith('kubernetes.io/cluster') )",
            "tag contains a restricted tag matching kubernetes.io/cluster/",
        ),
        rule("self.all(k, k != 'karpenter.sh/nodepool')", "tag contains a restricted tag matching karpenter.sh/nodepool"),
        rule("self.all(k, k !='karpenter.sh/nodeclaim')", "tag contains a restricted tag matching karpenter.sh/nodeclaim"),
        rule(
            "self.all(k, k !='karpenter.k8s.aws/ec2nodeclass')",
            "tag contains a restricted tag matching karpenter.k8s.aws/ec2nodeclass",
        ),
    ]))]
    pub tags: Option<BTreeMap<String, String>>,
    /// Fields of the kubelet's configuration file. The AMI family determines which of them are supported.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "open_object")]
    pub kubelet: Option<Map<String, Value>>,
    /// Disks of the instances, instead of those of the AMI family.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxItems" = 50, "x-kubernetes-validations" = [rule(
        "self.filter(x, has(x.rootVolume)?x.rootVolume==true:false).size() <= 1",
        "must have only one blockDeviceMappings with rootVolume",
    )]))]
    pub block_device_mappings: Option<Vec<BlockDeviceMapping>>,
    /// Use of instance store volumes: RAID0 combines them for the kubelet and the container runtime.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["RAID0"]))]
    pub instance_store_policy: Option<String>,
    /// Network interfaces of the instances, instead of a single default interface.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxItems" = 150, "x-kubernetes-validations" = [
        rule(
            "self.size() == 0 || self.exists(x, x.deviceIndex == 0 && x.networkCardIndex == 0 && x.interfaceType == 'interface')",
            "networkInterfaces must include a primary interface with interfaceType='interface'",
        ),
        rule(
            "self.all(x, self.filter(y, x.networkCardIndex == y.networkCardIndex && x.deviceIndex == y.deviceIndex).size() == 1 && (x.interfaceType != 'efa-only' || self.filter(y, x.networkCardIndex == y.networkCardIndex && y.interfaceType == 'efa-only').size() == 1))",
            "networkInterfaces must not have duplicate networkCardIndex and deviceIndex pairs, and can have at most one efa device per network card",
        ),
    ]))]
    pub network_interfaces: Option<Vec<NetworkInterface>>,
    /// Whether detailed monitoring of the instances is enabled (additional cost).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detailed_monitoring: Option<bool>,
    /// Settings of the instance metadata service. By default session tokens are required and pods have no access.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-default" = serde_json::json!({
        "httpEndpoint": "enabled",
        "httpProtocolIPv6": "disabled",
        "httpPutResponseHopLimit": 1,
        "httpTokens": "required",
    })))]
    pub metadata_options: Option<MetadataOptions>,
    /// Timeouts of idle connections in connection tracking of the instance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connection_tracking: Option<ConnectionTracking>,
    /// Value of the Context field of CreateFleet requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// Features of the processor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_options: Option<CpuOptions>,
}

/// Values of `amiFamily`.
pub const AMI_FAMILIES: [&str; 7] = [
    "AL2",
    "AL2023",
    "Bottlerocket",
    "Custom",
    "Windows2019",
    "Windows2022",
    "Windows2025",
];

fn spec_rules() -> Value {
    let mut rules = vec![rule(
        "(has(self.role) && !has(self.instanceProfile)) || (!has(self.role) && has(self.instanceProfile))",
        "must specify exactly one of ['role', 'instanceProfile']",
    )];
    for family in AMI_FAMILIES
        .into_iter()
        .filter(|family| *family != "Custom")
    {
        let alias = family.to_lowercase();
        rules.push(rule(
            &format!(
                "!has(self.amiFamily) || (self.amiSelectorTerms.exists(x, has(x.alias) && x.alias.find('^[^@]+') == '{alias}') ? (self.amiFamily == 'Custom' || self.amiFamily == '{family}') : true)"
            ),
            &format!(
                "if set, amiFamily must be '{family}' or 'Custom' when using {} {family} alias",
                if family.starts_with('A') { "an" } else { "a" }
            ),
        ));
    }
    rules.push(rule(
        "self.amiSelectorTerms.exists(x, has(x.alias)) ? true : has(self.amiFamily)",
        "must specify amiFamily if amiSelectorTerms does not contain an alias",
    ));
    Value::Array(rules)
}

fn open_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": true,
        "additionalProperties": { "x-kubernetes-preserve-unknown-fields": true },
    })
}

fn selector_tags(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "additionalProperties": { "type": "string" },
        "maxProperties": 20,
        "x-kubernetes-validations": [
            rule("self.all(k, k != '' && self[k] != '')", "empty tag keys or values aren't supported"),
        ],
    })
}

/// Selects subnets: all fields that are set must match.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SubnetSelectorTerm {
    /// Tags of the subnet; the value `*` matches any.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "selector_tags")]
    pub tags: Option<BTreeMap<String, String>>,
    /// ID of the subnet.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = "subnet-[0-9a-z]+"))]
    pub id: Option<String>,
}

/// Selects security groups: all fields that are set must match.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SecurityGroupSelectorTerm {
    /// Tags of the group; the value `*` matches any.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "selector_tags")]
    pub tags: Option<BTreeMap<String, String>>,
    /// ID of the group.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = "sg-[0-9a-z]+"))]
    pub id: Option<String>,
    /// Name of the group, not its tag `Name`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Selects capacity reservations: all fields that are set must match.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CapacityReservationSelectorTerm {
    /// Tags of the reservation; the value `*` matches any.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "selector_tags")]
    pub tags: Option<BTreeMap<String, String>>,
    /// ID of the reservation.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = "^cr-[0-9a-z]+$"))]
    pub id: Option<String>,
    /// Account that owns the reservation.
    #[serde(rename = "ownerID", skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = "^[0-9]{12}$"))]
    pub owner_id: Option<String>,
    /// Which launches the reservation accepts: open or targeted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["open", "targeted"]))]
    pub instance_match_criteria: Option<String>,
}

/// Selects one placement group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = [
    rule("has(self.name) || has(self.id)", "expected at least one, got none, ['name', 'id']"),
    rule("!(has(self.name) && has(self.id))", "'name' and 'id' are mutually exclusive"),
]))]
pub struct PlacementGroupSelector {
    /// Name of the group.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minLength" = 1))]
    pub name: Option<String>,
    /// ID of the group.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = "^pg-[0-9a-z]+$"))]
    pub id: Option<String>,
}

/// Selects AMIs: all fields that are set must match.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AmiSelectorTerm {
    /// Family and version of an AMI published by AWS, such as al2023@latest. No other field may be set.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxLength" = 30, "x-kubernetes-validations" = [
        rule(
            "self.matches('^[a-zA-Z0-9]+@.+$')",
            "'alias' is improperly formatted, must match the format 'family@version'",
        ),
        rule(
            "self.split('@')[0] in ['al2','al2023','bottlerocket','windows2019','windows2022','windows2025']",
            "family is not supported, must be one of the following: 'al2', 'al2023', 'bottlerocket', 'windows2019', 'windows2022', 'windows2025'",
        ),
        rule(
            "self.split('@')[0] in ['windows2019','windows2022','windows2025'] ? self.split('@')[1] == 'latest' : true",
            "windows families may only specify version 'latest'",
        ),
    ]))]
    pub alias: Option<String>,
    /// Tags of the AMI; the value `*` matches any.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "selector_tags")]
    pub tags: Option<BTreeMap<String, String>>,
    /// ID of the AMI.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = "ami-[0-9a-z]+"))]
    pub id: Option<String>,
    /// Name of the AMI, not its tag `Name`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Owner of the AMI: an account ID, self, amazon or aws-marketplace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Systems Manager parameter that contains an AMI ID.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ssm_parameter: Option<String>,
}

/// One disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct BlockDeviceMapping {
    /// Name of the device, such as /dev/xvda.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_name: Option<String>,
    /// EBS volume of the device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ebs: Option<BlockDevice>,
    /// Whether this disk contains the kubelet's data; its size is the node's ephemeral storage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root_volume: Option<bool>,
}

/// One volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = [
    rule("has(self.snapshotID) || has(self.volumeSize)", "snapshotID or volumeSize must be defined"),
    rule(
        "!has(self.volumeInitializationRate) || (has(self.snapshotID) && self.snapshotID != '')",
        "snapshotID must be set when volumeInitializationRate is set",
    ),
]))]
pub struct BlockDevice {
    /// Whether the volume is deleted when the instance terminates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delete_on_termination: Option<bool>,
    /// Whether the volume is encrypted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encrypted: Option<bool>,
    /// Provisioned I/O operations per second, for volume types that support it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iops: Option<i64>,
    /// KMS key that encrypts the volume.
    #[serde(rename = "kmsKeyID", skip_serializing_if = "Option::is_none")]
    pub kms_key_id: Option<String>,
    /// Snapshot that the volume is created from.
    #[serde(rename = "snapshotID", skip_serializing_if = "Option::is_none")]
    pub snapshot_id: Option<String>,
    /// Throughput in MiB per second, for gp3.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throughput: Option<i64>,
    /// Rate of volume initialization from the snapshot, in MiB per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minimum" = 100, "maximum" = 300))]
    pub volume_initialization_rate: Option<i32>,
    /// Size of the volume, with the unit G, Gi, T or Ti.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend(
        "pattern" = "^((?:[1-9][0-9]{0,3}|[1-4][0-9]{4}|[5][0-8][0-9]{3}|59000)Gi|(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|[6][0-3][0-9]{3}|64000)G|([1-9]||[1-5][0-7]|58)Ti|([1-9]||[1-5][0-9]|6[0-3]|64)T)$"
    ))]
    pub volume_size: Option<String>,
    /// Type of the volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["standard", "io1", "io2", "gp2", "sc1", "st1", "gp3"]))]
    pub volume_type: Option<String>,
}

/// One network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["deviceIndex", "interfaceType", "networkCardIndex"]))]
pub struct NetworkInterface {
    /// Index of the network card.
    #[schemars(extend("minimum" = 0))]
    pub network_card_index: i32,
    /// Index of the device on its network card.
    #[schemars(extend("minimum" = 0))]
    pub device_index: i32,
    /// Type of the interface; efa-only interfaces have no IP address.
    #[schemars(extend("enum" = ["interface", "efa-only"]))]
    pub interface_type: String,
}

/// How the machine's metadata service behaves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MetadataOptions {
    /// Whether the metadata service is enabled.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-default" = "enabled", "enum" = ["enabled", "disabled"]))]
    pub http_endpoint: Option<String>,
    /// Whether the metadata service has an IPv6 address.
    #[serde(rename = "httpProtocolIPv6", skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-default" = "disabled", "enum" = ["enabled", "disabled"]))]
    pub http_protocol_ipv6: Option<String>,
    /// Maximum network hops of a response with a token; 1 denies access to pods without host network.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-default" = 1, "minimum" = 1, "maximum" = 64))]
    pub http_put_response_hop_limit: Option<i64>,
    /// Whether requests require a session token.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-default" = "required", "enum" = ["required", "optional"]))]
    pub http_tokens: Option<String>,
}

/// How long idle connections are remembered, in seconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = [rule(
    "has(self.tcpEstablishedTimeout) || has(self.udpStreamTimeout) || has(self.udpTimeout)",
    "at least one of tcpEstablishedTimeout, udpStreamTimeout, or udpTimeout must be set",
)]))]
pub struct ConnectionTracking {
    /// Established TCP connections.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minimum" = 60, "maximum" = 432_000))]
    pub tcp_established_timeout: Option<i32>,
    /// UDP flows with more than one exchange.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minimum" = 60, "maximum" = 180))]
    pub udp_stream_timeout: Option<i32>,
    /// UDP flows with a single exchange, or in one direction only.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minimum" = 30, "maximum" = 60))]
    pub udp_timeout: Option<i32>,
}

/// Features of the processor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CpuOptions {
    /// Whether nested virtualization is enabled.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["enabled", "disabled"]))]
    pub nested_virtualization: Option<String>,
}
