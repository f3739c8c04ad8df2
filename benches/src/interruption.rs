//! `interruption`: how many messages a second are read and turned into a fence and a deletion.

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use mortise_apis::NodeClaim;
use mortise_apis::names::ObjectRef;
use mortise_aws::interruption::event::parse;
use mortise_cloudprovider::InterruptionNotice;
use mortise_deciders::InterruptionDecider;
use mortise_engine::decider::Decider;
use mortise_engine::effect::{Effect, EffectOutput, Outcome};
use mortise_engine::engine::{Engine, EngineInput};
use mortise_planning::settings::Settings;
use mortise_state::resource_kinds::{EventSource, Object, ObjectEvent, ObjectKind};
use serde::Serialize;
use serde_json::json;

use crate::output::Output;
use crate::report::{Benchmark, Results};

/// Messages of all answers that receivers hand over while the engine takes one step.
const BATCH: usize = 80;
/// Messages a second at least.
const TARGET: f64 = 5_000.0;
/// From the message to the fence at most, at the 99th percentile.
const FENCED: Duration = Duration::from_millis(100);

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

    /// Reads one spot interruption per claim, and executes what is decided until every message is acknowledged.
    fn measure(&self) -> Result<InterruptionResults> {
        let now = Timestamp::UNIX_EPOCH;
        let mut engine = engine(self.claims, now)?;
        let bodies: Vec<String> = (0..self.claims).map(body).collect();
        let begun = Instant::now();
        let (mut fenced, mut acknowledged) = (Vec::new(), 0);
        for (batch, bodies) in bodies.chunks(BATCH).enumerate() {
            let received = Instant::now();
            for (index, body) in bodies.iter().enumerate() {
                let event = parse(body)?;
                let notice = InterruptionNotice {
                    id: Some(format!("handle-{batch}-{index}").into()),
                    kind: event.kind,
                    instances: event.instances,
                    sent: event.sent,
                    starts: event.starts,
                };
                let provider = "aws".into();
                engine.apply(EngineInput::Notice { provider, notice }, now);
            }
            acknowledged += execute(&mut engine, now, received, &mut fenced);
        }
        let took = begun.elapsed();
        ensure!(acknowledged == self.claims, "{acknowledged} acknowledged");
        ensure!(fenced.len() == self.claims, "{} fenced", fenced.len());
        fenced.sort_unstable();
        let p99 = fenced.get(self.claims * 99 / 100).context("no claims")?;
        Ok(InterruptionResults {
            messages: self.claims,
            messages_per_s: self.claims as f64 / took.as_secs_f64(),
            fence_p99_us: p99.as_micros(),
        })
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
        } = self;
        writeln!(
            out,
            "{messages} messages, {messages_per_s:.0} a second ({TARGET} wanted); fenced within {fence_p99_us} microseconds at p99 ({} wanted)",
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

/// Executes everything that the engine asks for. Returns the messages that were acknowledged.
fn execute(
    engine: &mut Engine,
    now: Timestamp,
    received: Instant,
    fenced: &mut Vec<Duration>,
) -> usize {
    let mut acknowledged = 0;
    loop {
        let turn = engine.turn(now, 10, &|| false);
        if turn.orders.is_empty() {
            return acknowledged;
        }
        for order in turn.orders {
            let output = match &*order.effect {
                Effect::Delete {
                    target: ObjectRef::Claim(_),
                    ..
                } => EffectOutput::Deleted,
                Effect::Write(write) => {
                    // The ledger fences before the write leaves.
                    if write.edit.kind().label() == "interruption" {
                        fenced.push(received.elapsed());
                    }
                    EffectOutput::Written
                }
                Effect::Acknowledge { .. } => {
                    acknowledged += 1;
                    EffectOutput::Acknowledged
                }
                _ => EffectOutput::Sent,
            };
            let (decider, term) = (order.decider, order.term);
            let outcome = Outcome {
                effect: Arc::clone(&order.effect),
                result: Ok(output),
            };
            let input = EngineInput::Outcome {
                decider,
                term,
                outcome,
            };
            engine.apply(input, now);
        }
    }
}
