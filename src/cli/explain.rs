//! `mortise explain`: why an object is in its state, in the words of the service.

mod answer;
mod node_text;
mod pod_text;
mod pool_text;

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use serde_json::Value;

use super::service::{Failure, Service, ServiceArgs, ask, encoded, read};
use super::{layout, line};

/// Say why a pod is pending, why a node is still there or about to go, or what a NodePool allows
#[derive(Args)]
#[command(
    long_about = "Say why a pod is pending, why a node is still there or about to go, or what a NodePool allows: every blocker, what would free it, the\n\
times that are waited for, budgets, and the newest decisions. The running service is asked (its path /debug/explain); nothing is changed.\n\n\
The service is found by its Lease, and reached by `kubectl port-forward` to the replica that leads, or at --url.",
    after_long_help = "Exit codes: 0 done, 2 wrong usage or no such object, 3 service, API server or kubeconfig out of reach, 5 permission missing.\n\n\
Examples:\n  mortise explain pod shop/web-1\n  mortise explain node ip-10-0-3-17 --service-account kube-system/mortise-reader\n  mortise explain nodepool general -o json --url https://127.0.0.1:8443 --token-file token"
)]
pub(super) struct ExplainArgs {
    /// Kind of the object
    #[arg(value_name = "KIND")]
    kind: SubjectKind,
    /// Its name; a pod may be NAMESPACE/NAME
    #[arg(value_name = "NAME")]
    name: String,
    /// Namespace of the pod; default: that of the kubeconfig's context
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
    /// `json` prints the answer of the service
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: OutputFormat,
    #[command(flatten)]
    service: ServiceArgs,
}

/// What can be explained.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SubjectKind {
    /// A pod
    #[value(alias = "po", alias = "pods")]
    Pod,
    /// A Node
    #[value(alias = "no", alias = "nodes")]
    Node,
    /// A NodeClaim
    #[value(alias = "nodeclaims")]
    Nodeclaim,
    /// A NodePool
    #[value(alias = "nodepools")]
    Nodepool,
}

/// Form of the output.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum OutputFormat {
    /// For people
    Text,
    /// For programs
    Json,
}

/// Asks the service, and prints what it says.
///
/// # Errors
/// The process cannot be set up.
pub(super) fn run(args: &ExplainArgs) -> anyhow::Result<ExitCode> {
    ask(explain(args))
}

async fn explain(args: &ExplainArgs) -> Result<(), Failure> {
    let service = Service::connect(&args.service).await?;
    let query = match args.kind {
        SubjectKind::Pod => format!("pod={}", encoded(&pod_key(args, &service))),
        SubjectKind::Node => format!("node={}", encoded(&args.name)),
        SubjectKind::Nodeclaim => format!("nodeclaim={}", encoded(&args.name)),
        SubjectKind::Nodepool => format!("nodepool={}", encoded(&args.name)),
    };
    let answer = service.get(&format!("/debug/explain?{query}")).await?;
    if args.output == OutputFormat::Json {
        line(&format!("{answer:#}"));
        return Ok(());
    }
    let width = layout::width();
    let lines = match args.kind {
        SubjectKind::Pod => pod_text::lines(&read(&answer, "the explanation of a pod")?, width),
        SubjectKind::Nodepool => {
            pool_text::lines(&read(&answer, "the explanation of a NodePool")?, width)
        }
        SubjectKind::Node | SubjectKind::Nodeclaim => {
            let node: answer::Node = read(&answer, "the explanation of a node")?;
            let pool = pool_of(&service, &node).await?;
            node_text::lines(&node, pool.as_ref(), width)
        }
    };
    lines.iter().for_each(|text| line(text));
    Ok(())
}

fn pod_key(args: &ExplainArgs, service: &Service) -> String {
    let namespace = args
        .namespace
        .as_ref()
        .or(service.context_namespace.as_ref());
    match namespace {
        _ if args.name.contains('/') => args.name.clone(),
        Some(namespace) => format!("{namespace}/{}", args.name),
        None => format!("default/{}", args.name),
    }
}

/// The NodePool of a node, whose budgets decide as well; `None` if it has none, or one that does not exist.
async fn pool_of(service: &Service, node: &answer::Node) -> Result<Option<answer::Pool>, Failure> {
    let Some(name) = &node.pool else {
        return Ok(None);
    };
    let path = format!("/debug/explain?nodepool={}", encoded(name));
    match service.get(&path).await {
        Ok(value) => read(&value, "the explanation of a NodePool").map(Some),
        Err(failure) if failure.code == 2 => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// A heading, and the lines below it, if there are any.
fn section(lines: &mut Vec<String>, title: &str, below: Vec<String>) {
    if !below.is_empty() {
        lines.push(String::new());
        lines.push(title.to_owned());
        lines.extend(below);
    }
}

/// The newest decisions, and who has none.
fn decisions(
    lines: &mut Vec<String>,
    stamp: &answer::Stamp,
    all: &[answer::Decision],
    width: usize,
) {
    /// Decisions that are shown; `-o json` has all.
    const SHOWN: usize = 5;
    let mut below = Vec::new();
    for each in all.iter().take(SHOWN) {
        let head = format!(
            "{} ago: {} {} {}",
            layout::ago(stamp.at, each.at),
            word(&each.decider),
            word(&each.verdict),
            each.subject
        );
        below.extend(layout::wrapped(&head, 2, width));
        below.extend(layout::wrapped(&each.text, 4, width));
    }
    if all.len() > SHOWN {
        below.push(format!("  and {} more (-o json)", all.len() - SHOWN));
    }
    section(lines, "Decisions, newest first", below);
    if !stamp.leading {
        lines.push(String::new());
        let note = "This replica does not lead: decisions, and drain blockers that only the leader knows, are missing.";
        lines.extend(layout::wrapped(note, 0, width));
    }
}

/// A condition in words.
fn condition(each: &answer::Condition) -> String {
    let text = format!(
        "{} is {}: {} {}",
        each.kind, each.status, each.reason, each.message
    );
    text.trim_end().to_owned()
}

/// A word of JSON.
fn word(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests;
