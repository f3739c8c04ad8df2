//! Why the service did not start or ended, and the exit code that says so.

use std::net::SocketAddr;

use mortise_engine::decider_id::DeciderId;

/// A decider panicked: the process must not go on with half a memory.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("decider {decider} panicked: {message}")]
pub struct StepPanicked {
    /// Which decider.
    pub decider: DeciderId,
    /// What it said.
    pub message: String,
}

/// Why the service ended. Every variant says what, where, and how to mend it.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A setting that cannot be.
    #[error("{0}")]
    Usage(String),
    /// No usable kubeconfig. Exit code 3.
    #[error("no usable kubeconfig ({path}): {message}; give one with --kubeconfig FILE")]
    Kubeconfig {
        /// Where it was looked for.
        path: String,
        /// What is wrong with it.
        message: String,
    },
    /// The API server does not answer. Exit code 3.
    #[error(
        "API server {server} does not respond: {message}; check that it is running and that the kubeconfig is correct"
    )]
    Unreachable {
        /// Its URL.
        server: String,
        /// What happened.
        message: String,
    },
    /// The credentials are not accepted. Exit code 3.
    #[error(
        "API server {server} rejects the credentials: {message}; check the user in the kubeconfig or the service account token"
    )]
    Unauthenticated {
        /// Its URL.
        server: String,
        /// What it said.
        message: String,
    },
    /// Custom resource definitions are missing. Exit code 4.
    #[error("CRDs are not installed: {}; install them with: mortise manifests crds | kubectl apply -f -", names.join(", "))]
    CrdsMissing {
        /// Names of the definitions, such as `nodepools.karpenter.sh`.
        names: Vec<String>,
    },
    /// Rights are missing. Exit code 5.
    #[error("missing permissions of {who}: {}; grant them with: mortise manifests rbac | kubectl apply -f -", rights.join(", "))]
    Forbidden {
        /// The user as the API server knows it, or `this user`.
        who: String,
        /// `verb resource`, one each.
        rights: Vec<String>,
    },
    /// A provider or its queue cannot be used. Exit code 6.
    #[error("provider {provider}: {message}")]
    Provider {
        /// Provider name.
        provider: String,
        /// What is wrong.
        message: String,
    },
    /// A listener could not be opened.
    #[error("cannot listen on {address} for {purpose}: {source}; choose another address or port")]
    Listen {
        /// What for.
        purpose: &'static str,
        /// Where.
        address: SocketAddr,
        /// Why not.
        source: std::io::Error,
    },
    /// Certificates could not be read, made or kept.
    #[error("certificates: {0}")]
    Certificates(String),
    /// A decider panicked.
    #[error(transparent)]
    Panicked(#[from] StepPanicked),
    /// A part that should run as long as the process ended.
    #[error("{0} exited unexpectedly; this is a bug")]
    Ended(&'static str),
}

impl RunError {
    /// The documented exit code of the process.
    ///
    /// | Code | Meaning |
    /// |---|---|
    /// | 1 | anything else |
    /// | 2 | a flag, a variable or a combination that cannot be |
    /// | 3 | no kubeconfig, or the API server cannot be reached or refuses the credentials |
    /// | 4 | custom resource definitions are missing |
    /// | 5 | rights are missing |
    /// | 6 | a provider or its queue cannot be used |
    #[must_use]
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Kubeconfig { .. } | Self::Unreachable { .. } | Self::Unauthenticated { .. } => 3,
            Self::CrdsMissing { .. } => 4,
            Self::Forbidden { .. } => 5,
            Self::Provider { .. } => 6,
            Self::Listen { .. } | Self::Certificates(_) | Self::Panicked(_) | Self::Ended(_) => 1,
        }
    }
}

/// What a panic said.
pub(crate) fn panic_text(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned())
}
