//! `cluster`: a real control plane for a person, until Ctrl-C. See `just cluster --help`.

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail, ensure};
use clap::Parser;
use mortise_tests::harness::{
    Component, ControlPlane, ExtenderConfig, Mortise, SchedulerOptions, Stages,
    prepare_certificates,
};

/// Starts etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kwok on loopback, prints the kubeconfig, and
/// stays until Ctrl-C. The first start builds the programs, which takes minutes; later ones take seconds. Nodes that kwok
/// shall run need the label `kwok-partition=a` and the annotation `kwok.x-k8s.io/node=fake`.
#[derive(Debug, Parser)]
#[command(name = "cluster")]
struct Options {
    /// Where state, logs and the file `kubeconfig` go; kept afterwards.
    #[arg(
        long,
        default_value = ".cache/cluster",
        value_name = "DIR",
        overrides_with = "dir"
    )]
    dir: PathBuf,
    /// Six ports from this one on (etcd, its peer port, API server, controller manager, scheduler, kwok); else free ones.
    #[arg(long, value_name = "PORT")]
    port_base: Option<u16>,
    /// Everything for a mortise that will listen at this URL, for example https://127.0.0.1:8443: its CRDs, the extender, the
    /// webhooks, and certificates in DIR/certs (where `just serve` looks for them).
    #[arg(long, value_name = "URL", conflicts_with = "extender")]
    mortise: Option<String>,
    /// The CRDs and label rules of this provider, with --mortise.
    #[arg(long, value_name = "PROVIDER", default_value = "kwok")]
    mortise_provider: String,
    /// kube-scheduler asks this extender, for example https://127.0.0.1:8443/extender/v1.
    #[arg(
        long,
        value_name = "URL",
        requires = "extender_ca",
        conflicts_with = "no_extender"
    )]
    extender: Option<String>,
    /// CA of the extender's server certificate (PEM).
    #[arg(long, value_name = "FILE", requires = "extender")]
    extender_ca: Option<PathBuf>,
    /// Client certificate that kube-scheduler shows the extender (PEM).
    #[arg(long, value_name = "FILE", requires = "extender_key")]
    extender_cert: Option<PathBuf>,
    /// Key of that certificate (PEM).
    #[arg(long, value_name = "FILE", requires = "extender_cert")]
    extender_key: Option<PathBuf>,
    /// Name expected in the extender's server certificate, if it is not the URL's host.
    #[arg(long, value_name = "NAME", requires = "extender")]
    extender_server_name: Option<String>,
    /// kube-scheduler calls no extender (the default).
    #[arg(long)]
    no_extender: bool,
    /// No webhooks are registered, with --mortise.
    #[arg(long)]
    no_webhooks: bool,
    /// Webhook configurations to register (YAML, as `mortise manifests webhooks` prints it). Repeatable.
    #[arg(long, value_name = "FILE")]
    webhooks: Vec<PathBuf>,
    /// Further manifests to apply, in order (YAML). Repeatable.
    #[arg(long, value_name = "FILE")]
    manifest: Vec<PathBuf>,
    /// kwok stages that are added to the built-in ones; a stage with the name of a built-in one replaces it. Repeatable.
    #[arg(long, value_name = "FILE")]
    stages: Vec<PathBuf>,
    /// Longest back-off of an unschedulable pod, in seconds (Kubernetes' own default is 10).
    #[arg(long, default_value_t = 2, value_name = "SECONDS")]
    pod_max_backoff: u64,
    /// Without kwok: bring your own nodes.
    #[arg(long)]
    no_kwok: bool,
    /// A further flag of a component, for example `kube-scheduler=--v=4`. Repeatable.
    #[arg(long, value_name = "COMPONENT=FLAG")]
    flag: Vec<String>,
}

#[tokio::main]
async fn main() -> std::process::ExitCode {
    match run(Options::parse()).await {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            // An error of a closed standard error is ignored.
            writeln!(std::io::stderr(), "cluster: {error:#}").ok();
            std::process::ExitCode::FAILURE
        }
    }
}

