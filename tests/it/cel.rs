//! Every CEL rule of the definitions on a real API server: accepted on one side of its boundary, refused on the other with
//! the rule's own message. The rules are read from the definitions, so that one without a case here fails the story.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use kube::Client;
use kube::Error;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, PostParams};
use kube::core::GroupVersionKind;
use mortise_tests::harness::{ControlPlane, Mortise, wait_until};
use serde_json::{Value, json};

use crate::scene::{SOON, turn};

/// One rule of a definition.
struct Rule {
    kind: String,
    resource: ApiResource,
    namespaced: bool,
    path: String,
    message: String,
}

/// Specs on both sides of a rule's boundary, as patches of the good one; `from` is the spec before an update.
struct Boundary {
    from: Option<Value>,
    good: Value,
    bad: Value,
}

fn rules_of(definition: &Value) -> Result<Vec<Rule>> {
    let text = |pointer: &str| {
        definition
            .pointer(pointer)
            .and_then(Value::as_str)
            .with_context(|| pointer.to_owned())
    };
    let kind = text("/spec/names/kind")?;
    let gvk = GroupVersionKind::gvk(text("/spec/group")?, text("/spec/versions/0/name")?, kind);
    let resource = ApiResource::from_gvk_with_plural(&gvk, text("/spec/names/plural")?);
    let schema = definition
        .pointer("/spec/versions/0/schema/openAPIV3Schema")
        .context("schema")?;
    let mut found = Vec::new();
    collect(schema, "", &mut found);
    let namespaced = text("/spec/scope")? == "Namespaced";
    Ok(found
        .into_iter()
        .map(|(path, message)| Rule {
            kind: kind.to_owned(),
            resource: resource.clone(),
            namespaced,
            path,
            message,
        })
        .collect())
}

fn collect(schema: &Value, path: &str, found: &mut Vec<(String, String)>) {
    let rules = schema.get("x-kubernetes-validations");
    for rule in rules.and_then(Value::as_array).into_iter().flatten() {
        let message = rule.get("message").and_then(Value::as_str);
        found.push((path.to_owned(), message.unwrap_or_default().to_owned()));
    }
    let properties = schema.get("properties").and_then(Value::as_object);
    for (name, schema) in properties.into_iter().flatten() {
        collect(schema, &format!("{path}.{name}"), found);
    }
    for (inner, mark) in [("items", "[]"), ("additionalProperties", "{}")] {
        if let Some(schema) = schema.get(inner).filter(|schema| schema.is_object()) {
            collect(schema, &format!("{path}{mark}"), found);
        }
    }
}

/// A spec that every rule accepts.
fn good(kind: &str) -> Value {
    let reference = json!({ "group": "example.com", "kind": "ExampleClass", "name": "default" });
    match kind {
        "NodePool" => {
            json!({ "template": { "spec": { "nodeClassRef": reference, "requirements": [] } } })
        }
        "NodeClaim" => json!({ "nodeClassRef": reference, "requirements": [] }),
        "NodeOverlay" => json!({ "requirements": [] }),
        "CapacityBuffer" => json!({ "podTemplateRef": { "name": "web" }, "replicas": 1 }),
        "NodePoolPolicy" => json!({ "nodePools": ["general"] }),
        _ => json!({
            "role": "nodes",
            "amiSelectorTerms": [{ "alias": "al2023@latest" }],
            "subnetSelectorTerms": [{ "id": "subnet-1" }],
            "securityGroupSelectorTerms": [{ "id": "sg-1" }],
        }),
    }
}

/// A merge patch: `null` takes a field out.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (key, value) in patch {
        if value.is_null() {
            if let Some(target) = target.as_object_mut() {
                target.remove(key);
            }
        } else {
            merge(&mut target[key], value);
        }
    }
}

fn both(good: Value, bad: Value) -> Option<Boundary> {
    Some(Boundary {
        from: None,
        good,
        bad,
    })
}

