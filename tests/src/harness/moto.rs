//! AWS on loopback: moto, with prices, capacity and faults that a test sets.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::http::Http;
use super::moto_instance::{Instance, Instances, instances};
use super::peers::Venv;
use super::process::{Launch, Process, Signal};
use super::state_dir::StateDir;
use super::wait::wait_until;

/// moto loads half a gigabyte of Python; seconds on an idle test host.
const READY_WITHIN: Duration = Duration::from_mins(1);
/// On-demand prices of us-east-1, `{"m5.large": 0.096, ...}`, in dollars per hour.
const PRICES: &[u8] = include_bytes!("../../data/aws-on-demand-us-east-1.json.gz");
/// The emulator's program, written next to its state so that it needs no checkout.
const PROGRAM: [(&str, &str); 10] = [
    ("launcher.py", include_str!("../../peers/moto/launcher.py")),
    ("cloud.py", include_str!("../../peers/moto/cloud.py")),
    ("control.py", include_str!("../../peers/moto/control.py")),
    ("fixtures.py", include_str!("../../peers/moto/fixtures.py")),
    ("fleet.py", include_str!("../../peers/moto/fleet.py")),
    ("limits.py", include_str!("../../peers/moto/limits.py")),
    ("patches.py", include_str!("../../peers/moto/patches.py")),
    ("policy.py", include_str!("../../peers/moto/policy.py")),
    (
        "reservations.py",
        include_str!("../../peers/moto/reservations.py"),
    ),
    ("services.py", include_str!("../../peers/moto/services.py")),
];

/// A running emulator. Dropping it kills it.
#[derive(Debug)]
pub struct Moto {
    process: Process,
    http: Http,
    endpoint: String,
    control: String,
    state: StateDir,
}

/// What an account has before a node autoscaler comes; everything is tagged `karpenter.sh/discovery: <cluster>`.
#[derive(Clone, Debug, Deserialize)]
pub struct Fixtures {
    /// Name of the cluster.
    pub cluster: String,
    /// URL that the emulated EKS gives as the cluster's endpoint (nothing listens there).
    pub cluster_endpoint: String,
    /// Region.
    pub region: String,
    /// VPC id.
    pub vpc: String,
    /// Subnet ids by availability zone.
    pub subnets: BTreeMap<String, String>,
    /// Security group id.
    pub security_group: String,
    /// Another security group of the network, without the tag.
    pub spare_security_group: String,
    /// Another subnet of the last zone, with fewer addresses, which the discovery tag does not select.
    pub spare_subnet: String,
    /// AMI ids: AL2023 for `amd64`, `arm64` and `nvidia`, `bottlerocket`, `windows2022`, all published as SSM parameters; `next`, a
    /// newer AL2023 that is not.
    pub images: BTreeMap<String, String>,
    /// IAM role of nodes.
    pub role: String,
    /// SQS queue that receives interruption events (name).
    pub queue_name: String,
    /// The queue's URL.
    pub queue_url: String,
}

/// Capacity that is left in a pool, or in all pools that match (`*` is any).
#[derive(Clone, Debug, Serialize)]
pub struct Pool {
    /// Instance type or `*`.
    pub instance_type: String,
    /// Availability zone or `*`.
    pub zone: String,
    /// `spot`, `on-demand` or `*`.
    pub capacity_type: String,
    /// Instances that can still be launched.
    pub remaining: u32,
    /// Error code of a launch that finds it empty; `None`: `InsufficientInstanceCapacity`.
    pub code: Option<String>,
}

impl Pool {
    /// A pool with nothing left.
    #[must_use]
    pub fn empty(instance_type: &str, zone: &str, capacity_type: &str) -> Self {
        Self {
            instance_type: instance_type.to_owned(),
            zone: zone.to_owned(),
            capacity_type: capacity_type.to_owned(),
            remaining: 0,
            code: None,
        }
    }

    /// The same with another error, for example `MaxSpotInstanceCountExceeded`.
    #[must_use]
    pub fn with_code(mut self, code: &str) -> Self {
        self.code = Some(code.to_owned());
        self
    }
}

