//! Pod created -> NodeClaim created, when the pod fits on no node.
//!
//! A pod counts as created when the API server's answer is here, a claim when its watch event is here; so both have one hop
//! from the API server, and the hop of the event is part of the figure.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use mortise_apis::values::SplitMix64;
use serde::Serialize;

use super::cluster::Cluster;
use super::quantiles::Quantiles;

/// CPU of a pod: that of a node with two CPUs for pods, so that no second pod fits.
const CPU: &str = "1900m";
/// Longest pause between two pods of `singles`, so that they do not fall into step with any loop.
const PAUSE_MS: u64 = 250;
/// Pods of a burst that are created at the same time.
const CREATORS: usize = 8;
/// The batch rule of provisioning: quiet after one pod, and its share of the batch's length.
const QUIET: Duration = Duration::from_millis(100);
/// The longest quiet time of the rule (`--batch-idle-duration`).
const IDLE: Duration = Duration::from_secs(1);

/// A size of burst.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Burst {
    pub(crate) pods: usize,
    pub(crate) rounds: usize,
}

/// The bursts that are measured.
pub(crate) const BURSTS: [Burst; 2] = [
    Burst {
        pods: 10,
        rounds: 20,
    },
    Burst {
        pods: 100,
        rounds: 10,
    },
];

/// Figures of one size.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    /// Pods that are created together.
    pub(crate) pods: usize,
    pub(crate) rounds: usize,
    /// From the first pod to the last, median.
    pub(crate) length_ms: f64,
    /// Claims of a round, median.
    pub(crate) claims: usize,
    /// Last pod created -> first claim created.
    pub(crate) first: Quantiles,
    /// Last pod created -> last claim created.
    pub(crate) last: Quantiles,
    /// The same without the time that the batch rule waits for further pods.
    pub(crate) beyond_rule: Quantiles,
}

/// One pod after the other, each when the one before it runs.
pub(crate) async fn singles(cluster: &Cluster, pods: u32, seed: u64) -> Result<Row> {
    let mut random = SplitMix64::new(seed);
    let mut rounds = Vec::new();
    for number in 0..pods {
        tokio::time::sleep(Duration::from_millis(random.below(PAUSE_MS))).await;
        let round = round(cluster, &[format!("single-{number}")]).await?;
        ensure!(
            round.claims.len() == 1,
            "{} claims for one pod",
            round.claims.len()
        );
        rounds.push(round);
    }
    row(1, &rounds)
}

/// Bursts; each begins when nothing is left of the one before it.
pub(crate) async fn bursts(cluster: &Cluster, burst: Burst) -> Result<Row> {
    let before = cluster.claim_names().await?;
    let mut rounds = Vec::new();
    for number in 0..burst.rounds {
        let names: Vec<String> = (0..burst.pods)
            .map(|pod| format!("burst-{}-{number}-{pod}", burst.pods))
            .collect();
        rounds.push(round(cluster, &names).await?);
        cluster.remove(&names, &before).await?;
    }
    row(burst.pods, &rounds)
}

/// What was seen of one round.
struct Round {
    /// First and last pod created.
    pods: (Instant, Instant),
    /// Claims created, in order.
    claims: Vec<Instant>,
}

async fn round(cluster: &Cluster, names: &[String]) -> Result<Round> {
    let mut seen = cluster.follow_claims();
    let created: Vec<Instant> = stream::iter(names)
        .map(|name| cluster.create_pod(name, CPU, None))
        .buffer_unordered(CREATORS)
        .try_collect()
        .await?;
    cluster.running(names).await?;
    // Every pod runs, so every claim is there, and the watch has told of it (nodes come after claims).
    let mut claims = Vec::new();
    while let Ok(at) = seen.try_recv() {
        claims.push(at);
    }
    ensure!(
        !claims.is_empty(),
        "pods run, but no claim was made for them"
    );
    let first = created.iter().min().context("no pod")?;
    let last = created.iter().max().context("no pod")?;
    Ok(Round {
        pods: (*first, *last),
        claims,
    })
}

impl Round {
    fn length(&self) -> Duration {
        self.pods.1 - self.pods.0
    }

    fn first(&self) -> Duration {
        let first = self.claims.iter().min().copied().unwrap_or(self.pods.1);
        first.saturating_duration_since(self.pods.1)
    }

    fn last(&self) -> Duration {
        let last = self.claims.iter().max().copied().unwrap_or(self.pods.1);
        last.saturating_duration_since(self.pods.1)
    }

    /// How long the rule waits after the last pod.
    fn rule(&self) -> Duration {
        (QUIET + self.length() / 2).min(IDLE)
    }
}

fn row(pods: usize, rounds: &[Round]) -> Result<Row> {
    let quantiles =
        |time: &dyn Fn(&Round) -> Duration| Quantiles::of(rounds.iter().map(time).collect());
    let mut counts: Vec<usize> = rounds.iter().map(|round| round.claims.len()).collect();
    counts.sort_unstable();
    Ok(Row {
        pods,
        rounds: rounds.len(),
        length_ms: quantiles(&Round::length).p50_ms,
        claims: *counts.get(counts.len() / 2).context("no round")?,
        first: quantiles(&Round::first),
        last: quantiles(&Round::last),
        beyond_rule: quantiles(&|round| round.last().saturating_sub(round.rule())),
    })
}
