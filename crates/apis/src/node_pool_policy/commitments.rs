//! On-demand capacity that is paid for in advance, whether it is used or not: Savings Plans and Reserved Instances.

use std::sync::Arc;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::DOLLARS;
use crate::requirements::{Requirements, requirements_of};
use crate::schema::fields;
use crate::schema::object::null_as_default;
use crate::schema::requirement::RequirementSpec;
use crate::values::money::MicroUsd;
use crate::values::stated_time;

/// A percentage below 100%, with up to two decimals.
pub const DISCOUNT: &str = r"^[0-9]{1,2}([.][0-9]{1,2})?%$";

/// On-demand capacity that is paid for, whether it is used or not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend(
    "required" = ["name"],
    "x-kubernetes-validations" = [fields::rule(
        "has(self.hourlyCommitment) != has(self.instances)",
        "exactly one of 'hourlyCommitment' and 'instances' must be set",
    )]
))]
pub struct PolicyCommitment {
    /// Name of the commitment, such as m6i-savings-plan.
    #[schemars(extend("minLength" = 1, "maxLength" = 63, "pattern" = fields::LABEL_VALUE))]
    pub name: String,
    /// Requirements on the labels of instance types and zones. It pays for on-demand nodes that meet all of them, and for any without one.
    #[serde(
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "null_as_default"
    )]
    #[schemars(extend(
        "maxItems" = 20,
        "x-kubernetes-list-type" = "atomic",
        "x-kubernetes-validations" = fields::overlay_requirement_rules()
    ))]
    pub requirements: Vec<RequirementSpec>,
    /// Dollars per hour that are paid, such as "10.00": those of a Savings Plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = DOLLARS))]
    pub hourly_commitment: Option<String>,
    /// How much lower the prices are that hourlyCommitment pays than those on-demand, such as 28%. Without it they are the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = DISCOUNT))]
    pub discount: Option<String>,
    /// Instances that are paid for: Reserved Instances.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minimum" = 0))]
    pub instances: Option<i32>,
    /// When it ends, such as 2027-03-01T00:00:00Z. Without it, never.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::date_time")]
    pub until: Option<String>,
}

/// How much a commitment pays for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitmentAmount {
    /// Nodes of this on-demand price per hour together.
    OnDemandPrice(MicroUsd),
    /// This number of nodes.
    Instances(i64),
}

/// A commitment as it is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commitment {
    /// Its name, unique within its policy.
    pub name: Arc<str>,
    /// Which nodes it pays for, of those that are on-demand.
    pub requirements: Requirements,
    /// How much.
    pub amount: CommitmentAmount,
    /// When it ends; `None`: never.
    pub until: Option<Timestamp>,
}

impl PolicyCommitment {
    /// As it is read. What cannot be read pays for nothing: a typo must not launch nodes that are not paid for.
    pub(super) fn read(&self) -> Commitment {
        let until = self.until.as_deref().map(stated_time);
        let is_readable = until != Some(None);
        let amount = match self.instances {
            Some(instances) => CommitmentAmount::Instances(i64::from(instances.max(0))),
            None => CommitmentAmount::OnDemandPrice(self.on_demand_price().unwrap_or_default()),
        };
        let nothing = CommitmentAmount::Instances(0);
        Commitment {
            name: self.name.as_str().into(),
            requirements: self.labels(),
            amount: if is_readable { amount } else { nothing },
            until: until.flatten(),
        }
    }

    /// Which labels nodes must have. How many values there are to choose from does not matter: minValues are left out.
    fn labels(&self) -> Requirements {
        let specs = self.requirements.iter().cloned();
        let labels = specs.map(|spec| RequirementSpec {
            min_values: None,
            ..spec
        });
        requirements_of(&labels.collect::<Vec<_>>())
    }

    /// What the dollars per hour pay for in on-demand prices; `None` if a text cannot be read.
    fn on_demand_price(&self) -> Option<MicroUsd> {
        let paid = MicroUsd::parse_dollars(self.hourly_commitment.as_ref()?)?;
        let discount = match &self.discount {
            None => 0,
            Some(text) => hundredths_of_percent(text)?,
        };
        let all = i128::from(paid.0) * 10_000 / i128::from(10_000 - discount);
        Some(MicroUsd(i64::try_from(all).ok()?))
    }
}

