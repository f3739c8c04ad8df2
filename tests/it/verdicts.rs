//! A real API server accepts and rejects the same objects with and without mortise's webhooks: every recorded object, for every
//! kind of write. A list has those that the webhooks reject on purpose. All are dry runs; only the original of an update is
//! stored.

#[path = "../../webhooks/tests/encodings/mod.rs"]
mod encodings;

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::api::{GetParams, PostParams};
use kube::core::Request;
use kube::{Client, Error};
use mortise_tests::harness::wait_until;
use serde_json::{Value, json};

use self::encodings::node_classes::DefinitionSet;
use self::encodings::recorded::{Case, cases, on_purpose};
use self::encodings::{definition, schema, the_same};
use crate::admission::asked;
use crate::aws_account::Account;
use crate::objects::kwok_class;
use crate::scene::{SOON, Scene};

/// Dry runs at a time: enough to keep two processors busy.
const AT_ONCE: usize = 8;

/// An object in one of its writings, as a client sends it.
struct Question<'a> {
    case: &'a Case,
    writing: String,
    object: Value,
}

impl Question<'_> {
    fn place(&self) -> String {
        let operation = self.case.old.as_ref().map_or("create", |_| "update");
        let Case { id, kind, .. } = self.case;
        format!("{operation} {kind} {id}, {}", self.writing)
    }

    async fn ask(&self, client: &Client) -> Result<Result<Value, Error>> {
        let (to, dry) = (requests(self.case)?, dry());
        if self.case.old.is_none() {
            let request = to.create(&dry, serde_json::to_vec(&self.object)?)?;
            return Ok(client.request(request).await);
        }
        let (to, dry, name) = (&to, &dry, &self.case.id);
        wait_until("an update without a conflict", SOON, || async move {
            let get = to.get(name, &GetParams::default())?;
            let stored: Value = client.request(get).await?;
            let mut object = self.object.clone();
            object["metadata"]["name"] = json!(name);
            object["metadata"]["resourceVersion"] = stored["metadata"]["resourceVersion"].clone();
            let request = to.replace(name, dry, serde_json::to_vec(&object)?)?;
            let answer = client.request(request).await;
            let conflict = matches!(&answer, Err(Error::Api(status)) if status.code == 409);
            ensure!(!conflict, "{answer:?}");
            Ok(answer)
        })
        .await
    }

    /// `None` when the API server takes it, else what it says. Only a refusal of the object itself counts as one.
    async fn refusal(&self, client: &Client) -> Result<Option<String>> {
        match self.ask(client).await? {
            Ok(_) => Ok(None),
            Err(Error::Api(status)) if status.code == 422 || status.code == 400 => {
                Ok(Some(status.message))
            }
            Err(error) => Err(error).with_context(|| self.place()),
        }
    }
}

/// Parameters of a request that stores nothing.
fn dry() -> PostParams {
    PostParams {
        dry_run: true,
        ..PostParams::default()
    }
}

/// Requests about objects of the kind of a case.
fn requests(case: &Case) -> Result<Request> {
    let plural = definition(case.set, &case.kind).pointer("/spec/names/plural");
    let plural = plural.and_then(Value::as_str).context("plural")?;
    let version = case.object["apiVersion"].as_str().context("apiVersion")?;
    Ok(Request::new(format!("/apis/{version}/{plural}")))
}

/// Stores what is to be updated, each under the name of its case.
async fn store(client: &Client, cases: &[Case]) -> Result<()> {
    for case in cases {
        if let Some(mut old) = case.old.clone() {
            old["metadata"]["name"] = json!(case.id);
            let body = serde_json::to_vec(&old)?;
            let request = requests(case)?.create(&PostParams::default(), body)?;
            client.request::<Value>(request).await?;
        }
    }
    Ok(())
}

/// Each object in every writing that says the same.
fn questions(cases: &[Case]) -> Vec<Question<'_>> {
    let mut all = Vec::new();
    for case in cases {
        for each in the_same(schema(case.set, &case.kind), &case.object) {
            let (writing, object) = (each.name, each.object);
            all.push(Question {
                case,
                writing,
                object,
            });
        }
    }
    all
}

