//! The targets.

use std::sync::{Arc, LazyLock};

use mortise_apis::CrdSet;
use mortise_apis::schema::absent::drop_nulls;
use mortise_apis::values::{CronSchedule, Format, GoDuration, NillableDuration, Quantity};
use mortise_aws_class::Ec2NodeClassApi;
use mortise_aws_class::labels::well_known;
use mortise_manifests::lint::{LintOptions, lint};
use mortise_manifests::migrate::{
    MigrateOptions, MigrationLevel, SourceFile, from_cluster_autoscaler, migrate,
};
use mortise_webhooks::admission::{self, AdmissionContext, AdmissionSettings};
use mortise_webhooks::extender::{self, ExtenderState, wire};
use mortise_webhooks::router::{self, WebhookState};
use mortise_webhooks::{ClusterView as _, Counters};
use serde_json::Value;

use crate::cluster::Cluster;

/// Maximum length of a warning: kubectl shows one line, and API servers truncate long ones.
const WARNING: usize = 120;

static COUNTERS: LazyLock<Counters> = LazyLock::new(Counters::default);

static RULES: LazyLock<AdmissionSettings> = LazyLock::new(|| AdmissionSettings {
    deny_unsatisfiable: true,
    offline: false,
    crds: CrdSet::of_class(&Ec2NodeClassApi),
});

static LINT: LazyLock<LintOptions> = LazyLock::new(|| LintOptions {
    crds: RULES.crds.clone(),
    well_known: well_known(),
    catalog: None,
    from: Cluster.now(),
    nodes: Some(10),
});

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

fn read(body: &[u8]) -> Option<Value> {
    serde_json::from_slice(body).ok()
}

fn written(answer: &impl serde::Serialize) -> Value {
    serde_json::to_value(answer)
        .unwrap_or_else(|error| panic!("an answer that is no JSON: {error}"))
}

/// The same review without `null` values; `None` if it had none.
fn review_without_nulls(mut review: Value) -> Option<Vec<u8>> {
    let before = review.clone();
    for path in ["/request/object", "/request/oldObject"] {
        if let Some(object) = review.pointer_mut(path) {
            drop_nulls(object);
        }
    }
    (review != before).then(|| review.to_string().into_bytes())
}

/// An AdmissionReview for both webhooks. Every body gets a response with the uid of the request; warnings are short;
/// defaulting is idempotent and changes no field that is set; and absent and `null` fields get the same decision.
pub fn admission(body: &[u8]) {
    let snapshot = Cluster.snapshot();
    let context = AdmissionContext {
        snapshot: &snapshot,
        rules: &RULES,
        now: Cluster.now(),
        stop: &|| true,
    };
    let validated = written(&admission::respond_to_review(body, &COUNTERS, |request| {
        admission::validate(&context, request)
    }));
    if let Some(clean) = read(body).and_then(review_without_nulls) {
        let clean = written(&admission::respond_to_review(
            &clean,
            &COUNTERS,
            |request| admission::validate(&context, request),
        ));
        let verdict = |answer: &Value| answer.pointer("/response/allowed").cloned();
        assert_eq!(verdict(&validated), verdict(&clean), "{validated} {clean}");
    }
    let defaulted = written(&admission::respond_to_review(body, &COUNTERS, |request| {
        let answer = admission::set_defaults(&RULES, &snapshot.well_known, request);
        for operation in &answer.patch {
            let path = operation
                .get("path")
                .and_then(Value::as_str)
                .unwrap_or_default();
            let there = request.object.pointer(path);
            assert!(
                there.is_none_or(|value| value.is_null() || value.as_str() == Some("")),
                "a default for {path}, which is {there:?}"
            );
        }
        answer
    }));
    for answer in [&validated, &defaulted] {
        // The size of the response does not grow with the body: at most a hundred issues, each of them short.
        let written = answer.to_string().len();
        assert!(written < 256 << 10, "{written} bytes are answered");
        let response = answer.get("response").unwrap_or(&Value::Null);
        let allowed = response.get("allowed").and_then(Value::as_bool);
        assert!(allowed.is_some(), "neither allowed nor refused: {answer}");
        let reason = response.pointer("/status/message").and_then(Value::as_str);
        assert!(
            allowed == Some(true) || reason.is_some_and(|reason| !reason.is_empty()),
            "refused without a reason: {answer}"
        );
        let warnings = response.get("warnings").and_then(Value::as_array);
        for warning in warnings.into_iter().flatten() {
            let length = warning
                .as_str()
                .map_or(0, |warning| warning.chars().count());
            assert!((1..=WARNING).contains(&length), "{length}: {warning}");
        }
        let asked =
            read(body).filter(|review| review.pointer("/request").is_some_and(Value::is_object));
        if let Some(uid) = asked
            .as_ref()
            .and_then(|review| review.pointer("/request/uid"))
        {
            let malformed = response.pointer("/status/code") == Some(&Value::from(400));
            assert!(malformed || response.get("uid") == Some(uid), "{answer}");
        }
    }
}

