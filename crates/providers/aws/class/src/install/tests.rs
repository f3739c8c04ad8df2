//! The tables are those of the provider's sources, and the three forms say the same.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use hcl_edit::expr::{Expression, ObjectKey};
use hcl_edit::structure::{Block, Structure};
use hcl_edit::template::Element;
use serde_json::{Map, Value, json};

use super::document::{controller_policies, size};
use super::*;

fn installation() -> Installation {
    Installation {
        cluster: "blue".to_owned(),
        node_role: "KarpenterNodeRole-${ClusterName}".to_owned(),
        controller_role: "MortiseController-${ClusterName}".to_owned(),
        queue: Some("${ClusterName}".to_owned()),
        namespace: "kube-system".to_owned(),
        service_account: "mortise".to_owned(),
        identity: Identity::PodIdentity,
        oidc_provider: None,
        isolated_vpc: false,
        zonal_shift: true,
        parameters: vec!["/golden/*".to_owned()],
    }
}

fn account() -> AccountFacts {
    AccountFacts {
        region: "cn-north-1".to_owned(),
        account: "123456789012".to_owned(),
    }
}

/// Installations that differ in everything that changes documents.
fn variants() -> Vec<Installation> {
    let irsa = Installation {
        identity: Identity::Irsa,
        oidc_provider: Some("oidc.eks.cn-north-1.amazonaws.com.cn/id/ABC".to_owned()),
        ..installation()
    };
    let small = Installation {
        queue: None,
        isolated_vpc: true,
        zonal_shift: false,
        parameters: Vec::new(),
        node_role: "nodes".to_owned(),
        ..installation()
    };
    vec![installation(), irsa, small]
}

fn sources(folder: &Path, all: &mut Vec<(PathBuf, String)>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let is_of_tests = path.ends_with("facts") || path.ends_with("tests.rs");
        if path.is_dir() && !is_of_tests {
            sources(&path, all);
        } else if path.extension().is_some_and(|end| end == "rs") && !is_of_tests {
            let text = std::fs::read_to_string(&path).unwrap();
            let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
            all.push((path, code.to_owned()));
        }
    }
}

fn provider_sources() -> Vec<(PathBuf, String)> {
    let mut all = Vec::new();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../src");
    sources(&folder, &mut all);
    assert!(all.len() > 20, "{} sources", all.len());
    all
}

/// `service:Action` in the text literals of a source.
fn actions(code: &str) -> impl Iterator<Item = &str> {
    code.split('"').skip(1).step_by(2).filter(|literal| {
        literal.split_once(':').is_some_and(|(service, action)| {
            let services = [
                "arc-zonal-shift",
                "ec2",
                "eks",
                "iam",
                "pricing",
                "sqs",
                "ssm",
                "sts",
            ];
            services.contains(&service)
                && action.starts_with(|first: char| first.is_ascii_uppercase())
                && action.chars().all(|letter| letter.is_ascii_alphanumeric())
        })
    })
}

/// An action that IAM knows by another name than the call has.
fn granted_as(action: &str) -> &str {
    match action {
        "sqs:DeleteMessageBatch" => "sqs:DeleteMessage",
        other => other,
    }
}

#[test]
fn what_the_provider_calls_is_granted_and_nothing_else() {
    let all = provider_sources();
    let called: BTreeSet<&str> = all
        .iter()
        .flat_map(|(_, code)| actions(code))
        .map(granted_as)
        .collect();
    let granted: BTreeSet<&str> = GRANTS
        .iter()
        .flat_map(|each| each.actions)
        .copied()
        .collect();
    let missing: Vec<_> = called.difference(&granted).collect();
    assert!(missing.is_empty(), "called and not granted: {missing:?}");
    let known = IMPLIED.iter().map(|(action, _)| *action);
    let explained: BTreeSet<&str> = called.iter().copied().chain(known).collect();
    let superfluous: Vec<_> = granted.difference(&explained).collect();
    assert!(
        superfluous.is_empty(),
        "granted and not called: {superfluous:?}"
    );
}

