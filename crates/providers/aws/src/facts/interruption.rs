//! Recorded queue messages, and what the reference implementation read in them.

use serde_json::Value;

use super::check;
use crate::interruption::event::parse;

#[test]
fn every_message_is_read_as_recorded() {
    check("interruption_messages.jsonl", |case| {
        let read = match (parse(case["raw"].as_str().unwrap()), case["error"] == true) {
            (Err(_), true) => return Ok(true),
            (Ok(read), true) => return Err(format!("an error is recorded, ours is {read:?}")),
            (Err(error), false) => return Err(format!("ours is an error: {error}")),
            (Ok(read), false) => read,
        };
        let ids: Vec<&str> = case["instanceIDs"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let ours: Vec<&str> = read.instances.iter().map(|id| &**id).collect();
        let recorded = case["time"]
            .as_str()
            .filter(|time| !time.starts_with("0001-")); // the zero time stands for none
        let sent = read.sent.map(|time| time.to_string());
        if case["kind"] != read.kind.label() || ids != ours || sent.as_deref() != recorded {
            return Err(format!("ours {read:?}, recorded {case}"));
        }
        Ok(true)
    });
}