/// Interference with the next calls of one action.
#[derive(Clone, Debug, Serialize)]
pub struct Fault {
    /// For example `CreateFleet`.
    pub action: String,
    /// How many calls it meets.
    pub times: u32,
    /// `before`: the action is not executed. `after`: it is, and its response is lost or late.
    pub when: &'static str,
    /// Blocks the call until the faults are set again.
    pub hold: bool,
    /// Error code of the answer; `None`: the real answer.
    pub code: Option<String>,
    /// HTTP status with `code`; `None`: what the service uses for it.
    pub status: Option<u16>,
}

impl Fault {
    /// The next `times` calls of `action` fail with `code` and are not executed.
    #[must_use]
    pub fn fail(action: &str, code: &str, times: u32) -> Self {
        let status = (code == "RequestLimitExceeded").then_some(503);
        Self {
            action: action.to_owned(),
            times,
            when: "before",
            hold: false,
            code: Some(code.to_owned()),
            status,
        }
    }

    /// The next call of `action` is executed, and its response is an error.
    #[must_use]
    pub fn lose_answer(action: &str) -> Self {
        Self {
            action: action.to_owned(),
            times: 1,
            when: "after",
            hold: false,
            code: Some("InternalError".to_owned()),
            status: Some(500),
        }
    }

    /// The next call of `action` waits, not yet executed, until faults are set again.
    #[must_use]
    pub fn hold_before(action: &str) -> Self {
        Self {
            action: action.to_owned(),
            times: 1,
            when: "before",
            hold: true,
            code: None,
            status: None,
        }
    }

    /// The next call of `action` waits until faults are set again, and is never executed: the line is cut.
    #[must_use]
    pub fn cut(action: &str) -> Self {
        Self {
            code: Some("InternalError".to_owned()),
            status: Some(500),
            ..Self::hold_before(action)
        }
    }

    /// The next call of `action` is executed, and its response waits until faults are set again.
    #[must_use]
    pub fn hold_after(action: &str) -> Self {
        Self {
            when: "after",
            ..Self::hold_before(action)
        }
    }
}

impl Moto {
    /// Region of everything.
    pub const REGION: &'static str = "us-east-1";

    /// Environment with which the AWS SDK accepts the emulator, besides its endpoint.
    pub const CREDENTIALS: [(&'static str, &'static str); 4] = [
        ("AWS_ACCESS_KEY_ID", "test"),
        ("AWS_SECRET_ACCESS_KEY", "test"),
        ("AWS_EC2_METADATA_DISABLED", "true"),
        // A proxy of the test host would be used for loopback addresses too.
        ("NO_PROXY", "127.0.0.1,localhost"),
    ];

    /// Starts an empty account.
    ///
    /// # Errors
    /// Python or a package is unavailable, or the emulator does not start (with the end of its log).
    pub async fn start() -> Result<Self> {
        let venv = Venv::ready().await?;
        let state = StateDir::create("moto")?;
        for (name, text) in PROGRAM {
            std::fs::write(state.join(name), text)
                .with_context(|| format!("cannot write {name} in {}", state.path().display()))?;
        }
        let mut prices = String::new();
        flate2::read::GzDecoder::new(PRICES)
            .read_to_string(&mut prices)
            .context("the embedded price list")?;
        std::fs::write(state.join("prices.json"), prices).context("cannot write the price list")?;
        let ready = state.join("ready.json");
        let launch = Launch {
            name: "moto".to_owned(),
            program: venv.python(),
            args: [
                state.join("launcher.py"),
                state.join("prices.json"),
                ready.clone(),
            ]
            .iter()
            .map(|path| path.display().to_string())
            .chain([Self::REGION.to_owned()])
            .collect(),
            env: vec![
                ("PYTHONUNBUFFERED".to_owned(), "1".to_owned()),
                ("NO_PROXY".to_owned(), "127.0.0.1,localhost".to_owned()),
                ("PYTHONDONTWRITEBYTECODE".to_owned(), "1".to_owned()),
            ],
            log: state.join("moto.log"),
            dir: Some(state.path().to_owned()),
        };
        let process = Process::start(&launch).await?;
        let listening = wait_until("moto", READY_WITHIN, || async {
            Ok(std::fs::read_to_string(&ready)?)
        });
        let addresses: Addresses =
            serde_json::from_str(&process.while_alive("not ready yet", listening).await?)?;
        let Addresses { endpoint, control } = addresses;
        Ok(Self {
            process,
            http: Http::new("", None)?,
            endpoint,
            control,
            state,
        })
    }

