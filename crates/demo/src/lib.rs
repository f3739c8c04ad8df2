//! mortise: the demo, the whole service on a simulated cluster and cloud.
//!
//! One thread runs the simulation in virtual time with the production deciders; the production HTTPS service responds
//! from the snapshots that this thread publishes. The history depends on `--seed` only; HTTP requests do not change
//! it.

mod demo_cluster;
mod directory;
pub mod gallery;
mod in_process_extender;
mod play;
mod probe;
pub mod scenario_file;
mod stage;
mod text;

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::Args;
use clap::builder::PossibleValuesParser;
use jiff::Timestamp;
use mortise_apis::CrdSet;
use mortise_aws_class::Ec2NodeClassApi;
use mortise_controller::pem::Files;
use mortise_controller::{
    Addresses, ApiServers, Clock as _, DebugAccess, HttpsService, Listen, Listeners, ServiceState,
    Shutdown, SystemClock, Tls, certificates, default_extender_clients, serve,
};
use mortise_webhooks::Counters;
use mortise_webhooks::router::WebhookState;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

pub use in_process_extender::service_of;

use self::directory::Directory;
use self::gallery::GALLERY;
use self::play::{Pace, Player, VirtualClock};
use self::stage::Stage;

use mortise_process::{Millis, line, warning};

/// How the demo runs.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  mortise demo                                     until Ctrl-C, at 20 times real time\n  mortise demo --for 60s --json                    one minute, then one line of JSON\n  mortise demo --for 2h --virtual --speed max      two hours of cluster time, as fast as possible\n  mortise demo --scenario black-friday             a scenario of the gallery, two minutes of it each second"
)]
pub struct DemoArgs {
    /// A scenario instead of workloads that grow and shrink; it ends by itself
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(GALLERY.map(|each| each.name)))]
    scenario: Option<String>,
    /// Virtual seconds per real second, or "max"; default: 20, with a scenario 120
    #[arg(long)]
    speed: Option<Pace>,
    /// Exit after this time, such as 60s or 5m; default: run until Ctrl-C or SIGTERM
    #[arg(long = "for", value_name = "DURATION")]
    duration: Option<Millis>,
    /// Interpret --for as time of the simulated cluster instead of real time
    #[arg(long = "virtual", requires = "duration")]
    virtual_time: bool,
    /// Print the summary as one line of JSON; all other output goes to standard error
    #[arg(long)]
    json: bool,
    /// Seed for random choices; default: 1, or that of the scenario
    #[arg(long, value_parser = seed, allow_negative_numbers = true)]
    seed: Option<u64>,
    /// AWS region whose instance types and prices are used, in its first three zones
    #[arg(long, default_value = "us-east-1", conflicts_with = "scenario")]
    region: String,
}

fn seed(text: &str) -> Result<u64, String> {
    text.parse()
        .map_err(|_| format!("must be an integer from 0 to {}", u64::MAX))
}

impl DemoArgs {
    /// Prints a line for users, separate from the JSON output.
    fn print(&self, text: &str) {
        print(self.json, text);
    }

    /// What is played.
    fn stage(&self) -> anyhow::Result<Stage> {
        match &self.scenario {
            Some(name) => Stage::scenario(name, self.seed),
            None => Stage::workloads(self.seed.unwrap_or(1), &self.region),
        }
    }

    /// How fast. Scenarios last hours, and their clusters are small.
    fn pace(&self) -> Pace {
        let usual = if self.scenario.is_some() { 120 } else { 20 };
        self.speed.unwrap_or(Pace::Times(usual))
    }
}

fn print(to_standard_error: bool, text: &str) {
    if to_standard_error {
        warning(text);
    } else {
        line(text);
    }
}

/// Runs until a signal arrives, or its time is over.
/// # Errors
/// The service does not start, or the simulation violated an invariant.
pub fn run(args: &DemoArgs) -> anyhow::Result<()> {
    mortise_process::init_logging("warn")?;
    mortise_process::install_crypto()?;
    mortise_process::runtime()?.block_on(demo(args))
}

