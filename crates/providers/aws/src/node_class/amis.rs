//! AMIs that the terms of a class select, and which of them a type boots.

use std::collections::BTreeMap;

use aws_sdk_ec2::types::{ArchitectureValues, Filter, Image};
use futures::future::try_join_all;
use jiff::Timestamp;
use mortise_apis::labels;
use mortise_apis::requirements::{Requirements, requirements_of};
use mortise_apis::schema::requirement::RequirementSpec;
use mortise_aws_class::spec::{AmiSelectorTerm, Ec2NodeClassSpec};
use mortise_aws_class::status::Ami;
use mortise_cloudprovider::InstanceType;

use crate::failure::Failure;
use crate::node_class::ami_alias;
use crate::sdk::AwsClients;
use crate::sdk::arguments::{filter, tag_filters};
use crate::sdk::ssm_parameter_cache::SsmParameterCache;
use mortise_aws_catalog::ami_family::{self, AmiFamily};

/// Why no AMI is selected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AmiError {
    /// A call failed.
    #[error(transparent)]
    Call(#[from] Failure),
    /// The family has no images for the cluster's version.
    #[error("{0}")]
    Unsupported(String),
    /// Nothing is published under the alias.
    #[error("{0}")]
    Nothing(String),
}

/// An image as EC2 describes it, with the requirements that its term gave it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FoundAmi {
    ami: Ami,
    /// `None` when EC2's text is no time; such an image counts as the oldest.
    created: Option<Timestamp>,
}

/// Where the id of an image comes from.
#[derive(Clone, Debug, Default)]
struct NamedImage {
    /// Sets of requirements; none: follow the image's architecture.
    requirements: Vec<Vec<RequirementSpec>>,
    /// The parameters that name it as the latest of its kind.
    latest: Vec<String>,
}

/// Images that are known by id.
type NamedImages = BTreeMap<String, NamedImage>;

/// The selected images: one for each distinct set of requirements, newest first.
pub(crate) async fn find(
    clients: &AwsClients,
    parameters: &SsmParameterCache,
    spec: &Ec2NodeClassSpec,
    version: &str,
    now: Timestamp,
) -> Result<Vec<Ami>, AmiError> {
    let mut ids = alias_ids(parameters, spec, version).await?;
    for id in term_ids(parameters, &spec.ami_selector_terms).await? {
        ids.entry(id).or_default();
    }
    let queries = queries(&spec.ami_selector_terms, &ids).into_iter();
    let described = try_join_all(queries.map(|query| describe(clients, query))).await?;
    let mut found = Vec::new();
    for image in described.into_iter().flatten() {
        let named = ids.get(&image.ami.id);
        if is_deprecated(&image, now) {
            let latest = named.iter().flat_map(|named| &named.latest);
            latest.for_each(|parameter| parameters.deprecated(parameter));
        }
        let sets = named.map(|named| &*named.requirements).unwrap_or_default();
        found.extend(with_requirements(&image, sets, now));
    }
    Ok(newest(found))
}

/// Images that are published under the class's alias; none without an alias.
async fn alias_ids(
    parameters: &SsmParameterCache,
    spec: &Ec2NodeClassSpec,
    kubernetes: &str,
) -> Result<NamedImages, AmiError> {
    let mut ids = NamedImages::new();
    let Some((name, version)) = ami_family::alias(spec) else {
        return Ok(ids);
    };
    let family = AmiFamily::parse(name).ok_or_else(|| {
        AmiError::Unsupported(format!(
            "alias {name:?} names no image family that is known"
        ))
    })?;
    let published =
        ami_alias::parameters(family, version, kubernetes).map_err(AmiError::Unsupported)?;
    let values = try_join_all(published.iter().map(|each| parameters.get(&each.path))).await?;
    for (parameter, value) in published.into_iter().zip(values) {
        if let Some(id) = value.filter(|id| !id.is_empty()) {
            let named = ids.entry(id).or_default();
            named.requirements.extend(parameter.requirements);
            named
                .latest
                .extend((version == "latest").then_some(parameter.path));
        }
    }
    if ids.is_empty() {
        return Err(AmiError::Nothing(format!(
            "no image is published for alias {name}@{version} and Kubernetes {kubernetes}"
        )));
    }
    Ok(ids)
}

