//! `v1beta1` of EC2NodeClass: conversion up and down, and the schema.

use mortise_apis::schema::crd_manifest::{RULES, fields, set_keyword, without_rules};
use mortise_apis::schema::fields::rule;
use mortise_apis::schema::json_fields::{
    WrongType, annotate, annotation, filled, list_in, object_at, remove_annotation, text_in, wrong,
};
use serde_json::{Map, Value, json};

use crate::spec::AMI_FAMILIES;

/// On `v1` EC2NodeClasses that were of the family Ubuntu: which fields had to be filled in. Karpenter's name.
pub const UBUNTU: &str = "compatibility.karpenter.k8s.aws/v1beta1-ubuntu";
/// On `v1beta1` EC2NodeClasses: the version of the image alias, where it is not `latest`. Karpenter's name.
pub const ALIAS_VERSION: &str = "compatibility.karpenter.k8s.aws/v1-alias-version";

const SPEC: [&str; 1] = ["spec"];
/// Fields that came with `v1` or later.
const LATER: [&str; 7] = [
    "capacityReservationSelectorTerms",
    "connectionTracking",
    "cpuOptions",
    "ipPrefixCount",
    "kubelet",
    "networkInterfaces",
    "placementGroupSelector",
];
/// An image that does not exist: a class whose images cannot be expressed in `v1` must not become ready.
const PLACEHOLDER: &str = "ami-placeholder";
/// Default hop limit of the metadata service in `v1beta1`.
pub const OLD_HOPS: i64 = 2;
/// The same of `v1`.
const NEW_HOPS: i64 = 1;

/// The alias of a family's images; `None` for families whose images have no alias.
#[must_use]
pub fn alias(family: &str, version: &str) -> Option<String> {
    let known = AMI_FAMILIES.contains(&family) && family != "Custom";
    let version = if family.starts_with("Windows") {
        "latest"
    } else {
        version
    };
    known.then(|| format!("{}@{version}", family.to_lowercase()))
}

/// Default disk of Ubuntu nodes.
#[must_use]
pub fn ubuntu_disks() -> Value {
    json!([{
        "deviceName": "/dev/sda1",
        "rootVolume": true,
        "ebs": { "encrypted": true, "volumeSize": "20Gi", "volumeType": "gp3" },
    }])
}

fn empty(spec: &Map<String, Value>, name: &str) -> bool {
    match spec.get(name) {
        None | Some(Value::Null) => true,
        Some(value) => value.as_array().is_some_and(Vec::is_empty),
    }
}

pub(crate) fn up(mut object: Value) -> Result<Value, WrongType> {
    let version = annotation(&object, ALIAS_VERSION).map(str::to_owned);
    let Some(spec) = object_at(&mut object, &SPEC)? else {
        return Ok(object);
    };
    let family = text_in(spec, "amiFamily", "spec")?.map(str::to_owned);
    let mut done: Vec<&str> = Vec::new();
    let mut aliased = false;
    match family.as_deref() {
        Some("Ubuntu") => {
            done.push("amiFamily");
            spec.insert("amiFamily".to_owned(), json!("AL2"));
            if empty(spec, "blockDeviceMappings") {
                done.push("blockDeviceMappings");
                spec.insert("blockDeviceMappings".to_owned(), ubuntu_disks());
            }
            if empty(spec, "amiSelectorTerms") {
                done.push("incompatible");
                spec.insert(
                    "amiSelectorTerms".to_owned(),
                    json!([{ "id": PLACEHOLDER }]),
                );
            }
        }
        Some(family) if empty(spec, "amiSelectorTerms") => {
            if let Some(alias) = alias(family, version.as_deref().unwrap_or("latest")) {
                aliased = true;
                spec.insert("amiSelectorTerms".to_owned(), json!([{ "alias": alias }]));
            }
        }
        _ => {}
    }
    metadata_hops(spec, OLD_HOPS)?;
    if !done.is_empty() {
        annotate(&mut object, UBUNTU, done.join(","));
    }
    if aliased {
        remove_annotation(&mut object, ALIAS_VERSION);
    }
    Ok(object)
}

