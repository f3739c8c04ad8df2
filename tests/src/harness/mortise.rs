//! The program under test as a child process.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use serde_json::Value;
use tokio::sync::OnceCell;

use super::certificates::{Authority, Identity};
use super::control_plane::ControlPlane;
use super::http::Http;
use super::ports::Port;
use super::process::{Launch, Process, Signal};
use super::progress;
use super::scheduler::ExtenderConfig;
use super::wait::wait_until;

/// It starts in a second; this is for a test host that builds something at the same time.
const READY_WITHIN: Duration = Duration::from_mins(1);
/// What it may take after SIGTERM: longer than its own limit, so that exceeding that one is seen.
const GRACE: Duration = Duration::from_secs(40);
/// Lines of a failed build that its error quotes.
const QUOTED_LINES: usize = 30;

/// How to start it.
#[derive(Clone, Debug)]
pub struct MortiseOptions {
    /// Flags after `serve`; each replaces the harness's own flag of the same name.
    pub flags: Vec<String>,
    /// Variables on top of this process's environment.
    pub env: Vec<(String, String)>,
    /// Debug paths without a token.
    pub insecure_debug: bool,
    /// Certificates; `None`: a directory of the control plane, the same for all that are started on it.
    pub cert_dir: Option<PathBuf>,
    /// Certificates in the Secret `mortise-cert` of `kube-system` instead, as in a cluster.
    pub cert_secret: bool,
}

impl Default for MortiseOptions {
    fn default() -> Self {
        Self {
            flags: Vec::new(),
            env: Vec::new(),
            insecure_debug: true,
            cert_dir: None,
            cert_secret: false,
        }
    }
}

impl MortiseOptions {
    /// The defaults with further flags.
    #[must_use]
    pub fn with_flags(flags: &[&str]) -> Self {
        Self {
            flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
            ..Self::default()
        }
    }

    /// With further variables.
    #[must_use]
    pub fn env(mut self, env: impl IntoIterator<Item = (String, String)>) -> Self {
        self.env.extend(env);
        self
    }
}

/// A running (or ended) `mortise serve`. Dropping it kills it.
#[derive(Debug)]
pub struct Mortise {
    process: Process,
    launch: Launch,
    https: Port,
    metrics: Port,
    health: Port,
    cert_dir: PathBuf,
    plain: Http,
}

impl Mortise {
    /// Starts it on a control plane; ready only after [`Mortise::wait_ready`].
    ///
    /// # Errors
    /// The binary cannot be built or started.
    pub async fn start(plane: &ControlPlane, options: MortiseOptions) -> Result<Self> {
        let binary = mortise_binary().await?;
        let (https, metrics, health) = (Port::claim()?, Port::claim()?, Port::claim()?);
        let cert_dir = options
            .cert_dir
            .unwrap_or_else(|| plane.dir().join("mortise-certs"));
        std::fs::create_dir_all(&cert_dir)
            .with_context(|| format!("cannot create {}", cert_dir.display()))?;
        let own = [
            (
                "--kubeconfig",
                plane.kubeconfig_path().display().to_string(),
            ),
            ("--provider", "kwok".to_owned()),
            ("--bind-address", "127.0.0.1".to_owned()),
            ("--https-port", https.number().to_string()),
            ("--metrics-port", metrics.number().to_string()),
            ("--health-probe-port", health.number().to_string()),
            ("--cert-dir", cert_dir.display().to_string()),
            ("--leader-election-namespace", "kube-system".to_owned()),
        ];
        let given = |name: &str| {
            options
                .flags
                .iter()
                .any(|flag| flag.split('=').next() == Some(name))
        };
        let mut args = vec!["serve".to_owned()];
        for (name, value) in own {
            let elsewhere = name == "--cert-dir" && options.cert_secret;
            if !elsewhere && !given(name) {
                args.extend([name.to_owned(), value]);
            }
        }
        if options.insecure_debug && !given("--insecure-debug") {
            args.push("--insecure-debug".to_owned());
        }
        args.extend(options.flags);
        let log = plane
            .dir()
            .join("log")
            .join(format!("mortise-{}.log", https.number()));
        let launch = Launch {
            name: "mortise".to_owned(),
            program: binary,
            args,
            env: options.env,
            log,
            dir: None,
        };
        let process = Process::start(&launch).await?;
        Ok(Self {
            process,
            launch,
            https,
            metrics,
            health,
            cert_dir,
            plain: Http::new("", None)?,
        })
    }