#[expect(clippy::too_many_lines, reason = "one arm per rule")]
fn boundary(rule: &Rule) -> Option<Boundary> {
    let inner = |spec: Value| match rule.kind.as_str() {
        "NodePool" => json!({ "template": { "spec": spec } }),
        "NodePoolPolicy" => {
            let mut commitment = json!({ "name": "ri", "instances": 1 });
            merge(&mut commitment, &spec);
            json!({ "commitments": [commitment] })
        }
        _ => spec,
    };
    let required = |requirement: Value| inner(json!({ "requirements": [requirement] }));
    let keyed = |key: &str| {
        if rule.path.ends_with("metadata.labels") {
            json!({ "template": { "metadata": { "labels": { key: "a" } } } })
        } else {
            required(json!({ "key": key, "operator": "Exists" }))
        }
    };
    let listed = |operator: &str, values: &[&str]| {
        required(json!({ "key": "example.com/size", "operator": operator, "values": values }))
    };
    let referred = |field: &str, value: &str| inner(json!({ "nodeClassRef": { field: value } }));
    let updated = |good: Value, bad: Value| {
        Some(Boundary {
            from: Some(json!({})),
            good,
            bad,
        })
    };
    let budget =
        |budget: Value| json!({ "disruption": { "consolidateAfter": "0s", "budgets": [budget] } });
    match rule.message.as_str() {
        "spec is immutable" => updated(json!({}), json!({ "expireAfter": "1h" })),
        "nodeClassRef.group is immutable" => updated(
            referred("group", "example.com"),
            referred("group", "other.com"),
        ),
        "nodeClassRef.kind is immutable" => {
            updated(referred("kind", "ExampleClass"), referred("kind", "Other"))
        }
        "Cannot transition NodePool between static (replicas set) and dynamic (replicas unset) provisioning modes" => {
            updated(json!({ "weight": 1 }), json!({ "replicas": 1 }))
        }
        "only 'limits.nodes' is supported on static NodePools" => both(
            json!({ "replicas": 0, "limits": { "nodes": "1" } }),
            json!({ "replicas": 0, "limits": { "nodes": "1", "cpu": "1" } }),
        ),
        "'weight' is not supported on static NodePools" => both(
            json!({ "replicas": 1 }),
            json!({ "replicas": 1, "weight": 1 }),
        ),
        "'schedule' must be set with 'duration'" => both(
            budget(json!({ "nodes": "1", "schedule": "@daily", "duration": "1h" })),
            budget(json!({ "nodes": "1", "schedule": "@daily" })),
        ),
        "group may not be empty" => both(referred("group", "g"), referred("group", "")),
        "kind may not be empty" => both(referred("kind", "K"), referred("kind", "")),
        "name may not be empty" => both(referred("name", "n"), referred("name", "")),
        "requirements with operator 'In' must have a value defined" => {
            both(listed("In", &["a"]), listed("In", &[]))
        }
        "requirements with operator 'NotIn' must have a value defined" => {
            both(listed("NotIn", &["a"]), listed("NotIn", &[]))
        }
        "requirements operator 'Gt', 'Lt', 'Gte', or 'Lte' must have a single positive integer value"
        | "requirements operator 'Gt', 'Lt', 'Gte' or 'Lte' must have a single positive integer value" => {
            both(listed("Gte", &["0"]), listed("Gte", &["-1"]))
        }
        "requirements with 'minValues' must have at least that many values specified in the 'values' field" =>
        {
            let least = |least: u32| {
                required(
                    json!({ "key": "example.com/size", "operator": "In", "values": ["a", "b"], "minValues": least }),
                )
            };
            both(least(2), least(3))
        }
        "cannot set both 'price' and 'priceAdjustment'" => both(
            json!({ "price": "1" }),
            json!({ "price": "1", "priceAdjustment": "+1" }),
        ),
        "exactly one of 'hourlyCommitment' and 'instances' must be set" => {
            both(inner(json!({})), inner(json!({ "hourlyCommitment": "10" })))
        }
        "invalid resource restricted" => both(
            json!({ "capacity": { "example.com/fuse": "1" } }),
            json!({ "capacity": { "cpu": "1" } }),
        ),
        "If podTemplateRef is set, replicas or limits must also be set" => both(
            json!({ "replicas": null, "limits": { "cpu": "1" } }),
            json!({ "replicas": null }),
        ),
        "You must define either PodTemplateRef or ScalableRef, but not both" => both(
            json!({ "podTemplateRef": null, "scalableRef": { "kind": "Deployment", "name": "web" } }),
            json!({ "scalableRef": { "kind": "Deployment", "name": "web" } }),
        ),
        "label \"karpenter.sh/nodepool\" is restricted" => both(
            keyed("karpenter.sh/capacity-type"),
            keyed("karpenter.sh/nodepool"),
        ),
        "label \"kubernetes.io/hostname\" is restricted" => both(
            keyed("kubernetes.io/hostnames"),
            keyed("kubernetes.io/hostname"),
        ),
        "label domain \"karpenter.sh\" is restricted" => both(
            keyed("karpenter.sh/capacity-type"),
            keyed("karpenter.sh/other"),
        ),
        "label domain \"karpenter.k8s.aws\" is restricted" => both(
            keyed("karpenter.k8s.aws/instance-family"),
            keyed("karpenter.k8s.aws/other"),
        ),
        "label domain \"karpenter.kwok.sh\" is restricted" => both(
            keyed("karpenter.kwok.sh/instance-family"),
            keyed("karpenter.kwok.sh/other"),
        ),
        _ => of_ec2_class(rule),
    }
}

