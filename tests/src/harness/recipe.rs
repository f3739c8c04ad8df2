//! How each peer is made: pinned sources, commands, and what comes out.
//!
//! Everything a recipe depends on is compiled into this crate from `tests/peers/`, so that a cached peer is found by the
//! content of its recipe and never by a version alone.

use std::path::{Path, PathBuf};

/// Kubernetes' version; also stamped into the binaries, because clients read it from `/version`.
pub(crate) const KUBERNETES: &str = "v1.36.3";
/// etcd's version.
pub(crate) const ETCD: &str = "v3.6.16";
/// kwok's version.
pub(crate) const KWOK: &str = "v0.8.0";
/// Helm's version.
pub(crate) const HELM: &str = "v4.3.1";
/// Version of Prometheus' module.
pub(crate) const PROMETHEUS: &str = "v0.313.5";
/// Kueue's version.
pub(crate) const KUEUE: &str = "v0.17.0";
/// Version of the OpenTelemetry collector's reader.
pub(crate) const OTLP: &str = "v1.71.0";
/// moto's version.
pub(crate) const MOTO: &str = "5.2.5";

/// One command of a recipe, run in the directory that holds the recipe's files.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) program: String,
    pub(crate) args: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
}

/// How to make one peer.
#[derive(Clone, Debug)]
pub(crate) struct Recipe {
    /// Peer and version, for example `etcd-v3.6.16`.
    pub(crate) name: String,
    /// What a person should expect, on two cores.
    pub(crate) expectation: &'static str,
    /// Program that must be there, and where a person gets it.
    pub(crate) tool: (&'static str, &'static str),
    /// Files written before the steps run: (name, content).
    pub(crate) files: Vec<(&'static str, &'static str)>,
    /// Further inputs of the key: what the result depends on in addition to files and steps.
    pub(crate) inputs: Vec<String>,
    pub(crate) steps: Vec<Step>,
    /// Symbolic links made afterwards in the result: (link, target), both relative.
    pub(crate) links: Vec<(&'static str, &'static str)>,
}

impl Recipe {
    /// Directory name in the cache: name and a hash over everything that determines the result.
    pub(crate) fn key(&self) -> String {
        let Self {
            name,
            expectation: _,
            tool,
            files,
            inputs,
            steps,
            links,
        } = self;
        let mut hash = Fnv::new();
        hash.add(std::env::consts::OS);
        hash.add(std::env::consts::ARCH);
        hash.add(tool.0);
        for (file, content) in files {
            hash.add(file);
            hash.add(content);
        }
        for input in inputs {
            hash.add(input);
        }
        for step in steps {
            hash.add(&step.program);
            step.args.iter().for_each(|arg| hash.add(arg));
            for (key, value) in &step.env {
                hash.add(key);
                hash.add(value);
            }
        }
        for (link, target) in links {
            hash.add(link);
            hash.add(target);
        }
        format!("{name}-{:016x}", hash.0)
    }
}

/// The version without its patch number and `v`, as EKS names it: `1.36`.
pub(crate) fn kubernetes_minor() -> String {
    KUBERNETES
        .trim_start_matches('v')
        .split('.')
        .take(2)
        .collect::<Vec<_>>()
        .join(".")
}

/// All of Kubernetes in one binary that goes by several names.
pub(crate) fn kubernetes() -> Recipe {
    let minor = kubernetes_minor();
    let minor = minor.rsplit('.').next().unwrap_or_default();
    let mut flags = "-s -w".to_owned();
    for package in [
        "k8s.io/component-base/version",
        "k8s.io/client-go/pkg/version",
    ] {
        for (variable, value) in [
            ("gitVersion", KUBERNETES),
            ("gitMajor", "1"),
            ("gitMinor", minor),
        ] {
            flags.push_str(&format!(" -X {package}.{variable}={value}"));
        }
    }
    Recipe {
        name: format!("kubernetes-{KUBERNETES}"),
        expectation: "about 6 minutes the first time, 3 GB of Go's build cache",
        tool: ("go", GO_HINT),
        files: vec![
            ("go.mod", include_str!("../../peers/kubernetes/go.mod")),
            ("go.sum", include_str!("../../peers/kubernetes/go.sum")),
            ("main.go", include_str!("../../peers/kubernetes/main.go")),
        ],
        inputs: Vec::new(),
        steps: vec![go_build(&flags, "bin/k8s", ".")],
        links: vec![
            ("bin/kube-apiserver", "k8s"),
            ("bin/kube-controller-manager", "k8s"),
            ("bin/kube-scheduler", "k8s"),
            ("bin/kubectl", "k8s"),
        ],
    }
}

