//! The CA changes while the API server asks: no review fails, and every bundle follows.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use mortise_apis::NodePool;
use mortise_tests::harness::{Authority, Http, Identity, wait_until};
use serde_json::{Value, json};
use x509_parser::pem::Pem;

use crate::objects::{LINUX, kwok_class, pool};
use crate::scene::{SOON, Scene, Setting};

const DAY: Duration = Duration::from_hours(24);
const SECRET: &str = "mortise-cert";

fn secrets(scene: &Scene) -> Api<Secret> {
    Api::namespaced(scene.plane.client(), "kube-system")
}

/// A file of the Secret.
async fn file(scene: &Scene, name: &str) -> Result<String> {
    let secret = secrets(scene).get(SECRET).await?;
    let bytes = secret.data.and_then(|mut data| data.remove(name));
    Ok(String::from_utf8(
        bytes.with_context(|| format!("{name} in the Secret"))?.0,
    )?)
}

/// Every bundle that the API server has for us.
async fn bundles(scene: &Scene) -> Result<Vec<String>> {
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(scene.plane.client());
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(scene.plane.client());
    let mut bundles = Vec::new();
    let validating = validating.get("validation.mortise.sh").await?;
    for webhook in validating.webhooks.context("webhooks")? {
        bundles.push(webhook.client_config.ca_bundle);
    }
    let mutating = mutating.get("defaulting.mortise.sh").await?;
    for webhook in mutating.webhooks.context("webhooks")? {
        bundles.push(webhook.client_config.ca_bundle);
    }
    ensure!(bundles.len() >= 2, "{} webhooks", bundles.len());
    bundles
        .into_iter()
        .map(|bundle| Ok(String::from_utf8(bundle.context("a bundle")?.0)?))
        .collect()
}

/// Waits until every bundle is that of the Secret, and returns it.
async fn announced(scene: &Scene, certificates: usize) -> Result<String> {
    wait_until("the bundle in every webhook", SOON, || async {
        let ca = file(scene, "ca.crt").await?;
        let all = bundles(scene).await?;
        ensure!(all.iter().all(|bundle| *bundle == ca), "not everywhere yet");
        let count = ca.matches("BEGIN CERTIFICATE").count();
        ensure!(count == certificates, "{count} certificates");
        Ok(ca)
    })
    .await
}

/// Common name of the first certificate's subject, and of its issuer.
fn names(pem: &str) -> Result<(String, String)> {
    let first = Pem::iter_from_buffer(pem.as_bytes())
        .next()
        .context("a certificate")??;
    let certificate = first.parse_x509()?;
    let name = |name: &x509_parser::x509::X509Name<'_>| -> Result<String> {
        let common = name.iter_common_name().next().context("a common name")?;
        Ok(common.as_str()?.to_owned())
    };
    Ok((name(certificate.subject())?, name(certificate.issuer())?))
}

/// A question to the extender on a connection of its own, with what the Secret holds at this moment; as kube-scheduler asks
/// that was started now.
async fn asks_on_new_connection(scene: &Scene, body: &Value) -> Result<()> {
    let identity = Identity {
        certificate: file(scene, "extender-client.crt").await?,
        key: file(scene, "extender-client.key").await?,
    };
    let http = Http::new(&file(scene, "ca.crt").await?, Some(&identity))?;
    asks(&http, &scene.mortise.url("extender/v1/filter"), body).await
}

async fn asks(http: &Http, url: &str, body: &Value) -> Result<()> {
    let reply = http.post(url, body).await?;
    ensure!(reply.status == 200, "{reply:?}");
    Ok(())
}