    /// URL of all services.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Environment that points any AWS SDK here and nowhere else.
    #[must_use]
    pub fn env(&self) -> Vec<(String, String)> {
        [
            ("AWS_ENDPOINT_URL", self.endpoint.as_str()),
            ("AWS_REGION", Self::REGION),
        ]
        .iter()
        .chain(&Self::CREDENTIALS)
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
    }

    /// An empty account again: no instances, pools, prices, faults; no fixtures either.
    ///
    /// # Errors
    /// The emulator does not answer.
    pub async fn reset(&self) -> Result<()> {
        self.post("reset", &json!({})).await.map(drop)
    }

    /// Network (a subnet in each of the first three zones), images, role, EKS cluster, queue and EventBridge rules.
    ///
    /// # Errors
    /// They exist already.
    pub async fn fixtures(&self, cluster: &str) -> Result<Fixtures> {
        let version = super::recipe::kubernetes_minor();
        let reply = self
            .post(
                "fixtures",
                &json!({ "cluster": cluster, "kubernetes_version": version, "zones": 3 }),
            )
            .await?;
        Ok(serde_json::from_value(reply)?)
    }

    /// Sets all capacity pools; those that are not named are unlimited.
    ///
    /// # Errors
    /// The emulator does not answer.
    pub async fn set_pools(&self, pools: &[Pool]) -> Result<()> {
        self.post("pools", &json!(pools)).await.map(drop)
    }

    /// Sets a price in dollars per hour; `zone` may be `*`.
    ///
    /// # Errors
    /// The emulator does not answer.
    pub async fn set_price(
        &self,
        instance_type: &str,
        zone: &str,
        capacity_type: &str,
        dollars: f64,
    ) -> Result<()> {
        let price = json!({ "instance_type": instance_type, "zone": zone, "capacity_type": capacity_type, "price": dollars });
        self.post("prices", &json!([price])).await.map(drop)
    }

    /// The price of an offering in dollars per hour, as CreateFleet compares it.
    ///
    /// # Errors
    /// No such instance type.
    pub async fn price(&self, instance_type: &str, zone: &str, capacity_type: &str) -> Result<f64> {
        let reply = self
            .get(&format!(
                "prices?type={instance_type}&zone={zone}&capacity_type={capacity_type}"
            ))
            .await?;
        reply["price"].as_f64().context("no price in the answer")
    }

    /// Sets all faults, and lets go of calls that earlier ones hold.
    ///
    /// # Errors
    /// The emulator does not answer.
    pub async fn set_faults(&self, faults: &[Fault]) -> Result<()> {
        self.post("faults", &json!(faults)).await.map(drop)
    }

    /// How many calls a fault holds at this moment.
    ///
    /// # Errors
    /// The emulator does not answer.
    pub async fn held_calls(&self) -> Result<u64> {
        self.get("calls").await?["holding"]
            .as_u64()
            .context("no count in the answer")
    }

    /// How often an action was called since the last reset, for example `ec2:CreateFleet`. A dry run is another, `ec2:CreateFleet:DryRun`.
    ///
    /// # Errors
    /// The emulator does not answer.
    pub async fn calls(&self, action: &str) -> Result<u64> {
        let all = self.all_calls().await?;
        Ok(all.get(action).copied().unwrap_or(0))
    }

    /// How often each action was called since the last reset.
    ///
    /// # Errors
    /// The emulator does not answer.
    pub async fn all_calls(&self) -> Result<BTreeMap<String, u64>> {
        Ok(serde_json::from_value(
            self.get("calls").await?["calls"].take(),
        )?)
    }

    /// Instances that are neither terminated nor going.
    ///
    /// # Errors
    /// The emulator does not answer.
    pub async fn instances(&self) -> Result<Vec<Instance>> {
        let mut all = self.all_instances(None).await?.instances;
        all.retain(|instance| instance.state == "running" || instance.state == "pending");
        Ok(all)
    }

    /// All instances; with `after`, as soon as something changed since that generation (or after half a minute).
    pub(crate) async fn all_instances(&self, after: Option<u64>) -> Result<Instances> {
        instances(&self.http, &self.control, after).await
    }

    pub(crate) fn control(&self) -> (Http, String) {
        (self.http.clone(), self.control.clone())
    }

