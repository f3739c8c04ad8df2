//! Rules of the house that no compiler checks: no cycles of modules, impl blocks that stay together, decisions that stay typed,
//! words that are retired, dependencies that are used. Today's violations of each rule are listed in `tests/data/house`; a list
//! may only shrink.

mod cycles;
mod dependencies;
mod known;
mod modules;
mod text;

use std::collections::BTreeMap;

use anyhow::{Result, ensure};

use modules::Crate;

/// Violations by what they are, each with how often it occurs.
type Violations = BTreeMap<String, usize>;

#[test]
fn no_modules_of_a_crate_import_each_other() -> Result<()> {
    let mut found = Violations::new();
    for each in Crate::all()? {
        cycles::find(&each, &mut found);
    }
    known::compare("module_cycles", &found)
}

#[test]
fn a_module_re_exports_only_its_children() -> Result<()> {
    let mut found = Violations::new();
    for each in Crate::all()? {
        for (module, path) in each.re_exports() {
            found.insert(format!("{}: {module} re-exports {path}", each.name), 1);
        }
    }
    known::compare("re_exports", &found)
}

/// Inherent impls of a type in more files than this are several types that share a name.
const FILES_OF_A_TYPE: usize = 3;

#[test]
fn impl_blocks_of_a_type_stay_together() -> Result<()> {
    let mut found = Violations::new();
    for each in Crate::all()? {
        for (name, files) in each.inherent_impls() {
            if files.len() > FILES_OF_A_TYPE {
                found.insert(format!("{}: {name}", each.name), files.len());
            }
        }
    }
    known::compare("scattered_impls", &found)
}

#[test]
fn type_names_occur_once_in_a_crate() -> Result<()> {
    let mut found = Violations::new();
    for each in Crate::all()? {
        for (name, count) in each.type_names() {
            if count > 1 {
                found.insert(format!("{}: {name}", each.name), count);
            }
        }
    }
    known::compare("repeated_names", &found)
}

/// A file that no module names is not compiled, and its tests run nowhere.
#[test]
fn no_source_is_forgotten() -> Result<()> {
    let forgotten = text::forgotten_sources()?;
    ensure!(forgotten.is_empty(), "no module names {forgotten:?}");
    Ok(())
}

#[test]
fn decisions_stay_typed() -> Result<()> {
    known::compare("untyped_decisions", &text::untyped_decisions()?)
}

#[test]
fn clouds_are_named_by_their_providers_alone() -> Result<()> {
    known::compare("cloud_names", &text::cloud_names()?)
}

#[test]
fn retired_words_do_not_come_back() -> Result<()> {
    known::compare("retired_words", &text::retired_words()?)
}

/// Law 3: whoever can write to the API server is in these folders. The lint finds the types, this test the exceptions from it.
#[test]
fn clients_that_can_write_stay_with_the_effects() -> Result<()> {
    text::allowed_clients(&["client", "effects"])
}

#[test]
fn every_dependency_is_named_by_a_source() -> Result<()> {
    dependencies::check()
}
