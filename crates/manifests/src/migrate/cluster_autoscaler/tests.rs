use std::collections::BTreeSet;

use super::command::{FlagUse, parse};
use super::flags::{FLAGS, FlagAnswer};
use super::images::IMAGES;
use super::settings::{AutoscalerSettings, read};
use super::*;
use crate::migrate::MigrationLevel;

/// The settings of some words, and what is said about them.
fn settings(words: &[&str]) -> (AutoscalerSettings, Vec<String>) {
    let words: Vec<(String, usize)> = std::iter::once("./cluster-autoscaler")
        .chain(words.iter().copied())
        .zip(1..)
        .map(|(word, line)| (word.to_owned(), line))
        .collect();
    let mut findings = Vec::new();
    let mut log = FindingLog {
        file: "in.yaml",
        object: "Deployment x".to_owned(),
        findings: &mut findings,
    };
    let flags = parse(&words, &mut log);
    let settings = read(&flags, &mut log);
    let lines = findings
        .iter()
        .filter(|finding| finding.code != Code::Behaviour)
        .map(ToString::to_string)
        .collect();
    (settings, lines)
}

#[test]
fn each_flag_is_in_the_table_once_and_has_an_answer() {
    let names: BTreeSet<&str> = FLAGS.iter().map(|row| row.name).collect();
    assert_eq!(names.len(), FLAGS.len());
    assert!(FLAGS.len() >= 145, "{}", FLAGS.len());
    for row in FLAGS {
        let text = match row.answer {
            FlagAnswer::To(_) => continue,
            FlagAnswer::NotNeeded(text) | FlagAnswer::NoCounterpart(_, text) => text,
        };
        let tidy = !text.is_empty() && !text.ends_with('.') && text.trim() == text;
        assert!(tidy && !row.name.contains('_'), "{}: {text:?}", row.name);
    }
    let families: BTreeSet<&str> = IMAGES.iter().map(|(name, _)| *name).collect();
    assert_eq!(families.len(), IMAGES.len());
}

/// Flags of mortise that answers name exist: the page of them is made from the program.
#[test]
fn answers_name_flags_that_exist() {
    use super::flags::FlagConversion;
    let page =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/flags.md");
    let page = std::fs::read_to_string(page).unwrap_or_default();
    let named = |row: &super::flags::FlagRow| match row.answer {
        FlagAnswer::NotNeeded(text) | FlagAnswer::NoCounterpart(_, text) => text
            .split(|letter: char| !(letter.is_ascii_lowercase() || letter == '-'))
            .filter_map(|word| word.strip_prefix("--"))
            .map(str::to_owned)
            .collect(),
        FlagAnswer::To(FlagConversion::SameValue(name) | FlagConversion::Switch(name, _)) => {
            vec![name.to_owned()]
        }
        FlagAnswer::To(_) => Vec::new(),
    };
    let all: BTreeSet<String> = FLAGS.iter().flat_map(named).collect();
    assert!(all.len() > 12, "{all:?}");
    let unknown = |name: &&String| !page.contains(&format!("| `--{name}` |")) && *name != "version";
    assert_eq!(
        all.iter().filter(unknown).collect::<Vec<_>>(),
        Vec::<&String>::new()
    );
}

/// Each flag alone, with a value of its type: exactly one answer, and no error.
#[test]
fn each_flag_gets_one_answer() {
    use super::flags::FlagType;
    for row in FLAGS {
        let value = match (row.name, row.value) {
            ("cloud-provider", _) => "aws",
            ("expander", _) => "least-waste",
            ("nodes", _) => "1:2:x",
            ("node-group-auto-discovery", _) => "asg:tag=k8s.io/cluster-autoscaler/enabled",
            ("scale-down-utilization-threshold", _) => "0.7",
            (_, FlagType::Bool) => "true",
            (_, FlagType::Integer | FlagType::Number) => "7",
            (_, FlagType::Duration) => "7m",
            (_, FlagType::Range) => "0:7",
            (_, FlagType::Text) => "seven",
        };
        let (_, said) = settings(&[&format!("--{}={value}", row.name)]);
        // Protections are one finding together, and groups wait for their Auto Scaling group.
        let silent = row.name == "nodes" || row.name.starts_with("skip-nodes-with-");
        assert_eq!(said.len(), usize::from(!silent), "{}: {said:?}", row.name);
        assert!(!said.concat().contains(": error: "), "{said:?}");
    }
}

#[test]
fn words_become_flags() {
    let uses = |words: &[&str]| {
        let words: Vec<_> = words.iter().map(|word| ((*word).to_owned(), 1)).collect();
        let mut findings = Vec::new();
        let mut log = FindingLog {
            file: "",
            object: String::new(),
            findings: &mut findings,
        };
        let flags: Vec<String> = parse(&words, &mut log)
            .into_iter()
            .map(|FlagUse { name, value, .. }| match value {
                Some(value) => format!("{name}={value}"),
                None => name,
            })
            .collect();
        (flags.join(" "), findings.len())
    };
    let cases: [(&[&str], &str, usize); 9] = [
        (&["ca", "--v=4"], "v=4", 0),
        (
            &["-v", "4", "--expander", "random"],
            "v=4 expander=random",
            0,
        ),
        (
            &["--write_status_configmap=false"],
            "write-status-configmap=false",
            0,
        ),
        (
            &["--balance-similar-node-groups", "--v=1"],
            "balance-similar-node-groups v=1",
            0,
        ),
        (&["--scale-down-enabled", "false"], "scale-down-enabled", 1),
        (
            &["--expendable-pods-priority-cutoff", "-10"],
            "expendable-pods-priority-cutoff=-10",
            0,
        ),
        (
            &["--scale-down-unneeded-time='5m'"],
            "scale-down-unneeded-time=5m",
            0,
        ),
        (&["--unknown", "x", "y"], "unknown=x", 1),
        (&[], "", 0),
    ];
    for (words, want, findings) in cases {
        assert_eq!(uses(words), (want.to_owned(), findings), "{words:?}");
    }
}

