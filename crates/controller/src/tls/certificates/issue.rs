//! Issues certificates, and decides when. Pure except for the random keys.
//!
//! Renewal is due at two thirds of the validity period. A renewed CA stays in `ca.crt` with the new one and continues to sign
//! for a day, until every client has the new bundle; then the new CA signs the next server certificate. An expired CA is
//! removed from the bundle.

use std::collections::BTreeSet;
use std::io;
use std::time::Duration;

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls_pki_types::CertificateDer;
use x509_parser::extensions::ParsedExtension;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::pem::{
    CA_CERT, CA_KEY, EXTENDER_CA_CERT, EXTENDER_CA_KEY, EXTENDER_CLIENT_CERT, EXTENDER_CLIENT_KEY,
    EXTENDER_CLIENT_NAME, Files, TLS_CERT, TLS_KEY, chain, general_name,
};

const DAY: Duration = Duration::from_secs(24 * 3600);
/// kube-scheduler reads its CA file only at start, so a CA should outlive many restarts.
const CA_LIFE: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// Reloaded automatically.
const SERVER_LIFE: Duration = Duration::from_secs(90 * 24 * 3600);
/// An operator has to copy the file to the scheduler.
const CLIENT_LIFE: Duration = Duration::from_secs(365 * 24 * 3600);
/// Clocks of other hosts may be behind by this much.
const CLOCK_SKEW: Duration = Duration::from_secs(5 * 60);
/// How long a new CA is only published before it signs.
const ANNOUNCE: Duration = DAY;

/// Why certificates could not be read or issued.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file of the directory.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: String,
        /// The problem.
        source: io::Error,
    },
    /// An invalid certificate or key.
    #[error("{file} cannot be read: {message}")]
    Unreadable {
        /// The file.
        file: &'static str,
        /// The problem.
        message: String,
    },
    /// A key or certificate could not be created.
    #[error("failed to issue certificate: {0}")]
    Making(#[from] rcgen::Error),
}

/// The server certificate is managed externally: it exists, and the CA's key does not.
pub(super) fn is_managed_elsewhere(files: &Files) -> bool {
    files.contains_key(TLS_CERT) && files.contains_key(TLS_KEY) && !files.contains_key(CA_KEY)
}

/// Creates what is missing and renews what is due. Returns whether anything changed.
pub(super) fn ensure(
    files: &mut Files,
    names: &[String],
    now: Timestamp,
) -> Result<bool, CertificateError> {
    let mut changed = ensure_ca(files, CA_CERT, CA_KEY, "mortise-ca", now)?;
    let server = Leaf {
        cert: TLS_CERT,
        key: TLS_KEY,
        common_name: "mortise",
        names,
        usage: ExtendedKeyUsagePurpose::ServerAuth,
        life: SERVER_LIFE,
    };
    changed |= ensure_leaf(files, (CA_CERT, CA_KEY), &server, now)?;
    changed |= ensure_ca(
        files,
        EXTENDER_CA_CERT,
        EXTENDER_CA_KEY,
        "mortise-extender-ca",
        now,
    )?;
    let client_names = [EXTENDER_CLIENT_NAME.to_owned()];
    let client = Leaf {
        cert: EXTENDER_CLIENT_CERT,
        key: EXTENDER_CLIENT_KEY,
        common_name: EXTENDER_CLIENT_NAME,
        names: &client_names,
        usage: ExtendedKeyUsagePurpose::ClientAuth,
        life: CLIENT_LIFE,
    };
    changed |= ensure_leaf(files, (EXTENDER_CA_CERT, EXTENDER_CA_KEY), &client, now)?;
    Ok(changed)
}

struct Leaf<'a> {
    cert: &'static str,
    key: &'static str,
    common_name: &'a str,
    names: &'a [String],
    usage: ExtendedKeyUsagePurpose,
    life: Duration,
}

