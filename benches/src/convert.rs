//! `convert`: what converting an object between `v1beta1` and `v1` costs.

use std::io::{Read as _, Write as _};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use mortise_core::apis::conversion::convert;
use serde_json::Value;

use crate::machine::Machine;

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
#[derive(Debug, clap::Args)]
pub(crate) struct ConvertArgs {
    /// Timed conversions of each object, each way.
    #[arg(long, default_value_t = 50)]
    runs: usize,
}

/// Converts every recorded object there and back again, and prints what one conversion costs.
pub(crate) fn run(args: &ConvertArgs) -> Result<()> {
    let Machine {
        cpu,
        processors,
        commit,
        load,
        debug_build,
    } = Machine::here(&["../crates/apis/src/conversion", "src"]);
    let mut micros: Vec<u128> = Vec::new();
    let mut objects = 0;
    for (field, kind, group, packed) in RECORDED {
        let mut text = String::new();
        flate2::read::GzDecoder::new(packed).read_to_string(&mut text)?;
        for line in text.lines() {
            let mut case: Value = serde_json::from_str(line)?;
            let mut object = case[field].take();
            objects += 1;
            object["kind"] = kind.into();
            object["apiVersion"] = format!("{group}/v1").into();
            if !object["metadata"].is_object() {
                object["metadata"] = serde_json::json!({});
            }
            object["metadata"]["name"] = "recorded".into();
            let newer = format!("{group}/v1");
            let older = format!("{group}/v1beta1");
            for _ in 0..args.runs {
                let (begun, input) = (Instant::now(), object.clone());
                let down = convert(input, &older)?;
                micros.push(begun.elapsed().as_micros());
                let begun = Instant::now();
                let up = convert(down, &newer)?;
                micros.push(begun.elapsed().as_micros());
                ensure!(up == object, "not what it was: {up} instead of {object}");
            }
        }
    }
    micros.sort_unstable();
    let at = |percent: usize| micros.get((micros.len() - 1) * percent / 100).copied();
    let (median, high, most) = (at(50), at(99), micros.last().copied());
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "machine {cpu}, {processors} processors, load {load}; commit {commit}; {objects} recorded objects, {} conversions{}",
        micros.len(),
        if debug_build { "; DEBUG BUILD" } else { "" },
    )?;
    let high = high.context("no objects")?;
    writeln!(
        out,
        "microseconds an object: median {}, p99 {high}, most {}; at most {TARGET_MICROS} wanted at p99",
        median.unwrap_or_default(),
        most.unwrap_or_default(),
    )?;
    Ok(())
}
