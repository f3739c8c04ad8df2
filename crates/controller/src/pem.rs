//! Certificate files: names and contents.
//!
//! | File | What it is | For whom |
//! |---|---|---|
//! | `ca.crt`, `ca.key` | the CA of the server certificate; `ca.crt` may also hold an old CA | `caBundle` of webhooks, `caFile` of the scheduler |
//! | `tls.crt`, `tls.key` | the server certificate | this process |
//! | `extender-ca.crt`, `extender-ca.key` | the CA of clients that may call the extender | this process |
//! | `extender-client.crt`, `extender-client.key` | a client certificate | `certFile`, `keyFile` of the scheduler |

use std::collections::BTreeMap;

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use x509_parser::extensions::GeneralName;

/// File name to contents.
pub type Files = BTreeMap<String, Vec<u8>>;

/// CA of the server certificate.
pub const CA_CERT: &str = "ca.crt";
/// Key of that CA.
pub const CA_KEY: &str = "ca.key";
/// Server certificate.
pub const TLS_CERT: &str = "tls.crt";
/// Its key.
pub const TLS_KEY: &str = "tls.key";
/// CA of the extender's clients.
pub const EXTENDER_CA_CERT: &str = "extender-ca.crt";
/// Key of that CA.
pub const EXTENDER_CA_KEY: &str = "extender-ca.key";
/// Client certificate for kube-scheduler.
pub const EXTENDER_CLIENT_CERT: &str = "extender-client.crt";
/// Its key.
pub const EXTENDER_CLIENT_KEY: &str = "extender-client.key";
/// Common name of that client certificate.
pub const EXTENDER_CLIENT_NAME: &str = "mortise-extender-client";

/// CA of the client certificates of API servers. It is no file of the set: its path is a flag.
pub const ADMISSION_CA_CERT: &str = "--admission-client-ca";

/// Every file, in the order of the table above.
pub(crate) const ALL: [&str; 8] = [
    CA_CERT,
    CA_KEY,
    TLS_CERT,
    TLS_KEY,
    EXTENDER_CA_CERT,
    EXTENDER_CA_KEY,
    EXTENDER_CLIENT_CERT,
    EXTENDER_CLIENT_KEY,
];

/// Certificates of a file.
pub(crate) fn chain(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let chain = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| error.to_string())?;
    if chain.is_empty() {
        Err("there is no certificate in it".to_owned())
    } else {
        Ok(chain)
    }
}

/// A subject alternative name as text.
pub(crate) fn general_name(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => match bytes.len() {
            4 => <[u8; 4]>::try_from(*bytes)
                .ok()
                .map(|ip| std::net::IpAddr::from(ip).to_string()),
            _ => <[u8; 16]>::try_from(*bytes)
                .ok()
                .map(|ip| std::net::IpAddr::from(ip).to_string()),
        },
        _ => None,
    }
}
