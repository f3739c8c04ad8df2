//! The queue of interruption messages, and the rules that fill it.

use serde_json::{Value, json};

use super::installation::{InvalidOption, check_cluster, check_queue};
use super::template::Placeholder;

/// Which events go to the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventRule {
    /// Name of the rule: unique, letters only.
    pub name: &'static str,
    /// `source` of the events.
    pub source: &'static str,
    /// `detail-type` of the events.
    pub detail_type: &'static str,
}

impl EventRule {
    /// The pattern of EventBridge that selects these events.
    pub(super) fn pattern(&self) -> Value {
        json!({ "source": [self.source], "detail-type": [self.detail_type] })
    }
}

const fn of_ec2(name: &'static str, detail_type: &'static str) -> EventRule {
    EventRule {
        name,
        source: "aws.ec2",
        detail_type,
    }
}

/// The events that announce the end of an instance.
pub const RULES: [EventRule; 5] = [
    EventRule {
        name: "ScheduledChange",
        source: "aws.health",
        detail_type: "AWS Health Event",
    },
    of_ec2("SpotInterruption", "EC2 Spot Instance Interruption Warning"),
    of_ec2("Rebalance", "EC2 Instance Rebalance Recommendation"),
    of_ec2("StateChange", "EC2 Instance State-change Notification"),
    of_ec2(
        "ReservationInterruption",
        "EC2 Capacity Reservation Instance Interruption Warning",
    ),
];

/// Seconds that a message is kept: a warning of two minutes is of no use afterwards.
pub(super) const RETENTION_SECONDS: u32 = 300;

/// A queue that is to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Name of the cluster; a default where the form has parameters.
    pub cluster: String,
    /// Name of the queue; may contain `${ClusterName}`.
    pub name: String,
}

impl Queue {
    /// Whether the account accepts the names.
    /// # Errors
    /// The first that it does not, with what is allowed.
    pub fn check(&self) -> Result<(), InvalidOption> {
        check_cluster(&self.cluster)?;
        let mark = Placeholder::ClusterName.mark();
        check_queue(&self.name.replace(mark, &self.cluster))
    }

    /// Who may send: rules of this account; and no one may do anything without TLS. `arn` is the queue's.
    pub(super) fn policy(arn: &Value) -> Value {
        let rules = "arn:${Partition}:events:${Region}:${Account}:rule/*";
        json!({
            "Version": "2012-10-17",
            "Statement": [
                {
                    "Sid": "RulesMaySend",
                    "Effect": "Allow",
                    "Principal": { "Service": "events.amazonaws.com" },
                    "Action": "sqs:SendMessage",
                    "Resource": arn,
                    "Condition": { "ArnLike": { "aws:SourceArn": rules } },
                },
                {
                    "Sid": "RefuseWithoutTls",
                    "Effect": "Deny",
                    "Principal": "*",
                    "Action": "sqs:*",
                    "Resource": arn,
                    "Condition": { "Bool": { "aws:SecureTransport": "false" } },
                },
            ],
        })
    }
}
