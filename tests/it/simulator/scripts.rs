//! Scenarios as files, made fit to be played next to each other on one control plane.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use mortise_apis::values::GoDuration;
use serde_json::{Value, json};

/// Label, taint and namespace that keep the pods and nodes of scenarios apart.
pub(super) const PLAY: &str = "mortise.test/play";
/// Annotation of a scenario in which zones are compared too: none of its nodes may be in any zone.
const ZONES: &str = "mortise.test/zones";

/// A scenario. Its names begin with its own, in a namespace of its own, and its pods and nodes are for each other alone: in the
/// simulator as on the real control plane.
#[derive(Clone, Debug)]
pub(super) struct Script {
    /// Name; also its namespace.
    pub(super) name: String,
    /// The document of kind Scenario.
    pub(super) document: Value,
    /// The cluster, except for node classes.
    pub(super) manifests: Vec<Value>,
    /// Zones are compared.
    pub(super) has_zones: bool,
}

impl Script {
    /// The scenario of these documents.
    pub(super) fn of(documents: Vec<Value>) -> Result<Self> {
        let (mut scenarios, manifests): (Vec<Value>, Vec<Value>) = documents
            .into_iter()
            .partition(|each| each["kind"] == "Scenario");
        let mut document = scenarios.pop().context("no document of kind Scenario")?;
        ensure!(scenarios.is_empty(), "two scenarios");
        let name = document["metadata"]["name"]
            .as_str()
            .context("a name")?
            .to_owned();
        let entries = document["spec"]["timeline"].as_array_mut();
        for entry in entries.into_iter().flatten() {
            for action in ["edit", "delete"] {
                if let Some(pool) = entry[action]["nodePool"].as_str() {
                    entry[action]["nodePool"] = json!(format!("{name}-{pool}"));
                }
            }
        }
        let has_zones = document["metadata"]["annotations"][ZONES] == "compared";
        let own = manifests
            .into_iter()
            .filter(|each| each["kind"] != "KWOKNodeClass");
        Ok(Self {
            manifests: own.map(|each| separated(each, &name)).collect(),
            name,
            document,
            has_zones,
        })
    }

    /// The entries of the timeline with their times, in milliseconds.
    pub(super) fn entries(&self) -> Result<Vec<(i64, Value)>> {
        let entries = self.document["spec"]["timeline"].as_array();
        let entries = entries.into_iter().flatten().map(|entry| {
            let at = entry["at"].as_str().context("a time")?;
            Ok((GoDuration::parse(at)?.as_nanos() / 1_000_000, entry.clone()))
        });
        entries.collect()
    }

    /// Names of the NodePools.
    pub(super) fn pools(&self) -> Vec<String> {
        let pools = self
            .manifests
            .iter()
            .filter(|each| each["kind"] == "NodePool");
        let names = pools.filter_map(|pool| pool["metadata"]["name"].as_str());
        names.map(str::to_owned).collect()
    }
}

/// A manifest with the names and marks of a play.
fn separated(mut manifest: Value, play: &str) -> Value {
    if manifest["kind"] == "NodePool" {
        let name = manifest["metadata"]["name"].as_str().unwrap_or_default();
        manifest["metadata"]["name"] = json!(format!("{play}-{name}"));
        let template = &mut manifest["spec"]["template"];
        template["metadata"]["labels"][PLAY] = json!(play);
        append(
            &mut template["spec"]["taints"],
            json!({ "key": PLAY, "value": play, "effect": "NoSchedule" }),
        );
        return manifest;
    }
    manifest["metadata"]["namespace"] = json!(play);
    if manifest["kind"] == "Deployment" {
        let spec = &mut manifest["spec"]["template"]["spec"];
        spec["nodeSelector"][PLAY] = json!(play);
        spec["terminationGracePeriodSeconds"] = json!(0);
        append(
            &mut spec["tolerations"],
            json!({ "key": PLAY, "operator": "Equal", "value": play, "effect": "NoSchedule" }),
        );
    }
    manifest
}

fn append(list: &mut Value, item: Value) {
    match list.as_array_mut() {
        Some(list) => list.push(item),
        None => *list = json!([item]),
    }
}

/// Those in `tests/data/agreement`.
pub(super) fn written() -> Result<Vec<Script>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/agreement");
    let mut files = Vec::new();
    for entry in std::fs::read_dir(&folder)? {
        files.push(entry?.path());
    }
    files.sort();
    let read = files.iter().map(|path| {
        let text = std::fs::read_to_string(path)?;
        let documents = serde_saphyr::from_multiple(&text)?;
        Script::of(documents).with_context(|| path.display().to_string())
    });
    read.collect()
}
