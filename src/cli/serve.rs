//! `mortise serve`: the service on a cluster.

use std::sync::Arc;

use mortise_cloudprovider::CloudProvider;
use mortise_controller::{Clients, RunError};
use mortise_process as process;

use crate::args::{Inert, ServeArgs, variables};
use crate::providers::{Provider, node_classes};

/// Runs until a signal arrives.
pub(super) fn run(args: &ServeArgs) -> anyhow::Result<()> {
    process::init_logging(args.log_level())?;
    process::install_crypto()?;
    let all = std::env::vars_os().filter_map(|(name, value)| {
        let value = value.to_string_lossy().into_owned();
        Some((name.to_str()?.to_owned(), value))
    });
    for doubtful in variables::check(all).map_err(RunError::Usage)? {
        let variables::MisspelledVariable { name, meant } = doubtful;
        tracing::warn!(
            variable = name,
            meant,
            "unknown environment variable, possibly misspelled"
        );
    }
    let mut config = args
        .config()
        .map_err(|error| RunError::Usage(format!("{error:#}")))?;
    config.node_classes = node_classes();
    for Inert {
        setting,
        consequence,
    } in args.inert()
    {
        tracing::error!(setting, consequence, "setting has no effect");
    }
    process::runtime()?.block_on(async {
        let clients = Clients::from_kubeconfig(args.kubeconfig.as_deref(), None).await?;
        let mut providers: Vec<Arc<dyn CloudProvider>> = Vec::new();
        for name in &args.provider {
            providers.push((Provider::of(*name).connect)(args, &clients).await?);
        }
        mortise_controller::run(config, clients, providers, mortise_deciders::all()).await?;
        Ok(())
    })
}

/// The documented exit code of an error.
pub(super) fn exit_code(error: &anyhow::Error) -> u8 {
    error
        .downcast_ref::<RunError>()
        .map_or(1, RunError::exit_code)
}
