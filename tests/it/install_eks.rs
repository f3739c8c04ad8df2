//! The page on installation on EKS: each of our commands does what the page says, and its objects are valid.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use mortise_tests::harness::Helm;
use serde_json::Value;

use crate::command::run;

/// What the page exports, and what it asks AWS for.
const VARIABLES: [(&str, &str); 4] = [
    ("$CLUSTER", "demo"),
    ("$AWS_REGION", "us-east-1"),
    ("$ACCOUNT", "123456789012"),
    ("$REGISTRY", "registry.test"),
];

fn page() -> Result<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/tasks/install-eks.md");
    std::fs::read_to_string(&path).with_context(|| path.display().to_string())
}

/// The blocks of a language.
fn blocks<'a>(page: &'a str, language: &str) -> Vec<&'a str> {
    let fence = format!("```{language}\n");
    let parts = page.split(fence.as_str()).skip(1);
    parts
        .filter_map(|part| part.split("\n```").next())
        .collect()
}

/// Commands of the page that begin with a program's name, as arguments; without redirections.
fn commands(page: &str, program: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for block in blocks(page, "sh") {
        let joined = block.replace("\\\n", " ");
        for command in joined.lines() {
            let Some(rest) = command.strip_prefix(&format!("{program} ")) else {
                continue;
            };
            let filled = VARIABLES
                .iter()
                .fold(rest.to_owned(), |text, (name, value)| {
                    text.replace(name, value)
                });
            let words = filled.split_whitespace().take_while(|word| *word != ">");
            found.push(words.map(str::to_owned).collect());
        }
    }
    found
}

#[tokio::test]
async fn our_commands_on_the_page_write_what_the_account_needs() -> Result<()> {
    let page = page()?;
    let ours = commands(&page, "mortise");
    let mut kinds = Vec::new();
    for words in ours.iter().filter(|words| words[0] == "manifests") {
        let args: Vec<&str> = words.iter().skip(1).map(String::as_str).collect();
        let said = run("manifests", &args, None).await?;
        ensure!(said.code == 0, "{args:?}: {}", said.stderr);
        let read: Value = if args.contains(&"terraform") {
            ensure!(said.stdout.contains("\nresource \""), "{args:?}");
            kinds.push("terraform");
            continue;
        } else {
            // JSON is YAML too.
            serde_saphyr::from_str(&said.stdout).with_context(|| format!("{args:?}"))?
        };
        let is_template = read["Resources"].is_object() && read["Parameters"].is_object();
        let is_plain = read["controllerRole"]["policies"].is_array();
        ensure!(is_template || is_plain, "{args:?}: {read}");
        kinds.push(if is_plain { "json" } else { "template" });
    }
    kinds.sort_unstable();
    ensure!(
        kinds == ["json", "template", "template", "template", "terraform"],
        "{kinds:?}"
    );
    Ok(())
}

#[tokio::test]
async fn objects_of_the_page_are_valid() -> Result<()> {
    let page = page()?;
    let objects = blocks(&page, "yaml");
    ensure!(objects.len() == 1, "{objects:?}");
    let lint = commands(&page, "mortise");
    let lint = lint.iter().find(|words| words[0] == "lint");
    ensure!(lint.is_some_and(|words| words.len() == 2), "{lint:?}");
    let said = run("lint", &["-"], Some(objects[0])).await?;
    ensure!(said.code == 0, "{}{}", said.stdout, said.stderr);
    Ok(())
}

#[tokio::test]
async fn the_charts_take_the_values_of_the_page() -> Result<()> {
    let page = page()?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let folder = std::env::temp_dir().join(format!("mortise-eks-{}", std::process::id()));
    let helm = Helm::ready(&folder, &folder.join("kubeconfig")).await?;
    let installing = commands(&page, "helm");
    let installing = installing.iter().filter(|words| words[0] == "upgrade");
    let mut rendered = Vec::new();
    for words in installing {
        let chart = root.join(&words[3]).display().to_string();
        let mut args = vec!["template", &words[2], &chart];
        args.extend(words.iter().skip(4).map(String::as_str));
        rendered.push(helm.run(&args).await?);
    }
    std::fs::remove_dir_all(&folder).unwrap_or_default();
    ensure!(rendered.len() == 2, "{} charts", rendered.len());
    for part in [
        "image: \"registry.test/mortise:0.1.0\"",
        "name: CLUSTER_NAME",
        "name: INTERRUPTION_QUEUE",
    ] {
        ensure!(rendered[1].contains(part), "no {part}");
    }
    Ok(())
}
