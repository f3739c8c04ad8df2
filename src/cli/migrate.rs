//! `mortise migrate`: converts manifests of all API versions to `v1`, and node groups of Cluster Autoscaler.

pub(super) mod input;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use mortise_controller::RunError;
use mortise_manifests::migrate::{
    MigrateOptions, Migrated, MigrationLevel, SourceFile, from_cluster_autoscaler, migrate,
};
use serde_json::json;

use super::{WITH_WARNINGS, WRONG, line, warning};

/// Convert manifests of all earlier API versions to v1, or node groups of Cluster Autoscaler
#[derive(Args)]
#[command(
    long_about = "Convert manifests of all earlier API versions to v1: Provisioner and AWSNodeTemplate, v1beta1, and v1 with deprecated fields.\n\n\
The manifests go to standard output, or to files in --out; the report goes to standard error. Objects \
that need no conversion stay unchanged. Pass NodePools together with their node classes: kubelet settings move from pools to classes.\n\n\
With --from cluster-autoscaler: node groups and flags of Cluster Autoscaler become NodePools, node classes, NodePoolPolicies and flags\n\
of mortise. Pass its Deployment, the ConfigMap of its priorities, and the node groups in any of these forms: a ClusterConfig of eksctl,\n\
the output of `aws eks describe-nodegroup` or `aws autoscaling describe-auto-scaling-groups`.",
    after_long_help = "Exit codes: 0 converted, 7 converted with warnings, 8 errors: some output does not work until it is fixed,
\
1 and 2 nothing was written, 3 to 5 as for every command (--live).\n\n\
Examples:\n  mortise migrate pools.yaml > v1.yaml\n  mortise migrate manifests/ --out converted/\n  \
kubectl get provisioners,awsnodetemplates -o yaml | mortise migrate - --role KarpenterNodeRole-mine\n  \
mortise migrate --live --out converted/ --report json\n  \
mortise migrate --from cluster-autoscaler cluster-autoscaler.yaml eksctl.yaml > nodepools.yaml\n  \
aws autoscaling describe-auto-scaling-groups | mortise migrate --from cluster-autoscaler - --cluster-name mine --role nodes"
)]
pub(super) struct MigrateArgs {
    /// Files, directories (*.yaml, *.yml, *.json, at any depth), or - for standard input
    #[arg(value_name = "PATH", required_unless_present = "live")]
    paths: Vec<PathBuf>,
    /// What to convert
    #[arg(long, value_enum, default_value = "karpenter")]
    from: MigrationSource,
    /// Also read the objects of the cluster; the cluster is not modified
    #[arg(long)]
    live: bool,
    /// kubeconfig file for --live; default: the locations that kubectl uses
    #[arg(long, value_name = "FILE", requires = "live")]
    kubeconfig: Option<PathBuf>,
    /// Write files with the same names (nodepools.yaml of node groups) to this directory instead of standard output
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Overwrite existing files
    #[arg(long, requires = "out")]
    overwrite: bool,
    /// IAM role for node classes without one; replaces their instance profile
    #[arg(long, value_name = "NAME")]
    role: Option<String>,
    /// Instance profile for node classes without a role and instance profile
    #[arg(long, value_name = "NAME", conflicts_with = "role")]
    instance_profile: Option<String>,
    /// Name of the cluster, for node groups that do not say it
    #[arg(long, value_name = "NAME")]
    cluster_name: Option<String>,
    /// Report format
    #[arg(long, value_enum, default_value = "text")]
    report: MigrateReportFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum MigrationSource {
    /// Manifests of Karpenter, of any version
    Karpenter,
    /// Flags and node groups of Cluster Autoscaler
    ClusterAutoscaler,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum MigrateReportFormat {
    /// One line per finding, and a summary
    Text,
    /// One JSON object
    Json,
}

/// Reads, converts, writes and reports.
pub(super) fn run(args: &MigrateArgs) -> anyhow::Result<ExitCode> {
    let of_groups = args.from == MigrationSource::ClusterAutoscaler;
    if of_groups && args.live {
        bail!(RunError::Usage(
            "--live: node groups are not in the cluster; with --from cluster-autoscaler, pass files".to_owned()
        ));
    }
    if !of_groups && args.cluster_name.is_some() {
        bail!(RunError::Usage(
            "--cluster-name: only --from cluster-autoscaler uses it".to_owned()
        ));
    }
    let mut sources = input::read(&args.paths)?;
    if args.live {
        mortise_process::install_crypto()?;
        let live = mortise_process::runtime()?.block_on(input::live(args.kubeconfig.as_deref()))?;
        sources.extend(live);
    }
    let options = MigrateOptions {
        role: args.role.clone(),
        instance_profile: args.instance_profile.clone(),
        cluster_name: args.cluster_name.clone(),
    };
    let migrated = if of_groups {
        from_cluster_autoscaler(&sources, &options)
    } else {
        migrate(&sources, &options)
    };
    match &args.out {
        Some(dir) => write(dir, &migrated.files, args.overwrite)?,
        None => print(&migrated.files),
    }
    report(&migrated, args);
    Ok(match migrated.worst() {
        MigrationLevel::Converted => ExitCode::SUCCESS,
        MigrationLevel::Warning => ExitCode::from(WITH_WARNINGS),
        MigrationLevel::Error => ExitCode::from(WRONG),
    })
}

fn print(files: &[SourceFile]) {
    for (index, file) in files.iter().enumerate() {
        if index > 0 && !file.text.starts_with("---") {
            line("---");
        }
        line(file.text.strip_suffix('\n').unwrap_or(&file.text));
    }
}

/// Existing files are an error before the first file is written: all or nothing.
fn write(dir: &Path, files: &[SourceFile], overwrite: bool) -> anyhow::Result<()> {
    let place = |file: &SourceFile| match file.name.as_str() {
        input::STDIN => dir.join("stdin.yaml"),
        name => dir.join(name),
    };
    if !overwrite && let Some(known) = files.iter().map(place).find(|path| path.exists()) {
        bail!(RunError::Usage(format!(
            "--out: {}: file exists; use another directory or --overwrite",
            known.display()
        )));
    }
    for file in files {
        let path = place(file);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)
                .with_context(|| format!("--out: cannot create {}", parent.display()))?;
        }
        std::fs::write(&path, &file.text)
            .with_context(|| format!("--out: cannot write {}", path.display()))?;
    }
    Ok(())
}

