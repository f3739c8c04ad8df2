//! The command line of Cluster Autoscaler in a manifest.

use super::flags::{FlagType, find};
use crate::migrate::finding::{Code, FindingLog};
use crate::yaml::YamlNode;

/// A flag as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FlagUse {
    /// Without dashes before it; underscores are dashes, as for the program.
    pub(super) name: String,
    /// `None` without a value: true for a switch.
    pub(super) value: Option<String>,
    /// Line in the source.
    pub(super) line: usize,
}

/// The words of the container that runs Cluster Autoscaler, with their lines; `None` if no container does.
pub(super) fn words(root: &YamlNode) -> Option<Vec<(String, usize)>> {
    let specs: [&[&str]; 3] = [
        &["spec", "template", "spec"],
        &["spec"],
        &["spec", "jobTemplate", "spec", "template", "spec"],
    ];
    specs
        .iter()
        .filter_map(|path| root.at(path)?.get("containers"))
        .flat_map(YamlNode::items)
        .find_map(|container| of_container(&container.value))
}

fn of_container(container: &YamlNode) -> Option<Vec<(String, usize)>> {
    let texts = |key: &str| {
        let items = container.get(key).map(YamlNode::items).unwrap_or_default();
        items
            .iter()
            .filter_map(|item| Some((item.value.text()?.to_owned(), item.value.line)))
            .collect::<Vec<_>>()
    };
    let mut words = texts("command");
    words.extend(texts("args"));
    let image = container
        .get("image")
        .and_then(YamlNode::text)
        .unwrap_or_default();
    let program = |text: &str| {
        let name = text.rsplit('/').next().unwrap_or_default();
        let name = name.split([':', '@']).next().unwrap_or_default();
        name.starts_with("cluster-autoscaler")
    };
    let words: Vec<(String, usize)> = words
        .into_iter()
        .flat_map(|(text, line)| split(&text, line))
        .collect();
    let called = |(word, _): &(String, usize)| !word.starts_with('-') && program(word);
    (program(image) || words.iter().any(called)).then_some(words)
}

/// The words of one item: a line for a shell is several, up to the end of its first command.
fn split(text: &str, line: usize) -> Vec<(String, usize)> {
    let is_script = !text.starts_with('-') && (text.contains(" -") || text.contains("\n-"));
    if !is_script {
        return vec![(text.trim().to_owned(), line)];
    }
    text.split_whitespace()
        .take_while(|word| !word.starts_with(['|', ';', '>', '&', '#']) && *word != "1>>")
        .filter(|word| *word != "\\")
        .map(|word| (word.replace(['"', '\''], ""), line))
        .collect()
}

/// The flags among the words. What cannot be a flag is reported.
pub(super) fn parse(words: &[(String, usize)], log: &mut FindingLog<'_>) -> Vec<FlagUse> {
    let begins = |(word, _): &(String, usize)| word.starts_with('-') && word != "-c";
    let first = words.iter().position(begins).unwrap_or(words.len());
    let mut rest = words.iter().skip(first).peekable();
    let mut found: Vec<FlagUse> = Vec::new();
    let mut last_is_switch = false;
    while let Some((word, line)) = rest.next() {
        let Some(flag) = word.strip_prefix('-') else {
            let before = found.last().map_or("", |flag| flag.name.as_str());
            if last_is_switch {
                log.warning(Code::Unreadable, *line, &format!("--{before}"), format!("{word:?} after it is not its value: a switch is on, and off with --{before}=false"));
            } else {
                log.warning(
                    Code::Unreadable,
                    *line,
                    "",
                    format!("{word:?} is no flag and is left out"),
                );
            }
            continue;
        };
        let flag = flag.strip_prefix('-').unwrap_or(flag);
        let (name, value) = match flag.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (flag, None),
        };
        let name = name.replace('_', "-");
        let row = find(&name);
        last_is_switch = value.is_none() && row.is_some_and(|row| row.value == FlagType::Bool);
        let is_word = |(word, _): &&(String, usize)| !word.starts_with("--");
        let value = match value {
            None if !last_is_switch => rest.next_if(is_word).map(|(word, _)| word.clone()),
            value => value,
        };
        let value = value.map(|text| text.trim_matches(['"', '\'']).to_owned());
        found.push(FlagUse {
            name,
            value,
            line: *line,
        });
    }
    found
}
