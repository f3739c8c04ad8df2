//! Images that the terms of a class select, and which of them a type boots.

use std::collections::BTreeMap;

use aws_sdk_ec2::types::Filter;
use jiff::Timestamp;
use mortise_core::apis::ec2nodeclass::Ec2NodeClassSpec;
use mortise_core::apis::ec2nodeclass_status::Ami;
use mortise_core::apis::requirement::RequirementSpec;
use mortise_core::cloud::InstanceType;
use mortise_core::labels::{self, WellKnown, aws as key};
use mortise_core::object_ext::requirements_of;
use mortise_core::requirements::Requirements;

use crate::ami_family::{self, AmiFamily};
use crate::api::Api;
use crate::api::describe::filter;
use crate::api::ssm_parameter_cache::SsmParameterCache;
use crate::failure::Failure;
use crate::networks::tag_filters;

/// What an image is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variant {
    /// Machines without accelerators.
    Standard,
    /// Machines with graphics processors.
    Nvidia,
    /// Machines with Neuron devices.
    Neuron,
}

/// Why an alias selects nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ImageError {
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
    created: String,
}

/// The selected images: one for each distinct set of requirements, newest first.
pub(crate) async fn images(
    api: &Api,
    parameters: &SsmParameterCache,
    spec: &Ec2NodeClassSpec,
    version: &str,
    now: Timestamp,
) -> Result<Vec<Ami>, ImageError> {
    // Image id -> requirements that come from where it was found; empty: follow the image's architecture.
    let mut ids: BTreeMap<String, Vec<Vec<RequirementSpec>>> = BTreeMap::new();
    if let Some((name, alias_version)) = ami_family::alias(spec) {
        let family = AmiFamily::parse(name).ok_or_else(|| {
            ImageError::Unsupported(format!(
                "alias {name:?} names no image family that is known"
            ))
        })?;
        for (path, requirements) in alias_paths(family, alias_version, version)? {
            if let Some(id) = parameters
                .get(api, &path)
                .await?
                .filter(|id| id.starts_with("ami-"))
            {
                ids.entry(id).or_default().extend(requirements);
            }
        }
        if ids.is_empty() {
            return Err(ImageError::Nothing(format!(
                "no image is published for alias {name}@{alias_version} and Kubernetes {version}"
            )));
        }
    }
    let mut queries: Vec<(Vec<Filter>, Vec<String>)> = Vec::new();
    for term in &spec.ami_selector_terms {
        if let Some(id) = &term.id {
            ids.entry(id.clone()).or_default();
        } else if let Some(parameter) = &term.ssm_parameter {
            match parameters.get(api, parameter).await? {
                Some(id) if id.starts_with("ami-") => {
                    ids.entry(id).or_default();
                }
                value => tracing::warn!(
                    parameter,
                    ?value,
                    "SSM parameter of node class contains no AMI ID"
                ),
            }
        } else if term.alias.is_none() {
            let mut filters = term.tags.as_ref().map(tag_filters).unwrap_or_default();
            filters.extend(term.name.as_ref().map(|name| filter("name", [name])));
            let default: &[&str] = if term.name.is_some() {
                &["self", "amazon"]
            } else {
                &[]
            };
            let owners = term.owner.as_ref().map_or_else(
                || default.iter().map(|each| (*each).to_owned()).collect(),
                |owner| vec![owner.clone()],
            );
            queries.push((filters, owners));
        }
    }
    if !ids.is_empty() {
        queries.push((vec![filter("image-id", ids.keys())], Vec::new()));
    }
    let answers = futures::future::try_join_all(
        queries
            .into_iter()
            .map(|(filters, owners)| describe(api, filters, owners)),
    )
    .await?;
    let mut found = Vec::new();
    for (image, architecture) in answers.into_iter().flatten() {
        let deprecated = image
            .deprecation
            .parse::<Timestamp>()
            .is_ok_and(|at| at <= now);
        let sets = match ids.get(&image.ami.id) {
            Some(sets) if !sets.is_empty() => sets.clone(),
            _ => vec![vec![RequirementSpec::new(
                labels::ARCH,
                "In",
                [architecture],
            )]],
        };
        for mut requirements in sets {
            requirements.sort_by(|a, b| (a.key.len(), &a.key).cmp(&(b.key.len(), &b.key)));
            let ami = Ami {
                requirements,
                deprecated: deprecated.then_some(true),
                ..image.ami.clone()
            };
            found.push(FoundAmi {
                ami,
                created: image.created.clone(),
            });
        }
    }
    Ok(newest(found))
}

/// An image before its requirements are known.
struct Described {
    ami: Ami,
    created: String,
    deprecation: String,
}

