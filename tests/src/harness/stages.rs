//! What kwok does to nodes and pods, as Stage objects.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use super::certificates::write;

/// Fast stages: nodes are Ready and pods run at once.
const BUILT_IN: &str = include_str!("../../peers/kwok/stages.yaml");

/// An ordered list of kwok stages with unique names.
#[derive(Clone, Debug)]
pub struct Stages(Vec<Value>);

impl Stages {
    /// The built-in stages.
    ///
    /// # Errors
    /// None in a sound build; the file is compiled in.
    pub fn built_in() -> Result<Self> {
        Self::parse(BUILT_IN).context("the built-in stages")
    }

    /// Only the stages of this YAML (documents separated by `---`).
    ///
    /// # Errors
    /// Not YAML, or a document is not a named Stage.
    pub fn parse(yaml: &str) -> Result<Self> {
        let documents = documents(yaml)?;
        for document in &documents {
            if document.get("kind") != Some(&json!("Stage")) || name(document).is_none() {
                bail!(
                    "expected a document with `kind: Stage` and a metadata.name, got kind {}",
                    document["kind"]
                );
            }
        }
        Ok(Self(documents))
    }

    /// Adds stages; one that has the name of a present one takes its place.
    ///
    /// # Errors
    /// As [`Stages::parse`].
    pub fn replace(mut self, yaml: &str) -> Result<Self> {
        for stage in Self::parse(yaml)?.0 {
            match self
                .0
                .iter_mut()
                .find(|present| name(present) == name(&stage))
            {
                Some(present) => *present = stage,
                None => self.0.push(stage),
            }
        }
        Ok(self)
    }

    /// The stage of this name takes between `from` and `to`, each object a time of its own.
    ///
    /// # Errors
    /// No stage has this name.
    pub fn delayed(mut self, stage: &str, from: Duration, to: Duration) -> Result<Self> {
        let found = self.0.iter_mut().find(|each| name(each) == Some(stage));
        let found = found.with_context(|| format!("no stage is named {stage:?}"))?;
        let (from, to) = (from.as_millis(), to.as_millis());
        found["spec"]["delay"] =
            json!({"durationMilliseconds": from, "jitterDurationMilliseconds": to});
        Ok(self)
    }

    /// Names in order.
    #[must_use]
    pub fn names(&self) -> Vec<&str> {
        self.0.iter().filter_map(name).collect()
    }

    /// Writes kwok's configuration file.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let documents: Vec<String> = self.0.iter().map(Value::to_string).collect();
        write(path, &documents.join("\n---\n"))
    }
}

fn name(stage: &Value) -> Option<&str> {
    stage.pointer("/metadata/name")?.as_str()
}

/// The documents of a YAML text, empty ones left out.
pub(crate) fn documents(yaml: &str) -> Result<Vec<Value>> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(yaml).context("not valid YAML")?;
    Ok(documents
        .into_iter()
        .filter(|document| !document.is_null())
        .collect())
}
