//! Every recorded object that an API server accepts is allowed by the webhooks, in every encoding. Intended exceptions
//! are in a list.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails by panicking where its expectation stands, and tells what it has seen"
)]

mod encodings;

use std::collections::BTreeSet;

use encodings::node_classes::DefinitionSet;
use encodings::recorded::{Own, cases, on_purpose};
use encodings::{Encoding, each_made_null, one_null_each, schema, stored, the_same};
use jiff::Timestamp;
use mortise_apis::issues::IssueSeverity;
use mortise_apis::validation::faults;
use mortise_state::index::Index;
use mortise_state::snapshot::Snapshot;
use mortise_webhooks::Counters;
use mortise_webhooks::admission::{self, AdmissionContext, AdmissionSettings};
use serde_json::{Value, json};

/// An empty cluster.
struct Server {
    set: DefinitionSet,
    rules: AdmissionSettings,
    snapshot: Snapshot,
    own: Vec<Own>,
    used: BTreeSet<usize>,
}

impl Server {
    fn new(set: DefinitionSet) -> Self {
        let crds = set.crds().clone();
        let well_known = crds.served().well_known();
        let mut index = Index::new(well_known, true, Timestamp::UNIX_EPOCH);
        index.set_synced();
        Self {
            set,
            rules: AdmissionSettings {
                crds,
                ..AdmissionSettings::default()
            },
            snapshot: index.freeze(Timestamp::UNIX_EPOCH),
            own: on_purpose(),
            used: BTreeSet::new(),
        }
    }

    /// Denials of both webhooks, through AdmissionReviews.
    fn refusals(&self, object: &Value, old: Option<&Value>) -> Vec<String> {
        let (group, version) = object["apiVersion"]
            .as_str()
            .unwrap()
            .split_once('/')
            .unwrap();
        let body = json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
            "uid": "1", "kind": { "group": group, "version": version, "kind": object["kind"] },
            "operation": if old.is_some() { "UPDATE" } else { "CREATE" }, "object": object, "oldObject": old,
        } })
        .to_string();
        let counters = Counters::default();
        let context = AdmissionContext {
            snapshot: &self.snapshot,
            rules: &self.rules,
            now: Timestamp::UNIX_EPOCH,
            stop: &|| true,
        };
        let answers = [
            admission::respond_to_review(body.as_bytes(), &counters, |request| {
                admission::set_defaults(&self.rules, &self.snapshot.well_known, request)
            }),
            admission::respond_to_review(body.as_bytes(), &counters, |request| {
                admission::validate(&context, request)
            }),
        ];
        let answers = answers
            .iter()
            .map(|each| serde_json::to_value(each).unwrap());
        answers
            .filter(|answer| answer["response"]["allowed"] != json!(true))
            .map(|answer| answer["response"]["status"]["message"].to_string())
            .collect()
    }

    /// Whether the CRD accepts the object after pruning and defaulting.
    fn takes(&self, kind: &str, object: &Value, old: Option<&Value>) -> bool {
        let of_kind = schema(self.set, kind);
        let old = old.map(|old| stored(of_kind, old));
        let found = faults(
            self.set.crds(),
            &self.snapshot.well_known,
            kind,
            &stored(of_kind, object),
            old.as_ref(),
        );
        found
            .iter()
            .all(|fault| fault.weight != IssueSeverity::Schema)
    }

    /// Denials that are in no list.
    fn unexpected(&mut self, object: &Value, old: Option<&Value>) -> Vec<String> {
        let mut refusals = self.refusals(object, old);
        refusals.retain(|text| {
            let known = self.own.iter().position(|own| text.contains(&own.says));
            self.used.extend(known);
            known.is_none()
        });
        refusals
    }
}

#[test]
fn what_an_api_server_accepts_is_allowed_in_every_encoding() {
    let mut servers = [
        Server::new(DefinitionSet::Kwok),
        Server::new(DefinitionSet::Aws),
    ];
    let (mut asked, mut wrong) = (0, Vec::new());
    let all = cases();
    for case in &all {
        let server = servers
            .iter_mut()
            .find(|each| each.set == case.set)
            .unwrap();
        let of_kind = schema(case.set, &case.kind);
        let mut writings = the_same(of_kind, &case.object);
        let same_meaning = writings.len();
        writings.extend(one_null_each(of_kind, &case.object));
        let same = writings.len();
        writings.extend(each_made_null(&case.object));
        for (n, Encoding { name, object }) in writings.into_iter().enumerate() {
            asked += 1;
            let recorded = case.taken.filter(|_| n < same);
            let takes = server.takes(&case.kind, &object, case.old.as_ref());
            if let Some(recorded) = recorded.filter(|recorded| *recorded != takes) {
                wrong.push(format!("{} {name}: the API server takes it: {recorded}, the definition as it is read here: {takes}\n  {object}", case.id));
            }
            if !takes {
                continue;
            }
            // In the encoding of the user, and as the API server passes it on.
            let mut handed_on = vec![object];
            if n < same_meaning {
                handed_on.push(stored(of_kind, &handed_on[0]));
            }
            for object in handed_on {
                let refused = server.unexpected(&object, case.old.as_ref());
                if !refused.is_empty() {
                    wrong.push(format!("{} {name}: {refused:?}\n  {object}", case.id));
                }
            }
        }
    }
    println!("{asked} writings of {} objects", all.len());
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    assert!(asked > 5_000, "{asked}");
    let own = servers[0].own.len();
    for entry in 0..own {
        let used = servers.iter().any(|server| server.used.contains(&entry));
        let says = &servers[0].own[entry].says;
        assert!(
            used,
            "nothing is refused with {says:?} any more: take it out of the list"
        );
    }
}
