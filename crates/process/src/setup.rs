//! What a process sets up once, before it runs a service.

use anyhow::Context as _;

/// The async runtime. Two worker threads are enough: the engine has a thread of its own, and all other tasks wait for sockets.
/// # Errors
/// The operating system gives no thread.
pub fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("the async runtime does not start")
}

/// One crypto provider for every TLS connection of the process.
/// # Errors
/// One is installed already.
pub fn install_crypto() -> anyhow::Result<()> {
    rustls::crypto::aws_lc_rs::default_provider()
        .install_default()
        .map_err(|_| anyhow::anyhow!("a crypto provider is installed already"))
}

/// JSON lines on standard error, from `level` on.
/// # Errors
/// `level` is no filter, or logging is set up already.
pub fn init_logging(level: &str) -> anyhow::Result<()> {
    let filter = tracing_subscriber::EnvFilter::try_new(format!(
        "{level},hyper=warn,kube=off,rustls=warn,h2=warn,tower=warn,aws=warn"
    ))
    .context("--log-level")?;
    tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .try_init()
        .map_err(|error| anyhow::anyhow!("logging: {error}"))
}
