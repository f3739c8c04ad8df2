//! A certificate authority for tests: everything on loopback, nothing outlives a week.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose, SanType,
};

/// Longer than any test or trial cluster lives, short enough that a leaked key is worthless.
const LIFETIME: Duration = Duration::from_hours(7 * 24);
/// Clocks of one test host agree; this covers rounding to whole seconds.
const BACKDATE: Duration = Duration::from_mins(5);

/// A certificate authority with its key (EC P-256).
#[derive(Debug)]
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate and its private key, both PEM.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The certificate (leaf only).
    pub certificate: String,
    /// The private key, PKCS #8.
    pub key: String,
}

impl Authority {
    /// A new authority whose subject is `CN=<name>`.
    ///
    /// # Errors
    /// The crypto library refuses (not expected).
    pub fn new(name: &str) -> Result<Self> {
        let mut params = parameters(name, &[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        Ok(Self { issuer })
    }

    /// An authority as it would be at another time: valid from so long ago until so long from now. `key`: its private key
    /// (PEM), when there is one already.
    ///
    /// # Errors
    /// The key cannot be read.
    pub fn aged(name: &str, key: Option<&str>, age: Duration, left: Duration) -> Result<Self> {
        let mut params = parameters(name, &[]);
        let now = SystemTime::now();
        (params.not_before, params.not_after) = ((now - age).into(), (now + left).into());
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = key.map_or_else(KeyPair::generate, KeyPair::from_pem)?;
        let issuer = CertifiedIssuer::self_signed(params, key)?;
        Ok(Self { issuer })
    }

    /// The authority's certificate, PEM.
    #[must_use]
    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// The authority's certificate with its own key, for a program that signs by itself.
    #[must_use]
    pub fn identity(&self) -> Identity {
        Identity {
            certificate: self.pem(),
            key: self.issuer.key().serialize_pem(),
        }
    }

    /// A server certificate for `localhost`, 127.0.0.1 and `names` (DNS names or IP addresses).
    ///
    /// # Errors
    /// A name is neither a DNS name nor an IP address.
    pub fn server(&self, common_name: &str, names: &[&str]) -> Result<Identity> {
        let mut params = parameters(common_name, &[]);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.subject_alt_names = vec![
            SanType::IpAddress(IpAddr::V4(Ipv4Addr::LOCALHOST)),
            SanType::DnsName("localhost".try_into()?),
        ];
        for name in names {
            params.subject_alt_names.push(match name.parse::<IpAddr>() {
                Ok(address) => SanType::IpAddress(address),
                Err(_) => SanType::DnsName(
                    (*name)
                        .try_into()
                        .with_context(|| format!("{name} is not a DNS name"))?,
                ),
            });
        }
        self.sign(params)
    }

    /// A client certificate: Kubernetes reads the user from `common_name` and the groups from `organizations`.
    ///
    /// # Errors
    /// The crypto library refuses (not expected).
    pub fn client(&self, common_name: &str, organizations: &[&str]) -> Result<Identity> {
        let mut params = parameters(common_name, organizations);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(params)
    }

    fn sign(&self, mut params: CertificateParams) -> Result<Identity> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(Identity {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        })
    }
}

impl Identity {
    /// Writes `<dir>/<name>.crt` and `<dir>/<name>.key` and returns both paths, in this order.
    ///
    /// # Errors
    /// `dir` cannot be written.
    pub fn write(&self, dir: &Path, name: &str) -> Result<(PathBuf, PathBuf)> {
        let certificate = dir.join(format!("{name}.crt"));
        let key = dir.join(format!("{name}.key"));
        write(&certificate, &self.certificate)?;
        write(&key, &self.key)?;
        Ok((certificate, key))
    }
}

/// A new key pair, PEM: (private key, public key); what signs and checks service-account tokens.
pub(crate) fn key_pair() -> Result<(String, String)> {
    let key = KeyPair::generate()?;
    Ok((key.serialize_pem(), key.public_key_pem()))
}

/// Writes a file, with its path in the error.
pub(crate) fn write(path: &Path, content: &str) -> Result<()> {
    std::fs::write(path, content).with_context(|| format!("cannot write {}", path.display()))
}

fn parameters(common_name: &str, organizations: &[&str]) -> CertificateParams {
    let mut params = CertificateParams::default();
    let mut subject = DistinguishedName::new();
    // One attribute per organization would need repeated keys, which this library's subject cannot hold; Kubernetes'
    // groups used here are never more than one.
    for organization in organizations {
        subject.push(DnType::OrganizationName, *organization);
    }
    subject.push(DnType::CommonName, common_name);
    params.distinguished_name = subject;
    let now = SystemTime::now();
    params.not_before = (now - BACKDATE).into();
    params.not_after = (now + LIFETIME).into();
    params
}