/// The parts of a certificate that matter here.
#[derive(Debug)]
struct CertificateInfo {
    from: Timestamp,
    until: Timestamp,
    names: BTreeSet<String>,
    key_id: Option<Vec<u8>>,
    issuer_key_id: Option<Vec<u8>>,
}

impl CertificateInfo {
    fn parse(der: &[u8]) -> Option<Self> {
        let (_, cert) = X509Certificate::from_der(der).ok()?;
        let time = |seconds: i64| Timestamp::from_second(seconds).ok();
        let mut facts = Self {
            from: time(cert.validity().not_before.timestamp())?,
            until: time(cert.validity().not_after.timestamp())?,
            names: BTreeSet::new(),
            key_id: None,
            issuer_key_id: None,
        };
        for extension in cert.extensions() {
            match extension.parsed_extension() {
                ParsedExtension::SubjectAlternativeName(names) => {
                    facts.names = names
                        .general_names
                        .iter()
                        .filter_map(general_name)
                        .collect()
                }
                ParsedExtension::SubjectKeyIdentifier(id) => facts.key_id = Some(id.0.to_vec()),
                ParsedExtension::AuthorityKeyIdentifier(id) => {
                    facts.issuer_key_id = id.key_identifier.as_ref().map(|id| id.0.to_vec())
                }
                _ => {}
            }
        }
        Some(facts)
    }

    fn is_due(&self, now: Timestamp) -> bool {
        let life = self.until.duration_since(self.from);
        now.duration_since(self.from) >= life * 2 / 3
    }
}

/// Expiry of the first certificate of a file.
pub(super) fn expiry(pem: &[u8]) -> Option<Timestamp> {
    CertificateInfo::parse(chain(pem).ok()?.first()?).map(|facts| facts.until)
}

fn text<'a>(files: &'a Files, file: &'static str) -> Result<Option<&'a str>, CertificateError> {
    let Some(bytes) = files.get(file) else {
        return Ok(None);
    };
    std::str::from_utf8(bytes)
        .map(Some)
        .map_err(|error| CertificateError::Unreadable {
            file,
            message: error.to_string(),
        })
}

fn ensure_ca(
    files: &mut Files,
    cert: &'static str,
    key: &'static str,
    common_name: &str,
    now: Timestamp,
) -> Result<bool, CertificateError> {
    let unreadable = |message: String| CertificateError::Unreadable {
        file: cert,
        message,
    };
    let old = match files.get(cert) {
        Some(pem) if files.contains_key(key) => chain(pem).map_err(unreadable)?,
        _ => Vec::new(),
    };
    let facts: Vec<Option<CertificateInfo>> =
        old.iter().map(|der| CertificateInfo::parse(der)).collect();
    let current = facts.first().and_then(Option::as_ref);
    let is_due = current.is_none_or(|facts| facts.is_due(now));
    let expired =
        |facts: &Option<CertificateInfo>| facts.as_ref().is_none_or(|facts| facts.until <= now);
    if !is_due && !facts.iter().any(expired) {
        return Ok(false);
    }
    let mut bundle = String::new();
    if is_due {
        let pair = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        // The year tells the names of the old and new CA apart for users.
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(
            DnType::CommonName,
            format!("{common_name}-{}", now.strftime("%Y%m%d%H%M%S")),
        );
        period(&mut params, now, CA_LIFE);
        bundle.push_str(&params.self_signed(&pair)?.pem());
        // The old key signs while the new CA is published; it is kept after the new one.
        let mut keys = pair.serialize_pem();
        if let Some(old) = text(files, key)? {
            keys.push_str(old);
        }
        files.insert(key.to_owned(), keys.into_bytes());
    }
    for (der, _) in old.iter().zip(&facts).filter(|(_, facts)| !expired(facts)) {
        bundle.push_str(&pem(der));
    }
    files.insert(cert.to_owned(), bundle.into_bytes());
    Ok(true)
}

