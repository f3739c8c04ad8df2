//! Scenarios as files have them: one document of kind Scenario, and the manifests of its cluster.

use anyhow::{Context as _, bail};
use mortise_manifests::file::{Manifest, manifests};
use mortise_manifests::migrate::SourceFile;
use mortise_sim::ManifestError;
use mortise_sim::scenario::{ClusterObjects, SCENARIO_KIND, ScenarioSpec};
use serde_json::Value;

/// A scenario and its cluster, as read from files.
pub struct ScenarioFile {
    /// What happens when.
    pub spec: ScenarioSpec,
    /// The cluster that it begins with.
    pub objects: ClusterObjects,
    /// All of it as documents.
    pub documents: Vec<Value>,
    written: WrittenManifest,
}

/// An object, and where it is written.
struct WrittenManifest {
    file: String,
    manifest: Manifest,
    value: Value,
}

impl ScenarioFile {
    /// Reads files, in layers: an object takes the place of the object of an earlier layer with its kind and name, or is added; a
    /// Scenario takes the place of the Scenario.
    ///
    /// # Errors
    /// A document is not YAML, an object cannot be simulated, or there is not one Scenario: each with its file and line.
    pub fn read(layers: &[&[SourceFile]]) -> anyhow::Result<Self> {
        let mut all: Vec<WrittenManifest> = Vec::new();
        for layer in layers {
            let new = parsed(layer)?;
            all.retain(|old| !new.iter().any(|new| new.replaces(old)));
            all.extend(new);
        }
        let documents = all.iter().map(|written| written.value.clone()).collect();
        let mut objects = ClusterObjects::default();
        let mut scenario: Option<(ScenarioSpec, WrittenManifest)> = None;
        for written in all {
            if written.value["kind"] != SCENARIO_KIND {
                let added = objects.add(&written.value);
                added.map_err(|error| written.error(&error))?;
                continue;
            }
            let spec = ScenarioSpec::from_document(&written.value);
            let spec = spec.map_err(|error| written.error(&error))?;
            if let Some((_, first)) = &scenario {
                let (at, other) = (first.manifest.line(), written.manifest.line());
                bail!(
                    "two scenarios: {}:{at} and {}:{other}; give one",
                    first.file,
                    written.file
                );
            }
            scenario = Some((spec, written));
        }
        let (spec, written) = scenario.with_context(|| {
            format!("there is no document of kind {SCENARIO_KIND} in the files")
        })?;
        Ok(Self {
            spec,
            objects: objects.complete()?,
            documents,
            written,
        })
    }

    /// Reads documents that are not in a file. `name` stands for the file in errors.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn of_documents(name: &str, documents: &[Value]) -> anyhow::Result<Self> {
        Self::read(&[&[source_of(name, documents)]])
    }

    /// An error in the Scenario, with the file and the line that it is about.
    #[must_use]
    pub fn error(&self, error: &ManifestError) -> anyhow::Error {
        self.written.error(error)
    }

    /// The same for a field of the Scenario.
    #[must_use]
    pub fn error_at(&self, field: &str, problem: &str) -> anyhow::Error {
        self.error(&ManifestError::new(field, problem))
    }
}

impl WrittenManifest {
    fn error(&self, error: &ManifestError) -> anyhow::Error {
        let line = self.manifest.line_of(&error.field);
        anyhow::anyhow!("{}:{line}: {error}", self.file)
    }

    /// Whether this object takes the place of that one.
    fn replaces(&self, old: &Self) -> bool {
        let kind = |written: &Self| written.value["kind"].as_str().map(str::to_owned);
        let name = |written: &Self| {
            written.value["metadata"]["name"]
                .as_str()
                .map(str::to_owned)
        };
        kind(self) == kind(old) && (self.value["kind"] == SCENARIO_KIND || name(self) == name(old))
    }
}

/// Documents as a file of this name has them.
#[must_use]
pub fn source_of(name: &str, documents: &[Value]) -> SourceFile {
    let texts: Vec<String> = documents.iter().map(Value::to_string).collect();
    SourceFile {
        name: name.to_owned(),
        text: texts.join("\n---\n"),
    }
}

fn parsed(sources: &[SourceFile]) -> anyhow::Result<Vec<WrittenManifest>> {
    let mut all = Vec::new();
    for source in sources {
        for manifest in manifests(&source.text) {
            let file = source.name.clone();
            let manifest = manifest
                .map_err(|fault| anyhow::anyhow!("{file}:{}: {}", fault.line, fault.problem))?;
            all.push(WrittenManifest {
                value: manifest.value(),
                file,
                manifest,
            });
        }
    }
    Ok(all)
}

/// What a scenario shows and where to look: the comment that its file begins with, without the command that plays it.
#[must_use]
pub fn about(text: &str) -> String {
    let comments = text.lines().map_while(|line| line.strip_prefix("# "));
    let about: Vec<&str> = comments
        .filter(|line| !line.starts_with("Play it"))
        .collect();
    about.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCENARIO: &str = "\
apiVersion: mortise.sh/v1alpha1
kind: Scenario
spec: { duration: 1h }
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: { name: general }
spec: { template: { spec: { nodeClassRef: { group: g, kind: ANodeClass, name: default } } } }
---
apiVersion: apps/v1
kind: Deployment
metadata: { name: web }
spec: { replicas: 3, template: { spec: { containers: [] } } }
";

    fn file(name: &str, text: &str) -> SourceFile {
        SourceFile {
            name: name.to_owned(),
            text: text.to_owned(),
        }
    }

    #[test]
    fn objects_and_the_scenario_are_replaced_by_kind_and_name() {
        let base = [file("a.yaml", SCENARIO)];
        let read = |text: &str| ScenarioFile::read(&[&base, &[file("b.yaml", text)]]);
        let longer = "apiVersion: mortise.sh/v1alpha1\nkind: Scenario\nspec: { duration: 2h }\n";
        assert_eq!(read(longer).unwrap().spec.duration.as_secs(), 7_200);
        // A second workload of this name would be an error.
        let web = SCENARIO.split("---\n").nth(2).unwrap();
        let larger = web.replace("replicas: 3", "replicas: 9");
        assert!(
            ScenarioFile::read(&[&[file("a.yaml", SCENARIO), file("b.yaml", &larger)]]).is_err()
        );
        assert!(read(&larger).is_ok());
        let other = web.replace("name: web", "name: api");
        assert!(read(&other).is_ok());
    }

    #[test]
    fn errors_name_file_and_line() {
        let error = |text: &str| {
            let read = ScenarioFile::read(&[&[file("a.yaml", SCENARIO)], &[file("b.yaml", text)]]);
            read.err()
                .map(|error| error.to_string())
                .unwrap_or_default()
        };
        let odd = error(
            "\n\napiVersion: mortise.sh/v1alpha1\nkind: Scenario\nspec:\n  duration: 2h\n  sed: 4\n",
        );
        assert!(odd.starts_with("b.yaml:7: spec.sed"), "{odd}");
        let twice = ScenarioFile::read(&[&[file("a.yaml", SCENARIO), file("b.yaml", SCENARIO)]]);
        let twice = twice.err().unwrap().to_string();
        assert!(
            twice.contains("Deployment") || twice.contains("two"),
            "{twice}"
        );
    }

    #[test]
    fn the_comment_at_the_beginning_says_what_it_is_about() {
        let text = "# A rush.\n# Look at waiting pods.\n# Play it with: mortise simulate x\nkind: Scenario\n# not this\n";
        assert_eq!(about(text), "A rush. Look at waiting pods.");
    }
}
