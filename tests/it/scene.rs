//! Where a story plays: a control plane with our definitions and mortise on it, and the objects that a story looks at.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Node, Pod, ServiceAccount};
use kube::Resource;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use mortise_apis::{NodeClaim, NodePool};
use mortise_tests::harness::{
    Component, ControlPlane, FaultProxy, Http, Mortise, MortiseOptions, SchedulerOptions,
    wait_until,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::command;

/// Conditions that a test waits for are met in seconds; this is for a test host that builds something at the same time.
pub(crate) const SOON: Duration = Duration::from_mins(2);
/// Lines of mortise's log that a failed story shows.
const QUOTED_LINES: usize = 40;

/// Stories at a time: each is half a dozen programs that wait for timers most of the time. That they do not all start at once is
/// seen to where control planes start.
static TURNS: LazyLock<Semaphore> = LazyLock::new(|| {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    Semaphore::new((cores * 2).max(4))
});

/// Waits for a turn to start a control plane; hold it as long as that lives.
pub(crate) async fn turn() -> Result<SemaphorePermit<'static>> {
    Ok(TURNS.acquire().await?)
}

/// Waits for the turns of two stories: what schedules hundreds of pods needs a processor of its own for its controllers.
pub(crate) async fn two_turns() -> Result<SemaphorePermit<'static>> {
    Ok(TURNS.acquire_many(2).await?)
}

/// What the scene consists of.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    /// Flags of mortise in addition to the short durations of integration tests.
    pub(crate) flags: Vec<String>,
    /// Variables of mortise.
    pub(crate) env: Vec<(String, String)>,
    /// `kwok` or `aws`.
    pub(crate) provider: &'static str,
    /// kube-scheduler asks mortise.
    pub(crate) extender: bool,
    /// Debug paths without a token.
    pub(crate) insecure_debug: bool,
    /// Certificates in a Secret instead of a directory.
    pub(crate) cert_secret: bool,
    /// Between mortise and the API server is a proxy that can do harm.
    pub(crate) proxied: bool,
    /// Flags of kube-apiserver.
    pub(crate) api_server: Vec<String>,
    /// Feature gates of kube-scheduler that are not as by default.
    pub(crate) scheduler_gates: Vec<(&'static str, bool)>,
    /// YAML applied before mortise starts, after the definitions.
    pub(crate) manifests: Vec<String>,
}

impl Default for Setting {
    fn default() -> Self {
        Self {
            flags: Vec::new(),
            env: Vec::new(),
            provider: "kwok",
            extender: false,
            insecure_debug: true,
            cert_secret: false,
            proxied: false,
            api_server: Vec::new(),
            scheduler_gates: Vec::new(),
            manifests: Vec::new(),
        }
    }
}

impl Setting {
    /// Short times and the provider, unless the story sets them itself.
    fn flags(&self) -> Vec<String> {
        let provider = format!("--provider={}", self.provider);
        let own = [
            "--batch-idle-duration=500ms",
            "--disruption-validation-delay=1s",
            "--bind-grace-period=500ms",
            "--disruption-cooldown=1s",
            &provider,
        ];
        let name = |flag: &str| flag.split('=').next().map(str::to_owned);
        let given = |flag: &str| self.flags.iter().any(|each| name(each) == name(flag));
        let own = own.into_iter().filter(|flag| !given(flag));
        own.map(str::to_owned)
            .chain(self.flags.iter().cloned())
            .collect()
    }
}

/// A control plane and mortise, ready. When a story fails it says where the logs are and shows the end of mortise's.
pub(crate) struct Scene {
    // First: it reads the log before anything goes.
    ending: Ending,
    pub(crate) mortise: Mortise,
    pub(crate) plane: ControlPlane,
    proxy: Option<FaultProxy>,
    _turn: SemaphorePermit<'static>,
}

impl Scene {
    /// mortise with the kwok provider, kube-scheduler without the extender.
    pub(crate) async fn kwok() -> Result<Self> {
        Self::start(Setting::default()).await
    }