fn report(migrated: &Migrated, args: &MigrateArgs) {
    let count = |level| {
        let of = migrated.findings.iter();
        of.filter(|finding| finding.level == level).count()
    };
    let (warnings, errors) = (count(MigrationLevel::Warning), count(MigrationLevel::Error));
    let of_groups = args.from == MigrationSource::ClusterAutoscaler;
    match args.report {
        MigrateReportFormat::Json => {
            let mut report = json!({
                "changed": migrated.changed,
                "untouched": migrated.untouched,
                "warnings": warnings,
                "errors": errors,
                "findings": migrated.findings,
            });
            if of_groups && let Some(fields) = report.as_object_mut() {
                fields.insert("flags".to_owned(), migrated.flags.clone().into());
            }
            warning(&report.to_string());
        }
        MigrateReportFormat::Text => {
            for finding in &migrated.findings {
                warning(&finding.to_string());
            }
            let plural = |count: usize, word: &str| {
                format!("{count} {word}{}", if count == 1 { "" } else { "s" })
            };
            let what = if of_groups { "written" } else { "changed" };
            let rest = if of_groups { "left out" } else { "untouched" };
            warning(&format!(
                "{} {what}, {} {rest}; {}, {}",
                plural(migrated.changed, "object"),
                migrated.untouched,
                plural(warnings, "warning"),
                plural(errors, "error"),
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::ServeArgs;

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        serve: ServeArgs,
    }

    /// What the output says about `mortise serve` is read by it.
    #[test]
    fn flags_of_node_groups_are_flags_of_the_service() {
        let text = "kind: Pod\nspec:\n  containers:\n  - image: cluster-autoscaler\n    args: [--cluster-name=a, --leader-elect=false, --enable-provisioning-requests, --max-node-provision-time=9m, --max-node-startup-time=8m, --initial-node-group-backoff-duration=2m, --enable-dynamic-resource-allocation, --capacity-buffer-controller-enabled]\n";
        let source = SourceFile {
            name: "in.yaml".to_owned(),
            text: text.to_owned(),
        };
        let migrated = from_cluster_autoscaler(&[source], &MigrateOptions::default());
        assert_eq!(migrated.flags.len(), 10, "{:?}", migrated.flags);
        let words = std::iter::once("serve".to_owned()).chain(migrated.flags);
        let parsed = Flags::try_parse_from(words).map_err(|error| error.to_string());
        let flags = parsed.map(|parsed| parsed.serve.provider);
        assert_eq!(flags, Ok(vec![crate::args::ProviderName::Aws]));
    }
}
