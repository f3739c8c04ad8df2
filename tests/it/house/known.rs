//! Lists of known violations. They may only shrink: a new violation fails, and so does a listed one that is gone.

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};

use super::Violations;

/// Set to rewrite a list that has shrunk.
const UPDATE: &str = "UPDATE_EXPECT";

fn file(list: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("data/house")
        .join(format!("{list}.txt"))
}

fn read(list: &str) -> Result<Violations> {
    let file = file(list);
    let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    let lines = text.lines().filter(|line| !line.is_empty());
    lines
        .map(|line| {
            let (count, what) = line
                .trim_start()
                .split_once(' ')
                .context("count and what")?;
            Ok((what.to_owned(), count.parse().context(line.to_owned())?))
        })
        .collect()
}

fn write(list: &str, found: &Violations) -> Result<()> {
    let lines = found
        .iter()
        .map(|(what, count)| format!("{count:4} {what}\n"));
    Ok(std::fs::write(file(list), lines.collect::<String>())?)
}

/// Compares what was found with the list.
///
/// # Errors
/// There are more violations than are listed, or fewer; `UPDATE_EXPECT=1` takes fewer into the list.
pub(super) fn compare(list: &str, found: &Violations) -> Result<()> {
    let known = read(list)?;
    let count = |of: &Violations, what: &String| of.get(what).copied().unwrap_or(0);
    let more: Vec<String> = found
        .iter()
        .filter(|(what, now)| **now > count(&known, what))
        .map(|(what, now)| format!("{now} instead of {}: {what}", count(&known, what)))
        .collect();
    if !more.is_empty() {
        bail!("new violations of {list}:\n{}", more.join("\n"));
    }
    let fewer: Vec<&String> = known
        .iter()
        .filter(|(what, before)| count(found, what) < **before)
        .map(|(what, _)| what)
        .collect();
    if fewer.is_empty() {
        return Ok(());
    }
    if std::env::var_os(UPDATE).is_some() {
        return write(list, found);
    }
    bail!(
        "{} violations of {list} are gone, the first is {:?}: set {UPDATE}=1 to shorten the list",
        fewer.len(),
        fewer.first()
    )
}
