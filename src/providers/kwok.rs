//! Node objects kept alive by the kwok program.

use std::sync::Arc;

use mortise_cloudprovider::CloudProvider;
use mortise_controller::{Clients, RunError};
use mortise_kwok::KwokProvider;
use mortise_kwok_class::KwokNodeClassApi;

use super::{Provider, connect_error};
use crate::args::ServeArgs;

/// Node objects kept alive by the kwok program.
pub(crate) const KWOK: Provider = Provider {
    name: "kwok",
    class: &KwokNodeClassApi,
    creates_nodes: true,
    reads_service_ranges: false,
    connect: |args, clients| Box::pin(std::future::ready(connect(args, clients))),
};

fn connect(args: &ServeArgs, clients: &Clients) -> Result<Arc<dyn CloudProvider>, RunError> {
    let types_file = args.instance_types_file_path.as_deref();
    let provider = KwokProvider::new(clients.main.clone(), types_file)
        .map_err(|error| connect_error("kwok", &error))?;
    Ok(Arc::new(provider))
}
