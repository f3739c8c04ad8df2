//! Dependencies that no source of their crate names: each is compiled, updated and audited for nothing. A module of a
//! dependency's name counts as naming it.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::modules::workspace;
use crate::edges::cargo;

/// Dependencies that are declared for another reason than their name in a source: crate, dependency, reason.
const UNNAMED: [(&str, &str, &str); 3] = [
    (
        "mortise-aws",
        "getrandom",
        "the SDK and proptest bring it with different features; with their union the SDK is compiled once for builds and tests",
    ),
    (
        "mortise-process",
        "fastrand",
        "the SDK brings it with more features; with their union the demo shares its artifacts",
    ),
    (
        "mortise-process",
        "syn",
        "dependencies of the SDK bring it with more features; with their union the demo shares its artifacts",
    ),
];

/// Compares the dependencies that no source names with the exceptions.
///
/// # Errors
/// A dependency is not named, an exception is not needed any more, or no crate takes an entry of the workspace's table.
pub(super) fn check() -> Result<()> {
    let metadata = cargo(&["metadata", "--no-deps", "--format-version", "1"])?;
    let metadata: Value = serde_json::from_str(&metadata)?;
    let (mut unnamed, mut declared) = (BTreeSet::new(), BTreeSet::new());
    for package in list(&metadata, "packages")? {
        let folder = Path::new(text(package, "manifest_path")?)
            .parent()
            .context("a manifest lies in a folder")?;
        let mut sources = Vec::new();
        read_sources(folder, &mut sources)?;
        for dependency in list(package, "dependencies")? {
            let name = text(dependency, "name")?;
            let written = dependency["rename"].as_str().unwrap_or(name);
            declared.insert(written.to_owned());
            let written = written.replace('-', "_");
            if !sources.iter().any(|source| does_name(source, &written)) {
                unnamed.insert((text(package, "name")?.to_owned(), name.to_owned()));
            }
        }
    }
    let exceptions: BTreeSet<(String, String)> = UNNAMED
        .iter()
        .map(|(package, name, _)| ((*package).to_owned(), (*name).to_owned()))
        .collect();
    let unused: Vec<_> = unnamed.difference(&exceptions).collect();
    ensure!(unused.is_empty(), "no source names {unused:?}: remove them");
    let needless: Vec<_> = exceptions.difference(&unnamed).collect();
    ensure!(needless.is_empty(), "no exception any more: {needless:?}");

    let manifest = std::fs::read_to_string(workspace().join("Cargo.toml"))?;
    let (_, table) = manifest
        .split_once("[workspace.dependencies]\n")
        .context("the workspace's table")?;
    let untaken: Vec<&str> = table
        .lines()
        .take_while(|line| !line.starts_with('['))
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| Some(line.split_once(" = ")?.0))
        .filter(|name| !declared.contains(*name))
        .collect();
    ensure!(untaken.is_empty(), "no crate depends on {untaken:?}");
    Ok(())
}

fn list<'a>(of: &'a Value, field: &str) -> Result<&'a Vec<Value>> {
    of[field].as_array().with_context(|| field.to_owned())
}

fn text<'a>(of: &'a Value, field: &str) -> Result<&'a str> {
    of[field].as_str().with_context(|| field.to_owned())
}

/// Code of the package in `folder`: its sources, tests, benches and build script, and what they take from elsewhere by
/// `#[path]`. Folders with a manifest of their own are other packages.
fn read_sources(folder: &Path, sources: &mut Vec<String>) -> Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() {
            let is_ours = !name.starts_with('.') && name != "target";
            if is_ours && !path.join("Cargo.toml").exists() {
                read_sources(&path, sources)?;
            }
        } else if name.ends_with(".rs") {
            let code = read_code(&path)?;
            for module in code.lines().filter_map(path_attribute) {
                let module = folder.join(module);
                match module.parent() {
                    Some(folder) if module.ends_with("mod.rs") => read_sources(folder, sources)?,
                    _ => sources.push(read_code(&module)?),
                }
            }
            sources.push(code);
        }
    }
    Ok(())
}

/// The file that `#[path = "..."]` names.
fn path_attribute(line: &str) -> Option<&str> {
    line.trim().strip_prefix("#[path = \"")?.strip_suffix("\"]")
}

/// A file without its comments.
fn read_code(file: &Path) -> Result<String> {
    let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
    let code = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    Ok(code.collect::<Vec<_>>().join("\n"))
}

/// Whether a path in the code begins with this name, or it is imported as a whole.
fn does_name(code: &str, name: &str) -> bool {
    code.match_indices(name).any(|(at, _)| {
        let (before, rest) = code.split_at(at);
        let after = rest.strip_prefix(name).unwrap_or_default();
        let begins = before.chars().next_back().is_none_or(|letter| {
            !letter.is_ascii_alphanumeric() && !['_', ':', '.'].contains(&letter)
        });
        let is_imported =
            before.ends_with("use ") && (after.starts_with(';') || after.starts_with(" as "));
        begins && (after.starts_with("::") || is_imported)
    })
}

#[test]
fn only_the_begin_of_a_path_names_a_crate() {
    for (code, want) in [
        ("use tower::Service;", true),
        ("use tower;", true),
        ("use tower as t;", true),
        ("tower::service_fn(call)", true),
        ("#[derive(tower::Layer)]", true),
        ("use tower_http::trace;", false),
        ("use crate::tower::Service;", false),
        ("let tower = 1;", false),
        ("my_tower::build()", false),
    ] {
        assert_eq!(does_name(code, "tower"), want, "{code}");
    }
}
