//! The documentation: links and anchors resolve, the book lists every page, quoted output occurs in the test that produces it, and
//! the tables of the reference pages are those of the code. `UPDATE_EXPECT=1` rewrites the tables.

mod links;
mod page;
mod quotes;
mod tables;
mod walks;

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use mortise_tests::harness::Mortise;
use mortise_webhooks::admission::Check;

use crate::command;

use page::Page;

fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}

#[test]
fn links_and_anchors_resolve() -> Result<()> {
    let broken = links::broken(&repository())?;
    ensure!(broken.is_empty(), "broken links:\n{}", broken.join("\n"));
    Ok(())
}

#[test]
fn the_book_lists_every_page_once() -> Result<()> {
    let wrong = links::not_listed_once(&repository())?;
    ensure!(wrong.is_empty(), "docs/SUMMARY.md:\n{}", wrong.join("\n"));
    Ok(())
}

#[test]
fn quoted_output_occurs_in_the_test_that_it_names() -> Result<()> {
    let (count, wrong) = quotes::not_found(&repository())?;
    ensure!(wrong.is_empty(), "quoted output:\n{}", wrong.join("\n"));
    ensure!(count >= 8, "{count} quotes");
    Ok(())
}

#[test]
fn functions_of_the_walks_exist() -> Result<()> {
    let (count, wrong) = walks::not_found(&repository())?;
    ensure!(wrong.is_empty(), "walks:\n{}", wrong.join("\n"));
    ensure!(count >= 20, "{count} steps");
    Ok(())
}

#[test]
fn flags_are_those_of_the_command() -> Result<()> {
    let mut page = Page::open("reference/flags.md")?;
    page.compare("flags", &tables::flags(false))?;
    page.compare("accepted flags", &tables::flags(true))
}

#[test]
fn events_are_those_of_the_table() -> Result<()> {
    Page::open("reference/events.md")?.compare_with_notes("events", &tables::events())
}

#[test]
fn conditions_are_those_of_the_kinds() -> Result<()> {
    Page::open("reference/conditions.md")?.compare_with_notes("conditions", &tables::conditions())
}

#[test]
fn routes_are_those_of_the_table() -> Result<()> {
    Page::open("reference/debug-paths.md")?.compare_with_notes("routes", &tables::routes())
}

#[test]
fn admission_checks_are_those_of_the_table() -> Result<()> {
    Page::open("reference/admission.md")?.compare("checks", &tables::checks())?;
    let page = Page::open("reference/lint.md")?;
    for check in Check::ALL {
        // Nothing is deleted and no node drifts in files.
        ensure!(
            page.has_row(check.label()) || matches!(check, Check::Deletion | Check::Preview),
            "docs/reference/lint.md does not list {}",
            check.label()
        );
    }
    Ok(())
}

#[test]
fn fields_are_those_of_the_definitions() -> Result<()> {
    let mut page = Page::open("reference/crds.md")?;
    for (block, table) in tables::definitions(&repository())? {
        page.compare(&block, &table)?;
    }
    Ok(())
}

#[test]
fn alerts_are_those_of_the_rules() -> Result<()> {
    Page::open("tasks/alerts.md")?.compare("alerts", &tables::alerts())?;
    Page::open("reference/metrics.md")?.compare("earlier names", &tables::earlier_names())
}

#[test]
fn debug_paths_are_those_of_the_table() -> Result<()> {
    Page::open("reference/debug-paths.md")?.compare("debug paths", &tables::debug_paths())
}

/// Annotations and labels of mortise have no table: they are constants.
#[test]
fn annotations_are_those_of_the_sources() -> Result<()> {
    let mut sources = Vec::new();
    for folder in ["crates", "webhooks/src"] {
        sources.extend(links::files(&repository().join(folder), "rs")?);
    }
    let mut all = String::new();
    for source in &sources {
        all.push_str(&std::fs::read_to_string(source)?);
    }
    let all = all.replace("~1", "/");
    let page = Page::open("reference/annotations.md")?;
    for file in [
        "crates/apis/src/labels.rs",
        "crates/apis/src/conversion/annotations.rs",
    ] {
        let text = std::fs::read_to_string(repository().join(file))?;
        let keys = literals(&text, &["mortise.sh/", "registration.mortise.sh/"]);
        ensure!(keys.len() > 1, "{file}: {keys:?}");
        for key in keys {
            ensure!(
                page.has_row(&key),
                "docs/reference/annotations.md does not list {key}"
            );
        }
    }
    for key in page.first_cells("mortise.sh/") {
        ensure!(
            all.contains(&key),
            "{key} of docs/reference/annotations.md is in no source"
        );
    }
    Ok(())
}