/// A percentage below 100, such as 28.5%, in hundredths of a percent.
pub(crate) fn hundredths_of_percent(text: &str) -> Option<i64> {
    let number = text.strip_suffix('%')?;
    // The digits are those of an amount in dollars, of which millionths are counted.
    let millionths = MicroUsd::parse_dollars(number)?.0;
    let is_exact = millionths % 10_000 == 0;
    let hundredths = millionths / 10_000;
    (is_exact && (0..10_000).contains(&hundredths)).then_some(hundredths)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::node_pool_policy::NodePoolPolicy;

    fn amount(commitment: Value) -> CommitmentAmount {
        let commitment: PolicyCommitment = serde_json::from_value(commitment).unwrap();
        commitment.read().amount
    }

    #[test]
    fn a_commitment_pays_for_more_than_its_amount_by_its_discount() {
        let price = |micro| CommitmentAmount::OnDemandPrice(MicroUsd(micro));
        let table = [
            (json!({ "hourlyCommitment": "10" }), price(10_000_000)),
            (
                json!({ "hourlyCommitment": "7.20", "discount": "28%" }),
                price(10_000_000),
            ),
            (
                json!({ "hourlyCommitment": "10", "discount": "33.33%" }),
                price(14_999_250),
            ),
            (
                json!({ "hourlyCommitment": "1", "discount": "99.99%" }),
                price(10_000_000_000),
            ),
            (json!({ "instances": 20 }), CommitmentAmount::Instances(20)),
            // What cannot be read.
            (json!({ "instances": -1 }), CommitmentAmount::Instances(0)),
            (json!({}), price(0)),
            (json!({ "hourlyCommitment": "ten" }), price(0)),
            (
                json!({ "hourlyCommitment": "10", "discount": "100%" }),
                price(0),
            ),
            (
                json!({ "hourlyCommitment": "10", "discount": "28" }),
                price(0),
            ),
            (
                json!({ "instances": 20, "until": "next year" }),
                CommitmentAmount::Instances(0),
            ),
        ];
        for (commitment, expected) in table {
            assert_eq!(amount(commitment.clone()), expected, "{commitment}");
        }
    }

    #[test]
    fn a_policy_of_commitments_alone_leaves_its_node_pools_to_others() {
        let is_alone = |spec: Value| {
            let policy: NodePoolPolicy = serde_json::from_value(json!({ "spec": spec })).unwrap();
            policy.is_of_commitments_alone()
        };
        let paid = json!([{ "name": "a", "instances": 1 }]);
        assert!(is_alone(json!({ "nodePools": ["p"], "commitments": paid })));
        assert!(!is_alone(
            json!({ "nodePools": ["p"], "commitments": paid, "limits": { "nodes": 3 } })
        ));
        assert!(!is_alone(json!({ "nodePools": ["p"] })));
    }

    #[test]
    fn requirements_of_commitments_have_no_min_values() {
        let types = json!({ "key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m5.large"], "minValues": 1 });
        let commitment = json!({ "instances": 1, "requirements": [types] });
        let commitment: PolicyCommitment = serde_json::from_value(commitment).unwrap();
        let read = commitment.read().requirements;
        assert!(read.has_key("node.kubernetes.io/instance-type") && !read.has_min_values());
    }

    #[test]
    fn what_has_ended_pays_for_nothing() {
        let policy: NodePoolPolicy = serde_json::from_value(json!({ "spec": { "commitments": [
            { "name": "a", "instances": 1, "until": "2026-12-01T00:00:00Z" },
            { "name": "b", "instances": 1 },
        ] } }))
        .unwrap();
        let names = |now: &str| {
            let of = policy.commitments(now.parse().unwrap());
            of.map(|each| each.name.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(names("2026-11-30T23:59:59Z"), ["a", "b"]);
        assert_eq!(names("2026-12-01T00:00:00Z"), ["b"]);
    }
}
