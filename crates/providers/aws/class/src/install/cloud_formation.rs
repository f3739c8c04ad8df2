//! The form of CloudFormation: templates with pseudo parameters.
//!
//! # Source
//! The CloudFormation template reference. A document whose keys have placeholders is given as text, because functions replace values only.

use serde_json::{Map, Value, json};

use super::document::{NODE_POLICIES, controller_policies, controller_trust, node_trust};
use super::installation::{Identity, Installation};
use super::queue::{Queue, RETENTION_SECONDS, RULES};
use super::template::{Placeholder, fill, fill_document};

fn mark(each: Placeholder) -> String {
    match each {
        Placeholder::Partition => "${AWS::Partition}",
        Placeholder::Region => "${AWS::Region}",
        Placeholder::Account => "${AWS::AccountId}",
        Placeholder::UrlSuffix => "${AWS::URLSuffix}",
        Placeholder::ClusterName => "${ClusterName}",
        Placeholder::OidcProvider => "${OidcProvider}",
    }
    .to_owned()
}

/// A text, with `Fn::Sub` if it needs it.
fn text(template: &str) -> Value {
    let filled = fill(template, mark);
    if filled == template && !template.contains(Placeholder::ClusterName.mark()) {
        Value::String(filled)
    } else {
        json!({ "Fn::Sub": filled })
    }
}

fn keys_have_placeholders(document: &Value) -> bool {
    match document {
        Value::Object(fields) => fields
            .iter()
            .any(|(key, value)| key.contains("${") || keys_have_placeholders(value)),
        Value::Array(items) => items.iter().any(keys_have_placeholders),
        _ => false,
    }
}

/// A policy document.
fn document(template: &Value) -> Value {
    if keys_have_placeholders(template) {
        return json!({ "Fn::Sub": format!("{:#}\n", fill_document(template, &mark)) });
    }
    match template {
        Value::String(template) => text(template),
        Value::Array(items) => items.iter().map(document).collect(),
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| (key.clone(), document(value)))
            .collect::<Map<_, _>>()
            .into(),
        other => other.clone(),
    }
}

fn parameter(description: &str, default: Option<&String>) -> Value {
    let mut parameter = json!({ "Type": "String", "Description": description });
    if let Some(default) = default {
        parameter["Default"] = json!(default);
    }
    parameter
}

fn template(description: &str, parts: [(&str, Map<String, Value>); 3]) -> Value {
    let mut template =
        json!({ "AWSTemplateFormatVersion": "2010-09-09", "Description": description });
    for (name, part) in parts {
        template[name] = part.into();
    }
    template
}

fn map<const N: usize>(entries: [(&str, Value); N]) -> Map<String, Value> {
    entries
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value))
        .collect()
}

fn arn(resource: &str) -> Value {
    json!({ "Fn::GetAtt": [resource, "Arn"] })
}

impl Installation {
    /// Roles with their policies, as a template.
    #[must_use]
    pub fn cloud_formation(&self) -> Value {
        let managed =
            NODE_POLICIES.map(|name| text(&format!("arn:${{Partition}}:iam::aws:policy/{name}")));
        let mut resources = map([(
            "NodeRole",
            json!({ "Type": "AWS::IAM::Role", "Properties": {
                "RoleName": text(&self.node_role),
                "AssumeRolePolicyDocument": document(&node_trust()),
                "ManagedPolicyArns": managed,
            } }),
        )]);
        let mut attached = Vec::new();
        for policy in controller_policies(self) {
            let name = format!("{}Policy", policy.part);
            attached.push(json!({ "Ref": name }));
            let resource = json!({ "Type": "AWS::IAM::ManagedPolicy", "Properties": {
                "ManagedPolicyName": text(&policy.name()),
                "PolicyDocument": document(&policy.document),
            } });
            resources.insert(name, resource);
        }
        let controller = json!({ "Type": "AWS::IAM::Role", "Properties": {
            "RoleName": text(&self.controller_role),
            "AssumeRolePolicyDocument": document(&controller_trust(self)),
            "ManagedPolicyArns": attached,
        } });
        resources.insert("ControllerRole".to_owned(), controller);
        let mut parameters = map([(
            "ClusterName",
            parameter("Name of the EKS cluster", Some(&self.cluster)),
        )]);
        match self.identity {
            Identity::PodIdentity => {
                let association = json!({ "Type": "AWS::EKS::PodIdentityAssociation", "Properties": {
                    "ClusterName": { "Ref": "ClusterName" },
                    "Namespace": self.namespace,
                    "ServiceAccount": self.service_account,
                    "RoleArn": arn("ControllerRole"),
                } });
                resources.insert("PodIdentityAssociation".to_owned(), association);
            }
            Identity::Irsa => {
                let issuer = parameter(
                    "Issuer of service account tokens, without https://",
                    self.oidc_provider.as_ref(),
                );
                parameters.insert("OidcProvider".to_owned(), issuer);
            }
        }
        template(
            "Roles and policies of mortise",
            [
                ("Parameters", parameters),
                ("Resources", resources),
                (
                    "Outputs",
                    map([
                        (
                            "ControllerRoleArn",
                            json!({ "Value": arn("ControllerRole") }),
                        ),
                        ("NodeRoleArn", json!({ "Value": arn("NodeRole") })),
                        ("NodeRoleName", json!({ "Value": { "Ref": "NodeRole" } })),
                    ]),
                ),
            ],
        )
    }
}

impl Queue {
    /// The queue and its rules, as a template.
    #[must_use]
    pub fn cloud_formation(&self) -> Value {
        let target = arn("Queue");
        let policy = Self::policy(&Value::Null);
        let mut policy = document(&policy);
        if let Some(statements) = policy["Statement"].as_array_mut() {
            for statement in statements {
                statement["Resource"] = target.clone();
            }
        }
        let mut resources = map([
            (
                "Queue",
                json!({ "Type": "AWS::SQS::Queue", "Properties": {
                    "QueueName": text(&self.name),
                    "MessageRetentionPeriod": RETENTION_SECONDS,
                    "SqsManagedSseEnabled": true,
                } }),
            ),
            (
                "QueuePolicy",
                json!({ "Type": "AWS::SQS::QueuePolicy", "Properties": {
                    "Queues": [{ "Ref": "Queue" }],
                    "PolicyDocument": policy,
                } }),
            ),
        ]);
        for rule in RULES {
            let resource = json!({ "Type": "AWS::Events::Rule", "Properties": {
                "EventPattern": rule.pattern(),
                "Targets": [{ "Id": "Queue", "Arn": target }],
            } });
            resources.insert(format!("{}Rule", rule.name), resource);
        }
        let name = json!({ "Fn::GetAtt": ["Queue", "QueueName"] });
        template(
            "Queue of interruption messages for mortise",
            [
                (
                    "Parameters",
                    map([(
                        "ClusterName",
                        parameter("Name of the EKS cluster", Some(&self.cluster)),
                    )]),
                ),
                ("Resources", resources),
                ("Outputs", map([("QueueName", json!({ "Value": name }))])),
            ],
        )
    }
}