/// Criterion 14: reviews of the API server and calls of the scheduler go on while the CA and every certificate change.
#[tokio::test]
#[expect(clippy::too_many_lines, reason = "one story, told in order")]
async fn criterion_14_a_new_ca_takes_over_and_no_call_fails() -> Result<()> {
    let old = Authority::aged("mortise-ca-old", None, DAY * 100, DAY * 40)?.identity();
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": SECRET, "namespace": "kube-system" },
        "stringData": { "ca.crt": old.certificate, "ca.key": old.key },
    });
    let setting = Setting {
        cert_secret: true,
        manifests: vec![secret.to_string()],
        ..Setting::default()
    };
    let scene = Scene::start(setting).await?;
    scene.apply(&[kwok_class()]).await?;

    // The old CA is past two thirds of its life: there is a new one, which signs nothing yet.
    let (newest, _) = names(&file(&scene, "ca.crt").await?)?;
    ensure!(newest != "mortise-ca-old", "{newest}");
    let (_, issuer) = names(&file(&scene, "tls.crt").await?)?;
    ensure!(issuer == "mortise-ca-old", "{issuer}");

    // Whoever installed the webhooks knew the old one only, and wants no pool unchecked.
    old.write(&scene.plane.dir().join("mortise-certs"), "ca")?;
    let strict = scene.mortise.webhook_manifests(&["--fail"]).await?;
    scene.plane.apply_yaml(&strict).await?;
    let pools: Api<NodePool> = Api::all(scene.plane.client());
    let dry_run = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    // Without group and kind of its class, which only the webhook fills in.
    let mut probe = pool("probe", &[LINUX], json!({}));
    probe["spec"]["template"]["spec"]["nodeClassRef"] = json!({ "name": "default" });
    let any: Api<DynamicObject> =
        Api::all_with(scene.plane.client(), &ApiResource::erase::<NodePool>(&()));
    let probe: DynamicObject = serde_json::from_value(probe)?;
    wait_until("the API server to ask the webhooks", SOON, || async {
        any.create(&dry_run, &probe).await?;
        Ok(())
    })
    .await?;

    let (ended, asked) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicUsize::new(0)),
    );
    let asking = tokio::spawn({
        let (ended, asked, any, probe) = (ended.clone(), asked.clone(), any.clone(), probe.clone());
        async move {
            let mut pace = tokio::time::interval(Duration::from_millis(50));
            while !ended.load(Ordering::Relaxed) {
                pace.tick().await;
                any.create(&dry_run, &probe)
                    .await
                    .with_context(|| format!("review {}", asked.load(Ordering::Relaxed)))?;
                asked.fetch_add(1, Ordering::Relaxed);
            }
            anyhow::Ok(())
        }
    });
    // kube-scheduler reads the bundle when it starts, and keeps its connection as long as that lasts.
    let body = json!({ "Pod": { "metadata": { "name": "x" }, "spec": { "containers": [] } }, "NodeNames": ["n1"] });
    asks_on_new_connection(&scene, &body).await?;
    let scheduler = Http::new(
        &file(&scene, "ca.crt").await?,
        Some(&Identity {
            certificate: file(&scene, "extender-client.crt").await?,
            key: file(&scene, "extender-client.key").await?,
        }),
    )?;
    let scheduling = tokio::spawn({
        let (ended, body) = (ended.clone(), body.clone());
        let url = scene.mortise.url("extender/v1/filter");
        async move {
            let mut calls = 0;
            let mut pace = tokio::time::interval(Duration::from_millis(10));
            while !ended.load(Ordering::Relaxed) {
                pace.tick().await;
                asks(&scheduler, &url, &body)
                    .await
                    .with_context(|| format!("call {calls}"))?;
                calls += 1;
            }
            anyhow::Ok(calls)
        }
    });
    let first = announced(&scene, 2).await?;
    ensure!(
        first.contains(old.certificate.trim()),
        "the old one is still trusted"
    );

    // A day later. The same key and name, so what is signed with it is trusted by the bundle of yesterday.
    let keys = file(&scene, "ca.key").await?;
    let later = Authority::aged(&newest, Some(&keys), DAY * 2, DAY * 3_000)?.pem();
    let bundle = format!("{later}{}", old.certificate);
    let patch = json!({ "stringData": { "ca.crt": bundle } });
    secrets(&scene)
        .patch(SECRET, &PatchParams::default(), &Patch::Merge(patch))
        .await?;
    wait_until("a certificate of the new CA", SOON, || async {
        let (_, issuer) = names(&file(&scene, "tls.crt").await?)?;
        ensure!(issuer == newest, "{issuer}");
        Ok(())
    })
    .await?;
    let second = announced(&scene, 2).await?;
    ensure!(second == bundle, "{second}");
    wait_until("calls on new connections", SOON, || {
        asks_on_new_connection(&scene, &body)
    })
    .await?;

    // And from now on.
    let so_far = asked.load(Ordering::Relaxed);
    wait_until("reviews with the new certificate", SOON, || async {
        let asked = asked.load(Ordering::Relaxed);
        ensure!(asked >= so_far + 20, "{asked}");
        Ok(())
    })
    .await?;
    ended.store(true, Ordering::Relaxed);
    asking.await??;
    let calls: u32 = scheduling.await??;
    ensure!(calls > 100, "{calls} calls of the scheduler");
    ensure!(pools.list(&ListParams::default()).await?.items.is_empty());
    scene.end().await;
    Ok(())
}
