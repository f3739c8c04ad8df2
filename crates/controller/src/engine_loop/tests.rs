use mortise_apis::labels::WellKnown;
use mortise_apis::names::ObjectRef;
use mortise_engine::decider::{Decider, Step, StepInput};
use mortise_engine::effect::Effect;
use mortise_planning::reason::Reason;
use mortise_planning::settings::Settings;
use mortise_state::index::Changes;
use mortise_state::resource_kinds::{EventSource, Object, ObjectEvent, ObjectKey, ObjectKind};
use mortise_state::snapshot::Snapshot;

use super::*;
use crate::clock::SystemClock;

/// Runs the given function once per change of NodePools.
#[derive(Clone)]
struct Scripted {
    id: DeciderId,
    step: fn(&StepInput<'_>, &dyn Fn() -> bool) -> Step,
}

impl Decider for Scripted {
    fn id(&self) -> DeciderId {
        self.id
    }
    fn fresh(&self) -> Box<dyn Decider> {
        Box::new(self.clone())
    }
    fn is_interested(&self, changes: &Changes) -> bool {
        !changes.pools.is_empty()
    }
    fn step(&mut self, input: &StepInput<'_>, stop: &dyn Fn() -> bool) -> Step {
        (self.step)(input, stop)
    }
}

struct Bench {
    inputs: mpsc::Sender<DriverMessage>,
    commands: mpsc::UnboundedReceiver<ExecutorMessage>,
    shared: Arc<ServiceState>,
    stopping: Arc<AtomicBool>,
    task: tokio::task::JoinHandle<Result<(), StepPanicked>>,
}

impl Bench {
    fn start(deciders: Vec<Scripted>) -> Self {
        let shared = ServiceState::new(
            Arc::new(SystemClock),
            WellKnown::core(),
            "test",
            serde_json::Value::Null,
        );
        let deciders = deciders
            .into_iter()
            .map(|each| Box::new(each) as Box<dyn Decider>)
            .collect();
        let engine = Engine::new(
            deciders,
            Settings::default(),
            WellKnown::core(),
            0,
            shared.now(),
        );
        let (inputs, received) = mpsc::channel(INPUTS);
        let (effects, commands) = mpsc::unbounded_channel();
        let stopping = Arc::new(AtomicBool::new(false));
        let driver = Driver {
            engine,
            shared: Arc::clone(&shared),
            liveness: Arc::default(),
            extender: Arc::default(),
            inputs: received,
            completed: inputs.clone(),
            effects,
            stopping: Arc::clone(&stopping),
        };
        let runtime = tokio::runtime::Handle::current();
        let task = tokio::task::spawn_blocking(move || runtime.block_on(driver.run()));
        Self {
            inputs,
            commands,
            shared,
            stopping,
            task,
        }
    }

    async fn send(&self, input: EngineInput) {
        self.inputs.send(DriverMessage::Input(input)).await.unwrap();
    }

    /// Leads, has listed everything, and knows a NodePool.
    async fn lead(&self) {
        self.apply_pool("general", 1).await;
        self.send(EngineInput::Synced).await;
        self.send(EngineInput::Leading(true)).await;
    }

    async fn apply_pool(&self, name: &str, version: u32) {
        let pool = serde_json::from_value(serde_json::json!({ "metadata": { "name": name, "resourceVersion": version.to_string() } })).unwrap();
        self.send(EngineInput::News(ObjectEvent::Applied(
            Object::Pool(Box::new(pool)),
            EventSource::Watch,
        )))
        .await;
    }

    async fn wait_until(&self, what: impl Fn(&Snapshot) -> bool) {
        let mut generations = self.shared.generations();
        while !what(&self.shared.snapshot()) {
            generations.changed().await.unwrap();
        }
    }

    async fn next_effect(&mut self) -> (&'static str, &'static str) {
        loop {
            match self.commands.recv().await.unwrap() {
                ExecutorMessage::Leading(_) | ExecutorMessage::Tell(_) => {}
                ExecutorMessage::Order { order, why } => return (order.effect.label(), why),
            }
        }
    }
}

fn record_verdict(
    input: &StepInput<'_>,
    step: &mut Step,
    id: DeciderId,
    verdict: Verdict,
    reason: Reason,
) {
    step.record(
        input,
        id,
        ObjectRef::Pool("general".into()),
        verdict,
        vec![reason],
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unlisted_objects_are_deleted_and_unreadable_ones_stay() {
    let bench = Bench::start(Vec::new());
    for (name, version) in [("a", 1), ("b", 2), ("unreadable", 3)] {
        bench.apply_pool(name, version).await;
    }
    let keys = ["b", "unreadable"]
        .map(|name| ObjectKey::Pool(name.into()))
        .into();
    bench
        .send(EngineInput::News(ObjectEvent::Listed {
            kind: ObjectKind::Pool,
            keys,
            version: Some(3),
        }))
        .await;
    bench
        .wait_until(|snapshot| snapshot.pools.len() == 2 && !snapshot.pools.contains_key("a"))
        .await;
    assert!(bench.shared.health.time_since_turn() < LONG);
    bench.stopping.store(true, Ordering::Relaxed);
    bench.apply_pool("c", 4).await;
    assert_eq!(bench.task.await.unwrap(), Ok(()));
}

const LONG: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn light_and_heavy_deciders_both_get_their_effects_out() {
    let mut bench = Bench::start(vec![
        Scripted {
            id: DeciderId::NodePool,
            step: |_, _| {
                let mut step = Step::default();
                step.effect(Effect::ListInstances);
                step
            },
        },
        Scripted {
            id: DeciderId::Disruption,
            step: |input, stop| {
                assert!(!stop(), "there is time");
                assert_eq!(
                    std::thread::current().name(),
                    Some("disruption"),
                    "a thread of its own"
                );
                let mut step = Step::default();
                record_verdict(
                    input,
                    &mut step,
                    DeciderId::Disruption,
                    Verdict::Disrupted,
                    Reason::Drifted {
                        why: "hash".to_owned(),
                    },
                );
                step.effect(Effect::Acknowledge {
                    provider: "p".into(),
                    notice: "n".into(),
                });
                step
            },
        },
    ]);
    bench.lead().await;
    let mut orders = [bench.next_effect().await, bench.next_effect().await];
    orders.sort_unstable();
    assert_eq!(
        orders,
        [
            ("acknowledge", "drifted"),
            ("list_instances", "provisioned")
        ]
    );
    assert!(bench.shared.health.is_leading());
    assert_eq!(
        bench.shared.records.newest(1, |_| true)[0].record.verdict,
        Verdict::Disrupted
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_ends_the_driver_and_names_the_decider() {
    for id in [DeciderId::NodePool, DeciderId::Provisioning] {
        let bench = Bench::start(vec![Scripted {
            id,
            step: |_, _| panic!("half a plan"),
        }]);
        bench.lead().await;
        let error = bench.task.await.unwrap().unwrap_err();
        assert_eq!(
            error,
            StepPanicked {
                decider: id,
                message: "half a plan".to_owned()
            }
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_heavy_step_stops_at_shutdown() {
    let mut bench = Bench::start(vec![Scripted {
        id: DeciderId::Provisioning,
        step: |_, stop| {
            while !stop() {
                std::thread::yield_now();
            }
            Step::default()
        },
    }]);
    bench.lead().await;
    assert!(matches!(
        bench.commands.recv().await,
        Some(ExecutorMessage::Leading(true))
    ));
    bench.stopping.store(true, Ordering::Relaxed);
    assert_eq!(
        bench.task.await.unwrap(),
        Ok(()),
        "within a turn of the loop"
    );
}
