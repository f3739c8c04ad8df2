//! `mortise snapshot`: records what decisions about a cluster depend on, in one file.

use std::fs::File;
use std::hash::{BuildHasher as _, RandomState};
use std::io::{BufWriter, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context as _;
use clap::Args;
use jiff::Timestamp;
use mortise_cloudprovider::CloudProvider;
use mortise_controller::pausing::service_namespace;
use mortise_controller::{CapturedCluster, Clients, Config, LEASE_NAME, RunError, capture};
use mortise_process as process;
use mortise_sim::recorded_cluster::{NameHasher, RecordedCluster};
use sha2::{Digest as _, Sha256};

use crate::args::ServeArgs;
use crate::providers::Provider;

use super::{WITH_WARNINGS, line, warning};

/// Record what decisions about a cluster depend on, in one file: objects, instance types and prices, settings
#[derive(Args)]
#[command(
    long_about = "Record what decisions about a cluster depend on, in one compressed file: nodes, pods, NodeClaims, NodePools, disruption budgets,\n\
volumes, DaemonSets and so on, the instance types and prices of each node class, and the settings of the flags below, which are those\n\
of `mortise serve`. `mortise plan FILE` reads it.\n\n\
The cluster and the cloud are read, and never written: `get` and `list` are enough. The file has no Secrets, environment variables,\n\
commands, images, user data, or annotations of others.",
    after_long_help = "Exit codes: 0 done, 2 wrong usage, 3 API server or kubeconfig out of reach, 4 CRDs not installed, 5 permission missing,\n\
6 cloud out of reach, 7 done, but a node class could not be resolved or an object could not be read.\n\n\
Examples:\n  mortise snapshot -o cluster.snapshot\n  mortise snapshot --provider aws --cluster-name prod --hash-names -o cluster.snapshot"
)]
pub(super) struct SnapshotArgs {
    /// File to write
    #[arg(short = 'o', long = "output", value_name = "FILE")]
    output: PathBuf,
    /// Replace names of namespaces, pods, workloads and volumes, and values of their labels, by hashes: the same by the same
    #[arg(long)]
    hash_names: bool,
    /// With --hash-names: a secret that makes hashes of several snapshots comparable; default: random
    #[arg(long, value_name = "TEXT", requires = "hash_names")]
    hash_salt: Option<String>,
    #[command(flatten)]
    serve: ServeArgs,
}

/// A recorded cluster, and what is missing in it.
pub(super) struct Recorded {
    pub(super) cluster: RecordedCluster,
    pub(super) is_complete: bool,
}

/// Records and writes.
pub(super) fn run(args: SnapshotArgs) -> anyhow::Result<ExitCode> {
    let start = Instant::now();
    let Recorded {
        mut cluster,
        is_complete,
    } = record(args.serve)?;
    if args.hash_names {
        let salt = args.hash_salt.map_or_else(random_salt, String::into_bytes);
        cluster = cluster.with_hashed_names(&NameHasher::new(&salt, |bytes| {
            Sha256::digest(bytes).into()
        }))?;
    }
    let path = args.output.display();
    let file = File::create(&args.output).with_context(|| format!("cannot write {path}"))?;
    let mut file = BufWriter::new(file);
    cluster
        .write(&mut file)
        .with_context(|| format!("cannot write {path}"))?;
    file.flush()
        .with_context(|| format!("cannot write {path}"))?;
    let bytes = std::fs::metadata(&args.output).map_or(0, |metadata| metadata.len());
    let counts = cluster.counts();
    let counts: Vec<String> = counts
        .iter()
        .map(|(kind, count)| format!("{count} {kind}"))
        .collect();
    line(&counts.join(", "));
    line(&format!(
        "{path}: {} objects, instance types of {} node classes, {} kB, {}.{:01} s",
        cluster.objects.len(),
        cluster.catalogs.len(),
        bytes.div_ceil(1_000),
        start.elapsed().as_secs(),
        start.elapsed().subsec_millis() / 100,
    ));
    Ok(if is_complete {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(WITH_WARNINGS)
    })
}

/// Records a live cluster. What could not be read is listed on standard error.
///
/// # Errors
/// A flag is invalid, or the cluster or the cloud cannot be read.
pub(super) fn record(mut serve: ServeArgs) -> anyhow::Result<Recorded> {
    serve.read_only = true;
    process::init_logging("warn")?;
    process::install_crypto()?;
    let usage = |error: anyhow::Error| RunError::Usage(format!("{error:#}"));
    let Config {
        mut settings,
        namespace,
        leader_election,
        ..
    } = serve.config().map_err(usage)?;
    let lease = leader_election.map_or_else(|| LEASE_NAME.to_owned(), |election| election.name);
    let scheduler_config = serve.scheduler_config().map_err(usage)?;
    let is_shown = std::io::stderr().is_terminal();
    let progress = move |what: &str, count: usize| {
        if is_shown {
            warning(&format!("{count:>8} {what}"));
        }
    };
    let (captured, taken_at) = process::runtime()?.block_on(async {
        let clients = Clients::from_kubeconfig(serve.kubeconfig.as_deref(), None).await?;
        // Whoever may not list Leases gets a snapshot without the pause of the whole cluster, unless the context names the namespace.
        settings.namespace = match namespace {
            Some(name) => name,
            None => service_namespace(&clients, &lease)
                .await
                .unwrap_or_else(|_| clients.namespace().to_owned()),
        };
        let mut providers: Vec<Arc<dyn CloudProvider>> = Vec::new();
        for name in &serve.provider {
            providers.push((Provider::of(*name).connect)(&serve, &clients).await?);
        }
        let captured = capture(settings, &clients, providers, &progress).await?;
        Ok::<_, RunError>((captured, Timestamp::now()))
    })?;
    let CapturedCluster {
        settings,
        well_known,
        served,
        objects,
        catalogs,
        unresolved,
        unreadable,
    } = captured;
    for (class, why) in &unresolved {
        warning(&format!(
            "mortise: {class} has no instance types in the snapshot: {why}"
        ));
    }
    for name in &unreadable {
        warning(&format!("mortise: {name} cannot be read and is left out"));
    }
    let mut cluster = RecordedCluster {
        taken_at,
        recorded_by: env!("CARGO_PKG_VERSION").to_owned(),
        settings,
        scheduler_config,
        well_known,
        served,
        objects: std::collections::BTreeMap::new(),
        catalogs,
        names_are_hashed: false,
    };
    objects.into_iter().for_each(|object| cluster.add(object));
    Ok(Recorded {
        cluster,
        is_complete: unresolved.is_empty() && unreadable.is_empty(),
    })
}

/// Different in every run.
fn random_salt() -> Vec<u8> {
    let words = [0_u8, 1].map(|word| RandomState::new().hash_one(word).to_be_bytes());
    words.concat()
}