pub(crate) fn down(mut object: Value) -> Result<Value, WrongType> {
    let ubuntu = annotation(&object, UBUNTU).map(str::to_owned);
    let Some(spec) = object_at(&mut object, &SPEC)? else {
        return Ok(object);
    };
    for name in LATER {
        spec.remove(name);
    }
    for mapping in list_in(spec, "blockDeviceMappings", "spec")?
        .into_iter()
        .flatten()
    {
        if let Some(ebs) = mapping.get_mut("ebs").and_then(Value::as_object_mut) {
            ebs.remove("volumeInitializationRate");
        }
    }
    let mut version = None;
    if let Some(terms) = list_in(spec, "amiSelectorTerms", "spec")? {
        let alias = terms
            .iter()
            .find_map(|term| term.get("alias")?.as_str())
            .map(str::to_owned);
        for term in terms.iter_mut().filter_map(Value::as_object_mut) {
            term.remove("alias");
            term.remove("ssmParameter");
        }
        terms.retain(|term| term.as_object().is_none_or(|term| !term.is_empty()));
        if terms.is_empty() {
            spec.remove("amiSelectorTerms");
        }
        if let Some((family, of)) = alias.as_deref().and_then(|alias| alias.split_once('@')) {
            let family = AMI_FAMILIES
                .into_iter()
                .find(|known| known.to_lowercase() == family);
            if let Some(family) = family {
                filled(spec, "amiFamily", || json!(family));
            }
            version = (of != "latest").then(|| of.to_owned());
        }
    }
    let from_ubuntu = ubuntu.filter(|_| spec.get("amiFamily") == Some(&json!("AL2")));
    if let Some(rules) = &from_ubuntu {
        spec.insert("amiFamily".to_owned(), json!("Ubuntu"));
        let by_rule = |name| rules.split(',').any(|each| each == name);
        if by_rule("blockDeviceMappings")
            && spec.get("blockDeviceMappings") == Some(&ubuntu_disks())
        {
            spec.remove("blockDeviceMappings");
        }
        if by_rule("incompatible")
            && spec.get("amiSelectorTerms") == Some(&json!([{ "id": PLACEHOLDER }]))
        {
            spec.remove("amiSelectorTerms");
        }
    }
    // The field is required in the older version.
    filled(spec, "amiFamily", || json!("Custom"));
    metadata_hops(spec, NEW_HOPS)?;
    if from_ubuntu.is_some() {
        remove_annotation(&mut object, UBUNTU);
    }
    if let Some(version) = version {
        annotate(&mut object, ALIAS_VERSION, version);
    }
    Ok(object)
}

/// Sets the default of the source version where the object relies on it.
fn metadata_hops(spec: &mut Map<String, Value>, hops: i64) -> Result<(), WrongType> {
    let options = filled(spec, "metadataOptions", || json!({}));
    let Some(options) = options.as_object_mut() else {
        return Err(wrong("spec.metadataOptions", Some(options), "an object"));
    };
    filled(options, "httpPutResponseHopLimit", || json!(hops));
    Ok(())
}

/// The schema of the present spec to that of `v1beta1`.
pub(crate) fn old_spec(spec: &mut Value) {
    without_rules(spec, &["alias"]);
    if let Some(of) = spec.as_object_mut() {
        of.insert(
            "required".to_owned(),
            json!([
                "amiFamily",
                "securityGroupSelectorTerms",
                "subnetSelectorTerms"
            ]),
        );
    }
    if let Some(fields) = fields(spec, "") {
        for name in LATER {
            fields.remove(name);
        }
    }
    if let Some(Value::Array(families)) = spec.pointer_mut("/properties/amiFamily/enum") {
        families.push(json!("Ubuntu"));
    }
    if let Some(terms) = spec.pointer_mut("/properties/amiSelectorTerms") {
        without_rules(terms, &["alias"]);
        if let Some(of) = terms.as_object_mut() {
            of.remove("minItems");
            if let Some(Value::Array(rules)) = of.get_mut(RULES) {
                rules.push(rule(
                    "self.all(x, has(x.tags) || has(x.id) || has(x.name))",
                    "expected at least one, got none, ['tags', 'id', 'name']",
                ));
                rules.push(rule(
                    "!self.exists(x, has(x.id) && (has(x.tags) || has(x.name) || has(x.owner)))",
                    "'id' is mutually exclusive, cannot be set with a combination of other fields in amiSelectorTerms",
                ));
            }
        }
        if let Some(term) = fields(terms, "/items") {
            term.remove("alias");
            term.remove("ssmParameter");
        }
    }
    let ebs = "/properties/blockDeviceMappings/items/properties/ebs";
    if let Some(ebs) = spec.pointer_mut(ebs) {
        without_rules(ebs, &["volumeInitializationRate"]);
        if let Some(fields) = fields(ebs, "") {
            fields.remove("volumeInitializationRate");
        }
    }
    let options = "/properties/metadataOptions";
    let hops = json!(OLD_HOPS);
    set_keyword(
        spec,
        &format!("{options}/default"),
        "httpPutResponseHopLimit",
        hops.clone(),
    );
    set_keyword(
        spec,
        &format!("{options}/properties/httpPutResponseHopLimit"),
        "default",
        hops,
    );
}