async fn refusals(client: &Client, questions: &[Question<'_>]) -> Result<Vec<Option<String>>> {
    stream::iter(questions)
        .map(|question| question.refusal(client))
        .buffered(AT_ONCE)
        .try_collect()
        .await
}

/// Reviews of this kind that mortise has been asked for.
async fn reviews(scene: &Scene, call: &str) -> Result<f64> {
    let label = format!("call=\"{call}\"");
    let name = "mortise_webhook_calls_total";
    scene.mortise.metric(name, &[&label]).await
}

/// The API server has let nothing pass because mortise did not answer.
async fn every_review_was_answered(client: &Client) -> Result<()> {
    let page = client
        .request_text(http::Request::get("/metrics").body(Vec::new())?)
        .await?;
    let open = "apiserver_admission_webhook_fail_open_count{";
    let passed: Vec<&str> = page.lines().filter(|line| line.starts_with(open)).collect();
    ensure!(passed.is_empty(), "{passed:?}");
    Ok(())
}

/// Asks everything without the webhooks, registers them, asks again and compares.
#[expect(clippy::print_stdout, reason = "a story tells what it has seen")]
async fn webhooks_change_no_verdict(scene: &Scene, set: DefinitionSet) -> Result<()> {
    let client = &scene.plane.client();
    let own = on_purpose();
    let mut cases = cases();
    cases.retain(|case| case.set == set);
    store(client, &cases).await?;
    let questions = questions(&cases);
    let without = refusals(client, &questions).await?;
    asked(scene).await?;
    let (defaulted, validated) = (
        reviews(scene, "default").await?,
        reviews(scene, "validate").await?,
    );
    let with = refusals(client, &questions).await?;

    let (mut wrong, mut ours, mut taken, mut refused) = (Vec::new(), BTreeSet::new(), 0, 0);
    for (question, (without, with)) in questions.iter().zip(without.iter().zip(&with)) {
        let listed = |said: &str| own.iter().any(|own| said.contains(&own.says));
        let (case, place) = (question.case, question.place());
        if case.taken.is_some_and(|taken| taken != without.is_none()) {
            wrong.push(format!(
                "{place}: recorded otherwise, now {without:?}\n  {}",
                question.object
            ));
        }
        match (without, with) {
            (None, None) => taken += 1,
            (Some(_), Some(_)) => refused += 1,
            (None, Some(said)) if listed(said) => {
                ours.insert(&case.id);
            }
            _ => wrong.push(format!(
                "{place}: without the webhooks {without:?}, with them {with:?}\n  {}",
                question.object
            )),
        }
    }
    println!(
        "{}: {} writings of {} objects; {taken} taken, {refused} refused by the API server, the others by the webhooks on purpose: {ours:?}",
        set.as_str(),
        questions.len(),
        cases.len()
    );
    ensure!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    ensure!(taken > 0 && refused > 0, "{taken} taken, {refused} refused");

    // mortise was asked about each of them, and about what is taken once more.
    for (call, before, least) in [
        ("default", defaulted, questions.len()),
        ("validate", validated, taken),
    ] {
        let asked = reviews(scene, call).await? - before;
        ensure!(
            asked + 0.5 > least as f64,
            "{call}: {asked} reviews of {least}"
        );
    }
    every_review_was_answered(client).await
}

#[tokio::test]
async fn webhooks_change_no_verdict_with_kwok() -> Result<()> {
    let scene = Scene::kwok().await?;
    scene.apply(&[kwok_class()]).await?;
    webhooks_change_no_verdict(&scene, DefinitionSet::Kwok).await?;

    let classes = Request::new("/apis/karpenter.kwok.sh/v1alpha1/kwoknodeclasses");
    let mut class = kwok_class();
    class["metadata"]["name"] = json!("bare");
    let mut with_null = class.clone();
    with_null["spec"] = Value::Null;
    for class in [class, with_null] {
        let request = classes.create(&dry(), serde_json::to_vec(&class)?)?;
        let answer = scene.plane.client().request::<Value>(request).await;
        answer.with_context(|| class.to_string())?;
    }
    scene.end().await;
    Ok(())
}

#[tokio::test]
async fn webhooks_change_no_verdict_with_aws() -> Result<()> {
    let account = Account::open().await?;
    let (scene, factory) = account.scene(&[]).await?;
    webhooks_change_no_verdict(&scene, DefinitionSet::Aws).await?;
    drop(factory);
    scene.end().await;
    account.end().await
}
