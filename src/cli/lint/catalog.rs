//! The instance types for `lint`: the built-in ones of the regions that the files refer to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::Context as _;
use mortise_apis::labels;
use mortise_apis::nearest::nearest;
use mortise_apis::requirements::{Operator, Requirement};
use mortise_cloudprovider::{CapacityType, InstanceType, Offering};
use mortise_controller::RunError;
use mortise_manifests::file::manifests;
use mortise_manifests::migrate::SourceFile;
use serde_json::Value;

/// Region whose types are used for unknown regions.
const STAND_IN: &str = "us-east-1";
/// Labels that differ between regions.
const OF_PLACES: [&str; 3] = [
    labels::TOPOLOGY_ZONE,
    labels::TOPOLOGY_REGION,
    mortise_aws_class::labels::ZONE_ID,
];

/// The instance types of the requested regions, otherwise of the regions in the files, otherwise of all regions; and
/// warnings about the choice.
pub(super) fn types(
    sources: &[SourceFile],
    asked: &[String],
) -> anyhow::Result<(Vec<InstanceType>, Vec<String>)> {
    let catalog = mortise_aws_catalog::embedded_catalog()?;
    let known = catalog.regions();
    let named = zones_by_region(sources);
    let mut regions: BTreeSet<&str> = asked.iter().map(String::as_str).collect();
    if let Some(region) = asked
        .iter()
        .find(|region| region_of(region) != Some(region.as_str()))
    {
        anyhow::bail!(RunError::Usage(format!(
            "--region: {region:?} is not a region such as us-east-1"
        )));
    }
    if regions.is_empty() {
        regions.extend(named.keys().map(String::as_str));
    }
    if regions.is_empty() {
        regions.extend(&known);
    }
    let mut all: BTreeMap<Arc<str>, InstanceType> = BTreeMap::new();
    let mut warnings = Vec::new();
    for region in regions {
        let types = if known.contains(region) {
            catalog.instance_types(region, &[]).context("--region")?
        } else {
            let meant = nearest(region, &known)
                .map_or_else(String::new, |near| format!(" (did you mean {near}?)"));
            warnings.push(format!(
                "region {region} is not in the embedded catalog{meant}: the instance types of {STAND_IN} are used"
            ));
            let zones = named.get(region).cloned().unwrap_or_default();
            let stand_in = catalog.instance_types(STAND_IN, &[])?;
            stand_in
                .into_iter()
                .map(|each| moved(each, region, &zones))
                .collect()
        };
        for each in types {
            match all.get_mut(&each.name) {
                Some(first) => join(first, each),
                None => drop(all.insert(Arc::clone(&each.name), each)),
            }
        }
    }
    Ok((all.into_values().map(with_reserved).collect(), warnings))
}

/// The zones in requirements and labels of the files, by region; a region that is named itself has an entry without
/// zones.
fn zones_by_region(sources: &[SourceFile]) -> BTreeMap<String, BTreeSet<String>> {
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut see = |key: &str, value: &str| {
        let Some(region) = region_of(value) else {
            return;
        };
        let zones = found.entry(region.to_owned()).or_default();
        if labels::normalize(key) == labels::TOPOLOGY_ZONE {
            zones.insert(value.to_owned());
        }
    };
    for source in sources {
        for manifest in manifests(&source.text).into_iter().flatten() {
            walk(&manifest.value(), &mut see);
        }
    }
    found
}

