//! A node class that no provider has: nothing depends on the kinds of the real ones.

#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking where its expectation stands"
)]

use jiff::Timestamp;
use mortise_apis::CrdSet;
use mortise_apis::conversion::{convert, converted_definitions};
use mortise_apis::crds::with_conversion;
use mortise_apis::issues::{IssueCollector, RuleCheck};
use mortise_apis::labels::WellKnown;
use mortise_apis::names::NodeClassKey;
use mortise_apis::node_class::{
    ClassHash, DeprecatedField, KeyLocation, LabelTable, NodeClassApi, NodeClassKind,
    NodeClassObject, NodeClassRegistry, OldVersion,
};
use mortise_apis::schema::crd_manifest::{CrdManifest, RULES};
use mortise_apis::validation::coverage;
use mortise_manifests::lint::{LintOptions, LintReport, lint};
use mortise_manifests::migrate::SourceFile;
use mortise_manifests::render::{
    Endpoint, ProviderPermissions, ServiceAccount, WebhookOptions, service_account,
    webhook_configurations,
};
use mortise_state::index::Index;
use mortise_webhooks::admission::{
    AdmissionContext, AdmissionRequest, AdmissionResult, AdmissionSettings, set_defaults, validate,
};
use serde_json::{Value, json};

/// The class of a cloud of balloons.
struct BalloonClassApi;

const KIND: NodeClassKind = NodeClassKind {
    group: "balloons.example.com",
    version: "v1",
    kind: "BalloonClass",
    plural: "balloonclasses",
};
const OPEN: &[&str] = &["balloonclass", "gas"];

fn gas_rule() -> RuleCheck {
    |at| {
        if at.field("gas") == "hydrogen" {
            let gas = at.field("gas");
            at.fault(".gas", gas, "burns; helium is allowed", "write helium");
        }
    }
}

impl NodeClassApi for BalloonClassApi {
    fn kind(&self) -> NodeClassKind {
        KIND
    }

    fn crd(&self) -> CrdManifest {
        let spec = json!({
            "type": "object",
            "properties": {
                "gas": { "type": "string", "default": "helium" },
                "ropes": { "type": "integer" },
                "height": { "type": "integer" },
            },
            RULES: [{ "rule": "self.gas != 'hydrogen'", "message": "gas must not burn" }],
        });
        CrdManifest {
            file_name: format!("{}_{}.yaml", KIND.group, KIND.plural),
            definition: json!({
                "apiVersion": "apiextensions.k8s.io/v1",
                "kind": "CustomResourceDefinition",
                "metadata": { "name": format!("{}.{}", KIND.plural, KIND.group) },
                "spec": {
                    "group": KIND.group,
                    "scope": "Cluster",
                    "names": { "kind": KIND.kind, "plural": KIND.plural },
                    "versions": [{
                        "name": KIND.version, "served": true, "storage": true,
                        "schema": { "openAPIV3Schema": {
                            "type": "object", "properties": { "spec": spec },
                        } },
                    }],
                },
            }),
        }
    }

    fn labels(&self) -> LabelTable {
        LabelTable {
            domain: KIND.group,
            well_known: &["balloons.example.com/gas"],
            zone_id: None,
            values: &[("balloons.example.com/gas", &["helium", "hydrogen"])],
            open: &[(KeyLocation::PoolRequirement, OPEN)],
        }
    }

    fn rule_check(&self, message: &str) -> Option<RuleCheck> {
        (message == "gas must not burn").then(gas_rule)
    }

    fn issues(&self, spec: &Value, issues: &mut IssueCollector) {
        if spec.get("ropes") == Some(&json!(0)) {
            let field = "spec.ropes".to_owned();
            issues.suspicious(field, &json!(0), "lets it fly away", "write 1");
        }
    }

    fn hash(&self, object: &Value) -> Option<ClassHash> {
        let gas = object.pointer("/spec/gas")?.as_str()?;
        Some(ClassHash {
            version: "v1",
            value: mortise_apis::hash::structure::text(gas),
        })
    }

