//! The files of `manifests/aws` are what the commands write. `UPDATE_EXPECT=1 cargo test --workspace --lib manifests` rewrites them.

use std::path::PathBuf;

use clap::Parser as _;

use super::*;

#[derive(clap::Parser)]
struct Probe {
    #[command(flatten)]
    args: ManifestsArgs,
}

/// What `mortise manifests` writes.
fn written(args: &[&str]) -> anyhow::Result<String> {
    let all = std::iter::once(&"mortise").chain(args);
    match &Probe::try_parse_from(all)?.args.what {
        ManifestTarget::Iam(args) => args.text(),
        ManifestTarget::Queue(args) => args.text(),
        _ => unreachable!("one of the account"),
    }
}

#[test]
fn files_of_the_account_are_current() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("manifests/aws");
    let zonal = "--enable-zonal-shift";
    let terraform = "--format=terraform";
    let json = [
        "--format=json",
        "--region=us-east-1",
        "--account=123456789012",
    ];
    for (file, args) in [
        ("iam.yaml", &["iam", zonal][..]),
        ("iam.tf", &["iam", zonal, terraform]),
        ("iam.json", &["iam", zonal, json[0], json[1], json[2]]),
        ("queue.yaml", &["queue"]),
        ("queue.tf", &["queue", terraform]),
    ] {
        let text = written(&[args, &["--cluster-name=demo"]].concat()).unwrap();
        let text = format!("{}\n", text.trim_end());
        let path = folder.join(file);
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            committed == text,
            "{} is not what the code writes; run: UPDATE_EXPECT=1 cargo test --workspace --lib manifests",
            path.display()
        );
    }
}

#[test]
fn templates_are_read_back_as_they_are() {
    for args in [&["iam", "--identity=irsa"][..], &["queue"]] {
        let text = written(&[args, &["--cluster-name=demo"]].concat()).unwrap();
        let read: Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(read["AWSTemplateFormatVersion"], "2010-09-09");
        for resource in read["Resources"].as_object().unwrap().values() {
            let kind = resource["Type"].as_str().unwrap();
            assert!(kind.starts_with("AWS::"), "{kind}");
            assert!(resource["Properties"].is_object(), "{kind}");
        }
    }
}

#[test]
fn what_is_missing_or_impossible_is_named() {
    for (args, part) in [
        (&["iam"][..], "--cluster-name"),
        (&["iam", "--cluster-name=x", "--format=json"], "--account"),
        (&["iam", "--cluster-name=a b"], "--cluster-name"),
        (
            &["queue", "--cluster-name=x", "--interruption-queue=a.b"],
            "--interruption-queue",
        ),
        (&["queue", "--cluster-name="], "--cluster-name"),
    ] {
        let error = written(args).unwrap_err().to_string();
        assert!(error.contains(part), "{args:?}: {error}");
    }
}
