//! Names of operating systems in node groups, and the AMI families of node classes.

use mortise_apis::nearest::nearest;

use super::group::NodeGroup;
use crate::migrate::finding::{Code, FindingLog};

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ImageSource {
    /// Images of this family have an alias.
    Family(&'static str),
    /// The same; the images are similar, not the same: what differs.
    Similar(&'static str, &'static str),
    /// Has no alias: terms select its images, whose user data has the form of this family.
    NoAlias(&'static str),
    /// The image is in the launch template.
    Custom,
}

use ImageSource::{Custom, Family, NoAlias, Similar};

const FULL: &str = "the alias has images of Windows Core";
const FIPS: &str = "the alias has images without validated cryptography: select those with ssmParameter in amiSelectorTerms";

/// `amiFamily` of eksctl, `amiType` of EKS.
pub(super) const IMAGES: &[(&str, ImageSource)] = &[
    ("AmazonLinux2023", Family("AL2023")),
    ("AmazonLinux2", Family("AL2")),
    ("Bottlerocket", Family("Bottlerocket")),
    ("Ubuntu2404", NoAlias("AL2023")),
    ("UbuntuPro2404", NoAlias("AL2023")),
    ("Ubuntu2204", NoAlias("AL2")),
    ("UbuntuPro2204", NoAlias("AL2")),
    ("Ubuntu2004", NoAlias("AL2")),
    ("UbuntuPro2004", NoAlias("AL2")),
    ("Ubuntu1804", NoAlias("AL2")),
    ("WindowsServer2025CoreContainer", Family("Windows2025")),
    (
        "WindowsServer2025FullContainer",
        Similar("Windows2025", FULL),
    ),
    ("WindowsServer2022CoreContainer", Family("Windows2022")),
    (
        "WindowsServer2022FullContainer",
        Similar("Windows2022", FULL),
    ),
    ("WindowsServer2019CoreContainer", Family("Windows2019")),
    (
        "WindowsServer2019FullContainer",
        Similar("Windows2019", FULL),
    ),
    ("AL2023_x86_64_STANDARD", Family("AL2023")),
    ("AL2023_ARM_64_STANDARD", Family("AL2023")),
    ("AL2023_x86_64_NEURON", Family("AL2023")),
    ("AL2023_x86_64_NVIDIA", Family("AL2023")),
    ("AL2023_ARM_64_NVIDIA", Family("AL2023")),
    ("AL2_x86_64", Family("AL2")),
    ("AL2_x86_64_GPU", Family("AL2")),
    ("AL2_ARM_64", Family("AL2")),
    ("BOTTLEROCKET_x86_64", Family("Bottlerocket")),
    ("BOTTLEROCKET_ARM_64", Family("Bottlerocket")),
    ("BOTTLEROCKET_x86_64_NVIDIA", Family("Bottlerocket")),
    ("BOTTLEROCKET_ARM_64_NVIDIA", Family("Bottlerocket")),
    ("BOTTLEROCKET_x86_64_FIPS", Similar("Bottlerocket", FIPS)),
    ("BOTTLEROCKET_ARM_64_FIPS", Similar("Bottlerocket", FIPS)),
    (
        "BOTTLEROCKET_x86_64_NVIDIA_FIPS",
        Similar("Bottlerocket", FIPS),
    ),
    (
        "BOTTLEROCKET_ARM_64_NVIDIA_FIPS",
        Similar("Bottlerocket", FIPS),
    ),
    ("WINDOWS_CORE_2025_x86_64", Family("Windows2025")),
    ("WINDOWS_FULL_2025_x86_64", Similar("Windows2025", FULL)),
    ("WINDOWS_CORE_2022_x86_64", Family("Windows2022")),
    ("WINDOWS_FULL_2022_x86_64", Similar("Windows2022", FULL)),
    ("WINDOWS_CORE_2019_x86_64", Family("Windows2019")),
    ("WINDOWS_FULL_2019_x86_64", Similar("Windows2019", FULL)),
    ("CUSTOM", Custom),
];

/// Whether nodes of the family run Windows.
pub(super) fn is_windows(family: &str) -> bool {
    family.starts_with("Windows")
}

/// Sets the family of a group from the name of its operating system; the nearest name if it is mistyped.
pub(super) fn set_family(
    group: &mut NodeGroup,
    name: &str,
    line: usize,
    field: &str,
    log: &mut FindingLog<'_>,
) {
    let find = |name: &str| IMAGES.iter().find(|(known, _)| *known == name);
    let source = match find(name) {
        Some((_, source)) => *source,
        None => {
            let meant = nearest(name, IMAGES.iter().map(|(known, _)| *known));
            let Some((known, source)) = meant.as_deref().and_then(find) else {
                log.error(Code::Unreadable, line, field, format!("{name:?} is no family of images: AmazonLinux2023, AmazonLinux2, Bottlerocket, Ubuntu... and WindowsServer... are known; write amiSelectorTerms into the node class"));
                return;
            };
            log.warning(
                Code::Renamed,
                line,
                field,
                format!("{name:?} is not known; interpreted as {known}"),
            );
            *source
        }
    };
    match source {
        Family(family) => group.class.family = Some(family),
        Similar(family, difference) => {
            group.class.family = Some(family);
            log.warning(
                Code::Behaviour,
                line,
                field,
                format!("{name}: {difference}"),
            );
        }
        NoAlias(family) => {
            group.class.family = Some(family);
            group.class.has_no_alias = true;
            if group.class.images.is_empty() {
                log.error(Code::Missing, line, field, format!("there is no alias for images of {name}: write amiSelectorTerms that select them (user data as for {family})"));
            }
        }
        Custom => {}
    }
}