/// A call whose failure has no action, or another one, would be missing above.
#[test]
fn every_call_of_the_sdk_is_named_by_an_action() {
    let snake = |action: &str| {
        let mut out = String::new();
        for letter in action.chars() {
            if letter.is_ascii_uppercase() && !out.is_empty() {
                out.push('_');
            }
            out.push(letter.to_ascii_lowercase());
        }
        out
    };
    let all = provider_sources();
    let called: BTreeSet<String> = all
        .iter()
        .flat_map(|(_, code)| actions(code))
        .filter_map(|action| Some(snake(action.split_once(':')?.1)))
        .collect();
    let mut calls = 0;
    for (path, code) in &all {
        let joined: String = code.split_whitespace().collect();
        for client in ["ec2", "eks", "iam", "pricing", "sqs", "ssm", "zonal_shift"] {
            for part in joined.split(&format!("clients.{client}.")).skip(1) {
                let call = part.split(['(', '.', ';', ')', ',']).next().unwrap();
                calls += 1;
                assert!(
                    called.contains(call),
                    "{}: {client}.{call} is called, and no failure is named after it",
                    path.display()
                );
            }
        }
    }
    assert!(calls >= 10, "{calls} calls");
}

#[test]
fn events_of_the_rules_are_those_that_are_read() {
    let all = provider_sources();
    let read: String = all
        .iter()
        .filter(|(path, _)| {
            path.components()
                .any(|part| part.as_os_str() == "interruption")
        })
        .map(|(_, code)| &**code)
        .collect();
    for rule in RULES {
        assert!(read.contains(&format!("\"{}\"", rule.source)), "{rule:?}");
        assert!(
            read.contains(&format!("\"{}\"", rule.detail_type)),
            "{rule:?}"
        );
    }
    assert_eq!(
        read.matches("\"EC2 ").count(),
        4,
        "an event that no rule sends"
    );
}

#[test]
fn policies_stay_below_the_limit_with_the_longest_names() {
    let longest = Installation {
        node_role: "r".repeat(64),
        queue: Some("q".repeat(80)),
        parameters: vec![format!("/{}", "p".repeat(999)); 3],
        ..installation()
    };
    longest.check().unwrap();
    let policies = controller_policies(&longest);
    let mut names = BTreeSet::new();
    for policy in &policies {
        assert!(size(&policy.document) <= SIZE_LIMIT, "{}", policy.part);
        assert!(names.insert(policy.part.clone()), "{} twice", policy.part);
        assert!(policy.name().len() - "${ClusterName}".len() + 100 <= 128);
        let mut sids = BTreeSet::new();
        for statement in policy.document["Statement"].as_array().unwrap() {
            let sid = statement["Sid"].as_str().unwrap();
            assert!(
                sid.chars().all(|each| each.is_ascii_alphanumeric()),
                "{sid}"
            );
            assert!(sids.insert(sid.to_owned()), "{sid} twice");
        }
    }
    // The number of managed policies of a role that needs no request to Amazon.
    assert!(policies.len() <= 10, "{names:?}");
}

#[test]
fn what_is_switched_off_is_not_granted() {
    let [full, _, small] = &variants()[..] else {
        panic!("three variants")
    };
    let text = |each: &Installation| plain(each, &account()).unwrap().to_string();
    for action in [
        "sqs:",
        "arc-zonal-shift:",
        "pricing:",
        "iam:CreateInstanceProfile",
    ] {
        assert!(text(full).contains(action), "{action}");
        assert!(!text(small).contains(action), "{action}");
    }
    assert!(text(small).contains("iam:PassRole"));
}

#[test]
fn names_that_no_account_accepts_are_refused_with_what_is_allowed() {
    type Spoil = fn(&mut Installation);
    let cases: [(&str, Spoil); 8] = [
        ("--cluster-name", |each| each.cluster = "-x".to_owned()),
        ("--cluster-name", |each| each.cluster = "x".repeat(101)),
        ("--node-role", |each| each.cluster = "x".repeat(60)),
        ("--controller-role", |each| {
            each.controller_role = "a b".to_owned()
        }),
        ("--interruption-queue", |each| {
            each.queue = Some("a.b".to_owned())
        }),
        ("--namespace", |each| each.namespace = "-".to_owned()),
        ("--ssm-parameter", |each| {
            each.parameters = vec!["golden".to_owned()]
        }),
        ("--oidc-provider", |each| {
            each.oidc_provider = Some("https://x".to_owned())
        }),
    ];
    for (option, spoil) in cases {
        let mut spoilt = installation();
        spoil(&mut spoilt);
        let error = spoilt.check().unwrap_err();
        assert_eq!(error.option, option, "{error}");
        assert!(error.to_string().starts_with(option) && !error.allowed.is_empty());
    }
    for wrong in [("us", "123456789012"), ("us-east-1", "12345678901x")] {
        let account = AccountFacts {
            region: wrong.0.to_owned(),
            account: wrong.1.to_owned(),
        };
        plain(&installation(), &account).unwrap_err();
    }
    let irsa = Installation {
        identity: Identity::Irsa,
        ..installation()
    };
    assert_eq!(
        plain(&irsa, &account()).unwrap_err().option,
        "--oidc-provider"
    );
}