    fn changes_selectors(&self, old: &Value, new: &Value) -> bool {
        old.pointer("/spec/height") != new.pointer("/spec/height")
    }

    fn old_version(&self) -> Option<OldVersion> {
        Some(OldVersion {
            spec: |_| {},
            up: |mut object| {
                object["spec"]["gas"] = object["spec"]["filling"].take();
                Ok(object)
            },
            down: |mut object| {
                object["spec"]["filling"] = object["spec"]["gas"].take();
                Ok(object)
            },
        })
    }

    fn former_kinds(&self) -> &'static [&'static str] {
        &["Zeppelin"]
    }

    fn deprecated_fields(&self) -> &'static [DeprecatedField] {
        const FIELDS: &[DeprecatedField] = &[DeprecatedField::new(
            &["NodePool"],
            "/spec/balloon",
            "write a BalloonClass",
        )];
        FIELDS
    }
}

fn known() -> NodeClassRegistry {
    NodeClassRegistry::new([&BalloonClassApi])
}

fn crds() -> CrdSet {
    CrdSet::of_class(&BalloonClassApi)
}

fn class(spec: &Value) -> Value {
    json!({
        "apiVersion": "balloons.example.com/v1", "kind": "BalloonClass",
        "metadata": { "name": "default" }, "spec": spec,
    })
}

fn pool(key: &str, reference: &Value) -> Value {
    json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": { "name": "p" },
        "spec": { "template": { "spec": {
            "nodeClassRef": reference,
            "requirements": [{ "key": key, "operator": "Exists" }],
        } } },
    })
}

fn request(object: Value, old: Option<Value>) -> AdmissionRequest {
    let (group, version) = object["apiVersion"]
        .as_str()
        .unwrap()
        .split_once('/')
        .unwrap();
    serde_json::from_value(json!({
        "uid": "1",
        "kind": { "group": group, "version": version, "kind": object["kind"] },
        "name": object["metadata"]["name"],
        "operation": if old.is_some() { "UPDATE" } else { "CREATE" },
        "object": object, "oldObject": old, "dryRun": true,
    }))
    .unwrap()
}

fn settings() -> AdmissionSettings {
    AdmissionSettings {
        crds: crds(),
        ..AdmissionSettings::default()
    }
}

/// Answers in a cluster with a node of the class.
fn admit(object: Value, old: Option<Value>) -> AdmissionResult {
    use mortise_apis::{NodeClaim, NodePool};
    use mortise_state::resource_kinds::{EventSource, Object, ObjectEvent};

    let now = Timestamp::UNIX_EPOCH;
    let mut index = Index::new(known().well_known(), true, now);
    let reference = json!({ "group": KIND.group, "kind": KIND.kind, "name": "default" });
    let pool: NodePool =
        serde_json::from_value(pool("balloons.example.com/gas", &reference)).unwrap();
    let hashes = json!({
        "balloons.example.com/balloonclass-hash": "1",
        "balloons.example.com/balloonclass-hash-version": "v1",
    });
    let mut stored = class(&json!({ "gas": "helium" }));
    stored["metadata"]["annotations"] = hashes.clone();
    let stored = NodeClassObject::new(NodeClassKey::new(KIND.group, KIND.kind, "default"), stored);
    let claim: NodeClaim = serde_json::from_value(json!({
        "metadata": { "name": "p-1", "uid": "u", "annotations": hashes, "labels": { "karpenter.sh/nodepool": "p" } },
        "spec": { "nodeClassRef": reference },
        "status": { "providerID": "balloon://1", "conditions": [{ "type": "Launched", "status": "True" }] },
    }))
    .unwrap();
    for object in [
        Object::from(stored),
        Object::from(pool),
        Object::from(claim),
    ] {
        index.apply(ObjectEvent::Applied(object, EventSource::Watch));
    }
    index.set_synced();
    let snapshot = index.freeze(now);
    let context = AdmissionContext {
        snapshot: &snapshot,
        rules: &settings(),
        now,
        stop: &|| true,
    };
    validate(&context, &request(object, old))
}

