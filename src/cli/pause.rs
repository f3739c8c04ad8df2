//! `mortise pause` and `mortise resume`: stop voluntary disruption of a cluster, a NodePool or a node for a while.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use jiff::Timestamp;
use mortise_apis::values::after;
use mortise_controller::pausing::{
    PauseTarget, covering_pause, pauses, service_namespace, set_pause,
};
use mortise_controller::{Clients, LEASE_NAME, RunError};
use mortise_process::{self as process, Millis};

use super::{WITH_WARNINGS, line, warning};

/// Stop all voluntary disruption of the cluster, a NodePool or a node for a while
#[derive(Args)]
#[command(
    long_about = "Stop all voluntary disruption of the cluster, a NodePool or a node: consolidation, replacement for drift, expiry, repair, removal of surplus\n\
nodes of static NodePools, and the evictions of drains that have begun. Nodes are still launched, and interruptions by the cloud are still\n\
acted on.\n\n\
The command writes the annotations mortise.sh/pause (the reason) and mortise.sh/pause-until on the Node, the NodePool or the namespace of\n\
the service, with the rights of the caller. Manifests may have them as well. A NodePoolPolicy pauses its NodePools with spec.disruption.pause\n\
of its manifest; this command lists such pauses and does not write them.",
    after_long_help = "Exit codes: 0 done, 2 wrong usage or no such object, 3 API server or kubeconfig out of reach, 5 permission missing.\n\n\
Examples:\n  mortise pause cluster --reason \"incident 4711\" --for 2h\n  mortise pause nodepool general --reason \"release of the shop\" --until 2026-11-28T06:00:00Z\n  mortise pause node ip-10-0-3-17 --reason debugging\n  mortise pause list\n  mortise resume cluster"
)]
pub(super) struct PauseArgs {
    #[command(subcommand)]
    what: PauseCommand,
}

#[derive(Subcommand)]
enum PauseCommand {
    /// Pause the whole cluster
    Cluster(PauseOptions),
    /// Pause the nodes of a NodePool
    Nodepool {
        /// Name of the NodePool
        #[arg(value_name = "NAME")]
        name: String,
        #[command(flatten)]
        options: PauseOptions,
    },
    /// Pause one node
    Node {
        /// Name of the Node
        #[arg(value_name = "NAME")]
        name: String,
        #[command(flatten)]
        options: PauseOptions,
    },
    /// Refused: a NodePoolPolicy is paused in its manifest
    #[command(hide = true)]
    Nodepoolpolicy {
        /// Name of the NodePoolPolicy
        #[arg(value_name = "NAME")]
        name: String,
        #[command(flatten)]
        options: PauseOptions,
    },
    /// List the pauses that hold
    List(Connection),
}

#[derive(Args)]
struct PauseOptions {
    /// Why; events and reports show it
    #[arg(long, value_name = "TEXT", default_value = "true")]
    reason: String,
    /// End the pause after this time, such as 90m or 2h; without it and --until it holds until `mortise resume`
    #[arg(long = "for", value_name = "DURATION", conflicts_with = "until")]
    duration: Option<Millis>,
    /// End the pause at this time (RFC 3339)
    #[arg(long, value_name = "TIME")]
    until: Option<Timestamp>,
    #[command(flatten)]
    connection: Connection,
}

/// End a pause
#[derive(Args)]
#[command(
    after_long_help = "Exit codes: 0 done, 2 wrong usage or no such object, 3 API server or kubeconfig out of reach, 5 permission missing, 7 it was not paused, or remains paused by a NodePoolPolicy."
)]
pub(super) struct ResumeArgs {
    #[command(subcommand)]
    what: ResumeCommand,
}

#[derive(Subcommand)]
enum ResumeCommand {
    /// End the pause of the cluster; pauses of NodePools and nodes remain
    Cluster(Connection),
    /// End the pause of a NodePool
    Nodepool {
        /// Name of the NodePool
        #[arg(value_name = "NAME")]
        name: String,
        #[command(flatten)]
        connection: Connection,
    },
    /// Refused: the pause of a NodePoolPolicy is removed from its manifest
    #[command(hide = true)]
    Nodepoolpolicy {
        /// Name of the NodePoolPolicy
        #[arg(value_name = "NAME")]
        name: String,
        #[command(flatten)]
        connection: Connection,
    },
    /// End the pause of a node
    Node {
        /// Name of the Node
        #[arg(value_name = "NAME")]
        name: String,
        #[command(flatten)]
        connection: Connection,
    },
}

#[derive(Args)]
struct Connection {
    /// Namespace of the service; default: the one that has its Lease
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
    /// Name of the Lease by which the namespace is found
    #[arg(long, value_name = "NAME", default_value = LEASE_NAME)]
    lease: String,
    /// Kubeconfig file; default: as kubectl finds it
    #[arg(long, value_name = "FILE", env = "KUBECONFIG")]
    kubeconfig: Option<PathBuf>,
}

