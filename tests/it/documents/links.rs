//! Relative links of the README and of the pages, and the summary of the book.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, Result};

/// Files below a folder that end like this, sorted.
pub(super) fn files(below: &Path, end: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![below.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
        for entry in entries {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == end) {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// The lines of a page outside of blocks of code, without code within them.
fn prose(text: &str) -> Vec<String> {
    let mut is_code = false;
    let mut lines = Vec::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code {
            lines.push(line.split('`').step_by(2).collect::<Vec<_>>().join("`"));
        }
    }
    lines
}

/// Targets of the links in a page.
fn targets(text: &str) -> Vec<String> {
    let text = prose(text).join("\n");
    let parts = text.split("](").skip(1);
    parts
        .filter_map(|part| part.split_once(')'))
        .map(|(target, _)| target.to_owned())
        .collect()
}

/// What a heading is called in a link: lower case, blanks as dashes, nothing else but letters, digits, dashes and underscores.
fn anchor(heading: &str) -> String {
    let mut shown = String::new();
    let mut rest = heading;
    while let Some((before, link)) = rest.split_once('[') {
        let (text, after) = link.split_once("](").unwrap_or((link, ""));
        shown.push_str(before);
        shown.push_str(text);
        rest = after.split_once(')').map_or("", |(_, after)| after);
    }
    shown.push_str(rest);
    let letters = shown.trim().chars().filter_map(|letter| match letter {
        ' ' => Some('-'),
        '-' | '_' => Some(letter),
        _ => letter
            .is_alphanumeric()
            .then(|| letter.to_ascii_lowercase()),
    });
    letters.collect()
}

fn anchors(text: &str) -> BTreeSet<String> {
    let mut is_code = false;
    let mut found = BTreeSet::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        }
        let heading = line.trim_start_matches('#');
        if !is_code && heading.len() < line.len() && heading.starts_with(' ') {
            found.insert(anchor(heading));
        }
    }
    found
}

/// A path without `.` and `..`.
fn normal(path: &Path) -> PathBuf {
    let mut all = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if all.file_name().is_some() => drop(all.pop()),
            other => all.push(other),
        }
    }
    all
}

/// Links that lead nowhere, and links of the book that leave it.
pub(super) fn broken(repository: &Path) -> Result<Vec<String>> {
    let root = repository.canonicalize()?;
    let book = root.join("docs");
    let mut pages = files(&book, "md")?;
    pages.push(root.join("README.md"));
    let mut broken = Vec::new();
    for page in &pages {
        let text = std::fs::read_to_string(page)?;
        let name = page.strip_prefix(&root)?.display().to_string();
        for target in targets(&text) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (path, fragment) = target.split_once('#').unwrap_or((&target, ""));
            let folder = page.parent().context("a page lies in a folder")?;
            let file = match path {
                "" => page.clone(),
                path => normal(&folder.join(path)),
            };
            let leaves = page.starts_with(&book) && !file.starts_with(&book);
            if leaves || !file.exists() {
                let why = if leaves {
                    "leaves the book"
                } else {
                    "leads nowhere"
                };
                broken.push(format!("{name}: {target} {why}"));
            } else if !fragment.is_empty()
                && !anchors(&std::fs::read_to_string(&file)?).contains(fragment)
            {
                broken.push(format!("{name}: {target}: there is no such heading"));
            }
        }
    }
    Ok(broken)
}

/// Pages that the summary does not list, or lists twice.
pub(super) fn not_listed_once(repository: &Path) -> Result<Vec<String>> {
    let book = repository.join("docs").canonicalize()?;
    let listed = targets(&std::fs::read_to_string(book.join("SUMMARY.md"))?);
    let mut wrong = Vec::new();
    for page in files(&book, "md")? {
        let name = page.strip_prefix(&book)?.display().to_string();
        let count = listed.iter().filter(|target| **target == name).count();
        if name != "SUMMARY.md" && count != 1 {
            wrong.push(format!("{name} is listed {count} times"));
        }
    }
    Ok(wrong)
}

#[test]
fn headings_have_the_anchors_that_are_linked() {
    for (heading, wanted) in [
        (" Where it runs", "where-it-runs"),
        (" `live` and *more*, 2", "live-and-more-2"),
        (" Serve `v1beta1`", "serve-v1beta1"),
        (" A [link](x.md), too", "a-link-too"),
    ] {
        assert_eq!(anchor(heading), wanted);
    }
    assert_eq!(
        targets("a `[b](c)` [d](e.md#f)\n```\n[g](h)\n```\n"),
        ["e.md#f"]
    );
}
