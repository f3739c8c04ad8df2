//! `interruption`: how many messages a second are received from a queue, turned into a fence and a deletion, and removed.

mod queue_server;

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use mortise_apis::NodeClaim;
use mortise_apis::names::ObjectRef;
use mortise_aws::AwsConfig;
use mortise_aws::interruption::QueueReader;
use mortise_deciders::InterruptionDecider;
use mortise_engine::decider::Decider;
use mortise_engine::effect::{Effect, EffectOutput, Outcome};
use mortise_engine::engine::{Engine, EngineInput};
use mortise_engine::write::EditKind;
use mortise_planning::settings::Settings;
use mortise_state::resource_kinds::{EventSource, Object, ObjectEvent, ObjectKind};
use serde::Serialize;
use serde_json::json;
use tokio::sync::mpsc;

use self::queue_server::QueueServer;
use crate::output::Output;
use crate::report::{self, Benchmark, Results};

/// Messages a second at least.
const TARGET: f64 = 5_000.0;
/// From the answer of the queue to the fence at most, at the 99th percentile.
const FENCED: Duration = Duration::from_millis(100);

/// How long the receivers may be silent.
const PATIENCE: Duration = Duration::from_secs(30);

/// Options of `interruption`.
#[derive(Debug, clap::Args, Serialize)]
pub(crate) struct InterruptionArgs {
    /// NodeClaims, each of which is interrupted once.
    #[arg(long, default_value_t = 5_000)]
    claims: usize,
    #[command(flatten)]
    #[serde(skip)]
    output: Output,
}

/// What came of the messages.
#[derive(Debug, Serialize)]
pub(crate) struct InterruptionResults {
    messages: usize,
    messages_per_s: f64,
    fence_p99_us: u128,
    /// Calls of the queue: receives and batches of deletions.
    queue_calls: usize,
}

impl Benchmark for InterruptionArgs {
    const NAME: &'static str = "interruption";
    const SOURCES: &'static [&'static str] = &["../crates", "src"];
    type Results = InterruptionResults;

    fn output(&self) -> &Output {
        &self.output
    }

    fn seed(&self) -> Option<u64> {
        None
    }

    fn is_complete(&self) -> bool {
        self.claims == 5_000
    }

    /// Receives one spot interruption per claim, and executes what is decided until every message is removed.
    fn measure(&self) -> Result<InterruptionResults> {
        report::block_on(interrupt(self.claims))
    }

    fn conclude(&self, results: &InterruptionResults) -> Result<()> {
        let rate = results.messages_per_s;
        ensure!(
            rate >= TARGET,
            "{rate:.0} messages a second, {TARGET} wanted"
        );
        let fence = results.fence_p99_us;
        ensure!(
            fence <= FENCED.as_micros(),
            "fenced after {fence} microseconds"
        );
        Ok(())
    }
}

impl Results for InterruptionResults {
    fn write_table(&self, out: &mut dyn Write) -> Result<()> {
        let Self {
            messages,
            messages_per_s,
            fence_p99_us,
            queue_calls,
        } = self;
        writeln!(
            out,
            "{messages} messages, {messages_per_s:.0} a second ({TARGET} wanted), {queue_calls} calls of the queue; fenced within {fence_p99_us} microseconds at p99 ({} wanted)",
            FENCED.as_micros()
        )?;
        Ok(())
    }
}

fn body(index: usize) -> String {
    json!({
        "version": "0", "id": format!("event-{index}"), "detail-type": "EC2 Spot Instance Interruption Warning", "source": "aws.ec2",
        "account": "123456789012", "time": "2026-01-02T03:04:05Z", "region": "us-west-2",
        "resources": [format!("arn:aws:ec2:us-west-2:123456789012:instance/i-{index:017x}")],
        "detail": { "instance-id": format!("i-{index:017x}"), "instance-action": "terminate" },
    })
    .to_string()
}

/// An engine that leads and knows this many claims.
fn engine(claims: usize, now: Timestamp) -> Result<Engine> {
    let deciders: Vec<Box<dyn Decider>> = vec![Box::new(InterruptionDecider::new())];
    let known = mortise_aws_class::labels::well_known();
    let mut engine = Engine::new(deciders, Settings::default(), known, 1, now);
    let mut keys = std::collections::BTreeSet::new();
    for index in 0..claims {
        let claim: NodeClaim = serde_json::from_value(json!({
            "metadata": { "name": format!("claim-{index}"), "uid": format!("uid-{index}"), "labels": { "karpenter.sh/nodepool": "default" } },
            "spec": { "nodeClassRef": { "group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default" }, "requirements": [] },
            "status": { "providerID": format!("aws:///us-west-2a/i-{index:017x}") },
        }))?;
        let object = Object::Claim(Box::new(claim));
        keys.insert(object.key());
        let event = ObjectEvent::Applied(object, EventSource::Watch);
        engine.apply(EngineInput::News(event), now);
    }
    let listed = ObjectEvent::Listed {
        kind: ObjectKind::Claim,
        keys,
        version: None,
    };
    engine.apply(EngineInput::News(listed), now);
    engine.apply(EngineInput::Synced, now);
    engine.apply(EngineInput::Leading(true), now);
    engine.turn(now, 10, &|| false);
    Ok(engine)
}