fn walk(value: &Value, see: &mut impl FnMut(&str, &str)) {
    let of_place = |key: &str| {
        let key = labels::normalize(key);
        key == labels::TOPOLOGY_ZONE || key == labels::TOPOLOGY_REGION
    };
    match value {
        Value::Array(items) => items.iter().for_each(|item| walk(item, see)),
        Value::Object(fields) => {
            let key = fields
                .get("key")
                .and_then(Value::as_str)
                .unwrap_or_default();
            if of_place(key) {
                let values = fields.get("values").and_then(Value::as_array);
                let values = values.into_iter().flatten().filter_map(Value::as_str);
                values.for_each(|value| see(key, value));
            }
            for (name, field) in fields {
                match field.as_str() {
                    Some(text) if of_place(name) => see(name, text),
                    _ => walk(field, see),
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// `us-east-1` of `us-east-1a`, `us-west-2-lax-1a` and itself.
fn region_of(zone: &str) -> Option<&str> {
    let digit = zone.char_indices().find(|(at, c)| {
        c.is_ascii_digit() && zone.get(..*at).is_some_and(|left| left.ends_with('-'))
    });
    let (begin, _) = digit?;
    let rest = zone.get(begin..)?;
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let letters = |text: &str| text.chars().all(|c| c.is_ascii_lowercase() || c == '-');
    let region = zone.get(..begin + digits)?;
    (region.matches('-').count() >= 2 && zone.get(..begin).is_some_and(letters)).then_some(region)
}

/// The type as if it were offered in these zones of another region.
fn moved(mut of: InstanceType, region: &str, zones: &BTreeSet<String>) -> InstanceType {
    let any = format!("{region}a");
    let zones: Vec<&str> = if zones.is_empty() {
        vec![any.as_str()]
    } else {
        zones.iter().map(String::as_str).collect()
    };
    let first = of
        .offerings
        .first()
        .map(|offering| Arc::clone(&offering.zone));
    let pattern: Vec<Offering> = of
        .offerings
        .iter()
        .filter(|offering| Some(&offering.zone) == first.as_ref())
        .cloned()
        .collect();
    of.offerings = zones
        .iter()
        .flat_map(|zone| {
            pattern.iter().cloned().map(|offering| Offering {
                zone: Arc::from(*zone),
                labels: Vec::new(),
                ..offering
            })
        })
        .collect();
    set(&mut of, labels::TOPOLOGY_ZONE, &zones);
    set(&mut of, labels::TOPOLOGY_REGION, &[region]);
    of.requirements.remove(mortise_aws_class::labels::ZONE_ID);
    of
}

/// Adds the offerings of the same type in another region.
fn join(first: &mut InstanceType, other: InstanceType) {
    for key in OF_PLACES {
        let values: BTreeSet<String> = [&*first, &other]
            .into_iter()
            .filter_map(|each| each.requirements.get(key))
            .flat_map(|requirement| requirement.values().iter().map(ToString::to_string))
            .collect();
        if !values.is_empty() {
            let values: Vec<&str> = values.iter().map(String::as_str).collect();
            set(first, key, &values);
        }
    }
    first.offerings.extend(other.offerings);
}

/// Adds reserved capacity: only the account knows its reservations, so they may exist.
fn with_reserved(mut of: InstanceType) -> InstanceType {
    let zones: BTreeSet<Arc<str>> = of
        .offerings
        .iter()
        .map(|offering| Arc::clone(&offering.zone))
        .collect();
    of.offerings.extend(zones.into_iter().map(|zone| Offering {
        zone,
        capacity_type: CapacityType::Reserved,
        price: None,
        available: true,
        reservation: None,
        labels: Vec::new(),
    }));
    let all = [
        labels::CAPACITY_TYPE_ON_DEMAND,
        labels::CAPACITY_TYPE_RESERVED,
        labels::CAPACITY_TYPE_SPOT,
    ];
    set(&mut of, labels::CAPACITY_TYPE, &all);
    of.offerings
        .sort_by(|a, b| (&a.zone, a.capacity_type).cmp(&(&b.zone, b.capacity_type)));
    of
}

fn set(of: &mut InstanceType, key: &'static str, values: &[&str]) {
    let values = values.iter().copied();
    of.requirements
        .replace(Requirement::new(key, Operator::In, values));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> Vec<SourceFile> {
        vec![SourceFile {
            name: "a.yaml".to_owned(),
            text: text.to_owned(),
        }]
    }

    #[test]
    fn regions_of_zones() {
        for (zone, region) in [
            ("us-east-1a", Some("us-east-1")),
            ("us-east-1", Some("us-east-1")),
            ("us-gov-west-1b", Some("us-gov-west-1")),
            ("us-west-2-lax-1a", Some("us-west-2")),
            ("test-zone-a", None),
            ("zone1", None),
            ("a-1", None),
            ("", None),
        ] {
            assert_eq!(region_of(zone), region, "{zone}");
        }
    }

    #[test]
    fn types_of_the_regions_in_the_files_are_used() {
        let zones = |types: &[InstanceType]| -> BTreeSet<String> {
            let offerings = types.iter().flat_map(|each| &each.offerings);
            offerings
                .map(|offering| offering.zone.to_string())
                .collect()
        };
        let pool = "kind: NodePool\nspec: {requirements: [{key: topology.kubernetes.io/zone, operator: In, values: [eu-west-1a, eu-central-1c]}]}\n";
        let (some, warnings) = types(&source(pool), &[]).unwrap();
        let known: BTreeSet<&str> =
            ["eu-central-1c", "eu-west-1a", "eu-west-1b", "eu-west-1c"].into();
        assert_eq!(
            zones(&some)
                .iter()
                .map(String::as_str)
                .collect::<BTreeSet<_>>(),
            known
        );
        assert_eq!(warnings.len(), 1);
        assert!(warnings[0].contains("eu-central-1"), "{warnings:?}");
        let m5 = some.iter().find(|each| &*each.name == "m5.large").unwrap();
        assert_eq!(
            m5.requirements
                .get(labels::TOPOLOGY_ZONE)
                .unwrap()
                .values()
                .len(),
            4
        );
        assert!(
            m5.offerings
                .iter()
                .any(|each| each.capacity_type == CapacityType::Reserved)
        );

        let (all, warnings) = types(&source("kind: NodePool\n"), &[]).unwrap();
        assert!(
            all.len() > 700 && warnings.is_empty(),
            "{} {warnings:?}",
            all.len()
        );
        assert!(zones(&all).contains("us-west-2a") && zones(&all).contains("us-east-1f"));

        let (one, _) = types(&source(pool), &["us-west-2".to_owned()]).unwrap();
        assert!(zones(&one).iter().all(|zone| zone.starts_with("us-west-2")));
        let wrong = types(&[], &["west".to_owned()]).unwrap_err().to_string();
        assert!(wrong.contains("\"west\""), "{wrong}");
        let (_, near) = types(&[], &["us-esat-1".to_owned()]).unwrap();
        assert!(near[0].contains("did you mean us-east-1?"), "{near:?}");
    }
}
