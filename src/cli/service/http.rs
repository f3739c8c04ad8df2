//! One GET at a time, over TLS or without it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::Failure;

/// Longest answer that is read: 5,000 nodes and 1,000 pending pods are a few MiB.
const MOST: u64 = 256 << 20;
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
    host: String,
    port: u16,
    prefix: String,
    tls: Option<Arc<ClientConfig>>,
}

impl Target {
    /// Reads a URL.
    ///
    /// # Errors
    /// It is none, or a token would be readable on its way.
    pub(super) fn parse(
        url: &str,
        ca_file: Option<&Path>,
        has_token: bool,
    ) -> Result<Self, Failure> {
        let wrong = |why: &str| {
            Failure::usage(format!(
                "--url {url}: {why}; a URL is http:// or https://, a host and a port, such as https://127.0.0.1:8443"
            ))
        };
        let (is_tls, rest) = match (url.strip_prefix("https://"), url.strip_prefix("http://")) {
            (Some(rest), _) => (true, rest),
            (None, Some(rest)) => (false, rest),
            (None, None) => return Err(wrong("it has no scheme")),
        };
        let (authority, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let (host, port) = match authority.strip_prefix('[') {
            Some(v6) => {
                let (host, port) = v6.split_once(']').ok_or_else(|| wrong("a ] is missing"))?;
                (host, port.strip_prefix(':'))
            }
            None => match authority.rsplit_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (authority, None),
            },
        };
        if host.is_empty() {
            return Err(wrong("it has no host"));
        }
        let port = match port {
            Some(text) => text
                .parse()
                .map_err(|_| wrong("the port is not a number from 0 to 65535"))?,
            None if is_tls => 443,
            None => 80,
        };
        let is_loopback = host == "localhost"
            || host
                .parse()
                .is_ok_and(|address: std::net::IpAddr| address.is_loopback());
        if has_token && !is_tls && !is_loopback {
            return Err(wrong("a token is not sent over http to another host"));
        }
        let tls = match (is_tls, ca_file) {
            (false, _) => None,
            (true, Some(path)) => Some(trusting(path)?),
            (true, None) if is_loopback => Some(unverified()?),
            (true, None) => {
                return Err(wrong(
                    "the certificate of another host needs --ca-file with the ca.crt of the service",
                ));
            }
        };
        let prefix = prefix.trim_end_matches('/');
        Ok(Self {
            url: url.trim_end_matches('/').to_owned(),
            host: host.to_owned(),
            port,
            prefix: if prefix.is_empty() {
                String::new()
            } else {
                format!("/{prefix}")
            },
            tls: tls.map(Arc::new),
        })
    }

    /// Gets a path.
    ///
    /// # Errors
    /// No answer, or none of HTTP.
    pub(super) async fn get(&self, path: &str, token: Option<&str>) -> Result<Answer, Failure> {
        match tokio::time::timeout(PATIENCE, self.exchange(path, token)).await {
            Ok(answer) => answer,
            Err(_) => Err(self.unreachable("no answer within 30 s")),
        }
    }

    fn unreachable(&self, why: &str) -> Failure {
        Failure::unreachable(format!(
            "mortise does not respond at {}: {why}; check that it is running and that the address is that of its HTTPS port",
            self.url
        ))
    }

    async fn exchange(&self, path: &str, token: Option<&str>) -> Result<Answer, Failure> {
        // HTTP/1.0: the body ends with the connection, and has no chunks.
        let authority = if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        };
        let authorization = token
            .map(|token| format!("Authorization: Bearer {token}\r\n"))
            .unwrap_or_default();
        let request = format!(
            "GET {}{path} HTTP/1.0\r\nHost: {authority}\r\nAccept: application/json\r\n{authorization}\r\n",
            self.prefix
        );
        let stream = TcpStream::connect((self.host.as_str(), self.port))
            .await
            .map_err(|error| self.unreachable(&error.to_string()))?;
        let answer = match &self.tls {
            None => send(stream, &request).await,
            Some(config) => {
                let name = ServerName::try_from(self.host.clone())
                    .map_err(|error| self.unreachable(&error.to_string()))?;
                let stream = TlsConnector::from(Arc::clone(config))
                    .connect(name, stream)
                    .await
                    .map_err(|error| self.unreachable(&format!("TLS: {error}")))?;
                send(stream, &request).await
            }
        };
        let answer = answer.map_err(|error| self.unreachable(&error.to_string()))?;
        parts(&answer).ok_or_else(|| self.unreachable("the answer is not HTTP"))
    }
}

