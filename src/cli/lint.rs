//! `mortise lint`: what admission would say about manifests in files, without a cluster.

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
use mortise_core::catalog::Catalog;
use mortise_core::labels::WellKnown;
use mortise_core::migrate::SourceFile;
use mortise_webhooks::lint::{LintLevel, LintOptions, lint};

use super::migrate::input::{STDIN, manifests_below, text_of};
use super::{WITH_DOUBTS, WRONG, line, warning};

/// Check manifests in files as admission would, and show when budgets let nodes go
#[derive(Args)]
#[command(
    long_about = "Check manifests in files as admission would, without a cluster: fields, values, rules of the resource definitions, names and values\n\
that no instance type has, requirements that nothing meets, pools that overlap, node classes that are missing; with the line, and\n\
what to write instead. For every NodePool: what its budgets allow in the next seven days (UTC).\n\n\
Give pools together with their classes: what one says of another is looked up in all files. Objects of other kinds are counted and\n\
passed over.",
    after_long_help = "Exit codes: 0 nothing is wrong (there may be warnings), 7 warnings with --strict, 8 errors, 1 a file cannot be read, 2 wrong usage.\n\n\
Examples:\n  mortise lint pools.yaml classes.yaml\n  mortise lint manifests/ --strict -o sarif > lint.sarif\n  \
helm template chart | mortise lint - --region eu-west-1\n  mortise lint pools.yaml --from 2026-01-05 --nodes 60 -o json"
)]
pub(super) struct LintArgs {
    /// Files, directories (*.yaml, *.yml, *.json, at any depth), or - for standard input
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// Form of the report
    #[arg(short, long, value_enum, default_value = "table")]
    output: LintReportFormat,
    /// Exit with 7 when there are warnings and no errors
    #[arg(long)]
    strict: bool,
    /// Whose definitions and instance types; default: kwok when the files name its node class and not EC2's, else aws
    #[arg(long, value_enum)]
    provider: Option<Provider>,
    /// aws: regions whose instance types and zones there are; default: those of the zones in the files, or all that are known
    #[arg(long, value_name = "REGION")]
    region: Vec<String>,
    /// Begin of the calendars: a day (2026-01-05) or a time (2026-01-05T08:00:00Z); default: now
    #[arg(long, value_name = "TIME", value_parser = time)]
    from: Option<Timestamp>,
    /// Say for pools of this many nodes what percentages in budgets come to
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(i64).range(0..=1_000_000))]
    nodes: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum LintReportFormat {
    /// One line for each finding, the calendars, and a summary.
    Table,
    /// One JSON object.
    Json,
    /// SARIF 2.1.0, for code hosts.
    Sarif,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Provider {
    /// Amazon EC2.
    Aws,
    /// Simulated machines.
    Kwok,
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
            "write a day such as 2026-01-05, or a time such as 2026-01-05T08:00:00Z".to_owned()
        })
}

/// Reads, judges and reports.
pub(super) fn run(args: &LintArgs) -> anyhow::Result<ExitCode> {
    let sources = read(&args.paths)?;
    let provider = args.provider.unwrap_or_else(|| provider_of(&sources));
    if provider == Provider::Kwok && !args.region.is_empty() {
        bail!(RunError::Usage(
            "--region: only provider aws has regions".to_owned()
        ));
    }
    let (kinds, well_known, types) = match provider {
        Provider::Aws => {
            let (types, doubts) = catalog::types(&sources, &args.region)?;
            doubts
                .iter()
                .for_each(|doubt| warning(&format!("mortise: {doubt}")));
            (mortise_aws::KINDS, WellKnown::aws(), types)
        }
        Provider::Kwok => (
            mortise_kwok::KINDS,
            WellKnown::kwok(),
            mortise_kwok::instance_types(),
        ),
    };
    let now = || {
        Timestamp::now()
            .round(Unit::Minute)
            .unwrap_or(Timestamp::UNIX_EPOCH)
    };
    let report = lint(
        &sources,
        &LintOptions {
            node_class_kinds: kinds.to_vec(),
            well_known,
            catalog: Some(Arc::new(Catalog::build(types))),
            from: args.from.unwrap_or_else(now),
            nodes: args.nodes,
        },
    );
    match args.output {
        LintReportFormat::Table => report.table().iter().for_each(|text| line(text)),
        LintReportFormat::Json => line(&serde_json::to_string_pretty(&report.json())?),
        LintReportFormat::Sarif => line(&serde_json::to_string_pretty(
            &report.sarif(env!("CARGO_PKG_VERSION")),
        )?),
    }
    Ok(if report.count(LintLevel::Error) > 0 {
        ExitCode::from(WRONG)
    } else if args.strict && report.count(LintLevel::Warning) > 0 {
        ExitCode::from(WITH_DOUBTS)
    } else {
        ExitCode::SUCCESS
    })
}

/// Which provider the files are about, by the kind of node class that they name.
fn provider_of(sources: &[SourceFile]) -> Provider {
    let names = |word: &str| sources.iter().any(|source| source.text.contains(word));
    if names("KWOKNodeClass") && !names("EC2NodeClass") {
        Provider::Kwok
    } else {
        Provider::Aws
    }
}

/// The texts of files, directories and standard input under the names that were given; what is named twice is read once.
fn read(paths: &[PathBuf]) -> anyhow::Result<Vec<SourceFile>> {
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
