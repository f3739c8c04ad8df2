//! Sources of the manifests.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use mortise_controller::{Clients, RunError};
use mortise_manifests::migrate::{SourceFile, from_cluster};

/// Name of standard input.
pub(in crate::cli) const STDIN: &str = "<stdin>";

/// Kinds that are listed in a cluster: kind, plural, group and versions, the newest first.
const KINDS: [(&str, &str, &str, &[&str]); 4] = [
    ("Provisioner", "provisioners", "karpenter.sh", &["v1alpha5"]),
    (
        "AWSNodeTemplate",
        "awsnodetemplates",
        "karpenter.k8s.aws",
        &["v1alpha1"],
    ),
    ("NodePool", "nodepools", "karpenter.sh", &["v1", "v1beta1"]),
    (
        "EC2NodeClass",
        "ec2nodeclasses",
        "karpenter.k8s.aws",
        &["v1", "v1beta1"],
    ),
];

/// The texts of files, directories and standard input, in the order given; directories by name.
pub(super) fn read(paths: &[PathBuf]) -> anyhow::Result<Vec<SourceFile>> {
    let mut sources: Vec<SourceFile> = Vec::new();
    for path in paths {
        if path == Path::new("-") {
            push(&mut sources, STDIN.to_owned(), text_of(path)?)?;
        } else if path.is_dir() {
            let mut files = Vec::new();
            manifests_below(path, &mut files)?;
            files.sort();
            for file in files {
                let name = file.strip_prefix(path).unwrap_or(&file);
                push(&mut sources, name.display().to_string(), text_of(&file)?)?;
            }
        } else {
            let name = path.file_name().unwrap_or(path.as_os_str());
            let name = Path::new(name).display().to_string();
            push(&mut sources, name, text_of(path)?)?;
        }
    }
    Ok(sources)
}

fn push(sources: &mut Vec<SourceFile>, name: String, text: String) -> anyhow::Result<()> {
    if sources.iter().any(|source| source.name == name) {
        bail!(RunError::Usage(format!(
            "two inputs have the name {name:?}; convert them one after the other, or give the directory above"
        )));
    }
    sources.push(SourceFile { name, text });
    Ok(())
}

/// The text of a file, or of standard input for `-`.
pub(in crate::cli) fn text_of(path: &Path) -> anyhow::Result<String> {
    if path == Path::new("-") {
        let mut text = String::new();
        std::io::stdin()
            .read_to_string(&mut text)
            .context("standard input is no UTF-8 text")?;
        return Ok(text);
    }
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Adds every manifest below a directory, except in linked directories.
pub(in crate::cli) fn manifests_below(dir: &Path, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    let place = || format!("cannot read {}", dir.display());
    for entry in std::fs::read_dir(dir).with_context(place)? {
        let entry = entry.with_context(place)?;
        let path = entry.path();
        // A link may create a cycle.
        let kind = entry.file_type().with_context(place)?;
        if kind.is_dir() {
            manifests_below(&path, files)?;
        } else if path
            .extension()
            .is_some_and(|end| end == "yaml" || end == "yml" || end == "json")
        {
            files.push(path);
        }
    }
    Ok(())
}

/// The objects of a cluster, each as a separate file. The cluster is not modified.
pub(super) async fn live(kubeconfig: Option<&Path>) -> anyhow::Result<Vec<SourceFile>> {
    let clients = Clients::from_kubeconfig(kubeconfig, None).await?;
    let mut sources = Vec::new();
    let mut served = false;
    for (kind, plural, group, versions) in KINDS {
        for version in versions {
            let resource = ApiResource::from_gvk_with_plural(
                &GroupVersionKind::gvk(group, version, kind),
                plural,
            );
            let api: Api<DynamicObject> = Api::all_with(clients.main.clone(), &resource);
            let list = match api.list(&ListParams::default()).await {
                Ok(list) => list,
                // Not served in this version.
                Err(kube::Error::Api(status)) if status.code == 404 => continue,
                Err(kube::Error::Api(status)) if status.code == 403 => {
                    bail!(RunError::Forbidden {
                        who: "this user".to_owned(),
                        rights: vec![format!("list {plural}.{group}")],
                        option: "",
                    });
                }
                Err(error) => {
                    return Err(error)
                        .with_context(|| format!("cannot list {plural}.{group} of the cluster"));
                }
            };
            served = true;
            for mut object in list.items {
                object.types = Some(kube::core::TypeMeta {
                    api_version: format!("{group}/{version}"),
                    kind: kind.to_owned(),
                });
                sources.push(from_cluster(&serde_json::to_value(&object)?));
            }
            break;
        }
    }
    if !served {
        bail!(RunError::CrdsMissing {
            names: KINDS
                .iter()
                .map(|(_, plural, group, _)| format!("{plural}.{group}"))
                .collect(),
        });
    }
    Ok(sources)
}