    /// The same with these flags of mortise.
    pub(crate) async fn with(flags: &[&str]) -> Result<Self> {
        let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        Self::start(Setting {
            flags,
            ..Setting::default()
        })
        .await
    }

    pub(crate) async fn start(setting: Setting) -> Result<Self> {
        let turn = turn().await?;
        let crds = Mortise::output(&["manifests", "crds", "--provider", setting.provider]).await?;
        let mut builder = ControlPlane::builder()
            .full()
            .without(Component::Scheduler)
            .manifests(&crds);
        for flag in &setting.api_server {
            builder = builder.flag(Component::ApiServer, flag);
        }
        for manifest in &setting.manifests {
            builder = builder.manifests(manifest);
        }
        let mut plane = Box::pin(builder.start()).await?;
        let mut kubeconfig = account_for(&plane, &setting.flags).await?;
        let mut proxy = None;
        if setting.proxied {
            let between = FaultProxy::start(&plane, USER, &GROUPS).await?;
            between.kubeconfig().clone_into(&mut kubeconfig);
            proxy = Some(between);
        }
        let mut options = MortiseOptions::default();
        options
            .flags
            .push(format!("--kubeconfig={}", kubeconfig.display()));
        options.flags.extend(setting.flags());
        options.env = setting.env;
        options.insecure_debug = setting.insecure_debug;
        options.cert_secret = setting.cert_secret;
        let mortise = Mortise::start(&plane, options).await?;
        let ending = Ending {
            log: Some(mortise.log_path().to_owned()),
        };
        mortise.wait_ready().await?;
        let mut scheduler = if setting.extender {
            SchedulerOptions::with_extender(mortise.extender()?)
        } else {
            SchedulerOptions::default()
        };
        scheduler.feature_gates = setting.scheduler_gates;
        plane.start_scheduler(&scheduler).await?;
        Ok(Self {
            ending,
            mortise,
            plane,
            proxy,
            _turn: turn,
        })
    }

    /// All went well: ends everything and removes the state.
    pub(crate) async fn end(self) {
        let Self {
            mut ending,
            mut mortise,
            plane,
            proxy: _,
            _turn,
        } = self;
        ending.log = None;
        mortise.kill9().await;
        plane.stop().await;
    }

    /// What is between mortise and the API server, where the setting asked for it.
    pub(crate) fn proxy(&self) -> Result<&FaultProxy> {
        self.proxy.as_ref().context("the scene has no proxy")
    }

    /// Applies these objects in order.
    pub(crate) async fn apply(&self, objects: &[Value]) -> Result<()> {
        let documents: Vec<String> = objects.iter().map(Value::to_string).collect();
        self.plane.apply_yaml(&documents.join("\n---\n")).await?;
        Ok(())
    }

