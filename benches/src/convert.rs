//! `convert`: what converting an object between `v1beta1` and `v1` costs.

use std::io::{Read as _, Write};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use mortise_apis::conversion::convert;
use mortise_apis::node_class::NodeClassRegistry;
use mortise_aws_class::Ec2NodeClassApi;
use serde::Serialize;
use serde_json::Value;

use crate::output::Output;
use crate::report::{Benchmark, Results};

/// Recorded objects: pools and classes with all kinds of fields.
const RECORDED: [(&str, &str, &str, &[u8]); 2] = [
    (
        "nodePool",
        "NodePool",
        "karpenter.sh",
        include_bytes!("../../tests/data/facts/nodepool_hash.jsonl.gz"),
    ),
    (
        "ec2NodeClass",
        "EC2NodeClass",
        "karpenter.k8s.aws",
        include_bytes!("../../tests/data/facts/ec2nodeclass_hash.jsonl.gz"),
    ),
];
/// The most that one object may cost.
const TARGET_MICROS: u128 = 1000;

/// Options of `convert`.
#[derive(Debug, clap::Args, Serialize)]
pub(crate) struct ConvertArgs {
    /// Timed conversions of each object, each way.
    #[arg(long, default_value_t = 50)]
    runs: usize,
    #[command(flatten)]
    #[serde(skip)]
    output: Output,
}

/// What one conversion of an object takes, in microseconds.
#[derive(Debug, Serialize)]
pub(crate) struct ConvertResults {
    objects: usize,
    conversions: usize,
    median_us: u128,
    p99_us: u128,
    max_us: u128,
}

impl Benchmark for ConvertArgs {
    const NAME: &'static str = "convert";
    const SOURCES: &'static [&'static str] = &["../crates/apis/src/conversion", "src"];
    type Results = ConvertResults;

    fn output(&self) -> &Output {
        &self.output
    }

    fn seed(&self) -> Option<u64> {
        None
    }

    fn is_complete(&self) -> bool {
        false
    }

    /// Converts every recorded object there and back again.
    fn measure(&self) -> Result<ConvertResults> {
        let mut micros: Vec<u128> = Vec::new();
        let mut objects = 0;
        for (field, kind, group, packed) in RECORDED {
            let mut text = String::new();
            flate2::read::GzDecoder::new(packed).read_to_string(&mut text)?;
            for line in text.lines() {
                let mut case: Value = serde_json::from_str(line)?;
                let object = recorded(case[field].take(), kind, group);
                objects += 1;
                for _ in 0..self.runs {
                    micros.extend(there_and_back(&object, group)?);
                }
            }
        }
        micros.sort_unstable();
        let at = |percent: usize| {
            let last = micros.len().checked_sub(1).context("no objects")?;
            micros.get(last * percent / 100).copied().context("no time")
        };
        Ok(ConvertResults {
            objects,
            conversions: micros.len(),
            median_us: at(50)?,
            p99_us: at(99)?,
            max_us: at(100)?,
        })
    }
}

impl Results for ConvertResults {
    fn write_table(&self, out: &mut dyn Write) -> Result<()> {
        let Self {
            objects,
            conversions,
            median_us,
            p99_us,
            max_us,
        } = self;
        writeln!(
            out,
            "{objects} recorded objects, {conversions} conversions; microseconds an object: median {median_us}, p99 {p99_us}, most {max_us}; at most {TARGET_MICROS} wanted at p99"
        )?;
        Ok(())
    }
}

/// A recorded object with what every object has.
fn recorded(mut object: Value, kind: &str, group: &str) -> Value {
    object["kind"] = kind.into();
    object["apiVersion"] = format!("{group}/v1").into();
    if !object["metadata"].is_object() {
        object["metadata"] = serde_json::json!({});
    }
    object["metadata"]["name"] = "recorded".into();
    object
}

/// Converts down and up again; the microseconds of each.
fn there_and_back(object: &Value, group: &str) -> Result<[u128; 2]> {
    let classes = NodeClassRegistry::new([&Ec2NodeClassApi]);
    let (begun, input) = (Instant::now(), object.clone());
    let down = convert(&classes, input, &format!("{group}/v1beta1"))?;
    let down_us = begun.elapsed().as_micros();
    let begun = Instant::now();
    let up = convert(&classes, down, &format!("{group}/v1"))?;
    let up_us = begun.elapsed().as_micros();
    ensure!(up == *object, "not what it was: {up} instead of {object}");
    Ok([down_us, up_us])
}