/// Images that the terms name by id or by parameter.
async fn term_ids(
    parameters: &SsmParameterCache,
    terms: &[AmiSelectorTerm],
) -> Result<Vec<String>, Failure> {
    let mut ids = Vec::new();
    for term in terms {
        if let Some(id) = &term.id {
            ids.push(id.clone());
        } else if let Some(parameter) = &term.ssm_parameter {
            match parameters.get(parameter).await? {
                Some(id) if id.starts_with("ami-") => ids.push(id),
                value => tracing::warn!(
                    parameter,
                    ?value,
                    "SSM parameter of node class contains no AMI ID"
                ),
            }
        }
    }
    Ok(ids)
}

/// One DescribeImages call.
struct AmiQuery {
    filters: Vec<Filter>,
    owners: Vec<String>,
}

/// A query for each term that selects by name, tags or owner, and one for all ids together.
fn queries(terms: &[AmiSelectorTerm], ids: &NamedImages) -> Vec<AmiQuery> {
    let selecting = terms
        .iter()
        .filter(|term| term.id.is_none() && term.ssm_parameter.is_none() && term.alias.is_none());
    let mut queries: Vec<AmiQuery> = selecting.map(term_query).collect();
    if !ids.is_empty() {
        queries.push(AmiQuery {
            filters: vec![filter("image-id", ids.keys())],
            owners: Vec::new(),
        });
    }
    queries
}

fn term_query(term: &AmiSelectorTerm) -> AmiQuery {
    let mut filters = term.tags.as_ref().map(tag_filters).unwrap_or_default();
    filters.extend(term.name.as_ref().map(|name| filter("name", [name])));
    let owners = match (&term.owner, &term.name) {
        (Some(owner), _) => vec![owner.clone()],
        (None, Some(_)) => vec!["self".to_owned(), "amazon".to_owned()],
        (None, None) => Vec::new(),
    };
    AmiQuery { filters, owners }
}

/// An image before its requirements are known.
struct DescribedAmi {
    ami: Ami,
    created: Option<Timestamp>,
    /// When it is, or was, deprecated.
    deprecation: Option<Timestamp>,
    /// Kubernetes' word for it.
    architecture: &'static str,
}

async fn describe(clients: &AwsClients, query: AmiQuery) -> Result<Vec<DescribedAmi>, Failure> {
    let AmiQuery {
        mut filters,
        owners,
    } = query;
    filters.push(filter("state", ["available"]));
    let owners = (!owners.is_empty()).then_some(owners);
    let mut pages = clients
        .ec2
        .describe_images()
        .set_filters(Some(filters))
        .set_owners(owners)
        .include_deprecated(true)
        .max_results(1000)
        .into_paginator()
        .send();
    let mut found = Vec::new();
    while let Some(page) = pages.next().await {
        let page = page.map_err(|error| clients.failure("ec2:DescribeImages", error))?;
        let images = page.images.unwrap_or_default();
        found.extend(images.into_iter().filter_map(described));
    }
    Ok(found)
}

/// EC2's description in our words; `None` for an image that no node runs.
fn described(image: Image) -> Option<DescribedAmi> {
    let architecture = match image.architecture.as_ref().map(ArchitectureValues::as_str) {
        Some("x86_64") => labels::ARCH_AMD64,
        Some("arm64") => labels::ARCH_ARM64,
        _ => return None,
    };
    Some(DescribedAmi {
        ami: Ami {
            id: image.image_id?,
            name: image.name,
            deprecated: None,
            requirements: Vec::new(),
        },
        created: time(image.creation_date.as_deref()),
        deprecation: time(image.deprecation_time.as_deref()),
        architecture,
    })
}

fn time(text: Option<&str>) -> Option<Timestamp> {
    text?.parse().ok()
}

fn is_deprecated(image: &DescribedAmi, now: Timestamp) -> bool {
    image.deprecation.is_some_and(|at| at <= now)
}

/// The image once for each set of its requirements, to which its own architecture belongs.
fn with_requirements(
    image: &DescribedAmi,
    sets: &[Vec<RequirementSpec>],
    now: Timestamp,
) -> Vec<FoundAmi> {
    let plain = [Vec::new()];
    let sets = if sets.is_empty() { &plain } else { sets };
    let found = sets.iter().map(|set| {
        let mut requirements = vec![RequirementSpec::new(
            labels::ARCH,
            "In",
            [image.architecture],
        )];
        requirements.extend(set.iter().filter(|each| each.key != labels::ARCH).cloned());
        requirements.sort_by(|a, b| (a.key.len(), &a.key).cmp(&(b.key.len(), &b.key)));
        FoundAmi {
            ami: Ami {
                requirements,
                deprecated: is_deprecated(image, now).then_some(true),
                ..image.ami.clone()
            },
            created: image.created,
        }
    });
    found.collect()
}

