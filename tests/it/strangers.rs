//! Admission reveals the contents of the cluster only to an API server with its client certificate.

use anyhow::{Result, ensure};
use mortise_tests::harness::{Authority, Http, StateDir, wait_until};
use serde_json::{Value, json};

use crate::admission::{asked, kubectl, warnings};
use crate::objects::{LINUX, kwok_class, pool};
use crate::scene::{SOON, Scene, Setting};

/// The fact: there is a class of nearly that name.
const FACT: &str = "did you mean \"default\"";

/// A pool whose class does not exist.
fn mistaken() -> Value {
    let mut pool = pool("mistaken", &[LINUX], json!({}));
    pool["spec"]["template"]["spec"]["nodeClassRef"]["name"] = json!("defalt");
    pool
}

/// What a caller of the webhook itself is told.
async fn told(scene: &Scene, caller: &Http) -> Result<String> {
    let review = json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "1", "operation": "CREATE", "name": "mistaken", "object": mistaken(),
        "kind": { "group": "karpenter.sh", "version": "v1", "kind": "NodePool" },
    } });
    let url = scene.mortise.url("admission/v1/validate");
    let answer = caller.post(&url, &review).await?.json()?;
    ensure!(answer["response"]["allowed"] == true, "{answer}");
    Ok(answer["response"]["warnings"].to_string())
}

#[tokio::test]
async fn facts_are_for_api_servers_that_show_their_certificate() -> Result<()> {
    let state = StateDir::create("webhook-clients")?;
    let authority = Authority::new("webhook-clients")?;
    let ca = state.join("ca.crt");
    std::fs::write(&ca, authority.pem())?;
    let own = authority.client("kube-apiserver", &[])?;
    let (certificate, key) = own.write(state.path(), "client")?;
    // As an administrator writes it: whom the API server says it is to webhooks.
    let users = state.join("users.yaml");
    let user = json!({ "client-certificate": certificate, "client-key": key });
    let config =
        json!({ "apiVersion": "v1", "kind": "Config", "users": [{ "name": "*", "user": user }] });
    std::fs::write(&users, config.to_string())?;
    let plugin = |name: &str| {
        let configuration = json!({
            "apiVersion": "apiserver.config.k8s.io/v1", "kind": "WebhookAdmissionConfiguration", "kubeConfigFile": users,
        });
        json!({ "name": name, "configuration": configuration })
    };
    let plugins = ["MutatingAdmissionWebhook", "ValidatingAdmissionWebhook"].map(plugin);
    let admission = state.join("admission.yaml");
    let config = json!({
        "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration", "plugins": plugins,
    });
    std::fs::write(&admission, config.to_string())?;

    let setting = Setting {
        flags: vec![
            format!("--admission-client-ca={}", ca.display()),
            "--admission-client-names=kube-apiserver".to_owned(),
        ],
        api_server: vec![format!(
            "--admission-control-config-file={}",
            admission.display()
        )],
        ..Setting::default()
    };
    let scene = Scene::start(setting).await?;
    scene.apply(&[kwok_class()]).await?;
    asked(&scene).await?;

    wait_until("the API server to be told", SOON, || async {
        let said = kubectl(&scene, &["create", "--dry-run=server"], &mistaken()).await?;
        let warnings = warnings(&said);
        ensure!(
            warnings.iter().any(|text| text.contains(FACT)),
            "{warnings:?}"
        );
        Ok(())
    })
    .await?;

    let our_ca = scene.mortise.http()?;
    ensure!(!told(&scene, &our_ca).await?.contains(FACT), "a stranger");
    let scheduler = scene.mortise.scheduler_http()?;
    ensure!(
        !told(&scene, &scheduler).await?.contains(FACT),
        "a scheduler is no API server"
    );
    let withheld = scene
        .mortise
        .metric("mortise_webhook_calls_total", &["call=\"withheld\""])
        .await?;
    ensure!((withheld - 2.0).abs() < 0.5, "{withheld}");
    let log = scene.mortise.log()?;
    let line = "cluster facts withheld from admission response";
    ensure!(log.matches(line).count() == 1, "once a minute: {log}");
    scene.end().await;
    Ok(())
}