#[test]
fn objects_of_the_class_are_admitted_or_refused() {
    let good = admit(class(&json!({ "gas": "helium" })), None);
    assert_eq!((good.denied, good.warnings), (vec![], vec![]));
    let burning = admit(class(&json!({ "gas": "hydrogen" })), None).denied;
    assert!(
        burning.len() == 1 && burning[0].contains("burns"),
        "{burning:?}"
    );
    let loose = admit(class(&json!({ "ropes": 0 })), None).warnings;
    assert!(
        loose.len() == 1 && loose[0].contains("fly away"),
        "{loose:?}"
    );
    let unknown = admit(class(&json!({ "gass": "helium" })), None).warnings;
    assert!(
        unknown.len() == 1 && unknown[0].contains("did you mean \"gas\"?"),
        "{unknown:?}"
    );
    assert_eq!(coverage(&crds()).unanswered, Vec::<String>::new());
}

#[test]
fn defaults_come_from_its_definition_and_its_kind() {
    let mut object = class(&json!({}));
    assert!(crds().apply_defaults(&mut object));
    assert_eq!(object["spec"], json!({ "gas": "helium" }));
    let pool = pool("team", &json!({ "name": "default" }));
    let answer = set_defaults(&settings(), &known().well_known(), &request(pool, None));
    let written: Vec<&Value> = answer.patch.iter().map(|each| &each["value"]).collect();
    assert_eq!(written, [KIND.group, KIND.kind]);
}

#[test]
fn edits_of_the_class_are_previewed() {
    let old = class(&json!({ "gas": "helium", "height": 1 }));
    let other_gas = admit(
        class(&json!({ "gas": "neon", "height": 1 })),
        Some(old.clone()),
    );
    assert_eq!(other_gas.warnings.len(), 1, "{:?}", other_gas.warnings);
    assert!(other_gas.warnings[0].contains("drifts"), "{other_gas:?}");
    let higher = admit(class(&json!({ "gas": "helium", "height": 2 })), Some(old)).warnings;
    assert!(
        higher.iter().any(|text| text.contains("new selectors")),
        "{higher:?}"
    );
}

#[test]
fn its_labels_are_well_known_and_its_domain_is_restricted() {
    let labels = known().well_known();
    assert!(labels.contains("balloons.example.com/gas"));
    assert!(labels.is_restricted("balloons.example.com/colour"));
    assert!(!WellKnown::core().is_restricted("balloons.example.com/colour"));
    let reference = json!({ "group": KIND.group, "kind": KIND.kind, "name": "default" });
    assert_eq!(
        admit(pool("balloons.example.com/gas", &reference), None).denied,
        Vec::<String>::new()
    );
    let denied = admit(pool("balloons.example.com/gaz", &reference), None).denied;
    assert!(
        denied.len() == 1 && denied[0].contains("did you mean \"balloons.example.com/gas\"?"),
        "{denied:?}"
    );
}

#[test]
fn definitions_with_and_without_conversion() {
    let set = crds();
    let files: Vec<&str> = set
        .manifests()
        .iter()
        .map(|each| each.file_name.as_str())
        .collect();
    assert!(
        files.contains(&"balloons.example.com_balloonclasses.yaml") && files.len() == 6,
        "{files:?}"
    );
    let pools = &set
        .manifests()
        .iter()
        .find(|each| each.file_name == "karpenter.sh_nodepools.yaml")
        .unwrap()
        .definition;
    assert!(
        pools
            .to_string()
            .contains("label domain \\\"balloons.example.com\\\" is restricted")
    );
    let both = with_conversion(&set, &json!({ "url": "https://127.0.0.1" }));
    let of_class = both
        .iter()
        .find(|each| each["spec"]["names"]["kind"] == KIND.kind)
        .unwrap();
    assert_eq!(of_class["spec"]["versions"][1]["name"], "v1beta1");
    let old = json!({
        "apiVersion": "balloons.example.com/v1beta1", "kind": "BalloonClass",
        "metadata": { "name": "default" }, "spec": { "filling": "helium" },
    });
    let new = convert(&known(), old, "balloons.example.com/v1").unwrap();
    assert_eq!(new["spec"]["gas"], "helium");
    let pool = json!({
        "apiVersion": "karpenter.sh/v1beta1", "kind": "NodePool", "metadata": { "name": "p" },
        "spec": { "template": { "spec": { "nodeClassRef": { "name": "default" } } } },
    });
    let pool = convert(&known(), pool, "karpenter.sh/v1").unwrap();
    assert_eq!(
        pool["spec"]["template"]["spec"]["nodeClassRef"],
        json!({ "group": KIND.group, "kind": KIND.kind, "name": "default" })
    );
}

