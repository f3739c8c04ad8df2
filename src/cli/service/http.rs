//! One GET at a time, over TLS or without it.

use std::path::Path;
use std::time::Duration;

use http::uri::Scheme;
use http::{Request, Uri};
use kube::{Client, Config};
use mortise_controller::why_failed;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use super::Failure;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a replica answers.
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: String,
}

/// An address of the service.
pub(super) struct Target {
    pub(super) url: String,
    client: Client,
    token: Option<String>,
}

impl Target {
    /// Reads a URL.
    ///
    /// # Errors
    /// It is none, or a token would be readable on its way.
    pub(super) fn new(
        url: &str,
        ca_file: Option<&Path>,
        token: Option<String>,
    ) -> Result<Self, Failure> {
        let (uri, is_trusted) = address(url, ca_file.is_some(), token.is_some())?;
        let mut config = Config::new(uri);
        config.read_timeout = Some(PATIENCE);
        // A listener on this host is the service itself, or kubectl, whose connection to the pod the API server vouches for.
        config.accept_invalid_certs = is_trusted;
        if let Some(path) = ca_file {
            config.root_cert = Some(certificates(path)?);
        }
        let client = Client::try_from(config)
            .map_err(|error| Failure::usage(format!("--url {url}: {}", why_failed(&error))))?;
        Ok(Self {
            url: url.trim_end_matches('/').to_owned(),
            client,
            token,
        })
    }

    /// Gets a path.
    ///
    /// # Errors
    /// There is no answer.
    pub(super) async fn get(&self, path: &str) -> Result<Answer, Failure> {
        let mut request = Request::get(path);
        if let Some(token) = &self.token {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        let request = request
            .body(Vec::new())
            .map_err(|error| Failure::usage(format!("{}{path}: {error}", self.url)))?;
        match self.client.request_text(request).await {
            Ok(body) => Ok(Answer { status: 200, body }),
            Err(kube::Error::Api(refusal)) => Ok(Answer {
                status: refusal.code,
                body: refusal.message.clone(),
            }),
            Err(error) => Err(Failure::unreachable(format!(
                "mortise does not respond at {}: {}; check that it is running and that the address is that of its HTTPS port",
                self.url,
                why_failed(&error)
            ))),
        }
    }
}

/// The address, and whether its certificate is accepted as it is.
fn address(url: &str, has_ca: bool, has_token: bool) -> Result<(Uri, bool), Failure> {
    let wrong = |why: &dyn std::fmt::Display| {
        Failure::usage(format!(
            "--url {url}: {why}; a URL is http:// or https://, a host and a port, such as https://127.0.0.1:8443"
        ))
    };
    let uri: Uri = url
        .parse()
        .map_err(|error: http::uri::InvalidUri| wrong(&error))?;
    let is_tls = uri.scheme() == Some(&Scheme::HTTPS);
    if !is_tls && uri.scheme() != Some(&Scheme::HTTP) {
        return Err(wrong(&"it has no scheme"));
    }
    let host = uri.host().unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    if host.is_empty() {
        return Err(wrong(&"it has no host"));
    }
    let authority = uri.authority().map_or("", |all| all.as_str());
    let port = authority.rsplit_once(':').map(|(_, port)| port);
    if port.is_some_and(|port| !port.ends_with(']')) && uri.port_u16().is_none() {
        return Err(wrong(&"the port is not a number from 0 to 65535"));
    }
    let is_loopback = host == "localhost"
        || host
            .parse()
            .is_ok_and(|address: std::net::IpAddr| address.is_loopback());
    if has_token && !is_tls && !is_loopback {
        return Err(wrong(&"a token is not sent over http to another host"));
    }
    if is_tls && !has_ca && !is_loopback {
        return Err(wrong(
            &"the certificate of another host needs --ca-file with the ca.crt of the service",
        ));
    }
    Ok((uri, is_tls && !has_ca))
}

/// The certificates of a file, in DER.
fn certificates(path: &Path) -> Result<Vec<Vec<u8>>, Failure> {
    let wrong = |why: &dyn std::fmt::Display| {
        Failure::usage(format!("--ca-file {}: {why}", path.display()))
    };
    let all = CertificateDer::pem_file_iter(path).map_err(|error| wrong(&error))?;
    let all = all
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| wrong(&error))?;
    if all.is_empty() {
        return Err(wrong(&"there is no certificate in it"));
    }
    Ok(all.into_iter().map(|each| each.to_vec()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_or_refused_with_the_reason() {
        let of = |url: &str, has_token| {
            address(url, false, has_token)
                .map(|(uri, _)| uri.to_string())
                .unwrap_or_else(|error| error.to_string())
        };
        for (url, has_token, part) in [
            ("https://127.0.0.1:8443", true, "https://127.0.0.1:8443/"),
            ("http://localhost:1/a/b/", true, "http://localhost:1/a/b/"),
            ("https://[::1]:9", false, "https://[::1]:9/"),
            ("127.0.0.1:8443", false, "it has no scheme"),
            ("https://:1", false, "--url https://:1"),
            ("https://127.0.0.1:99999", false, "the port is not a number"),
            ("https://mortise.example", false, "needs --ca-file"),
            (
                "http://mortise.example",
                true,
                "a token is not sent over http",
            ),
            ("http://mortise.example", false, "http://mortise.example/"),
        ] {
            let got = of(url, has_token);
            assert!(got.contains(part), "{url}: {got}");
        }
    }
}
