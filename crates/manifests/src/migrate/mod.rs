//! Converts manifests of every version to `v1`: Provisioners and AWSNodeTemplates, `v1beta1`, and `v1` with errors.
//!
//! A manifest that needs no change is returned unchanged, byte for byte. A changed one keeps its order, comments and quotes.
//! Every conversion is a [`MigrationFinding`], and so is everything that cannot be converted: the meaning never changes
//! silently. Objects of other kinds are passed through; old names in them are reported.
//!
//! Must never: drop a field without a finding; guess a value that only the user knows.

mod class;
mod cluster_autoscaler;
mod disruption;
mod edit;
pub(crate) mod finding;
mod links;
mod pool;
mod requirements;
mod selectors;
pub(crate) mod unconverted;

use crate::yaml::{self, Document, NodeContent, Style, YamlNode, documents, json, read};
use edit::set_type;
use finding::FindingLog;
use pool::ManifestVersion;

pub use cluster_autoscaler::from_cluster_autoscaler;
pub use finding::{Code, MigrationFinding, MigrationLevel};

use mortise_apis::schema::groups::GROUP;
use mortise_aws_class::labels::GROUP as AWS_GROUP;

/// A named text, usually a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFile {
    /// Its name; changed objects are written as JSON if it ends in `.json`.
    pub name: String,
    /// Its text: YAML or JSON, any number of documents.
    pub text: String,
}

/// Values that only the user knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MigrateOptions {
    /// IAM role of classes that name none, instead of an instance profile too.
    pub role: Option<String>,
    /// Instance profile of classes that name neither.
    pub instance_profile: Option<String>,
    /// Name of the cluster, if node groups are converted that do not say it.
    pub cluster_name: Option<String>,
}

/// Result of a migration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Migrated {
    /// The same sources in the same order, converted; one file of node groups.
    pub files: Vec<SourceFile>,
    /// Flags of `mortise serve` that belong to the objects; of node groups alone.
    pub flags: Vec<String>,
    /// All findings, in the order of the sources and their lines.
    pub findings: Vec<MigrationFinding>,
    /// Objects that were changed; of node groups, objects that were written.
    pub changed: usize,
    /// Objects that needed no change, or are of other kinds; of node groups, objects that were left out.
    pub untouched: usize,
}

impl Migrated {
    /// The highest level of all findings.
    #[must_use]
    pub fn worst(&self) -> MigrationLevel {
        self.findings
            .iter()
            .map(|finding| finding.level)
            .max()
            .unwrap_or(MigrationLevel::Converted)
    }
}

/// An object of a cluster as a source of its own, without fields that the cluster sets.
#[must_use]
pub fn from_cluster(object: &serde_json::Value) -> SourceFile {
    let mut root = YamlNode::from_json(object);
    let mut ignored = Vec::new();
    let mut log = FindingLog {
        file: "",
        object: String::new(),
        findings: &mut ignored,
    };
    edit::strip_server_fields(&mut root, &mut log);
    if let Some(metadata) = root.get_mut("metadata") {
        edit::drop_entry(metadata, "finalizers");
    }
    let name = label(&root).to_lowercase().replace(' ', "-");
    SourceFile {
        name: format!("{name}.yaml"),
        text: yaml::yaml(&root, Style::default()),
    }
}

/// Kind of an object, as the migration treats it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ManifestKind {
    Pool(ManifestVersion),
    Class(ManifestVersion),
    Claim,
    Machine,
    Other,
}

/// An object in conversion.
struct MigrationItem {
    /// Index of the source.
    file: usize,
    /// Separator line before it.
    separator: Option<String>,
    /// The original text.
    body: String,
    /// The result: several objects if one was split.
    roots: Vec<YamlNode>,
    style: Style,
    /// Comments at the end of the document.
    trailing: Vec<String>,
    kind: ManifestKind,
    /// Kind and name in the source.
    label: String,
    changed: bool,
}

impl MigrationItem {
    /// It is not changed, not even for the sake of other objects.
    const fn leave(&mut self) {
        self.kind = ManifestKind::Other;
    }
}