#[expect(clippy::too_many_lines, reason = "one arm per rule")]
fn of_ec2_class(rule: &Rule) -> Option<Boundary> {
    let terms = |field: &str, term: Value| json!({ field: [term] });
    let (subnets, groups, reservations) = (
        "subnetSelectorTerms",
        "securityGroupSelectorTerms",
        "capacityReservationSelectorTerms",
    );
    let amis = |terms: Value| json!({ "amiFamily": "Custom", "amiSelectorTerms": terms });
    let volume = |ebs: Value| json!({ "blockDeviceMappings": [{ "ebs": ebs }] });
    let interface = |card: u32, device: u32, kind: &str| json!({ "networkCardIndex": card, "deviceIndex": device, "interfaceType": kind });
    let interfaces = |all: &[Value]| json!({ "networkInterfaces": all });
    let tagged = |key: &str| json!({ "tags": { key: "a" } });
    match rule.message.as_str() {
        "must specify exactly one of ['role', 'instanceProfile']" => both(
            json!({ "role": null, "instanceProfile": "p" }),
            json!({ "instanceProfile": "p" }),
        ),
        "role cannot be empty" => both(json!({ "role": "r" }), json!({ "role": "" })),
        "instanceProfile cannot be empty" => both(
            json!({ "role": null, "instanceProfile": "p" }),
            json!({ "role": null, "instanceProfile": "" }),
        ),
        "must specify amiFamily if amiSelectorTerms does not contain an alias" => both(
            amis(json!([{ "id": "ami-1" }])),
            json!({ "amiSelectorTerms": [{ "id": "ami-1" }] }),
        ),
        "subnetSelectorTerms cannot be empty" => both(json!({}), json!({ subnets: [] })),
        "securityGroupSelectorTerms cannot be empty" => both(json!({}), json!({ groups: [] })),
        "expected at least one, got none, ['tags', 'id']" => both(
            terms(subnets, json!({ "tags": { "a": "b" } })),
            terms(subnets, json!({})),
        ),
        "expected at least one, got none, ['tags', 'id', 'name']" => both(
            terms(groups, json!({ "name": "a" })),
            terms(groups, json!({})),
        ),
        "expected at least one, got none, ['tags', 'id', 'instanceMatchCriteria']" => both(
            terms(reservations, json!({ "instanceMatchCriteria": "open" })),
            terms(reservations, json!({ "ownerID": "012345678901" })),
        ),
        "expected at least one, got none, ['tags', 'id', 'name', 'alias', 'ssmParameter']" => both(
            amis(json!([{ "ssmParameter": "/a" }])),
            amis(json!([{ "owner": "self" }])),
        ),
        "expected at least one, got none, ['name', 'id']" => both(
            json!({ "placementGroupSelector": { "name": "a" } }),
            json!({ "placementGroupSelector": {} }),
        ),
        "'name' and 'id' are mutually exclusive" => both(
            json!({ "placementGroupSelector": { "id": "pg-1" } }),
            json!({ "placementGroupSelector": { "id": "pg-1", "name": "a" } }),
        ),
        "'id' is mutually exclusive, cannot be set with a combination of other fields in a subnet selector term" => {
            both(
                terms(subnets, json!({ "id": "subnet-1" })),
                terms(subnets, json!({ "id": "subnet-1", "tags": { "a": "b" } })),
            )
        }
        "'id' is mutually exclusive, cannot be set with a combination of other fields in a security group selector term" => {
            both(
                terms(groups, json!({ "id": "sg-1" })),
                terms(groups, json!({ "id": "sg-1", "tags": { "a": "b" } })),
            )
        }
        "'name' is mutually exclusive, cannot be set with a combination of other fields in a security group selector term" => {
            both(
                terms(groups, json!({ "name": "a" })),
                terms(groups, json!({ "name": "a", "tags": { "a": "b" } })),
            )
        }
        "'id' is mutually exclusive, cannot be set along with other fields in a capacity reservation selector term" => {
            both(
                terms(reservations, json!({ "id": "cr-1" })),
                terms(
                    reservations,
                    json!({ "id": "cr-1", "ownerID": "012345678901" }),
                ),
            )
        }
        "'id' is mutually exclusive, cannot be set with a combination of other fields in amiSelectorTerms" => {
            both(
                amis(json!([{ "id": "ami-1" }])),
                amis(json!([{ "id": "ami-1", "name": "a" }])),
            )
        }
        "'alias' is mutually exclusive, cannot be set with a combination of other fields in amiSelectorTerms" => {
            both(
                amis(json!([{ "alias": "al2023@latest" }])),
                amis(json!([{ "alias": "al2023@latest", "name": "a" }])),
            )
        }
        "'alias' is mutually exclusive, cannot be set with a combination of other amiSelectorTerms" => {
            both(
                amis(json!([{ "id": "ami-1" }, { "id": "ami-2" }])),
                amis(json!([{ "alias": "al2023@latest" }, { "id": "ami-2" }])),
            )
        }
        "'alias' is improperly formatted, must match the format 'family@version'" => both(
            amis(json!([{ "alias": "al2023@v20240703" }])),
            amis(json!([{ "alias": "al2023@" }])),
        ),
        "family is not supported, must be one of the following: 'al2', 'al2023', 'bottlerocket', 'windows2019', 'windows2022', 'windows2025'" => {
            both(
                amis(json!([{ "alias": "windows2025@latest" }])),
                amis(json!([{ "alias": "windows2026@latest" }])),
            )
        }
        "windows families may only specify version 'latest'" => both(
            amis(json!([{ "alias": "windows2022@latest" }])),
            amis(json!([{ "alias": "windows2022@v1" }])),
        ),
        "empty tag keys or values aren't supported" => {
            let field = rule.path.split(['.', '[']).nth(2).unwrap_or_default();
            let with = |value: &str| merged_terms(field, value);
            both(with("b"), with(""))
        }
        "empty tag keys aren't supported" => both(tagged("a"), tagged("")),
        "tag contains a restricted tag matching eks:eks-cluster-name" => {
            both(tagged("eks:eks-cluster"), tagged("eks:eks-cluster-name"))
        }
        "tag contains a restricted tag matching kubernetes.io/cluster/" => both(
            tagged("kubernetes.io/clust"),
            tagged("kubernetes.io/cluster/a"),
        ),
        "tag contains a restricted tag matching karpenter.sh/nodepool" => both(
            tagged("karpenter.sh/nodepools"),
            tagged("karpenter.sh/nodepool"),
        ),
        "tag contains a restricted tag matching karpenter.sh/nodeclaim" => both(
            tagged("karpenter.sh/nodeclaims"),
            tagged("karpenter.sh/nodeclaim"),
        ),
        "tag contains a restricted tag matching karpenter.k8s.aws/ec2nodeclass" => both(
            tagged("karpenter.k8s.aws/ec2nodeclasses"),
            tagged("karpenter.k8s.aws/ec2nodeclass"),
        ),
        "must have only one blockDeviceMappings with rootVolume" => {
            let roots = |all: &[bool]| {
                let each = |root: &bool| json!({ "deviceName": "a", "rootVolume": root });
                json!({ "blockDeviceMappings": all.iter().map(each).collect::<Vec<_>>() })
            };
            both(roots(&[true, false]), roots(&[true, true]))
        }
        "snapshotID or volumeSize must be defined" => both(
            volume(json!({ "volumeSize": "1Gi" })),
            volume(json!({ "encrypted": true })),
        ),
        "snapshotID must be set when volumeInitializationRate is set" => both(
            volume(json!({ "snapshotID": "snap-1", "volumeInitializationRate": 100 })),
            volume(json!({ "volumeSize": "1Gi", "volumeInitializationRate": 100 })),
        ),
        "networkInterfaces must include a primary interface with interfaceType='interface'" => {
            both(
                interfaces(&[interface(0, 0, "interface")]),
                interfaces(&[interface(0, 1, "interface")]),
            )
        }
        "networkInterfaces must not have duplicate networkCardIndex and deviceIndex pairs, and can have at most one efa device per network card" => {
            both(
                interfaces(&[interface(0, 0, "interface"), interface(0, 1, "efa-only")]),
                interfaces(&[
                    interface(0, 0, "interface"),
                    interface(0, 1, "efa-only"),
                    interface(0, 2, "efa-only"),
                ]),
            )
        }
        "at least one of tcpEstablishedTimeout, udpStreamTimeout, or udpTimeout must be set" => {
            both(
                json!({ "connectionTracking": { "udpTimeout": 30 } }),
                json!({ "connectionTracking": {} }),
            )
        }
        message => {
            let family = message
                .strip_prefix("if set, amiFamily must be '")?
                .split('\'')
                .next()?;
            let alias = format!("{}@latest", family.to_lowercase());
            let with = |family: &str| json!({ "amiFamily": family, "amiSelectorTerms": [{ "alias": alias }] });
            let other = if family == "AL2" { "AL2023" } else { "AL2" };
            both(with(family), with(other))
        }
    }
}

