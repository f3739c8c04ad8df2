//! Why the service did not start or exited, and the exit code for it.

use std::net::SocketAddr;

use mortise_engine::decider_id::DeciderId;

/// A decider panicked: the process exits, because its state may be inconsistent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("decider {decider} panicked: {message}")]
pub struct StepPanicked {
    /// The decider.
    pub decider: DeciderId,
    /// The panic message.
    pub message: String,
}

/// Why the service exited. Every variant states what failed, where, and how to fix it.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// An invalid setting.
    #[error("{0}")]
    Usage(String),
    /// No usable kubeconfig. Exit code 3.
    #[error("no usable kubeconfig ({path}): {message}; give one with --kubeconfig FILE")]
    Kubeconfig {
        /// Searched locations.
        path: String,
        /// The problem.
        message: String,
    },
    /// The API server does not respond. Exit code 3.
    #[error(
        "API server {server} does not respond: {message}; check that it is running and that the kubeconfig is correct"
    )]
    Unreachable {
        /// Its URL.
        server: String,
        /// The problem.
        message: String,
    },
    /// The API server rejects the credentials. Exit code 3.
    #[error(
        "API server {server} rejects the credentials: {message}; check the user in the kubeconfig or the service account token"
    )]
    Unauthenticated {
        /// Its URL.
        server: String,
        /// Message of the API server.
        message: String,
    },
    /// Custom resource definitions are missing. Exit code 4.
    #[error("CRDs are not installed: {}; install them with: mortise manifests crds | kubectl apply -f -", names.join(", "))]
    CrdsMissing {
        /// Names of the definitions, such as `nodepools.karpenter.sh`.
        names: Vec<String>,
    },
    /// Permissions are missing. Exit code 5.
    #[error("missing permissions of {who}: {}; grant them with: mortise manifests rbac{option} | kubectl apply -f -", rights.join(", "))]
    Forbidden {
        /// The user name known to the API server, or `this user`.
        who: String,
        /// One `verb resource` each.
        rights: Vec<String>,
        /// The option of `mortise manifests rbac` that grants them, after a space; empty for none.
        option: &'static str,
    },
    /// A provider or its queue cannot be used. Exit code 6.
    #[error("provider {provider}: {message}")]
    Provider {
        /// Provider name.
        provider: String,
        /// The problem.
        message: String,
    },
    /// Notifications cannot be sent.
    #[error(
        "--notification-url-file={file}: {message}; the file must contain the URL of a webhook"
    )]
    Notifications {
        /// The file with the URL.
        file: String,
        /// The problem.
        message: String,
    },
    /// Traces cannot be sent.
    #[error("--otlp-endpoint={endpoint}: {message}")]
    Traces {
        /// Where they are to be sent.
        endpoint: String,
        /// The problem.
        message: String,
    },
    /// A listener could not be opened.
    #[error("cannot listen on {address} for {purpose}: {source}; choose another address or port")]
    Listen {
        /// Purpose of the listener.
        purpose: &'static str,
        /// Address.
        address: SocketAddr,
        /// The problem.
        source: std::io::Error,
    },
    /// Certificates could not be read, created or written.
    #[error("certificates: {0}")]
    Certificates(String),
    /// The flight recorder cannot write.
    #[error("cannot record to {directory}: {message}; choose another directory with --record")]
    Record {
        /// The directory.
        directory: String,
        /// The problem.
        message: String,
    },
    /// A decider panicked.
    #[error(transparent)]
    Panicked(#[from] StepPanicked),
    /// A component exited before the process.
    #[error("{0} exited unexpectedly; this is a bug")]
    Ended(&'static str),
}

impl RunError {
    /// The documented exit code of the process.
    ///
    /// | Code | Meaning |
    /// |---|---|
    /// | 1 | anything else |
    /// | 2 | an invalid flag, variable or combination |
    /// | 3 | no kubeconfig, or the API server is unreachable or rejects the credentials |
    /// | 4 | custom resource definitions are missing |
    /// | 5 | permissions are missing |
    /// | 6 | a provider or its queue cannot be used |
    #[must_use]
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) | Self::Notifications { .. } | Self::Traces { .. } => 2,
            Self::Kubeconfig { .. } | Self::Unreachable { .. } | Self::Unauthenticated { .. } => 3,
            Self::CrdsMissing { .. } => 4,
            Self::Forbidden { .. } => 5,
            Self::Provider { .. } => 6,
            Self::Listen { .. }
            | Self::Certificates(_)
            | Self::Record { .. }
            | Self::Panicked(_)
            | Self::Ended(_) => 1,
        }
    }
}

/// The message of a panic.
pub(crate) fn panic_text(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned())
}