/// Converts all sources together: references between NodePools and classes are resolved across all of them.
#[must_use]
pub fn migrate(sources: &[SourceFile], options: &MigrateOptions) -> Migrated {
    let mut findings = Vec::new();
    let mut works: Vec<MigrationItem> = Vec::new();
    for (file, source) in sources.iter().enumerate() {
        for document in documents(&source.text) {
            works.extend(open(file, &source.name, document, &mut findings));
        }
    }
    let mut expiries = Vec::new();
    for work in &mut works {
        let name = sources.get(work.file).map_or("", |source| &source.name);
        convert(work, name, options, &mut findings, &mut expiries);
    }
    links::resolve(&mut works, sources, &expiries, &mut findings);
    let mut migrated = Migrated::default();
    for (file, source) in sources.iter().enumerate() {
        let mut text = String::new();
        for work in works.iter().filter(|work| work.file == file) {
            if let Some(separator) = &work.separator {
                if !text.is_empty() && !text.ends_with('\n') {
                    text.push('\n');
                }
                text.push_str(separator);
                text.push('\n');
            }
            text.push_str(&written(work, source.name.ends_with(".json")));
            if work.changed {
                migrated.changed += 1;
            } else if !work.body.trim().is_empty() {
                migrated.untouched += 1;
            }
        }
        migrated.files.push(SourceFile {
            name: source.name.clone(),
            text,
        });
    }
    findings.sort_by_cached_key(|finding| {
        // Findings without a line follow those with one, by object.
        let file = sources
            .iter()
            .position(|source| source.name == finding.file);
        let own = |work: &&MigrationItem| Some(work.file) == file && work.label == finding.object;
        let after =
            |work: &MigrationItem| work.roots.first().map_or(0, |root| root.line) > finding.line;
        let of_label = works.iter().filter(own).count();
        let object = if of_label > 1 && finding.line > 0 {
            // Fragments have no names: the last one that begins above the line.
            works.iter().rposition(|work| own(&work) && !after(work))
        } else {
            works.iter().position(|work| own(&work))
        };
        (file, object, finding.line == 0, finding.line)
    });
    migrated.findings = findings;
    migrated
}

fn written(work: &MigrationItem, as_json: bool) -> String {
    if !work.changed {
        return work.body.clone();
    }
    let texts: Vec<String> = work
        .roots
        .iter()
        .map(|root| {
            if as_json {
                json(root)
            } else {
                yaml::yaml(root, work.style)
            }
        })
        .collect();
    let between = if as_json { "" } else { "---\n" };
    let mut text = texts.join(between);
    for comment in &work.trailing {
        text.push_str(comment);
        text.push('\n');
    }
    text
}

/// Kind and name.
pub(crate) fn label(root: &YamlNode) -> String {
    let text = |path: &[&str]| root.at(path).and_then(YamlNode::text).map(str::to_owned);
    match (text(&["kind"]), text(&["metadata", "name"])) {
        (Some(kind), Some(name)) => format!("{kind} {name}"),
        (Some(kind), None) => kind,
        (None, _) => "part of a NodePool".to_owned(),
    }
}

/// Whether a text that does not parse contains names of mortise or Karpenter kinds.
pub(crate) fn about_us(text: &str) -> bool {
    [
        "karpenter.sh",
        "karpenter.k8s.aws",
        "AWSNodeTemplate",
        "EC2NodeClass",
    ]
    .iter()
    .any(|word| text.contains(word))
}