async fn demo(args: &DemoArgs) -> anyhow::Result<()> {
    let begin = Instant::now();
    let shutdown = Shutdown::new();
    shutdown.on_signals().context("signals cannot be handled")?;
    let stage = args.stage()?;
    let (start, seed, region) = (stage.start, stage.seed, stage.region.clone());
    let scenario = stage.scenario.clone();
    let speed = args.pace();
    let effective = json!({
        "demo": {
            "speed": speed.to_string(), "seed": seed, "region": region, "instance_types": stage.instance_types(),
            "scenario": scenario.as_ref().map(|(name, _)| name),
        },
        "settings": stage.settings,
    });
    let service = DemoService::start(start, effective).await?;

    let (ready, first) = tokio::sync::oneshot::channel();
    let json = args.json;
    let player = Player {
        played: stage.begin(&service.counters)?,
        say: Box::new(move |text| print(json, text)),
        shared: Arc::clone(&service.shared),
        clock: Arc::clone(&service.clock),
        pace: speed,
        most: args
            .duration
            .filter(|_| args.virtual_time)
            .map(|Millis(ms)| ms),
        stop: shutdown.clone(),
    };
    let mut playing = tokio::task::spawn_blocking(move || player.run(ready));

    // The simulation thread drops the sender if it fails; its result contains the error.
    let mut first_answer = None;
    if first.await.is_ok() {
        let about = (seed, scenario.clone());
        first_answer = Some(service.greet(args, about, begin).await?);
    }
    let real = args
        .duration
        .filter(|_| !args.virtual_time)
        .map(|Millis(ms)| Duration::from_millis(u64::try_from(ms).unwrap_or(0)));
    let over = async {
        match real {
            Some(real) => tokio::time::sleep(real.saturating_sub(begin.elapsed())).await,
            None => std::future::pending().await,
        }
    };
    let played = tokio::select! {
        played = &mut playing => played,
        () = over => {
            shutdown.trigger();
            playing.await
        }
    };
    let stats = played.context("the simulation exited")??;
    let counters = Arc::clone(&service.counters);
    service.stop().await?;

    let summary = text::Summary {
        stats: &stats,
        calls: counters.snapshot(),
        seed,
        region: &region,
        scenario: scenario.as_ref().map(|(name, _)| *name),
        first_answer,
        real: begin.elapsed(),
    };
    if args.json {
        line(&summary.json().to_string())
    } else {
        line(&summary.text())
    }
    if !stats.violations.is_empty() {
        bail!(
            "the simulation violated invariants:\n{}",
            stats.violations.join("\n")
        );
    }
    Ok(())
}

/// The production HTTPS service, which responds from published snapshots.
struct DemoService {
    shared: Arc<ServiceState>,
    clock: Arc<VirtualClock>,
    counters: Arc<Counters>,
    directory: Directory,
    files: Files,
    addresses: Addresses,
    http: JoinHandle<()>,
    end_http: Shutdown,
}

impl DemoService {
    async fn start(start: Timestamp, effective: Value) -> anyhow::Result<Self> {
        let directory = Directory::new()?;
        let files = certificates::ensure_directory(directory.path(), &[], SystemClock.now())?;
        let tls = Arc::new(Tls::new());
        tls.load(&files)?;
        let listeners = Listeners::bind(&ports()).await?;
        let addresses = listeners.addresses();

        let clock = Arc::new(VirtualClock::new(start));
        let shared = ServiceState::new(
            Arc::<VirtualClock>::clone(&clock),
            mortise_aws_class::labels::well_known(),
            env!("CARGO_PKG_VERSION"),
            effective,
        );
        shared.health.set_certificate(true);
        shared.health.set_leading(true);
        let webhooks = WebhookState {
            view: Arc::<ServiceState>::clone(&shared),
            counters: Arc::default(),
            extender: Arc::default(),
            rules: Arc::new(mortise_webhooks::admission::AdmissionSettings {
                deny_unsatisfiable: false,
                offline: false,
                crds: CrdSet::of_class(&Ec2NodeClassApi),
            }),
            conversion: false,
        };
        let counters = Arc::clone(&webhooks.counters);
        let service = HttpsService {
            api_servers: ApiServers::Anybody,
            shared: Arc::clone(&shared),
            webhooks,
            debug: Arc::new(DebugAccess::Loopback),
            clients: default_extender_clients().into(),
            tls,
        };
        let end_http = Shutdown::new();
        let http = tokio::spawn(serve(service, listeners, end_http.token()));
        Ok(Self {
            shared,
            clock,
            counters,
            directory,
            files,
            addresses,
            http,
            end_http,
        })
    }

    /// Calls the service like its clients do, prints its addresses, and returns the time from `begin` to the first
    /// responses.
    async fn greet(
        &self,
        args: &DemoArgs,
        (seed, scenario): (u64, Option<(&'static str, String)>),
        begin: Instant,
    ) -> anyhow::Result<Duration> {
        let places = text::DemoEndpoints {
            addresses: self.addresses,
            directory: self.directory.path(),
            speed: args.pace(),
            seed,
            scenario,
        };
        let snapshot = self.shared.snapshot();
        let asked = text::SampleRequests::about(&snapshot);
        probe::ask(self.addresses.https, &self.files, &asked)
            .await
            .context("the service does not respond to the demo")?;
        let took = begin.elapsed();
        args.print(&text::welcome(&places, &asked, &snapshot, took));
        Ok(took)
    }

    async fn stop(self) -> anyhow::Result<()> {
        self.shared.health.set_stopping();
        self.end_http.trigger();
        self.http.await.context("the HTTP service exited")
    }
}

/// The default ports if they are free, otherwise any others.
fn ports() -> Listen {
    let ip = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let on = |port| {
        let address = SocketAddr::new(ip, port);
        if TcpListener::bind(address).is_ok() {
            address
        } else {
            SocketAddr::new(ip, 0)
        }
    };
    Listen {
        https: on(8443),
        metrics: on(8080),
        health: on(8081),
    }
}
