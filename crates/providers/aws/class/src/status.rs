//! What the selectors of an EC2NodeClass resolved to.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use mortise_apis::schema::conditions::{Condition, KnownConditions, READY};
use mortise_apis::schema::fields;
use mortise_apis::schema::object::{is_default, null_as_default};
use mortise_apis::schema::requirement::RequirementSpec;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// Conditions of an EC2NodeClass while reserved capacity is in use.
pub const CONDITIONS: KnownConditions = KnownConditions {
    root: Some(READY),
    dependents: &[
        "AMIsReady",
        "SubnetsReady",
        "SecurityGroupsReady",
        "InstanceProfileReady",
        "ValidationSucceeded",
        "PlacementGroupReady",
        "CapacityReservationsReady",
    ],
};
/// Conditions of an EC2NodeClass while reserved capacity is switched off.
pub const CONDITIONS_WITHOUT_RESERVED: KnownConditions = KnownConditions {
    root: Some(READY),
    dependents: &[
        "AMIsReady",
        "SubnetsReady",
        "SecurityGroupsReady",
        "InstanceProfileReady",
        "ValidationSucceeded",
        "PlacementGroupReady",
    ],
};

/// Resolved AWS resources and conditions of the EC2NodeClass.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Ec2NodeClassStatus {
    /// Resolved subnets, most free IP addresses first.
    #[serde(skip_serializing_if = "is_default")]
    pub subnets: Vec<Subnet>,
    /// Resolved security groups, sorted by ID.
    #[serde(skip_serializing_if = "is_default")]
    pub security_groups: Vec<SecurityGroup>,
    /// Resolved AMIs, newest first.
    #[serde(skip_serializing_if = "is_default")]
    pub amis: Vec<Ami>,
    /// Resolved capacity reservations, sorted by ID.
    #[serde(skip_serializing_if = "is_default")]
    pub capacity_reservations: Vec<CapacityReservation>,
    /// Instance profile of the instances.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_profile: Option<String>,
    /// Conditions of the node class.
    #[serde(skip_serializing_if = "is_default")]
    pub conditions: Vec<Condition>,
}

/// Resolved subnet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["id", "zone"]))]
pub struct Subnet {
    /// ID of the subnet.
    pub id: String,
    /// Zone of the subnet.
    pub zone: String,
    /// Zone ID of the subnet, identical in all accounts.
    #[serde(rename = "zoneID", skip_serializing_if = "Option::is_none")]
    pub zone_id: Option<String>,
}

/// Resolved security group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["id"]))]
pub struct SecurityGroup {
    /// ID of the group.
    pub id: String,
    /// Name of the group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Resolved AMI.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["id", "requirements"]))]
pub struct Ami {
    /// ID of the AMI.
    pub id: String,
    /// Name of the AMI.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Whether the AMI is deprecated by its owner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deprecated: Option<bool>,
    /// Requirements of the AMI on the instance type.
    #[serde(deserialize_with = "null_as_default")]
    #[schemars(schema_with = "ami_requirements")]
    pub requirements: Vec<RequirementSpec>,
}

fn ami_requirements(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": {
            "type": "object",
            "description": "Requirement on one label.",
            "required": ["key", "operator"],
            "properties": {
                "key": { "type": "string", "description": "Label key." },
                "operator": { "type": "string", "description": "Operator of the requirement." },
                "values": {
                    "type": "array",
                    "description": "Values of the requirement.",
                    "x-kubernetes-list-type": "atomic",
                    "items": { "type": "string" },
                },
            },
        },
    })
}

/// One capacity reservation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend(
    "required" = ["availabilityZone", "id", "instanceMatchCriteria", "instanceType", "ownerID"]
))]
pub struct CapacityReservation {
    /// Zone of the reservation.
    pub availability_zone: String,
    /// End of the reservation, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::date_time")]
    pub end_time: Option<Time>,
    /// ID of the reservation.
    #[schemars(extend("pattern" = "^cr-[0-9a-z]+$"))]
    pub id: String,
    /// Which launches the reservation accepts: open or targeted.
    #[schemars(extend("enum" = ["open", "targeted"]))]
    pub instance_match_criteria: String,
    /// Reserved instance type.
    pub instance_type: String,
    /// Whether the owner can reclaim its instances.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interruptible: Option<bool>,
    /// Account that owns the reservation.
    #[serde(rename = "ownerID")]
    #[schemars(extend("pattern" = "^[0-9]{12}$"))]
    pub owner_id: String,
    /// Type of the reservation; capacity-block for capacity blocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-default" = "default", "enum" = ["default", "capacity-block"]))]
    pub reservation_type: Option<String>,
    /// Whether the reservation is active or about to end.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-default" = "active", "enum" = ["active", "expiring"]))]
    pub state: Option<String>,
}