/// A ConversionReview: the response has as many objects as the request, or a reason; converted objects can be
/// converted back.
pub fn conversion(body: &[u8]) {
    let Ok(converted) = mortise_webhooks::conversion::convert(RULES.crds.known(), body, &COUNTERS)
    else {
        return;
    };
    let answer = written(&converted);
    let objects =
        |value: Option<&Value>| value.and_then(Value::as_array).cloned().unwrap_or_default();
    let given = objects(
        read(body)
            .as_ref()
            .and_then(|review| review.pointer("/request/objects")),
    );
    let result = answer.pointer("/response/result");
    let status = result.and_then(|result| result.get("status")?.as_str());
    if status == Some("Failure") {
        let reason = result.and_then(|result| result.get("message")?.as_str());
        assert!(reason.is_some_and(|reason| !reason.is_empty()), "{answer}");
        return;
    }
    let made = objects(answer.pointer("/response/convertedObjects"));
    assert_eq!(made.len(), given.len(), "{answer}");
    for (made, given) in made.into_iter().zip(given) {
        for at in [
            "/metadata/name",
            "/metadata/namespace",
            "/metadata/uid",
            "/kind",
        ] {
            assert_eq!(made.pointer(at), given.pointer(at), "{at}");
        }
        let version = given
            .get("apiVersion")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let back = mortise_apis::conversion::convert(RULES.crds.known(), made, version);
        assert!(back.is_ok(), "{given} cannot come back: {back:?}");
    }
}

static APP: LazyLock<WebhookState> = LazyLock::new(|| WebhookState {
    view: Arc::new(Cluster),
    counters: Arc::default(),
    extender: Arc::default(),
    rules: Arc::new(RULES.clone()),
    conversion: true,
});

/// Every path of the extender responds to a valid body with 200, and to an invalid one with 400.
fn check_status_codes(body: &[u8]) {
    let nodes = serde_json::from_slice::<wire::Args<'_>>(body).is_ok();
    let victims = serde_json::from_slice::<wire::PreemptionArgs>(body).is_ok();
    for (path, readable) in [
        ("/extender/v1/filter", nodes),
        ("/extender/v1/prioritize", nodes),
        ("/extender/v1/preempt", victims),
        ("/debug/simulate/filter", nodes),
        ("/debug/simulate/prioritize", nodes),
    ] {
        let response = router::respond(&APP, path, body);
        let status = response.map(|response| response.status().as_u16());
        assert_eq!(status, Some(if readable { 200 } else { 400 }), "{path}");
    }
}

/// Bodies of filter, prioritize and preempt, each sent to every path: a valid body gets 200; every node of the request
/// is allowed or denied, and scored from 0 to 10.
pub fn extender(body: &[u8]) {
    check_status_codes(body);
    let state = ExtenderState::default();
    if let Ok(args) = serde_json::from_slice::<wire::Args<'_>>(body) {
        let answer = written(&extender::filter(&Cluster, &state, &COUNTERS, &args, true));
        let names = |at: &str| answer.pointer(at).and_then(Value::as_array).cloned();
        let kept: Vec<String> = names("/NodeNames").map_or_else(
            || {
                let nodes = names("/Nodes/items").unwrap_or_default();
                nodes
                    .iter()
                    .map(|node| wire::NodeList::name(node).to_owned())
                    .collect()
            },
            |names| {
                names
                    .iter()
                    .filter_map(|name| name.as_str().map(str::to_owned))
                    .collect()
            },
        );
        let denied = answer.get("FailedAndUnresolvableNodes");
        for name in args.names() {
            let is_denied = denied.is_some_and(|denied| denied.get(name).is_some());
            assert!(
                kept.iter().any(|kept| kept == name) != is_denied,
                "{name:?} is lost: {answer}"
            );
        }
        let scores = extender::prioritize(&Cluster, &state, &COUNTERS, &args);
        assert_eq!(scores.len(), args.names().len());
        for each in scores {
            assert!((0..=10).contains(&each.score), "{each:?}");
        }
    }
    if let Ok(args) = serde_json::from_slice::<wire::PreemptionArgs>(body) {
        let answer = written(&extender::preempt(&Cluster, &state, &COUNTERS, args));
        assert!(
            answer
                .get("NodeNameToMetaVictims")
                .is_some_and(Value::is_object),
            "{answer}"
        );
    }
}