async fn describe(
    api: &Api,
    mut filters: Vec<Filter>,
    owners: Vec<String>,
) -> Result<Vec<(Described, &'static str)>, Failure> {
    filters.push(filter("state", ["available"]));
    let owners = (!owners.is_empty()).then_some(owners);
    let mut pages = api
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
        for image in page
            .map_err(|error| api.failure("ec2:DescribeImages", error))?
            .images
            .unwrap_or_default()
        {
            let architecture = match image
                .architecture
                .as_ref()
                .map(aws_sdk_ec2::types::ArchitectureValues::as_str)
            {
                Some("x86_64") => labels::ARCH_AMD64,
                Some("arm64") => labels::ARCH_ARM64,
                _ => continue, // no node runs it
            };
            let Some(id) = image.image_id else { continue };
            let ami = Ami {
                id,
                name: image.name,
                deprecated: None,
                requirements: Vec::new(),
            };
            let (created, deprecation) = (
                image.creation_date.unwrap_or_default(),
                image.deprecation_time.unwrap_or_default(),
            );
            found.push((
                Described {
                    ami,
                    created,
                    deprecation,
                },
                architecture,
            ));
        }
    }
    Ok(found)
}

/// Keeps the best image of each set of requirements: not deprecated, then newer, then the higher name. Newest first, then by id.
fn newest(found: Vec<FoundAmi>) -> Vec<Ami> {
    let mut best: BTreeMap<Vec<RequirementSpec>, FoundAmi> = BTreeMap::new();
    let rank = |each: &FoundAmi| {
        (
            each.ami.deprecated.is_none(),
            each.created.clone(),
            each.ami.name.clone(),
        )
    };
    for each in found {
        match best.get(&each.ami.requirements) {
            Some(known) if rank(known) >= rank(&each) => {}
            _ => drop(best.insert(each.ami.requirements.clone(), each)),
        }
    }
    let mut all: Vec<FoundAmi> = best.into_values().collect();
    all.sort_by(|a, b| {
        b.created
            .cmp(&a.created)
            .then_with(|| a.ami.id.cmp(&b.ami.id))
    });
    all.into_iter().map(|each| each.ami).collect()
}

/// For each type the position of the image that it boots: the first whose requirements the type meets.
pub(crate) fn positions(amis: &[Ami], types: &[InstanceType]) -> Vec<Option<usize>> {
    let known = WellKnown::aws();
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

type Paths = Vec<(String, Vec<Vec<RequirementSpec>>)>;

/// Parameters under which AWS publishes a family's images, with what each is for.
/// # Source
/// The EKS, Bottlerocket and Windows user guides.
fn alias_paths(family: AmiFamily, version: &str, kubernetes: &str) -> Result<Paths, ImageError> {
    let minor = kubernetes
        .split_once('.')
        .and_then(|(_, minor)| minor.parse::<u32>().ok());
    let unsupported = |message: &str| {
        Err(ImageError::Unsupported(format!(
            "alias {}@{version}: {message}",
            family.as_str().to_lowercase()
        )))
    };
    let latest = version == "latest";
    let eks = "/aws/service/eks/optimized-ami";
    let either = |recommended: &str, exact: String| {
        if latest {
            recommended.to_owned()
        } else {
            exact
        }
    };
    Ok(match family {
        AmiFamily::Al2 if minor.is_some_and(|minor| minor >= 33) => {
            return unsupported("AL2 images are not published for Kubernetes 1.33 and later");
        }
        AmiFamily::Windows2025 if minor.is_some_and(|minor| minor < 35) => {
            return unsupported(
                "Windows Server 2025 images are not published before Kubernetes 1.35",
            );
        }
        AmiFamily::Al2 => [
            ("amazon-linux-2", "", "amd64", &[Variant::Standard][..]),
            (
                "amazon-linux-2-arm64",
                "arm64-",
                "arm64",
                &[Variant::Standard],
            ),
            (
                "amazon-linux-2-gpu",
                "gpu-",
                "amd64",
                &[Variant::Neuron, Variant::Nvidia],
            ),
        ]
        .into_iter()
        .map(|(folder, infix, arch, variants)| {
            let leaf = either(
                "recommended",
                format!("amazon-eks-{infix}node-{kubernetes}-{version}"),
            );
            (
                format!("{eks}/{kubernetes}/{folder}/{leaf}/image_id"),
                variants
                    .iter()
                    .map(|variant| needs(arch, *variant))
                    .collect(),
            )
        })
        .collect(),
        AmiFamily::Al2023 => [
            ("x86_64", "standard", Variant::Standard),
            ("x86_64", "nvidia", Variant::Nvidia),
            ("x86_64", "neuron", Variant::Neuron),
            ("arm64", "standard", Variant::Standard),
            ("arm64", "nvidia", Variant::Nvidia),
        ]
        .into_iter()
        .map(|(arch, name, variant)| {
            let leaf = either(
                "recommended",
                format!("amazon-eks-node-al2023-{arch}-{name}-{kubernetes}-{version}"),
            );
            (
                format!("{eks}/{kubernetes}/amazon-linux-2023/{arch}/{name}/{leaf}/image_id"),
                vec![needs(in_kubernetes(arch), variant)],
            )
        })
        .collect(),
        AmiFamily::Bottlerocket => {
            let leaf = if latest {
                version
            } else {
                version.strip_prefix('v').unwrap_or(version)
            };
            [("", "x86_64", &[Variant::Standard, Variant::Neuron][..]), ("", "arm64", &[Variant::Standard]), ("-nvidia", "x86_64", &[Variant::Nvidia]), ("-nvidia", "arm64", &[Variant::Nvidia])]
                .into_iter()
                .map(|(suffix, arch, variants)| {
                    let sets = variants.iter().map(|variant| needs(in_kubernetes(arch), *variant)).collect();
                    (format!("/aws/service/bottlerocket/aws-k8s-{kubernetes}{suffix}/{arch}/{leaf}/image_id"), sets)
                })
                .collect()
        }
        AmiFamily::Windows2019 | AmiFamily::Windows2022 | AmiFamily::Windows2025 => {
            let year = family.as_str().trim_start_matches("Windows");
            let path = format!(
                "/aws/service/ami-windows-latest/Windows_Server-{year}-English-Core-EKS_Optimized-{kubernetes}/image_id"
            );
            let build = family.windows_build().unwrap_or_default();
            vec![(
                path,
                vec![vec![
                    RequirementSpec::new(labels::OS, "In", [labels::OS_WINDOWS]),
                    RequirementSpec::new(labels::WINDOWS_BUILD, "In", [build]),
                ]],
            )]
        }
        AmiFamily::Custom => return unsupported("it names no published family"),
    })
}

fn in_kubernetes(arch: &str) -> &'static str {
    if arch == "arm64" {
        labels::ARCH_ARM64
    } else {
        labels::ARCH_AMD64
    }
}

