//! First requests of the demo to its service, like those of a scheduler and of a user: over TCP, TLS and HTTP, with
//! the client certificate. They verify the printed commands and measure the real time until the first response.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use mortise_controller::pem::{self, Files};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::text::SampleRequests;

/// Maximum length of a response that is read; only its first line matters.
const MOST: u64 = 1 << 20;

/// Requests a filter decision and an explanation.
///
/// # Errors
/// A response has a status other than 200.
pub(crate) async fn ask(
    to: SocketAddr,
    files: &Files,
    asked: &SampleRequests,
) -> anyhow::Result<()> {
    let tls = TlsConnector::from(Arc::new(client(files)?));
    let filter = asked.filter().to_string();
    let questions = [
        (
            format!(
                "POST /extender/v1/filter HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: {}\r\n",
                filter.len()
            ),
            filter,
        ),
        (
            format!("GET {} HTTP/1.1\r\n", asked.explain()),
            String::new(),
        ),
    ];
    for (head, body) in questions {
        let request = format!("{head}Host: {to}\r\nConnection: close\r\n\r\n{body}");
        let answer = exchange(&tls, to, &request).await?;
        let status = answer.lines().next().unwrap_or_default();
        ensure!(
            status.starts_with("HTTP/1.1 200"),
            "{} was answered with {status:?}",
            head.lines().next().unwrap_or_default()
        );
    }
    Ok(())
}

async fn exchange(tls: &TlsConnector, to: SocketAddr, request: &str) -> anyhow::Result<String> {
    let connection = TcpStream::connect(to).await?;
    let mut stream = tls.connect(ServerName::from(to.ip()), connection).await?;
    stream.write_all(request.as_bytes()).await?;
    stream.flush().await?;
    let mut answer = Vec::new();
    stream.take(MOST).read_to_end(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

fn client(files: &Files) -> anyhow::Result<ClientConfig> {
    let file = |name: &str| {
        files
            .get(name)
            .with_context(|| format!("{name} is missing"))
    };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(file(pem::CA_CERT)?) {
        roots.add(certificate?)?;
    }
    let chain = CertificateDer::pem_slice_iter(file(pem::EXTENDER_CLIENT_CERT)?)
        .collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_slice(file(pem::EXTENDER_CLIENT_KEY)?)?;
    Ok(ClientConfig::builder()
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, key)?)
}
