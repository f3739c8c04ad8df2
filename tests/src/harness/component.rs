//! The programs of a control plane: their command lines and how to see that they are ready.

use std::path::Path;

use super::ports::Port;

/// A program of the control plane, in the order in which they start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Component {
    /// The store.
    Etcd,
    /// The API.
    ApiServer,
    /// Deployments, garbage collection, service accounts, node life cycle.
    ControllerManager,
    /// kube-scheduler.
    Scheduler,
    /// Kubelets that run nothing.
    Kwok,
}

impl Component {
    /// All, in starting order.
    pub const ALL: [Self; 5] = [
        Self::Etcd,
        Self::ApiServer,
        Self::ControllerManager,
        Self::Scheduler,
        Self::Kwok,
    ];

    /// The program's name, also the name of its log file (`log/<name>.log`).
    #[must_use]
    pub const fn program(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::ApiServer => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
            Self::Kwok => "kwok",
        }
    }

    /// The path on its serving port that says "ready".
    pub(crate) const fn ready_path(self) -> &'static str {
        match self {
            Self::Etcd => "/readyz",
            Self::ApiServer | Self::Scheduler => "/readyz",
            Self::ControllerManager | Self::Kwok => "/healthz",
        }
    }
}

/// Ports of one control plane.
#[derive(Debug)]
pub(crate) struct Ports {
    pub(crate) etcd: Port,
    pub(crate) etcd_peer: Port,
    pub(crate) api_server: Port,
    pub(crate) controller_manager: Port,
    pub(crate) scheduler: Port,
    pub(crate) kwok: Port,
}

impl Ports {
    /// Free ports, or six in a row from `base`.
    pub(crate) fn choose(base: Option<u16>) -> anyhow::Result<Self> {
        let choose = |offset: u16| match base {
            None => Port::claim(),
            Some(base) => Port::fixed(base.saturating_add(offset)),
        };
        Ok(Self {
            etcd: choose(0)?,
            etcd_peer: choose(1)?,
            api_server: choose(2)?,
            controller_manager: choose(3)?,
            scheduler: choose(4)?,
            kwok: choose(5)?,
        })
    }

    /// The port that serves a component's health.
    pub(crate) const fn of(&self, component: Component) -> &Port {
        match component {
            Component::Etcd => &self.etcd,
            Component::ApiServer => &self.api_server,
            Component::ControllerManager => &self.controller_manager,
            Component::Scheduler => &self.scheduler,
            Component::Kwok => &self.kwok,
        }
    }
}

/// What a command line depends on.
pub(crate) struct Site<'a> {
    /// State directory: `pki/`, `etc/`, `etcd/`, `kubeconfig`.
    pub(crate) dir: &'a Path,
    pub(crate) ports: &'a Ports,
    /// Whether a component creates service accounts (kube-controller-manager); without, pods must not need one.
    pub(crate) service_accounts: bool,
}