impl Connection {
    async fn clients(&self) -> Result<Clients, RunError> {
        Clients::from_kubeconfig(self.kubeconfig.as_deref(), None).await
    }

    async fn namespace(&self, clients: &Clients) -> Result<String, RunError> {
        match &self.namespace {
            Some(name) => Ok(name.clone()),
            None => service_namespace(clients, &self.lease).await,
        }
    }

    /// What is meant: a NodePoolPolicy, a NodePool, a node, or without any of them the cluster.
    async fn target(&self, clients: &Clients, named: Named) -> Result<PauseTarget, RunError> {
        Ok(match named {
            Named::Cluster => PauseTarget::Cluster {
                namespace: self.namespace(clients).await?,
            },
            Named::Policy(name) => PauseTarget::Policy(name),
            Named::NodePool(name) => PauseTarget::NodePool(name),
            Named::Node(name) => PauseTarget::Node(name),
        })
    }
}

/// What a user names.
enum Named {
    Cluster,
    Policy(String),
    NodePool(String),
    Node(String),
}

/// Pauses, or lists pauses.
///
/// # Errors
/// The time has passed, the object does not exist, or the API server refuses.
pub(super) fn run(args: PauseArgs) -> anyhow::Result<ExitCode> {
    let (named, options) = match args.what {
        PauseCommand::Cluster(options) => (Named::Cluster, options),
        PauseCommand::Nodepool { name, options } => (Named::NodePool(name), options),
        PauseCommand::Nodepoolpolicy { name, options } => (Named::Policy(name), options),
        PauseCommand::Node { name, options } => (Named::Node(name), options),
        PauseCommand::List(connection) => return list(&connection),
    };
    let now = Timestamp::now();
    let until = match (options.duration, options.until) {
        (Some(Millis(ms)), _) if ms <= 0 => {
            return Err(RunError::Usage("--for must be positive".to_owned()).into());
        }
        (Some(Millis(ms)), _) => Some(after(now, ms)),
        (None, Some(until)) if until <= now => {
            return Err(RunError::Usage(format!("--until {until} has passed; it is {now}")).into());
        }
        (None, until) => until,
    };
    process::install_crypto()?;
    process::runtime()?.block_on(async {
        let clients = options.connection.clients().await?;
        let target = options.connection.target(&clients, named).await?;
        let wanted = Some((options.reason.as_str(), until));
        set_pause(&clients, &target, wanted, now).await?;
        let end = until.map_or_else(
            || "until `mortise resume`".to_owned(),
            |until| format!("until {until}"),
        );
        line(&format!("disruption of {target} is paused {end}"));
        Ok(ExitCode::SUCCESS)
    })
}

/// Ends a pause.
///
/// # Errors
/// The object does not exist, or the API server refuses.
pub(super) fn resume(args: ResumeArgs) -> anyhow::Result<ExitCode> {
    let (named, connection) = match args.what {
        ResumeCommand::Cluster(connection) => (Named::Cluster, connection),
        ResumeCommand::Nodepool { name, connection } => (Named::NodePool(name), connection),
        ResumeCommand::Nodepoolpolicy { name, connection } => (Named::Policy(name), connection),
        ResumeCommand::Node { name, connection } => (Named::Node(name), connection),
    };
    process::install_crypto()?;
    process::runtime()?.block_on(async {
        let clients = connection.clients().await?;
        let target = connection.target(&clients, named).await?;
        let now = Timestamp::now();
        let before = set_pause(&clients, &target, None, now).await?;
        // What remains paused must not be reported as resumed.
        if let Some(pause) = covering_pause(&clients, &target, now).await {
            warning(&format!(
                "mortise: {target} remains paused: {pause}; {}",
                pause.remedy()
            ));
            return Ok(ExitCode::from(WITH_WARNINGS));
        }
        if before.is_none() {
            warning(&format!("mortise: {target} was not paused"));
            return Ok(ExitCode::from(WITH_WARNINGS));
        }
        line(&format!("disruption of {target} goes on"));
        Ok(ExitCode::SUCCESS)
    })
}

fn list(connection: &Connection) -> anyhow::Result<ExitCode> {
    process::install_crypto()?;
    process::runtime()?.block_on(async {
        let clients = connection.clients().await?;
        let namespace = connection.namespace(&clients).await?;
        let found = pauses(&clients, &namespace, Timestamp::now()).await?;
        for (target, pause) in &found {
            let end = pause
                .until
                .map_or_else(|| "-".to_owned(), |until| until.to_string());
            line(&format!("{target}\t{end}\t{}", pause.reason));
        }
        if found.is_empty() {
            line("nothing is paused");
        }
        Ok(ExitCode::SUCCESS)
    })
}
