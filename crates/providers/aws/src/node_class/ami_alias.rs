//! Aliases of AMIs: the parameters of the Systems Manager under which AWS publishes a family's images. Pure.

use mortise_apis::labels;
use mortise_apis::schema::requirement::RequirementSpec;
use mortise_aws_class::labels as key;

use mortise_aws_catalog::ami_family::AmiFamily;

/// What an image is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Variant {
    /// Instances without accelerators.
    Standard,
    /// Instances with graphics processors.
    Nvidia,
    /// Instances with Neuron devices.
    Neuron,
}

/// A parameter that holds the id of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AmiParameter {
    /// Name of the parameter.
    pub(crate) path: String,
    /// What the image is for: one set of requirements for each kind of instance type.
    pub(crate) requirements: Vec<Vec<RequirementSpec>>,
}

impl AmiParameter {
    fn new(path: String, arch: &str, variants: &[Variant]) -> Self {
        let requirements = variants.iter().map(|variant| needs(arch, *variant));
        Self {
            path,
            requirements: requirements.collect(),
        }
    }
}

/// Folder of the EKS images.
const EKS: &str = "/aws/service/eks/optimized-ami";

/// Parameters under which AWS publishes a family's images.
/// # Errors
/// Why nothing is published for the family and version.
/// # Source
/// The EKS, Bottlerocket and Windows user guides.
pub(crate) fn parameters(
    family: AmiFamily,
    version: &str,
    kubernetes: &str,
) -> Result<Vec<AmiParameter>, String> {
    let minor = kubernetes
        .split_once('.')
        .and_then(|(_, minor)| minor.parse::<u32>().ok());
    match family {
        AmiFamily::Al2 if minor.is_some_and(|minor| minor >= 33) => {
            Err("getting AMI queries, AL2 aliases are no longer supported on EKS 1.33+ (see https://docs.aws.amazon.com/eks/latest/userguide/kubernetes-versions-standard.html#kubernetes-1-33)".to_owned())
        }
        AmiFamily::Windows2025 if minor.is_some_and(|minor| minor < 35) => {
            Err("getting AMI queries, Windows2025 aliases are only supported on EKS 1.35+".to_owned())
        }
        AmiFamily::Al2 => Ok(al2(version, kubernetes)),
        AmiFamily::Al2023 => Ok(al2023(version, kubernetes)),
        AmiFamily::Bottlerocket => Ok(bottlerocket(version, kubernetes)),
        AmiFamily::Windows2019 | AmiFamily::Windows2022 | AmiFamily::Windows2025 => {
            Ok(vec![windows(family, kubernetes)])
        }
        AmiFamily::Custom => Err(format!("alias custom@{version} names no published family")),
    }
}

/// The leaf of a path: the recommended image, or the image of a version.
fn leaf(version: &str, exact: impl FnOnce() -> String) -> String {
    if version == "latest" {
        "recommended".to_owned()
    } else {
        exact()
    }
}

fn al2(version: &str, kubernetes: &str) -> Vec<AmiParameter> {
    let folders = [
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
    ];
    let parameter = |(folder, infix, arch, variants): (&str, &str, &str, &[Variant])| {
        let leaf = leaf(version, || {
            format!("amazon-eks-{infix}node-{kubernetes}-{version}")
        });
        let path = format!("{EKS}/{kubernetes}/{folder}/{leaf}/image_id");
        AmiParameter::new(path, arch, variants)
    };
    folders.map(parameter).into()
}

fn al2023(version: &str, kubernetes: &str) -> Vec<AmiParameter> {
    let folders = [
        ("x86_64", "standard", Variant::Standard),
        ("x86_64", "nvidia", Variant::Nvidia),
        ("x86_64", "neuron", Variant::Neuron),
        ("arm64", "standard", Variant::Standard),
        ("arm64", "nvidia", Variant::Nvidia),
    ];
    let parameter = |(arch, name, variant): (&str, &str, Variant)| {
        let leaf = leaf(version, || {
            format!("amazon-eks-node-al2023-{arch}-{name}-{kubernetes}-{version}")
        });
        let path = format!("{EKS}/{kubernetes}/amazon-linux-2023/{arch}/{name}/{leaf}/image_id");
        AmiParameter::new(path, in_kubernetes(arch), &[variant])
    };
    folders.map(parameter).into()
}

fn bottlerocket(version: &str, kubernetes: &str) -> Vec<AmiParameter> {
    let leaf = if version == "latest" {
        version
    } else {
        version.strip_prefix('v').unwrap_or(version)
    };
    let folders = [
        ("", "x86_64", &[Variant::Standard, Variant::Neuron][..]),
        ("", "arm64", &[Variant::Standard]),
        ("-nvidia", "x86_64", &[Variant::Nvidia]),
        ("-nvidia", "arm64", &[Variant::Nvidia]),
    ];
    let parameter = |(suffix, arch, variants): (&str, &str, &[Variant])| {
        let path = format!(
            "/aws/service/bottlerocket/aws-k8s-{kubernetes}{suffix}/{arch}/{leaf}/image_id"
        );
        AmiParameter::new(path, in_kubernetes(arch), variants)
    };
    folders.map(parameter).into()
}

fn windows(family: AmiFamily, kubernetes: &str) -> AmiParameter {
    let year = family.as_str().trim_start_matches("Windows");
    let build = family.windows_build().unwrap_or_default();
    AmiParameter {
        path: format!(
            "/aws/service/ami-windows-latest/Windows_Server-{year}-English-Core-EKS_Optimized-{kubernetes}/image_id"
        ),
        requirements: vec![vec![
            RequirementSpec::new(labels::OS, "In", [labels::OS_WINDOWS]),
            RequirementSpec::new(labels::WINDOWS_BUILD, "In", [build]),
        ]],
    }
}

fn in_kubernetes(arch: &str) -> &'static str {
    if arch == "arm64" {
        labels::ARCH_ARM64
    } else {
        labels::ARCH_AMD64
    }
}

pub(crate) fn needs(arch: &str, variant: Variant) -> Vec<RequirementSpec> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aliases_lead_to_parameters() {
        let paths = |family, version, kubernetes| {
            parameters(family, version, kubernetes)
                .map(|paths| paths.into_iter().map(|each| each.path).collect::<Vec<_>>())
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
            paths(AmiFamily::Al2, "latest", "1.33").unwrap_err(),
            "getting AMI queries, AL2 aliases are no longer supported on EKS 1.33+ (see https://docs.aws.amazon.com/eks/latest/userguide/kubernetes-versions-standard.html#kubernetes-1-33)"
        );
        assert!(paths(AmiFamily::Windows2025, "latest", "1.34").is_err());
    }
}