async fn run(options: Options) -> Result<()> {
    let mut builder = ControlPlane::builder()
        .full()
        .dir(&options.dir)
        .scheduler(scheduler(&options)?);
    for manifest in mortise_manifests(&options).await? {
        builder = builder.manifests(&manifest);
    }
    if let Some(base) = options.port_base {
        builder = builder.port_base(base);
    }
    if !options.stages.is_empty() {
        let mut stages = Stages::built_in()?;
        for file in &options.stages {
            stages = stages
                .replace(&read(file)?)
                .with_context(|| format!("--stages {}", file.display()))?;
        }
        builder = builder.stages(stages);
    }
    if options.no_kwok {
        builder = builder.without(Component::Kwok);
    }
    for flag in &options.flag {
        let (component, flag) = component_flag(flag)?;
        builder = builder.flag(component, flag);
    }
    for file in options.manifest.iter().chain(&options.webhooks) {
        builder = builder.manifests(&read(file)?);
    }
    let plane = builder.start().await?;

    let kubeconfig = plane.kubeconfig_path();
    let kubectl = plane.dir().join("kubectl");
    if kubectl.is_symlink() {
        std::fs::remove_file(&kubectl).context("cannot replace the link to kubectl")?;
    }
    std::os::unix::fs::symlink(plane.kubectl_path(), &kubectl).context("cannot link kubectl")?;
    let mut out = std::io::stdout();
    writeln!(
        out,
        "{} is up; logs in {}",
        plane.url(),
        plane.dir().join("log").display()
    )?;
    writeln!(out, "  export KUBECONFIG={}", kubeconfig.display())?;
    writeln!(out, "  alias kubectl={}", kubectl.display())?;
    writeln!(out, "  just serve --provider kwok      # mortise on it")?;
    writeln!(out, "Ctrl-C stops it.")?;
    out.flush()?;

    let ended = tokio::select! {
        signal = stop_signal() => { signal?; None }
        end = plane.first_end() => Some(end),
    };
    plane.stop().await;
    match ended {
        None => Ok(()),
        Some(end) => bail!("{end}"),
    }
}

fn scheduler(options: &Options) -> Result<SchedulerOptions> {
    let mut scheduler = SchedulerOptions {
        pod_max_backoff: std::time::Duration::from_secs(options.pod_max_backoff),
        ..SchedulerOptions::default()
    };
    if let Some(url) = &options.mortise {
        let extender = prepare_certificates(&cert_dir(options)?, url)?;
        if !options.no_extender {
            scheduler.extenders.push(extender);
        }
    }
    if let (Some(url), Some(ca)) = (&options.extender, &options.extender_ca) {
        let client = options
            .extender_cert
            .clone()
            .zip(options.extender_key.clone());
        for file in client
            .iter()
            .flat_map(|(certificate, key)| [certificate, key])
            .chain([ca])
        {
            ensure!(
                file.is_file(),
                "extender: there is no file {}",
                file.display()
            );
        }
        let absolute = |file: &PathBuf| {
            std::path::absolute(file).with_context(|| format!("cannot resolve {}", file.display()))
        };
        let client = match client {
            None => None,
            Some((certificate, key)) => Some((absolute(&certificate)?, absolute(&key)?)),
        };
        let mut extender = ExtenderConfig::new(url, &absolute(ca)?, client);
        extender
            .server_name
            .clone_from(&options.extender_server_name);
        scheduler.extenders.push(extender);
    }
    Ok(scheduler)
}

/// Where `just serve` keeps mortise's certificates.
fn cert_dir(options: &Options) -> Result<PathBuf> {
    std::path::absolute(options.dir.join("certs")).context("cannot resolve the directory")
}

/// CRDs and webhook configurations, with `--mortise`.
async fn mortise_manifests(options: &Options) -> Result<Vec<String>> {
    let Some(url) = &options.mortise else {
        return Ok(Vec::new());
    };
    let crds = ["manifests", "crds", "--provider", &options.mortise_provider];
    let mut manifests = vec![Mortise::output(&crds).await?];
    if !options.no_webhooks {
        let ca = cert_dir(options)?.join("ca.crt").display().to_string();
        let webhooks = ["manifests", "webhooks", "--url", url, "--ca-file", &ca];
        manifests.push(Mortise::output(&webhooks).await?);
    }
    Ok(manifests)
}

fn component_flag(text: &str) -> Result<(Component, &str)> {
    let names = Component::ALL.map(Component::program).join(", ");
    let (name, flag) = text
        .split_once('=')
        .with_context(|| format!("--flag {text}: expected COMPONENT=FLAG with one of {names}"))?;
    let component = Component::ALL
        .into_iter()
        .find(|component| component.program() == name);
    let component = component
        .with_context(|| format!("--flag {text}: no component {name}; there are {names}"))?;
    ensure!(
        flag.starts_with('-'),
        "--flag {text}: {flag} is not a flag, it does not begin with `-`"
    );
    Ok((component, flag))
}

fn read(file: &PathBuf) -> Result<String> {
    std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}

async fn stop_signal() -> Result<()> {
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        interrupt = tokio::signal::ctrl_c() => interrupt.context("cannot listen for Ctrl-C"),
        _ = terminate.recv() => Ok(()),
    }
}
