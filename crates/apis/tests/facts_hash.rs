//! Drift hashes against the answers of the reference implementation.
//!
//! A wrong number here would replace every node of a fleet that is taken over. Every recorded case is compared;
//! `MORTISE_FACTS_DIR` points the same comparison at another folder.

#![expect(
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "test support: the report is its output, a panic its failure"
)]

use std::io::Read as _;
use std::path::{Path, PathBuf};

use mortise_apis::NodePool;
use mortise_apis::hash::NODE_POOL_HASH_VERSION;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The lines of a file, packed or plain.
fn lines(name: &str) -> String {
    let folder = std::env::var_os("MORTISE_FACTS_DIR").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/facts"),
        PathBuf::from,
    );
    let plain = folder.join(format!("{name}.jsonl"));
    if plain.exists() {
        return std::fs::read_to_string(plain).unwrap();
    }
    let packed = folder.join(format!("{name}.jsonl.gz"));
    let bytes =
        std::fs::read(&packed).unwrap_or_else(|error| panic!("{}: {error}", packed.display()));
    let mut text = String::new();
    flate2::read::GzDecoder::new(bytes.as_slice())
        .read_to_string(&mut text)
        .unwrap();
    text
}

/// Compares the hash of every case, also after the object was written and read again: what passes through here must
/// not look drifted.
fn check<K: DeserializeOwned + Serialize>(
    name: &str,
    object: &str,
    version: &str,
    hash: impl Fn(&K, &Value) -> u64,
) {
    let (mut passed, mut failures) = (0, Vec::new());
    for line in lines(name).lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let read: K = serde_json::from_value(case[object].clone()).unwrap();
        let again: K = serde_json::from_value(serde_json::to_value(&read).unwrap()).unwrap();
        let ours = [
            hash(&read, &case).to_string(),
            hash(&again, &case).to_string(),
        ];
        if ours
            .iter()
            .all(|each| Some(each.as_str()) == case["hash"].as_str())
            && case["version"] == version
        {
            passed += 1;
        } else {
            failures.push(format!("we say {version} {ours:?}\n  {line}"));
        }
    }
    println!("{name}: {passed} passed, {} failed", failures.len());
    assert!(passed > 0 && failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn node_pool_hash() {
    check(
        "nodepool_hash",
        "nodePool",
        NODE_POOL_HASH_VERSION,
        |pool: &NodePool, _| pool.hash(),
    );
}