/// A selector term with a tag, in the list of that name.
fn merged_terms(field: &str, value: &str) -> Value {
    let terms = json!({ field: [{ "tags": { "a": value } }] });
    if field == "amiSelectorTerms" {
        let mut with_family = json!({ "amiFamily": "Custom" });
        merge(&mut with_family, &terms);
        with_family
    } else {
        terms
    }
}

fn object(rule: &Rule, patch: &Value) -> Result<DynamicObject> {
    let mut spec = good(&rule.kind);
    merge(&mut spec, patch);
    Ok(serde_json::from_value(json!({
        "apiVersion": rule.resource.api_version, "kind": rule.kind, "metadata": { "name": "boundary" }, "spec": spec,
    }))?)
}

/// `None` when the API server takes it, else what it says.
fn refusal(result: Result<DynamicObject, Error>) -> Result<Option<String>> {
    match result {
        Ok(_) => Ok(None),
        Err(Error::Api(status)) if status.code == 422 => Ok(Some(status.message)),
        Err(error) => Err(error.into()),
    }
}

async fn answers(client: &Client, rule: &Rule, boundary: &Boundary) -> Result<[Option<String>; 2]> {
    let api: Api<DynamicObject> = if rule.namespaced {
        Api::namespaced_with(client.clone(), "default", &rule.resource)
    } else {
        Api::all_with(client.clone(), &rule.resource)
    };
    let dry = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let [good, bad] = [&boundary.good, &boundary.bad].map(|patch| object(rule, patch));
    let (mut good, mut bad) = (good?, bad?);
    let Some(from) = &boundary.from else {
        return Ok([
            refusal(api.create(&dry, &good).await)?,
            refusal(api.create(&dry, &bad).await)?,
        ]);
    };
    let stored = api
        .create(&PostParams::default(), &object(rule, from)?)
        .await?;
    good.metadata.resource_version = stored.metadata.resource_version.clone();
    bad.metadata.resource_version = stored.metadata.resource_version;
    let both = [
        refusal(api.replace("boundary", &dry, &good).await)?,
        refusal(api.replace("boundary", &dry, &bad).await)?,
    ];
    api.delete("boundary", &DeleteParams::default()).await?;
    wait_until("the object to be gone", SOON, || async {
        ensure!(api.get_opt("boundary").await?.is_none(), "still there");
        Ok(())
    })
    .await?;
    Ok(both)
}