    /// Starts it again after it ended: same flags and ports, the environment without `dropped` variables.
    ///
    /// # Errors
    /// It runs still, or cannot be started.
    pub async fn start_again(&mut self, dropped: &[&str]) -> Result<()> {
        ensure!(
            self.process.exit_code().is_some(),
            "mortise runs still (process {})",
            self.process.pid()
        );
        self.launch
            .env
            .retain(|(key, _)| !dropped.contains(&key.as_str()));
        self.process = Process::start(&self.launch).await?;
        Ok(())
    }

    /// Sets a variable for the next start, or takes it out.
    pub fn set_env(&mut self, name: &str, value: Option<&str>) {
        self.launch.env.retain(|(key, _)| key != name);
        let set = value.map(|value| (name.to_owned(), value.to_owned()));
        self.launch.env.extend(set);
    }

    /// Waits until `/readyz` says so.
    ///
    /// # Errors
    /// It ended, or is not ready in a minute; with the end of its log.
    pub async fn wait_ready(&self) -> Result<()> {
        let url = self.health_url("readyz");
        let ready = wait_until("mortise to be ready", READY_WITHIN, || async {
            self.plain.get(&url).await?.ok()?;
            Ok(())
        });
        self.process.while_alive("not ready yet", ready).await
    }

    /// Process id.
    #[must_use]
    pub const fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Resident memory now and at most since its start, in MiB.
    ///
    /// # Errors
    /// It has ended.
    pub fn resident_mib(&self) -> Result<[f64; 2]> {
        let (now, most) = self.process.resident_memory()?;
        Ok([now, most].map(|bytes| bytes as f64 / f64::from(1 << 20)))
    }

    /// Log file; later starts append to it.
    #[must_use]
    pub fn log_path(&self) -> &Path {
        self.process.log_path()
    }

