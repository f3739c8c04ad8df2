//! Errors at the start: one clear line with problem, place and fix, and the documented exit code.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use mortise_tests::harness::{
    ControlPlane, Mortise, Moto, Port, StateDir, mortise_binary, of_tests, wait_until,
};
use tokio::io::AsyncReadExt as _;
use tokio::process::Command;

use crate::scene::turn;

/// A wrong start ends by itself within this.
const SOON: Duration = Duration::from_mins(1);

/// Flags, variables, and what is to be found in what it says.
type Start<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)], &'a [&'a str]);

/// How a start ended.
#[derive(Debug)]
struct Said {
    code: Option<i32>,
    /// Standard error without log lines, which are JSON.
    text: String,
}

impl Said {
    /// The exit code is this one, and one line that begins with the program's name has all these parts.
    fn expect(&self, code: i32, parts: &[&str]) -> Result<()> {
        ensure!(
            self.code == Some(code),
            "exit code {:?} instead of {code}: {}",
            self.code,
            self.text
        );
        let lines: Vec<&str> = self
            .text
            .lines()
            .filter(|line| !line.trim().is_empty())
            .collect();
        ensure!(
            lines.len() == 1 && lines[0].starts_with("mortise: "),
            "not one line: {}",
            self.text
        );
        for part in parts {
            ensure!(lines[0].contains(part), "{part:?} is not in {}", lines[0]);
        }
        Ok(())
    }
}

/// Runs `mortise serve` on ports of its own until it ends.
async fn serve(dir: &Path, args: &[&str], env: &[(&str, &str)]) -> Result<Said> {
    let certificates = dir.join("certs").display().to_string();
    let own = [
        "serve",
        "--bind-address=127.0.0.1",
        "--https-port=0",
        "--metrics-port=0",
        "--health-probe-port=0",
        "--leader-election-namespace=kube-system",
        "--cert-dir",
        certificates.as_str(),
    ];
    let all: Vec<&str> = own.iter().chain(args).copied().collect();
    run(&all, env).await
}

async fn run(args: &[&str], env: &[(&str, &str)]) -> Result<Said> {
    let mut command = Command::new(mortise_binary().await?);
    command
        .args(args)
        .env_remove("KUBECONFIG")
        .env("HOME", "/nonexistent")
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    for name in of_tests() {
        command.env_remove(name);
    }
    let mut child = command.envs(env.iter().copied()).spawn()?;
    let mut pipe = child.stderr.take().context("its standard error")?;
    let reading = tokio::spawn(async move {
        let mut text = String::new();
        pipe.read_to_string(&mut text).await.map(|_| text)
    });
    let ended = tokio::time::timeout(SOON, child.wait()).await;
    // Its end closes the pipe.
    child.kill().await.ok();
    let stderr = reading.await??;
    let Ok(status) = ended else {
        bail!("{args:?} runs still after {SOON:?}; it said:\n{stderr}");
    };
    let text: Vec<&str> = stderr
        .lines()
        .filter(|line| !line.starts_with('{'))
        .collect();
    Ok(Said {
        code: status?.code(),
        text: text.join("\n"),
    })
}

#[tokio::test]
async fn flags_and_variables() -> Result<()> {
    let mut dir = StateDir::create("input")?;
    let base = dir.path().to_owned();
    let base = base.as_path();
    // The command line's own parser answers these: several lines, the first of which says what is wrong.
    let parsed: [Start<'_>; 6] = [
        (
            &["--metrics-prot=1"],
            &[],
            &["--metrics-prot", "--metrics-port"],
        ),
        (
            &["--batch-idle-duration=5"],
            &[],
            &["--batch-idle-duration", "10s"],
        ),
        (&["--provider=awz"], &[], &["awz", "kwok", "aws"]),
        (
            &[],
            &[("PREFERENCE_POLICY", "Respct")],
            &["Respct", "--preference-policy", "Respect", "Ignore"],
        ),
        (
            &[],
            &[("BATCH_MAX_DURATION", "ten")],
            &["ten", "--batch-max-duration", "1m30s"],
        ),
        (
            &[],
            &[("KUBE_CLIENT_QPS", "-1")],
            &["-1", "--kube-client-qps"],
        ),
    ];
    for (args, env, parts) in parsed {
        let said = serve(base, args, env).await?;
        ensure!(said.code == Some(2), "{args:?} {env:?}: {said:?}");
        for part in parts {
            ensure!(
                said.text.contains(part),
                "{args:?} {env:?}: {part:?} is not in {}",
                said.text
            );
        }
    }
    let reason = serve(base, &["--notification-reasons=SpotInterupted"], &[]).await?;
    ensure!(
        reason.code == Some(2) && reason.text.contains("'SpotInterrupted'"),
        "{reason:?}"
    );
    let gate = serve(base, &["--feature-gates=NodeRepiar=true"], &[]).await?;
    gate.expect(
        2,
        &["--feature-gates", "NodeRepiar", "did you mean NodeRepair?"],
    )?;
    let gate = serve(base, &[], &[("FEATURE_GATES", "NodeRepair=perhaps")]).await?;
    gate.expect(2, &["NodeRepair", "perhaps", "true"])?;
    let variable = serve(base, &[], &[("MORTISE_PROVDER", "kwok")]).await?;
    variable.expect(2, &["MORTISE_PROVDER", "did you mean MORTISE_PROVIDER?"])?;
    let open = run(&["serve", "--insecure-debug"], &[]).await?;
    open.expect(2, &["--insecure-debug", "--bind-address 127.0.0.1"])?;
    let point = serve(
        base,
        &["--kubeconfig=/dev/null"],
        &[("MORTISE_FAILPOINT", "before-lunch")],
    )
    .await?;
    ensure!(point.code == Some(2) || point.code == Some(3), "{point:?}");
    let unknown = run(&["serv"], &[]).await?;
    ensure!(
        unknown.code == Some(2) && unknown.text.contains("serve"),
        "{unknown:?}"
    );
    dir.discard();
    Ok(())
}