impl Site<'_> {
    /// Arguments of a component, without the test's own extra flags.
    pub(crate) fn arguments(&self, component: Component) -> Vec<String> {
        match component {
            Component::Etcd => self.etcd(),
            Component::ApiServer => self.api_server(),
            Component::ControllerManager => self.controller_manager(),
            Component::Scheduler => self.scheduler(),
            Component::Kwok => self.kwok(),
        }
    }

    fn path(&self, name: &str) -> String {
        self.dir.join(name).display().to_string()
    }

    fn etcd(&self) -> Vec<String> {
        let client = format!("http://{}", self.ports.etcd.address());
        let peer = format!("http://{}", self.ports.etcd_peer.address());
        vec![
            "--name=node0".to_owned(),
            format!("--data-dir={}", self.path("etcd")),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster=node0={peer}"),
            // A test's data need not survive a crash of the test host.
            "--unsafe-no-fsync".to_owned(),
            "--quota-backend-bytes=8589934592".to_owned(),
            "--auto-compaction-retention=5m".to_owned(),
            "--log-level=warn".to_owned(),
        ]
    }

    fn api_server(&self) -> Vec<String> {
        let mut args = vec![
            format!("--etcd-servers=http://{}", self.ports.etcd.address()),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={}", self.ports.api_server.number()),
            "--advertise-address=127.0.0.1".to_owned(),
            "--endpoint-reconciler-type=none".to_owned(),
            format!("--tls-cert-file={}", self.path("pki/server.crt")),
            format!("--tls-private-key-file={}", self.path("pki/server.key")),
            format!("--client-ca-file={}", self.path("pki/ca.crt")),
            format!("--requestheader-client-ca-file={}", self.path("pki/ca.crt")),
            "--requestheader-allowed-names=front-proxy-client".to_owned(),
            "--requestheader-username-headers=X-Remote-User".to_owned(),
            "--requestheader-group-headers=X-Remote-Group".to_owned(),
            "--requestheader-extra-headers-prefix=X-Remote-Extra-".to_owned(),
            format!(
                "--kubelet-client-certificate={}",
                self.path("pki/kubelet-client.crt")
            ),
            format!(
                "--kubelet-client-key={}",
                self.path("pki/kubelet-client.key")
            ),
            format!(
                "--service-account-key-file={}",
                self.path("pki/service-account.pub")
            ),
            format!(
                "--service-account-signing-key-file={}",
                self.path("pki/service-account.key")
            ),
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local".to_owned(),
            "--service-cluster-ip-range=10.0.0.0/16".to_owned(),
            "--authorization-mode=Node,RBAC".to_owned(),
            "--allow-privileged=true".to_owned(),
            // Throttling would measure the API server's settings, not the program under test.
            "--enable-priority-and-fairness=false".to_owned(),
            "--max-requests-inflight=0".to_owned(),
            "--max-mutating-requests-inflight=0".to_owned(),
            "--profiling=false".to_owned(),
        ];
        if !self.service_accounts {
            args.push("--disable-admission-plugins=ServiceAccount".to_owned());
        }
        args
    }

    /// Health over the same certificate as the API server's, so that one client can ask all of them.
    fn serving(&self, port: &Port) -> Vec<String> {
        vec![
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={}", port.number()),
            format!("--tls-cert-file={}", self.path("pki/server.crt")),
            format!("--tls-private-key-file={}", self.path("pki/server.key")),
        ]
    }

    fn controller_manager(&self) -> Vec<String> {
        let kubeconfig = self.path("etc/controller-manager.kubeconfig");
        let mut args = self.serving(&self.ports.controller_manager);
        args.extend([
            format!("--kubeconfig={kubeconfig}"),
            format!("--authentication-kubeconfig={kubeconfig}"),
            format!("--authorization-kubeconfig={kubeconfig}"),
            "--leader-elect=false".to_owned(),
            format!("--root-ca-file={}", self.path("pki/ca.crt")),
            format!(
                "--service-account-private-key-file={}",
                self.path("pki/service-account.key")
            ),
            "--use-service-account-credentials=true".to_owned(),
            "--kube-api-qps=2000".to_owned(),
            "--kube-api-burst=4000".to_owned(),
        ]);
        args
    }

    fn scheduler(&self) -> Vec<String> {
        let kubeconfig = self.path("etc/scheduler.kubeconfig");
        let mut args = self.serving(&self.ports.scheduler);
        args.extend([
            format!("--config={}", self.path("etc/scheduler.json")),
            format!("--authentication-kubeconfig={kubeconfig}"),
            format!("--authorization-kubeconfig={kubeconfig}"),
        ]);
        args
    }

    fn kwok(&self) -> Vec<String> {
        vec![
            format!("--kubeconfig={}", self.path("kubeconfig")),
            format!("--config={}", self.path("etc/stages.yaml")),
            "--manage-all-nodes=false".to_owned(),
            // Both must hold: kwok lists by the label and filters by the annotation.
            "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake".to_owned(),
            "--manage-nodes-with-label-selector=kwok-partition=a".to_owned(),
            // Pods whose status a test writes.
            "--disregard-status-with-annotation-selector=kwok.x-k8s.io/status=custom".to_owned(),
            "--node-lease-duration-seconds=40".to_owned(),
            "--cidr=10.64.0.0/10".to_owned(),
            "--node-ip=127.0.0.1".to_owned(),
            format!("--node-port={}", self.ports.kwok.number()),
            format!("--server-address={}", self.ports.kwok.address()),
            format!("--tls-cert-file={}", self.path("pki/server.crt")),
            format!("--tls-private-key-file={}", self.path("pki/server.key")),
        ]
    }
}
