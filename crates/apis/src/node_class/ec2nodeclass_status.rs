//! What the selectors of an EC2NodeClass resolved to.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::schema::conditions::Condition;
use crate::schema::fields;
use crate::schema::object::{is_default, null_as_default};
use crate::schema::requirement::RequirementSpec;

/// The resolved parts of the class and its conditions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Ec2NodeClassStatus {
    /// The subnets, those with the most free addresses first.
    #[serde(skip_serializing_if = "is_default")]
    pub subnets: Vec<Subnet>,
    /// The security groups, by id.
    #[serde(skip_serializing_if = "is_default")]
    pub security_groups: Vec<SecurityGroup>,
    /// The images, newest first.
    #[serde(skip_serializing_if = "is_default")]
    pub amis: Vec<Ami>,
    /// The capacity reservations, by id.
    #[serde(skip_serializing_if = "is_default")]
    pub capacity_reservations: Vec<CapacityReservation>,
    /// The instance profile of the machines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_profile: Option<String>,
    /// How the class is doing.
    #[serde(skip_serializing_if = "is_default")]
    pub conditions: Vec<Condition>,
}

/// One subnet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["id", "zone"]))]
pub struct Subnet {
    /// Id of the subnet.
    pub id: String,
    /// Name of its zone.
    pub zone: String,
    /// Id of its zone, which is the same in every account.
    #[serde(rename = "zoneID", skip_serializing_if = "Option::is_none")]
    pub zone_id: Option<String>,
}

/// One security group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["id"]))]
pub struct SecurityGroup {
    /// Id of the group.
    pub id: String,
    /// Name of the group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// One image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["id", "requirements"]))]
pub struct Ami {
    /// Id of the image.
    pub id: String,
    /// Name of the image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Whether its owner has withdrawn it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deprecated: Option<bool>,
    /// What must hold for an instance type to boot this image.
    #[serde(deserialize_with = "null_as_default")]
    #[schemars(schema_with = "ami_requirements")]
    pub requirements: Vec<RequirementSpec>,
}

fn ami_requirements(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": {
            "type": "object",
            "description": "A rule on one label.",
            "required": ["key", "operator"],
            "properties": {
                "key": { "type": "string", "description": "The label." },
                "operator": { "type": "string", "description": "How the label relates to the values." },
                "values": {
                    "type": "array",
                    "description": "The values.",
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
    /// When it ends, if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::date_time")]
    pub end_time: Option<Time>,
    /// Id of the reservation.
    #[schemars(extend("pattern" = "^cr-[0-9a-z]+$"))]
    pub id: String,
    /// Which launches it accepts: open or targeted.
    #[schemars(extend("enum" = ["open", "targeted"]))]
    pub instance_match_criteria: String,
    /// Instance type that is reserved.
    pub instance_type: String,
    /// Whether its machines can be taken back by the owner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interruptible: Option<bool>,
    /// Account that owns it.
    #[serde(rename = "ownerID")]
    #[schemars(extend("pattern" = "^[0-9]{12}$"))]
    pub owner_id: String,
    /// A usual reservation or a capacity block.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-default" = "default", "enum" = ["default", "capacity-block"]))]
    pub reservation_type: Option<String>,
    /// Whether it can be used, or is about to end.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-default" = "active", "enum" = ["active", "expiring"]))]
    pub state: Option<String>,
}
