//! Manifests of every age as `v1`: Provisioners and AWSNodeTemplates, `v1beta1`, and what people paste half right.
//!
//! A manifest that needs nothing comes back as it was, byte for byte. One that is changed keeps its order, its comments and
//! its quotes. Whatever is decided is a [`MigrationFinding`], and what cannot be decided is one too: meaning never changes in
//! silence. Objects of other kinds are passed through; what of them speaks of old names is reported.
//!
//! Must never: drop a field without a finding; guess where a user alone can know.

mod class;
mod disruption;
mod edit;
pub(crate) mod finding;
mod links;
mod pool;
mod requirements;
mod selectors;
pub(crate) mod unconverted;

use crate::yaml::{self, Document, Node, NodeContent, Style, documents, json, read};
use edit::set_type;
use finding::FindingLog;
use pool::ManifestVersion;

pub use finding::{Code, MigrationFinding, MigrationLevel};

use mortise_apis::schema::groups::{AWS_GROUP, GROUP};

/// A text with a name: a file, in most cases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFile {
    /// Its name; `.json` at the end makes changed objects JSON.
    pub name: String,
    /// Its text: YAML or JSON, any number of documents.
    pub text: String,
}

/// What only the user knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MigrateOptions {
    /// IAM role of classes that name none, instead of an instance profile too.
    pub role: Option<String>,
    /// Instance profile of classes that name neither.
    pub instance_profile: Option<String>,
}

/// What became of the sources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Migrated {
    /// The same sources in the same order, converted.
    pub files: Vec<SourceFile>,
    /// Every decision and every doubt, in the order of the sources and their lines.
    pub findings: Vec<MigrationFinding>,
    /// Objects that were changed.
    pub changed: usize,
    /// Objects that were looked at and needed nothing, or are of other kinds.
    pub untouched: usize,
}

impl Migrated {
    /// The worst level of all findings.
    #[must_use]
    pub fn worst(&self) -> MigrationLevel {
        self.findings
            .iter()
            .map(|finding| finding.level)
            .max()
            .unwrap_or(MigrationLevel::Converted)
    }
}

/// An object of a cluster as a text of its own, without what the cluster wrote into it.
#[must_use]
pub fn of_cluster(object: &serde_json::Value) -> SourceFile {
    let mut root = Node::of(object);
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

/// What an object is to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ManifestKind {
    Pool(ManifestVersion),
    Class(ManifestVersion),
    Claim,
    Machine,
    Other,
}

/// An object on its way.
struct MigrationItem {
    /// Index of the source.
    file: usize,
    /// Separator line that goes before it.
    separator: Option<String>,
    /// The text as it was.
    body: String,
    /// What it became: several where one object gave birth to others.
    roots: Vec<Node>,
    style: Style,
    /// Comments below everything.
    trailing: Vec<String>,
    kind: ManifestKind,
    /// Kind and name in the source.
    label: String,
    changed: bool,
}

impl MigrationItem {
    /// It stays as it is, and nothing is put into it for the sake of others.
    const fn leave(&mut self) {
        self.kind = ManifestKind::Other;
    }
}

/// Converts all sources together: what pools and classes have to do with each other is looked up in all of them.
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
    links::settle(&mut works, sources, &expiries, &mut findings);
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
        // What has no line comes after what has one, object by object.
        let file = sources
            .iter()
            .position(|source| source.name == finding.file);
        let own = |work: &&MigrationItem| Some(work.file) == file && work.label == finding.object;
        let after =
            |work: &MigrationItem| work.roots.first().map_or(0, |root| root.line) > finding.line;
        let of_label = works.iter().filter(own).count();
        let object = if of_label > 1 && finding.line > 0 {
            // Parts have no names: the last one that begins above the line.
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
pub(crate) fn label(root: &Node) -> String {
    let text = |path: &[&str]| root.at(path).and_then(Node::text).map(str::to_owned);
    match (text(&["kind"]), text(&["metadata", "name"])) {
        (Some(kind), Some(name)) => format!("{kind} {name}"),
        (Some(kind), None) => kind,
        (None, _) => "part of a NodePool".to_owned(),
    }
}

/// Whether a text that cannot be read is about us.
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
pub(crate) fn list_items(root: &Node) -> Vec<Node> {
    let is_list = root
        .get("kind")
        .and_then(Node::text)
        .is_some_and(|kind| kind.ends_with("List"));
    if !is_list {
        return Vec::new();
    }
    let items = root.get("items").map(Node::items).unwrap_or_default();
    items.iter().map(|item| item.value.clone()).collect()
}

fn kind_of(root: &Node) -> ManifestKind {
    let text = |key| root.get(key).and_then(Node::text).unwrap_or_default();
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

/// A piece of a pool, as texts quote them: without kind and name.
pub(crate) fn is_part(root: &Node) -> bool {
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
            if let (Some((text, line)), Some(class)) =
                (expiry, root.at(&["metadata", "name"]).and_then(Node::text))
            {
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

/// The class that stood inside a Provisioner.
fn inline_class(
    pool: &Node,
    inline: yaml::MapEntry,
    options: &MigrateOptions,
    log: &mut FindingLog<'_>,
) -> Option<Node> {
    let name = pool.at(&["spec", "template", "spec", "nodeClassRef", "name"])?;
    let mut class = Node::map();
    class.set("apiVersion", Node::plain(&format!("{AWS_GROUP}/v1")));
    class.set("kind", Node::plain("EC2NodeClass"));
    class.make(&["metadata"]).set("name", name.clone());
    let mut spec = edit::instead("spec", inline.value, Vec::new());
    spec.notes.before = inline.notes.all(Vec::new());
    class.push(spec);
    // One of another shape was reported, and is written as it stood.
    class::convert(&mut class, ManifestVersion::Alpha, options, log).ok();
    Some(class)
}

fn claim(root: &mut Node, log: &mut FindingLog<'_>) {
    if root.get("apiVersion").and_then(Node::text) == Some("karpenter.sh/v1") {
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
            .set("expireAfter", Node::plain("Never"));
        log.warning(Code::Added, 0, "spec.expireAfter", "Never: the age stood in the pool alone, and the default takes the node by force after 720h");
    }
    log.warning(
        Code::Behaviour,
        root.line,
        "",
        "claims are made by the service: apply one only if you made it yourself",
    );
}
