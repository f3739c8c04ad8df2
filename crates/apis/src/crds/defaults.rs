//! Defaults, as the API server fills them in when it stores or reads an object. Objects that come from files (plans,
//! simulations, lint) must mean what they would mean in a cluster.

use serde_json::Value;

use super::CrdSet;
use crate::schema::absent::drop_nulls;

impl CrdSet {
    /// Fills in what an object leaves out, and takes out what is `null`, which is absent. Returns `false`, and does nothing, when its `apiVersion` and `kind` are not
    /// those of a definition of this set.
    pub fn apply_defaults(&self, object: &mut Value) -> bool {
        let definition = self
            .manifests()
            .iter()
            .map(|each| &each.definition)
            .find(|definition| {
                let spec = &definition["spec"];
                let api_version = [&spec["group"], &spec["versions"][0]["name"]]
                    .map(|part| part.as_str().unwrap_or_default());
                object["kind"] == spec["names"]["kind"]
                    && object["apiVersion"] == api_version.join("/").as_str()
            });
        if let Some(definition) = definition {
            drop_nulls(object);
            fill(
                &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"],
                object,
            );
        }
        definition.is_some()
    }
}

fn fill(schema: &Value, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, property) in schema["properties"].as_object().into_iter().flatten() {
                if let Some(default) = property.get("default")
                    && fields.get(name).is_none_or(Value::is_null)
                {
                    fields.insert(name.clone(), default.clone());
                }
                if let Some(field) = fields.get_mut(name) {
                    fill(property, field);
                }
            }
            if schema["additionalProperties"].is_object() {
                fields
                    .values_mut()
                    .for_each(|field| fill(&schema["additionalProperties"], field));
            }
        }
        Value::Array(items) => items
            .iter_mut()
            .for_each(|item| fill(&schema["items"], item)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pools_get_what_a_cluster_gives_them() {
        let mut pool = json!({
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodePool",
            "spec": { "template": { "spec": {} }, "disruption": { "budgets": [{ "reasons": ["Empty"] }] } },
            "status": {},
        });
        assert!(CrdSet::core().apply_defaults(&mut pool));
        assert_eq!(
            pool["spec"]["template"]["spec"],
            json!({ "expireAfter": "720h" })
        );
        assert_eq!(
            pool["spec"]["disruption"],
            json!({
                "budgets": [{ "reasons": ["Empty"], "nodes": "10%" }],
                "consolidateAfter": "0s",
                "consolidationPolicy": "WhenEmptyOrUnderutilized",
            })
        );
        assert_eq!(pool["status"], json!({ "nodes": 0 }));

        let mut bare = json!({ "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "spec": { "template": null } });
        assert!(CrdSet::core().apply_defaults(&mut bare));
        assert_eq!(
            bare["spec"]["disruption"]["budgets"],
            json!([{ "nodes": "10%" }]),
            "defaults have defaults"
        );
        assert!(
            bare["spec"]["template"].is_null(),
            "a field without a default stays absent"
        );
    }

    #[test]
    fn other_kinds_are_left_alone() {
        let mut pod = json!({ "apiVersion": "v1", "kind": "Pod", "spec": {} });
        let before = pod.clone();
        assert!(!CrdSet::core().apply_defaults(&mut pod));
        assert_eq!(pod, before);
        let mut old =
            json!({ "apiVersion": "karpenter.sh/v1beta1", "kind": "NodePool", "spec": {} });
        assert!(
            !CrdSet::core().apply_defaults(&mut old),
            "another version is another kind"
        );
    }
}