/// The service's receivers and engine between a queue and nothing: writes succeed at once.
async fn interrupt(claims: usize) -> Result<InterruptionResults> {
    let now = Timestamp::UNIX_EPOCH;
    let mut engine = engine(claims, now)?;
    let server = QueueServer::start((0..claims).map(body).collect()).await?;
    let reader = QueueReader::new(AwsConfig {
        region: Some("us-west-2".to_owned()),
        endpoint_url: Some(server.endpoint()),
        interruption_queue: Some("queue".to_owned()),
        ..AwsConfig::default()
    });
    let reader = Arc::new(reader.await?);
    let (inputs, mut arrivals) = mpsc::unbounded_channel();
    let begun = Instant::now();
    for receiver in reader.receivers() {
        let inputs = inputs.clone();
        tokio::spawn(async move {
            while let Ok(notices) = receiver.next().await {
                let provider: Arc<str> = "aws".into();
                for notice in notices {
                    let provider = Arc::clone(&provider);
                    drop(inputs.send(EngineInput::Notice { provider, notice }));
                }
            }
        });
    }
    let mut fenced = Vec::new();
    let mut acknowledged = 0;
    while acknowledged < claims {
        let first = tokio::time::timeout(PATIENCE, arrivals.recv());
        let first = first.await.context("the receivers are silent")?;
        let mut next = Some(first.context("no receiver is left")?);
        while let Some(input) = next {
            acknowledged += usize::from(matches!(input, EngineInput::Outcome { .. }));
            engine.apply(input, now);
            next = arrivals.try_recv().ok();
        }
        execute(
            &mut engine,
            now,
            &server,
            &mut fenced,
            &|handle, outcome| {
                let (reader, inputs) = (Arc::clone(&reader), inputs.clone());
                tokio::spawn(async move {
                    if reader.acknowledge(&handle).await.is_ok() {
                        drop(inputs.send(outcome));
                    }
                });
            },
        );
    }
    let took = begun.elapsed();
    ensure!(fenced.len() == claims, "{} fenced", fenced.len());
    let (deleted, queue_calls) = server.counts();
    ensure!(deleted == claims, "{deleted} removed");
    fenced.sort_unstable();
    let p99 = fenced.get(claims * 99 / 100).context("no claims")?;
    Ok(InterruptionResults {
        messages: claims,
        messages_per_s: claims as f64 / took.as_secs_f64(),
        fence_p99_us: p99.as_micros(),
        queue_calls,
    })
}

/// Executes everything that the engine asks for, deletions of messages by `acknowledge`.
fn execute(
    engine: &mut Engine,
    now: Timestamp,
    server: &QueueServer,
    fenced: &mut Vec<Duration>,
    acknowledge: &dyn Fn(Arc<str>, EngineInput),
) {
    loop {
        let turn = engine.turn(now, 10, &|| false);
        if turn.orders.is_empty() {
            return;
        }
        for order in turn.orders {
            let (decider, term) = (order.decider, order.term);
            let input = |output: EffectOutput| EngineInput::Outcome {
                decider,
                term,
                outcome: Outcome {
                    effect: Arc::clone(&order.effect),
                    result: Ok(output),
                },
            };
            let output = match &*order.effect {
                Effect::Acknowledge { notice, .. } => {
                    acknowledge(Arc::clone(notice), input(EffectOutput::Acknowledged));
                    continue;
                }
                Effect::Delete {
                    target: ObjectRef::Claim(_),
                    ..
                } => EffectOutput::Deleted,
                Effect::Write(write) => {
                    // The ledger fences before the write leaves.
                    if write.edit.kind() == EditKind::Interruption {
                        let message = message_of(&write.target);
                        fenced.extend(message.and_then(|message| server.since_handed(message)));
                    }
                    EffectOutput::Written
                }
                _ => EffectOutput::Sent,
            };
            engine.apply(input(output), now);
        }
    }
}

/// The message that interrupts a claim.
fn message_of(target: &ObjectRef) -> Option<usize> {
    let ObjectRef::Claim(name) = target else {
        return None;
    };
    name.strip_prefix("claim-")?.parse().ok()
}
