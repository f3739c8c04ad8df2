//! The definitions with `v1beta1` served next to `v1`, for clusters that convert.
//!
//! The older schema is the newer one without what came later, and with what has gone since. It is served, never stored.

use serde_json::{Value, json};

use super::CrdSet;
use crate::node_class::NodeClassRegistry;
use crate::schema::crd_manifest::{RULES, fields, set_keyword, without_rules};
use crate::schema::fields::{DURATION_OR_NEVER, rule};
use crate::schema::groups::{GROUP, V1BETA1};

/// The definitions of a set, in the order of their file names. Those that have an older version serve both, and name the
/// webhook that converts; the others are as [`CrdSet::manifests`] has them.
///
/// `client_config` is the `clientConfig` of a `WebhookClientConfig`: `url` or `service`, and `caBundle`.
#[must_use]
pub fn with_conversion(set: &CrdSet, client_config: &Value) -> Vec<Value> {
    set.manifests()
        .iter()
        .map(|manifest| serving_both(set.served(), &manifest.definition, client_config))
        .collect()
}

fn serving_both(classes: &NodeClassRegistry, definition: &Value, client_config: &Value) -> Value {
    let mut definition = definition.clone();
    let text = |pointer| {
        definition
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let kind = text("/spec/names/kind").to_owned();
    let class = classes.of_kind(&kind).and_then(|class| class.old_version());
    let edit = match (text("/spec/group"), kind.as_str(), class) {
        (GROUP, "NodePool", _) => node_pool,
        (GROUP, "NodeClaim", _) => claim_spec,
        (_, _, Some(old)) => old.spec,
        (_, _, None) => return definition,
    };
    let Some(spec) = definition.get_mut("spec").and_then(Value::as_object_mut) else {
        return definition;
    };
    if let Some(versions) = spec.get_mut("versions").and_then(Value::as_array_mut) {
        let older = versions.first().map(|newer| older(&kind, edit, newer));
        versions.extend(older);
    }
    spec.insert(
        "conversion".to_owned(),
        json!({
            "strategy": "Webhook",
            "webhook": { "clientConfig": client_config, "conversionReviewVersions": ["v1"] },
        }),
    );
    definition
}

fn older(kind: &str, edit: fn(&mut Value), newer: &Value) -> Value {
    let mut version = newer.clone();
    let Some(of) = version.as_object_mut() else {
        return version;
    };
    of.insert("name".to_owned(), json!(V1BETA1));
    of.insert("storage".to_owned(), json!(false));
    of.insert("deprecated".to_owned(), json!(true));
    of.insert(
        "deprecationWarning".to_owned(),
        json!(format!(
            "{kind} v1beta1 is converted to v1; `mortise migrate` writes the v1 manifest"
        )),
    );
    if let Some(Value::Object(subresources)) = of.get_mut("subresources") {
        subresources.remove("scale");
    }
    let Some(spec) = of
        .get_mut("schema")
        .and_then(|schema| schema.pointer_mut("/openAPIV3Schema/properties/spec"))
    else {
        return version;
    };
    edit(spec);
    version
}

/// The spec of a claim, or of a pool's template.
fn claim_spec(schema: &mut Value) {
    if let Some(fields) = fields(schema, "") {
        fields.remove("expireAfter");
        fields.remove("terminationGracePeriod");
        fields.insert("kubelet".to_owned(), kubelet());
        fields.insert(
            "nodeClassRef".to_owned(),
            json!({
                "type": "object",
                "description": "Node class with the settings of the cloud provider.",
                "required": ["name"],
                "properties": {
                    "apiVersion": { "type": "string", "description": "Group and version of the node class." },
                    "kind": { "type": "string", "description": "Kind of the node class." },
                    "name": { "type": "string", "description": "Name of the node class." },
                },
            }),
        );
    }
    set_keyword(
        schema,
        "/properties/requirements/items/properties/operator",
        "enum",
        json!(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]),
    );
}

fn kubelet() -> Value {
    json!({
        "type": "object",
        "description": "Fields of the kubelet's configuration file.",
        "x-kubernetes-preserve-unknown-fields": true,
    })
}

fn node_pool(spec: &mut Value) {
    without_rules(spec, &["replicas"]);
    if let Some(fields) = fields(spec, "") {
        fields.remove("replicas");
    }
    if let Some(template) = spec.pointer_mut("/properties/template/properties/spec") {
        claim_spec(template);
    }
    let Some(disruption) = spec.pointer_mut("/properties/disruption") else {
        return;
    };
    if let Some(of) = disruption.as_object_mut() {
        of.remove("required");
        of.insert(
            "default".to_owned(),
            json!({ "consolidationPolicy": "WhenUnderutilized", "expireAfter": "720h" }),
        );
        of.insert(
            RULES.to_owned(),
            json!([
                rule(
                    "has(self.consolidateAfter) ? self.consolidationPolicy != 'WhenUnderutilized' || self.consolidateAfter == 'Never' : true",
                    "consolidateAfter cannot be combined with consolidationPolicy=WhenUnderutilized",
                ),
                rule(
                    "self.consolidationPolicy == 'WhenEmpty' ? has(self.consolidateAfter) : true",
                    "consolidateAfter must be specified with consolidationPolicy=WhenEmpty",
                ),
            ]),
        );
    }
    if let Some(fields) = fields(disruption, "") {
        fields.insert(
            "expireAfter".to_owned(),
            json!({
                "type": "string",
                "description": "Age at which a node expires, or Never.",
                "default": "720h",
                "pattern": DURATION_OR_NEVER,
            }),
        );
        if let Some(Value::Object(after)) = fields.get_mut("consolidateAfter") {
            after.remove("default");
        }
    }
    let policy = "/properties/consolidationPolicy";
    set_keyword(
        disruption,
        policy,
        "enum",
        json!(["WhenEmpty", "WhenUnderutilized"]),
    );
    set_keyword(disruption, policy, "default", json!("WhenUnderutilized"));
    if let Some(budget) = fields(disruption, "/properties/budgets/items") {
        budget.remove("reasons");
    }
}