fn pem(der: &[u8]) -> String {
    use base64::Engine as _;
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    let lines: Vec<&str> = text
        .as_bytes()
        .chunks(64)
        .filter_map(|line| std::str::from_utf8(line).ok())
        .collect();
    format!(
        "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n",
        lines.join("\n")
    )
}

/// The signing CA, and its certificate.
fn signer(
    files: &Files,
    (cert, key): (&'static str, &'static str),
    now: Timestamp,
) -> Result<(Issuer<'static, KeyPair>, CertificateInfo), CertificateError> {
    let bundle =
        chain(files.get(cert).map(Vec::as_slice).unwrap_or_default()).map_err(|message| {
            CertificateError::Unreadable {
                file: cert,
                message,
            }
        })?;
    let keys: Vec<KeyPair> = keys(text(files, key)?.unwrap_or_default())
        .into_iter()
        .map(|pem| KeyPair::from_pem(&pem))
        .collect::<Result<_, _>>()?;
    let mut pairs: Vec<(CertificateInfo, &CertificateDer<'static>, &KeyPair)> = bundle
        .iter()
        .filter_map(|der| {
            let facts = CertificateInfo::parse(der)?;
            let pair = keys.iter().find(|pair| is_key_of(pair, der))?;
            Some((facts, der, pair))
        })
        .collect();
    // Newest first; one that is only published is skipped while an older one exists.
    pairs.sort_by_key(|(facts, ..)| std::cmp::Reverse(facts.from));
    let is_announced = |facts: &CertificateInfo| {
        now.duration_since(facts.from)
            >= jiff::SignedDuration::try_from(ANNOUNCE).unwrap_or(jiff::SignedDuration::ZERO)
    };
    let chosen = pairs
        .iter()
        .position(|(facts, ..)| is_announced(facts) && facts.until > now)
        .unwrap_or(0);
    if pairs.is_empty() {
        return Err(CertificateError::Unreadable {
            file: key,
            message: format!("no key in it belongs to a certificate of {cert}"),
        });
    }
    let (facts, der, pair) = pairs.swap_remove(chosen);
    let pair = KeyPair::from_pem(&pair.serialize_pem())?;
    Ok((Issuer::from_ca_cert_der(der, pair)?, facts))
}

/// Every key of a file, one text each.
fn keys(pem: &str) -> Vec<String> {
    const END: &str = "-----END PRIVATE KEY-----";
    pem.split_inclusive(END)
        .filter(|part| part.contains(END))
        .map(|part| format!("{}\n", part.trim()))
        .collect()
}

fn is_key_of(pair: &KeyPair, der: &[u8]) -> bool {
    X509Certificate::from_der(der).is_ok_and(|(_, cert)| {
        cert.public_key().subject_public_key.data.as_ref() == pair.public_key_raw()
    })
}

fn ensure_leaf(
    files: &mut Files,
    ca: (&'static str, &'static str),
    leaf: &Leaf<'_>,
    now: Timestamp,
) -> Result<bool, CertificateError> {
    let (issuer, issuer_facts) = signer(files, ca, now)?;
    let known = match (files.get(leaf.cert), files.get(leaf.key)) {
        (Some(pem), Some(_)) => chain(pem)
            .ok()
            .and_then(|chain| CertificateInfo::parse(chain.first()?)),
        _ => None,
    };
    let fits = known.is_some_and(|facts| {
        let signed = facts.issuer_key_id.is_some() && facts.issuer_key_id == issuer_facts.key_id;
        signed && !facts.is_due(now) && leaf.names.iter().all(|name| facts.names.contains(name))
    });
    if fits {
        return Ok(false);
    }
    let pair = KeyPair::generate()?;
    let mut params = CertificateParams::new(leaf.names.to_vec())?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, leaf.common_name);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![leaf.usage.clone()];
    params.use_authority_key_identifier_extension = true;
    period(&mut params, now, leaf.life);
    let cert = params.signed_by(&pair, &issuer)?;
    files.insert(leaf.cert.to_owned(), cert.pem().into_bytes());
    files.insert(leaf.key.to_owned(), pair.serialize_pem().into_bytes());
    Ok(true)
}