#[tokio::test]
async fn kubeconfig_and_api_server() -> Result<()> {
    let mut dir = StateDir::create("input")?;
    let missing = dir.join("no-such-file").display().to_string();
    let said = serve(dir.path(), &["--kubeconfig", &missing], &[]).await?;
    said.expect(3, &["kubeconfig", &missing, "--kubeconfig FILE"])?;

    let torn = dir.join("torn");
    std::fs::write(&torn, "clusters: [{name: x")?;
    let torn = torn.display().to_string();
    let said = serve(dir.path(), &["--kubeconfig", &torn], &[]).await?;
    said.expect(3, &["kubeconfig", &torn])?;

    let none = serve(dir.path(), &[], &[]).await?;
    none.expect(3, &["kubeconfig"])?;

    let port = Port::claim()?;
    let dead = dir.join("dead");
    let server = format!("https://{}", port.address());
    std::fs::write(
        &dead,
        format!(
            "{{apiVersion: v1, kind: Config, current-context: c, clusters: [{{name: c, cluster: {{server: '{server}'}}}}], contexts: [{{name: c, context: {{cluster: c, user: u}}}}], users: [{{name: u, user: {{}}}}]}}"
        ),
    )?;
    let said = serve(
        dir.path(),
        &["--kubeconfig", &dead.display().to_string()],
        &[],
    )
    .await?;
    said.expect(3, &[&port.address(), "does not respond"])?;
    dir.discard();
    Ok(())
}

