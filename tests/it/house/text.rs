//! Text in sources and documents: JSON where decisions are made, names of clouds, retired words.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

use super::Violations;
use super::modules::workspace;

/// Where decisions are made, and where they are shown.
const TYPED: [&str; 5] = [
    "crates/planning/src",
    "crates/engine/src",
    "crates/deciders/src",
    "crates/controller/src/metrics",
    "crates/controller/src/serve/exposition",
];

/// The lint against types that can write to the API server.
const CLIENT_LINT: &str = "clippy::disallowed_types";

/// What gives away that a decision is made or read as text.
const UNTYPED: [&str; 8] = [
    ".pointer(",
    "json!(",
    "Reason::Note",
    "split_once(\" (\")",
    "split(\"; \")",
    "rsplit_once(\"; \")",
    "Event::normal(",
    "Event::warning(",
];

/// Names that only a provider knows.
const CLOUDS: [&str; 7] = ["ec2", "aws", "kwok", "azure", "gke", "alibaba", "eks"];

/// Where clouds may be named: their providers, what composes the program, and the migration from APIs that were made for one.
const OF_CLOUDS: [&str; 4] = [
    "crates/providers/",
    "src/",
    "crates/demo/", // composes a cloud, as src does
    "crates/manifests/src/migrate/",
];

/// Sources and documents by area, for the words.
const AREAS: [(&str, &[&str]); 17] = [
    ("apis", &["crates/apis/src"]),
    ("cloudprovider", &["crates/cloudprovider/src"]),
    ("state", &["crates/state/src"]),
    ("planning", &["crates/planning/src"]),
    ("engine", &["crates/engine/src"]),
    ("deciders", &["crates/deciders/src"]),
    ("manifests", &["crates/manifests/src"]),
    ("controller", &["crates/controller/src"]),
    ("sim", &["crates/sim"]),
    ("aws", &["crates/providers/aws"]),
    ("kwok", &["crates/providers/kwok"]),
    ("webhooks", &["webhooks"]),
    ("command line", &["src"]),
    ("demo", &["crates/demo"]),
    ("process", &["crates/process"]),
    (
        "tests",
        &[
            "tests/it",
            "tests/src",
            "crates/apis/tests",
            "crates/state/tests",
            "crates/planning/tests",
            "crates/engine/tests",
            "crates/deciders/tests",
            "crates/manifests/tests",
            "benches",
            "fuzz/src",
        ],
    ),
    (
        "documents",
        &[
            "docs",
            "README.md",
            "CHANGELOG.md",
            "CONTRIBUTING.md",
            "SECURITY.md",
            "examples",
            "manifests/chart",
        ],
    ),
];

/// Sources and documents below a folder, or the file itself.
fn files(below: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    if below.is_dir() {
        for entry in std::fs::read_dir(below)? {
            files(&entry?.path(), found)?;
        }
        return Ok(());
    }
    let ending = below.extension().and_then(|ending| ending.to_str());
    if below.exists() && matches!(ending, Some("rs" | "md" | "yaml" | "html" | "js")) {
        found.push(below.to_owned());
    }
    Ok(())
}

/// Files below a path of the workspace with their texts, sorted by path; paths from the workspace's root.
fn texts(below: &str) -> Result<Vec<(String, String)>> {
    let root = workspace();
    ensure!(root.join(below).exists(), "{below} is not there any more");
    let mut found = Vec::new();
    files(&root.join(below), &mut found)?;
    found.sort();
    found
        .into_iter()
        .map(|file| {
            let name = file.strip_prefix(&root)?.to_string_lossy().into_owned();
            Ok((name, std::fs::read_to_string(&file)?))
        })
        .collect()
}

/// Files that are no crate's root and that no file next to or above them names as a module.
pub(super) fn forgotten_sources() -> Result<Vec<String>> {
    let all = [
        texts("crates")?,
        texts("tests")?,
        texts("benches")?,
        texts("src")?,
    ]
    .concat();
    let sources = all.into_iter().filter(|(file, _)| file.ends_with(".rs"));
    let sources: BTreeMap<PathBuf, String> =
        sources.map(|(file, text)| (file.into(), text)).collect();
    let mut named: BTreeSet<PathBuf> = BTreeSet::new();
    for (from, text) in &sources {
        let folder = from.parent().unwrap_or_else(|| Path::new(""));
        for line in text.lines().map(str::trim) {
            let path = line.strip_prefix("#[path = \"");
            if let Some(path) = path.and_then(|rest| rest.strip_suffix("\"]")) {
                named.insert(without_dots(&folder.join(path)));
            }
            let module = line
                .split_once("mod ")
                .and_then(|(_, rest)| rest.strip_suffix(';'));
            for folder in [folder.to_owned(), from.with_extension("")] {
                let below = module.map(|module| folder.join(module));
                named.extend(below.iter().map(|below| below.join("mod.rs")));
                named.extend(below.iter().map(|below| below.with_extension("rs")));
            }
        }
    }
    let is_root = |file: &Path| {
        let name = file.file_name().and_then(|name| name.to_str());
        let folder = file.parent().unwrap_or_else(|| Path::new(""));
        let of_roots = ["tests", "bin", "examples"].iter();
        let stands_alone = of_roots.into_iter().any(|each| folder.ends_with(each));
        matches!(name, Some("main.rs" | "lib.rs" | "build.rs"))
            || (stands_alone && !sources.contains_key(&folder.join("main.rs")))
    };
    let forgotten = sources
        .keys()
        .filter(|file| !is_root(file) && !named.contains(*file));
    Ok(forgotten.map(|file| file.display().to_string()).collect())
}