// The form of CloudFormation, evaluated.

fn pseudo(installation: &Installation, text: &str) -> String {
    let issuer = installation.oidc_provider.clone().unwrap_or_default();
    let values = [
        ("${AWS::Partition}", "aws-cn"),
        ("${AWS::Region}", "cn-north-1"),
        ("${AWS::AccountId}", "123456789012"),
        ("${AWS::URLSuffix}", "amazonaws.com.cn"),
        ("${ClusterName}", &installation.cluster),
        ("${OidcProvider}", &issuer),
    ];
    let text = values.iter().fold(text.to_owned(), |text, (mark, value)| {
        text.replace(mark, value)
    });
    assert!(!text.contains("${"), "{text}");
    text
}

/// What CloudFormation makes of a value; references to resources become their names.
fn evaluated(installation: &Installation, value: &Value) -> Value {
    match value {
        Value::Object(fields) => match fields.iter().next() {
            Some((name, text)) if name == "Fn::Sub" => {
                assert_eq!(fields.len(), 1);
                Value::String(pseudo(installation, text.as_str().unwrap()))
            }
            Some((name, target)) if name == "Ref" => target.clone(),
            Some((name, target)) if name == "Fn::GetAtt" => target[0].clone(),
            _ => fields
                .iter()
                .map(|(key, each)| (key.clone(), evaluated(installation, each)))
                .collect::<Map<_, _>>()
                .into(),
        },
        Value::Array(items) => items
            .iter()
            .map(|each| evaluated(installation, each))
            .collect(),
        other => other.clone(),
    }
}

/// A policy document, whether given as an object or as text.
fn read(document: &Value) -> Value {
    match document {
        Value::String(text) => serde_json::from_str(text).unwrap(),
        other => other.clone(),
    }
}

