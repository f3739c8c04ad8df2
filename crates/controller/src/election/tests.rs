use std::sync::Mutex;

use mortise_apis::labels::WellKnown;

use super::*;
use crate::clock::SystemClock;

fn record(holder: &str, version: &str) -> LeaseRecord {
    LeaseRecord {
        holder: holder.to_owned(),
        duration_seconds: 15,
        version: version.to_owned(),
        transitions: 4,
        ..LeaseRecord::default()
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_holder_is_waited_for_by_the_observers_own_clock() {
    let wall = Timestamp::UNIX_EPOCH;
    let mut elector = Elector::new("me".to_owned(), None, Instant::now());
    assert!(
        matches!(elector.decide(None, Instant::now(), wall), ElectionStep::Create(record) if record.holder == "me" && record.transitions == 0)
    );
    // The renew time in the object is ignored: clocks differ.
    assert_eq!(
        elector.decide(Some(record("other", "1")), Instant::now(), wall),
        ElectionStep::Wait
    );
    tokio::time::advance(Duration::from_secs(14)).await;
    assert_eq!(
        elector.decide(Some(record("other", "1")), Instant::now(), wall),
        ElectionStep::Wait
    );
    assert_eq!(
        elector.decide(Some(record("other", "2")), Instant::now(), wall),
        ElectionStep::Wait,
        "it was renewed"
    );
    tokio::time::advance(Duration::from_secs(15)).await;
    let ElectionStep::Update(taken) =
        elector.decide(Some(record("other", "2")), Instant::now(), wall)
    else {
        panic!("it ran out")
    };
    assert_eq!(
        (
            taken.holder.as_str(),
            taken.transitions,
            taken.version.as_str(),
            taken.acquired
        ),
        ("me", 5, "2", Some(wall))
    );
    elector.observe(
        LeaseRecord {
            version: "3".to_owned(),
            ..taken.clone()
        },
        Instant::now(),
    );
    let later = wall + jiff::SignedDuration::from_secs(2);
    let ElectionStep::Update(renewed) = elector.decide(
        Some(LeaseRecord {
            version: "3".to_owned(),
            ..taken
        }),
        Instant::now(),
        later,
    ) else {
        panic!("ours")
    };
    assert_eq!(
        (renewed.transitions, renewed.acquired, renewed.renewed),
        (5, Some(wall), Some(later))
    );
    let released = elector.release(later).unwrap();
    assert_eq!(
        (
            released.holder.as_str(),
            released.duration_seconds,
            released.transitions
        ),
        ("", 1, 5)
    );
}

#[tokio::test(start_paused = true)]
async fn an_empty_holder_is_free_at_once() {
    let mut elector = Elector::new("me".to_owned(), None, Instant::now());
    let next = elector.decide(Some(record("", "1")), Instant::now(), Timestamp::UNIX_EPOCH);
    assert!(
        matches!(next, ElectionStep::Update(record) if record.holder == "me" && record.transitions == 5)
    );
    assert!(
        Elector::new("me".to_owned(), None, Instant::now())
            .release(Timestamp::UNIX_EPOCH)
            .is_none()
    );
}

/// An API server with one Lease; `None` in `down` = it responds.
#[derive(Clone, Default)]
struct Fake(Arc<Mutex<FakeState>>);

#[derive(Default)]
struct FakeState {
    lease: Option<LeaseRecord>,
    version: u64,
    down: bool,
}

impl Fake {
    fn write(&self, record: &LeaseRecord, create: bool) -> Result<LeaseRecord, StoreError> {
        let mut state = self.0.lock().unwrap();
        if state.down {
            return Err(StoreError::Other("down".to_owned()));
        }
        let current = state.lease.as_ref().map(|lease| lease.version.clone());
        if create != current.is_none() || (!create && current != Some(record.version.clone())) {
            return Err(StoreError::Conflict);
        }
        state.version += 1;
        let stored = LeaseRecord {
            version: state.version.to_string(),
            ..record.clone()
        };
        state.lease = Some(stored.clone());
        Ok(stored)
    }
}

impl LeaseStore for Fake {
    async fn get(&self) -> Result<Option<LeaseRecord>, StoreError> {
        let state = self.0.lock().unwrap();
        if state.down {
            Err(StoreError::Other("down".to_owned()))
        } else {
            Ok(state.lease.clone())
        }
    }

    async fn create(&self, record: &LeaseRecord) -> Result<LeaseRecord, StoreError> {
        self.write(record, true)
    }

    async fn update(&self, record: &LeaseRecord) -> Result<LeaseRecord, StoreError> {
        self.write(record, false)
    }
}

struct Candidate {
    inputs: mpsc::Receiver<DriverMessage>,
    end: CancellationToken,
    quiet: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

impl Candidate {
    fn start(store: &Fake, identity: &str) -> Self {
        let (inputs, received) = mpsc::channel(16);
        let (end, quiet) = (CancellationToken::new(), CancellationToken::new());
        let election = Election {
            license: Arc::new(LeadershipDeadline::new()),
            store: store.clone(),
            identity: identity.to_owned(),
            listens: SocketAddr::from(([10, 0, 0, 7], 8443)),
            server: String::new(),
            name: "lease".to_owned(),
            shared: ServiceState::new(
                Arc::new(SystemClock),
                WellKnown::core(),
                "test",
                serde_json::Value::Null,
            ),
            liveness: Arc::default(),
            inputs,
            end: end.clone(),
            quiet: quiet.clone(),
        };
        Self {
            inputs: received,
            end,
            quiet,
            task: tokio::spawn(election.run()),
        }
    }

    async fn leading(&mut self) -> bool {
        match self.inputs.recv().await {
            Some(DriverMessage::Input(EngineInput::Leading(leading))) => leading,
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_lease_is_handed_over_at_shutdown_without_waiting_for_its_end() {
    let store = Fake::default();
    let mut first = Candidate::start(&store, "first");
    assert!(first.leading().await);
    let mut second = Candidate::start(&store, "second");
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(second.inputs.try_recv().is_err(), "the holder renews");
    first.end.cancel();
    assert!(!first.leading().await);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(
        store.0.lock().unwrap().lease.as_ref().unwrap().holder,
        "first",
        "not before everything is quiet"
    );
    first.quiet.cancel();
    first.task.await.unwrap();
    let start = Instant::now();
    assert!(second.leading().await);
    let took = start.elapsed();
    assert!(took <= Duration::from_secs(1), "{took:?}");
    assert_eq!(
        store.0.lock().unwrap().lease.as_ref().unwrap().transitions,
        1
    );
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_cannot_renew_stops_before_others_may_begin() {
    let store = Fake::default();
    let mut first = Candidate::start(&store, "first");
    assert!(first.leading().await);
    store.0.lock().unwrap().down = true;
    let start = Instant::now();
    assert!(!first.leading().await);
    let took = start.elapsed();
    assert!(
        took >= RENEW_DEADLINE - RETRY_PERIOD && took < LEASE_DURATION,
        "{took:?}"
    );
    store.0.lock().unwrap().down = false;
    assert!(first.leading().await, "and takes part again");
}
