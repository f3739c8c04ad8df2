//! EC2NodeClasses.

use serde_json::{Map, Value, json};

use super::ConversionError;
use super::annotations::{ALIAS_VERSION, UBUNTU};
use super::fields::{annotate, annotation, filled, list_in, object_at, remove_annotation, text_in};
use crate::node_class::ec2nodeclass::AMI_FAMILIES;

const SPEC: [&str; 1] = ["spec"];
/// Fields that came with `v1` or later.
pub const LATER: [&str; 7] = [
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

pub(super) fn up(mut object: Value) -> Result<Value, ConversionError> {
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

pub(super) fn down(mut object: Value) -> Result<Value, ConversionError> {
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
fn metadata_hops(spec: &mut Map<String, Value>, hops: i64) -> Result<(), ConversionError> {
    let options = filled(spec, "metadataOptions", || json!({}));
    let Some(options) = options.as_object_mut() else {
        return Err(super::fields::wrong(
            "spec.metadataOptions",
            Some(options),
            "an object",
        ));
    };
    filled(options, "httpPutResponseHopLimit", || json!(hops));
    Ok(())
}