/// A path in which no folder is left again.
fn without_dots(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        if part == std::path::Component::ParentDir {
            plain.pop();
        } else {
            plain.push(part);
        }
    }
    plain
}

fn is_of_tests(file: &str) -> bool {
    file.contains("/tests") || file.ends_with("tests.rs")
}

/// Lines of code: no comments, and nothing after the unit tests begin.
fn code(text: &str) -> impl Iterator<Item = &str> {
    let lines = text
        .lines()
        .take_while(|line| line.trim() != "#[cfg(test)]");
    lines.filter(|line| !line.trim_start().starts_with("//"))
}

pub(super) fn untyped_decisions() -> Result<Violations> {
    let mut found = Violations::new();
    for folder in TYPED {
        for (file, text) in texts(folder)? {
            if is_of_tests(&file) {
                continue;
            }
            for what in UNTYPED {
                let count = code(&text).map(|line| line.matches(what).count()).sum();
                if count > 0 {
                    found.insert(format!("{file}: {what}"), count);
                }
            }
        }
    }
    Ok(found)
}

/// Sources of the shell that are exempt from the lint, tests apart.
///
/// # Errors
/// One of them is outside of these folders, or one of these folders needs no exception.
pub(super) fn allowed_clients(folders: &[&str]) -> Result<()> {
    const SHELL: &str = "crates/controller/src";
    let config = std::fs::read_to_string(workspace().join("crates/controller/clippy.toml"))?;
    for type_ in ["kube::Client", "kube::Api"] {
        ensure!(
            config.contains(&format!("\"{type_}\"")),
            "{type_} is allowed"
        );
    }
    let exempt: BTreeSet<String> = texts(SHELL)?
        .into_iter()
        .filter(|(file, text)| {
            !is_of_tests(file) && code(text).any(|line| line.contains(CLIENT_LINT))
        })
        .map(|(file, _)| file)
        .collect();
    let wanted = folders
        .iter()
        .map(|folder| format!("{SHELL}/{folder}/mod.rs"));
    ensure!(
        exempt == wanted.collect(),
        "exempt from {CLIENT_LINT}: {exempt:?}"
    );
    Ok(())
}

pub(super) fn cloud_names() -> Result<Violations> {
    let mut found = Violations::new();
    for folder in ["crates", "webhooks/src"] {
        for (file, text) in texts(folder)? {
            let may = OF_CLOUDS.iter().any(|own| file.starts_with(own));
            if may || is_of_tests(&file) || !file.ends_with(".rs") {
                continue;
            }
            let count = code(&text)
                .map(|line| line.replace("aws_lc_rs", "")) // a crypto library
                .map(|line| {
                    let words = line.split(|letter: char| !letter.is_ascii_alphanumeric());
                    words.filter(|word| is_of_a_cloud(word)).count()
                })
                .sum();
            if count > 0 {
                found.insert(file, count);
            }
        }
    }
    Ok(found)
}

/// A name of a cloud, or a name that begins with one in another case: `Ec2NodeClass`.
fn is_of_a_cloud(word: &str) -> bool {
    CLOUDS.iter().any(|cloud| {
        let Some((start, rest)) = word.split_at_checked(cloud.len()) else {
            return false;
        };
        let goes_on = rest.chars().next().is_none_or(|next| next.is_uppercase());
        start.eq_ignore_ascii_case(cloud) && goes_on
    })
}

/// Words that the glossary retires, by area. `tests/data/house/retired.txt` has one a line, with what to write instead.
pub(super) fn retired_words() -> Result<Violations> {
    let list = include_str!("../../data/house/retired.txt");
    let retired = list.lines().filter_map(|line| line.split_once(": "));
    let retired: Vec<Vec<&str>> = retired.map(|(word, _)| word.split(' ').collect()).collect();
    let mut found = Violations::new();
    for (area, folders) in AREAS {
        for folder in folders {
            for (_, text) in texts(folder)? {
                let words: Vec<String> = words(&text);
                for word in &retired {
                    let count = words.windows(word.len()).filter(|own| own == word).count();
                    if count > 0 {
                        *found
                            .entry(format!("{area}: {}", word.join(" ")))
                            .or_default() += count;
                    }
                }
            }
        }
    }
    Ok(found)
}

/// Words in lower case; names of types and variables are divided into theirs.
fn words(text: &str) -> Vec<String> {
    let mut all = Vec::new();
    for name in text.split(|letter: char| !letter.is_ascii_alphabetic()) {
        let (mut word, mut was_lower) = (String::new(), false);
        for letter in name.chars() {
            if letter.is_ascii_uppercase() && was_lower {
                all.push(std::mem::take(&mut word));
            }
            was_lower = letter.is_ascii_lowercase();
            word.push(letter.to_ascii_lowercase());
        }
        if !word.is_empty() {
            all.push(word);
        }
    }
    all
}
