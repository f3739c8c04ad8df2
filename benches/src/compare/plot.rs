//! The plots in `docs/benchmarks/extender.md`.

use std::path::Path;

use anyhow::{Context as _, Result};

use super::chart::{Bar, Group, bars};
use super::provisioning::Row;
use super::{CompareResults, Way, median};

/// A figure of a run, and its name.
type Figure<'a> = (&'a str, &'a dyn Fn(&Row) -> f64);

/// Writes every plot for which there are figures.
pub(crate) fn write(dir: &Path, results: &CompareResults) -> Result<()> {
    std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    if !results.throughput.is_empty() {
        let mut sizes: Vec<u32> = results.throughput.iter().map(|row| row.nodes).collect();
        sizes.dedup();
        let groups: Vec<Group> = sizes
            .iter()
            .map(|size| Group {
                name: format!("{size} nodes"),
                bars: Way::ALL
                    .map(|way| {
                        let rows = results.throughput.iter();
                        bar(rows
                            .filter(|row| row.nodes == *size && row.way == way)
                            .map(|row| row.middle_per_s))
                    })
                    .to_vec(),
            })
            .collect();
        let title = "Rate of kube-scheduler, middle 80 % of the pods";
        save(
            dir,
            "throughput",
            &bars(
                title,
                "pods bound per second",
                &Way::ALL.map(Way::label),
                &groups,
            ),
        )?;
    }
    if results.provisioning.is_empty() {
        return Ok(());
    }
    #[expect(clippy::cast_precision_loss, reason = "counts of nodes and pods")]
    let count = |number: usize| number as f64;
    let figures: [Figure<'_>; 4] = [
        ("nodes launched", &|row| count(row.launched)),
        ("empty on arrival", &|row| count(row.empty_on_arrival)),
        ("evictions", &|row| count(row.evictions)),
        ("$ per hour", &|row| row.dollars_per_hour),
    ];
    let groups: Vec<Group> = figures
        .iter()
        .map(|(name, figure)| Group {
            name: (*name).to_owned(),
            bars: Way::PROVISIONING
                .map(|way| {
                    let rows = results.provisioning.iter();
                    bar(rows.filter(|row| row.way == way).map(figure))
                })
                .to_vec(),
        })
        .collect();
    let title = "The same services and short-lived pods";
    save(
        dir,
        "provisioning",
        &bars(
            title,
            "median of the runs, and their spread",
            &Way::PROVISIONING.map(Way::label),
            &groups,
        ),
    )
}

fn bar(values: impl Iterator<Item = f64>) -> Bar {
    let all: Vec<f64> = values.collect();
    Bar {
        value: median(all.iter().copied()),
        least: all.iter().copied().fold(f64::INFINITY, f64::min),
        most: all.iter().copied().fold(0.0, f64::max),
    }
}

fn save(dir: &Path, name: &str, svg: &str) -> Result<()> {
    let path = dir.join(format!("{name}.svg"));
    std::fs::write(&path, svg).with_context(|| format!("cannot write {}", path.display()))
}