async fn holds_at_its_boundaries(provider: &str, kinds: &[(&str, usize)]) -> Result<()> {
    let _turn = turn().await?;
    let crds = Mortise::output(&["manifests", "crds", "--provider", provider]).await?;
    let definitions: Vec<Value> = serde_saphyr::from_multiple(&crds)?;
    let mut rules = Vec::new();
    for definition in &definitions {
        rules.extend(rules_of(definition)?);
    }
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for rule in &rules {
        *seen.entry(&rule.kind).or_default() += 1;
    }
    ensure!(seen == kinds.iter().copied().collect(), "{seen:?}");
    let plane = Box::pin(ControlPlane::builder().manifests(&crds).start()).await?;
    let client = plane.client();
    let mut wrong = Vec::new();
    for rule in &rules {
        let place = format!("{} {}: {}", rule.kind, rule.path, rule.message);
        let Some(boundary) = boundary(rule) else {
            wrong.push(format!("{place}\n  has no case"));
            continue;
        };
        let [good, bad] = answers(&client, rule, &boundary)
            .await
            .with_context(|| place.clone())?;
        if let Some(said) = good {
            wrong.push(format!("{place}\n  {} is refused: {said}", boundary.good));
        }
        match bad {
            None => wrong.push(format!("{place}\n  {} is accepted", boundary.bad)),
            Some(said) if !said.contains(&rule.message) => {
                wrong.push(format!(
                    "{place}\n  {} is refused with: {said}",
                    boundary.bad
                ));
            }
            Some(_) => {}
        }
    }
    ensure!(
        wrong.is_empty(),
        "{} of {} rules:\n{}",
        wrong.len(),
        rules.len(),
        wrong.join("\n")
    );
    plane.stop().await;
    Ok(())
}

#[tokio::test]
async fn each_rule_of_the_kinds_with_kwok_holds_at_its_boundary() -> Result<()> {
    holds_at_its_boundaries(
        "kwok",
        &[
            ("CapacityBuffer", 2),
            ("NodeClaim", 10),
            ("NodeOverlay", 7),
            ("NodePool", 19),
            ("NodePoolPolicy", 4),
        ],
    )
    .await
}

#[tokio::test]
async fn each_rule_of_the_kinds_with_aws_holds_at_its_boundary() -> Result<()> {
    holds_at_its_boundaries(
        "aws",
        &[
            ("CapacityBuffer", 2),
            ("EC2NodeClass", 44),
            ("NodeClaim", 10),
            ("NodeOverlay", 8),
            ("NodePool", 20),
            ("NodePoolPolicy", 4),
        ],
    )
    .await
}
