//! Selectors of the first releases, maps with lists of values, as lists of terms.

use super::edit::instead;
use super::finding::{Code, FindingLog};
use crate::yaml::{MapEntry, YamlNode};

/// Maximum number of terms.
const MAX_TERMS: usize = 30;

/// Type of selector.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    Subnets,
    Groups,
    Images,
}

pub(crate) fn convert(spec: &mut YamlNode, log: &mut FindingLog<'_>) {
    for (old, new, of) in [
        ("amiSelector", "amiSelectorTerms", Of::Images),
        ("subnetSelector", "subnetSelectorTerms", Of::Subnets),
        (
            "securityGroupSelector",
            "securityGroupSelectorTerms",
            Of::Groups,
        ),
    ] {
        let place = spec
            .entries()
            .iter()
            .position(|entry| entry.key.text == old);
        let removed = spec.remove(old).filter(|entry| !entry.value.is_nothing());
        if let (Some(entry), Some(place)) = (removed, place) {
            selector(spec, entry, place, old, new, of, log);
        }
        let missing = spec.get(new).is_none_or(|terms| terms.items().is_empty());
        if missing && of != Of::Images {
            log.error(
                Code::Missing,
                0,
                &format!("spec.{new}"),
                "needed: which ones belong to the cluster, by tags or id",
            );
        }
    }
}

fn selector(
    spec: &mut YamlNode,
    entry: MapEntry,
    place: usize,
    old: &str,
    new: &str,
    of: Of,
    log: &mut FindingLog<'_>,
) {
    let line = entry.value.line;
    let field = format!("spec.{old}");
    if spec.get(new).is_some_and(|terms| !terms.items().is_empty()) {
        log.warning(
            Code::Removed,
            line,
            &field,
            format!(
                "{} stays; the selector is dropped",
                format_args!("spec.{new}")
            ),
        );
        return;
    }
    let terms = terms(&entry.value, of, &field, log);
    if terms.is_empty() || terms.len() > MAX_TERMS {
        log.error(
            Code::Unsupported,
            line,
            &field,
            format!(
                "would be {} terms; there must be 1 to {MAX_TERMS}",
                terms.len()
            ),
        );
    }
    log.converted(
        Code::Selector,
        line,
        &field,
        format!(
            "is {} of spec.{new} now",
            match terms.len() {
                1 => "one term".to_owned(),
                count => format!("{count} terms, any of which may match,"),
            }
        ),
    );
    if of == Of::Images {
        log.warning(Code::Behaviour, line, &field, "AMI tags for an architecture or instance type are ignored: the newest compatible AMI is used");
    }
    let comments = entry.comments();
    let mut entry = instead(new, YamlNode::list(terms), Vec::new());
    entry.notes.before = comments;
    if let Some(entries) = spec.entries_mut() {
        entries.insert(place.min(entries.len()), entry);
    }
}

/// Terms of a selector: each ID is a term of its own, everything else is the product of its values.
fn terms(selector: &YamlNode, of: Of, field: &str, log: &mut FindingLog<'_>) -> Vec<YamlNode> {
    let mut ids: Vec<String> = Vec::new();
    let mut axes: Vec<(String, Vec<String>)> = Vec::new();
    let mut owners: Vec<String> = Vec::new();
    let mut names: Vec<String> = Vec::new();
    for entry in selector.entries() {
        let values: Vec<String> = entry
            .value
            .text()
            .into_iter()
            .flat_map(|text| text.split(','))
            .map(|value| value.trim().to_owned())
            .filter(|value| !value.is_empty())
            .collect();
        if values.is_empty() {
            log.error(
                Code::Unreadable,
                entry.value.line,
                field,
                format!("{} has no value", entry.key.text),
            );
            continue;
        }
        match entry.key.text.as_str() {
            "aws-ids" | "aws::ids" => ids.extend(values),
            "aws::name" if of == Of::Images => names.extend(values),
            "aws::owners" if of == Of::Images => owners.extend(values),
            key => axes.push((key.to_owned(), values)),
        }
    }
    let with_ids = !ids.is_empty();
    if with_ids && !(axes.is_empty() && names.is_empty()) {
        log.warning(Code::Selector, selector.line, field, "IDs were combined with tags, and both had to match; a term with an ID may not have other fields, so the tags are dropped");
    }
    if with_ids {
        return ids
            .into_iter()
            .map(|id| {
                let mut term = YamlNode::map();
                term.set("id", YamlNode::string(&id));
                term
            })
            .collect();
    }
    let mut products: Vec<Vec<(String, String)>> = vec![Vec::new()];
    for (key, values) in &axes {
        products = products
            .iter()
            .flat_map(|product| {
                values.iter().map(|value| {
                    let mut product = product.clone();
                    product.push((key.clone(), value.clone()));
                    product
                })
            })
            .take(MAX_TERMS * MAX_TERMS)
            .collect();
    }
    let or_none = |list: Vec<String>| {
        if list.is_empty() {
            vec![None]
        } else {
            list.into_iter().map(Some).collect::<Vec<_>>()
        }
    };
    let (names, owners) = (or_none(names), or_none(owners));
    let mut terms = Vec::new();
    for product in &products {
        for name in &names {
            for owner in &owners {
                let mut term = YamlNode::map();
                if !product.is_empty() {
                    let tags = term.make(&["tags"]);
                    for (key, value) in product {
                        tags.set(key, YamlNode::string(value));
                    }
                }
                if let Some(name) = name {
                    term.set("name", YamlNode::string(name));
                }
                if let Some(owner) = owner {
                    term.set("owner", YamlNode::string(owner));
                }
                if !term.entries().is_empty() {
                    terms.push(term);
                }
            }
        }
    }
    terms
}