fn open(
    file: usize,
    name: &str,
    document: Document,
    findings: &mut Vec<MigrationFinding>,
) -> Vec<MigrationItem> {
    let Document {
        separator,
        body,
        line,
    } = document;
    let mut work = MigrationItem {
        file,
        separator,
        body,
        roots: Vec::new(),
        style: Style::default(),
        trailing: Vec::new(),
        kind: ManifestKind::Other,
        label: "document".to_owned(),
        changed: false,
    };
    let found = match read(&work.body, line) {
        Ok(found) => found,
        Err((line, error)) => {
            let mut log = FindingLog {
                file: name,
                object: "document".to_owned(),
                findings,
            };
            let ours = about_us(&work.body);
            let template = work.body.contains("{{");
            let why = if template {
                "; it looks like a template: render it first (helm template), and convert the output"
            } else {
                ""
            };
            if ours {
                log.error(
                    Code::Unreadable,
                    line,
                    "",
                    format!("is not YAML and is not changed: {error}{why}"),
                );
            } else {
                log.converted(
                    Code::Unreadable,
                    line,
                    "",
                    format!("is not YAML, is not about nodes, and is not changed: {error}"),
                );
            }
            return vec![work];
        }
    };
    let Some(root) = found.root else {
        return vec![work];
    };
    work.style = found.style;
    work.trailing = found.trailing;
    let items = list_items(&root);
    if items
        .iter()
        .any(|item| kind_of(item) != ManifestKind::Other)
    {
        return items
            .into_iter()
            .enumerate()
            .map(|(index, item)| MigrationItem {
                file,
                separator: if index == 0 {
                    work.separator.clone()
                } else {
                    Some("---".to_owned())
                },
                body: yaml::yaml(&item, work.style),
                style: work.style,
                trailing: Vec::new(),
                kind: kind_of(&item),
                label: label(&item),
                changed: true,
                roots: vec![item],
            })
            .collect();
    }
    work.kind = kind_of(&root);
    work.label = label(&root);
    if found.aliases && work.kind != ManifestKind::Other {
        let mut log = FindingLog {
            file: name,
            object: work.label.clone(),
            findings,
        };
        log.converted(
            Code::Behaviour,
            root.line,
            "",
            "has anchors and aliases, which are written out if the object is changed",
        );
    }
    work.roots.push(root);
    vec![work]
}

/// The objects of a `List`.
pub(crate) fn list_items(root: &YamlNode) -> Vec<YamlNode> {
    let is_list = root
        .get("kind")
        .and_then(YamlNode::text)
        .is_some_and(|kind| kind.ends_with("List"));
    if !is_list {
        return Vec::new();
    }
    let items = root.get("items").map(YamlNode::items).unwrap_or_default();
    items.iter().map(|item| item.value.clone()).collect()
}

fn kind_of(root: &YamlNode) -> ManifestKind {
    let text = |key| root.get(key).and_then(YamlNode::text).unwrap_or_default();
    let (version, kind) = (text("apiVersion"), text("kind"));
    let (group, version) = version.split_once('/').unwrap_or((version, ""));
    let ours = |own: &str| group == own || group.is_empty();
    let age = match version {
        "v1beta1" => ManifestVersion::Beta,
        version if version.starts_with("v1alpha") => ManifestVersion::Alpha,
        _ => ManifestVersion::Now,
    };
    match kind {
        "Provisioner" if ours(GROUP) => ManifestKind::Pool(ManifestVersion::Alpha),
        "NodePool" if ours(GROUP) => ManifestKind::Pool(age),
        "AWSNodeTemplate" if ours(AWS_GROUP) => ManifestKind::Class(ManifestVersion::Alpha),
        "EC2NodeClass" if ours(AWS_GROUP) => ManifestKind::Class(age),
        "NodeClaim" if group == GROUP => ManifestKind::Claim,
        "Machine" if group == GROUP => ManifestKind::Machine,
        "" if group.is_empty() && is_part(root) => ManifestKind::Pool(ManifestVersion::Part),
        _ => ManifestKind::Other,
    }
}

/// A fragment of a NodePool, as documentation quotes them: without kind and name.
pub(crate) fn is_part(root: &YamlNode) -> bool {
    let words = [
        "budgets",
        "consolidateAfter",
        "consolidationPolicy",
        "expireAfter",
    ];
    let disrupts = |path: &[&str]| {
        root.at(path)
            .is_some_and(|node| words.iter().any(|word| node.get(word).is_some()))
    };
    disrupts(&["disruption"])
        || disrupts(&["spec", "disruption"])
        || root
            .at(&["spec", "template", "spec", "requirements"])
            .is_some()
}