/// References of a template that lead to nothing.
fn broken(template: &Value) -> Vec<String> {
    fn walk(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                for (name, target) in fields {
                    match name.as_str() {
                        "Ref" => found.push(target.as_str().unwrap().to_owned()),
                        "Fn::GetAtt" => found.push(target[0].as_str().unwrap().to_owned()),
                        _ => walk(target, found),
                    }
                }
            }
            Value::Array(items) => items.iter().for_each(|each| walk(each, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    walk(template, &mut found);
    assert!(!found.is_empty());
    let exists = |name: &String| {
        ["Resources", "Parameters"]
            .iter()
            .any(|part| template[part].get(name).is_some())
    };
    found.into_iter().filter(|name| !exists(name)).collect()
}

#[test]
fn the_template_says_what_the_plain_form_says() {
    for each in variants() {
        let plain = plain(&each, &account()).unwrap();
        let template = each.cloud_formation();
        assert_eq!(broken(&template), [""; 0]);
        assert_eq!(template["Parameters"]["ClusterName"]["Default"], "blue");
        let resources = evaluated(&each, &template["Resources"]);
        let role = |name: &str| &resources[name]["Properties"];
        assert_eq!(role("NodeRole")["RoleName"], plain["nodeRole"]["name"]);
        assert_eq!(
            role("NodeRole")["ManagedPolicyArns"],
            plain["nodeRole"]["managedPolicies"]
        );
        assert_eq!(
            read(&role("NodeRole")["AssumeRolePolicyDocument"]),
            plain["nodeRole"]["trustPolicy"]
        );
        assert_eq!(
            read(&role("ControllerRole")["AssumeRolePolicyDocument"]),
            plain["controllerRole"]["trustPolicy"]
        );
        let attached = role("ControllerRole")["ManagedPolicyArns"]
            .as_array()
            .unwrap();
        let policies: Vec<Value> = attached
            .iter()
            .map(|name| {
                let policy = &resources[name.as_str().unwrap()];
                assert_eq!(policy["Type"], "AWS::IAM::ManagedPolicy");
                let properties = &policy["Properties"];
                json!({ "name": properties["ManagedPolicyName"], "document": read(&properties["PolicyDocument"]) })
            })
            .collect();
        assert_eq!(json!(policies), plain["controllerRole"]["policies"]);
    }
}

// The form of Terraform, parsed and evaluated.

fn reference(installation: &Installation, name: &str) -> Option<String> {
    Some(match name {
        "data.aws_partition.current.partition" => "aws-cn".to_owned(),
        "data.aws_partition.current.dns_suffix" => "amazonaws.com.cn".to_owned(),
        "data.aws_region.current.id" => "cn-north-1".to_owned(),
        "data.aws_caller_identity.current.account_id" => "123456789012".to_owned(),
        "var.cluster_name" => installation.cluster.clone(),
        "var.oidc_provider" => installation.oidc_provider.clone()?,
        _ => return None,
    })
}

fn value(installation: &Installation, expression: &Expression) -> Value {
    let of = |each: &Expression| value(installation, each);
    match expression {
        Expression::String(text) => Value::String(text.value().clone()),
        Expression::Bool(it) => Value::Bool(*it.value()),
        Expression::Number(number) => number.value().as_i64().unwrap().into(),
        Expression::Array(items) => items.iter().map(of).collect(),
        Expression::Object(fields) => {
            let fields = fields.iter().map(|(key, each)| {
                let key = match key {
                    ObjectKey::Ident(name) => name.to_string().trim().to_owned(),
                    ObjectKey::Expression(key) => of(key).as_str().unwrap().to_owned(),
                };
                (key, of(each.expr()))
            });
            fields.collect::<Map<_, _>>().into()
        }
        Expression::StringTemplate(parts) => {
            let parts = parts.iter().map(|part| match part {
                Element::Literal(text) => text.to_string(),
                Element::Interpolation(inner) => of(&inner.expr).as_str().unwrap().to_owned(),
                Element::Directive(_) => panic!("no directives are written"),
            });
            Value::String(parts.collect())
        }
        Expression::FuncCall(call) => {
            assert_eq!(call.name.name.to_string().trim(), "jsonencode");
            of(call.args.get(0).unwrap())
        }
        Expression::Traversal(_) => {
            let name = expression.to_string().trim().to_owned();
            // References to resources stay as they are.
            Value::String(reference(installation, &name).unwrap_or(name))
        }
        other => panic!("{other:?}"),
    }
}

/// Attributes of every block, by its labels.
fn blocks(installation: &Installation, text: &str) -> BTreeMap<String, Value> {
    let body = hcl_edit::parser::parse_body(text).unwrap();
    let named = |block: &Block| {
        let labels = block.labels.iter().map(|label| label.as_str().to_owned());
        let kind = block.ident.to_string().trim().to_owned();
        let all: Vec<String> = std::iter::once(kind).chain(labels).collect();
        all.join(".")
    };
    let mut found: BTreeMap<String, Value> = BTreeMap::new();
    for structure in &body {
        let Structure::Block(block) = structure else {
            panic!("{structure:?}")
        };
        let attributes = block.body.iter().map(|each| {
            let Structure::Attribute(attribute) = each else {
                panic!("{each:?}")
            };
            let name = attribute.key.to_string().trim().to_owned();
            if name == "type" {
                return (name, Value::String(attribute.value.to_string()));
            }
            (name, value(installation, &attribute.value))
        });
        let attributes: Map<String, Value> = attributes.collect();
        assert!(found.insert(named(block), attributes.into()).is_none());
    }
    // Every reference leads to a resource of the file.
    for attributes in found.values() {
        let texts = attributes.as_object().unwrap().values();
        for name in texts
            .filter_map(Value::as_str)
            .filter(|text| text.starts_with("aws_"))
        {
            let mut parts = name.rsplitn(2, '.');
            let resource = parts.nth(1).unwrap();
            assert!(
                found.contains_key(&format!("resource.{resource}")),
                "{name}"
            );
        }
    }
    found
}

#[test]
fn the_configuration_says_what_the_plain_form_says() {
    for each in variants() {
        let plain = plain(&each, &account()).unwrap();
        let found = blocks(&each, &each.terraform());
        let node = &found["resource.aws_iam_role.node"];
        assert_eq!(node["name"], plain["nodeRole"]["name"]);
        assert_eq!(node["assume_role_policy"], plain["nodeRole"]["trustPolicy"]);
        let controller = &found["resource.aws_iam_role.controller"];
        assert_eq!(controller["name"], plain["controllerRole"]["name"]);
        assert_eq!(
            controller["assume_role_policy"],
            plain["controllerRole"]["trustPolicy"]
        );
        let attached = |role: &str| -> BTreeSet<String> {
            let all = found.iter().filter(|(name, block)| {
                name.starts_with("resource.aws_iam_role_policy_attachment.")
                    && block["role"] == role
            });
            all.map(|(_, block)| block["policy_arn"].as_str().unwrap().to_owned())
                .collect()
        };
        let managed: BTreeSet<String> =
            serde_json::from_value(plain["nodeRole"]["managedPolicies"].clone()).unwrap();
        assert_eq!(attached("aws_iam_role.node.name"), managed);
        let policies: BTreeMap<String, Value> = attached("aws_iam_role.controller.name")
            .iter()
            .map(|arn| {
                let name = arn.strip_suffix(".arn").unwrap();
                let policy = &found[&format!("resource.{name}")];
                (
                    policy["name"].as_str().unwrap().to_owned(),
                    policy["policy"].clone(),
                )
            })
            .collect();
        let wanted: BTreeMap<String, Value> = plain["controllerRole"]["policies"]
            .as_array()
            .unwrap()
            .iter()
            .map(|policy| {
                (
                    policy["name"].as_str().unwrap().to_owned(),
                    policy["document"].clone(),
                )
            })
            .collect();
        assert_eq!(policies, wanted);
    }
}

#[test]
fn both_forms_of_the_queue_say_the_same() {
    let queue = Queue {
        cluster: "blue".to_owned(),
        name: "${ClusterName}-interruption".to_owned(),
    };
    let template = queue.cloud_formation();
    assert_eq!(broken(&template), [""; 0]);
    let resources = evaluated(&installation(), &template["Resources"]);
    let found = blocks(&installation(), &queue.terraform());
    let (ours, theirs) = (
        &resources["Queue"]["Properties"],
        &found["resource.aws_sqs_queue.interruption"],
    );
    assert_eq!(ours["QueueName"], "blue-interruption");
    assert_eq!(ours["QueueName"], theirs["name"]);
    assert_eq!(
        ours["MessageRetentionPeriod"],
        theirs["message_retention_seconds"]
    );
    assert_eq!(
        ours["SqsManagedSseEnabled"],
        theirs["sqs_managed_sse_enabled"]
    );
    let mut policy = found["resource.aws_sqs_queue_policy.interruption"]["policy"].clone();
    for statement in policy["Statement"].as_array_mut().unwrap() {
        let arn = "arn:aws-cn:sqs:cn-north-1:123456789012:blue-interruption";
        assert_eq!(statement["Resource"], arn);
        statement["Resource"] = json!("Queue");
    }
    assert_eq!(
        resources["QueuePolicy"]["Properties"]["PolicyDocument"],
        policy
    );
    let patterns =
        |all: Vec<&Value>| -> BTreeSet<String> { all.iter().map(ToString::to_string).collect() };
    let of_template: Vec<&Value> = RULES
        .iter()
        .map(|rule| &resources[&format!("{}Rule", rule.name)]["Properties"]["EventPattern"])
        .collect();
    let of_configuration: Vec<&Value> = found
        .iter()
        .filter(|(name, _)| name.starts_with("resource.aws_cloudwatch_event_rule."))
        .map(|(_, block)| &block["event_pattern"])
        .collect();
    assert_eq!(of_configuration.len(), 5);
    assert_eq!(patterns(of_template), patterns(of_configuration));
}