    /// The whole log so far.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn log(&self) -> Result<String> {
        std::fs::read_to_string(self.log_path())
            .with_context(|| format!("cannot read {}", self.log_path().display()))
    }

    /// Port of extender, webhooks and debug paths.
    #[must_use]
    pub const fn https_port(&self) -> u16 {
        self.https.number()
    }

    /// URL of a path on the HTTPS port, for example `extender/v1/filter`.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        format!("https://{}/{path}", self.https.address())
    }

    /// URL of a path on the health port.
    #[must_use]
    pub fn health_url(&self, path: &str) -> String {
        format!("http://{}/{path}", self.health.address())
    }

    /// The metrics page.
    ///
    /// # Errors
    /// It does not answer.
    pub async fn metrics(&self) -> Result<String> {
        self.plain
            .get(&format!("http://{}/metrics", self.metrics.address()))
            .await?
            .ok()
    }

    /// The sum of a metric over all label sets that contain every `name="value"` text of `labels`; 0 when there is none.
    ///
    /// # Errors
    /// The page does not answer.
    pub async fn metric(&self, name: &str, labels: &[&str]) -> Result<f64> {
        let page = self.metrics().await?;
        let samples = page.lines().filter_map(|line| {
            let (series, value) = line.rsplit_once(' ')?;
            let (family, set) = series.split_once('{').unwrap_or((series, ""));
            (family == name && labels.iter().all(|label| set.contains(label)))
                .then(|| value.parse::<f64>().ok())?
        });
        Ok(samples.sum())
    }

    /// A client that trusts its certificate, without a client certificate of its own.
    ///
    /// # Errors
    /// It has not written its certificates yet: wait until it is ready.
    pub fn http(&self) -> Result<Http> {
        Http::new(&self.read_certificate("ca.crt")?, None)
    }

    /// A client with the certificate that kube-scheduler uses.
    ///
    /// # Errors
    /// As [`Mortise::http`].
    pub fn scheduler_http(&self) -> Result<Http> {
        let identity = Identity {
            certificate: self.read_certificate("extender-client.crt")?,
            key: self.read_certificate("extender-client.key")?,
        };
        Http::new(&self.read_certificate("ca.crt")?, Some(&identity))
    }

    /// JSON of a debug path, for example `decisions?limit=10`.
    ///
    /// # Errors
    /// It does not answer 200.
    pub async fn debug(&self, path: &str) -> Result<Value> {
        self.http()?
            .get(&self.url(&format!("debug/{path}")))
            .await?
            .json()
            .with_context(|| format!("debug/{path}"))
    }

    /// How kube-scheduler reaches it, for [`ControlPlane::start_scheduler`].
    ///
    /// # Errors
    /// As [`Mortise::http`].
    pub fn extender(&self) -> Result<ExtenderConfig> {
        for file in ["ca.crt", "extender-client.crt", "extender-client.key"] {
            self.read_certificate(file)?;
        }
        let client = (
            self.cert_dir.join("extender-client.crt"),
            self.cert_dir.join("extender-client.key"),
        );
        Ok(ExtenderConfig::new(
            &self.url("extender/v1"),
            &self.cert_dir.join("ca.crt"),
            Some(client),
        ))
    }

    /// The webhook configurations that point at it, YAML.
    ///
    /// # Errors
    /// The binary does not print them.
    pub async fn webhook_manifests(&self, flags: &[&str]) -> Result<String> {
        let url = format!("https://{}", self.https.address());
        let ca = self.cert_dir.join("ca.crt").display().to_string();
        let mut args = vec!["manifests", "webhooks", "--url", &url, "--ca-file", &ca];
        args.extend(flags);
        Self::output(&args).await
    }

    /// Standard output of a subcommand that ends by itself, for example `manifests crds`.
    ///
    /// # Errors
    /// Its exit code is not 0; the text is what it said.
    pub async fn output(args: &[&str]) -> Result<String> {
        let output = tokio::process::Command::new(mortise_binary().await?)
            .args(args)
            .stdin(std::process::Stdio::null())
            .kill_on_drop(true)
            .output()
            .await
            .context("cannot run mortise")?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success(),
            "mortise {} ended with {}: {}",
            args.join(" "),
            output.status,
            stderr.trim()
        );
        String::from_utf8(output.stdout).context("mortise printed something that is not UTF-8")
    }

    /// `kill -9`, and waits until it is gone.
    pub async fn kill9(&mut self) {
        self.process.kill().await;
    }

    /// SIGTERM; returns the exit code (137 when it did not end in time and had to be killed).
    pub async fn terminate(&mut self) -> i32 {
        self.process.terminate(GRACE).await
    }

    /// Waits until it ends by itself (a failpoint, a wrong flag) and returns the exit code.
    ///
    /// # Errors
    /// It runs still after `timeout`.
    pub async fn wait_end(&self, timeout: Duration) -> Result<i32> {
        tokio::time::timeout(timeout, self.process.ended())
            .await
            .map_err(|_| anyhow!("mortise runs still after {timeout:?}"))
    }

    /// Sends a signal: [`Signal::Stop`] makes it hang with its sockets open.
    pub fn signal(&mut self, signal: Signal) {
        self.process.signal(signal);
    }

    fn read_certificate(&self, name: &str) -> Result<String> {
        let path = self.cert_dir.join(name);
        std::fs::read_to_string(&path)
            .with_context(|| format!("mortise has not written {} (is it ready?)", path.display()))
    }
}