    /// Every object of a kind without a namespace.
    pub(crate) async fn list<K>(&self) -> Result<Vec<K>>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        let all: Api<K> = Api::all(self.plane.client());
        Ok(all.list(&ListParams::default()).await?.items)
    }

    /// A client of mortise with the token of a service account in `default`.
    pub(crate) async fn caller(&self, account: &str) -> Result<Http> {
        let accounts: Api<ServiceAccount> = Api::default_namespaced(self.plane.client());
        let request = TokenRequest {
            spec: Some(TokenRequestSpec {
                expiration_seconds: Some(600),
                ..TokenRequestSpec::default()
            }),
            ..TokenRequest::default()
        };
        let made = accounts
            .create_token_request(account, &PostParams::default(), &request)
            .await?;
        let token = made.status.and_then(|status| status.token);
        let token = format!("Bearer {}", token.context("a token")?);
        Ok(self.mortise.http()?.with_header("Authorization", &token))
    }

    /// Nodes by name, those only that mortise launched.
    pub(crate) async fn nodes(&self) -> Result<BTreeMap<String, Node>> {
        let mut nodes = self.list::<Node>().await?;
        nodes.retain(|node| provider_id(node).is_some());
        nodes
            .into_iter()
            .map(|node| Ok((node.metadata.name.clone().context("a name")?, node)))
            .collect()
    }

    /// NodeClaims by name.
    pub(crate) async fn claims(&self) -> Result<BTreeMap<String, NodeClaim>> {
        let claims = self.list::<NodeClaim>().await?;
        Ok(claims
            .into_iter()
            .map(|claim| (claim.name().to_string(), claim))
            .collect())
    }

    /// Names of the NodeClaims.
    pub(crate) async fn claim_names(&self) -> Result<BTreeSet<String>> {
        Ok(self.claims().await?.into_keys().collect())
    }

    /// Waits until there are as many NodeClaims as there were, and none of those.
    pub(crate) async fn all_replaced(&self, before: &BTreeSet<String>) -> Result<()> {
        wait_until("all nodes to be new", SOON, || async {
            let now = self.claim_names().await?;
            ensure!(
                now.len() == before.len() && now.is_disjoint(before),
                "{now:?}"
            );
            Ok(())
        })
        .await
    }

    /// What `mortise explain` prints about the object of an event.
    pub(crate) async fn explained_object(&self, event: Event) -> Result<String> {
        let (kind, name) = (event.involved_object.kind, event.involved_object.name);
        let kind = kind.context("a kind")?.to_lowercase();
        let url = self.mortise.url("");
        let asked = [&*kind, &*name.context("a name")?, "--url", &url];
        let said = command::run("explain", &asked, None).await?;
        ensure!(said.code == 0, "{said:?}");
        Ok(said.stdout)
    }

    /// A NodePool.
    pub(crate) async fn pool(&self, name: &str) -> Result<NodePool> {
        let pools: Api<NodePool> = Api::all(self.plane.client());
        Ok(pools.get(name).await?)
    }

    /// Pods with label `app` in all namespaces, also those that are going.
    pub(crate) async fn pods(&self, app: &str) -> Result<Vec<Pod>> {
        let pods: Api<Pod> = Api::all(self.plane.client());
        let of_app = ListParams::default().labels(&format!("app={app}"));
        Ok(pods.list(&of_app).await?.items)
    }

    /// Waits until label `app` has exactly this many pods and all of them run.
    pub(crate) async fn running(&self, app: &str, count: usize) -> Result<Vec<Pod>> {
        wait_until(
            &format!("{count} running pods of {app}"),
            SOON,
            || async move {
                let pods = self.pods(app).await?;
                let run = pods.iter().filter(|pod| runs(pod)).count();
                ensure!(
                    run == count && pods.len() == count,
                    "{run} of {} run",
                    pods.len()
                );
                Ok(pods)
            },
        )
        .await
    }

    /// Waits until this number of nodes exists, with a claim and a Node each, all of them Ready and none being deleted.
    pub(crate) async fn settled(&self, launched_nodes: usize) -> Result<Vec<LaunchedNode>> {
        wait_until(&format!("{launched_nodes} nodes"), SOON, || async move {
            let (claims, nodes) = (self.claims().await?, self.nodes().await?);
            ensure!(
                claims.len() == launched_nodes && nodes.len() == launched_nodes,
                "{} claims, {} nodes",
                claims.len(),
                nodes.len()
            );
            pairs(claims, nodes)
        })
        .await
    }

    /// For a while, twice as long as a launch for a pod takes, there is this number of claims.
    pub(crate) async fn stays_at(&self, claims: usize) -> Result<()> {
        tokio::time::sleep(Duration::from_secs(12)).await;
        let now = self.claims().await?;
        ensure!(now.len() == claims, "{claims} NodeClaims became {now:?}");
        Ok(())
    }

    /// Waits until there are no claims and no nodes that mortise launched, not even ones that are going.
    pub(crate) async fn empty(&self) -> Result<()> {
        wait_until("all nodes to be gone", SOON, || async move {
            let (claims, nodes) = (self.claims().await?, self.nodes().await?);
            ensure!(
                claims.is_empty() && nodes.is_empty(),
                "claims {:?}, nodes {:?}",
                claims.keys(),
                nodes.keys()
            );
            Ok(())
        })
        .await
    }

    /// Sets the number of replicas.
    pub(crate) async fn scale(&self, deployment: &str, replicas: usize) -> Result<()> {
        let deployments: Api<Deployment> = Api::default_namespaced(self.plane.client());
        let scale = json!({ "spec": { "replicas": replicas } });
        deployments
            .patch(deployment, &PatchParams::default(), &Patch::Merge(&scale))
            .await?;
        Ok(())
    }

    /// Sets the limits of a NodePool.
    pub(crate) async fn limit(&self, pool: &str, limits: &Value) -> Result<()> {
        let pools: Api<NodePool> = Api::all(self.plane.client());
        let edit = json!({ "spec": { "limits": limits } });
        pools
            .patch(pool, &PatchParams::default(), &Patch::Merge(&edit))
            .await?;
        Ok(())
    }

    /// What `mortise explain pod` prints about a pod of `default`, as one line: it is wrapped for a terminal.
    pub(crate) async fn explained(&self, pod: &str) -> Result<String> {
        let (pod, url) = (format!("default/{pod}"), self.mortise.url(""));
        let said = command::run("explain", &["pod", &pod, "--url", &url], None).await?;
        ensure!(said.code == 0, "{said:?}");
        let words: Vec<&str> = said.stdout.split_whitespace().collect();
        Ok(words.join(" "))
    }

    /// Events with this reason in all namespaces.
    pub(crate) async fn events(&self, reason: &str) -> Result<Vec<Event>> {
        let events: Api<Event> = Api::all(self.plane.client());
        let wanted = ListParams::default().fields(&format!("reason={reason}"));
        Ok(events.list(&wanted).await?.items)
    }

    /// Waits for an event with this reason, about an object whose name begins with `about`, whose message has `part` in it.
    pub(crate) async fn event(&self, reason: &str, about: &str, part: &str) -> Result<Event> {
        let what = format!("an event {reason} about {about} with {part:?}");
        wait_until(&what, SOON, || async move {
            let events = self.events(reason).await?;
            let is_meant = |event: &&Event| {
                let name = event.involved_object.name.as_deref().unwrap_or_default();
                let message = event.message.as_deref().unwrap_or_default();
                name.starts_with(about) && message.contains(part)
            };
            match events.iter().find(is_meant) {
                Some(event) => Ok(event.clone()),
                None => bail!("{:?}", summary(&events)),
            }
        })
        .await
    }
}

