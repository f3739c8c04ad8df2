//! Calls the extender like kube-scheduler would: from this host, with the files, server name and timeout of its entry.

use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use mortise_apis::values::GoDuration;
use mortise_manifests::check::Deviation;
use mortise_manifests::lint::LintLevel;
use mortise_webhooks::extender::CHECK_SCHEDULER;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{CertificateError, ClientConfig, RootCertStore};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Maximum length of a response that is read.
const MOST: u64 = 1 << 20;
/// Default timeout of kube-scheduler.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);

/// Result of a successful call.
pub(super) struct Answered {
    pub(super) url: String,
    pub(super) took: Duration,
}

/// A field of the entry that makes the call fail, and the reason.
struct Fault {
    field: &'static str,
    problem: String,
    fix: &'static str,
}

impl Fault {
    fn new(field: &'static str, problem: impl Into<String>, fix: &'static str) -> Self {
        Self {
            field,
            problem: problem.into(),
            fix,
        }
    }
}

/// Makes one filter call for a pod that does not exist, without nodes: it has no effect.
pub(super) async fn call(entry: &Value, at: usize) -> Result<Answered, Deviation> {
    let begun = Instant::now();
    let limit = timeout(entry);
    let tried = tokio::time::timeout(limit, exchange(entry)).await;
    let late = || {
        let problem = format!("no response within {} ms", limit.as_millis());
        Err(Fault::new(
            "httpTimeout",
            problem,
            "check the network between this host and the service, and its /readyz",
        ))
    };
    match tried.unwrap_or_else(|_| late()) {
        Ok(url) => Ok(Answered {
            url,
            took: begun.elapsed(),
        }),
        Err(Fault {
            field,
            problem,
            fix,
        }) => {
            let pointer = format!("/{}", field.replace('.', "/"));
            let value = entry.pointer(&pointer).filter(|value| !value.is_null());
            Err(Deviation {
                level: LintLevel::Error,
                field: format!("extenders[{at}].{field}"),
                value: value.map_or_else(|| "absent".to_owned(), Value::to_string),
                problem,
                fix: fix.to_owned(),
            })
        }
    }
}

fn text<'a>(entry: &'a Value, pointer: &str) -> &'a str {
    entry
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

fn timeout(entry: &Value) -> Duration {
    GoDuration::parse(text(entry, "/httpTimeout"))
        .ok()
        .and_then(|duration| u64::try_from(duration.as_nanos()).ok())
        .filter(|nanos| *nanos > 0)
        .map_or(DEFAULT_TIMEOUT, Duration::from_nanos)
}

/// Scheme, host and port, path of a URL. Go takes 443 where there is no port.
fn parts(url: &str) -> Option<(String, u16, String)> {
    let rest = url.strip_prefix("https://")?;
    let (authority, path) = match rest.split_once('/') {
        Some((authority, path)) => (authority, format!("/{path}")),
        None => (rest, String::new()),
    };
    let (host, port) = match authority.strip_prefix('[') {
        Some(v6) => {
            let (host, port) = v6.split_once(']')?;
            (host, port.strip_prefix(':'))
        }
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    let port = port.map_or(Ok(443), str::parse).ok()?;
    (!host.is_empty()).then(|| (host.to_owned(), port, path))
}

async fn exchange(entry: &Value) -> Result<String, Fault> {
    let prefix = text(entry, "/urlPrefix").trim_end_matches('/');
    let url = format!("{prefix}/{}", text(entry, "/filterVerb"));
    let (host, port, path) = parts(&url).ok_or_else(|| {
        Fault::new(
            "urlPrefix",
            "must be a URL that begins with https://",
            "use for example https://127.0.0.1:8443/extender/v1",
        )
    })?;
    let name = Some(text(entry, "/tlsConfig/serverName"))
        .filter(|name| !name.is_empty())
        .unwrap_or(&host);
    let server = ServerName::try_from(name.to_owned()).map_err(|_| {
        Fault::new(
            "tlsConfig.serverName",
            format!("{name} is neither a DNS name nor an address"),
            "omit it: the default is the host of urlPrefix",
        )
    })?;
    let config = client(entry)?;
    let stream = TcpStream::connect((host.as_str(), port))
        .await
        .map_err(|error| {
            Fault::new(
                "urlPrefix",
                format!("{host}:{port} is not reachable: {error}"),
                "start the service, or correct the address",
            )
        })?;
    let mut stream = TlsConnector::from(Arc::new(config))
        .connect(server, stream)
        .await
        .map_err(|error| refused(&error))?;
    let mut question = json!({ "Pod": {
        "metadata": { "name": "mortise-check", "namespace": "default" },
        "spec": { "schedulerName": CHECK_SCHEDULER, "containers": [] },
    } });
    match entry.get("nodeCacheCapable") {
        Some(Value::Bool(true)) => question["NodeNames"] = json!([]),
        _ => question["Nodes"] = json!({ "items": [] }),
    }
    let body = question.to_string();
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    let mut answer = Vec::new();
    // With TLS 1.3 the service rejects a client certificate only now.
    let exchanged = async {
        stream.write_all(request.as_bytes()).await?;
        stream.flush().await?;
        (&mut stream).take(MOST).read_to_end(&mut answer).await
    };
    if let Err(error) = exchanged.await
        && answer.is_empty()
    {
        return Err(Fault::new(
            "tlsConfig.certFile",
            format!("the service closed the connection: {error}"),
            "use the certificate signed by the service's extender CA",
        ));
    }
    judge(&String::from_utf8_lossy(&answer)).map(|()| url)
}

/// Maps the status of a response to the field of the entry that causes it.
fn judge(answer: &str) -> Result<(), Fault> {
    let head = answer.lines().next().unwrap_or_default();
    let status = head.split(' ').nth(1).unwrap_or_default();
    let said = answer
        .split_once("\r\n\r\n")
        .and_then(|(_, body)| body.lines().next())
        .unwrap_or_default();
    match status {
        "200" => Ok(()),
        "403" => Err(Fault::new(
            "tlsConfig.certFile",
            format!("403: {said}"),
            "use the extender's client certificate and key",
        )),
        "404" => Err(Fault::new(
            "urlPrefix",
            "404: path not found",
            "end it with /extender/v1, and set filterVerb to filter",
        )),
        _ => Err(Fault::new(
            "urlPrefix",
            format!("the response is {head:?}: {said}"),
            "check which service listens there",
        )),
    }
}

/// The reason why the server certificate was rejected, as kube-scheduler would.
fn refused(error: &std::io::Error) -> Fault {
    let tls = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match tls {
        Some(rustls::Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        )) => Fault::new(
            "tlsConfig.serverName",
            error.to_string(),
            "omit it, or start mortise with --server-names",
        ),
        Some(rustls::Error::InvalidCertificate(_)) => Fault::new(
            "tlsConfig.caFile",
            error.to_string(),
            "use the ca.crt of the service",
        ),
        Some(rustls::Error::InvalidMessage(_)) => Fault::new(
            "urlPrefix",
            "the server does not use TLS",
            "use the HTTPS port, 8443 by default",
        ),
        _ => Fault::new(
            "urlPrefix",
            format!("the TLS handshake failed: {error}"),
            "check which service listens there",
        ),
    }
}