fn period(params: &mut CertificateParams, now: Timestamp, life: Duration) {
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let since_epoch = Duration::from_secs(u64::try_from(now.as_second()).unwrap_or(0));
    params.not_before = epoch + since_epoch.saturating_sub(CLOCK_SKEW);
    params.not_after = epoch + since_epoch + life;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(days: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + days * 86_400).unwrap()
    }

    fn facts(files: &Files, name: &str) -> CertificateInfo {
        CertificateInfo::parse(&chain(&files[name]).unwrap()[0]).unwrap()
    }

    #[test]
    fn files_are_created_once_and_renewed_when_due() {
        let mut files = Files::new();
        let names = ["mortise.kube-system.svc".to_owned(), "127.0.0.1".to_owned()];
        assert!(ensure(&mut files, &names, at(0)).unwrap());
        assert_eq!(files.len(), 8);
        let made = files.clone();
        assert!(
            !ensure(&mut files, &names, at(59)).unwrap(),
            "nothing is due"
        );
        assert!(
            ensure(&mut files, &names, at(61)).unwrap(),
            "two thirds of 90 days are over"
        );
        assert_ne!(files[TLS_CERT], made[TLS_CERT]);
        assert_eq!(files[CA_CERT], made[CA_CERT]);
        assert_eq!(files[EXTENDER_CLIENT_CERT], made[EXTENDER_CLIENT_CERT]);
        assert_eq!(
            facts(&files, TLS_CERT).names,
            names.iter().cloned().collect()
        );
        let more = [
            "mortise.kube-system.svc".to_owned(),
            "127.0.0.1".to_owned(),
            "other".to_owned(),
        ];
        assert!(ensure(&mut files, &more, at(61)).unwrap(), "a further name");
        assert!(
            !ensure(&mut files, &names, at(61)).unwrap(),
            "fewer names do no harm"
        );
    }

    #[test]
    fn a_new_ca_is_published_before_it_signs() {
        let mut files = Files::new();
        let names = ["a".to_owned()];
        ensure(&mut files, &names, at(0)).unwrap();
        let old_ca = facts(&files, CA_CERT);
        let due = 3650 * 2 / 3 + 1;
        assert!(ensure(&mut files, &names, at(due)).unwrap());
        let bundle = chain(&files[CA_CERT]).unwrap();
        assert_eq!(bundle.len(), 2, "old and new");
        assert_eq!(
            facts(&files, TLS_CERT).issuer_key_id,
            old_ca.key_id,
            "the old one still signs"
        );
        assert!(ensure(&mut files, &names, at(due + 2)).unwrap());
        let new_ca = facts(&files, CA_CERT);
        assert_ne!(new_ca.key_id, old_ca.key_id);
        assert_eq!(
            facts(&files, TLS_CERT).issuer_key_id,
            new_ca.key_id,
            "now the new one"
        );
        assert!(!ensure(&mut files, &names, at(due + 2)).unwrap());
        assert!(ensure(&mut files, &names, at(3651)).unwrap());
        assert_eq!(
            chain(&files[CA_CERT]).unwrap().len(),
            1,
            "the old one has expired"
        );
    }

    #[test]
    fn files_managed_elsewhere_stay_and_invalid_ones_are_named() {
        let mut files = Files::new();
        ensure(&mut files, &["a".to_owned()], at(0)).unwrap();
        files.remove(CA_KEY);
        assert!(is_managed_elsewhere(&files));
        let mut broken = Files::from([
            (CA_CERT.to_owned(), b"nonsense".to_vec()),
            (CA_KEY.to_owned(), b"nonsense".to_vec()),
        ]);
        let error = ensure(&mut broken, &["a".to_owned()], at(0))
            .unwrap_err()
            .to_string();
        assert!(error.contains("ca.crt"), "{error}");
    }
}
