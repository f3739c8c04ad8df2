//! The form of Terraform: resources of the AWS provider.
//!
//! # Source
//! The documentation of the AWS provider, versions 5 and 6.

use serde_json::{Value, json};

use super::document::{NODE_POLICIES, controller_policies, controller_trust, node_trust};
use super::hcl::{Block, Expression, file, raw, text};
use super::installation::{Identity, Installation};
use super::queue::{Queue, RETENTION_SECONDS, RULES};

/// `NodeLifecycle` -> `node_lifecycle`.
fn snake(name: &str) -> String {
    let mut out = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.push(letter.to_ascii_lowercase());
    }
    out
}

fn resource(kind: &str, name: &str) -> Block {
    Block::new("resource", &[kind, name])
}

fn variable(name: &str, description: &str, default: Option<&String>) -> Block {
    let block = Block::new("variable", &[name])
        .with("description", text(description))
        .with("type", raw("string"));
    match default {
        Some(default) => block.with("default", text(default)),
        None => block,
    }
}

/// What every file needs: the provider, the account, and the name of the cluster.
fn preamble(cluster: &String) -> Vec<Block> {
    let mut blocks = vec![variable(
        "cluster_name",
        "Name of the EKS cluster",
        Some(cluster),
    )];
    for name in ["aws_caller_identity", "aws_partition", "aws_region"] {
        blocks.push(Block::new("data", &[name, "current"]));
    }
    blocks
}

fn output(name: &str, value: &str) -> Block {
    Block::new("output", &[name]).with("value", raw(value))
}

impl Installation {
    /// Roles with their policies, as a configuration.
    #[must_use]
    pub fn terraform(&self) -> String {
        let mut blocks = preamble(&self.cluster);
        blocks.push(
            resource("aws_iam_role", "node")
                .with("name", text(&self.node_role))
                .with("assume_role_policy", Expression::Json(node_trust())),
        );
        for name in NODE_POLICIES {
            let arn = format!("arn:${{Partition}}:iam::aws:policy/{name}");
            blocks.push(
                resource("aws_iam_role_policy_attachment", &format!("node_{name}"))
                    .with("role", raw("aws_iam_role.node.name"))
                    .with("policy_arn", text(&arn)),
            );
        }
        let trust = controller_trust(self);
        blocks.push(
            resource("aws_iam_role", "controller")
                .with("name", text(&self.controller_role))
                .with("assume_role_policy", Expression::Json(trust)),
        );
        for policy in controller_policies(self) {
            let name = snake(&policy.part);
            blocks.push(
                resource("aws_iam_policy", &name)
                    .with("name", text(&policy.name()))
                    .with("policy", Expression::Json(policy.document)),
            );
            blocks.push(
                resource("aws_iam_role_policy_attachment", &name)
                    .with("role", raw("aws_iam_role.controller.name"))
                    .with("policy_arn", raw(format!("aws_iam_policy.{name}.arn"))),
            );
        }
        match self.identity {
            Identity::PodIdentity => blocks.push(
                resource("aws_eks_pod_identity_association", "controller")
                    .with("cluster_name", raw("var.cluster_name"))
                    .with("namespace", text(&self.namespace))
                    .with("service_account", text(&self.service_account))
                    .with("role_arn", raw("aws_iam_role.controller.arn")),
            ),
            Identity::Irsa => blocks.insert(
                1,
                variable(
                    "oidc_provider",
                    "Issuer of service account tokens, without https://",
                    self.oidc_provider.as_ref(),
                ),
            ),
        }
        blocks.push(output("controller_role_arn", "aws_iam_role.controller.arn"));
        blocks.push(output("node_role_arn", "aws_iam_role.node.arn"));
        blocks.push(output("node_role_name", "aws_iam_role.node.name"));
        file("Roles and policies of mortise", &blocks)
    }
}

impl Queue {
    /// The queue and its rules, as a configuration.
    #[must_use]
    pub fn terraform(&self) -> String {
        let mut blocks = preamble(&self.cluster);
        blocks.push(
            resource("aws_sqs_queue", "interruption")
                .with("name", text(&self.name))
                .with(
                    "message_retention_seconds",
                    Expression::Value(json!(RETENTION_SECONDS)),
                )
                .with("sqs_managed_sse_enabled", Expression::Value(json!(true))),
        );
        let arn = Value::String(format!(
            "arn:${{Partition}}:sqs:${{Region}}:${{Account}}:{}",
            self.name
        ));
        blocks.push(
            resource("aws_sqs_queue_policy", "interruption")
                .with("queue_url", raw("aws_sqs_queue.interruption.url"))
                .with("policy", Expression::Json(Self::policy(&arn))),
        );
        for rule in RULES {
            let name = snake(rule.name);
            blocks.push(
                resource("aws_cloudwatch_event_rule", &name)
                    .with("event_pattern", Expression::Json(rule.pattern())),
            );
            blocks.push(
                resource("aws_cloudwatch_event_target", &name)
                    .with(
                        "rule",
                        raw(format!("aws_cloudwatch_event_rule.{name}.name")),
                    )
                    .with("arn", raw("aws_sqs_queue.interruption.arn")),
            );
        }
        blocks.push(output("queue_name", "aws_sqs_queue.interruption.name"));
        file("Queue of interruption messages for mortise", &blocks)
    }
}
