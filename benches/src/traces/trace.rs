//! A recorded workload: its pods, and the instance types that can be launched for them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

/// A pod of a trace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TracePod {
    pub(super) cpu_milli: i64,
    pub(super) memory_mib: i64,
    pub(super) gpus: i64,
    /// Names of GPUs that will do; empty for any.
    pub(super) names: Vec<String>,
    pub(super) spot: bool,
}

/// Rows of a file with a heading, by column name.
fn table(path: &Path) -> Result<Vec<BTreeMap<String, String>>> {
    let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    let mut lines = text.lines();
    let heading: Vec<&str> = lines
        .next()
        .with_context(|| format!("{} is empty", path.display()))?
        .split(',')
        .collect();
    let row = |line: &str| {
        let cells = line.split(',').map(str::to_owned);
        heading
            .iter()
            .map(|each| (*each).to_owned())
            .zip(cells)
            .collect()
    };
    Ok(lines.map(row).collect())
}

fn number(row: &BTreeMap<String, String>, column: &str) -> Result<i64> {
    let text = row
        .get(column)
        .with_context(|| format!("no column {column}"))?;
    text.parse()
        .with_context(|| format!("{column} is {text:?}"))
}

pub(super) fn pods(path: &Path, form: &str) -> Result<Vec<TracePod>> {
    let pod = |row: &BTreeMap<String, String>| {
        let text = |column: &str| row.get(column).map_or("", String::as_str);
        let gpus = if form == "cpu" {
            0
        } else {
            number(row, "num_gpu")?
        };
        let names = if gpus > 0 { text("gpu_spec") } else { "" };
        let mut names: Vec<String> = names
            .split('|')
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect();
        names.sort();
        names.dedup();
        Ok(TracePod {
            cpu_milli: number(row, "cpu_milli")?,
            memory_mib: number(row, "memory_mib")?,
            gpus,
            names,
            spot: text("qos") == "BE",
        })
    };
    table(path)?.iter().map(pod).collect()
}

/// An instance type.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Kind {
    pub(super) cpu_milli: i64,
    pub(super) memory_mib: i64,
    pub(super) gpus: i64,
    pub(super) gpu: String,
}

/// Micro-dollars per hour: 0.030 per CPU, 0.004 per GiB, and what the GPU costs.
pub(super) fn price(of: &Kind) -> i64 {
    let gpu = match of.gpu.as_str() {
        "" => 0,
        "T4" => 350_000,
        "G2" => 800_000,
        "A10" => 1_000_000,
        "P100" => 1_100_000,
        "G3" => 1_500_000,
        "V100M16" => 2_000_000,
        _ => 2_400_000,
    };
    of.cpu_milli * 30 + of.memory_mib * 4_000 / 1024 + of.gpus * gpu
}

pub(super) fn kinds(folder: &Path, form: &str) -> Result<Vec<Kind>> {
    let mut all = Vec::new();
    if form == "cpu" {
        for cpu in [2, 4, 8, 16, 32, 48, 64, 96, 128] {
            all.extend([2, 4, 8].map(|ratio| Kind {
                cpu_milli: cpu * 1000,
                memory_mib: cpu * ratio * 1024,
                gpus: 0,
                gpu: String::new(),
            }));
        }
        return Ok(all);
    }
    for row in table(&folder.join("openb_node_list_all_node.csv"))? {
        all.push(Kind {
            cpu_milli: number(&row, "cpu_milli")?,
            memory_mib: number(&row, "memory_mib")?,
            gpus: number(&row, "gpu")?,
            gpu: row.get("model").cloned().unwrap_or_default(),
        });
    }
    all.sort();
    all.dedup();
    Ok(all)
}