/// The page shows what the example gives, to the last byte: one seed, one history, on every computer.
#[tokio::test]
async fn the_page_about_simulations_shows_what_they_give() -> Result<()> {
    let mut page = Page::open("tasks/simulate.md")?;
    let compared = ["--compare", "karpenter"];
    let alone = ["--compare", "mortise-alone", "--seeds", "5"];
    for (block, file, args) in [
        ("busy morning", "busy-morning.yaml", &[][..]),
        ("busy morning, compared", "busy-morning.yaml", &compared),
        (
            "busy morning, without extender",
            "busy-morning.yaml",
            &alone,
        ),
        (
            "busy morning, with longer batches",
            "busy-morning.yaml",
            &[
                "--compare-set",
                "batch-idle-duration=10s",
                "--compare-set",
                "batch-max-duration=30s",
            ],
        ),
        ("eventful afternoon", "eventful-afternoon.yaml", &[]),
        ("gangs", "gangs.yaml", &[]),
    ] {
        let example = repository().join("examples/scenarios").join(file);
        let example = example.display().to_string();
        let args = [&[example.as_str()], args].concat();
        let played = command::run("simulate", &args, None).await?;
        ensure!(played.code == 0, "{played:?}");
        page.compare(block, &format!("```text\n{}```\n", played.stdout))?;
    }
    let file = repository().join("tests/data/plan/shop.snapshot");
    let args = [
        "--cluster",
        &file.display().to_string(),
        "--compare",
        "karpenter",
    ];
    let played = command::run("simulate", &args, None).await?;
    ensure!(played.code == 0, "{played:?}");
    page.compare(
        "shop, compared",
        &format!("```text\n{}```\n", played.stdout),
    )?;
    Ok(())
}

/// The page shows plans of a snapshot of a simulated cluster, to the last byte.
#[tokio::test]
async fn the_page_about_plans_shows_what_they_are() -> Result<()> {
    let file = repository().join("tests/data/plan/shop.snapshot");
    let file = file.display().to_string();
    let mut page = Page::open("tasks/plan.md")?;
    for (block, args) in [
        ("shop", vec![]),
        ("shop without a zone", vec!["--lose-zone", "us-east-1a"]),
    ] {
        let args = [vec![file.as_str()], args].concat();
        let planned = command::run("plan", &args, None).await?;
        ensure!(planned.code == 0, "{planned:?}");
        page.compare(block, &format!("```text\n{}```\n", planned.stdout))?;
    }
    Ok(())
}

/// What is wrong in a scenario is named with its file and line.
#[tokio::test]
async fn a_wrong_scenario_is_answered_with_its_place() -> Result<()> {
    let example = repository().join("examples/scenarios/busy-morning.yaml");
    let text = std::fs::read_to_string(example)?;
    for (from, to, said) in [
        (
            "timeline:",
            "timelin:",
            "<stdin>:10: spec.timelin: unknown \"timelin\"",
        ),
        (
            "crash: {}",
            "crahs: {}",
            "<stdin>:15: spec.timeline[4].crahs: unknown \"crahs\"",
        ),
        (
            "deployment: web, replicas: 90",
            "deployment: wep, replicas: 90",
            "did you mean \"web\"?",
        ),
        (
            "kind: PodDisruptionBudget",
            "kind: PodDisruptionBudgets",
            "did you mean \"PodDisruptionBudget\"?",
        ),
        (
            "consolidateAfter: 1m",
            "consolidateAfter: 1x",
            "<stdin>:25: \"1x\" is not a duration",
        ),
        (
            "kind: Scenario",
            "kind: Scenery",
            "kind: unknown \"Scenery\"",
        ),
    ] {
        ensure!(text.contains(from), "the example has no {from:?}");
        let wrong = text.replace(from, to);
        let answered = command::run("simulate", &["-"], Some(&wrong)).await?;
        ensure!(
            answered.code == 8 && answered.stderr.contains(said),
            "{from:?} as {to:?}: {answered:?}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn exit_codes_are_those_of_the_help() -> Result<()> {
    let help = Mortise::output(&["--help"]).await?;
    let (_, codes) = help.split_once("Exit codes:").context("exit codes")?;
    let codes = codes.split(|letter: char| !letter.is_ascii_alphanumeric());
    let codes: BTreeSet<u8> = codes.filter_map(|word| word.parse().ok()).collect();
    let page = Page::open("reference/exit-codes.md")?;
    let listed: BTreeSet<u8> = page
        .first_cells("")
        .iter()
        .filter_map(|cell| cell.parse().ok())
        .collect();
    ensure!(
        codes == listed && codes.len() >= 9,
        "the help has {codes:?}, docs/reference/exit-codes.md {listed:?}"
    );
    Ok(())
}

/// The text literals of a source that begin with one of these.
fn literals(source: &str, begins: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for begin in begins {
        let quoted = format!("\"{begin}");
        let after = source.split(&quoted).skip(1);
        let rest = after.filter_map(|text| text.split('"').next());
        found.extend(rest.map(|rest| format!("{begin}{rest}")));
    }
    found
}