fn convert(
    work: &mut MigrationItem,
    name: &str,
    options: &MigrateOptions,
    findings: &mut Vec<MigrationFinding>,
    expiries: &mut Vec<links::Expiry>,
) {
    let Some(root) = work.roots.first() else {
        return;
    };
    let before = root.clone();
    let mut root = before.clone();
    let mut log = FindingLog {
        file: name,
        object: work.label.clone(),
        findings,
    };
    let mut born = Vec::new();
    match work.kind {
        ManifestKind::Other => {
            unconverted::report(&root, &mut log);
            return;
        }
        ManifestKind::Machine => {
            log.error(Code::Unsupported, root.line, "", "a Machine is a running node and is not converted. Its node is replaced by a node of the new NodePool");
            return;
        }
        ManifestKind::Pool(age) => {
            if age == ManifestVersion::Part {
                log.warning(Code::Missing, root.line, "", "has no kind and no name: interpreted as a part of a NodePool. `kubectl patch nodepool NAME --type merge --patch-file FILE` applies it");
            }
            let Ok(inline) = pool::convert(&mut root, age, &mut log) else {
                return work.leave();
            };
            if let Some(inline) = inline {
                born.extend(inline_class(&root, inline, options, &mut log));
            }
        }
        ManifestKind::Class(age) => {
            let Ok(expiry) = class::convert(&mut root, age, options, &mut log) else {
                return work.leave();
            };
            if let (Some((text, line)), Some(class)) = (
                expiry,
                root.at(&["metadata", "name"]).and_then(YamlNode::text),
            ) {
                expiries.push(links::Expiry {
                    class: class.to_owned(),
                    text,
                    line,
                });
            }
        }
        ManifestKind::Claim => claim(&mut root, &mut log),
    }
    unconverted::placeholders(&before, &mut log);
    work.changed |= root != before || !born.is_empty();
    work.roots = vec![root];
    work.roots.extend(born);
}

/// The class that was part of a Provisioner.
fn inline_class(
    pool: &YamlNode,
    inline: yaml::MapEntry,
    options: &MigrateOptions,
    log: &mut FindingLog<'_>,
) -> Option<YamlNode> {
    let name = pool.at(&["spec", "template", "spec", "nodeClassRef", "name"])?;
    let mut class = edit::new_object(&format!("{AWS_GROUP}/v1"), "EC2NodeClass", name.clone());
    let mut spec = edit::instead("spec", inline.value, Vec::new());
    spec.notes.before = inline.notes.all(Vec::new());
    class.push(spec);
    // An unexpected structure was reported, and is kept as it is.
    class::convert(&mut class, ManifestVersion::Alpha, options, log).ok();
    Some(class)
}

fn claim(root: &mut YamlNode, log: &mut FindingLog<'_>) {
    if root.get("apiVersion").and_then(YamlNode::text) == Some("karpenter.sh/v1") {
        return;
    }
    set_type(root, &format!("{GROUP}/v1"), "NodeClaim", log);
    edit::strip_server_fields(root, log);
    if let Some(reference) = root.at_mut(&["spec", "nodeClassRef"]) {
        pool::class_reference(reference, "spec.nodeClassRef", log);
    }
    if let Some(kubelet) = root.at(&["spec", "kubelet"]) {
        log.error(
            Code::Kubelet,
            kubelet.line,
            "spec.kubelet",
            "belongs into an EC2NodeClass; a claim ignores it",
        );
    }
    if root.at(&["spec", "expireAfter"]).is_none()
        && matches!(root.get("spec"), Some(spec) if matches!(spec.content, NodeContent::Map { .. }))
    {
        root.make(&["spec"])
            .set("expireAfter", YamlNode::plain("Never"));
        log.warning(Code::Added, 0, "spec.expireAfter", "Never: the age stood in the pool alone, and the default takes the node by force after 720h");
    }
    log.warning(
        Code::Behaviour,
        root.line,
        "",
        "claims are made by the service: apply one only if you made it yourself",
    );
}