/// Puts certificates into `cert_dir` before mortise has ever run there, in its own layout: its CA, the CA of extender
/// clients, and a client certificate for kube-scheduler. It makes its server certificate from them. What is there already
/// stays. Returns how kube-scheduler will reach a mortise at `url` (for example `https://127.0.0.1:8443`).
///
/// # Errors
/// The directory cannot be written, or holds only a part of these files.
pub fn prepare_certificates(cert_dir: &Path, url: &str) -> Result<ExtenderConfig> {
    std::fs::create_dir_all(cert_dir)
        .with_context(|| format!("cannot create {}", cert_dir.display()))?;
    let names = ["ca", "extender-ca", "extender-client"];
    let there = names
        .iter()
        .filter(|name| cert_dir.join(format!("{name}.crt")).is_file())
        .count();
    ensure!(
        there == 0 || there == names.len(),
        "{} holds some of ca.crt, extender-ca.crt and extender-client.crt, but not all; remove it",
        cert_dir.display()
    );
    if there == 0 {
        Authority::new("mortise-ca")?
            .identity()
            .write(cert_dir, "ca")?;
        let clients = Authority::new("mortise-extender-ca")?;
        clients.identity().write(cert_dir, "extender-ca")?;
        clients
            .client("mortise-extender-client", &[])?
            .write(cert_dir, "extender-client")?;
    }
    let client = (
        cert_dir.join("extender-client.crt"),
        cert_dir.join("extender-client.key"),
    );
    Ok(ExtenderConfig::new(
        &format!("{url}/extender/v1"),
        &cert_dir.join("ca.crt"),
        Some(client),
    ))
}

/// The binary under test: `$MORTISE_BINARY`, or `target/<profile>/mortise`, which is brought up to date first (cargo itself
/// builds a binary for another package's tests neither in `cargo test` nor otherwise).
///
/// # Errors
/// The build fails; the text is the compiler's.
pub async fn mortise_binary() -> Result<PathBuf> {
    static BINARY: OnceCell<PathBuf> = OnceCell::const_new();
    Ok(BINARY.get_or_try_init(build).await?.clone())
}

async fn build() -> Result<PathBuf> {
    if let Some(binary) = std::env::var_os("MORTISE_BINARY").filter(|path| !path.is_empty()) {
        let binary = PathBuf::from(binary);
        ensure!(
            binary.is_file(),
            "MORTISE_BINARY={}: there is no such file",
            binary.display()
        );
        return Ok(binary);
    }
    let own = std::env::current_exe().context("cannot tell where this test was built")?;
    let dir = own.parent().context("a test binary has a directory")?;
    let profile_dir = if dir.ends_with("deps") {
        dir.parent().unwrap_or(dir)
    } else {
        dir
    };
    let name = profile_dir
        .file_name()
        .and_then(|name| name.to_str())
        .context("the target directory has no profile")?;
    let target = profile_dir
        .parent()
        .context("the target directory has no parent")?;
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .context("the crate lies in the workspace")?;
    // The same selection of packages as `cargo test --workspace`, so that features are the same and nothing is built twice.
    let output = tokio::process::Command::new(
        std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()),
    )
    .args([
        "build",
        "--workspace",
        "--bin",
        "mortise",
        "--profile",
        // What this test was built with, so that nothing is built twice.
        if name == "debug" { "test" } else { name },
    ])
    .arg("--target-dir")
    .arg(target)
    .current_dir(workspace)
    .stdin(std::process::Stdio::null())
    .kill_on_drop(true)
    .output()
    .await
    .context(
        "cannot run cargo to build the mortise binary; set MORTISE_BINARY to use one that is there",
    )?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        let lines: Vec<&str> = said.lines().collect();
        let end = lines
            .iter()
            .skip(lines.len().saturating_sub(QUOTED_LINES))
            .copied()
            .collect::<Vec<_>>()
            .join("\n");
        bail!("cannot build the mortise binary:\n{end}");
    }
    if said
        .lines()
        .any(|line| line.trim_start().starts_with("Compiling"))
    {
        progress("built the mortise binary");
    }
    let binary = profile_dir.join("mortise");
    ensure!(
        binary.is_file(),
        "cargo built no {}; set MORTISE_BINARY to use another one",
        binary.display()
    );
    Ok(binary)
}
