//! A real control plane on loopback.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::api::{Api, DynamicObject};
use kube::config::{KubeConfigOptions, Kubeconfig as ClientKubeconfig};
use kube::{Client, Config};

use super::apply::apply;
use super::builder::Builder;
use super::certificates::{Authority, key_pair, write};
use super::component::{Component, Ports, Site};
use super::http::Http;
use super::kubeconfig::Kubeconfig;
use super::peers::Peers;
use super::process::{Launch, Process, Signal};
use super::scheduler::SchedulerOptions;
use super::stages::Stages;
use super::state_dir::StateDir;
use super::wait::wait_until;

/// Seconds on an idle test host; this is for one that builds something at the same time.
const READY_WITHIN: Duration = Duration::from_mins(2);
/// kube-apiserver drains for ten seconds and more after SIGTERM; nothing here waits for that.
const GRACE: Duration = Duration::from_secs(2);
/// Longest run of kubectl.
const KUBECTL_WITHIN: Duration = Duration::from_mins(1);

/// etcd, kube-apiserver and whichever others were asked for. Dropping it kills all of them.
pub struct ControlPlane {
    // Before `state`: processes end before their files go.
    processes: BTreeMap<Component, Process>,
    flags: BTreeMap<Component, Vec<String>>,
    scheduler_flags: Vec<String>,
    service_accounts: bool,
    ports: Ports,
    peers: Peers,
    authority: Authority,
    http: Http,
    client: Client,
    state: StateDir,
}

/// Why a start failed.
pub(crate) struct LaunchFailure {
    pub(crate) error: anyhow::Error,
    /// Another program listens on a port that was free a moment before.
    pub(crate) port_taken: bool,
}

/// What kubectl said.
#[derive(Clone, Debug)]
pub struct KubectlOutput {
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// Exit code; 137 when a signal ended it.
    pub code: i32,
}