/// Whom events are about and what they say.
fn summary(events: &[Event]) -> Vec<(Option<&str>, Option<&str>)> {
    let all = events.iter();
    all.map(|event| {
        (
            event.involved_object.name.as_deref(),
            event.message.as_deref(),
        )
    })
    .collect()
}

/// mortise's service account, as the API server knows it.
pub(crate) const USER: &str = "system:serviceaccount:kube-system:mortise";
pub(crate) const GROUPS: [&str; 1] = ["system:serviceaccounts"];

/// Flags that ask for another right, and the options that grant it.
pub(crate) const DELETION_COSTS: &str = "--pod-deletion-costs";
pub(crate) const HAND_OVER: &str = "--hand-over";

/// mortise's service account with the rights that it asks for, and no others. Returns its kubeconfig.
pub(crate) async fn account(plane: &ControlPlane) -> Result<PathBuf> {
    account_for(plane, &[]).await
}

/// The same with the rights that these flags ask for.
async fn account_for(plane: &ControlPlane, flags: &[String]) -> Result<PathBuf> {
    let mut command = vec!["manifests", "rbac"];
    for option in [DELETION_COSTS, HAND_OVER] {
        if flags.iter().any(|flag| flag == option) {
            command.push(option);
        }
    }
    plane.apply_yaml(&Mortise::output(&command).await?).await?;
    let client = plane.client_for(USER, &GROUPS).await?;
    let claims: Api<NodeClaim> = Api::all(client.clone());
    let leases: Api<Lease> = Api::namespaced(client, "kube-system");
    // The authorizer reads roles and bindings from watches of its own.
    wait_until("the rights of the service account", SOON, || async {
        claims.list(&ListParams::default()).await?;
        leases.get_opt("karpenter-leader-election").await?;
        Ok(())
    })
    .await?;
    plane.kubeconfig_for(USER, &GROUPS)
}