#[test]
fn bad_flags_have_errors_that_say_what_is_allowed() {
    let cases = [
        (
            "--scale-down-uneeded-time=5m",
            "error: Deployment x --scale-down-uneeded-time: is no flag of Cluster Autoscaler; --scale-down-unneeded-time is meant, perhaps",
        ),
        (
            "--nonsense",
            "error: Deployment x --nonsense: is no flag of Cluster Autoscaler",
        ),
        (
            "--scale-down-unneeded-time=5",
            "\"5\" must be a duration such as 10m or 1h30m",
        ),
        ("--scale-down-unneeded-time", "needs a value"),
        ("--scale-down-enabled=no", "\"no\" must be true or false"),
        ("--max-nodes-total=many", "\"many\" must be an integer"),
        (
            "--scale-down-utilization-threshold=50",
            "\"50\" must be a share from 0 to 1",
        ),
        ("--cores-total=8:4", "\"8:4\" must be minimum:maximum"),
        (
            "--nodes=3:1:group",
            "the minimum 3 must not be above the maximum 1",
        ),
        (
            "--nodes=3:group",
            "\"3:group\" must be minimum:maximum:name of an Auto Scaling group",
        ),
        (
            "--expander=priorty",
            "\"priorty\" is none of least-waste, price, random, most-pods, least-nodes, priority, grpc; priority is meant, perhaps",
        ),
        (
            "--node-group-auto-discovery=mig:namePrefix=x",
            "must be asg:tag=",
        ),
        (
            "--cloud-provider=gce",
            "only node groups of aws are converted",
        ),
        ("--cluster-name=$(CLUSTER)", "is filled in elsewhere"),
        (
            "--max-graceful-termination-sec=-1",
            "must be a number of seconds above 0",
        ),
    ];
    for (word, want) in cases {
        let (_, said) = settings(&[word]);
        assert!(
            said.len() == 1 && said[0].contains(want) && said[0].contains(": error: "),
            "{word}: {said:?}"
        );
    }
}

#[test]
fn flags_are_settings() {
    let (found, _) = settings(&[
        "--node-group-auto-discovery=asg:tag=k8s.io/cluster-autoscaler/enabled,k8s.io/cluster-autoscaler/shop,team=a",
        "--scale-down-utilization-threshold=0.655",
        "--max-nodes-total=0",
        "--cores-total=0:320000",
        "--memory-total=0:100",
        "--leader-elect=false",
        "--enable-dynamic-resource-allocation",
        "--capacity-buffer-controller-enabled=true",
        "--max-drain-parallelism=3",
    ]);
    assert_eq!(found.cluster.as_deref(), Some("shop"));
    assert_eq!(
        found.discovery[2],
        ("team".to_owned(), Some("a".to_owned()))
    );
    assert_eq!(
        (found.utilization, found.max_nodes, found.cores),
        (Some(66), None, None)
    );
    assert_eq!(found.memory.map(|(memory, _)| memory), Some(100));
    assert_eq!(found.drains, Some(3));
    assert_eq!(
        found.gates.into_iter().collect::<Vec<_>>(),
        ["CapacityBuffer"]
    );
    let serve: Vec<String> = found
        .serve
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    assert_eq!(
        serve,
        ["disable-leader-election=true", "ignore-dra-requests=false"]
    );

    let (found, _) = settings(&["--scale-down-utilization-threshold=0"]);
    assert!(found.keeps_all_nodes);
    let (found, said) = settings(&[
        "--node-group-auto-discovery=asg:tag=k8s.io/cluster-autoscaler/<YOUR CLUSTER NAME>",
    ]);
    assert_eq!((found.cluster, said.len()), (None, 2));
}

#[test]
fn a_command_in_a_shell_is_read() {
    let text = "kind: Pod\nspec:\n  containers:\n  - image: gke/ca:1\n    command: [/bin/sh, -c, './cluster-autoscaler --v=2 --expander=random 1>>/var/log/x 2>&1']\n";
    let source = SourceFile {
        name: "in.yaml".to_owned(),
        text: text.to_owned(),
    };
    let migrated = from_cluster_autoscaler(&[source], &MigrateOptions::default());
    let said: Vec<String> = migrated.findings.iter().map(ToString::to_string).collect();
    assert!(said.iter().any(|line| line.contains("in.yaml:5: converted: Pod --expander: random is not needed")), "{said:?}");
    // Without node groups there is nothing to write but flags.
    assert_eq!(
        (migrated.worst(), migrated.changed),
        (MigrationLevel::Error, 0)
    );
    assert_eq!(
        migrated.flags,
        [
            "--provider=aws",
            "--respect-cluster-autoscaler-annotations=true"
        ]
    );
}