#[test]
fn rendered_manifests_name_it() {
    let definitions = converted_definitions(&known());
    let account = service_account(&ServiceAccount {
        namespace: "ns",
        account: "a",
        name: "a",
        lease: "l",
        secret: "s",
        providers: &[ProviderPermissions {
            name: "balloons",
            node_class: KIND,
            creates_nodes: false,
            reads_service_ranges: false,
        }],
        definitions: &definitions,
        conversion: true,
        own_certificates: true,
        pod_deletion_costs: false,
        hand_over: false,
    });
    let role = &account[1];
    assert_eq!(role["kind"], "ClusterRole");
    let rules = role["rules"].as_array().unwrap();
    let lists = |resource: &str| {
        rules.iter().any(|rule| {
            rule["apiGroups"] == json!([KIND.group]) && rule["resources"] == json!([resource])
        })
    };
    assert!(
        lists("balloonclasses") && lists("balloonclasses/status"),
        "{rules:?}"
    );
    let creates = json!({ "apiGroups": [""], "resources": ["nodes"], "verbs": ["create"] });
    assert!(!rules.contains(&creates));
    assert!(rules.iter().any(|rule| {
        rule["resourceNames"]
            == json!([
                "balloonclasses.balloons.example.com",
                "nodeclaims.karpenter.sh",
                "nodepools.karpenter.sh"
            ])
    }));
    let configurations = webhook_configurations(&WebhookOptions {
        endpoint: Endpoint::Url("https://127.0.0.1".to_owned()),
        ca_bundle: None,
        fail: false,
        own_user: None,
        node_classes: vec![KIND],
        scheduler_names: None,
    });
    assert!(
        configurations
            .iter()
            .all(|each| each.to_string().contains("balloonclasses"))
    );
}

#[test]
fn files_with_it_are_linted() {
    let lint = |text: &str| -> LintReport {
        let source = SourceFile {
            name: "in.yaml".to_owned(),
            text: text.to_owned(),
        };
        let options = LintOptions {
            well_known: known().well_known(),
            crds: crds(),
            catalog: None,
            from: Timestamp::UNIX_EPOCH,
            nodes: None,
        };
        lint(&[source], &options)
    };
    let found = |text: &str| -> Vec<String> {
        let report = lint(text);
        report.findings.iter().map(|each| each.message()).collect()
    };
    let burning = found(&class(&json!({ "gas": "hydrogen" })).to_string());
    assert!(
        burning.len() == 1 && burning[0].contains("burns"),
        "{burning:?}"
    );
    let former = found("apiVersion: balloons.example.com/v1alpha1\nkind: Zeppelin\n");
    assert!(
        former
            .iter()
            .any(|text| text.contains("BalloonClass of balloons.example.com/v1")),
        "{former:?}"
    );
    let mut gone = pool(
        "team",
        &json!({ "group": KIND.group, "kind": KIND.kind, "name": "default" }),
    );
    gone["spec"]["balloon"] = json!("red");
    let gone = found(&gone.to_string());
    assert!(
        gone.iter()
            .any(|text| text.contains("write a BalloonClass")),
        "{gone:?}"
    );
}

#[test]
fn keys_of_other_groups_are_others() {
    let key = NodeClassKey::new(KIND.group, KIND.kind, "default");
    assert!(mortise_apis::node_class::served::ServedNodeClasses::only([KIND]).covers(&key));
    assert!(known().of_group("karpenter.sh").is_none());
    assert!(known().of_kind("OtherClass").is_none());
}