impl ControlPlane {
    /// Options for a new control plane; etcd and kube-apiserver only, unless more is asked for.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::new()
    }

    pub(crate) async fn launch(options: &Builder) -> Result<Self, LaunchFailure> {
        let mut plane = match Self::prepare(options).await {
            Ok(plane) => plane,
            Err(error) => {
                return Err(LaunchFailure {
                    error,
                    port_taken: false,
                });
            }
        };
        match plane.bring_up(options).await {
            Ok(()) => Ok(plane),
            Err(error) => {
                let port_taken = plane.processes.values().any(|process| {
                    std::fs::read(process.log_path()).is_ok_and(|log| {
                        String::from_utf8_lossy(&log).contains("address already in use")
                    })
                });
                Err(LaunchFailure { error, port_taken })
            }
        }
    }

    /// Everything on disk; no process yet.
    async fn prepare(options: &Builder) -> Result<Self> {
        let peers = Peers::ready().await?;
        let mut state = match &options.dir {
            Some(dir) => StateDir::fixed(dir)?,
            None => StateDir::create("plane")?,
        };
        state.mark_bulky("etcd");
        state.subdirectory("log")?;
        let etc = state.subdirectory("etc")?;
        if state.join("etcd").exists() {
            std::fs::remove_dir_all(state.join("etcd"))
                .context("cannot remove the data of the cluster before this one")?;
        }
        let ports = Ports::choose(options.port_base)?;
        let server = format!("https://{}", ports.api_server.address());

        let pki = state.subdirectory("pki")?;
        let authority = Authority::new("mortise-test-ca")?;
        let ca = authority.pem();
        write(&pki.join("ca.crt"), &ca)?;
        let names = [
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            "10.0.0.1",
        ];
        authority
            .server("kube-apiserver", &names)?
            .write(&pki, "server")?;
        authority
            .client("kubelet-client", &["system:masters"])?
            .write(&pki, "kubelet-client")?;
        let (private, public) = key_pair()?;
        write(&pki.join("service-account.key"), &private)?;
        write(&pki.join("service-account.pub"), &public)?;
        for user in ["controller-manager", "scheduler"] {
            let identity = authority.client(&format!("system:kube-{user}"), &[])?;
            Kubeconfig::with_certificate(&server, &ca, &identity)
                .write(&etc.join(format!("{user}.kubeconfig")))?;
        }
        let admin = authority.client("admin", &["system:masters"])?;
        let kubeconfig = state.join("kubeconfig");
        Kubeconfig::with_certificate(&server, &ca, &admin).write(&kubeconfig)?;

        options.scheduler.write(
            &etc.join("scheduler.json"),
            &etc.join("scheduler.kubeconfig"),
        )?;
        let stages = options.stages.clone().map_or_else(Stages::built_in, Ok)?;
        stages.write(&etc.join("stages.yaml"))?;

        let client = client_of(&kubeconfig).await?;
        let http = Http::new(&ca, Some(&admin))?;
        Ok(Self {
            processes: BTreeMap::new(),
            flags: options.flags.clone(),
            scheduler_flags: options.scheduler.flags(),
            service_accounts: options.components.contains(&Component::ControllerManager),
            ports,
            peers,
            authority,
            http,
            client,
            state,
        })
    }

    async fn bring_up(&mut self, options: &Builder) -> Result<()> {
        // kube-apiserver tries until etcd answers, so both can start at once.
        self.spawn(Component::Etcd).await?;
        self.spawn(Component::ApiServer).await?;
        self.ready(Component::ApiServer).await?;
        let others: Vec<Component> = options
            .components
            .iter()
            .copied()
            .filter(|part| *part > Component::ApiServer)
            .collect();
        for component in &others {
            self.spawn(*component).await?;
        }
        try_join_all(others.iter().map(|component| self.ready(*component))).await?;
        self.bootstrapped().await?;
        for manifest in &options.manifests {
            self.apply_yaml(manifest).await?;
        }
        Ok(())
    }

    /// Waits for the objects that every cluster has soon after its start.
    async fn bootstrapped(&self) -> Result<()> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        wait_until("namespace kube-system", READY_WITHIN, || async {
            Ok(namespaces.get("kube-system").await?)
        })
        .await?;
        if self.service_accounts {
            let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), "default");
            wait_until("the default service account", READY_WITHIN, || async {
                Ok(accounts.get("default").await?)
            })
            .await?;
        }
        Ok(())
    }

    async fn spawn(&mut self, component: Component) -> Result<()> {
        let site = Site {
            dir: self.state.path(),
            ports: &self.ports,
            service_accounts: self.service_accounts,
        };
        let mut args = site.arguments(component);
        args.extend(self.flags.get(&component).into_iter().flatten().cloned());
        if component == Component::Scheduler {
            args.extend(self.scheduler_flags.iter().cloned());
        }
        let launch = Launch {
            name: component.program().to_owned(),
            program: self.peers.program(component.program()),
            args,
            // kwok would look for a configuration in the home directory of whoever runs the test.
            env: vec![(
                "KWOK_WORKDIR".to_owned(),
                self.state.join("kwok").display().to_string(),
            )],
            log: self.log_path(component),
            dir: Some(self.state.path().to_owned()),
        };
        self.processes
            .insert(component, Process::start(&launch).await?);
        Ok(())
    }

    async fn ready(&self, component: Component) -> Result<()> {
        let process = self.process(component)?;
        let scheme = if component == Component::Etcd {
            "http"
        } else {
            "https"
        };
        let url = format!(
            "{scheme}://{}{}",
            self.ports.of(component).address(),
            component.ready_path()
        );
        let answers = wait_until(component.program(), READY_WITHIN, || async {
            self.http.get(&url).await?.ok()?;
            Ok(())
        });
        process.while_alive("not ready yet", answers).await
    }

    fn process(&self, component: Component) -> Result<&Process> {
        self.processes
            .get(&component)
            .ok_or_else(|| anyhow!("{} has not been started", component.program()))
    }

    /// A client with all rights.
    #[must_use]
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// An HTTP client with all rights; use it with [`ControlPlane::url`].
    #[must_use]
    pub const fn http(&self) -> &Http {
        &self.http
    }

    /// The API server's URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("https://{}", self.ports.api_server.address())
    }

    /// The administrator's kubeconfig file.
    #[must_use]
    pub fn kubeconfig_path(&self) -> PathBuf {
        self.state.join("kubeconfig")
    }

    /// The state directory: `kubeconfig`, `pki/`, `etc/`, `log/`.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.state.path()
    }

    /// The cluster's certificate authority.
    #[must_use]
    pub const fn authority(&self) -> &Authority {
        &self.authority
    }

    /// Log file of a component, whether or not it runs.
    #[must_use]
    pub fn log_path(&self, component: Component) -> PathBuf {
        self.state
            .join("log")
            .join(format!("{}.log", component.program()))
    }

    /// Process id of a running component.
    #[must_use]
    pub fn pid(&self, component: Component) -> Option<u32> {
        self.processes.get(&component).map(Process::pid)
    }

    /// A kubeconfig file for another user; RBAC decides what they may do. A service account is the user
    /// `system:serviceaccount:<namespace>:<name>` in group `system:serviceaccounts`.
    ///
    /// # Errors
    /// The state directory cannot be written.
    pub fn kubeconfig_for(&self, user: &str, groups: &[&str]) -> Result<PathBuf> {
        let identity = self.authority.client(user, groups)?;
        let file: String = user
            .chars()
            .map(|letter| {
                if letter.is_ascii_alphanumeric() {
                    letter
                } else {
                    '-'
                }
            })
            .collect();
        let path = self
            .state
            .join("etc")
            .join(format!("user-{file}.kubeconfig"));
        Kubeconfig::with_certificate(&self.url(), &self.authority.pem(), &identity).write(&path)?;
        Ok(path)
    }

    /// A client for another user; see [`ControlPlane::kubeconfig_for`].
    ///
    /// # Errors
    /// The state directory cannot be written.
    pub async fn client_for(&self, user: &str, groups: &[&str]) -> Result<Client> {
        client_of(&self.kubeconfig_for(user, groups)?).await
    }

    /// Applies all documents of `yaml`, in order; waits for CRDs to be served.
    ///
    /// # Errors
    /// Not YAML, or the API server refuses a document (its message is in the error).
    pub async fn apply_yaml(&self, yaml: &str) -> Result<Vec<DynamicObject>> {
        apply(&self.client, yaml).await
    }

    /// Runs kubectl as the administrator.
    ///
    /// # Errors
    /// kubectl cannot be started or hangs; a failure that it reports itself is an output.
    pub async fn kubectl(&self, args: &[&str]) -> Result<KubectlOutput> {
        let output = tokio::process::Command::new(self.peers.program("kubectl"))
            .args(args)
            .env("KUBECONFIG", self.kubeconfig_path())
            .env("KUBECACHEDIR", self.state.join("kubectl-cache"))
            .stdin(std::process::Stdio::null())
            .kill_on_drop(true)
            .output();
        let output = tokio::time::timeout(KUBECTL_WITHIN, output)
            .await
            .with_context(|| format!("kubectl {}: no end in {KUBECTL_WITHIN:?}", args.join(" ")))?
            .context("cannot run kubectl")?;
        Ok(KubectlOutput {
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            code: output.status.code().unwrap_or(137),
        })
    }

    /// Path of kubectl, for a person's shell.
    #[must_use]
    pub fn kubectl_path(&self) -> PathBuf {
        self.peers.program("kubectl")
    }

    /// Starts a component that was stopped, killed or never started; returns when it is ready.
    ///
    /// # Errors
    /// It runs already, or does not become ready.
    pub async fn start_component(&mut self, component: Component) -> Result<()> {
        if let Some(process) = self.processes.get(&component) {
            ensure!(
                process.exit_code().is_some(),
                "{} runs already (process {})",
                component.program(),
                process.pid()
            );
        }
        self.processes.remove(&component);
        self.spawn(component).await?;
        self.ready(component).await
    }

    /// Stops a component: SIGTERM, and SIGKILL two seconds later.
    ///
    /// # Errors
    /// It does not run.
    pub async fn stop_component(&mut self, component: Component) -> Result<()> {
        self.take_running(component)?.terminate(GRACE).await;
        Ok(())
    }

    /// Kills a component with SIGKILL.
    ///
    /// # Errors
    /// It does not run.
    pub async fn kill_component(&mut self, component: Component) -> Result<()> {
        self.take_running(component)?.kill().await;
        Ok(())
    }

    /// Sends a signal to a component, for example [`Signal::Stop`] to make it hang.
    ///
    /// # Errors
    /// It does not run.
    pub fn signal_component(&mut self, component: Component, signal: Signal) -> Result<()> {
        match self.processes.get_mut(&component) {
            Some(process) if process.exit_code().is_none() => {
                process.signal(signal);
                Ok(())
            }
            _ => bail!("{} does not run", component.program()),
        }
    }

    fn take_running(&mut self, component: Component) -> Result<Process> {
        match self.processes.remove(&component) {
            Some(process) if process.exit_code().is_none() => Ok(process),
            _ => bail!("{} does not run", component.program()),
        }
    }

    /// Starts kube-scheduler with this configuration; a running one is stopped first. This is how an extender comes in
    /// whose URL and certificates are known only after the API server is up.
    ///
    /// # Errors
    /// It does not become ready; an invalid configuration is named in the log's end.
    pub async fn start_scheduler(&mut self, options: &SchedulerOptions) -> Result<()> {
        if self
            .processes
            .get(&Component::Scheduler)
            .is_some_and(|process| process.exit_code().is_none())
        {
            self.stop_component(Component::Scheduler).await?;
        }
        let etc = self.state.join("etc");
        options.write(
            &etc.join("scheduler.json"),
            &etc.join("scheduler.kubeconfig"),
        )?;
        self.scheduler_flags = options.flags();
        self.start_component(Component::Scheduler).await
    }

    /// Starts kube-scheduler with the caller's file for its `--config`; a running one is stopped first.
    ///
    /// # Errors
    /// As [`ControlPlane::start_scheduler`].
    pub async fn start_scheduler_with(&mut self, config: &Path) -> Result<()> {
        if self.pid(Component::Scheduler).is_some() {
            self.stop_component(Component::Scheduler).await?;
        }
        std::fs::copy(config, self.state.join("etc/scheduler.json"))
            .with_context(|| format!("cannot copy {}", config.display()))?;
        self.scheduler_flags = Vec::new();
        self.start_component(Component::Scheduler).await
    }

    /// Starts kwok with these stages; a running one is stopped first.
    ///
    /// # Errors
    /// It does not become ready.
    pub async fn start_kwok(&mut self, stages: &Stages) -> Result<()> {
        if self
            .processes
            .get(&Component::Kwok)
            .is_some_and(|process| process.exit_code().is_none())
        {
            self.stop_component(Component::Kwok).await?;
        }
        stages.write(&self.state.join("etc/stages.yaml"))?;
        self.start_component(Component::Kwok).await
    }

    /// Waits until a component ends by itself: says which, and the end of its log.
    pub async fn first_end(&self) -> String {
        let ends = self.processes.values().map(|process| {
            Box::pin(async move {
                let code = process.ended().await;
                format!(
                    "{} ended with code {code}; end of {}:\n{}",
                    process.name(),
                    process.log_path().display(),
                    process.log_tail()
                )
            })
        });
        futures::future::select_all(ends).await.0
    }

    /// Ends everything and removes the state. A control plane that is dropped instead keeps its logs for a day, because
    /// the test did not come to its end.
    pub async fn stop(mut self) {
        // Nothing in it is needed any more, so the processes are killed.
        for process in self.processes.values_mut() {
            process.signal(Signal::Kill);
        }
        for process in self.processes.values() {
            process.ended().await;
        }
        self.processes.clear();
        self.state.discard();
    }
}

impl KubectlOutput {
    /// Standard output of a successful run.
    ///
    /// # Errors
    /// The exit code was not 0; the text is kubectl's.
    pub fn ok(self) -> Result<String> {
        match self.code {
            0 => Ok(self.stdout),
            code => Err(anyhow!(
                "kubectl ended with code {code}: {}",
                self.stderr.trim()
            )),
        }
    }
}

impl std::fmt::Debug for ControlPlane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let running: BTreeMap<&str, u32> = self
            .processes
            .values()
            .map(|process| (process.name(), process.pid()))
            .collect();
        f.debug_struct("ControlPlane")
            .field("dir", &self.state.path())
            .field("url", &self.url())
            .field("running", &running)
            .finish()
    }
}

async fn client_of(kubeconfig: &Path) -> Result<Client> {
    // The first caller installs it; everybody wants the same one.
    rustls::crypto::aws_lc_rs::default_provider()
        .install_default()
        .ok();
    let file = ClientKubeconfig::read_from(kubeconfig)
        .with_context(|| format!("cannot read {}", kubeconfig.display()))?;
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}