    /// Sends EC2's warning that this spot instance will be interrupted: EventBridge, rule, queue. The instance runs on.
    ///
    /// # Errors
    /// EventBridge refuses, for example because there are no fixtures.
    pub async fn put_spot_interruption(&self, instance_id: &str) -> Result<()> {
        self.post(
            "events/spot-interruption",
            &json!({ "instance_id": instance_id }),
        )
        .await
        .map(drop)
    }

    /// Sends EC2's advice to replace this instance.
    ///
    /// # Errors
    /// As [`Moto::put_spot_interruption`].
    pub async fn put_rebalance_recommendation(&self, instance_id: &str) -> Result<()> {
        self.post("events/rebalance", &json!({ "instance_id": instance_id }))
            .await
            .map(drop)
    }

    /// Sends EC2's news that this instance is now in `state`; the instance itself does not change.
    ///
    /// # Errors
    /// As [`Moto::put_spot_interruption`].
    pub async fn put_state_change(&self, instance_id: &str, state: &str) -> Result<()> {
        self.post(
            "events/state-change",
            &json!({ "instance_id": instance_id, "state": state }),
        )
        .await
        .map(drop)
    }

    /// Sends any event; `detail` is a JSON object.
    ///
    /// # Errors
    /// EventBridge refuses it.
    pub async fn put_event(
        &self,
        source: &str,
        detail_type: &str,
        detail: &Value,
        resources: &[&str],
    ) -> Result<()> {
        let event = json!({ "source": source, "detail_type": detail_type, "detail": detail, "resources": resources });
        self.post("events", &event).await.map(drop)
    }

    /// From now on every launch and termination sends state-change events by itself, as in AWS.
    ///
    /// # Errors
    /// The emulator does not answer.
    pub async fn announce_state_changes(&self, enabled: bool) -> Result<()> {
        self.post("announce", &json!({ "enabled": enabled }))
            .await
            .map(drop)
    }

    /// Takes an instance away, as EC2 does with an interrupted spot instance.
    ///
    /// # Errors
    /// There is no such instance.
    pub async fn terminate(&self, instance_id: &str) -> Result<()> {
        self.post("terminate", &json!({ "instance_id": instance_id }))
            .await
            .map(drop)
    }

    /// Protects an instance against termination, or not any more.
    ///
    /// # Errors
    /// There is no such instance.
    pub async fn protect(&self, instance_id: &str, enabled: bool) -> Result<()> {
        let body = json!({ "instance_id": instance_id, "enabled": enabled });
        self.post("protect", &body).await.map(drop)
    }

    /// Instances that are terminated from now on stay in state `shutting-down` until this is reverted.
    ///
    /// # Errors
    /// The emulator does not answer.
    pub async fn linger(&self, enabled: bool) -> Result<()> {
        self.post("linger", &json!({ "enabled": enabled }))
            .await
            .map(drop)
    }

    /// Bodies of the messages that a receiver would get from the queue now, oldest first; they stay in the queue.
    ///
    /// # Errors
    /// There is no such queue.
    pub async fn queued_messages(&self, queue_name: &str) -> Result<Vec<Value>> {
        let reply = self.get(&format!("messages?queue={queue_name}")).await?;
        let bodies = reply["messages"]
            .as_array()
            .context("no messages in the answer")?;
        bodies
            .iter()
            .map(|body| {
                Ok(serde_json::from_str(
                    body.as_str().context("a body is not text")?,
                )?)
            })
            .collect()
    }

    /// Sends a signal to the emulator: [`Signal::Stop`] makes AWS hang.
    pub fn signal(&mut self, signal: Signal) {
        self.process.signal(signal);
    }

    /// Ends it and removes its state. One that is dropped instead keeps its log for a day.
    pub async fn stop(mut self) {
        self.process.kill().await;
        self.state.discard();
    }

    pub(super) async fn get(&self, path: &str) -> Result<Value> {
        self.http
            .get(&format!("{}/{path}", self.control))
            .await?
            .json()
            .with_context(|| format!("moto: GET {path}"))
    }

    pub(super) async fn post(&self, path: &str, body: &Value) -> Result<Value> {
        self.http
            .post(&format!("{}/{path}", self.control), body)
            .await?
            .json()
            .with_context(|| format!("moto: POST {path}"))
    }
}

#[derive(Deserialize)]
struct Addresses {
    endpoint: String,
    control: String,
}
