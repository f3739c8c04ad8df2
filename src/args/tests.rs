use super::*;
use clap::Parser as _;

#[derive(clap::Parser)]
pub(super) struct Probe {
    #[command(flatten)]
    serve: ServeArgs,
}

pub(super) fn parse(args: &[&str]) -> Result<ServeArgs, String> {
    Probe::try_parse_from(std::iter::once(&"mortise").chain(args))
        .map(|probe| probe.serve)
        .map_err(|error| error.to_string())
}

#[test]
fn defaults_are_those_of_karpenter() {
    let config = parse(&[]).unwrap().config().unwrap();
    assert_eq!(
        (
            config.listen.metrics.port(),
            config.listen.health.port(),
            config.listen.https.port()
        ),
        (8080, 8081, 8443)
    );
    assert_eq!(
        config.leader_election.map(|lease| lease.name).as_deref(),
        Some("karpenter-leader-election")
    );
    let expected = Settings {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..Settings::default()
    };
    assert_eq!(config.settings, expected);
}

#[test]
fn bad_values_are_named_with_what_is_allowed() {
    let cases: [(&[&str], &str); 6] = [
        (&["--batch-idle-duration", "5"], "10s"),
        (&["--preference-policy", "Respct"], "Respect"),
        (&["--metrics-prot", "1"], "--metrics-port"),
        (&["--provider", "awz"], "aws"),
        (&["--disable-leader-election=maybe"], "true"),
        (&["--kube-client-qps=-1"], "kube-client-qps"),
    ];
    for (args, part) in cases {
        let error = parse(args).unwrap_err();
        assert!(error.contains(part), "{args:?}: {error}");
    }
    let error = feature_gates("NodeRepiar=true").unwrap_err().to_string();
    assert!(error.contains("NodeRepair?"), "{error}");
    let error = parse(&["--ami-refresh-interval=30s"]).unwrap_err();
    assert!(error.contains("at least 1m"), "{error}");
    let refused = parse(&["--insecure-debug"]).unwrap().config();
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("127.0.0.1"), "{refused}");
}

/// Flags, variables and defaults of Karpenter, as recorded.
const KARPENTER: &str = include_str!("../../tests/data/facts/cli-options.json");
/// Results of Karpenter for arguments, one case per line.
const PARSED: &str = include_str!("../../tests/data/facts/options_parse_core.jsonl");

#[test]
fn every_flag_and_variable_of_karpenter_exists_with_its_default() {
    let karpenter: serde_json::Value = serde_json::from_str(KARPENTER).unwrap();
    let command = <Probe as clap::CommandFactory>::command();
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let mut wrong = Vec::new();
    let mut seen = 0;
    for option in ["core", "aws"]
        .iter()
        .flat_map(|owner| karpenter[owner].as_array().unwrap())
    {
        seen += 1;
        let (flag, env) = (text(&option["flag"]), text(&option["env"]));
        let long = flag.trim_start_matches('-');
        let Some(ours) = command
            .get_arguments()
            .find(|each| each.get_long() == Some(long))
        else {
            wrong.push(format!("{flag} is missing"));
            continue;
        };
        if ours.get_env().and_then(|name| name.to_str()) != Some(&env) {
            wrong.push(format!("{flag} is not read from {env}"));
        }
        let default = ours
            .get_default_values()
            .first()
            .map_or_else(String::new, |value| value.to_string_lossy().into_owned());
        let same = match (option["type"].as_str(), long) {
            (Some("duration"), _) => {
                text(&option["default"]).parse::<Millis>() == default.parse::<Millis>()
            }
            // Gates that are not named keep their defaults, so an empty text is equivalent.
            (_, "feature-gates") => {
                feature_gates(&text(&option["default"])).unwrap()
                    == feature_gates(&default).unwrap()
            }
            // The name of the Service of mortise (docs/differences.md).
            (_, "karpenter-service") => default == "mortise",
            _ => text(&option["default"]) == default,
        };
        if !same {
            wrong.push(format!(
                "{flag} is {default:?}, Karpenter's is {}",
                option["default"]
            ));
        }
    }
    assert_eq!(seen, 36);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn arguments_are_parsed_like_by_karpenter() {
    // Intended differences: an unknown gate and a negative duration are errors.
    let stricter = ["Unknown=true", "noderepair=true", "-1s"];
    let mut cases = 0;
    for line in PARSED.lines() {
        let case: serde_json::Value = serde_json::from_str(line).unwrap();
        let Some(args) = case["args"].as_array() else {
            continue;
        };
        if case["env"].is_object() {
            continue; // tests/it/bad_input.rs starts processes with variables
        }
        cases += 1;
        let args: Vec<String> = args
            .iter()
            .map(|arg| arg.as_str().unwrap().to_owned())
            .collect();
        let args: Vec<String> = args
            .into_iter()
            .map(|arg| crate::cli::two_dashes(arg.into()).into_string().unwrap())
            .collect();
        let refs: Vec<&str> = args.iter().map(String::as_str).collect();
        let read = parse(&refs).and_then(|args| {
            let settings = args.settings().map_err(|error| error.to_string())?;
            Ok((args, settings))
        });
        let refused = case["error"].is_string()
            || stricter
                .iter()
                .any(|each| args.iter().any(|arg| arg == each));
        match read {
            Err(error) => assert!(refused, "{args:?}: {error}"),
            Ok((read, settings)) => {
                assert!(
                    !refused,
                    "{args:?} is accepted; Karpenter says {}",
                    case["error"]
                );
                let core = &case["core"];
                let gates = &core["FeatureGates"];
                assert_eq!(core["MetricsPort"], read.listen.metrics_port, "{args:?}");
                assert_eq!(gates["NodeRepair"], settings.gates.node_repair, "{args:?}");
                assert_eq!(
                    gates["NodeOverlay"], settings.gates.node_overlay,
                    "{args:?}"
                );
                let millis: Millis = core["BatchMaxDuration"].as_str().unwrap().parse().unwrap();
                assert_eq!(millis.0, settings.batch_max_ms, "{args:?}");
            }
        }
    }
    assert!(cases > 20, "{cases} cases");
}
