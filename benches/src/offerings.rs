//! `offerings`: what it costs to make the catalog of a region, and to take offerings out of it while a cloud has none left.

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use mortise_apis::names::NodeClassKey;
use mortise_aws_catalog::embedded_catalog;
use mortise_cloudprovider::UnavailableOffering;
use mortise_state::catalog::Catalog;
use mortise_state::index::Index;
use serde::Serialize;

use crate::output::Output;
use crate::report::{Benchmark, Results};

/// The region with the most zones and types of those that come with the program.
const REGION: &str = "us-east-1";
/// A catalog is made within this time.
const BUILT: Duration = Duration::from_millis(100);
/// Launches that end while the engine takes one step.
const BATCH: usize = 10;
/// No snapshot with new marks takes longer.
const PAUSE: Duration = Duration::from_millis(5);

/// Options of `offerings`.
#[derive(Debug, clap::Args, Serialize)]
pub(crate) struct OfferingsArgs {
    /// Timed catalogs.
    #[arg(long, default_value_t = 50)]
    runs: usize,
    /// Offerings that are marked as unavailable.
    #[arg(long, default_value_t = 5_000)]
    marks: usize,
    /// Marks a second: what the marks must leave time for.
    #[arg(long, default_value_t = 500)]
    rate: usize,
    #[command(flatten)]
    #[serde(skip)]
    output: Output,
}

/// Times in microseconds.
#[derive(Debug, Serialize)]
pub(crate) struct OfferingsResults {
    types: usize,
    zones: usize,
    offerings: usize,
    /// From descriptions and prices to the catalog.
    built_median_us: u128,
    built_max_us: u128,
    /// From the end of a few launches to the snapshot that shows what they lacked.
    marked_median_us: u128,
    marked_p99_us: u128,
    marked_max_us: u128,
    /// Share of the time that the marks take at their rate.
    busy_percent: u128,
}

impl Benchmark for OfferingsArgs {
    const NAME: &'static str = "offerings";
    const SOURCES: &'static [&'static str] = &[
        "../crates/providers/aws/catalog",
        "../crates/state",
        "../crates/apis",
        "src",
    ];
    type Results = OfferingsResults;

    fn output(&self) -> &Output {
        &self.output
    }

    fn seed(&self) -> Option<u64> {
        None
    }

    fn is_complete(&self) -> bool {
        self.runs == 50 && self.marks == 5_000 && self.rate == 500
    }

    fn measure(&self) -> Result<OfferingsResults> {
        let embedded = embedded_catalog()?;
        let zones = embedded.zones(REGION).len();
        let mut built = Vec::new();
        let mut catalog = None;
        for _ in 0..self.runs {
            let begun = Instant::now();
            let made = Catalog::build(embedded.instance_types(REGION, &[])?);
            built.push(begun.elapsed());
            catalog = Some(made);
        }
        let catalog = Arc::new(catalog.context("no run")?);
        let offerings = all_offerings(&catalog);
        let marked = marked(&catalog, &offerings, self.marks)?;
        let busy: Duration = marked.iter().sum();
        let there = Duration::from_secs(self.marks as u64) / u32::try_from(self.rate)?;
        Ok(OfferingsResults {
            types: catalog.types().len(),
            zones,
            offerings: offerings.len(),
            built_median_us: micros(&mut built, 50)?,
            built_max_us: micros(&mut built, 100)?,
            busy_percent: busy.as_micros() * 100 / there.as_micros().max(1),
            marked_median_us: micros(&mut marked.clone(), 50)?,
            marked_p99_us: micros(&mut marked.clone(), 99)?,
            marked_max_us: micros(&mut marked.clone(), 100)?,
        })
    }

    fn conclude(&self, results: &OfferingsResults) -> Result<()> {
        let (built, pause) = (results.built_max_us, results.marked_max_us);
        ensure!(
            built <= BUILT.as_micros(),
            "a catalog took {built} microseconds"
        );
        ensure!(
            pause <= PAUSE.as_micros(),
            "marks took {pause} microseconds"
        );
        Ok(())
    }
}

impl Results for OfferingsResults {
    fn write_table(&self, out: &mut dyn Write) -> Result<()> {
        let Self {
            types,
            zones,
            offerings,
            built_median_us,
            built_max_us,
            marked_median_us,
            marked_p99_us,
            marked_max_us,
            busy_percent,
        } = self;
        writeln!(
            out,
            "{types} types in {zones} zones, {offerings} offerings: catalog made in {built_median_us} microseconds at the median, {built_max_us} at most ({} wanted)",
            BUILT.as_micros()
        )?;
        writeln!(
            out,
            "marks in batches of {BATCH}: snapshot after {marked_median_us} microseconds at the median, {marked_p99_us} at p99, {marked_max_us} at most ({} wanted); {busy_percent} % of the time",
            PAUSE.as_micros()
        )?;
        Ok(())
    }
}

/// Every offering, the zones and capacity types of a type after each other.
fn all_offerings(catalog: &Catalog) -> Vec<UnavailableOffering> {
    let types = catalog.types().iter();
    let all = types.flat_map(|each| {
        let offerings = each.offerings.iter();
        offerings.map(|offering| each.capacity_pool(offering))
    });
    all.collect()
}

/// Marks offerings in batches, and freezes after each, as the engine does. The times of the batches.
fn marked(
    catalog: &Arc<Catalog>,
    offerings: &[UnavailableOffering],
    marks: usize,
) -> Result<Vec<Duration>> {
    let now = Timestamp::UNIX_EPOCH;
    let class = NodeClassKey::new("karpenter.k8s.aws", "EC2NodeClass", "default");
    let mut index = Index::new(mortise_aws_class::labels::well_known(), false, now);
    index.set_catalog(&class, Arc::clone(catalog));
    // Held as the engine, the solver and the extender hold it.
    let mut held = index.freeze(now);
    let mut times = Vec::new();
    // Steps over the list, so that a batch is about several types.
    let spread = offerings.iter().step_by(7).cycle().take(marks);
    let spread: Vec<UnavailableOffering> = spread.cloned().collect();
    for batch in spread.chunks(BATCH) {
        let begun = Instant::now();
        for each in batch {
            index.mark_unavailable(&class, std::slice::from_ref(each));
        }
        held = index.freeze(now);
        times.push(begun.elapsed());
    }
    ensure!(!times.is_empty(), "no marks");
    ensure!(held.catalogs.contains_key(&class), "no catalog");
    Ok(times)
}

/// A percentile in microseconds.
fn micros(times: &mut [Duration], percent: usize) -> Result<u128> {
    times.sort_unstable();
    let last = times.len().checked_sub(1).context("no times")?;
    let at = times.get(last * percent / 100).context("no time")?;
    Ok(at.as_micros())
}
