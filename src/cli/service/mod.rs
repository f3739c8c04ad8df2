//! A running service, as commands that read its debug paths reach it: directly at a URL, or through a port-forward of kubectl to
//! a replica.

mod http;
mod port_forward;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use http::{Answer, Target};
use mortise_controller::{Clients, LEASE_NAME, RunError};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// How a user gets a token, for errors.
const HOW_TO_GET_A_TOKEN: &str = "give a token with --token-file FILE or MORTISE_TOKEN, or name a service account that may read the debug paths with --service-account NAMESPACE/NAME; docs/tasks/why-is-my-pod-pending.md has the manifest of one";

/// How the service is reached
#[derive(Args, Clone)]
pub(super) struct ServiceArgs {
    /// URL of a replica, such as https://127.0.0.1:8443; default: a port-forward by kubectl to the replica that leads
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// Pod of the replica to ask; default: the one that leads, since only that has decisions
    #[arg(long, value_name = "NAME", conflicts_with = "url")]
    replica: Option<String>,
    /// Port of the debug paths in the pod
    #[arg(
        long,
        value_name = "PORT",
        default_value_t = 8443,
        conflicts_with = "url"
    )]
    port: u16,
    /// Namespace of the service; default: the one that has its Lease
    #[arg(long, value_name = "NAME")]
    service_namespace: Option<String>,
    /// Name of the Lease by which the namespace and the leader are found
    #[arg(long, value_name = "NAME", default_value = LEASE_NAME)]
    lease: String,
    /// File with a bearer token that may read the debug paths; default: the variable MORTISE_TOKEN
    #[arg(long, value_name = "FILE", conflicts_with = "service_account")]
    token_file: Option<PathBuf>,
    /// Create a token of this service account, valid for ten minutes
    #[arg(long, value_name = "NAMESPACE/NAME", env = "MORTISE_SERVICE_ACCOUNT")]
    service_account: Option<String>,
    /// CA certificate of the service (its ca.crt); without it, the certificate of a loopback address or port-forward is not verified
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// Kubeconfig file; default: as kubectl finds it
    #[arg(long, value_name = "FILE", env = "KUBECONFIG")]
    kubeconfig: Option<PathBuf>,
}

/// Why there is no answer, and the exit code for it.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) code: u8,
    pub(super) message: String,
}

impl Failure {
    fn usage(message: impl Into<String>) -> Self {
        Self {
            code: 2,
            message: message.into(),
        }
    }

    fn unreachable(message: impl Into<String>) -> Self {
        Self {
            code: 3,
            message: message.into(),
        }
    }

    fn forbidden(message: impl Into<String>) -> Self {
        Self {
            code: 5,
            message: message.into(),
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        Self {
            code: error.exit_code(),
            message: error.to_string(),
        }
    }
}

/// Runs a command that asks a service. Prints why, if it fails.
///
/// # Errors
/// The process cannot be set up.
pub(super) fn ask<F>(command: F) -> anyhow::Result<ExitCode>
where
    F: Future<Output = Result<(), Failure>>,
{
    mortise_process::install_crypto()?;
    Ok(match mortise_process::runtime()?.block_on(command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            super::warning(&format!("mortise: {failure}"));
            ExitCode::from(failure.code)
        }
    })
}

/// A replica that can be asked. A port-forward ends with it.
pub(super) struct Service {
    target: Target,
    /// Namespace of the kubeconfig's context; `None` without a kubeconfig.
    pub(super) context_namespace: Option<String>,
    _port_forward: Option<port_forward::PortForward>,
}

impl Service {
    /// Finds the service and a token. Nothing is asked yet.
    ///
    /// # Errors
    /// A flag is wrong, the service is not found, or a right is missing.
    pub(super) async fn connect(args: &ServiceArgs) -> Result<Self, Failure> {
        let needs_cluster = args.url.is_none() || args.service_account.is_some();
        let clients = if needs_cluster {
            Some(Clients::from_kubeconfig(args.kubeconfig.as_deref(), None).await?)
        } else {
            None
        };
        let token = token(args, clients.as_ref()).await?;
        if let Some(url) = &args.url {
            let target = Target::new(url, args.ca_file.as_deref(), token)?;
            return Ok(Self {
                target,
                context_namespace: clients.map(|clients| clients.namespace().to_owned()),
                _port_forward: None,
            });
        }
        let Some(clients) = clients else {
            return Err(Failure::usage("--url is required".to_owned()));
        };
        let replica = port_forward::replica(args, &clients).await?;
        let forward = port_forward::PortForward::open(args, &replica).await?;
        let url = format!("https://127.0.0.1:{}", forward.local_port);
        Ok(Self {
            target: Target::new(&url, args.ca_file.as_deref(), token)?,
            context_namespace: Some(clients.namespace().to_owned()),
            _port_forward: Some(forward),
        })
    }

    /// The JSON of a path, such as `/debug/explain?node=n1`.
    ///
    /// # Errors
    /// The service does not answer, refuses, or knows no such object: its words.
    pub(super) async fn get(&self, path: &str) -> Result<Value, Failure> {
        let Answer { status, body } = self.target.get(path).await?;
        let said = body.trim();
        match status {
            200 => serde_json::from_str(said)
                .map_err(|error| Failure::usage(format!("{path} is not JSON: {error}"))),
            401 => Err(Failure::usage(format!(
                "{} wants a token ({said}); {HOW_TO_GET_A_TOKEN}",
                self.target.url
            ))),
            403 => Err(Failure::forbidden(format!("{}: {said}", self.target.url))),
            404 if said.is_empty() => Err(Failure::usage(format!(
                "{} has no path {}; is it a mortise of this version?",
                self.target.url,
                path_only(path)
            ))),
            404 => Err(Failure::usage(said.to_owned())),
            _ => Err(Failure::usage(format!(
                "{}{}: {status} {said}",
                self.target.url,
                path_only(path)
            ))),
        }
    }
}

fn path_only(path: &str) -> &str {
    path.split_once('?').map_or(path, |(path, _)| path)
}

/// The typed form of an answer.
///
/// # Errors
/// The service is of another version and says something else.
pub(super) fn read<T: DeserializeOwned>(value: &Value, what: &str) -> Result<T, Failure> {
    T::deserialize(value).map_err(|error| {
        Failure::usage(format!(
            "{what} has another form than this version of mortise expects: {error}; use -o json, or the version of the service"
        ))
    })
}

/// A value in a query, percent-encoded.
pub(super) fn encoded(text: &str) -> String {
    let mut all = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'/' => {
                all.push(char::from(byte));
            }
            other => all.push_str(&format!("%{other:02X}")),
        }
    }
    all
}

async fn token(args: &ServiceArgs, clients: Option<&Clients>) -> Result<Option<String>, Failure> {
    if let Some(path) = &args.token_file {
        let text = std::fs::read_to_string(path)
            .map_err(|error| Failure::usage(format!("--token-file {}: {error}", path.display())))?;
        return Ok(Some(text.trim().to_owned()));
    }
    if let (Some(account), Some(clients)) = (&args.service_account, clients) {
        return port_forward::account_token(clients, account)
            .await
            .map(Some);
    }
    let from_environment = std::env::var("MORTISE_TOKEN").ok();
    Ok(from_environment
        .map(|token| token.trim().to_owned())
        .filter(|token| !token.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_encoded() {
        for (text, want) in [
            ("shop/web-1", "shop/web-1"),
            ("a&b=c", "a%26b%3Dc"),
            ("é", "%C3%A9"),
        ] {
            assert_eq!(encoded(text), want);
        }
    }
}