async fn send<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    request: &str,
) -> std::io::Result<Vec<u8>> {
    stream.write_all(request.as_bytes()).await?;
    stream.flush().await?;
    let mut answer = Vec::new();
    let read = (&mut stream).take(MOST).read_to_end(&mut answer).await;
    // Some servers end without saying so in TLS; the answer is whole if it has its length.
    if read.is_err() && answer.is_empty() {
        read?;
    }
    Ok(answer)
}

/// Status and body; `None` if it is no HTTP, or the body is shorter than its header says.
fn parts(answer: &[u8]) -> Option<Answer> {
    let text = String::from_utf8_lossy(answer);
    let (head, body) = text.split_once("\r\n\r\n")?;
    let mut lines = head.lines();
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let length = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length")
            .then(|| value.trim().parse::<usize>().ok())?
    });
    length
        .is_none_or(|length| body.len() >= length)
        .then(|| Answer {
            status,
            body: body.to_owned(),
        })
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

fn unusable(error: &dyn std::fmt::Display) -> Failure {
    Failure::usage(error.to_string())
}

fn trusting(path: &Path) -> Result<ClientConfig, Failure> {
    let wrong = |error: &dyn std::fmt::Display| {
        Failure::usage(format!("--ca-file {}: {error}", path.display()))
    };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|error| wrong(&error))? {
        let certificate = certificate.map_err(|error| wrong(&error))?;
        roots.add(certificate).map_err(|error| wrong(&error))?;
    }
    Ok(ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(&error))?
        .with_root_certificates(roots)
        .with_no_client_auth())
}

fn unverified() -> Result<ClientConfig, Failure> {
    let provider = provider();
    Ok(ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(&error))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Loopback(provider)))
        .with_no_client_auth())
}

/// Accepts the certificate of a listener on this host: it is the service itself, or kubectl, whose connection to the pod the API
/// server vouches for.
#[derive(Debug)]
struct Loopback(Arc<CryptoProvider>);

impl ServerCertVerifier for Loopback {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(
            message,
            cert,
            dss,
            &self.0.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(
            message,
            cert,
            dss,
            &self.0.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_or_refused_with_the_reason() {
        let of = |url: &str, has_token| {
            Target::parse(url, None, has_token)
                .map(|target| format!("{} {} {:?}", target.host, target.port, target.prefix))
                .unwrap_or_else(|error| error.to_string())
        };
        for (url, has_token, part) in [
            ("https://127.0.0.1:8443", true, "127.0.0.1 8443 \"\""),
            ("http://localhost:1/a/b/", true, "localhost 1 \"/a/b\""),
            ("https://[::1]:9", false, "::1 9 \"\""),
            ("127.0.0.1:8443", false, "it has no scheme"),
            ("https://:1", false, "it has no host"),
            ("https://127.0.0.1:99999", false, "the port is not a number"),
            ("https://mortise.example", false, "needs --ca-file"),
            (
                "http://mortise.example",
                true,
                "a token is not sent over http",
            ),
            ("http://mortise.example", false, "mortise.example 80 \"\""),
        ] {
            let got = of(url, has_token);
            assert!(got.contains(part), "{url}: {got}");
        }
    }

    #[test]
    fn an_answer_is_whole_or_none() {
        let of = |text: &str| parts(text.as_bytes()).map(|answer| (answer.status, answer.body));
        assert_eq!(
            of("HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\n{}"),
            Some((200, "{}".to_owned()))
        );
        assert_eq!(of("HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\n{}"), None);
        assert_eq!(of("HTTP/1.1 404 x\r\n\r\n"), Some((404, String::new())));
        assert_eq!(of("SSH-2.0"), None);
    }
}