fn needs(arch: &str, variant: Variant) -> Vec<RequirementSpec> {
    let none: [&str; 0] = [];
    let mut all = vec![RequirementSpec::new(labels::ARCH, "In", [arch])];
    match variant {
        Variant::Standard => all.extend([
            RequirementSpec::new(key::INSTANCE_GPU_COUNT, "DoesNotExist", none),
            RequirementSpec::new(key::INSTANCE_ACCELERATOR_COUNT, "DoesNotExist", none),
        ]),
        Variant::Nvidia => all.push(RequirementSpec::new(
            key::INSTANCE_GPU_COUNT,
            "Exists",
            none,
        )),
        Variant::Neuron => all.push(RequirementSpec::new(
            key::INSTANCE_ACCELERATOR_COUNT,
            "Exists",
            none,
        )),
    }
    all
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
    use crate::catalog;

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
            created: created.to_owned(),
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

    #[test]
    fn aliases_lead_to_parameters() {
        let paths = |family, version, kubernetes| {
            alias_paths(family, version, kubernetes)
                .map(|paths| paths.into_iter().map(|(path, _)| path).collect::<Vec<_>>())
        };
        let al2023 = paths(AmiFamily::Al2023, "latest", "1.36").unwrap();
        assert_eq!(al2023.len(), 5);
        assert_eq!(
            al2023[0],
            "/aws/service/eks/optimized-ami/1.36/amazon-linux-2023/x86_64/standard/recommended/image_id"
        );
        assert_eq!(
            paths(AmiFamily::Al2023, "v20260101", "1.36").unwrap()[3],
            "/aws/service/eks/optimized-ami/1.36/amazon-linux-2023/arm64/standard/amazon-eks-node-al2023-arm64-standard-1.36-v20260101/image_id"
        );
        assert_eq!(
            paths(AmiFamily::Bottlerocket, "v1.46.0", "1.36").unwrap()[2],
            "/aws/service/bottlerocket/aws-k8s-1.36-nvidia/x86_64/1.46.0/image_id"
        );
        assert_eq!(
            paths(AmiFamily::Al2, "latest", "1.33")
                .unwrap_err()
                .to_string(),
            "alias al2@latest: AL2 images are not published for Kubernetes 1.33 and later"
        );
        assert!(paths(AmiFamily::Windows2025, "latest", "1.34").is_err());
    }
}
