//! `mortise lint`: runs the admission checks on manifests in files, without a cluster.

mod catalog;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::bail;
use clap::{Args, ValueEnum};
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Unit};
use mortise_controller::RunError;
use mortise_manifests::lint::{
    LintLevel, LintOptions, lint, render_json, render_sarif, render_table,
};
use mortise_manifests::migrate::SourceFile;
use mortise_state::catalog::Catalog;

use crate::args::ProviderName;
use crate::providers::Provider;

use super::migrate::input::{STDIN, manifests_below, text_of};
use super::{WITH_WARNINGS, WRONG, line, warning};

/// Check manifests in files like the admission webhook, and show when budgets allow disruption
#[derive(Args)]
#[command(
    long_about = "Check manifests in files like the admission webhook, without a cluster: fields, values, CEL rules, labels and values that no\n\
instance type has, unsatisfiable requirements, overlapping NodePools, missing node classes. Each finding has its line and a fix.\n\
For every NodePool: what its budgets allow in the next seven days (UTC).\n\n\
Pass NodePools together with their node classes: references are resolved across all files. Objects of other kinds are counted\n\
and skipped.",
    after_long_help = "Exit codes: 0 no errors, 7 warnings with --strict, 8 errors, 1 a file cannot be read, 2 wrong usage.\n\n\
Examples:\n  mortise lint pools.yaml classes.yaml\n  mortise lint manifests/ --strict -o sarif > lint.sarif\n  \
helm template chart | mortise lint - --region eu-west-1\n  mortise lint pools.yaml --from 2026-01-05 --nodes 60 -o json"
)]
pub(super) struct LintArgs {
    /// Files, directories (*.yaml, *.yml, *.json, at any depth), or - for standard input
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// Output format
    #[arg(short, long, value_enum, default_value = "table")]
    output: LintReportFormat,
    /// Exit with 7 when there are warnings and no errors
    #[arg(long)]
    strict: bool,
    /// Provider of CRDs and instance types; default: kwok if the files contain KWOKNodeClass and no EC2NodeClass, otherwise aws
    #[arg(long, value_enum)]
    provider: Option<ProviderName>,
    /// aws: regions of instance types and zones; default: the regions of the zones in the files, or all known regions
    #[arg(long, value_name = "REGION")]
    region: Vec<String>,
    /// Start of the budget calendars: a day (2026-01-05) or a time (2026-01-05T08:00:00Z); default: now
    #[arg(long, value_name = "TIME", value_parser = time)]
    from: Option<Timestamp>,
    /// Number of nodes per NodePool for which percentages in budgets are calculated
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(i64).range(0..=1_000_000))]
    nodes: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum LintReportFormat {
    /// One line per finding, the budget calendars, and a summary
    Table,
    /// One JSON object
    Json,
    /// SARIF 2.1.0, for code scanning services
    Sarif,
}

fn time(text: &str) -> Result<Timestamp, String> {
    if let Ok(time) = text.parse::<Timestamp>() {
        return Ok(time);
    }
    let midnight = |day: Date| day.to_zoned(TimeZone::UTC).ok();
    text.parse::<Date>()
        .ok()
        .and_then(midnight)
        .map(|zoned| zoned.timestamp())
        .ok_or_else(|| {
            "must be a day such as 2026-01-05, or a time such as 2026-01-05T08:00:00Z".to_owned()
        })
}

/// Reads, checks and reports.
pub(super) fn run(args: &LintArgs) -> anyhow::Result<ExitCode> {
    let sources = read(&args.paths)?;
    let provider = args.provider.unwrap_or_else(|| provider_of(&sources));
    if provider == ProviderName::Kwok && !args.region.is_empty() {
        bail!(RunError::Usage(
            "--region: only provider aws has regions".to_owned()
        ));
    }
    let types = match provider {
        ProviderName::Aws => {
            let (types, warnings) = catalog::types(&sources, &args.region)?;
            warnings
                .iter()
                .for_each(|text| warning(&format!("mortise: {text}")));
            types
        }
        ProviderName::Kwok => mortise_kwok::instance_types(),
    };
    let crds = Provider::of(provider).crds();
    let now = || {
        Timestamp::now()
            .round(Unit::Minute)
            .unwrap_or(Timestamp::UNIX_EPOCH)
    };
    let report = lint(
        &sources,
        &LintOptions {
            well_known: crds.served().well_known(),
            crds,
            catalog: Some(Arc::new(Catalog::build(types))),
            from: args.from.unwrap_or_else(now),
            nodes: args.nodes,
        },
    );
    match args.output {
        LintReportFormat::Table => render_table(&report).iter().for_each(|text| line(text)),
        LintReportFormat::Json => line(&serde_json::to_string_pretty(&render_json(&report))?),
        LintReportFormat::Sarif => line(&serde_json::to_string_pretty(&render_sarif(
            &report,
            env!("CARGO_PKG_VERSION"),
        ))?),
    }
    Ok(if report.count(LintLevel::Error) > 0 {
        ExitCode::from(WRONG)
    } else if args.strict && report.count(LintLevel::Warning) > 0 {
        ExitCode::from(WITH_WARNINGS)
    } else {
        ExitCode::SUCCESS
    })
}

/// The provider of the files, from the kind of node class in them.
pub(super) fn provider_of(sources: &[SourceFile]) -> ProviderName {
    let names = |word: &str| sources.iter().any(|source| source.text.contains(word));
    if names("KWOKNodeClass") && !names("EC2NodeClass") {
        ProviderName::Kwok
    } else {
        ProviderName::Aws
    }
}

/// The texts of files, directories and standard input under the given names; duplicates are read once.
pub(super) fn read(paths: &[PathBuf]) -> anyhow::Result<Vec<SourceFile>> {
    let mut sources: Vec<SourceFile> = Vec::new();
    let mut push = |name: String, text: String| {
        if !sources.iter().any(|known| known.name == name) {
            sources.push(SourceFile { name, text });
        }
    };
    for path in paths {
        if path == Path::new("-") {
            push(STDIN.to_owned(), text_of(path)?);
        } else if path.is_dir() {
            let mut files = Vec::new();
            manifests_below(path, &mut files)?;
            if files.is_empty() {
                bail!(RunError::Usage(format!(
                    "{}: there is no *.yaml, *.yml or *.json in this directory",
                    path.display()
                )));
            }
            files.sort();
            for file in files {
                push(file.display().to_string(), text_of(&file)?);
            }
        } else {
            push(path.display().to_string(), text_of(path)?);
        }
    }
    Ok(sources)
}