/// YAML of a user. `lint`: every finding has its location in the file. `migrate`: a second run changes nothing, unless
/// the first reported remaining work. As node groups, every finding says something.
pub fn manifest(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    let source = SourceFile {
        name: "input.yaml".to_owned(),
        text: text.to_owned(),
    };
    let options = MigrateOptions::default();
    let report = lint(std::slice::from_ref(&source), &LINT);
    for finding in &report.findings {
        // A single carriage return also ends a line of YAML.
        let line = 0..=text.split(['\n', '\r']).count() + 1;
        assert!(line.contains(&finding.line), "no such line: {finding:?}");
        assert!(!finding.problem.is_empty(), "it says nothing: {finding:?}");
    }
    let groups = from_cluster_autoscaler(std::slice::from_ref(&source), &options);
    for finding in &groups.findings {
        assert!(!finding.text.is_empty(), "it says nothing: {finding:?}");
    }
    let once = migrate(&[source], &options);
    if once.worst() == MigrationLevel::Error {
        return;
    }
    let again = migrate(&once.files, &options);
    let texts = |files: &[SourceFile]| {
        files
            .iter()
            .map(|file| file.text.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        texts(&once.files),
        texts(&again.files),
        "the second time changes something"
    );
}

/// A quantity: its canonical text is parsed as the same amount, and is stable after one round: binary amounts that are
/// not a multiple of 1024 are printed without a suffix, and are decimal from then on.
pub fn quantity(bytes: &[u8]) {
    let Some(Ok(quantity)) = text(bytes).map(Quantity::parse) else {
        return;
    };
    let canonical = quantity.to_string();
    let again = Quantity::parse(&canonical)
        .unwrap_or_else(|error| panic!("{canonical:?} is refused: {error}"));
    assert_eq!(again.nanos(), quantity.nanos(), "{canonical}");
    let settled = again.to_string();
    assert!(
        settled == canonical || quantity.format() == Format::BinarySi,
        "{canonical} becomes {settled}"
    );
    let third = Quantity::parse(&settled).map(|third| (third.nanos(), third.to_string()));
    assert_eq!(third, Ok((again.nanos(), settled)));
    // The reference rounds negative fractions differently; the recorded facts cover them.
    if quantity.signum() >= 0 {
        assert_eq!(again.value(), quantity.value(), "{canonical}");
        assert_eq!(again.milli(), quantity.milli(), "{canonical}");
    }
}

/// A duration: its text in the notation of Go is parsed as the same value; with `Never` it is printed unchanged.
pub fn duration(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    if let Ok(duration) = GoDuration::parse(text) {
        assert_eq!(GoDuration::parse(&duration.to_string()), Ok(duration));
    }
    if let Ok(nillable) = NillableDuration::parse(text) {
        assert_eq!(nillable.to_string(), text);
    }
}

/// A schedule: its next time is later, on the minute, and found again by searching backwards from it.
pub fn cron(bytes: &[u8]) {
    let Some(Ok(schedule)) = text(bytes).map(CronSchedule::parse) else {
        return;
    };
    let now = Cluster.now();
    let Some(next) = schedule.next(now) else {
        return;
    };
    assert!(next > now, "{next} is not after {now}");
    if schedule.prev(next).is_some() {
        assert_eq!(next.as_second() % 60, 0, "{next}");
        assert_eq!(schedule.prev(next), Some(next));
    }
}
