//! AMI families: what each of them lets a node do, and what disks it starts with.

use mortise_aws_class::spec::Ec2NodeClassSpec;

/// A family of AMIs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AmiFamily {
    /// Amazon Linux 2.
    Al2,
    /// Amazon Linux 2023.
    #[default]
    Al2023,
    /// Bottlerocket.
    Bottlerocket,
    /// Windows Server 2019.
    Windows2019,
    /// Windows Server 2022.
    Windows2022,
    /// Windows Server 2025.
    Windows2025,
    /// The user's own image: boot data is passed through as it is.
    Custom,
}

/// A disk that a family starts with: device and size in GiB. All are gp3 and encrypted.
pub type DefaultDisk = (&'static str, i64);

impl AmiFamily {
    /// All families, in the order of the enum.
    pub const ALL: [Self; 7] = [
        Self::Al2,
        Self::Al2023,
        Self::Bottlerocket,
        Self::Windows2019,
        Self::Windows2022,
        Self::Windows2025,
        Self::Custom,
    ];

    /// The value of `spec.amiFamily`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Al2 => "AL2",
            Self::Al2023 => "AL2023",
            Self::Bottlerocket => "Bottlerocket",
            Self::Windows2019 => "Windows2019",
            Self::Windows2022 => "Windows2022",
            Self::Windows2025 => "Windows2025",
            Self::Custom => "Custom",
        }
    }

    /// Reads a value of `spec.amiFamily` or the family part of an alias, in any case of letters; `None` for any other text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|family| family.as_str().eq_ignore_ascii_case(text))
    }

    /// The family of a node class: the one it names, else that of its alias, else `Custom`.
    #[must_use]
    pub fn of(spec: &Ec2NodeClassSpec) -> Self {
        let named = spec.ami_family.as_deref().and_then(Self::parse);
        let of_alias = || alias(spec).and_then(|(family, _)| Self::parse(family));
        named.or_else(of_alias).unwrap_or(Self::Custom)
    }

    /// Whether memory kept for the kubelet follows the pods that network interfaces allow, instead of `maxPods`.
    #[must_use]
    pub const fn eni_limited_memory_overhead(self) -> bool {
        matches!(self, Self::Al2 | Self::Al2023 | Self::Custom)
    }

    /// Whether `podsPerCore` is honoured.
    #[must_use]
    pub const fn pods_per_core(self) -> bool {
        !matches!(self, Self::Bottlerocket)
    }

    /// Whether network interfaces limit the number of pods.
    #[must_use]
    pub const fn eni_limited_pods(self) -> bool {
        !self.is_windows()
    }

    /// Whether nodes run Windows.
    #[must_use]
    pub const fn is_windows(self) -> bool {
        self.windows_build().is_some()
    }

    /// Build number of Windows, the value of `node.kubernetes.io/windows-build`.
    #[must_use]
    pub const fn windows_build(self) -> Option<&'static str> {
        match self {
            Self::Windows2019 => Some("10.0.17763"),
            Self::Windows2022 => Some("10.0.20348"),
            Self::Windows2025 => Some("10.0.26100"),
            _ => None,
        }
    }

    /// Disks of a node whose class names none.
    #[must_use]
    pub const fn default_disks(self) -> &'static [DefaultDisk] {
        match self {
            Self::Al2 | Self::Al2023 => &[("/dev/xvda", 20)],
            Self::Bottlerocket => &[("/dev/xvda", 4), ("/dev/xvdb", 20)],
            Self::Windows2019 | Self::Windows2022 | Self::Windows2025 => &[("/dev/sda1", 50)],
            Self::Custom => &[],
        }
    }

    /// The device that holds pods' data; `None` for `Custom`, where only the user knows.
    #[must_use]
    pub fn data_device(self) -> Option<&'static str> {
        self.default_disks().last().map(|(device, _)| *device)
    }
}

/// Family and version of the class's alias term, such as `("al2023", "latest")`.
#[must_use]
pub fn alias(spec: &Ec2NodeClassSpec) -> Option<(&str, &str)> {
    spec.ami_selector_terms
        .iter()
        .find_map(|term| term.alias.as_deref())
        .map(|alias| alias.split_once('@').unwrap_or((alias, "latest")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn family(json: serde_json::Value) -> AmiFamily {
        AmiFamily::of(&serde_json::from_value(json).unwrap())
    }

    #[test]
    fn family_is_named_or_follows_the_alias() {
        assert_eq!(
            family(serde_json::json!({"amiSelectorTerms": [{"alias": "al2023@latest"}]})),
            AmiFamily::Al2023
        );
        assert_eq!(
            family(serde_json::json!({"amiSelectorTerms": [{"alias": "windows2022@latest"}]})),
            AmiFamily::Windows2022
        );
        assert_eq!(
            family(
                serde_json::json!({"amiFamily": "Custom", "amiSelectorTerms": [{"alias": "al2@latest"}]})
            ),
            AmiFamily::Custom
        );
        assert_eq!(
            family(serde_json::json!({"amiSelectorTerms": [{"id": "ami-1"}]})),
            AmiFamily::Custom
        );
        for each in AmiFamily::ALL {
            assert_eq!(AmiFamily::parse(&each.as_str().to_lowercase()), Some(each));
        }
    }
}