/// Keeps the best image of each set of requirements: not deprecated, then newer, then the higher name. Newest first, then by id; sets
/// of one image stay in their order.
fn newest(found: Vec<FoundAmi>) -> Vec<Ami> {
    let rank = |each: &FoundAmi| {
        (
            each.ami.deprecated.is_none(),
            each.created,
            each.ami.name.clone(),
        )
    };
    let mut best: Vec<FoundAmi> = Vec::new();
    for each in found {
        let known = best
            .iter_mut()
            .find(|known| known.ami.requirements == each.ami.requirements);
        match known {
            None => best.push(each),
            Some(known) if rank(known) < rank(&each) => *known = each,
            Some(_) => {}
        }
    }
    best.sort_by(|a, b| {
        b.created
            .cmp(&a.created)
            .then_with(|| a.ami.id.cmp(&b.ami.id))
    });
    best.into_iter().map(|each| each.ami).collect()
}

/// For each type the position of the image that it boots: the first whose requirements the type meets.
pub(crate) fn positions(amis: &[Ami], types: &[InstanceType]) -> Vec<Option<usize>> {
    let known = mortise_aws_class::labels::well_known();
    let wanted: Vec<Requirements> = amis
        .iter()
        .map(|ami| requirements_of(&ami.requirements))
        .collect();
    types
        .iter()
        .map(|each| {
            wanted
                .iter()
                .position(|wanted| each.requirements.is_compatible(wanted, &known))
        })
        .collect()
}

/// The version of the images, from the alias or from an image's name: the part that begins with `v` and has a dot.
pub(crate) fn image_version(spec: &Ec2NodeClassSpec, ami: &Ami) -> Option<String> {
    let dotted = |text: &str| {
        text.split('-')
            .find(|part| part.starts_with('v') && part.contains('.'))
            .map(str::to_owned)
    };
    match ami_family::alias(spec) {
        Some((_, version)) => Some(version.to_owned()),
        None => spec
            .ami_selector_terms
            .iter()
            .find_map(|term| term.name.as_deref().and_then(dotted))
            .or_else(|| ami.name.as_deref().and_then(dotted)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node_class::ami_alias::{Variant, needs};
    use mortise_aws_catalog as catalog;

    fn ami(id: &str, requirements: Vec<RequirementSpec>) -> Ami {
        Ami {
            id: id.to_owned(),
            requirements,
            ..Ami::default()
        }
    }

    fn found(id: &str, created: &str, deprecated: bool) -> FoundAmi {
        let ami = Ami {
            deprecated: deprecated.then_some(true),
            ..ami(id, needs("amd64", Variant::Standard))
        };
        FoundAmi {
            ami,
            created: Some(format!("{created}T00:00:00Z").parse().unwrap()),
        }
    }

    #[test]
    fn the_best_image_of_a_kind_is_kept() {
        let best = |found: Vec<FoundAmi>| {
            newest(found)
                .into_iter()
                .map(|ami| ami.id)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            best(vec![
                found("ami-1", "2026-01-01", false),
                found("ami-2", "2026-02-01", false)
            ]),
            ["ami-2"]
        );
        assert_eq!(
            best(vec![
                found("ami-1", "2026-01-01", false),
                found("ami-2", "2026-02-01", true)
            ]),
            ["ami-1"],
            "a deprecated one is the last resort"
        );
        assert_eq!(best(vec![found("ami-2", "2026-02-01", true)]), ["ami-2"]);
    }

    #[test]
    fn types_boot_the_image_of_their_kind() {
        let types = catalog::embedded("us-east-1", &["us-east-1a"]).unwrap();
        let amis = [
            ami("ami-std", needs("amd64", Variant::Standard)),
            ami("ami-gpu", needs("amd64", Variant::Nvidia)),
            ami("ami-neuron", needs("amd64", Variant::Neuron)),
            ami("ami-arm", needs("arm64", Variant::Standard)),
        ];
        let positions = positions(&amis, &types);
        let boots = |name: &str| {
            let at = types
                .iter()
                .position(|each| &*each.name == name)
                .unwrap_or_else(|| panic!("{name}"));
            positions[at].map(|image| &*amis[image].id)
        };
        for (name, image) in [
            ("m5.large", "ami-std"),
            ("g5.xlarge", "ami-gpu"),
            ("inf2.xlarge", "ami-neuron"),
            ("m7g.large", "ami-arm"),
        ] {
            assert_eq!(boots(name), Some(image), "{name}");
        }
        assert_eq!(
            boots("g5g.xlarge"),
            None,
            "no image for graphics processors on ARM"
        );
    }
}
