//! What the API server helps with: which replica to ask, a port-forward to it, and a token.

use std::process::Stdio;

use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{Api, PostParams};
use mortise_controller::Clients;
use mortise_controller::pausing::service_namespace;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::{Child, Command};

use super::{Failure, ServiceArgs};

/// How long a token is valid; the API server gives none for less.
const TOKEN_SECONDS: i64 = 600;

/// A replica: its namespace and pod.
pub(super) struct Replica {
    namespace: String,
    pod: String,
}

/// The replica that the flags name, or else the one that holds the Lease.
pub(super) async fn replica(args: &ServiceArgs, clients: &Clients) -> Result<Replica, Failure> {
    let namespace = match &args.service_namespace {
        Some(name) => name.clone(),
        None => service_namespace(clients, &args.lease).await?,
    };
    if let Some(pod) = &args.replica {
        return Ok(Replica {
            namespace,
            pod: pod.clone(),
        });
    }
    let leases: Api<Lease> = Api::namespaced(clients.main.clone(), &namespace);
    let lease = leases.get(&args.lease).await.map_err(|error| {
        failed(
            clients,
            &error,
            "get leases",
            &format!("Lease {namespace}/{}", args.lease),
        )
    })?;
    let holder = lease.spec.and_then(|spec| spec.holder_identity);
    // The identity is the name of the pod and a random part.
    let pod = holder
        .as_deref()
        .and_then(|holder| holder.split('_').next())
        .filter(|pod| !pod.is_empty());
    match pod {
        Some(pod) => Ok(Replica {
            namespace,
            pod: pod.to_owned(),
        }),
        None => Err(Failure::usage(format!(
            "no replica of mortise holds the Lease {namespace}/{}, so none leads; name a pod with --replica, or an address with --url",
            args.lease
        ))),
    }
}

/// A running `kubectl port-forward`.
pub(super) struct PortForward {
    pub(super) local_port: u16,
    _kubectl: Child,
}

impl PortForward {
    /// Opens it on a free local port.
    ///
    /// # Errors
    /// There is no kubectl, or it says why not.
    pub(super) async fn open(args: &ServiceArgs, replica: &Replica) -> Result<Self, Failure> {
        let Replica { namespace, pod } = replica;
        let mut command = Command::new("kubectl");
        if let Some(path) = &args.kubeconfig {
            command.arg("--kubeconfig").arg(path);
        }
        command
            .args([
                "--namespace",
                namespace,
                "port-forward",
                "--address=127.0.0.1",
            ])
            .arg(format!("pod/{pod}"))
            .arg(format!(":{}", args.port))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let mut kubectl = command.spawn().map_err(|error| {
            Failure::usage(format!(
                "kubectl, which forwards the port, cannot be started: {error}; install it, or give an address with --url"
            ))
        })?;
        let mut line = String::new();
        if let Some(stdout) = kubectl.stdout.take() {
            // A failure leaves the line empty, and the words are on standard error.
            drop(BufReader::new(stdout).read_line(&mut line).await);
        }
        if let Some(local_port) = local_port(&line) {
            return Ok(Self {
                local_port,
                _kubectl: kubectl,
            });
        }
        let mut said = String::new();
        if let Some(mut stderr) = kubectl.stderr.take() {
            drop(stderr.read_to_string(&mut said).await);
        }
        Err(not_forwarded(namespace, pod, said.trim()))
    }
}

fn not_forwarded(namespace: &str, pod: &str, said: &str) -> Failure {
    if said.contains("forbidden") {
        return Failure::forbidden(format!(
            "this user may not forward a port to pod {namespace}/{pod}; needed are the verbs get on pods and create on pods/portforward in namespace {namespace}: {said}"
        ));
    }
    if said.contains("not found") {
        return Failure::usage(format!(
            "the replica that leads, {pod}, is no pod in namespace {namespace}: {said}; if mortise runs outside of the cluster, give its address with --url"
        ));
    }
    Failure::usage(format!(
        "kubectl cannot forward a port to pod {namespace}/{pod}: {said}"
    ))
}

/// The port in `Forwarding from 127.0.0.1:40123 -> 8443`.
fn local_port(line: &str) -> Option<u16> {
    let address = line.strip_prefix("Forwarding from ")?.split(' ').next()?;
    address.rsplit_once(':')?.1.parse().ok()
}

/// A token of a service account.
pub(super) async fn account_token(clients: &Clients, account: &str) -> Result<String, Failure> {
    let Some((namespace, name)) = account.split_once('/') else {
        return Err(Failure::usage(format!(
            "--service-account {account}: must be NAMESPACE/NAME"
        )));
    };
    let accounts: Api<ServiceAccount> = Api::namespaced(clients.main.clone(), namespace);
    let request = TokenRequest {
        spec: Some(TokenRequestSpec {
            expiration_seconds: Some(TOKEN_SECONDS),
            ..TokenRequestSpec::default()
        }),
        ..TokenRequest::default()
    };
    let made = accounts
        .create_token_request(name, &PostParams::default(), &request)
        .await
        .map_err(|error| {
            failed(
                clients,
                &error,
                "create serviceaccounts/token",
                &format!("service account {account}"),
            )
        })?;
    made.status
        .and_then(|status| status.token)
        .ok_or_else(|| Failure::usage(format!("the API server made no token of {account}")))
}

fn failed(clients: &Clients, error: &kube::Error, right: &str, what: &str) -> Failure {
    match error {
        kube::Error::Api(status) if status.code == 403 => {
            Failure::forbidden(format!("this user may not {right}: {}", status.message))
        }
        kube::Error::Api(status) if status.code == 404 => {
            Failure::usage(format!("{what} does not exist"))
        }
        other => Failure::unreachable(format!(
            "API server {} does not respond: {other}",
            clients.server()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_local_port_is_in_the_first_line_of_kubectl() {
        assert_eq!(
            local_port("Forwarding from 127.0.0.1:40123 -> 8443\n"),
            Some(40_123)
        );
        assert_eq!(local_port("error: x"), None);
    }

    #[test]
    fn words_of_kubectl_become_what_to_do() {
        let of = |said| not_forwarded("kube-system", "mortise-0", said).to_string();
        assert!(of("pods \"mortise-0\" is forbidden").contains("create on pods/portforward"));
        assert!(of("pods \"mortise-0\" not found").contains("--url"));
        assert!(of("lost connection").contains("lost connection"));
    }
}
