//! Names and choices of an installation. Pure; what is wrong with them is said before anything is written.

use std::fmt;

use super::permissions::When;
use super::template::{Placeholder, fill};

/// How the service proves to the account who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    /// EKS Pod Identity: an association of the service account with the role; needs the agent add-on.
    PodIdentity,
    /// IAM roles for service accounts: the role trusts the cluster's issuer of tokens.
    Irsa,
}

/// What is installed, and under which names. Names may contain `${ClusterName}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installation {
    /// Name of the cluster; a default where the form has parameters.
    pub cluster: String,
    /// Role of the nodes.
    pub node_role: String,
    /// Role of the service.
    pub controller_role: String,
    /// Queue of interruption messages; `None`: they are not handled.
    pub queue: Option<String>,
    /// Namespace of the service.
    pub namespace: String,
    /// Its service account.
    pub service_account: String,
    /// How it proves who it is.
    pub identity: Identity,
    /// Issuer of tokens without `https://`, for [`Identity::Irsa`]; a default where the form has parameters.
    pub oidc_provider: Option<String>,
    /// `--isolated-vpc` of the service.
    pub isolated_vpc: bool,
    /// `--enable-zonal-shift` of the service.
    pub zonal_shift: bool,
    /// Names of image parameters outside of `/aws/service/` that node classes refer to; may end with `*`.
    pub parameters: Vec<String>,
}

/// Where plain policy documents are meant for: they have no placeholders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountFacts {
    /// Region of the cluster.
    pub region: String,
    /// Number of the account, twelve digits.
    pub account: String,
}

/// A choice that is not possible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidOption {
    /// The flag.
    pub option: &'static str,
    /// What was given.
    pub value: String,
    /// What is allowed.
    pub allowed: &'static str,
}

impl fmt::Display for InvalidOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}: {}", self.option, self.value, self.allowed)
    }
}

impl std::error::Error for InvalidOption {}

/// Longest name of a role, by the quotas of IAM.
const LONGEST_ROLE: usize = 64;
/// Longest name of a queue, by the quotas of SQS.
const LONGEST_QUEUE: usize = 80;

/// Most characters of all parameters: one statement names them, and it must stay below the size of a policy.
const MOST_PARAMETER_TEXT: usize = 3000;

const CLUSTER: &str =
    "a cluster name has 1 to 100 letters, digits, - and _, and begins with a letter or digit";
const ROLE: &str = "a role name has 1 to 64 letters, digits and any of +=,.@_-, with the name of the cluster filled in";
const QUEUE: &str =
    "a queue name has 1 to 80 letters, digits, - and _, with the name of the cluster filled in";

fn is_name(text: &str, longest: usize, others: &str) -> bool {
    (1..=longest).contains(&text.len())
        && text
            .chars()
            .all(|letter| letter.is_ascii_alphanumeric() || others.contains(letter))
}

fn is_label(text: &str) -> bool {
    is_name(text, 63, "-") && !text.starts_with('-') && !text.ends_with('-')
}

pub(super) fn check_cluster(name: &str) -> Result<(), InvalidOption> {
    let begins_well = name.starts_with(|first: char| first.is_ascii_alphanumeric());
    if is_name(name, 100, "-_") && begins_well {
        return Ok(());
    }
    Err(InvalidOption {
        option: "--cluster-name",
        value: name.to_owned(),
        allowed: CLUSTER,
    })
}

pub(super) fn check_queue(name: &str) -> Result<(), InvalidOption> {
    if is_name(name, LONGEST_QUEUE, "-_") {
        return Ok(());
    }
    Err(InvalidOption {
        option: "--interruption-queue",
        value: name.to_owned(),
        allowed: QUEUE,
    })
}

impl Installation {
    /// Whether grants with this condition are needed.
    pub(super) fn needs(&self, when: When) -> bool {
        match when {
            When::Always => true,
            When::NotIsolated => !self.isolated_vpc,
            When::Queue => self.queue.is_some(),
            When::ZonalShift => self.zonal_shift,
        }
    }

    /// A name with the cluster's filled in.
    #[must_use]
    pub fn named(&self, name: &str) -> String {
        fill(name, |each| match each {
            Placeholder::ClusterName => self.cluster.clone(),
            other => other.mark().to_owned(),
        })
    }

