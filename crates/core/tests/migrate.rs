//! `migrate`: what becomes of manifests of every age, with their comments, and what is said about them.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "test support: a panic is its failure"
)]

use std::path::Path;

use expect_test::{Expect, expect, expect_file};
use mortise_core::migrate::{Level, Migrated, Options, Source, migrate};

fn source(name: &str, text: &str) -> Source {
    Source {
        name: name.to_owned(),
        text: text.to_owned(),
    }
}

fn run(text: &str) -> Migrated {
    migrate(&[source("in.yaml", text)], &Options::default())
}

fn report(migrated: &Migrated) -> String {
    let lines: Vec<String> = migrated
        .findings
        .iter()
        .map(|each| {
            let field = if each.field.is_empty() {
                "-"
            } else {
                &each.field
            };
            format!(
                "{} {}:{} {} {field}: {}\n",
                each.level.label(),
                each.file,
                each.line,
                each.object,
                each.text
            )
        })
        .collect();
    lines.concat()
}

/// The text after it, and the findings after that.
#[track_caller]
fn becomes(text: &str, want: &Expect) {
    let migrated = run(text);
    want.assert_eq(&format!(
        "{}======\n{}",
        migrated.files[0].text,
        report(&migrated)
    ));
}

/// Converting what was converted changes nothing more.
#[track_caller]
fn settled(migrated: &Migrated) {
    let again = migrate(&migrated.files, &Options::default());
    assert_eq!(again.files, migrated.files, "{}", report(&again));
    assert_eq!(again.changed, 0);
}

#[test]
fn pasted_manifests() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/manifests");
    let mut names: Vec<String> = std::fs::read_dir(&data)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".yaml"))
        .collect();
    names.sort();
    assert!(names.len() >= 7, "{names:?}");
    for name in names {
        let text = std::fs::read_to_string(data.join(&name)).unwrap();
        let migrated = migrate(&[source(&name, &text)], &Options::default());
        let stem = name.trim_end_matches(".yaml");
        expect_file![data.join(format!("migrated/{stem}.yaml"))].assert_eq(&migrated.files[0].text);
        expect_file![data.join(format!("migrated/{stem}.report"))].assert_eq(&report(&migrated));
        settled(&migrated);
    }
}