/// A program of a Go module: what to expect, `go.mod` and `go.sum`, and how it is built.
fn go_program(
    name: String,
    expectation: &'static str,
    [module, sums]: [&'static str; 2],
    build: Step,
) -> Recipe {
    Recipe {
        name,
        expectation,
        tool: ("go", GO_HINT),
        files: vec![("go.mod", module), ("go.sum", sums)],
        inputs: Vec::new(),
        steps: vec![build],
        links: Vec::new(),
    }
}

/// etcd.
pub(crate) fn etcd() -> Recipe {
    go_program(
        format!("etcd-{ETCD}"),
        "about a minute the first time",
        [
            include_str!("../../peers/etcd/go.mod"),
            include_str!("../../peers/etcd/go.sum"),
        ],
        go_build("-s -w", "bin/etcd", "go.etcd.io/etcd/server/v3"),
    )
}

/// kwok: kubelets that run nothing.
pub(crate) fn kwok() -> Recipe {
    go_program(
        format!("kwok-{KWOK}"),
        "about two minutes the first time",
        [
            include_str!("../../peers/kwok/go.mod"),
            include_str!("../../peers/kwok/go.sum"),
        ],
        go_build("-s -w", "bin/kwok", "sigs.k8s.io/kwok/cmd/kwok"),
    )
}

/// kube-scheduler's own types for the messages of an extender.
pub(crate) fn extender_types() -> Recipe {
    Recipe {
        name: format!("extender-types-{KUBERNETES}"),
        expectation: "some seconds once Kubernetes is built",
        tool: ("go", GO_HINT),
        files: vec![
            ("go.mod", include_str!("../../peers/extender-types/go.mod")),
            ("go.sum", include_str!("../../peers/extender-types/go.sum")),
            (
                "main.go",
                include_str!("../../peers/extender-types/main.go"),
            ),
        ],
        inputs: Vec::new(),
        steps: vec![go_build("-s -w", "bin/extender-types", ".")],
        links: Vec::new(),
    }
}

/// The OpenTelemetry collector's own reader of traces.
pub(crate) fn otlp_spans() -> Recipe {
    Recipe {
        name: format!("otlp-spans-{OTLP}"),
        expectation: "about half a minute the first time",
        tool: ("go", GO_HINT),
        files: vec![
            ("go.mod", include_str!("../../peers/otlp-spans/go.mod")),
            ("go.sum", include_str!("../../peers/otlp-spans/go.sum")),
            ("main.go", include_str!("../../peers/otlp-spans/main.go")),
        ],
        inputs: Vec::new(),
        steps: vec![go_build("-s -w", "bin/otlp-spans", ".")],
        links: Vec::new(),
    }
}

/// Helm.
pub(crate) fn helm() -> Recipe {
    go_program(
        format!("helm-{HELM}"),
        "about two minutes the first time",
        [
            include_str!("../../peers/helm/go.mod"),
            include_str!("../../peers/helm/go.sum"),
        ],
        go_build("-s -w", "bin/helm", "helm.sh/helm/v4/cmd/helm"),
    )
}

/// promtool: reads rules and expressions as Prometheus does, and plays series against them. Without the clients of clouds by which
/// Prometheus finds what to scrape.
pub(crate) fn promtool() -> Recipe {
    let mut build = go_build(
        "-s -w",
        "bin/promtool",
        "github.com/prometheus/prometheus/cmd/promtool",
    );
    let flags = build.env.iter_mut().find(|(key, _)| key == "GOFLAGS");
    if let Some((_, flags)) = flags {
        flags.push_str(" -tags=remove_all_sd");
    }
    go_program(
        format!("promtool-{PROMETHEUS}"),
        "about three minutes the first time",
        [
            include_str!("../../peers/promtool/go.mod"),
            include_str!("../../peers/promtool/go.sum"),
        ],
        build,
    )
}

/// Kueue, with the definitions of its kinds and of ProvisioningRequest in `crds/`.
pub(crate) fn kueue() -> Recipe {
    let files = [
        include_str!("../../peers/kueue/go.mod"),
        include_str!("../../peers/kueue/go.sum"),
    ];
    let build = go_build("-s -w", "bin/kueue", "sigs.k8s.io/kueue/cmd/kueue");
    let copy = "mkdir -p crds && dir() { go list -m -f '{{.Dir}}' \"$1\"; } \
        && cp \"$(dir sigs.k8s.io/kueue)\"/config/components/crd/bases/*.yaml \
            \"$(dir k8s.io/autoscaler/cluster-autoscaler/apis)\"/config/crd/*_provisioningrequests.yaml crds/";
    let copy = Step {
        program: "sh".to_owned(),
        args: vec!["-c".to_owned(), copy.to_owned()],
        env: build.env.clone(),
    };
    let mut recipe = go_program(
        format!("kueue-{KUEUE}"),
        "about five minutes the first time",
        files,
        build,
    );
    recipe.steps.push(copy);
    recipe
}

/// moto in a virtual environment of `python`, whose version and place are `interpreter`.
pub(crate) fn moto(python: &Path, interpreter: &str) -> Recipe {
    let step = |program: PathBuf, args: &[&str]| Step {
        program: program.display().to_string(),
        args: args.iter().map(|arg| (*arg).to_owned()).collect(),
        env: vec![("PIP_DISABLE_PIP_VERSION_CHECK".to_owned(), "1".to_owned())],
    };
    Recipe {
        name: format!("moto-{MOTO}"),
        expectation: "about a minute the first time, 320 MB",
        tool: (
            "python3",
            "install Python 3.10 or newer with its venv module (Debian: apt install python3-venv)",
        ),
        files: vec![(
            "requirements.txt",
            include_str!("../../peers/moto/requirements.txt"),
        )],
        inputs: vec![interpreter.to_owned()],
        steps: vec![
            step(python.to_owned(), &["-m", "venv", "venv"]),
            step(
                PathBuf::from("venv/bin/python"),
                &[
                    "-m",
                    "pip",
                    "install",
                    "--no-input",
                    "--requirement",
                    "requirements.txt",
                ],
            ),
            // Compiles nothing yet and proves that what was installed can be loaded at all.
            step(
                PathBuf::from("venv/bin/python"),
                &[
                    "-c",
                    "import boto3, moto.server, moto.ec2, moto.sqs, moto.events",
                ],
            ),
        ],
        links: Vec::new(),
    }
}

const GO_HINT: &str = "install Go 1.26 or newer from https://go.dev/dl/ and put it on PATH";

fn go_build(flags: &str, output: &str, package: &str) -> Step {
    let args = [
        "build",
        "-v",
        "-trimpath",
        "-mod=readonly",
        "-ldflags",
        flags,
        "-o",
        output,
        package,
    ];
    Step {
        program: "go".to_owned(),
        args: args.iter().map(|arg| (*arg).to_owned()).collect(),
        // A person's own settings must not change the result: no workspace, no flags, no C.
        env: [
            ("CGO_ENABLED", "0"),
            ("GOFLAGS", "-buildvcs=false"),
            ("GOWORK", "off"),
        ]
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect(),
    }
}

/// FNV-1a over length-prefixed strings: stable over releases of Rust, unlike the standard hashers.
struct Fnv(u64);

impl Fnv {
    const fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    fn add(&mut self, text: &str) {
        for byte in text.len().to_le_bytes().iter().chain(text.as_bytes()) {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}