/// The bytes of `caFile`, `caData` and the like; `None` if neither is set.
fn pem(entry: &Value, file: &'static str, data: &str) -> Result<Option<Vec<u8>>, Fault> {
    let own = |name: &str| text(entry, &format!("/{}", name.replace('.', "/"))).to_owned();
    let (path, inline) = (own(file), own(data));
    if !inline.is_empty() {
        let decoded = base64::engine::general_purpose::STANDARD.decode(inline);
        return decoded.map(Some).map_err(|error| {
            Fault::new(
                file,
                format!("{data} is not valid base64: {error}"),
                "use base64 of PEM",
            )
        });
    }
    if path.is_empty() {
        return Ok(None);
    }
    std::fs::read(&path).map(Some).map_err(|error| {
        Fault::new(
            file,
            format!("cannot be read: {error}"),
            "run this command on the host and as the user of kube-scheduler",
        )
    })
}

fn client(entry: &Value) -> Result<ClientConfig, Fault> {
    const CA: &str = "tlsConfig.caFile";
    const CERT: &str = "tlsConfig.certFile";
    const KEY: &str = "tlsConfig.keyFile";
    let unreadable = |field, error: &dyn std::fmt::Display| {
        Fault::new(
            field,
            format!("is not valid PEM: {error}"),
            "use a PEM file",
        )
    };
    let mut roots = RootCertStore::empty();
    let ca = pem(entry, CA, "tlsConfig.caData")?.unwrap_or_default();
    for certificate in CertificateDer::pem_slice_iter(&ca) {
        let certificate = certificate.map_err(|error| unreadable(CA, &error))?;
        roots
            .add(certificate)
            .map_err(|error| unreadable(CA, &error))?;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Fault::new(CA, error.to_string(), "use another build"))?
        .with_root_certificates(roots);
    let (Some(cert), Some(key)) = (
        pem(entry, CERT, "tlsConfig.certData")?,
        pem(entry, KEY, "tlsConfig.keyData")?,
    ) else {
        return Ok(config.with_no_client_auth());
    };
    let chain = CertificateDer::pem_slice_iter(&cert)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| unreadable(CERT, &error))?;
    let key = PrivateKeyDer::from_pem_slice(&key).map_err(|error| unreadable(KEY, &error))?;
    config.with_client_auth_cert(chain, key).map_err(|error| {
        Fault::new(
            KEY,
            format!("is not the key of the certificate: {error}"),
            "use a matching certificate and key",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_parsed_like_in_go() {
        let of = |url| parts(url).map(|(host, port, path)| format!("{host} {port} {path}"));
        assert_eq!(
            of("https://127.0.0.1:8443/extender/v1/filter").unwrap(),
            "127.0.0.1 8443 /extender/v1/filter"
        );
        assert_eq!(
            of("https://mortise.kube-system.svc/x").unwrap(),
            "mortise.kube-system.svc 443 /x"
        );
        assert_eq!(of("https://[::1]:1/x").unwrap(), "::1 1 /x");
        for wrong in [
            "http://127.0.0.1/x",
            "https:///x",
            "https://a:port/x",
            "https://[::1",
        ] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_failed_response_names_the_field_that_causes_it() {
        let field = |answer| judge(answer).err().map(|fault| fault.field);
        assert_eq!(field("HTTP/1.1 200 OK\r\n\r\n{}"), None);
        assert_eq!(
            field("HTTP/1.1 403 Forbidden\r\n\r\nno"),
            Some("tlsConfig.certFile")
        );
        assert_eq!(field("HTTP/1.1 404 Not Found\r\n\r\n"), Some("urlPrefix"));
        assert_eq!(field(""), Some("urlPrefix"));
    }

    #[test]
    fn files_that_cannot_be_read_are_named() {
        let entry = json!({ "tlsConfig": { "caFile": "/nowhere/ca.crt" } });
        let fault = client(&entry).err().unwrap();
        assert_eq!(fault.field, "tlsConfig.caFile");
        let entry = json!({ "tlsConfig": { "caData": "?" } });
        assert!(client(&entry).err().unwrap().problem.contains("base64"));
    }
}