/// Whether this process holds the Lease.
pub(crate) async fn leads(mortise: &Mortise) -> Result<bool> {
    Ok(mortise.debug("snapshot").await?["leading"] == json!(true))
}

/// End of a scene: if it is dropped before the log was taken, something went wrong.
struct Ending {
    log: Option<PathBuf>,
}

impl Drop for Ending {
    fn drop(&mut self) {
        let Some(path) = &self.log else { return };
        let log = std::fs::read_to_string(path).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let end = lines.get(lines.len().saturating_sub(QUOTED_LINES)..);
        // Standard error itself, so that it appears next to the harness's lines; an error of a closed stream is ignored.
        writeln!(
            std::io::stderr(),
            "a story failed; end of {}; the other logs are in the same folder:\n{}",
            path.display(),
            end.unwrap_or_default().join("\n")
        )
        .ok();
    }
}

/// A NodeClaim with its Node, both registered with each other.
#[derive(Clone, Debug)]
pub(crate) struct LaunchedNode {
    pub(crate) claim: NodeClaim,
    pub(crate) node: Node,
}

impl LaunchedNode {
    pub(crate) fn node_name(&self) -> &str {
        self.node.metadata.name.as_deref().unwrap_or_default()
    }

    /// A label of the node; empty when it is not there.
    pub(crate) fn label(&self, key: &str) -> &str {
        label(&self.node, key)
    }

    pub(crate) fn instance_type(&self) -> &str {
        self.label("node.kubernetes.io/instance-type")
    }

    /// Pods of these that are on it.
    pub(crate) fn pods<'a>(&self, pods: &'a [Pod]) -> Vec<&'a Pod> {
        pods.iter()
            .filter(|pod| on_node(pod) == Some(self.node_name()))
            .collect()
    }
}

/// Pairs each claim with its node; an error says what is not settled yet.
pub(crate) fn pairs(
    claims: BTreeMap<String, NodeClaim>,
    mut nodes: BTreeMap<String, Node>,
) -> Result<Vec<LaunchedNode>> {
    let mut launched_nodes = Vec::new();
    for (name, claim) in claims {
        let node_name = claim
            .status
            .node_name
            .clone()
            .with_context(|| format!("claim {name} has no node"))?;
        let node = nodes
            .remove(&node_name)
            .with_context(|| format!("there is no node {node_name}"))?;
        for condition in ["Launched", "Registered", "Initialized", "Ready"] {
            ensure!(
                claim.is_true(condition),
                "claim {name} is not {condition}: {:?}",
                claim.status.conditions
            );
        }
        ensure!(
            claim.metadata.deletion_timestamp.is_none()
                && node.metadata.deletion_timestamp.is_none(),
            "{name} is going"
        );
        launched_nodes.push(LaunchedNode { claim, node });
    }
    Ok(launched_nodes)
}

/// The provider's id of a node that was launched.
pub(crate) fn provider_id(node: &Node) -> Option<&str> {
    node.spec.as_ref()?.provider_id.as_deref()
}

/// A label of a node; empty when it is not there.
pub(crate) fn label<'a>(node: &'a Node, key: &str) -> &'a str {
    node.metadata
        .labels
        .as_ref()
        .and_then(|labels| labels.get(key))
        .map_or("", String::as_str)
}

/// The node that a pod is bound to.
pub(crate) fn on_node(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

/// Running, ready, and not on its way out.
pub(crate) fn runs(pod: &Pod) -> bool {
    let ready = |status: &k8s_openapi::api::core::v1::PodStatus| {
        let conditions = status.conditions.as_deref().unwrap_or_default();
        status.phase.as_deref() == Some("Running")
            && conditions
                .iter()
                .any(|condition| condition.type_ == "Ready" && condition.status == "True")
    };
    pod.metadata.deletion_timestamp.is_none() && pod.status.as_ref().is_some_and(ready)
}
