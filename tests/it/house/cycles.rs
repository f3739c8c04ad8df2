//! Modules at the root of a crate that import each other, directly or through others.

use std::collections::{BTreeMap, BTreeSet};

use super::Violations;
use super::modules::Crate;

/// Every name that is imported within a cycle.
pub(super) fn find(of: &Crate, found: &mut Violations) {
    let tops = of.top_modules();
    let mut names: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
    for each in of.uses() {
        let (Some(from), Some(to)) = (each.from.first(), each.path.first()) else {
            continue;
        };
        if from != to && tops.contains(to.as_str()) {
            let edge = (from.clone(), to.clone());
            let name = each.path.last().cloned().unwrap_or_default();
            names.entry(edge).or_default().insert(name);
        }
    }
    let reached = reach(names.keys());
    for ((from, to), names) in &names {
        let is_in_cycle = reached.get(to).is_some_and(|all| all.contains(from));
        for name in names.iter().filter(|_| is_in_cycle) {
            found.insert(format!("{}: {from} -> {to}: {name}", of.name), 1);
        }
    }
}

/// What can be reached from each module.
fn reach<'e>(
    edges: impl Iterator<Item = &'e (String, String)>,
) -> BTreeMap<String, BTreeSet<String>> {
    let mut reached: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (from, to) in edges {
        reached.entry(from.clone()).or_default().insert(to.clone());
    }
    loop {
        let before: usize = reached.values().map(BTreeSet::len).sum();
        let sources: Vec<String> = reached.keys().cloned().collect();
        for from in sources {
            let further: BTreeSet<String> = reached
                .get(&from)
                .into_iter()
                .flatten()
                .filter_map(|to| reached.get(to))
                .flatten()
                .cloned()
                .collect();
            reached.entry(from).or_default().extend(further);
        }
        if reached.values().map(BTreeSet::len).sum::<usize>() == before {
            return reached;
        }
    }
}