    /// Whether every name is one that the account accepts.
    /// # Errors
    /// The first that is not, with what is allowed.
    pub fn check(&self) -> Result<(), InvalidOption> {
        let invalid = |option, value: &str, allowed| InvalidOption {
            option,
            value: value.to_owned(),
            allowed,
        };
        check_cluster(&self.cluster)?;
        for (option, name) in [
            ("--node-role", &self.node_role),
            ("--controller-role", &self.controller_role),
        ] {
            let name = self.named(name);
            if !is_name(&name, LONGEST_ROLE, "+=,.@_-") {
                return Err(invalid(option, &name, ROLE));
            }
        }
        if let Some(queue) = &self.queue {
            check_queue(&self.named(queue))?;
        }
        for (option, name) in [
            ("--namespace", &self.namespace),
            ("--service-account", &self.service_account),
        ] {
            if !name.split('.').all(is_label) {
                let allowed = "a name has lower-case letters, digits and -";
                return Err(invalid(option, name, allowed));
            }
        }
        for name in &self.parameters {
            if !name.starts_with('/') || !is_name(name, 1011, "/-_.*") {
                let allowed = "a parameter name begins with / and has letters, digits and any of /_.-; it may contain *";
                return Err(invalid("--ssm-parameter", name, allowed));
            }
        }
        let length: usize = self.parameters.iter().map(String::len).sum();
        if length > MOST_PARAMETER_TEXT {
            let allowed = "the names of all parameters together have at most 3000 characters: use a common beginning and *";
            return Err(invalid("--ssm-parameter", &length.to_string(), allowed));
        }
        if let Some(issuer) = &self.oidc_provider
            && (issuer.contains("://") || !is_name(issuer, 255, "/-_.:"))
        {
            let allowed = "an issuer is written without https://, such as oidc.eks.us-east-1.amazonaws.com/id/ABC";
            return Err(invalid("--oidc-provider", issuer, allowed));
        }
        Ok(())
    }
}

impl Installation {
    /// Whether the issuer is known, for a form without parameters.
    /// # Errors
    /// It is needed and missing.
    pub(super) fn check_issuer(&self) -> Result<(), InvalidOption> {
        if self.identity == Identity::Irsa && self.oidc_provider.is_none() {
            return Err(InvalidOption {
                option: "--oidc-provider",
                value: String::new(),
                allowed: "policy documents with --identity irsa need the issuer of the cluster's tokens, without https://",
            });
        }
        Ok(())
    }
}

/// Partitions by the beginning of their regions' names, with the domain of their services.
/// # Source
/// The SDK's table of partitions.
const PARTITIONS: [(&str, &str, &str); 7] = [
    ("cn-", "aws-cn", "amazonaws.com.cn"),
    ("us-gov-", "aws-us-gov", "amazonaws.com"),
    ("us-iso-", "aws-iso", "c2s.ic.gov"),
    ("us-isob-", "aws-iso-b", "sc2s.sgov.gov"),
    ("eu-isoe-", "aws-iso-e", "cloud.adc-e.uk"),
    ("us-isof-", "aws-iso-f", "csp.hci.ic.gov"),
    ("eusc-", "aws-eusc", "amazonaws.eu"),
];

impl AccountFacts {
    /// Whether the account and region can exist.
    /// # Errors
    /// The first that cannot, with what is allowed.
    pub fn check(&self) -> Result<(), InvalidOption> {
        let region = &self.region;
        if !is_name(region, 32, "-") || !region.contains('-') {
            return Err(InvalidOption {
                option: "--region",
                value: region.clone(),
                allowed: "the name of a region, such as us-east-1",
            });
        }
        let digits = self.account.bytes().all(|each| each.is_ascii_digit());
        if self.account.len() != 12 || !digits {
            return Err(InvalidOption {
                option: "--account",
                value: self.account.clone(),
                allowed: "the number of an account has twelve digits",
            });
        }
        Ok(())
    }

    /// What a placeholder is in this account.
    pub(super) fn value(&self, installation: &Installation, each: Placeholder) -> String {
        let known = PARTITIONS
            .iter()
            .find(|(begin, _, _)| self.region.starts_with(begin));
        let (partition, suffix) = known
            .map_or(("aws", "amazonaws.com"), |(_, partition, suffix)| {
                (*partition, *suffix)
            });
        match each {
            Placeholder::Partition => partition.to_owned(),
            Placeholder::UrlSuffix => suffix.to_owned(),
            Placeholder::Region => self.region.clone(),
            Placeholder::Account => self.account.clone(),
            Placeholder::ClusterName => installation.cluster.clone(),
            Placeholder::OidcProvider => installation.oidc_provider.clone().unwrap_or_default(),
        }
    }
}