#[tokio::test]
async fn definitions_rights_and_ports() -> Result<()> {
    let _turn = turn().await?;
    let plane = Box::pin(ControlPlane::builder().start()).await?;
    let admin = plane.kubeconfig_path().display().to_string();
    let said = serve(plane.dir(), &["--kubeconfig", &admin], &[]).await?;
    said.expect(
        4,
        &[
            "nodepools.karpenter.sh",
            "nodeclaims.karpenter.sh",
            "kwoknodeclasses.karpenter.kwok.sh",
            "mortise manifests crds",
        ],
    )?;

    plane
        .apply_yaml(&Mortise::output(&["manifests", "crds"]).await?)
        .await?;
    let user = "system:serviceaccount:kube-system:mortise";
    let groups = ["system:serviceaccounts"];
    let account = plane.kubeconfig_for(user, &groups)?.display().to_string();
    let said = serve(plane.dir(), &["--kubeconfig", &account], &[]).await?;
    said.expect(
        5,
        &[
            user,
            "list/watch namespaces",
            "create pods/eviction",
            "patch nodeclaims/status.karpenter.sh",
            "leases.coordination.k8s.io",
            "mortise manifests rbac",
        ],
    )?;

    // One right less than it asks for is missed by name, and nothing else is.
    let rbac = Mortise::output(&["manifests", "rbac"]).await?;
    let less = rbac.replace("- pods/eviction\n", "- pods/nothing\n");
    ensure!(less != rbac, "{rbac}");
    plane.apply_yaml(&less).await?;
    let said = wait_until("the authorizer to see the roles", SOON, || async {
        let said = serve(plane.dir(), &["--kubeconfig", &account], &[]).await?;
        ensure!(!said.text.contains("leases"), "{said:?}");
        Ok(said)
    })
    .await?;
    said.expect(5, &["create pods/eviction", "mortise manifests rbac"])?;
    ensure!(!said.text.contains("nodeclaims"), "{}", said.text);

    // A feature that needs a right of its own says how to get it.
    plane.apply_yaml(&rbac).await?;
    let flags = [
        "--kubeconfig",
        &account,
        "--pod-deletion-costs",
        "--hand-over",
    ];
    let said = wait_until("the authorizer to see the roles again", SOON, || async {
        let said = serve(plane.dir(), &flags, &[]).await?;
        ensure!(!said.text.contains("pods/eviction"), "{said:?}");
        Ok(said)
    })
    .await?;
    said.expect(
        5,
        &[
            "patch pods",
            "patch deployments.apps",
            "mortise manifests rbac --pod-deletion-costs --hand-over",
        ],
    )?;

    let taken = std::net::TcpListener::bind("127.0.0.1:0")?;
    let port = taken.local_addr()?.port();
    let flags = ["--kubeconfig", &admin, "--metrics-port", &port.to_string()];
    let said = serve(plane.dir(), &flags, &[]).await?;
    said.expect(1, &[&format!("127.0.0.1:{port}"), "metrics"])?;

    a_file_without_a_url(plane.dir(), &admin).await?;

    let file = plane.dir().join("types.json");
    let path = file.display().to_string();
    for (text, parts) in [
        (None, ["types.json", "o such file"]),
        (Some("[{\"name\": \"x\", "), ["types.json", "line 1"]),
        (Some("{}"), ["types.json", "expected"]),
        (
            Some(
                "[{\"name\": \"odd\", \"offerings\": [], \"architecture\": \"amd64\", \"operatingSystems\": [\"linux\"], \"resources\": {\"cpu\": \"many\"}}]",
            ),
            ["types.json", "many"],
        ),
    ] {
        if let Some(text) = text {
            std::fs::write(&file, text)?;
        }
        let said = serve(
            plane.dir(),
            &["--kubeconfig", &admin, "--instance-types-file-path", &path],
            &[],
        )
        .await?;
        said.expect(6, &parts)
            .with_context(|| format!("{text:?}"))?;
    }
    plane.stop().await;
    Ok(())
}

/// Notifications need a URL; what is in its file is not shown.
async fn a_file_without_a_url(dir: &Path, kubeconfig: &str) -> Result<()> {
    let url = dir.join("url");
    std::fs::write(&url, "hooks.example.com/a-secret")?;
    let file = format!("--notification-url-file={}", url.display());
    let said = serve(dir, &["--kubeconfig", kubeconfig, &file], &[]).await?;
    said.expect(2, &[&file, "it has no URL such as https://"])?;
    ensure!(!said.text.contains("a-secret"), "{}", said.text);
    Ok(())
}

#[tokio::test]
async fn cloud_and_queue() -> Result<()> {
    let _turn = turn().await?;
    let crds = Mortise::output(&["manifests", "crds", "--provider", "aws"]).await?;
    let plane = Box::pin(ControlPlane::builder().manifests(&crds).start()).await?;
    let admin = plane.kubeconfig_path().display().to_string();
    let credentials = [
        ("AWS_ACCESS_KEY_ID", "test"),
        ("AWS_SECRET_ACCESS_KEY", "test"),
        ("AWS_EC2_METADATA_DISABLED", "true"),
        ("NO_PROXY", "127.0.0.1"),
    ];
    let port = Port::claim()?;
    let unreachable_endpoint = format!("--aws-endpoint-url=http://{}", port.address());
    let common = [
        "--kubeconfig",
        &admin,
        "--provider=aws",
        "--cluster-name=story",
        "--aws-region=us-east-1",
    ];
    let with = |more: &[&'static str], endpoint: &str| -> Vec<String> {
        common
            .iter()
            .chain(more)
            .map(|arg| (*arg).to_owned())
            .chain([endpoint.to_owned()])
            .collect()
    };
    let start = async |args: Vec<String>| -> Result<Said> {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        serve(plane.dir(), &args, &credentials).await
    };
    start(with(&[], &unreachable_endpoint))
        .await?
        .expect(6, &["provider aws", &port.address()])?;

    let moto = Moto::start().await?;
    moto.fixtures("story").await?;
    let endpoint = format!("--aws-endpoint-url={}", moto.endpoint());
    let said = start(with(&["--interruption-queue=stroy"], &endpoint)).await?;
    said.expect(
        6,
        &["provider aws", "queue", "stroy", "--interruption-queue"],
    )?;
    moto.stop().await;
    plane.stop().await;
    Ok(())
}
